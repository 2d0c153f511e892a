package userdb_test

import (
	"errors"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestTombstone looks for a deleted entry in every way: what guards its key is shown to nobody, goes
// by itself, and is no hindrance to a new entry with the same UID.
func TestTombstone(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		db := s.open(userdb.Options{Schema: wideSchema(schema.FoldCasefold)})
		users, ctx := typeOf(t, db, "user"), t.Context()
		before := add(t, users, "u", "name", "n", "job", "j")
		_, err := users.Tags(hints.UID("u")).Add(ctx, "t")
		must(t, err)
		must(t, users.Delete(ctx, hints.UID("u")))
		if r := s.dump(ctx)["user/uid:u"]; r.kind != "hash" || !r.fleets {
			t.Errorf("no tombstone that goes by itself: %v", r)
		}
		for what, h := range map[string]hints.Hint{"UID": hints.UID("u"), "*": hints.Any("n"), "entry": hints.Key(before.Key())} {
			_, err := users.Find(ctx, h)
			wantErr(t, "find by "+what, err, userdb.ErrNotFound)
			if there, err := users.Exists(ctx, h); there || err != nil {
				t.Errorf("exists by %s: %v, %v", what, there, err)
			}
			wantErr(t, "delete by "+what, users.Delete(ctx, h), userdb.ErrNotFound)
		}
		_, err = users.Save(ctx, before)
		wantErr(t, "save", err, userdb.ErrNotFound)
		_, err = users.Tags(hints.UID("u")).Add(ctx, "t")
		wantErr(t, "tags", err, userdb.ErrNotFound)
		wantNothing(t, db, users)
		after := add(t, users, "u", "name", "other")
		if after.Rev() == before.Rev() {
			t.Error("the new entry has the old revision")
		}
		if r := s.dump(ctx)["user/uid:u"]; r.fleets || r.fields["job"] != "" || r.fields["~dying"] != "" {
			t.Errorf("the new entry lies there as %v", r)
		}
		_, err = users.Save(ctx, before)
		wantErr(t, "saving the old entry over the new one", err, userdb.ErrConflict)
	})
}

// wantNothing wants no entry and no key in any listing.
func wantNothing(t *testing.T, db *userdb.DB, users *userdb.Type) {
	t.Helper()
	ctx := t.Context()
	for _, q := range []userdb.Query{{}, {Where: schema.Texts("job", "j")}, {Has: []string{"t"}}} {
		for e, err := range users.All(ctx, q) {
			t.Errorf("%v lists %v, %v", q, e, err)
		}
	}
	for key, err := range db.Keys(ctx, "*") {
		t.Errorf("keys: %q, %v", key, err)
	}
	if n, err := users.Count(ctx); n != 0 || err != nil {
		t.Errorf("count: %d, %v", n, err)
	}
	if n, err := db.RemoveKeys(ctx, "*"); n != 0 || err != nil {
		t.Errorf("removing: %d, %v", n, err)
	}
}

// TestTombstoneOfFence creates an entry over what another engine leaves where it fenced an absent
// entry: it must not go with the tombstone.
func TestTombstoneOfFence(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.wide(), t.Context()
		add(t, users, "v")
		must(t, s.raw.HSet(ctx, "user/uid:u", "~fence", "1").Err())
		must(t, s.raw.Expire(ctx, "user/uid:u", 86_400_000_000_000).Err())
		add(t, users, "u", "name", "n")
		if r := s.dump(ctx)["user/uid:u"]; r.fleets || r.fields["~fence"] != "" {
			t.Errorf("the entry lies there as %v", r)
		}
	})
}

// TestFencedIsUnchanged fences an entry after it was read: that changes nothing that a caller knows of.
func TestFencedIsUnchanged(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.wide(), t.Context()
		e := add(t, users, "u", "name", "n")
		for i, job := range []string{"", "j", "k"} {
			must(t, s.raw.HSet(ctx, "user/uid:u", "~fence", itoa(i+1)).Err())
			if job != "" {
				e.Put("job", schema.Text(job))
			}
			var err error
			if e, err = users.Save(ctx, e); err != nil || e.Text("job") != job {
				t.Errorf("saving with job %q: %v, %v", job, e, err)
			}
		}
	})
}

// TestLeftovers puts records that no live entry stands behind where readers look (I4).
func TestLeftovers(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.wide(), t.Context()
		add(t, users, "u", "name", "n", "job", "j")
		add(t, users, "v", "name", "w")
		must(t, errors.Join(
			s.raw.Set(ctx, "user/name:ghost/~prk", "user/uid:ghost", 0).Err(),
			s.raw.Set(ctx, "user/name:stale/~prk", "user/uid:u", 0).Err(),
			s.raw.Set(ctx, "user/name:order/~prk", "order/id:1", 0).Err(),
			s.raw.Set(ctx, "user/name:odd/~prk", "no key", 0).Err(),
			s.raw.Set(ctx, "user/name:empty/~prk", "", 0).Err(),
			s.raw.SAdd(ctx, "user/job:k/~prks", "user/uid:ghost", "user/uid:u", "odd").Err(),
			s.raw.SAdd(ctx, "user/tags:t/~prks", "user/uid:ghost", "user/uid:u").Err(),
			s.raw.SAdd(ctx, "user/uid:ghost/tags", "t").Err(),
		))
		for _, value := range []string{"ghost", "stale", "order", "odd", "empty"} {
			_, err := users.Find(ctx, hints.Any(value))
			wantErr(t, "find "+value, err, userdb.ErrNotFound)
			_, err = users.Login(ctx, value, "x", userdb.Attempt{})
			wantErr(t, "login "+value, err, userdb.ErrLogin)
		}
		_, err := users.Tags(hints.UID("ghost")).Members(ctx)
		wantErr(t, "tags of nobody", err, userdb.ErrNotFound)
		for _, q := range []userdb.Query{{Where: schema.Texts("job", "k")}, {Has: []string{"t"}}} {
			for e, err := range users.All(ctx, q) {
				t.Errorf("%v lists %v, %v", q, e, err)
			}
		}
		// They are in nobody's way: the values are free.
		for i, value := range []string{"ghost", "stale", "order", "odd", "empty"} {
			add(t, users, "x"+itoa(i), "nick", value)
		}
		s.expect("I4 user/job:k/~prks", "I5 user/job:k/~prks", "I4 user/tags:t/~prks", "I5 user/tags:t/~prks", "I4 user/uid:ghost/tags")
	})
}
