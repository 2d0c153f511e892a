package single

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/history"
)

// TestCreatesAfterClockWasAhead makes several entries with one script after the server's clock was
// 400 days ahead. The feed must have their lines, with the time at which they were made.
func TestCreatesAfterClockWasAhead(t *testing.T) {
	p := newFixture(t, redistest.Start(t))
	first := noted(p.draft("u", "n", nil))
	feed := p.engine.FeedKey(first.Key.Namespace(), history.FeedChanges, first.Key)
	begin := time.Now()
	ahead := fmt.Sprint(begin.Add(400*24*time.Hour).UnixMilli(), "-0")
	if err := p.engine.client.Do(t.Context(), "XADD", feed, ahead, "e", "user/uid:other - update / / / /").Err(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.engine.ApplyAll(t.Context(), []store.Change{first, noted(p.draft("v", "m", nil))})...); err != nil {
		t.Fatal(err)
	}
	found := p.engine.client.XRange(t.Context(), feed, "("+ahead, "+").Val()
	if len(found) != 1 {
		t.Fatalf("the feed has %v after the one that was ahead, want one stream entry, of one script", found)
	}
	lines := strings.Split(found[0].Values["e"].(string), "\n")
	for i, uid := range []string{"u", "v"} {
		var at int64
		_, err := fmt.Sscanf(lines[i], "user/uid:"+uid+" %d probe", &at)
		if age := time.UnixMicro(at).Sub(begin); err != nil || age < -time.Minute || age > time.Hour {
			t.Errorf("line %q, %v: want the time at which %s was made", lines[i], err, uid)
		}
	}
}
