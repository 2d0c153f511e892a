package userdb_test

import (
	"context"
	"errors"
	"strings"
	"sync"
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
