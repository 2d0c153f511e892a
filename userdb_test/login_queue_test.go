package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// blockWorker holds the only worker of a store in the middle of a login. The returned function
// releases the worker. It is called at the end of the test if the test has not called it.
func (g *loginSite) blockWorker() (release func()) {
	g.t.Helper()
	// Log in once before, because only the first login creates some of the records.
	must(g.t, g.logIn("alice", alicePassword, ""))
	reached, free := make(chan struct{}), make(chan struct{})
	var blocked atomic.Bool
	g.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		// Only the first command that contains the word waits. A later one may contain it only in
		// the text of a script, which a node of a cluster gets with its first call.
		if strings.Contains(wordsOf(cmds[0]), "admit") && blocked.CompareAndSwap(false, true) {
			close(reached)
			<-free
		}
		return send()
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.logIn("alice", alicePassword, ""); err != nil {
			g.t.Errorf("the login that holds the worker: %v", err)
		}
	})
	<-reached
	release = sync.OnceFunc(func() {
		close(free)
		wg.Wait()
		g.tap.set(nil)
	})
	g.t.Cleanup(release)
	return release
}

// weakPassword breaks only the rule about strength.
const weakPassword = "12341234567"

// strongPassword satisfies the rule about strength.
const strongPassword = alicePassword + " staple"

// queueLength is the number of callers that can wait for one worker.
const queueLength = 128

// TestThrottledAreNotQueued checks that throttled attempts are refused at once and are not queued,
// so that they keep nobody else out. The error of a full queue must contain the time to wait.
func TestThrottledAreNotQueued(t *testing.T) {
	eachLoginSite(t, userdb.Options{HashWorkers: 1}, func(t *testing.T, g *loginSite) {
		must(t, g.logIn("alice", alicePassword, "home")) // the pool measures the time of a hash
		g.exhaust("mallory", "attacker")
		release := g.blockWorker()
		var refused sync.WaitGroup
		for range 2 * queueLength {
			refused.Go(func() {
				if wait, err := waitOf(g.logIn("mallory", wrongPassword, "attacker")); wait == 0 {
					t.Errorf("a throttled attempt: got error %v, want a wait", err)
				}
			})
		}
		refused.Wait() // while the only worker is busy
		var served sync.WaitGroup
		var wait time.Duration
		for range 2 * queueLength {
			served.Go(func() {
				err := g.logIn("alice", alicePassword, "home")
				busy, ok := errors.AsType[*userdb.BusyError](err)
				if err != nil && !ok {
					t.Error(err)
				}
				if ok {
					g.mu.Lock()
					wait = max(wait, busy.Wait)
					g.mu.Unlock()
				}
			})
		}
		eventually(t, "a login is refused because the queue is full", func() bool { g.mu.Lock(); defer g.mu.Unlock(); return wait > 0 })
		release()
		served.Wait()
	})
}

// share is the number of callers of one origin, or for one account, that can run or wait in a lane
// of the queue for one worker.
const share = 8

// A callGroup makes calls while the worker of a store is blocked, and counts those that are refused
// because the queue is full.
type callGroup struct {
	t       *testing.T
	calls   sync.WaitGroup
	mu      sync.Mutex
	refused map[string]int
}

// newCallGroup returns a callGroup whose calls end before the test does. Call it before
// blockWorker, so that the worker is released first if the test fails.
func newCallGroup(t *testing.T) *callGroup {
	c := &callGroup{t: t, refused: map[string]int{}}
	t.Cleanup(c.calls.Wait)
	return c
}

// start makes n calls of one kind at the same time. Those that are not refused must return nil or
// one of the errors in other.
func (c *callGroup) start(n int, kind string, call func(i int) error, other ...error) {
	for i := range n {
		c.calls.Go(func() {
			err := call(i)
			c.mu.Lock()
			defer c.mu.Unlock()
			switch {
			case errors.Is(err, userdb.ErrUnavailable) && strings.Contains(err.Error(), "too many logins at once"):
				c.refused[kind]++
			case err != nil && !slices.ContainsFunc(other, func(want error) bool { return errors.Is(err, want) }):
				c.t.Errorf("%s: %v", kind, err)
			}
		})
	}
}

// wait waits until n calls of one kind have been refused. Because the worker is blocked, they have
// been refused without waiting.
func (c *callGroup) wait(n int, kind string) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("%s: %d calls are refused", kind, n), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.refused[kind] >= n
	})
}

// finish waits for all calls, and checks that exactly want of each kind have been refused.
func (c *callGroup) finish(want map[string]int) {
	c.t.Helper()
	c.calls.Wait()
	if !maps.Equal(c.refused, want) {
		c.t.Errorf("%v calls were refused, want %v", c.refused, want)
	}
}

// TestFullQueue checks that callers who find the queue full are refused at once, with an error that
// says nothing about the old or the new password. Callers in the queue must be served. Operators,
// SetPassword and the holders of tokens must get slots, but one account only its share of them.
// Reads must not wait.
func TestFullQueue(t *testing.T) {
	s := schema.User()
	s.Types["user"].Password.Strength = 3
	eachLoginSite(t, userdb.Options{HashWorkers: 1, Schema: s}, func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		g.add("bob", alicePassword)
		g.add("carol", alicePassword)
		token, err := g.users.Issue(ctx, uid("carol"), userdb.Token{Purpose: "reset"})
		must(t, err)
		operators, err := view.Reconfigure(g.db, func(c *view.Config) { c.NS, c.OnSchema = view.Reserved, view.Later })
		must(t, err)
		olga := userdb.NewEntry{Facets: schema.Texts("name", "olga"), Password: alicePassword}
		must(t, errOf(typeOf(t, operators, "user").Create(ctx, olga)))
		must(t, errOf(typeOf(t, operators, "user").Login(ctx, "olga", alicePassword, userdb.Attempt{})))

		c := newCallGroup(t)
		release := g.blockWorker()
		c.start(2*queueLength, "login", func(i int) error { return g.logIn(fmt.Sprint("nobody", i), alicePassword, "") }, userdb.ErrLogin)
		c.wait(queueLength, "login")
		if _, err := g.users.Find(ctx, uid("alice")); err != nil {
			t.Errorf("a read while the queue is full: %v", err)
		}
		for what, err := range map[string]error{
			"change": errOf(g.users.ChangePassword(ctx, uid("alice"), alicePassword, strongPassword, userdb.Attempt{})),
			// Estimating the strength may take seconds, so it also needs a worker.
			"create": g.create("dan", weakPassword),
		} {
			wantErr(t, what, err, userdb.ErrUnavailable, "too many logins at once")
		}
		c.start(2*share, "operator", func(int) error {
			return errOf(typeOf(t, operators, "user").Login(ctx, "olga", alicePassword, userdb.Attempt{}))
		})
		c.start(2*share, "set", func(int) error { return errOf(g.users.SetPassword(ctx, uid("bob"), strongPassword)) }, userdb.ErrConflict)
		c.start(2*share, "reset", func(int) error {
			return errOf(g.users.ResetPassword(ctx, "reset", token, strongPassword))
		}, userdb.ErrNotFound)
		c.start(2*share, "create", func(i int) error {
			ctx := userdb.WithActor(ctx, userdb.Actor{Name: "operator:Olga", Origin: "192.0.2.7"})
			return errOf(g.users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", fmt.Sprint("new", i)), Password: alicePassword}))
		})
		for _, kind := range []string{"operator", "set", "reset", "create"} {
			c.wait(share, kind)
		}
		for _, pw := range []string{strongPassword, weakPassword} {
			err := errOf(g.users.SetPassword(ctx, uid("bob"), pw))
			wantErr(t, "SetPassword, beyond its share", err, userdb.ErrUnavailable, "too many logins at once")
		}
		release()
		c.finish(map[string]int{"login": queueLength, "operator": share, "set": share, "reset": share, "create": share})
	})
}

// TestShareOfQueue checks that calls from one origin, or for one account or invitation, take only
// their share of the queue, even though each call is allowed by itself.
func TestShareOfQueue(t *testing.T) {
	eachLoginSite(t, userdb.Options{HashWorkers: 1}, func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		g.add("bob", alicePassword)
		g.add("carol", alicePassword)
		secret := g.invite("dan@example.com")
		c := newCallGroup(t)
		release := g.blockWorker()
		calls := map[string]func(i int) error{
			"an account": func(i int) error {
				return g.logIn([]string{"bob", "bob@example.com"}[i%2], alicePassword, fmt.Sprint("origin", i))
			},
			"a change of a password": func(int) error {
				return errOf(g.users.ChangePassword(ctx, uid("carol"), alicePassword, "brand new horse", userdb.Attempt{}))
			},
			"an identifier that nobody has": func(i int) error { return g.logIn("nobody", alicePassword, fmt.Sprint("other", i)) },
			"an origin":                     func(i int) error { return g.logIn(fmt.Sprint("nobody", i), alicePassword, fmt.Sprint("2001:db8::", i)) },
			"an origin that signs up": func(i int) error {
				ctx := userdb.WithActor(ctx, userdb.Actor{Origin: "192.0.2.7"})
				return errOf(g.users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", fmt.Sprint("new", i)), Password: alicePassword}))
			},
			"an invitation": func(i int) error {
				n := userdb.NewEntry{Facets: schema.Texts("name", fmt.Sprint("dan", i)), Password: alicePassword}
				return errOf(g.users.AcceptInvitation(ctx, secret, n))
			},
		}
		want := map[string]int{}
		for kind, call := range calls {
			c.start(2*share, kind, call, userdb.ErrLogin, userdb.ErrConflict, userdb.ErrNotFound)
			want[kind] = share
		}
		for kind := range calls {
			c.wait(share, kind)
		}
		c.start(1, "somebody else", func(int) error { return g.logIn("zoe", alicePassword, "192.0.2.99") }, userdb.ErrLogin)
		release()
		c.finish(want)
	})
}

// TestActorsShareTheQueue checks that an actor, such as an API key, leaves slots in the queue to
// others, whatever it calls and however many accounts and origins it names, and that operators can
// sign in meanwhile.
func TestActorsShareTheQueue(t *testing.T) {
	eachLoginSite(t, userdb.Options{HashWorkers: 1}, func(t *testing.T, g *loginSite) {
		as := func(name string) context.Context { return userdb.WithActor(t.Context(), userdb.Actor{Name: name}) }
		const users = queueLength
		var tokens [users]string
		for i := range users {
			var err error
			g.add(fmt.Sprint("user", i), alicePassword)
			tokens[i], err = g.users.Issue(t.Context(), uid(fmt.Sprint("user", i)), userdb.Token{Purpose: "reset"})
			must(t, err)
		}
		operators, err := view.Reconfigure(g.db, func(c *view.Config) { c.NS, c.OnSchema = view.Reserved, view.Later })
		must(t, err)
		olga := userdb.NewEntry{Facets: schema.Texts("name", "olga"), Password: alicePassword}
		must(t, errOf(typeOf(t, operators, "user").Create(t.Context(), olga)))
		declared, err := view.Of(g.db).Type("user")
		must(t, err)

		setPassword := func(key, user string) error {
			return errOf(g.users.SetPassword(as(key), uid(user), "brand new horse"))
		}
		hashForImport := func(key string) error {
			return errOf(view.Of(g.db).Config.Hashing.Hash(as(key), declared, "brand new horse", nil))
		}
		c := newCallGroup(t)
		release := g.blockWorker() // one slot in the general lane
		want := map[string]int{}
		flood := func(kind string, slots int, call func(i int) error) {
			want[kind] = users - slots
			c.start(users, kind, call, userdb.ErrLogin, userdb.ErrConflict, userdb.ErrNotFound)
			c.wait(want[kind], kind)
		}
		flood("sign-ups", 64, func(i int) error {
			n := userdb.NewEntry{Facets: schema.Texts("name", fmt.Sprint("new", i)), Password: alicePassword}
			return errOf(g.users.Create(as("key:greedy"), n))
		})
		flood("logins with another key", 32, func(i int) error {
			a := userdb.Attempt{Origin: fmt.Sprintf("192.0.2.%d", i)}
			return errOf(g.users.Login(as("key:other"), fmt.Sprint("nobody", i), alicePassword, a))
		})
		flood("new passwords", 17, func(i int) error { return setPassword("key:greedy", fmt.Sprint("user", i)) })
		flood("redeemed tokens", 8, func(i int) error {
			return errOf(g.users.ResetPassword(as("key:other"), "reset", tokens[i], "brand new horse"))
		})
		flood("new passwords of many keys", 8, func(i int) error {
			return setPassword(fmt.Sprint("key:", i), fmt.Sprint("user", i))
		})
		flood("imports", 9, func(int) error { return hashForImport("key:greedy") })

		for kind, call := range map[string]func(int) error{
			"somebody who logs in": func(int) error {
				return errOf(g.users.Login(as("key:web"), "zoe", alicePassword, userdb.Attempt{}))
			},
			"somebody's import":          func(int) error { return hashForImport("key:web") },
			"an operator's import":       func(int) error { return hashForImport("operator:Olga") },
			"an operator's new password": func(int) error { return setPassword("operator:Olga", "user63") },
			"an operator who signs in": func(int) error {
				return errOf(typeOf(t, operators, "user").Login(t.Context(), "olga", alicePassword, userdb.Attempt{}))
			},
		} {
			c.start(1, kind, call, userdb.ErrLogin, userdb.ErrConflict)
		}
		release()
		c.finish(want)
	})
}

// TestCreateOnceInFullQueue checks that a request for which there is no slot in the queue stores
// nothing, so that another request can use its name.
func TestCreateOnceInFullQueue(t *testing.T) {
	eachLoginSite(t, userdb.Options{HashWorkers: 1}, func(t *testing.T, g *loginSite) {
		ctx := userdb.WithActor(t.Context(), userdb.Actor{Origin: "192.0.2.7"})
		createOnce := func(name, who string) error {
			return errOf(g.users.CreateOnce(ctx, name, userdb.NewEntry{Facets: schema.Texts("name", who), Password: alicePassword}))
		}
		c := newCallGroup(t)
		release := g.blockWorker()
		c.start(2*share, "request", func(i int) error { return createOnce(fmt.Sprint("request", i), fmt.Sprint("new", i)) })
		c.wait(share, "request")
		wantErr(t, "one more", createOnce("request", "zoe"), userdb.ErrUnavailable, "too many logins at once")
		ended, cancel := context.WithCancel(t.Context())
		waiting := make(chan error)
		go func() {
			n := userdb.NewEntry{Facets: schema.Texts("name", "yve"), Password: alicePassword}
			waiting <- errOf(g.users.CreateOnce(ended, "canceled", n))
		}()
		time.AfterFunc(50*time.Millisecond, cancel)
		if err := <-waiting; !errors.Is(err, context.Canceled) {
			t.Errorf("a request that is canceled while it waits: %v, want context.Canceled", err)
		}
		release()
		c.finish(map[string]int{"request": share})
		must(t, createOnce("request", "xenia"))
		must(t, createOnce("canceled", "walter"))
	})
}

// TestTakenIsNotHashed checks that no password is hashed for an entry that cannot be created
// because of its values or its UID.
func TestTakenIsNotHashed(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		own, other := g.countHashes(func() {
			n := userdb.NewEntry{UID: "alice", Facets: schema.Texts("name", "new"), Password: alicePassword}
			wantField(t, "a taken UID", errOf(g.users.Create(ctx, n)), userdb.ErrDuplicate, "uid")
		})
		if own != 0 || other != 0 {
			t.Errorf("a taken UID: %d and %d hashes, want none", own, other)
		}
		secret := g.invite("new@example.com")
		taken := userdb.NewEntry{Facets: schema.Texts("name", "Alice"), Password: alicePassword}
		for what, call := range map[string]func(n userdb.NewEntry) error{
			"Create":           func(n userdb.NewEntry) error { return errOf(g.users.Create(ctx, n)) },
			"CreateOnce":       func(n userdb.NewEntry) error { return errOf(g.users.CreateOnce(ctx, "one", n)) },
			"AcceptInvitation": func(n userdb.NewEntry) error { return errOf(g.users.AcceptInvitation(ctx, secret, n)) },
		} {
			own, other := g.countHashes(func() { wantField(t, what, call(taken), userdb.ErrDuplicate, "name") })
			if own != 0 || other != 0 {
				t.Errorf("%s with a taken name: %d and %d hashes, want none", what, own, other)
			}
			free := userdb.NewEntry{Facets: schema.Texts("name", what), Password: alicePassword}
			if own, _ := g.countHashes(func() { must(t, call(free)) }); own != 1 {
				t.Errorf("%s with a free name: %d hashes, want 1", what, own)
			}
		}
	})
}

// TestWaitEndsWithItsContext checks that a login stops waiting for a worker when its context ends.
func TestWaitEndsWithItsContext(t *testing.T) {
	eachLoginSite(t, userdb.Options{HashWorkers: 1}, func(t *testing.T, g *loginSite) {
		defer g.blockWorker()()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		own, other := g.countHashes(func() {
			_, err := g.users.Login(ctx, "alice", alicePassword, userdb.Attempt{})
			wantErr(t, "a login that waits", err, context.Canceled)
			err = errOf(g.users.SetPassword(ctx, uid("alice"), "brand new horse"))
			wantErr(t, "a call after the context ended", err, context.Canceled)
		})
		if own != 0 || other != 0 {
			t.Errorf("%d and %d hashes were computed after the context ended, want none", own, other)
		}
	})
}
