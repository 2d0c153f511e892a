package userdb_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestOpenSlotOfTags creates an entry whose tags cannot come into their place, for their slot is being migrated: the entry
// is read, changed and listed as any other, and its tags are there when the slot is closed.
func TestOpenSlotOfTags(t *testing.T) {
	c := redistest.StartCluster(t)
	db, err := userdb.Open(t.Context(), c.URL(), userdb.Options{})
	must(t, err)
	defer db.Close()
	users, ctx := typeOf(t, db, "user"), t.Context()
	add(t, users, "first", "name", "first")
	slot := c.OpenSlot("user/uid:u/tags")
	_, err = users.Create(ctx, userdb.NewEntry{UID: "u", Facets: schema.Texts("name", "you"), Tags: []string{"red"}, Password: clearPassword})
	must(t, err)
	pending := func() bool { return c.Client().HExists(ctx, "user/uid:u", "~fill").Val() }
	if !pending() {
		t.Fatal("the tags are in their place already")
	}
	for name, verb := range map[string]func() error{
		"find":  func() error { _, err := users.Find(ctx, hints.Any("you")); return err },
		"login": func() error { _, err := users.Login(ctx, "you", clearPassword, userdb.Attempt{}); return err },
		"update": func() error {
			_, err := users.Update(ctx, hints.UID("u"), func(e *userdb.Entry) error { e.Put("job", schema.Text("cook")); return nil })
			return err
		},
	} {
		if err := verb(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	n := 0
	for _, err := range users.All(ctx, userdb.Query{}) {
		must(t, err)
		n++
	}
	if n != 2 || !pending() {
		t.Errorf("%d entries are listed, want 2; the tags wait: %v", n, pending())
	}
	_, err = users.Tags(hints.UID("u")).Members(ctx)
	wantErr(t, "tags whose slot is open", err, userdb.ErrUnavailable, "TRYAGAIN")
	slot.Finish()
	if members, err := users.Tags(hints.UID("u")).Members(ctx); err != nil || len(members) != 1 || pending() {
		t.Errorf("tags: %q, %v; they wait: %v", members, err, pending())
	}
	mended(t, db, never)
}

// waiting leaves an entry as a create leaves it whose last step failed.
func waiting(t *testing.T, users *userdb.Type, client redis.UniversalClient, ns recordkey.Namespace, uid string) {
	t.Helper()
	ctx, prefix := context.Background(), ns.String()
	add(t, users, uid, "name", "name of "+uid)
	must(t, client.SAdd(ctx, prefix+"~/fill/ABCDEFGHIJKL/{"+prefix+"user/uid:"+uid+"/tags}", "red", "blue").Err())
	must(t, client.HSet(ctx, prefix+"user/uid:"+uid, "~fill", "ABCDEFGHIJKL i:tags").Err())
}

// TestTagsThatWait has entries whose tags are not in place: check lists them and changes nothing, a copy of the namespace
// has them, a repair and whoever reads them puts them in place.
func TestTagsThatWait(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.needs(manyClients)
		ctx := t.Context()
		s.wide()
		from, to := space(t, "from"), space(t, "to")
		db, err := s.first.In(from)
		must(t, err)
		users := typeOf(t, db, "user")
		waiting(t, users, s.raw, from, "a")
		waiting(t, users, s.raw, from, "b")
		_, err = maintain.CopyNamespace(ctx, s.first, from, to)
		must(t, err)
		copied, err := s.first.In(to)
		must(t, err)

		var listed int
		for range 2 {
			listed = len(problems(t, copied, false))
		}
		if listed != 2 {
			t.Errorf("check lists %d entries, want 2, each time", listed)
		}
		if members, err := typeOf(t, copied, "user").Tags(hints.UID("b")).Members(ctx); err != nil || len(members) != 2 {
			t.Errorf("tags of a copy: %q, %v", members, err)
		}
		if mended := problems(t, copied, true); len(mended) != 1 || !mended[0].Repaired {
			t.Errorf("repaired: %v", mended)
		}
		if left := problems(t, copied, false); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
		tagged := 0
		for _, err := range typeOf(t, copied, "user").All(ctx, userdb.Query{Has: []string{"red", "blue"}}) {
			must(t, err)
			tagged++
		}
		if tagged != 2 {
			t.Errorf("%d entries have both tags, want 2", tagged)
		}
		for _, ns := range []recordkey.Namespace{from, to} {
			_, err := maintain.DropNamespace(ctx, s.first, ns)
			must(t, err)
		}
	})
}

func problems(t *testing.T, db *userdb.DB, repair bool) (found []maintain.Problem) {
	t.Helper()
	for p, err := range maintain.Check(store.Alone(t.Context()), db, maintain.CheckOptions{Repair: repair}) {
		must(t, err)
		if !p.Warning {
			found = append(found, p)
			if p.Code != "fill_waiting" {
				t.Errorf("found: %v", p)
			}
		}
	}
	return found
}
