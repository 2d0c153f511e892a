package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestCreateOnce: requests of one name make one entry, at one UID, however often and from wherever they are sent.
func TestCreateOnce(t *testing.T) {
	eachGate(t, userdb.Options{}, func(t *testing.T, g *gate) {
		ctx := t.Context()
		carol := userdb.NewEntry{Facets: schema.Texts("name", "carol", "email", "carol@example.com"), Password: "battery staple", Tags: []string{"a"}}
		first, err := g.users.CreateOnce(ctx, "one", carol)
		must(t, err)
		carol.Password = "another one entirely"
		again, err := g.users.CreateOnce(ctx, "one", carol)
		if must(t, err); again.UID() != first.UID() || again.Rev() != first.Rev() {
			t.Errorf("made again: %v, then %v", first, again)
		}
		_, err = g.users.CreateOnce(ctx, "one", userdb.NewEntry{Facets: schema.Texts("name", "bob")})
		if bad, is := errors.AsType[*userdb.FieldError](err); !is || bad.Rule != "once" || !errors.Is(err, userdb.ErrInvalid) {
			t.Errorf("another request of the name: %v", err)
		}
		if _, err = g.users.CreateOnce(ctx, "two", carol); !errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("the same under another name: %v", err)
		}
		_, err = g.users.CreateOnce(ctx, "two", userdb.NewEntry{Facets: schema.Texts("name", "bob")}) // what was refused is forgotten
		must(t, err)

		must(t, g.users.Delete(ctx, hints.UID(first.UID())))
		if _, err = g.users.CreateOnce(ctx, "one", carol); !errors.Is(err, userdb.ErrNotFound) {
			t.Errorf("it is gone since: %v", err)
		}
		g.pass(25 * time.Hour)
		_, err = g.users.CreateOnce(ctx, "one", carol) // nobody knows of it any more
		must(t, err)
	})
}

// TestCreateOnceByTheServersClock: how old a request is does not depend on the clock of the program that began it, which
// is an hour behind here.
func TestCreateOnceByTheServersClock(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := s.users()
		db, err := view.With(s.first, func(c *view.Config) {
			c.OwnClock = func() time.Time { return time.Now().Add(-time.Hour) }
		})
		must(t, err)
		behind, n := typeOf(t, db, "user"), userdb.NewEntry{Facets: schema.Texts("name", "carol")}
		for cut := 0; ; cut++ {
			left, name := cut, fmt.Sprint("request ", cut)
			var one sync.Mutex // of commands that a cluster is sent at a time
			s.tap.set(func(ctx context.Context, cmds []redis.Cmder, send func() error) error {
				one.Lock()
				defer one.Unlock()
				if left--; left < 0 {
					return context.Canceled
				}
				return send()
			})
			_, err := behind.CreateOnce(t.Context(), name, n)
			s.tap.set(nil)
			if err == nil {
				t.Fatal("no request was cut off while its program had it alone")
			}
			e, err := users.CreateOnce(t.Context(), name, n)
			if err == nil { // it had not begun
				must(t, users.Delete(t.Context(), hints.UID(e.UID())))
				continue
			}
			wantErr(t, "a request that is a moment old", err, userdb.ErrConflict)
			age(t, s, 11*time.Second)
			_, err = users.CreateOnce(t.Context(), name, n)
			must(t, err)
			return
		}
	})
}

// age makes all requests of CreateOnce older.
func age(t *testing.T, s *site, by time.Duration) {
	t.Helper()
	for _, key := range s.keys(t.Context()) {
		if !strings.Contains(key, "/token/{") || !strings.Contains(key, "once/name") {
			continue
		}
		members, err := s.raw.HGetAll(t.Context(), key).Result()
		must(t, err)
		for hash, text := range members {
			until, rest, _ := strings.Cut(text, " ")
			ms, err := strconv.ParseInt(until, 10, 64)
			must(t, err)
			must(t, s.raw.HSet(t.Context(), key, hash, fmt.Sprint(ms-by.Milliseconds(), " ", rest)).Err())
		}
	}
}

// TestCreateOnceAtUID: the UID may be the caller's.
func TestCreateOnceAtUID(t *testing.T) {
	eachGate(t, userdb.Options{}, func(t *testing.T, g *gate) {
		ctx := t.Context()
		at := func(name string, n userdb.NewEntry) error {
			_, err := g.users.CreateOnce(ctx, name, n)
			return err
		}
		must(t, at("a", userdb.NewEntry{UID: "x", Facets: schema.Texts("name", "ann")}))
		must(t, at("a", userdb.NewEntry{UID: "x", Facets: schema.Texts("name", "ann")}))
		if err := at("b", userdb.NewEntry{UID: "x", Facets: schema.Texts("name", "eve")}); !errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("a UID that is taken: %v", err)
		}
		if err := at("c", userdb.NewEntry{UID: "y", Facets: schema.Texts("name", "ann")}); !errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("a name that is taken: %v", err)
		}
		must(t, at("d", userdb.NewEntry{UID: "y", Facets: schema.Texts("name", "yan")})) // what was refused is in nobody's way
		if err := at("", userdb.NewEntry{}); !errors.Is(err, userdb.ErrInvalid) {
			t.Errorf("no name: %v", err)
		}
	})
}

// TestCreateOnceAtATime: of many at a time, one makes the entry; the others say that it is being made, or return it.
func TestCreateOnceAtATime(t *testing.T) {
	eachGate(t, userdb.Options{}, func(t *testing.T, g *gate) {
		var mu sync.Mutex
		uids := map[string]int{}
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				e, err := g.users.CreateOnce(t.Context(), "same", userdb.NewEntry{Facets: schema.Texts("name", "carol")})
				mu.Lock()
				defer mu.Unlock()
				if err != nil && !errors.Is(err, userdb.ErrConflict) {
					t.Errorf("at a time: %v", err)
				}
				uids[e.UID()]++
			})
		}
		all.Wait()
		if delete(uids, ""); len(uids) != 1 {
			t.Errorf("entries made: %v", uids)
		}
		total, err := g.users.Count(t.Context(), userdb.Query{})
		if must(t, err); total.Entries != 2 { // with alice
			t.Errorf("%d entries", total.Entries)
		}
	})
}

// TestCreateOnceCutOff: what a caller began that died before any command, or before its reply, the next one of that name ends, as
// soon as it is sure of that.
func TestCreateOnceCutOff(t *testing.T) {
	eachGate(t, userdb.Options{}, func(t *testing.T, g *gate) {
		n := userdb.NewEntry{Facets: schema.Texts("name", "carol")}
		cutOff := 0
		for at := 0; ; at++ {
			ctx, die := context.WithCancel(t.Context())
			name, moment := fmt.Sprint("request ", at), 0
			var one sync.Mutex // of commands that a cluster is sent at a time
			g.tap.set(func(ctx context.Context, cmds []redis.Cmder, send func() error) error {
				one.Lock()
				defer one.Unlock()
				for range 2 {
					if moment == at {
						die()
					}
					moment++
					if ctx.Err() != nil {
						return ctx.Err()
					}
					if moment%2 == 1 {
						if err := send(); err != nil {
							return err
						}
					}
				}
				return nil
			})
			_, err := g.users.CreateOnce(ctx, name, n)
			g.tap.set(nil)
			die()
			if err == nil {
				break
			}
			cutOff++
			e, err := g.users.CreateOnce(t.Context(), name, n)
			if errors.Is(err, userdb.ErrConflict) {
				g.pass(11 * time.Second)
				e, err = g.users.CreateOnce(t.Context(), name, n)
			}
			if err != nil {
				t.Fatalf("cut off at %d: %v", at, err)
			}
			must(t, g.users.Delete(t.Context(), hints.UID(e.UID())))
			if _, err := g.users.CreateOnce(t.Context(), name, n); !errors.Is(err, userdb.ErrNotFound) {
				t.Errorf("cut off at %d, made and gone: %v", at, err)
			}
		}
		if cutOff < 8 {
			t.Errorf("cut off %d times", cutOff)
		}
	})
}

// TestSetReplace: a set becomes what it is to be in one change, with its index; nobody sees half of it.
func TestSetReplace(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx, users := t.Context(), s.users()
		e, err := users.Create(ctx, userdb.NewEntry{UID: "u", Tags: []string{"a", "b"}})
		must(t, err)
		tags := users.Tags(uid("u"))
		must(t, tags.Replace(ctx, "c", "b", "c"))
		now, err := users.Find(ctx, uid("u"))
		if must(t, err); now.Rev() == e.Rev() {
			t.Error("the Rev is the same")
		}
		for tag, want := range map[string]int64{"a": 0, "b": 1, "c": 1} {
			total, err := users.Count(ctx, userdb.Query{Has: []string{tag}})
			if must(t, err); total.Entries != want {
				t.Errorf("%s is of %d", tag, total.Entries)
			}
		}
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() { must(t, tags.Replace(ctx, fmt.Sprint("x", i), fmt.Sprint("y", i))) })
		}
		all.Wait()
		got, err := tags.Members(ctx)
		if must(t, err); len(got) != 2 || got[0][1:] != got[1][1:] {
			t.Errorf("half of it: %v", got)
		}
		must(t, tags.Replace(ctx))
		if n, err := tags.Len(ctx); n != 0 || err != nil {
			t.Errorf("emptied: %d, %v", n, err)
		}
		wantErr(t, "nobody", users.Tags(uid("nobody")).Replace(ctx, "x"), userdb.ErrNotFound)
	})
}

// TestEndWaits: after it a throttled account is let in at once.
func TestEndWaits(t *testing.T) {
	eachGate(t, gateOptions(), func(t *testing.T, g *gate) {
		g.exhaust("alice", "")
		wantErr(t, "exhausted", g.in("alice", alicePassword, ""), userdb.ErrTooManyAttempts)
		must(t, g.users.EndWaits(t.Context(), uid("alice")))
		must(t, g.in("alice", alicePassword, ""))
		wantErr(t, "nobody", g.users.EndWaits(t.Context(), uid("nobody")), userdb.ErrNotFound)
	})
}
