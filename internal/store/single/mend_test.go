package single

import (
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// prepareTags stores a prepared set with the tag red and names it in ~fill of the entry. If mark
// ends in "d", for records that are only dropped, it stores an empty string in place of the set.
func (p fixture) prepareTags(set recordkey.Key, mark string) {
	ctx, client, stage := p.t.Context(), p.engine.client, store.PreparedKey(set, "rev")
	if strings.HasSuffix(mark, "d") {
		client.Set(ctx, stage, "", 0)
	} else {
		client.SAdd(ctx, stage, "red")
	}
	client.Expire(ctx, stage, store.PreparedLife)
	client.HSet(ctx, set.PRK().String(), store.FieldFill, "rev "+mark+":tags")
}

// TestFillComesFirst changes tags on behalf of a caller that read the entry before it was copied to
// this server. The prepared set must be moved into place before the change is made.
func TestFillComesFirst(t *testing.T) {
	p := newFixture(t, redistest.Shared(t))
	p.make("u", "n")
	c, _, err := p.users.Update(p.find("u"), map[string]string{"uid": "u", "name": "n"}, nil)
	if err == nil {
		err = p.users.SetTertiary(&c, []change.Content{{Name: "tags", Kind: "set"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	set := c.Drop[0].Key
	p.prepareTags(set, "i")
	p.apply(c)
	p.find("u") // moves into place whatever is still prepared
	if tags := p.engine.client.SMembers(t.Context(), set.String()).Val(); len(tags) != 0 {
		t.Errorf("the entry has the tags %q after all were removed, want none", tags)
	}
}

// TestComplete reads entries that were copied from a cluster to this server before their prepared
// tags were moved into place. The read must move the tags and update their indexes (I5, I7).
func TestComplete(t *testing.T) {
	for _, tt := range []struct {
		name   string
		mark   string
		before []string
		want   []string
	}{
		{"added to no tags", "i", nil, []string{"red"}},
		{"added to other tags", "i", []string{"blue"}, []string{"blue", "red"}},
		{"replacing no tags", "ir", nil, []string{"red"}},
		{"replacing other tags", "ir", []string{"blue"}, []string{"red"}},
		{"dropping tags", "id", []string{"blue"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newFixture(t, redistest.Shared(t))
			p.apply(p.draft("u", "n", tt.before))
			ctx, client := t.Context(), p.engine.client
			set, err := recordkey.Parse("user/uid:u/tags")
			if err != nil {
				t.Fatal(err)
			}
			p.prepareTags(set, tt.mark)
			if tt.before == nil {
				p.find("u")
			} else if _, err := p.engine.Tertiary(ctx, store.Op{PRK: set.PRK(), Key: set, Command: "SCARD", Schema: p.users.Guard}); err != nil {
				t.Error(err)
			}
			if _, has := p.find("u").Fields[store.FieldFill]; has {
				t.Error("~fill is still there")
			}
			got := client.SMembers(ctx, set.String()).Val()
			if slices.Sort(got); !slices.Equal(got, tt.want) || len(got) > 0 && client.TTL(ctx, set.String()).Val() != -1 {
				t.Errorf("tags %q, want %q", got, tt.want)
			}
			for _, tag := range []string{"red", "blue"} {
				index, _ := recordkey.Index("user", "tags", tag)
				if in := client.SCard(ctx, index.String()).Val() == 1; in != slices.Contains(tt.want, tag) {
					t.Errorf("in the index of %s: %v, want %v", tag, in, !in)
				}
			}
			if n := client.Exists(ctx, store.PreparedKey(set, "rev")).Val(); n != 0 {
				t.Error("the prepared record is still there")
			}
		})
	}
}
