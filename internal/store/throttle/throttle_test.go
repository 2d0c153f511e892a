package throttle_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/embedded"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/cluster"
	"github.com/coffeenode/userdb/internal/store/single"
	"github.com/coffeenode/userdb/internal/store/throttle"
	"github.com/coffeenode/userdb/recordkey"
)

// throttlers lists the engines under test. open returns an engine and a client for its server. Each
// embedded engine has its own store. The cluster consists of one server.
var throttlers = []struct {
	name string
	open func(t *testing.T) (throttler, redis.UniversalClient)
}{
	{"embedded", func(t *testing.T) (throttler, redis.UniversalClient) {
		s, err := embedded.Open(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return single.New(s.Client(), single.Options{}), s.Client()
	}},
	{"redis", func(t *testing.T) (throttler, redis.UniversalClient) {
		c := redistest.Shared(t).Client()
		return single.New(c, single.Options{}), c
	}},
	{"cluster", func(t *testing.T) (throttler, redis.UniversalClient) {
		c := redistest.Shared(t).Client()
		return cluster.New(c, cluster.Options{}), c
	}},
}

// eachThrottler runs a test on every engine.
func eachThrottler(t *testing.T, test func(t *testing.T, e throttler, raw redis.UniversalClient)) {
	t.Helper()
	for _, engine := range throttlers {
		t.Run(engine.name, func(t *testing.T) {
			e, raw := engine.open(t)
			test(t, e, raw)
		})
	}
}

// countersKey returns the key of a record of counters.
func countersKey(t testing.TB, parts ...string) recordkey.Key {
	t.Helper()
	k, err := recordkey.Own(append([]string{"throttle"}, parts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// A throttler is an engine with the method Withdraw, which store.Engine lacks.
type throttler interface {
	store.Engine
	Withdraw(ctx context.Context, a throttle.Counters, as throttle.Admission) error
}

// A throttleTest makes the same calls on an engine and on the model, and compares the results. now
// is the time of these calls.
type throttleTest struct {
	t      *testing.T
	e      throttler
	raw    redis.UniversalClient
	prefix string
	model  *throttleModel
	now    time.Time
	log    []string
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newThrottleTest(t *testing.T, e throttler, raw redis.UniversalClient, prefix string) *throttleTest {
	return &throttleTest{t: t, e: e, raw: raw, prefix: prefix, model: newThrottleModel(), now: epoch}
}

func (b *throttleTest) attempt(account, origin string) throttle.Counters {
	a := throttle.Counters{Account: countersKey(b.t, b.prefix, account), Name: origin, Now: b.now}
	if origin != "" {
		a.Origin = countersKey(b.t, b.prefix, "origin", origin)
	}
	return a
}

func (b *throttleTest) logf(format string, args ...any) {
	b.log = append(b.log, b.now.Sub(epoch).String()+" "+fmt.Sprintf(format, args...))
}

func (b *throttleTest) fatalf(format string, args ...any) {
	b.t.Helper()
	for _, line := range b.log {
		b.t.Log(line)
	}
	b.t.Errorf(b.prefix+": "+format, args...)
	b.t.FailNow()
}

func (b *throttleTest) must(what string, err error) {
	b.t.Helper()
	if err != nil {
		b.fatalf("%s: %v", what, err)
	}
}

// checkState checks that the engine reports the same state of an account as the model.
func (b *throttleTest) checkState(account string) {
	b.t.Helper()
	got, err := b.e.ThrottleState(context.Background(), b.attempt(account, ""))
	b.must("ThrottleState", err)
	a := b.model.account(account, b.now)
	wait := a.strangers.wait(b.now, throttle.StrangerMax)
	own := map[time.Time]int{}
	for origin, last := range a.seen {
		own[last.Truncate(time.Millisecond)] += a.own[origin]
	}
	for _, f := range got.Familiar {
		own[f.LastLogin.UTC()] -= f.Failures
	}
	for last, n := range own {
		if n != 0 {
			b.fatalf("ThrottleState of %s: got %+v, which lacks %d failures of the origin that logged in at %v", account, got, n, last)
		}
	}
	if got.Wait != wait || got.Failures != a.strangers.failures || len(got.Familiar) != len(a.seen) || !got.Now.Equal(b.now.Truncate(time.Millisecond)) {
		b.fatalf("ThrottleState of %s: got %+v, want a wait of %v for %d failures, and %d familiar origins", account, got, wait, a.strangers.failures, len(a.seen))
	}
}

// admit makes an attempt, and checks that the engine answers as the model does.
func (b *throttleTest) admit(account, origin string) throttle.Admission {
	b.t.Helper()
	b.checkState(account)
	wait, err := b.e.LoginWait(context.Background(), b.attempt(account, origin))
	b.must("LoginWait", err)
	got, err := b.e.Admit(context.Background(), b.attempt(account, origin))
	b.must("admit", err)
	want := b.model.admit(account, origin, b.now)
	b.logf("admit %s %q: %+v", account, origin, got)
	if wait != want.Wait {
		b.fatalf("LoginWait of %s from %q: got %v, want that of %+v", account, origin, wait, want)
	}
	if got != want {
		b.fatalf("admit %s %q: got %+v, want %+v", account, origin, got, want)
	}
	return got
}

func (b *throttleTest) undo(account, origin string, as throttle.Admission) {
	b.t.Helper()
	b.logf("undo %s %q", account, origin)
	b.must("undo", b.e.Undo(context.Background(), b.attempt(account, origin), as))
	b.model.undo(account, origin, b.now, as)
}

func (b *throttleTest) withdraw(account, origin string, as throttle.Admission) {
	b.t.Helper()
	b.logf("withdraw %s %q", account, origin)
	b.must("withdraw", b.e.Withdraw(context.Background(), b.attempt(account, origin), as))
	b.model.withdraw(account, origin, b.now, as)
}

func (b *throttleTest) reset(account string) {
	b.t.Helper()
	b.logf("reset %s", account)
	b.must("reset", b.e.Reset(context.Background(), b.attempt(account, "")))
	b.model.reset(account, b.now)
}

// logIn makes a successful login if it is admitted, and reports whether it was.
func (b *throttleTest) logIn(account, origin string) bool {
	b.t.Helper()
	as := b.admit(account, origin)
	if as.Wait == 0 {
		b.undo(account, origin, as)
	}
	return as.Wait == 0
}

// checkExpiry checks that an account's counters, written just now, expire when they are no longer
// needed.
func (b *throttleTest) checkExpiry(account string) {
	b.t.Helper()
	key := countersKey(b.t, b.prefix, account).String()
	ttl, err := b.raw.PTTL(context.Background(), key).Result()
	b.must("pttl", err)
	want := b.model.timeToLive(account, b.now)
	if ttl < 0 && b.raw.Exists(context.Background(), key).Val() != 0 {
		b.fatalf("%s never expires", key)
	}
	if spare := ttl - want; want > 0 && (spare < 0 || spare > time.Minute) {
		b.fatalf("%s lives for %v, want %v", key, ttl, want)
	}
}

// A walk is one random sequence of logins.
type walk struct {
	*throttleTest
	r    *rand.Rand
	last time.Duration // the last wait
}

// pickLogin returns a random account and a random origin.
func (w *walk) pickLogin() (account, origin string) {
	return []string{"a", "a", "a", "b"}[w.r.IntN(4)], []string{"", "o1", "o1", "o2", "o3", "o4", "o5", "o6", "o7"}[w.r.IntN(9)]
}

// step makes one random call, or lets time pass.
func (w *walk) step() {
	account, origin := w.pickLogin()
	switch n := w.r.IntN(100); {
	case n < 30:
		w.last = w.admit(account, origin).Wait
	case n < 50:
		w.logIn(account, origin)
	case n < 60:
		w.overlap(account, origin)
	case n < 61:
		w.burst(account, origin, 8+w.r.IntN(60))
	case n < 67:
		w.burst(account, origin, w.r.IntN(12))
	case n < 73:
		w.reset(account)
	case n < 76:
		if as := w.admit(account, origin); as.Wait == 0 {
			w.withdraw(account, origin, as)
		}
	default:
		w.pass()
	}
}

// pass lets time go by, often until just before or after something ends.
func (w *walk) pass() {
	spans := []time.Duration{
		time.Millisecond, time.Second, w.last, w.last - time.Millisecond, time.Minute, throttle.MaxDelay,
		throttle.OriginWindow, throttle.Window - time.Millisecond, throttle.Window, throttle.FamiliarLife,
	}
	w.now = w.now.Add(max(spans[w.r.IntN(len(spans))], 0))
}

// overlap makes two attempts at the same time. They end in either order, each with or without
// success.
func (w *walk) overlap(account, origin string) {
	_, other := w.pickLogin()
	origins := [2]string{origin, other}
	as := [2]throttle.Admission{w.admit(account, origin), w.admit(account, other)}
	first := w.r.IntN(2)
	for _, i := range [2]int{first, 1 - first} {
		w.now = w.now.Add(time.Duration(w.r.IntN(2000)) * time.Millisecond)
		if as[i].Wait == 0 && w.r.IntN(3) > 0 {
			w.undo(account, origins[i], as[i])
		}
	}
}

// burst makes up to n attempts, with the required waits. It stops before a wait of over an hour.
func (w *walk) burst(account, origin string, n int) {
	for range n {
		as := w.admit(account, origin)
		if w.last = as.Wait; as.Wait > time.Hour {
			return
		}
		w.now = w.now.Add(as.Wait)
	}
}

// seed makes every run use the same sequences.
const seed = 3

// walks returns the number of sequences for each engine. USERDB_WALKS overrides it.
func walks() int {
	if n, err := strconv.Atoi(os.Getenv("USERDB_WALKS")); err == nil {
		return n
	}
	if testing.Short() {
		return 500
	}
	return 2000
}

// TestThrottleMatchesModel compares random sequences of logins on an engine with the model. It runs
// them in parallel lanes, each with its own engine, because an embedded store does one thing at a
// time.
func TestThrottleMatchesModel(t *testing.T) {
	// The embedded store's scripts produce a lot of garbage.
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	for _, engine := range throttlers {
		t.Run(engine.name, func(t *testing.T) {
			var wg sync.WaitGroup
			const lanes = 8
			for lane := range lanes {
				e, raw := engine.open(t)
				wg.Go(func() {
					for i := lane; i < walks() && !t.Failed(); i += lanes {
						newWalk(t, e, raw, i).run()
					}
				})
			}
			wg.Wait()
		})
	}
}

func newWalk(t *testing.T, e throttler, raw redis.UniversalClient, i int) *walk {
	return &walk{throttleTest: newThrottleTest(t, e, raw, fmt.Sprint(i)), r: rand.New(rand.NewPCG(seed, uint64(i)))}
}

// run takes some steps, and then checks that the counters will expire in time.
func (w *walk) run() {
	for range 2 + w.r.IntN(8) {
		w.step()
	}
	if w.logIn("a", "o1") {
		w.checkExpiry("a")
	}
	if w.admit("b", "").Wait == 0 {
		w.checkExpiry("b")
	}
}
