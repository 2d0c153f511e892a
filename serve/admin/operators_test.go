package admin_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/hashcost"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

func TestMain(m *testing.M) { os.Exit(hashcost.Cheap(m)) }

const goodPassword = "correct horse battery"

// eachStore runs a test in memory, on Redis and on a cluster, and checks the store's own records at
// the end.
func eachStore(t *testing.T, test func(t *testing.T, db *userdb.DB)) {
	for name, url := range map[string]func(t *testing.T) string{
		"memory":  func(*testing.T) string { return "memory:" },
		"redis":   func(t *testing.T) string { return redistest.Start(t).URL() },
		"cluster": func(t *testing.T) string { return redistest.StartCluster(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := userdb.Open(t.Context(), url(t), userdb.Options{})
			must(t, err)
			t.Cleanup(func() {
				inside, err := admin.Open(db)
				must(t, err)
				for p, err := range check.Run(context.Background(), inside, check.Options{}) {
					t.Errorf("the check found %v, %v", p, err)
				}
				must(t, db.Close())
			})
			test(t, db)
		})
	}
}

// TestSetUp checks that a set-up link makes one operator, expires after an hour, and is void once
// there is an operator.
func TestSetUp(t *testing.T) {
	eachStore(t, func(t *testing.T, db *userdb.DB) {
		now := time.Now()
		db, err := view.Reconfigure(db, func(c *view.Config) { c.Clock = func() time.Time { return now } })
		must(t, err)
		ctx := t.Context()
		first, err := admin.BeginSetup(ctx, db)
		must(t, err)
		second, err := admin.BeginSetup(ctx, db)
		must(t, err)
		if first == second || admin.CheckSetup(ctx, db, first) != nil || admin.CheckSetup(ctx, db, second) != nil {
			t.Errorf("the links %q and %q, want two that are both valid", first, second)
		}
		now = now.Add(time.Hour + time.Second)
		if err := admin.CheckSetup(ctx, db, first); !errors.Is(err, userdb.ErrNotFound) {
			t.Errorf("a link after its hour: got %v, want ErrNotFound", err)
		}
		token, err := admin.BeginSetup(ctx, db)
		must(t, err)
		for _, bad := range []string{"", "x", token[:8], "~/\xff*~/\xff*", strings.Repeat("a", 1<<20), first, token + "x", strings.ToUpper(token)} {
			if _, err := admin.SetUp(ctx, db, bad, "root", goodPassword); !errors.Is(err, userdb.ErrNotFound) {
				t.Errorf("token %q: got %v, want ErrNotFound", bad, err)
			}
		}
		_, err = admin.SetUp(ctx, db, token, "", "short")
		if !errors.Is(err, userdb.ErrInvalid) || !errors.Is(err, password.ErrPolicy) {
			t.Errorf("no name and a short password: got %v, want both problems", err)
		}
		must(t, admin.CheckSetup(ctx, db, token))
		e, err := admin.SetUp(ctx, db, token, "root", goodPassword)
		if err != nil || e.Text(admin.OperatorName) != "root" {
			t.Fatalf("SetUp: got %v, %v; want the operator root", e, err)
		}
		if err := admin.CheckSetup(ctx, db, token); !errors.Is(err, userdb.ErrNotFound) {
			t.Errorf("a link that was used: got %v, want ErrNotFound", err)
		}
		now = now.Add(2 * time.Hour)
		if _, err := admin.BeginSetup(ctx, db); !errors.Is(err, admin.ErrAlreadySetUp) {
			t.Errorf("making a link when there is an operator: got %v, want ErrAlreadySetUp", err)
		}
		operators, err := admin.Operators(db)
		must(t, err)
		must(t, operators.Disable(ctx, hints.Any("root")))
		if _, err := admin.BeginSetup(ctx, db); !errors.Is(err, admin.ErrAlreadySetUp) {
			t.Errorf("making a link when there is a disabled operator: got %v, want ErrAlreadySetUp", err)
		}
		for key, text := range dumpRecords(t, db) {
			if strings.Contains(text, token) || strings.Contains(text, first) || strings.Contains(text, goodPassword) {
				t.Errorf("the record %s contains a secret", key)
			}
		}
	})
}

// TestNoScan checks that the first operator and API key of a store are made without a pass over its
// keys, which takes long in a large store.
func TestNoScan(t *testing.T) {
	server := redistest.Start(t)
	_, rights := redistest.Rights(t)
	user := redistest.Restrict(t, server.Client(), append(rights, "-scan"))
	db, err := userdb.Open(t.Context(), user.URLOf(server), userdb.Options{})
	must(t, err)
	defer db.Close()
	_, err = admin.AddOperator(t.Context(), db, "Olga", goodPassword)
	must(t, err)
	keys, err := admin.OpenKeys(db)
	must(t, err)
	_, err = keys.Create(t.Context(), admin.Key{Name: "shop", Scopes: []string{"read"}})
	must(t, err)
}

// dumpRecords returns all records as texts.
func dumpRecords(t *testing.T, db *userdb.DB) map[string]string {
	t.Helper()
	all := map[string]string{}
	engine := view.Of(db).Engine
	for keys, err := range engine.ScanAll(t.Context(), store.Scan{Pattern: "*", Count: 1000}) {
		must(t, err)
		for _, key := range keys {
			found, err := engine.ReadRaw(t.Context(), []store.RawRead{{Key: key, As: store.RawAll}})
			must(t, err)
			text := key + " " + found[0].Wire + " " + strings.Join(found[0].Items, " ")
			for _, p := range found[0].Pairs {
				text += " " + p.Field + " " + p.Wire
			}
			all[key] = text
		}
	}
	if len(all) == 0 {
		t.Error("no records")
	}
	return all
}

// TestFirst lets several callers make the first operator at the same time, with the set-up link and
// on the command line. At most one operator may be made with the link.
func TestFirst(t *testing.T) {
	eachStore(t, func(t *testing.T, db *userdb.DB) {
		token, err := admin.BeginSetup(t.Context(), db)
		must(t, err)
		var made sync.Map
		var all sync.WaitGroup
		for i, name := range []string{"a", "b", "c", "d", "e", "f"} {
			all.Go(func() {
				var err error
				if i < 4 {
					_, err = admin.SetUp(t.Context(), db, token, "set up "+name, goodPassword)
				} else {
					_, err = admin.AddOperator(t.Context(), db, "added "+name, goodPassword)
				}
				switch {
				case err == nil:
					made.Store(name, i < 4)
				case i < 4 && errors.Is(err, userdb.ErrNotFound):
				default:
					t.Errorf("%s: got the error %v, want none, or ErrNotFound with the set-up link", name, err)
				}
			})
		}
		all.Wait()
		bySetup := 0
		made.Range(func(_, setup any) bool {
			if setup.(bool) {
				bySetup++
			}
			return true
		})
		if bySetup > 1 {
			t.Errorf("set-up made %d operators, want at most 1", bySetup)
		}
		for _, name := range []string{"e", "f"} {
			if _, ok := made.Load(name); !ok {
				t.Errorf("the operator %s was not added", name)
			}
		}
		if _, err := admin.SetUp(t.Context(), db, token, "late", goodPassword); !errors.Is(err, userdb.ErrNotFound) {
			t.Errorf("a set-up after the others: got %v, want ErrNotFound", err)
		}
	})
}

// TestDisabledOperatorMakesNothing checks that a disabled operator can neither make a key nor start
// a job, and that a running job of that operator must stop even if nobody asked for that.
func TestDisabledOperatorMakesNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, db *userdb.DB) {
		ctx := userdb.WithActor(t.Context(), userdb.Actor{Name: "operator:Olga"})
		_, err := admin.AddOperator(ctx, db, "Olga", goodPassword)
		must(t, err)
		keys, err := admin.OpenKeys(db)
		must(t, err)
		jobs, err := admin.OpenJobs(db)
		must(t, err)
		operators, err := admin.Operators(db)
		must(t, err)
		running, err := jobs.Begin(ctx, admin.Job{Kind: "check", By: "Olga"})
		must(t, err)
		must(t, operators.Disable(ctx, hints.Any("olga")))
		if stop, err := jobs.Heartbeat(ctx, running.ID, 1, 2); err != nil || !stop {
			t.Errorf("a running job: got stop %v, %v, want true", stop, err)
		}
		if _, err := jobs.Begin(ctx, admin.Job{Kind: "export", By: "Olga"}); !errors.Is(err, admin.ErrOperatorDisabled) {
			t.Errorf("beginning a job: got %v, want ErrOperatorDisabled", err)
		}
		if _, err := keys.Create(ctx, admin.Key{Name: "back", Scopes: []string{admin.ScopeAdmin}}); !errors.Is(err, admin.ErrOperatorDisabled) {
			t.Errorf("making a key: got %v, want ErrOperatorDisabled", err)
		}
		if all, err := keys.All(ctx); err != nil || len(all) > 0 {
			t.Errorf("got the keys %+v, %v, want none", all, err)
		}
		all, err := jobs.All(ctx)
		must(t, err)
		for _, j := range all {
			if j.ID != running.ID && !j.Finished() {
				t.Errorf("the job that was refused has not ended: %+v", j)
			}
		}
		// Another operator, or the command, still makes keys.
		_, err = keys.Create(userdb.WithActor(ctx, userdb.Actor{Name: "operator:Paul"}), admin.Key{Name: "other", Scopes: []string{admin.ScopeRead}})
		must(t, err)
	})
}

// TestOtherPasswordMakesNothing checks that an operator cannot make a key in a session that began
// before the operator's password was changed.
func TestOtherPasswordMakesNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, db *userdb.DB) {
		e, err := admin.AddOperator(t.Context(), db, "Olga", goodPassword)
		must(t, err)
		ctx := admin.WithPassword(userdb.WithActor(t.Context(), userdb.Actor{Name: "operator:Olga"}), e.PasswordChanged())
		keys, err := admin.OpenKeys(db)
		must(t, err)
		operators, err := admin.Operators(db)
		must(t, err)
		_, err = keys.Create(ctx, admin.Key{Name: "before", Scopes: []string{admin.ScopeRead}})
		must(t, err)
		_, err = operators.SetPassword(ctx, hints.Any("olga"), goodPassword+" 2")
		must(t, err)
		if _, err := keys.Create(ctx, admin.Key{Name: "after", Scopes: []string{admin.ScopeRead}}); !errors.Is(err, admin.ErrOperatorDisabled) {
			t.Errorf("making a key: got %v, want ErrOperatorDisabled", err)
		}
		if all, err := keys.All(ctx); err != nil || len(all) != 1 {
			t.Errorf("got the keys %+v, %v, want only the first", all, err)
		}
	})
}

// TestDisabledWhileMakingKey disables an operator who is making keys, and checks that a later
// search finds all keys of that operator.
func TestDisabledWhileMakingKey(t *testing.T) {
	eachStore(t, func(t *testing.T, db *userdb.DB) {
		hers := userdb.WithActor(t.Context(), userdb.Actor{Name: "operator:Olga"})
		_, err := admin.AddOperator(t.Context(), db, "Olga", goodPassword)
		must(t, err)
		keys, err := admin.OpenKeys(db)
		must(t, err)
		operators, err := admin.Operators(db)
		must(t, err)
		for range 20 {
			var all sync.WaitGroup
			for i := range 4 {
				all.Go(func() {
					_, err := keys.Create(hers, admin.Key{Name: fmt.Sprint("key", i), Scopes: []string{admin.ScopeAdmin}})
					if err != nil && !errors.Is(err, admin.ErrOperatorDisabled) {
						t.Error(err)
					}
				})
			}
			all.Go(func() {
				if err := operators.Disable(t.Context(), hints.Any("olga")); err != nil {
					t.Error(err)
				}
				made, err := keys.MadeBy(t.Context(), "Olga")
				if err != nil {
					t.Error(err)
				}
				for _, k := range made {
					if err := keys.Revoke(t.Context(), k.Name); err != nil && !errors.Is(err, userdb.ErrNotFound) {
						t.Error(err)
					}
				}
			})
			all.Wait()
			if left, err := keys.All(t.Context()); err != nil || len(left) > 0 {
				t.Fatalf("got the keys %+v, %v, which the search did not find; want none", left, err)
			}
			must(t, operators.Enable(t.Context(), hints.Any("olga")))
		}
	})
}

// TestOperators checks that names that look the same to people are the same name, and that
// operators sign in like other entries.
func TestOperators(t *testing.T) {
	eachStore(t, func(t *testing.T, db *userdb.DB) {
		ctx := t.Context()
		for _, name := range []string{"root", "Olga"} {
			_, err := admin.AddOperator(ctx, db, name, goodPassword)
			must(t, err)
		}
		if _, err := admin.AddOperator(ctx, db, "ＲＯＯＴ", goodPassword); !errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("a name that folds to root: got %v, want ErrDuplicate", err)
		}
		for _, name := range []string{"", "a@b", "http://x", strings.Repeat("x", 2000)} {
			if _, err := admin.AddOperator(ctx, db, name, goodPassword); !errors.Is(err, userdb.ErrInvalid) {
				t.Errorf("name %q: got %v, want ErrInvalid", name, err)
			}
		}
		if _, err := admin.AddOperator(ctx, db, "Paul", ""); !errors.Is(err, password.ErrPolicy) {
			t.Errorf("no password: got %v, want ErrPolicy", err)
		}
		operators, err := admin.Operators(db)
		must(t, err)
		e, err := operators.Login(ctx, "OLGA", goodPassword, userdb.Attempt{})
		must(t, err)
		_, secret, err := operators.StartSession(ctx, e, userdb.SessionOptions{})
		must(t, err)
		must(t, operators.Disable(ctx, hints.Any("olga")))
		if _, _, err := operators.Session(ctx, secret); !errors.Is(err, userdb.ErrNotFound) {
			t.Errorf("the session of a disabled operator: got %v, want ErrNotFound", err)
		}
		if at, _ := e.Get(admin.OperatorAdded); at.Wire() == "" {
			t.Error("the operator has no time of creation")
		}
		accounts, err := db.Type("user")
		must(t, err)
		if _, err := accounts.Find(ctx, hints.Any("olga")); !errors.Is(err, userdb.ErrNotFound) {
			t.Errorf("finding an operator among accounts: got %v, want ErrNotFound", err)
		}
	})
}
