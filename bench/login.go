package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

const loginPassword = "correct horse battery"

// loginStore opens a store with n users who can log in. If each worker logs in as a user of its
// own, throttling delays none of them.
func (b *bench) loginStore(ctx context.Context, cost, n int) (*userdb.DB, *userdb.Type) {
	s := userSchema()
	t := s.Types["user"]
	t.Password = &schema.Password{Cost: cost}
	s.Types["user"] = t
	b.server.admin.FlushAll(ctx) // otherwise the stored password policy would apply
	db, users := b.server.open(ctx, userdb.Options{Schema: s})
	for i := range n {
		mustGet(users.Create(ctx, userdb.NewEntry{UID: fmt.Sprint("login", i), Facets: schema.Texts("name", loginName(i)), Password: loginPassword}))
	}
	load(ctx, b.server.admin, 0, population)
	return db, users
}

func loginName(i int) string { return fmt.Sprint("login user ", i) }

// login compares logins with bcrypt: with one caller on one core, or with one caller for each core.
func (b *bench) login(ctx context.Context) outcome {
	callers, clone := 1, b.oneHash()
	if b.allCores {
		callers, clone = runtime.GOMAXPROCS(0), b.withBlocks(10, 300*time.Millisecond)
	}
	db, users := b.loginStore(ctx, 10, callers)
	defer db.Close()
	stored := mustGet(bcrypt.GenerateFromPassword([]byte(loginPassword), 10))
	return clone.compare(ctx, callers, variant{name: "userdb", op: func(ctx context.Context, w, i int) error {
		_, err := users.Login(ctx, loginName(w), loginPassword, userdb.Attempt{})
		return err
	}}, variant{name: "bcrypt", op: func(ctx context.Context, w, i int) error {
		return bcrypt.CompareHashAndPassword(stored, []byte(loginPassword))
	}})
}

// oneHash returns a copy of b whose blocks last until each caller has computed one hash.
func (b *bench) oneHash() *bench { return b.withBlocks(b.size(30, 16), time.Millisecond) }

// freeFailures is how many wrong passwords are tried on one entry. It is less than the number after
// which logins have to wait.
const freeFailures = 9

// refusedLogins lists kinds of logins that are refused, and the prefix of the names that they use.
var refusedLogins = []struct{ what, prefix string }{
	{"wrong password", ""}, {"unknown", "no "}, {"no password", "bare "}, {"disabled", "banned "},
}

// loginAnswers compares the times that an attacker could measure. It tries each entry only a few
// times, so that none of them has to wait.
func (b *bench) loginAnswers(ctx context.Context) outcome {
	const people = 64
	db, users := b.loginStore(ctx, 10, people)
	defer db.Close()
	for i := range people { // adds one entry without a password and one that is disabled
		mustGet(users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", "bare "+loginName(i))}))
		e := mustGet(users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", "banned "+loginName(i)), Password: loginPassword}))
		must(users.Disable(ctx, hints.Key(e.Key())))
	}
	var vs []variant
	for _, o := range refusedLogins {
		n := 0
		vs = append(vs, variant{name: o.what, op: func(ctx context.Context, _, _ int) error {
			n++
			_, err := users.Login(ctx, o.prefix+loginName(n/freeFailures), "wrong", userdb.Attempt{})
			if errors.Is(err, userdb.ErrLogin) {
				return nil
			}
			return fmt.Errorf("%s, attempt %d: got %v, want ErrLogin", o.what, n, err)
		}})
	}
	rs := b.oneHash().interleave(ctx, 1, vs...)
	slices.SortFunc(rs, func(a, b result) int { return cmp.Compare(a.P50, b.P50) })
	o := b.judge(rs, rs[len(rs)-1], rs[0])
	o.estimate = o.inverse() // a ratio of times, not of rates
	return o
}

// A flood is a stream of logins that keep coming whether or not earlier ones have been served.
type flood struct {
	served, refused, other atomic.Int64
	stop                   func()
}

const (
	floodCost    = 12
	overload     = 10 // how many times more logins arrive than the machine can hash
	loginTimeout = 30 * time.Second
)

// startFlood starts logins at a constant rate. The function stop of the flood ends them and waits
// for the last one.
func startFlood(ctx context.Context, users *userdb.Type, people int) *flood {
	stored := mustGet(bcrypt.GenerateFromPassword([]byte(loginPassword), floodCost))
	begin := time.Now()
	must(bcrypt.CompareHashAndPassword(stored, []byte(loginPassword)))
	interval := time.Since(begin) / time.Duration(overload*runtime.GOMAXPROCS(0))
	ctx, cancel := context.WithCancel(ctx)
	f := &flood{}
	var wg sync.WaitGroup
	wg.Go(func() {
		next := time.NewTicker(interval)
		defer next.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			wg.Go(func() { f.login(ctx, users, loginName(i%people)) })
			<-next.C
		}
	})
	f.stop = func() { cancel(); wg.Wait() }
	// The flood has built up when a login is refused, or after the longest time that a login waits.
	for end := time.Now().Add(loginTimeout); f.refused.Load() == 0 && ctx.Err() == nil && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	return f
}

func (f *flood) login(ctx context.Context, users *userdb.Type, name string) {
	ctx, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	_, err := users.Login(ctx, name, loginPassword, userdb.Attempt{})
	switch {
	case err == nil:
		f.served.Add(1)
	case errors.Is(err, userdb.ErrUnavailable):
		f.refused.Add(1)
	case ctx.Err() == nil:
		f.other.Add(1)
	}
}

func (f *flood) note() string {
	return fmt.Sprintf("%d logins served, %d refused, %d failed otherwise", f.served.Load(), f.refused.Load(), f.other.Load())
}

// readUnderFlood compares reads on an idle machine with reads during a flood.
func (b *bench) readUnderFlood(ctx context.Context) outcome {
	return b.withFlood(ctx, func(users *userdb.Type, start func() *flood) outcome {
		read := findVariant(users)
		read.name = "read"
		clone := b.onAllCores().withBlocks(30, 100*time.Millisecond)
		idle := clone.interleave(ctx, 4, read)
		f := start()
		busy := clone.interleave(ctx, 4, read)
		return outcome{estimate: compareTails(busy[0], idle[0]), note: f.note(), variants: append(idle, busy...)}
	})
}

// withFlood runs a row that starts a flood of logins.
func (b *bench) withFlood(ctx context.Context, row func(users *userdb.Type, start func() *flood) outcome) outcome {
	people := 10 * runtime.GOMAXPROCS(0)
	db, users := b.loginStore(ctx, floodCost, people)
	defer db.Close()
	stop := func() {}
	defer func() { stop() }()
	return row(users, func() *flood {
		f := startFlood(ctx, users, people)
		stop = f.stop
		return f
	})
}

// memoryUnderFlood compares the memory in use late in a flood with that early in it.
func (b *bench) memoryUnderFlood(ctx context.Context) outcome {
	return b.withFlood(ctx, func(_ *userdb.Type, start func() *flood) outcome {
		f := start()
		var used []float64
		for range 14 {
			time.Sleep(400 * time.Millisecond)
			used = append(used, inUse())
		}
		early, late := median(used[:len(used)/2]), median(used[len(used)/2:])
		note := fmt.Sprintf("%.1f MiB, then %.1f; %s", early/(1<<20), late/(1<<20), f.note())
		return outcome{estimate: about(late/early, 0.05), note: note}
	})
}

// inUse returns the bytes that live objects and stacks use.
func inUse() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}
