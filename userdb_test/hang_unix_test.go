//go:build unix

package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestHangingServer suspends the server's process. Every call must end with its context. When the
// server resumes, it must complete each change or not make it at all.
func TestHangingServer(t *testing.T) {
	s := startServer(t)
	users := lossyStore(t, s)
	before, err := users.Find(t.Context(), hints.UID("u"))
	must(t, err)
	signal := s.signaller()
	signal(syscall.SIGSTOP)
	resume := func() { signal(syscall.SIGCONT) }
	defer func() { resume() }()
	methods := basicMethods(s.first, users, before)
	names := make([]string, 0, len(methods))
	for name := range methods {
		names = append(names, name)
	}
	// The time must be long enough for a password hash on a busy machine. A call whose password
	// cannot be hashed in time would be refused at once.
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	errs := runConcurrently(len(names), func(i int) error { return methods[names[i]](ctx) })
	for i, err := range errs {
		if ctx.Err() == nil {
			t.Errorf("%s returned before its context ended: %v", names[i], err)
		}
		if !isUnavailable(err) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v, want an error that the store is unavailable", names[i], err)
		}
	}
	resume()
	resume = func() {}
	must(t, s.first.Ping(t.Context()))
}

// signaller returns a function that sends signals to the server's process.
func (s *site) signaller() func(syscall.Signal) {
	s.t.Helper()
	return signallerOf(s.t, s.raw)
}

func signallerOf(t *testing.T, server redis.Cmdable) func(syscall.Signal) {
	t.Helper()
	info, err := server.Info(t.Context(), "server").Result()
	must(t, err)
	found := regexp.MustCompile(`process_id:(\d+)`).FindStringSubmatch(info)
	if found == nil {
		t.Fatal("the server does not report its process ID")
	}
	pid, _ := strconv.Atoi(found[1])
	return func(sig syscall.Signal) {
		if err := syscall.Kill(pid, sig); err != nil {
			t.Errorf("signal %v: %v", sig, err)
		}
	}
}

// longDelay is how long a call may still run after its context has ended, on a busy machine.
const longDelay = 4 * time.Second

// watchEnd returns a function that must be called when the call named name returns. It fails the
// test if another goroutine saw the end of ctx more than longDelay before. A pause of the whole
// machine delays both.
func watchEnd(ctx context.Context, t *testing.T, name string) (returned func()) {
	seen := make(chan time.Time, 1)
	stop := context.AfterFunc(ctx, func() { seen <- time.Now() })
	return func() {
		if stop() {
			return // ctx has not ended
		}
		if late := time.Since(<-seen); late > longDelay {
			t.Errorf("%s returned %v after its context ended, want at most %v", name, late, longDelay)
		}
	}
}

// TestSilentMaster suspends one master of a cluster that keeps a history. Every call must end with
// its context. Changes of entries on other masters must succeed, however many of their feed lines
// wait for the suspended master, and none of these lines may be lost.
func TestSilentMaster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	db, err := userdb.Open(t.Context(), c.URL(), userdb.Options{History: true, Schema: wideSchema(schema.FoldCasefold)})
	must(t, err)
	defer db.Close()
	users := typeOf(t, db, "user")
	facets := schema.Texts("name", "n", "job", "j")
	must(t, errOf(users.Create(t.Context(), userdb.NewEntry{UID: "u", Facets: facets, Tags: []string{"a"}})))
	before, err := users.Find(t.Context(), hints.UID("u"))
	must(t, err)
	silent := otherMaster(t, c, "~/schema/user", "user/uid:u", "user/name:n/~prk")
	var uids []string // of entries on other masters whose feed is on the silent one
	for i := 0; len(uids) < 150; i++ {
		uid := fmt.Sprint("v", i)
		prk, err := recordkey.PRK("user", "uid", uid)
		must(t, err)
		feed, err := history.FeedKey(prk.Namespace(), history.FeedChanges, history.FeedPart(prk))
		must(t, err)
		if c.Master(prk.String()) != silent && c.Master(feed.String()) == silent {
			add(t, users, uid)
			uids = append(uids, uid)
		}
	}
	waitForFeed(t, db, 1+len(uids))
	signal := signallerOf(t, silent.Client())
	signal(syscall.SIGSTOP)
	resume := func() { signal(syscall.SIGCONT) }
	defer func() { resume() }()
	for _, uid := range uids {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		returned := watchEnd(ctx, t, "the change of "+uid)
		_, err := users.Update(ctx, hints.UID(uid), func(e *userdb.Entry) error { e.Put("age", schema.Number(1)); return nil })
		if err != nil && ctx.Err() == nil {
			t.Errorf("%s: %v", uid, err)
		}
		returned()
		cancel()
		if t.Failed() {
			return
		}
	}
	var all sync.WaitGroup
	for name, method := range basicMethods(db, users, before) {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			returned := watchEnd(ctx, t, name)
			_ = method(ctx) // it succeeds if all its records are on other masters
			returned()
		})
	}
	all.Wait()
	resume()
	resume = func() {}
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		updates := map[string]int{} // by UID
		for after, more := "", true; more; {
			p, err := db.Events(t.Context(), userdb.EventQuery{After: after, Limit: 1000, Kinds: []userdb.EventKind{"update"}})
			must(t, err)
			for _, e := range p.Events {
				updates[e.Key.Value()]++
			}
			more, after = len(p.Events) > 0, p.Next
		}
		missing := slices.DeleteFunc(slices.Clone(uids), func(uid string) bool { return updates[uid] == 1 })
		if len(missing) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the feed does not have the changes of %q exactly once", missing)
		}
	}
}

// otherMaster returns a master that serves none of the keys.
func otherMaster(t *testing.T, c *redistest.Cluster, keys ...string) *redistest.Server {
	t.Helper()
	for _, node := range c.Nodes[:3] {
		if !slices.ContainsFunc(keys, func(key string) bool { return c.Master(key) == node }) {
			return node
		}
	}
	t.Fatalf("every master serves one of the keys %q", keys)
	return nil
}
