package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// basicMethods returns calls of the basic methods by name. They act on the entry u of lossyStore.
func basicMethods(db *userdb.DB, users *userdb.Type, before userdb.Entry) map[string]func(ctx context.Context) error {
	u := hints.UID("u")
	before.Put("age", schema.Number(1))
	return map[string]func(ctx context.Context) error{
		"ping":                db.Ping,
		"find":                func(ctx context.Context) error { _, err := users.Find(ctx, u); return err },
		"find by *":           func(ctx context.Context) error { _, err := users.Find(ctx, hints.Any("n")); return err },
		"exhaustive":          func(ctx context.Context) error { _, err := users.FindExhaustive(ctx, hints.Any("nobody")); return err },
		"exists":              func(ctx context.Context) error { _, err := users.Exists(ctx, u); return err },
		"find without a type": func(ctx context.Context) error { _, err := db.Find(ctx, u.Of("user")); return err },
		"find all": func(ctx context.Context) error {
			for _, err := range users.FindAll(ctx, u, hints.Any("n")) {
				return err
			}
			return nil
		},
		"list": func(ctx context.Context) error {
			for _, err := range users.All(ctx, userdb.Query{}) {
				return err
			}
			return nil
		},
		"page":  func(ctx context.Context) error { _, err := users.Page(ctx, userdb.Query{}); return err },
		"count": func(ctx context.Context) error { _, err := users.Count(ctx, userdb.Query{}); return err },
		"list keys": func(ctx context.Context) error {
			for _, err := range inspect.Keys(ctx, db, "*") {
				return err
			}
			return nil
		},
		"list tags": func(ctx context.Context) error { _, err := users.Tags(u).Members(ctx); return err },
		"login":     func(ctx context.Context) error { _, err := users.Login(ctx, "n", "x", userdb.Attempt{}); return err },
		"create": func(ctx context.Context) error {
			_, err := users.Create(ctx, userdb.NewEntry{Password: "correct horse"})
			return err
		},
		"save": func(ctx context.Context) error { _, err := users.Save(ctx, before); return err },
		"update": func(ctx context.Context) error {
			_, err := users.Update(ctx, u, func(e *userdb.Entry) error { e.Drop("job"); return nil })
			return err
		},
		"delete":        func(ctx context.Context) error { return users.Delete(ctx, u) },
		"add tags":      func(ctx context.Context) error { _, err := users.Tags(u).Add(ctx, "x"); return err },
		"append a note": func(ctx context.Context) error { _, err := users.List(u, "notes").Append(ctx, "x"); return err },
		"put a setting": func(ctx context.Context) error { return users.Hash(u, "settings").Put(ctx, "a", "b") },
		"set password":  func(ctx context.Context) error { return errOf(users.SetPassword(ctx, u, "correct horse")) },
		"remove keys":   func(ctx context.Context) error { _, err := inspect.RemoveKeys(ctx, db, "user/uid:*"); return err },
	}
}

// TestEndedContext calls the basic methods with contexts that have already ended. Each must return
// the context's error and change no record.
func TestEndedContext(t *testing.T) {
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("canceled by the test"))
	expired, stop := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer stop()
	eachStore(t, func(t *testing.T, s *site) {
		users := lossyStore(t, s)
		before, err := users.Find(t.Context(), hints.UID("u"))
		must(t, err)
		for name, method := range basicMethods(s.first, users, before) {
			s.wantUnchanged(name, func() {
				wantErr(t, name+", canceled", method(canceled), context.Canceled)
				wantErr(t, name+", expired", method(expired), context.DeadlineExceeded)
			})
		}
	})
}

// TestContextThatEnds ends contexts during creates. The entry must exist if there is no error, and
// must not exist if there is an error other than ErrOutcomeUnknown. Entries that exist must be
// complete.
func TestContextThatEnds(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := s.wide()
		add(t, users, "first")
		defer s.waitUntilQuiet()
		const n = 200
		errs := runConcurrently(n, func(i int) error {
			life := time.Duration(i*i) * time.Microsecond // up to 40 ms
			ctx, cancel := context.WithTimeout(t.Context(), life)
			defer cancel()
			if i%2 == 0 {
				var stop context.CancelFunc
				ctx, stop = context.WithCancel(t.Context())
				time.AfterFunc(life, stop)
			}
			uid := "u" + itoa(i)
			facets := schema.Texts("name", "n"+uid, "job", "j")
			return errOf(users.Create(ctx, userdb.NewEntry{UID: uid, Facets: facets, Tags: []string{"a"}}))
		})
		for i, err := range errs {
			exists, findErr := users.Exists(t.Context(), hints.Any("nu"+itoa(i)))
			must(t, findErr)
			switch {
			case err == nil && !exists:
				t.Errorf("%d: got no error, but the entry does not exist", i)
			case err != nil && exists && !errors.Is(err, userdb.ErrOutcomeUnknown):
				t.Errorf("%d: got %v, but the entry exists", i, err)
			}
		}
	})
}

// waitUntilQuiet waits until the records have not changed for a second, because calls that were
// given up may still be running. On a busy machine such a call can pause for longer than that. So
// waitUntilQuiet also waits while audit finds damage, but only as long as a call may take to
// complete its records.
func (s *site) waitUntilQuiet() {
	s.t.Helper()
	ctx, end := context.Background(), time.Now().Add(12*time.Second)
	before := formatRecords(s.dump(ctx), "")
	for unchanged := 0; unchanged < 20; unchanged++ {
		time.Sleep(50 * time.Millisecond)
		dump := s.dump(ctx)
		now := formatRecords(dump, "")
		if diffRecords(before, now) != "" || time.Now().Before(end) && len(audit(dump, view.Of(s.first).NS, s.first.Schema())) > 0 {
			unchanged = 0
		}
		before = now
	}
}

// TestCrash kills the server during creates, and restarts it from its append-only file.
// Acknowledged entries must exist, and every entry must be complete (I7).
func TestCrash(t *testing.T) {
	s := startServer(t, redistest.AppendOnly("always"))
	users := s.wide()
	add(t, users, "first", "name", "first")
	acknowledged := map[string]bool{}
	for round := range 3 {
		for _, uid := range createUntilKilled(t, s, users, round) {
			acknowledged[uid] = true
		}
		s.server.Restart()
		// After many failed dials, the client's pool reports the last failure for up to a second.
		eventually(t, "the server answers", func() bool { return s.first.Ping(t.Context()) == nil })
		found := map[string]bool{}
		for e, err := range users.All(t.Context(), userdb.Query{}) {
			must(t, err)
			found[e.UID()] = true
			wantComplete(t, users, e)
		}
		for uid := range acknowledged {
			if !found[uid] {
				t.Errorf("round %d: %s was acknowledged but is gone", round, uid)
			}
		}
		s.inspect(t)
	}
	if len(acknowledged) < 100 {
		t.Errorf("%d creates were acknowledged, want at least 100", len(acknowledged))
	}
}

// createUntilKilled creates entries from many goroutines, kills the server meanwhile, and returns
// the UIDs of the acknowledged entries.
func createUntilKilled(t *testing.T, s *site, users *userdb.Type, round int) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var done []string
	enough := make(chan bool, 1)
	var workers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				uid := fmt.Sprintf("r%d w%d i%d", round, w, i)
				_, err := users.Create(ctx, userdb.NewEntry{
					UID: uid, Facets: schema.Texts("name", "n "+uid, "email", "e "+uid, "job", "j"), Tags: []string{"a", uid},
				})
				if err != nil {
					return
				}
				mu.Lock()
				done = append(done, uid)
				if len(done) == 60 {
					enough <- true
				}
				mu.Unlock()
			}
		})
	}
	<-enough
	s.server.Kill()
	cancel()
	workers.Wait()
	return done
}

// wantComplete checks that an entry is found by each of its values and has both of its tags.
func wantComplete(t *testing.T, users *userdb.Type, e userdb.Entry) {
	t.Helper()
	if e.UID() == "first" {
		return
	}
	for _, h := range []hints.Hint{hints.Any("n " + e.UID()), hints.Field("email", "e "+e.UID())} {
		if found, err := users.Find(t.Context(), h); err != nil || found.UID() != e.UID() {
			t.Errorf("find %v: got %v, %v; want %s", h, found, err, e.UID())
		}
	}
	if members, err := users.Tags(hints.UID(e.UID())).Members(t.Context()); err != nil || len(members) != 2 {
		t.Errorf("%s: got tags %q, %v; want two", e.UID(), members, err)
	}
}
