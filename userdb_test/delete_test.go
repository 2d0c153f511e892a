package userdb_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestTombstone looks for a deleted entry in every way. The tombstone that guards its key must be
// invisible, expire by itself, and not prevent a new entry with the same UID.
func TestTombstone(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		db := s.open(userdb.Options{Schema: wideSchema(schema.FoldCasefold)})
		users, ctx := typeOf(t, db, "user"), t.Context()
		before := add(t, users, "u", "name", "n", "job", "j")
		_, err := users.Tags(hints.UID("u")).Add(ctx, "t")
		must(t, err)
		must(t, users.Delete(ctx, hints.UID("u")))
		if r := s.dump(ctx)["user/uid:u"]; r.kind != "hash" || !r.expires {
			t.Errorf("the record is %v, want a tombstone that expires", r)
		}
		for what, h := range map[string]hints.Hint{"UID": hints.UID("u"), "*": hints.Any("n"), "key": hints.Key(before.Key())} {
			_, err := users.Find(ctx, h)
			wantErr(t, "find by "+what, err, userdb.ErrNotFound)
			if exists, err := users.Exists(ctx, h); exists || err != nil {
				t.Errorf("exists by %s: got %v, %v; want false", what, exists, err)
			}
			wantErr(t, "delete by "+what, users.Delete(ctx, h), userdb.ErrNotFound)
		}
		_, err = users.Save(ctx, before)
		wantErr(t, "saving the deleted entry", err, userdb.ErrNotFound)
		_, err = users.Tags(hints.UID("u")).Add(ctx, "t")
		wantErr(t, "adding a tag", err, userdb.ErrNotFound)
		wantEmptyStore(t, db, users)
		after := add(t, users, "u", "name", "other")
		if after.Rev() == before.Rev() {
			t.Error("the new entry has the old revision")
		}
		if r := s.dump(ctx)["user/uid:u"]; r.expires || r.fields["job"] != "" || r.fields["~dying"] != "" {
			t.Errorf("the record of the new entry is %v, want neither an expiry nor the job nor ~dying", r)
		}
		_, err = users.Save(ctx, before)
		wantErr(t, "saving the old entry over the new one", err, userdb.ErrConflict)
	})
}

// TestDeleteIf checks that the check of DeleteIf gets the version of the entry that is deleted,
// even if somebody changes the entry after Delete has read it.
func TestDeleteIf(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := typeOf(t, s.open(userdb.Options{Schema: wideSchema(schema.FoldCasefold)}), "user"), t.Context()
		add(t, users, "u", "name", "n", "job", "cook")
		errMoved := errors.New("no longer a cook")
		var read []string // the jobs that the check saw
		remove := func(meanwhile string) error {
			return users.Delete(ctx, hints.UID("u"), userdb.DeleteIf(func(e userdb.Entry) error {
				job := e.Text("job")
				if read = append(read, job); job != "cook" {
					return errMoved
				}
				_, err := users.Update(ctx, hints.UID("u"), putText("job", meanwhile))
				return err
			}))
		}
		wantErr(t, "a delete while the job changes", remove("baker"), errMoved)
		if !slices.Equal(read, []string{"cook", "baker"}) {
			t.Errorf("the check saw the jobs %q, want cook, then baker", read)
		}
		_, err := users.Update(ctx, hints.UID("u"), putText("job", "cook"))
		must(t, err)
		must(t, remove("cook"))
		_, err = users.Find(ctx, hints.UID("u"))
		wantErr(t, "find after the delete", err, userdb.ErrNotFound)
	})
}

// wantEmptyStore checks that the store lists no entries and no keys.
func wantEmptyStore(t *testing.T, db *userdb.DB, users *userdb.Type) {
	t.Helper()
	ctx := t.Context()
	for _, q := range []userdb.Query{{}, {Where: schema.Texts("job", "j")}, {Tags: []string{"t"}}} {
		for e, err := range users.All(ctx, q) {
			t.Errorf("%v lists %v, %v; want nothing", q, e, err)
		}
	}
	for key, err := range inspect.Keys(ctx, db, "*") {
		t.Errorf("Keys: got %q, %v; want no keys", key, err)
	}
	if n, err := users.Count(ctx, userdb.Query{}); n.Entries != 0 || err != nil {
		t.Errorf("Count: got %v, %v; want no entries", n, err)
	}
	if n, err := inspect.RemoveKeys(ctx, db, "*"); n != 0 || err != nil {
		t.Errorf("RemoveKeys: got %d, %v; want 0", n, err)
	}
}

// TestCreateOverFence creates an entry over the tombstone that the cluster engine leaves after it
// fenced an entry that does not exist. The new entry must not expire with the tombstone.
func TestCreateOverFence(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.wide(), t.Context()
		add(t, users, "v")
		must(t, s.raw.HSet(ctx, "user/uid:u", "~fence", "1").Err())
		must(t, s.raw.Expire(ctx, "user/uid:u", 24*time.Hour).Err())
		add(t, users, "u", "name", "n")
		if r := s.dump(ctx)["user/uid:u"]; r.expires || r.fields["~fence"] != "" {
			t.Errorf("the record of the entry is %v, want neither an expiry nor ~fence", r)
		}
	})
}

// TestSaveAfterFence fences an entry after a caller has read it. The caller must still be able to
// save it.
func TestSaveAfterFence(t *testing.T) {
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
				t.Errorf("saving with job %q: got %v, %v; want that job", job, e, err)
			}
		}
	})
}

// TestLeftovers adds records that name no live entry (I4), or one that does not have the value
// (I5), where readers look. Readers must ignore them.
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
		wantErr(t, "tags of an absent entry", err, userdb.ErrNotFound)
		for _, q := range []userdb.Query{{Where: schema.Texts("job", "k")}, {Tags: []string{"t"}}} {
			for e, err := range users.All(ctx, q) {
				t.Errorf("%v lists %v, %v; want nothing", q, e, err)
			}
		}
		// Leftovers do not block anybody: their values are free.
		for i, value := range []string{"ghost", "stale", "order", "odd", "empty"} {
			add(t, users, "x"+itoa(i), "nick", value)
		}
		s.expect("I4 user/job:k/~prks", "I5 user/job:k/~prks")
		s.expect("I4 user/tags:t/~prks", "I5 user/tags:t/~prks", "I4 user/uid:ghost/tags")
	})
}

// schemaWithLists returns the built-in schema with additional tertiary records, all of them lists.
func schemaWithLists(names ...string) schema.Schema {
	s := schema.User()
	for _, name := range names {
		s.Types["user"].Tertiary[name] = schema.Tertiary{Kind: "list"}
	}
	return s
}

// TestDeleteRemovesUndeclaredRecords deletes an entry with a program that does not declare all of
// its tertiary records, as may happen during a deployment. A new account with the same UID must
// have none of them.
func TestDeleteRemovesUndeclaredRecords(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		older := typeOf(t, s.open(userdb.Options{Schema: schema.User()}), "user")
		add(t, older, "u", "name", "n")
		newDB := s.open(userdb.Options{Schema: schemaWithLists("notes", "a b/c")})
		newer, ctx := typeOf(t, newDB, "user"), t.Context()
		_, err := newer.List(hints.UID("u"), "notes").Append(ctx, "mine")
		must(t, err)
		_, err = newer.List(hints.UID("u"), "a b/c").Append(ctx, "mine")
		must(t, err)
		must(t, older.Delete(ctx, hints.UID("u")))

		_, err = newer.Create(ctx, userdb.NewEntry{UID: "u", Facets: schema.Texts("name", "n"), Tags: []string{"born"}})
		must(t, err)
		for _, name := range []string{"notes", "a b/c"} {
			if items, err := newer.List(hints.UID("u"), name).Items(ctx, 0, -1); err != nil || len(items) > 0 {
				t.Errorf("the new entry has %q: %q, %v; want none", name, items, err)
			}
		}
		if tags, err := newer.Tags(hints.UID("u")).Members(ctx); err != nil || !slices.Equal(tags, []string{"born"}) {
			t.Errorf("the new entry has the tags %q, %v; want only its own", tags, err)
		}

		// A record that only the stored schema declares is deleted as well.
		plan, err := migrate.Plan(ctx, newDB, schemaWithLists("notes", "a b/c", "later"))
		must(t, err)
		must(t, plan.Apply(ctx, nil))
		must(t, s.raw.RPush(ctx, "user/uid:u/later", "old").Err())
		must(t, older.Delete(ctx, hints.UID("u")))
		if n := s.raw.Exists(ctx, "user/uid:u/later").Val(); n != 0 {
			t.Error("a record that only the stored schema declares was not deleted")
		}
	})
}

// TestClusterDeleterDies writes the records that remain if a program dies right after it committed
// a delete. A check must list them, and readers must not see them. A new entry with the same UID
// must have none of them, whether or not a repair ran before.
func TestClusterDeleterDies(t *testing.T) {
	for _, repair := range []bool{false, true} {
		t.Run(fmt.Sprint("repair ", repair), func(t *testing.T) {
			s := clusterSite(t)
			t.Cleanup(s.check)
			users, ctx := s.wide(), t.Context()
			add(t, users, "first", "name", "first")
			must(t, errors.Join(
				s.raw.HSet(ctx, "user/uid:u", "~rev", "abcdefghijkl", "~dying", "abcdefghijkl", "~since", "1700000000").Err(),
				s.raw.Expire(ctx, "user/uid:u", 24*time.Hour).Err(),
				s.raw.Set(ctx, "user/name:n/~prk", "user/uid:u 0123456789ab", 0).Err(),
				s.raw.SAdd(ctx, "user/uid:u/tags", "admin", "old").Err(),
				s.raw.SAdd(ctx, "user/tags:admin/~prks", "user/uid:u").Err(),
				s.raw.SAdd(ctx, "user/tags:old/~prks", "user/uid:u").Err(),
				s.raw.RPush(ctx, "user/uid:u/notes", "old").Err(),
			))
			wantInvisible(t, users, "u", "n")
			db := s.first
			found := runCheck(t, db, check.Options{})
			for _, key := range []string{"user/name:n/~prk", "user/uid:u/tags", "user/uid:u/notes", "user/tags:admin/~prks"} {
				if !reportsLeftover(found, key) {
					t.Errorf("check does not list %s", key)
				}
			}
			if repair {
				runCheck(t, db, check.Options{Repair: true})
				wantRepairable(t, db, noExcuse)
			}
			_, err := users.Create(ctx, userdb.NewEntry{UID: "u", Facets: schema.Texts("name", "n"), Tags: []string{"new"}})
			must(t, err)
			tags, err := users.Tags(hints.UID("u")).Members(ctx)
			if err != nil || strings.Join(tags, " ") != "new" {
				t.Errorf("the new entry has the tags %q, %v; want only its own", tags, err)
			}
			if n, err := s.raw.Exists(ctx, "user/uid:u/notes").Result(); n != 0 || err != nil {
				t.Errorf("the notes of the deleted entry remain: %v", err)
			}
		})
	}
}

func reportsLeftover(ps []check.Problem, key string) bool {
	for _, p := range ps {
		if p.Key == key && p.Invariant == 4 {
			return true
		}
	}
	return false
}

// wantInvisible checks that readers do not see an entry that is not live.
func wantInvisible(t *testing.T, users *userdb.Type, uid, name string) {
	t.Helper()
	_, err := users.Find(t.Context(), hints.UID(uid))
	wantErr(t, "find by UID", err, userdb.ErrNotFound)
	_, err = users.Find(t.Context(), hints.Any(name))
	wantErr(t, "find by name", err, userdb.ErrNotFound)
	_, err = users.Tags(hints.UID(uid)).Members(t.Context())
	wantErr(t, "read the tags", err, userdb.ErrNotFound)
}
