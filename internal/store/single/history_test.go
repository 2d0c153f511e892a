package single

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store/history"
)

// TestOldDeletesAreForgotten checks that the lines of an earlier entry leave the record a day after
// that entry was deleted, even if the program that created the next entry wrote no line.
func TestOldDeletesAreForgotten(t *testing.T) {
	p := newFixture(t, redistest.Start(t))
	p.apply(p.draft("a", "x", nil))
	prk, _ := p.users.PRK("a")
	key, _ := history.Key(prk)
	for age, want := range map[time.Duration][]string{
		23 * time.Hour: {"update", "delete", "probe"},
		25 * time.Hour: {"probe"},
	} {
		deleted := time.Now().Add(-age).UnixMicro()
		past := fmt.Sprintf("%d update / / / /\n%d delete / / / /", deleted-1, deleted)
		if err := p.engine.client.Set(t.Context(), key.String(), past, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		update := p.updated("a", map[string]string{"uid": "a", "name": age.String()})
		update.Note = history.Note{Lines: []string{"probe / / / /"}}
		p.apply(update)
		lines, err := p.engine.HistoryLines(t.Context(), prk)
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, line := range lines {
			kinds = append(kinds, history.LineKind(line))
		}
		if !slices.Equal(kinds, want) {
			t.Errorf("%v after a delete, the record has lines of the kinds %q, want %q", age, kinds, want)
		}
	}
}
