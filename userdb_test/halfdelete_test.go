package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// runWithout calls do as a user who has the given rights, except those to one command.
func (w *aclServer) runWithout(rights []string, command string, do func(context.Context, *userdb.DB) error) error {
	var less []string
	for _, right := range rights {
		if commandOf(right) != command {
			less = append(less, right)
		}
	}
	return w.runAs("app", less, do)
}

// TestDeleteForbidden deletes an account with tags while one command is forbidden, for each command
// that a delete uses, on one server and on a cluster. Afterward the account must be unchanged or
// gone for everybody. It must not come back, or live on without its tags. A repair must complete
// the delete, and a new account with the same UID must have nothing of the old one.
func TestDeleteForbidden(t *testing.T) {
	app, operator := redistest.Rights(t)
	for _, clustered := range []bool{false, true} {
		w := newACLServer(t, clustered)
		for _, command := range strings.Fields("hdel expire pexpire persist unlink srem zrem hset") {
			what := fmt.Sprintf("%s forbidden, cluster %v", command, clustered)
			must(t, w.admin.FlushAll(t.Context()).Err())
			must(t, w.runAs("app", app, func(ctx context.Context, db *userdb.DB) error {
				users := typeOf(t, db, "user")
				add(t, users, "first", "name", "first")
				facets := schema.Texts("name", "n", "job", "j")
				return errOf(users.Create(ctx, userdb.NewEntry{UID: "u", Facets: facets, Tags: []string{"admin"}}))
			}))
			deleteErr := w.runWithout(app, command, func(ctx context.Context, db *userdb.DB) error {
				return typeOf(t, db, "user").Delete(ctx, hints.UID("u"))
			})
			must(t, w.runAs("operator", operator, func(ctx context.Context, db *userdb.DB) error {
				w.checkHalfDeleted(what, db, deleteErr)
				return nil
			}))
		}
	}
}

// checkHalfDeleted checks an account whose delete may have been refused halfway.
func (w *aclServer) checkHalfDeleted(what string, db *userdb.DB, deleteErr error) {
	t, ctx := w.t, w.t.Context()
	t.Helper()
	users := typeOf(t, db, "user")
	_, err := users.Find(ctx, hints.UID("u"))
	exists := err == nil
	if !exists && !errors.Is(err, userdb.ErrNotFound) {
		t.Errorf("%s: find: got %v, want the entry or ErrNotFound", what, err)
	}
	done := deleteErr == nil || errors.Is(deleteErr, userdb.ErrUnconfirmed)
	if exists == done && !errors.Is(deleteErr, userdb.ErrOutcomeUnknown) {
		t.Errorf("%s: the entry exists: %v, but the delete returned %v", what, exists, deleteErr)
	}
	if exists {
		wantTags(t, what, users, "u", "admin")
		must(t, users.Delete(ctx, hints.UID("u")))
	}
	runCheck(t, db, check.Options{Repair: true})
	if left := runCheck(t, db, check.Options{}); len(left) > 0 {
		t.Errorf("%s: problems remain after the repair: %v", what, left)
	}
	if _, err := users.Find(ctx, hints.UID("u")); !errors.Is(err, userdb.ErrNotFound) {
		t.Errorf("%s: find after the repair: got %v, want ErrNotFound", what, err)
	}
	if life := w.admin.TTL(ctx, "user/uid:u").Val(); life == -1 {
		t.Errorf("%s: the tombstone does not expire", what)
	}
	// With a recent ~since, the create would wait until the deleter has certainly given up.
	if w.admin.HExists(ctx, "user/uid:u", "~since").Val() {
		must(t, w.admin.HSet(ctx, "user/uid:u", "~since", "1700000000").Err())
	}
	_, err = users.Create(ctx, userdb.NewEntry{UID: "u", Facets: schema.Texts("name", "n")})
	must(t, err)
	wantTags(t, what+", created again", users, "u")
	if r := w.admin.HGetAll(ctx, "user/uid:u").Val(); r["job"] != "" || w.admin.TTL(ctx, "user/uid:u").Val() != -1 {
		t.Errorf("%s: the record of the new entry is %v, want no expiry and no job", what, r)
	}
}

// TestCreateOverHalfDeleted starts from a delete that could not remove the facets. No method may
// treat the leftovers as an account or as damage, and the next account with that UID must have none
// of them.
func TestCreateOverHalfDeleted(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.wide(), t.Context()
		add(t, users, "u", "name", "n", "job", "j")
		must(t, errors.Join(
			s.raw.HSet(ctx, "user/uid:u", "~isa", "", "~rev", "abcdefghijkl").Err(),
			s.raw.Expire(ctx, "user/uid:u", 10*time.Minute).Err(),
		))
		wantInvisible(t, users, "u", "n")
		wantErr(t, "delete", users.Delete(ctx, hints.UID("u")), userdb.ErrNotFound)
		_, err := users.Update(ctx, hints.UID("u"), func(*userdb.Entry) error { return nil })
		wantErr(t, "update", err, userdb.ErrNotFound)
		add(t, users, "u", "nick", "new")
		if r := s.dump(ctx)["user/uid:u"]; r.expires || r.fields["job"] != "" || r.fields["name"] != "" {
			t.Errorf("the record of the new entry is %v, want no expiry, job or name", r)
		}
		s.expect("I4 user/name:n/~prk", "I5 user/job:j/~prks")
	})
}

// TestEndlessFence leaves the fence of an absent entry without a time to live. A check must report
// this tombstone, which would stay forever, and a repair must make it expire.
func TestEndlessFence(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.wide(), t.Context()
		add(t, users, "first")
		must(t, s.raw.HSet(ctx, "user/uid:u", "~fence", "1").Err())
		found := runCheck(t, s.first, check.Options{})
		if len(found) != 1 || found[0].Code != "tombstone_endless" || found[0].Key != "user/uid:u" {
			t.Errorf("a check found %v, want one endless tombstone", found)
		}
		if repaired := runCheck(t, s.first, check.Options{Repair: true}); len(repaired) != 1 || !repaired[0].Repaired {
			t.Errorf("a repair reports %v, want one repaired problem", repaired)
		}
		if life := s.raw.TTL(ctx, "user/uid:u").Val(); life <= 0 {
			t.Errorf("after the repair the tombstone has the time to live %v, want a positive one", life)
		}
	})
}
