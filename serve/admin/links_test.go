package admin_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/embedded"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// TestLinksOfOperator checks that the links of an operator are listed by account while they may be
// valid, that they can be ended, and that an operator who is disabled meanwhile cannot make links.
func TestLinksOfOperator(t *testing.T) {
	eachStore(t, func(t *testing.T, db *userdb.DB) {
		ctx := t.Context()
		_, err := admin.AddOperator(ctx, db, "Olga", goodPassword)
		must(t, err)
		operators, err := admin.Operators(db)
		must(t, err)
		ns, err := recordkey.ParseNamespace("shop")
		must(t, err)
		shop, err := db.In(ns)
		must(t, err)
		root, err := admin.OpenLinks(db)
		must(t, err)
		inShop, err := admin.OpenLinks(shop)
		must(t, err)
		users, err := shop.Type("user")
		must(t, err)
		e, err := users.Create(ctx, userdb.NewEntry{UID: "u1"})
		must(t, err)
		issue := func(by string, life time.Duration, meanwhile func()) (secret string, err error) {
			err = inShop.Issue(ctx, by, e.Key(), life, func() (err error) {
				secret, err = users.Issue(ctx, hints.UID("u1"), userdb.Token{Purpose: "reset"})
				meanwhile()
				return err
			})
			return secret, err
		}
		nothing := func() {}
		first, err := issue("Olga", time.Hour, nothing)
		must(t, err)
		_, err = issue("Paul", time.Hour, nothing)
		must(t, err)
		second, err := issue("Olga", 24*time.Hour, nothing)
		must(t, err)
		_, err = issue("Olga", -2*time.Hour, nothing) // a link that is no longer valid
		must(t, err)

		made, err := root.MadeBy(ctx, "Olga")
		must(t, err)
		if len(made) != 1 || made[0].Namespace != "shop" || made[0].Type != "user" || made[0].UID != "u1" || time.Until(made[0].Expires) < 24*time.Hour {
			t.Fatalf("got the links %+v, want one for u1 that is valid for a day", made)
		}
		wantValid := func(secret string, want bool) {
			t.Helper()
			_, _, err := users.Peek(ctx, "reset", secret)
			if want && err != nil || !want && !errors.Is(err, userdb.ErrNotFound) {
				t.Errorf("Peek returns %v, want a valid link: %t", err, want)
			}
		}
		wantValid(first, true)
		must(t, root.End(ctx, made[0]))
		wantValid(first, false)
		wantValid(second, false)
		must(t, root.End(ctx, made[0]))

		secret, err := issue("Olga", time.Hour, func() { must(t, operators.Disable(ctx, hints.Any("olga"))) })
		if !errors.Is(err, admin.ErrOperatorDisabled) {
			t.Errorf("disabled meanwhile: got %v, want ErrOperatorDisabled", err)
		}
		wantValid(secret, false)
		must(t, users.Delete(ctx, hints.UID("u1")))
		must(t, root.End(ctx, made[0]))
	})
}

// TestLinksThatFail checks that the record of a link is deleted if the link was certainly not made,
// and that operators can make links and start jobs in spite of damaged records.
func TestLinksThatFail(t *testing.T) {
	server := redistest.Start(t)
	db, err := userdb.Open(t.Context(), server.URL(), userdb.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	ctx := t.Context()
	inside, err := admin.Open(db)
	must(t, err)
	records, err := inside.Type("link")
	must(t, err)
	links, err := admin.OpenLinks(db)
	must(t, err)
	account, err := recordkey.PRK("user", "uid", "u1")
	must(t, err)
	for _, one := range []struct {
		err  error
		kept bool
	}{
		{userdb.ErrNotFound, false},
		{&userdb.FieldError{Err: userdb.ErrInvalid, Field: "purpose"}, false},
		{nil, true},
		{userdb.ErrUnavailable, true},
		{userdb.ErrOutcomeUnknown, true},
		{errors.New("unknown"), true},
	} {
		if err := links.Issue(ctx, "Olga", account, time.Hour, func() error { return one.err }); !errors.Is(err, one.err) {
			t.Errorf("Issue: got %v, want the error of its function, %v", err, one.err)
		}
		n := 0
		for e, err := range records.All(ctx, userdb.Query{}) {
			must(t, err)
			must(t, records.Delete(ctx, hints.Key(e.Key())))
			n++
		}
		if (n == 1) != one.kept {
			t.Errorf("%v: %d records are left; want one: %t", one.err, n, one.kept)
		}
	}

	raw := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = raw.Close() })
	damage := func(typ, field string) {
		t.Helper()
		keys, err := raw.Keys(ctx, "*/"+typ+"/id:*").Result()
		must(t, err)
		damaged := 0
		for _, key := range keys { // deleted records have no fields
			if has, err := raw.HExists(ctx, key, field).Result(); err != nil || !has {
				continue
			}
			must(t, raw.HSet(ctx, key, "~isa", "robot").Err())
			damaged++
		}
		if damaged != 1 {
			t.Fatalf("%d records of type %s were damaged, want 1", damaged, typ)
		}
	}
	nothing := func() error { return nil }
	must(t, links.Issue(ctx, "Olga", account, -2*time.Hour, nothing))
	damage("link", "by")
	must(t, links.Issue(ctx, "Olga", account, time.Hour, nothing))
	jobs, err := admin.OpenJobs(db)
	must(t, err)
	_, err = jobs.Begin(ctx, admin.Job{Kind: "check"})
	must(t, err)
	damage("job", "kind")
	j, err := jobs.Begin(ctx, admin.Job{Kind: "check"})
	must(t, err)
	if all, err := jobs.All(ctx); err != nil || len(all) != 1 || all[0].ID != j.ID {
		t.Errorf("beside a damaged record, got the jobs %+v, %v; want the other one", all, err)
	}
}

// TestLinksByStoreClock checks that the store's clock says which links may still be valid, whatever
// the clock of the program says.
func TestLinksByStoreClock(t *testing.T) {
	for _, offset := range []time.Duration{-48 * time.Hour, 48 * time.Hour} {
		t.Run(offset.String(), func(t *testing.T) {
			var ahead atomic.Int64
			ahead.Store(int64(offset))
			clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			db, err := userdb.Open(embedded.WithClock(t.Context(), clock), "memory:", userdb.Options{})
			must(t, err)
			t.Cleanup(func() { must(t, db.Close()) })
			ctx := t.Context()
			links, err := admin.OpenLinks(db)
			must(t, err)
			account, err := recordkey.PRK("user", "uid", "u1")
			must(t, err)
			nothing := func() error { return nil }
			must(t, links.Issue(ctx, "Olga", account, time.Hour, nothing))
			wantMade := func(when string, want int) {
				t.Helper()
				made, err := links.MadeBy(ctx, "Olga")
				must(t, err)
				if len(made) != want || want > 0 && made[0].Expires.Sub(clock()) > 2*time.Hour {
					t.Errorf("%s: got the links %+v, want %d that expire within two hours", when, made, want)
				}
			}
			wantMade("at once", 1)
			ahead.Add(int64(90 * time.Minute)) // the clocks of two servers may differ by an hour
			must(t, links.Issue(ctx, "Paul", account, time.Hour, nothing))
			wantMade("after 90 minutes", 1)
			ahead.Add(int64(time.Hour))
			wantMade("after two and a half hours", 0)
		})
	}
}
