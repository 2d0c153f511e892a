package single

import (
	"slices"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// TestComplete finds entries that were copied here from a cluster, which had laid their tags ready and not yet put in
// place: they come into their place, with their index (I5, I7).
func TestComplete(t *testing.T) {
	for _, tt := range []struct {
		mark   string
		before []string
		want   []string
	}{
		{"i", nil, []string{"red"}},
		{"i", []string{"blue"}, []string{"blue", "red"}},
		{"ir", nil, []string{"red"}},
		{"ir", []string{"blue"}, []string{"red"}},
	} {
		t.Run(tt.mark, func(t *testing.T) {
			p := newPair(t, redistest.Shared(t))
			p.apply(p.draft("u", "n", tt.before))
			ctx, client := t.Context(), p.plain.client
			set, err := recordkey.Parse("user/uid:u/tags")
			if err != nil {
				t.Fatal(err)
			}
			client.SAdd(ctx, store.StageKey(set, "rev"), "red")
			client.Expire(ctx, store.StageKey(set, "rev"), store.StageLife)
			client.HSet(ctx, set.PRK().String(), store.FieldFill, "rev "+tt.mark+":tags")
			if tt.before == nil {
				p.find("u")
			} else if _, err := p.plain.Tertiary(ctx, store.Op{PRK: set.PRK(), Key: set, Command: "SCARD", Schema: p.users.Guard}); err != nil {
				t.Error(err)
			}
			if _, has := p.find("u").Fields[store.FieldFill]; has {
				t.Error("it is not complete")
			}
			got := client.SMembers(ctx, set.String()).Val()
			if slices.Sort(got); !slices.Equal(got, tt.want) || client.TTL(ctx, set.String()).Val() != -1 {
				t.Errorf("tags %q, want %q", got, tt.want)
			}
			for _, tag := range []string{"red", "blue"} {
				index, _ := recordkey.Index("user", "tags", tag)
				if in := client.SCard(ctx, index.String()).Val() == 1; in != slices.Contains(tt.want, tag) {
					t.Errorf("in the index of %s: %v", tag, in)
				}
			}
			if n := client.Exists(ctx, store.StageKey(set, "rev")).Val(); n != 0 {
				t.Error("what was laid ready is left")
			}
		})
	}
}
