package userdb_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// retiringSchema returns a schema under which UIDs are never reused.
func retiringSchema() schema.Schema {
	return schema.Schema{Types: map[string]schema.Type{"user": {
		Primary: "uid", Retire: true,
		Fields: map[string]schema.Field{"email": {Role: schema.RoleSecondary}},
	}}}
}

// wantRetired checks that err reports a retired UID.
func wantRetired(t testingT, what string, err error) {
	t.Helper()
	wantField(t, what, err, userdb.ErrDuplicate, "uid")
	if f, ok := errors.AsType[*userdb.FieldError](err); !ok || f.Rule != store.RuleRetired {
		t.Errorf("%s: got %v, want the rule %s", what, err, store.RuleRetired)
	}
}

// retiredUIDs returns the retired UIDs of a type.
func retiredUIDs(t *testing.T, users *userdb.Type) (uids []string) {
	t.Helper()
	for r, err := range users.RetiredUIDs(t.Context()) {
		if must(t, err); time.Since(r.At).Abs() > time.Hour {
			t.Errorf("%s was retired at %v, want a time within an hour of now", r.UID, r.At)
		}
		uids = append(uids, r.UID)
	}
	slices.Sort(uids)
	return slices.Compact(uids)
}

// TestRetiredUID checks on every kind of store that no new entry gets the UID of a deleted one
// until the UID is forgotten, and that the identifiers of the deleted entry are free.
func TestRetiredUID(t *testing.T) {
	eachStoreAndRights(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		users := typeOf(t, s.open(userdb.Options{Schema: retiringSchema(), History: true}), "user")
		add(t, users, "a", "email", "a@x.org")
		add(t, users, "b", "email", "b@x.org")
		for range 2 {
			err := users.Delete(ctx, hints.UID("a"))
			if err != nil && !errors.Is(err, userdb.ErrNotFound) {
				t.Fatal(err)
			}
		}
		_, err := users.Create(ctx, userdb.NewEntry{UID: "a", Facets: schema.Texts("email", "c@x.org")})
		wantRetired(t, "create", err)
		_, err = users.Create(ctx, userdb.NewEntry{UID: "a", Facets: schema.Texts("email", "b@x.org")})
		wantRetired(t, "create with a value that is taken", err)
		_, err = users.Find(ctx, hints.UID("a"))
		wantErr(t, "find", err, userdb.ErrNotFound)
		add(t, users, "c", "email", "a@x.org")

		if got := retiredUIDs(t, users); !slices.Equal(got, []string{"a"}) {
			t.Errorf("the retired UIDs are %q, want a", got)
		}
		n, err := users.Count(ctx, userdb.Query{})
		if must(t, err); n.Entries != 2 {
			t.Errorf("the count is %+v, want 2 entries", n)
		}
		var all []string
		for e, err := range users.All(ctx, userdb.Query{}) {
			must(t, err)
			all = append(all, e.UID())
		}
		if slices.Sort(all); !slices.Equal(slices.Compact(all), []string{"b", "c"}) {
			t.Errorf("the entries are %q, want b and c", all)
		}

		add(t, users, "e", "email", "e@x.org")
		must(t, users.Delete(ctx, hints.UID("e")))
		var paged []string
		for after, more := "", true; more; more = after != "" {
			page, next, err := users.RetiredPage(ctx, after, 1)
			if must(t, err); len(page) > 1 {
				t.Errorf("a page has %d retired UIDs, want at most one", len(page))
			}
			for _, r := range page {
				paged = append(paged, r.UID)
			}
			after = next
		}
		if slices.Sort(paged); !slices.Equal(slices.Compact(paged), []string{"a", "e"}) {
			t.Errorf("the pages have the retired UIDs %q, want a and e", paged)
		}
		_, _, err = users.RetiredPage(ctx, "x", 1)
		wantErr(t, "a page after a text that is not a cursor", err, userdb.ErrCursor)

		wantErr(t, "forgetting an entry", users.ForgetUID(ctx, "b"), userdb.ErrNotFound)
		must(t, users.ForgetUID(ctx, "a"))
		wantErr(t, "forgetting again", users.ForgetUID(ctx, "a"), userdb.ErrNotFound)
		add(t, users, "a", "email", "d@x.org")
	})
}

// TestForgottenUIDHolds checks that a forgotten UID still holds the values of its entry: the
// tombstone lives until all holds end.
func TestForgottenUIDHolds(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx, sc := t.Context(), holdingSchema(time.Hour)
		user := sc.Types["user"]
		user.Retire = true
		sc.Types["user"] = user
		db := s.open(userdb.Options{Schema: sc})
		users := typeOf(t, db, "user")
		add(t, users, "a", "name", "Ada")
		must(t, users.Delete(ctx, hints.UID("a")))
		must(t, users.ForgetUID(ctx, "a"))
		tombstones, err := store.Inspect(ctx, view.Of(db).Engine, []string{"user/uid:a"}, 0)
		if must(t, err); tombstones[0].TTL < (50 * time.Minute).Milliseconds() {
			t.Errorf("the tombstone has a time to live of %d ms, want an hour", tombstones[0].TTL)
		}
		s.wantFree(users, false, "name", "Ada")
		must(t, users.ReleaseHeld(ctx, "name", "Ada"))
		s.wantFree(users, true, "name", "Ada")
	})
}

// TestRetiredUIDAmongMany checks that, of several creates in one script or round trip, only the one
// with the retired UID is refused.
func TestRetiredUIDAmongMany(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		users := typeOf(t, s.open(userdb.Options{Schema: retiringSchema()}), "user")
		add(t, users, "u7", "email", "seven@x.org")
		must(t, users.Delete(ctx, hints.UID("u7")))
		errs := make(chan error, 32)
		for i := range cap(errs) {
			go func() {
				_, err := users.Create(ctx, userdb.NewEntry{UID: fmt.Sprint("u", i), Facets: schema.Texts("email", fmt.Sprintf("%d@x.org", i))})
				if i == 7 {
					wantRetired(t, "create", err)
					err = nil
				}
				errs <- err
			}()
		}
		for range cap(errs) {
			must(t, <-errs)
		}
	})
}

// TestGeneratorSkipsRetired checks that neither Create nor Invite takes a retired UID from a
// generator.
func TestGeneratorSkipsRetired(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx, next := t.Context(), 0
		users := typeOf(t, s.open(userdb.Options{Schema: retiringSchema(), NewUID: func() (string, error) {
			next++
			return fmt.Sprint("n", (next+1)/2), nil // each UID twice
		}}), "user")
		e, err := users.Create(ctx, userdb.NewEntry{})
		must(t, err)
		must(t, users.Delete(ctx, hints.UID(e.UID())))
		again, err := users.Create(ctx, userdb.NewEntry{})
		if must(t, err); again.UID() != "n2" {
			t.Errorf("Create took %s, want n2", again.UID())
		}
		must(t, users.Delete(ctx, hints.UID("n2")))
		i, err := users.Invite(ctx, "email", "new@x.org", userdb.Token{Lifetime: time.Hour}, userdb.Attempt{})
		must(t, err)
		e, err = users.AcceptInvitation(ctx, i.Secret, userdb.NewEntry{})
		if must(t, err); e.UID() != "n3" {
			t.Errorf("the invitation is for %s, want n3", e.UID())
		}
	})
}

// TestRetiredByStoredSchema checks that the stored schema decides whether UIDs are retired.
func TestRetiredByStoredSchema(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		users := typeOf(t, s.open(userdb.Options{Schema: retiringSchema()}), "user")
		add(t, users, "a", "email", "a@x.org")
		declared := retiringSchema()
		typ := declared.Types["user"]
		typ.Retire = false
		declared.Types["user"] = typ
		other := typeOf(t, s.open(userdb.Options{Schema: declared}), "user")
		must(t, other.Delete(ctx, hints.UID("a")))
		_, err := other.Create(ctx, userdb.NewEntry{UID: "a"})
		wantRetired(t, "create", err)
	})
}
