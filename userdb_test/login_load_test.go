package userdb_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// jam holds the one worker of a store in the middle of a login, and returns what lets it go.
func (g *gate) jam() (release func()) {
	g.t.Helper()
	must(g.t, g.in("alice", alicePassword, "")) // so that what is made once is made
	reached, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	g.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		if strings.Contains(wordsOf(cmds[0]), "admit") {
			once.Do(func() {
				close(reached)
				<-free
			})
		}
		return send()
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.in("alice", alicePassword, ""); err != nil {
			g.t.Errorf("the login that holds the worker: %v", err)
		}
	})
	<-reached
	return func() {
		close(free)
		wg.Wait()
		g.tap.set(nil)
	}
}

// weakPassword breaks no other rule than that of strength.
const weakPassword = "12341234567"

// queue is how many wait for one worker.
const queue = 64

// TestFullQueue: who would have to wait behind too many is refused at once, with a word that is no
// verdict on the password, a new one neither; the others are served, and reads do not wait at all.
func TestFullQueue(t *testing.T) {
	s := schema.User()
	s.Types["user"].Password.Strength = 3
	eachGate(t, userdb.Options{HashWorkers: 1, Schema: s}, func(t *testing.T, g *gate) {
		release := g.jam()
		var wg sync.WaitGroup
		var mu sync.Mutex
		var refused, served int
		done := make(chan struct{}, 2*queue)
		for range 2 * queue {
			wg.Go(func() {
				err := g.in("alice", alicePassword, "")
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					served++
				case errors.Is(err, userdb.ErrUnavailable) && strings.Contains(err.Error(), "hashing passwords"):
					refused++
					done <- struct{}{}
				default:
					t.Errorf("behind the queue: %v", err)
				}
			})
		}
		for range queue {
			<-done // at once: nobody else moves
		}
		if _, err := g.users.Find(t.Context(), uid("alice")); err != nil {
			t.Errorf("a read beside a full queue: %v", err)
		}
		for what, err := range map[string]error{
			"set":    g.users.SetPassword(t.Context(), uid("alice"), "brand new horse"),
			"change": g.users.ChangePassword(t.Context(), uid("alice"), alicePassword, "brand new horse", userdb.Attempt{}),
			// To find that out may take seconds of a processor, so it takes a worker, too.
			"set a weak one": g.users.SetPassword(t.Context(), uid("alice"), weakPassword),
			"create":         g.create("bob", weakPassword),
		} {
			wantErr(t, what, err, userdb.ErrUnavailable, "hashing passwords")
		}
		release()
		wg.Wait()
		if refused != queue || served != queue {
			t.Errorf("%d were refused and %d served, want %d each", refused, served, queue)
		}
	})
}

// TestWaitEndsWithItsContext: a login that waits for a worker is not waited for longer than its caller does.
func TestWaitEndsWithItsContext(t *testing.T) {
	eachGate(t, userdb.Options{HashWorkers: 1}, func(t *testing.T, g *gate) {
		defer g.jam()()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		own, other := g.hashes(func() {
			_, err := g.users.Login(ctx, "alice", alicePassword, userdb.Attempt{})
			wantErr(t, "canceled", err, context.Canceled)
			err = g.users.SetPassword(ctx, uid("alice"), "brand new horse")
			wantErr(t, "canceled before", err, context.Canceled)
		})
		if own != 0 || other != 0 {
			t.Errorf("%d and %d hashes were made for nobody", own, other)
		}
	})
}

// overtaking is what happens to alice while her login waits for a worker, and whether she gets in.
var overtaking = []struct {
	name string
	do   func(g *gate) error
	want error
}{
	{"another password", func(g *gate) error { g.store("alice", "password", hashed(g.t, "brand new horse")); return nil }, userdb.ErrLogin},
	{"no password", func(g *gate) error { return g.raw.HDel(g.t.Context(), "user/uid:alice", "password").Err() }, userdb.ErrLogin},
	{"disabled", func(g *gate) error { return g.users.Disable(g.t.Context(), uid("alice")) }, userdb.ErrLogin},
	{"deleted", func(g *gate) error { return g.users.Delete(g.t.Context(), uid("alice")) }, userdb.ErrLogin},
	{"renewed", func(g *gate) error { g.store("alice", "password", hashed(g.t, alicePassword)); return nil }, nil},
	{"another facet", func(g *gate) error { g.store("alice", "job", "cook"); return nil }, nil},
}

// TestOvertakenLogin: what counts is the entry as it is when the password proves right, not as it was
// when the login began to wait.
func TestOvertakenLogin(t *testing.T) {
	for _, tt := range overtaking {
		t.Run(tt.name, func(t *testing.T) {
			eachGate(t, userdb.Options{HashWorkers: 1}, func(t *testing.T, g *gate) {
				begun := g.meanwhile(func() { must(t, tt.do(g)) })
				e, err := g.users.Login(t.Context(), "alice", alicePassword, userdb.Attempt{})
				if !begun.Load() {
					t.Error("nothing happened meanwhile")
				}
				if !errors.Is(err, tt.want) || err == nil && e.UID() != "alice" {
					t.Errorf("got %v, %v; want %v", e, err, tt.want)
				}
				if err == nil && tt.name == "another facet" && e.Text("job") != "cook" {
					t.Errorf("the entry is as it was: %v", e)
				}
			})
		})
	}
}

// TestOvertakenChange: what holds for a login holds for the old password of a change.
func TestOvertakenChange(t *testing.T) {
	for _, tt := range overtaking {
		t.Run(tt.name, func(t *testing.T) {
			eachGate(t, userdb.Options{HashWorkers: 1}, func(t *testing.T, g *gate) {
				g.meanwhile(func() { must(t, tt.do(g)) })
				err := g.users.ChangePassword(t.Context(), uid("alice"), alicePassword, "battery staple", userdb.Attempt{})
				if !errors.Is(err, tt.want) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
				if tt.want == nil {
					must(t, g.in("alice", "battery staple", ""))
				}
			})
		})
	}
}

// meanwhile does something once, when somebody has been looked up and his turn to be checked comes.
func (g *gate) meanwhile(do func()) (begun *atomic.Bool) {
	begun = &atomic.Bool{}
	g.db.Core().Now = func() time.Time {
		if begun.CompareAndSwap(false, true) {
			do()
		}
		return g.clock()
	}
	return begun
}

// TestClosedStore: nothing is hashed for a store that is closed.
func TestClosedStore(t *testing.T) {
	eachGate(t, gateOptions(), func(t *testing.T, g *gate) {
		g.needs(manyClients)
		db, err := userdb.Open(t.Context(), g.url, userdb.Options{})
		must(t, err)
		users := typeOf(t, db, "user")
		_, err = users.Login(t.Context(), "alice", alicePassword, userdb.Attempt{})
		must(t, err)
		must(t, db.Close())
		must(t, db.Close())
		_, err = users.Login(t.Context(), "alice", alicePassword, userdb.Attempt{})
		wantErr(t, "login", err, userdb.ErrUnavailable)
	})
}
