package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestCreateOnce checks that requests with the same name create one entry, with one UID, however
// often they are sent.
func TestCreateOnce(t *testing.T) {
	eachLoginSite(t, userdb.Options{}, func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		carol := userdb.NewEntry{Facets: schema.Texts("name", "carol", "email", "carol@example.com"), Password: "battery staple", Tags: []string{"a"}}
		first, err := g.users.CreateOnce(ctx, "one", carol)
		must(t, err)
		carol.Password = "another one entirely"
		again, err := g.users.CreateOnce(ctx, "one", carol)
		if must(t, err); again.UID() != first.UID() || again.Rev() != first.Rev() {
			t.Errorf("the same request returned %v, then %v; want one entry", first, again)
		}
		_, err = g.users.CreateOnce(ctx, "one", userdb.NewEntry{Facets: schema.Texts("name", "bob")})
		if bad, ok := errors.AsType[*userdb.FieldError](err); !ok || bad.Rule != "once" || !errors.Is(err, userdb.ErrInvalid) {
			t.Errorf("another request with the same name: got %v, want ErrInvalid by rule once", err)
		}
		if _, err = g.users.CreateOnce(ctx, "two", carol); !errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("the same request with another name: got %v, want ErrDuplicate", err)
		}
		// A refused request is forgotten.
		_, err = g.users.CreateOnce(ctx, "two", userdb.NewEntry{Facets: schema.Texts("name", "bob")})
		must(t, err)

		must(t, g.users.Delete(ctx, hints.UID(first.UID())))
		if _, err = g.users.CreateOnce(ctx, "one", carol); !errors.Is(err, userdb.ErrNotFound) {
			t.Errorf("after a delete: got %v, want ErrNotFound", err)
		}
		g.advance(25 * time.Hour)
		_, err = g.users.CreateOnce(ctx, "one", carol) // the request is forgotten after a day
		must(t, err)
	})
}

// TestCreateOnceOtherRequest sends other requests with the name of one that created an entry. They
// must be refused, and leave no reservation of a UID behind.
func TestCreateOnceOtherRequest(t *testing.T) {
	eachLoginSite(t, userdb.Options{}, func(t *testing.T, g *loginSite) {
		facets := schema.Texts("name", "ann")
		first, err := g.users.CreateOnce(t.Context(), "one", userdb.NewEntry{Facets: facets})
		must(t, err)
		for what, n := range map[string]userdb.NewEntry{
			"disabled":           {Facets: facets, Disabled: true},
			"with other facets":  {Facets: schema.Texts("name", "eve")},
			"with a UID":         {Facets: facets, UID: "x"},
			"with tags":          {Facets: facets, Tags: []string{"a"}},
			"with another facet": {Facets: schema.Texts("name", "ann", "email", "ann@example.com")},
		} {
			_, err := g.users.CreateOnce(t.Context(), "one", n)
			if bad, ok := errors.AsType[*userdb.FieldError](err); !ok || bad.Rule != "once" {
				t.Errorf("the request %s: got %v, want ErrInvalid by rule once", what, err)
			}
			g.wantNoReservation(what)
		}
		if e := g.find(first.UID()); e.Disabled() || e.Rev() != first.Rev() {
			t.Errorf("the entry was changed to %v, want it unchanged", e)
		}
		_, err = g.users.CreateOnce(t.Context(), "another", userdb.NewEntry{UID: "x", Facets: schema.Texts("name", "eve")})
		must(t, err)
	})
}

// wantNoReservation checks that no UID is reserved for an entry that does not exist.
func (g *loginSite) wantNoReservation(why string) {
	g.t.Helper()
	if left := g.keysUnder("~/token/{user/uid:"); len(left) > 0 {
		g.t.Errorf("%s: reservations are left at %q", why, left)
	}
}

// TestCreateOnceOtherRequestsConcurrently sends different requests with one name at once, without
// and with UIDs. At least one call must succeed, and no reservation may be left.
func TestCreateOnceOtherRequestsConcurrently(t *testing.T) {
	eachLoginSite(t, userdb.Options{}, func(t *testing.T, g *loginSite) {
		for round := range 4 {
			var created atomic.Int64
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					n := userdb.NewEntry{Facets: schema.Texts("name", fmt.Sprint("ann", round, "-", i/2))}
					if round%2 == 1 {
						n.UID = fmt.Sprint("u", round, "-", i%3)
					}
					_, err := g.users.CreateOnce(t.Context(), fmt.Sprint("name ", round), n)
					switch {
					case err == nil:
						created.Add(1)
					case !errors.Is(err, userdb.ErrInvalid) && !errors.Is(err, userdb.ErrConflict) && !errors.Is(err, userdb.ErrDuplicate):
						t.Errorf("round %d, request %d: %v", round, i, err)
					}
				})
			}
			all.Wait()
			if created.Load() == 0 {
				t.Errorf("round %d: no request created an entry", round)
			}
			g.wantNoReservation(fmt.Sprint("round ", round))
		}
	})
}

// TestCreateOnceByTheServersClock begins a request on a client whose clock is an hour slow. The age
// of the request must not depend on that clock.
func TestCreateOnceByTheServersClock(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := s.users()
		db, err := view.Reconfigure(s.first, func(c *view.Config) {
			c.OwnClock = func() time.Time { return time.Now().Add(-time.Hour) }
		})
		must(t, err)
		behind, n := typeOf(t, db, "user"), userdb.NewEntry{Facets: schema.Texts("name", "carol")}
		for cut := 0; ; cut++ {
			left, name := cut, fmt.Sprint("request ", cut)
			var mu sync.Mutex // serializes commands that a cluster gets at the same time
			s.tap.set(func(ctx context.Context, cmds []redis.Cmder, send func() error) error {
				mu.Lock()
				defer mu.Unlock()
				if left--; left < 0 {
					return context.Canceled
				}
				return send()
			})
			_, err := behind.CreateOnce(t.Context(), name, n)
			s.tap.set(nil)
			if err == nil {
				t.Fatal("no call was canceled between its first and its last command")
			}
			e, err := users.CreateOnce(t.Context(), name, n)
			if err == nil { // the first call had not begun
				must(t, users.Delete(t.Context(), hints.UID(e.UID())))
				continue
			}
			wantErr(t, "a request that is a moment old", err, userdb.ErrConflict)
			ageRequests(t, s, 11*time.Second)
			_, err = users.CreateOnce(t.Context(), name, n)
			must(t, err)
			return
		}
	})
}

// ageRequests makes all requests of CreateOnce look older.
func ageRequests(t *testing.T, s *site, by time.Duration) {
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

// TestCreateOnceAtUID makes requests that choose the UID of the new entry. A refused request must
// leave nothing behind.
func TestCreateOnceAtUID(t *testing.T) {
	eachLoginSite(t, userdb.Options{}, func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		createOnce := func(name string, n userdb.NewEntry) error {
			_, err := g.users.CreateOnce(ctx, name, n)
			return err
		}
		must(t, createOnce("a", userdb.NewEntry{UID: "x", Facets: schema.Texts("name", "ann")}))
		must(t, createOnce("a", userdb.NewEntry{UID: "x", Facets: schema.Texts("name", "ann")}))
		if err := createOnce("b", userdb.NewEntry{UID: "x", Facets: schema.Texts("name", "eve")}); !errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("a taken UID: got %v, want ErrDuplicate", err)
		}
		if err := createOnce("c", userdb.NewEntry{UID: "y", Facets: schema.Texts("name", "ann")}); !errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("a taken name: got %v, want ErrDuplicate", err)
		}
		// The refused request left nothing behind.
		must(t, createOnce("d", userdb.NewEntry{UID: "y", Facets: schema.Texts("name", "yan")}))
		if err := createOnce("", userdb.NewEntry{}); !errors.Is(err, userdb.ErrInvalid) {
			t.Errorf("a request without a name: got %v, want ErrInvalid", err)
		}
	})
}

// TestCreateOnceConcurrently sends a request many times at once. One call must create the entry;
// the others must return it, or report that it is being created.
func TestCreateOnceConcurrently(t *testing.T) {
	eachLoginSite(t, userdb.Options{}, func(t *testing.T, g *loginSite) {
		var mu sync.Mutex
		uids := map[string]int{}
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				e, err := g.users.CreateOnce(t.Context(), "same", userdb.NewEntry{Facets: schema.Texts("name", "carol")})
				mu.Lock()
				defer mu.Unlock()
				if err != nil && !errors.Is(err, userdb.ErrConflict) {
					t.Errorf("a concurrent request: %v", err)
				}
				uids[e.UID()]++
			})
		}
		all.Wait()
		if delete(uids, ""); len(uids) != 1 {
			t.Errorf("got answers by UID %v, want one UID", uids)
		}
		g.wantNoReservation("afterwards")
		total, err := g.users.Count(t.Context(), userdb.Query{})
		if must(t, err); total.Entries != 2 { // alice is the other
			t.Errorf("got %d entries, want 2", total.Entries)
		}
	})
}

// TestCreateOnceCutOff interrupts a call before each of its commands and before each reply. Either
// the process is killed, or only the call fails and its process continues. The next call with the
// same name must create the entry: at once if the process continues, and otherwise as soon as the
// store considers the first call dead. The test runs with a generated UID and with one that the
// caller chooses.
func TestCreateOnceCutOff(t *testing.T) {
	for _, killed := range []bool{true, false} {
		for _, uid := range []string{"", "carol"} {
			t.Run(fmt.Sprintf("process killed %v, UID %q", killed, uid), func(t *testing.T) {
				eachLoginSite(t, userdb.Options{}, func(t *testing.T, g *loginSite) {
					cutOff := 0
					for at := 0; g.cutOffAt(at, killed, userdb.NewEntry{UID: uid, Facets: schema.Texts("name", "carol")}); at++ {
						cutOff++
					}
					if cutOff < 8 {
						t.Errorf("the call was cut off at %d moments, want at least 8", cutOff)
					}
					if killed { // on a cluster, a killed process leaves claims behind (I4)
						runCheck(t, g.db, check.Options{Repair: true})
					}
				})
			})
		}
	}
}

// cutOffAt interrupts a call at one moment, and repeats it. Moments are counted from 0: two for
// each command, before it and before its reply. cutOffAt returns false if the call ended before
// that moment.
func (g *loginSite) cutOffAt(at int, killed bool, n userdb.NewEntry) bool {
	t := g.t
	t.Helper()
	ctx, fail := context.WithCancel(t.Context())
	defer fail()
	name, moment := fmt.Sprint("request ", at), 0
	var mu sync.Mutex // serializes commands that a cluster gets at the same time
	g.tap.set(func(of context.Context, cmds []redis.Cmder, send func() error) error {
		mu.Lock()
		defer mu.Unlock()
		for range 2 {
			if moment == at {
				fail()
			}
			moment++
			if killed {
				of = ctx
			}
			if of.Err() != nil {
				return of.Err()
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
	if err == nil {
		return false
	}
	e, err := g.users.CreateOnce(t.Context(), name, n)
	if killed && errors.Is(err, userdb.ErrConflict) {
		g.advance(11 * time.Second)
		e, err = g.users.CreateOnce(t.Context(), name, n)
	}
	if err != nil {
		t.Fatalf("the call after one that was cut off at %d: %v", at, err)
	}
	must(t, g.users.Delete(t.Context(), hints.UID(e.UID())))
	if _, err := g.users.CreateOnce(t.Context(), name, n); !errors.Is(err, userdb.ErrNotFound) {
		t.Errorf("cut off at %d, after a delete: got %v, want ErrNotFound", at, err)
	}
	return true
}

// TestCreateOnceCutOffAfterSchemaChange does what TestCreateOnceCutOff does for a process that
// continues, but changes the stored schema before each call. The first attempt of such a call
// begins the request, but a later attempt may be cut off.
func TestCreateOnceCutOffAfterSchemaChange(t *testing.T) {
	eachLoginSite(t, userdb.Options{}, func(t *testing.T, g *loginSite) {
		g.needs(manyClients)
		if strings.HasPrefix(g.url, "redis+cluster:") {
			t.Skip("on a cluster, a program may use a schema that it read up to 5 s ago: see internal/store/cluster")
		}
		for at, more := 0, true; more; at++ {
			stored := g.storedType(t)
			stored.Fields[fmt.Sprint("city", at)] = schema.Field{}
			g.storeSchema(t, stored)
			more = g.cutOffAt(at, false, userdb.NewEntry{Facets: schema.Texts("name", "carol")})
		}
	})
}

// TestCreateOnceRefusedAndKilled kills a process before each command of a request that is refused.
// After that, a corrected request with the same name must succeed. If the store still has a record
// of the refused request, the caller must first repeat that one and see it refused.
func TestCreateOnceRefusedAndKilled(t *testing.T) {
	eachLoginSite(t, userdb.Options{}, func(t *testing.T, g *loginSite) {
		taken := userdb.NewEntry{UID: "x", Facets: schema.Texts("name", "alice")}
		free := userdb.NewEntry{UID: "x", Facets: schema.Texts("name", "carol")}
		for at, refused := 0, false; !refused; at++ {
			ctx, kill := context.WithCancel(t.Context())
			name, sent := fmt.Sprint("request ", at), 0
			var mu sync.Mutex
			g.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
				mu.Lock()
				defer mu.Unlock()
				if sent == at {
					kill()
				}
				sent++
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return send()
			})
			_, err := g.users.CreateOnce(ctx, name, taken)
			g.tap.set(nil)
			refused = errors.Is(err, userdb.ErrDuplicate) && ctx.Err() == nil
			kill()
			g.advance(11 * time.Second)
			// ErrInvalid means that the refused request is still known.
			if _, err = g.users.CreateOnce(t.Context(), name, free); errors.Is(err, userdb.ErrInvalid) {
				_, err = g.users.CreateOnce(t.Context(), name, taken)
				wantErr(t, fmt.Sprint("the refused request again, killed at command ", at), err, userdb.ErrDuplicate)
				_, err = g.users.CreateOnce(t.Context(), name, free)
			}
			if err != nil {
				t.Fatalf("the corrected request, killed at command %d: %v", at, err)
			}
			must(t, g.users.Delete(t.Context(), hints.UID("x")))
		}
	})
}

// TestCreateOnceAfterWrongClock kills a request at each command while the server's clock is a month
// ahead. Once the clock has been set right, the request must not count as running for that month.
func TestCreateOnceAfterWrongClock(t *testing.T) {
	eachLoginSite(t, userdb.Options{}, func(t *testing.T, g *loginSite) {
		n := userdb.NewEntry{UID: "x", Facets: schema.Texts("name", "carol")}
		for at, whole := 0, false; !whole; at++ {
			ctx, kill := context.WithCancel(t.Context())
			name, sent := fmt.Sprint("request ", at), 0
			var mu sync.Mutex
			g.advance(30 * 24 * time.Hour)
			g.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
				mu.Lock()
				defer mu.Unlock()
				if sent == at {
					kill()
				}
				sent++
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return send()
			})
			_, err := g.users.CreateOnce(ctx, name, n)
			g.tap.set(nil)
			whole = err == nil
			kill()
			g.advance(-30 * 24 * time.Hour)
			if _, err = g.users.CreateOnce(t.Context(), name, n); err != nil {
				t.Fatalf("the request again, killed at command %d: %v", at, err)
			}
			must(t, g.users.Delete(t.Context(), hints.UID("x")))
		}
		if !g.has(oneScript) { // a killed create leaves claims on a cluster
			for range check.Run(store.WithoutOtherWriters(t.Context()), g.first, check.Options{Repair: true}) {
			}
		}
	})
}

// TestCreateOnceAfterSchemaChange changes the stored schema before the first request of a program,
// so that its first attempt fails. The request must succeed: its second attempt must not mistake
// the first for the request of another caller.
func TestCreateOnceAfterSchemaChange(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := s.wide()
		add(t, users, "u", "name", "n")
		if strings.HasPrefix(s.url, "redis+cluster:") {
			t.Skip("on a cluster, a program may use a schema that it read up to 5 s ago: see internal/store/cluster")
		}
		stored := s.storedType(t)
		stored.Fields["city"] = schema.Field{}
		s.storeSchema(t, stored)
		e, err := users.CreateOnce(t.Context(), "one", userdb.NewEntry{Facets: schema.Texts("name", "carol")})
		must(t, err)
		again, err := users.CreateOnce(t.Context(), "one", userdb.NewEntry{Facets: schema.Texts("name", "carol")})
		if must(t, err); again.UID() != e.UID() {
			t.Errorf("the same request returned %v, then %v; want one entry", e, again)
		}
	})
}

// TestSetReplace checks that Replace changes a set and its index, and that concurrent calls never
// leave a mixture of their sets.
func TestSetReplace(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx, users := t.Context(), s.users()
		e, err := users.Create(ctx, userdb.NewEntry{UID: "u", Tags: []string{"a", "b"}})
		must(t, err)
		tags := users.Tags(uid("u"))
		must(t, tags.Replace(ctx, "c", "b", "c"))
		now, err := users.Find(ctx, uid("u"))
		if must(t, err); now.Rev() == e.Rev() {
			t.Error("the revision has not changed")
		}
		for tag, want := range map[string]int64{"a": 0, "b": 1, "c": 1} {
			total, err := users.Count(ctx, userdb.Query{Tags: []string{tag}})
			if must(t, err); total.Entries != want {
				t.Errorf("tag %s: got %d entries, want %d", tag, total.Entries, want)
			}
		}
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() { must(t, tags.Replace(ctx, fmt.Sprint("x", i), fmt.Sprint("y", i))) })
		}
		all.Wait()
		got, err := tags.Members(ctx)
		if must(t, err); len(got) != 2 || got[0][1:] != got[1][1:] {
			t.Errorf("got tags %v, want those of one call", got)
		}
		must(t, tags.Replace(ctx))
		if n, err := tags.Len(ctx); n != 0 || err != nil {
			t.Errorf("after Replace without members: got %d, %v; want none", n, err)
		}
		wantErr(t, "tags of an unknown entry", users.Tags(uid("nobody")).Replace(ctx, "x"), userdb.ErrNotFound)
	})
}

// TestResetThrottle checks that a throttled account can log in at once after ResetThrottle.
func TestResetThrottle(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.exhaust("alice", "")
		wantErr(t, "a throttled account", g.logIn("alice", alicePassword, ""), userdb.ErrTooManyAttempts)
		must(t, g.users.ResetThrottle(t.Context(), uid("alice")))
		must(t, g.logIn("alice", alicePassword, ""))
		wantErr(t, "an unknown account", g.users.ResetThrottle(t.Context(), uid("nobody")), userdb.ErrNotFound)
	})
}

// TestCreateOnceDuringFloods kills processes that make requests, in several namespaces of an
// embedded store. Then strangers cause so many tokens that the store drops reservations. Repeated
// requests must create their entries or return them. A flood of requests in one namespace must not
// drop those of another.
func TestCreateOnceDuringFloods(t *testing.T) {
	g := newLoginSite(embeddedSite(t, "memory:"), userdb.Options{})
	all, reserved := []*userdb.Type{}, []string{}
	for _, path := range []string{"", "acme", strings.Repeat("é/", 3) + strings.Repeat("ü", 450) + "/x"} {
		ns, err := recordkey.ParseNamespace(path)
		must(t, err)
		db, err := view.Reconfigure(g.db, func(c *view.Config) { c.NS = ns })
		must(t, err)
		all = append(all, typeOf(t, db, "user"))
		reserved = append(reserved, ns.String()+"~/token/{"+ns.String()+"user/uid:none}")
	}
	flood := func(keys []string) {
		pipe := g.raw.Pipeline()
		for _, key := range keys {
			for i := range 4100 {
				like := strings.TrimSuffix(key, "}") + fmt.Sprint(i) + "}"
				pipe.HSet(t.Context(), like, "x", "1 1 x")
				pipe.PExpire(t.Context(), like, time.Hour)
			}
		}
		_, err := pipe.Exec(t.Context())
		must(t, err)
	}
	entryOf := func(at int) userdb.NewEntry {
		return userdb.NewEntry{Facets: schema.Texts("name", fmt.Sprint("ann", at))}
	}
	var before []string // UIDs of the entries that were created before the floods
	for _, users := range all {
		e, err := users.CreateOnce(t.Context(), "done", entryOf(1000))
		must(t, err)
		before = append(before, e.UID())
	}
	killed := 0
	for more := true; more; killed++ {
		more = false
		for _, users := range all {
			sent := 0
			g.tap.set(func(_ context.Context, _ []redis.Cmder, send func() error) error {
				if sent++; sent > killed {
					return context.Canceled
				}
				return send()
			})
			_, err := users.CreateOnce(t.Context(), fmt.Sprint("request ", killed), entryOf(killed))
			g.tap.set(nil)
			more = more || err != nil
		}
	}
	if killed < 4 {
		t.Errorf("calls were killed at %d moments, want at least 4", killed)
	}
	flood(reserved)
	g.advance(11 * time.Second)
	for n, users := range all {
		for at := range killed {
			_, err := users.CreateOnce(t.Context(), fmt.Sprint("request ", at), entryOf(at))
			if err != nil {
				t.Errorf("namespace %d, after a call that was killed at %d: %v", n, at, err)
			}
		}
	}
	for _, key := range g.keysUnder("~~userdb/~/token/{~~userdb/once/name:") {
		flood([]string{key})
		break
	}
	for n, users := range all {
		e, err := users.CreateOnce(t.Context(), "done", entryOf(1000))
		switch {
		case n == 0 && !errors.Is(err, userdb.ErrDuplicate):
			t.Errorf("the root: got %v, want its request to be dropped", err)
		case n > 0 && (err != nil || e.UID() != before[n]):
			t.Errorf("namespace %d: got %s, %v, want the entry %s", n, e.UID(), err, before[n])
		}
	}
}
