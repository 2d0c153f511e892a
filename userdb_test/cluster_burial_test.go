package userdb_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestClusterDeadDeleter leaves what a deleter leaves that dies right behind its commit. A check lists it, nobody is
// shown it, and the entry can be made anew, with nothing of the old one: by itself, and behind a repair.
func TestClusterDeadDeleter(t *testing.T) {
	for _, repair := range []bool{false, true} {
		s := clusterSite(t)
		users, ctx := s.wide(), t.Context()
		add(t, users, "first", "name", "first")
		must(t, errors.Join(
			s.raw.HSet(ctx, "user/uid:u", "~rev", "abcdefghijkl", "~dying", "abcdefghijkl", "~since", "1700000000").Err(),
			s.raw.Expire(ctx, "user/uid:u", 86400e9).Err(),
			s.raw.Set(ctx, "user/name:n/~prk", "user/uid:u 0123456789ab", 0).Err(),
			s.raw.SAdd(ctx, "user/uid:u/tags", "admin", "old").Err(),
			s.raw.SAdd(ctx, "user/tags:admin/~prks", "user/uid:u").Err(),
			s.raw.SAdd(ctx, "user/tags:old/~prks", "user/uid:u").Err(),
			s.raw.RPush(ctx, "user/uid:u/notes", "old").Err(),
		))
		wantNothingOf(t, users, "u", "n")
		db := s.first
		found := checked(t, db, maintain.CheckOptions{})
		for _, key := range []string{"user/name:n/~prk", "user/uid:u/tags", "user/uid:u/notes", "user/tags:admin/~prks"} {
			if !told(found, key) {
				t.Errorf("check does not list %s", key)
			}
		}
		if repair {
			checked(t, db, maintain.CheckOptions{Repair: true})
			mended(t, db, never)
		}
		_, err := users.Create(ctx, userdb.NewEntry{UID: "u", Facets: schema.Texts("name", "n"), Tags: []string{"new"}})
		must(t, err)
		tags, err := users.Tags(hints.UID("u")).Members(ctx)
		if err != nil || strings.Join(tags, " ") != "new" {
			t.Errorf("tags %q, %v", tags, err)
		}
		if n, err := s.raw.Exists(ctx, "user/uid:u/notes").Result(); n != 0 || err != nil {
			t.Errorf("the old notes are there: %v", err)
		}
		s.check()
	}
}

func told(ps []maintain.Problem, key string) bool {
	for _, p := range ps {
		if p.Key == key && p.Invariant == 4 {
			return true
		}
	}
	return false
}

// wantNothingOf wants an entry that is not live not to be shown.
func wantNothingOf(t *testing.T, users *userdb.Type, uid, name string) {
	t.Helper()
	_, err := users.Find(t.Context(), hints.UID(uid))
	wantErr(t, "by UID", err, userdb.ErrNotFound)
	_, err = users.Find(t.Context(), hints.Any(name))
	wantErr(t, "by name", err, userdb.ErrNotFound)
	_, err = users.Tags(hints.UID(uid)).Members(t.Context())
	wantErr(t, "tags", err, userdb.ErrNotFound)
}
