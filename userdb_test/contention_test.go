package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// contenders is the number of goroutines that compete for one thing.
const contenders = 64

// runConcurrently calls do n times concurrently and returns the errors by index.
func runConcurrently(n int, do func(i int) error) []error {
	errs := make([]error, n)
	var start, done sync.WaitGroup
	start.Add(1)
	for i := range n {
		done.Go(func() {
			start.Wait()
			errs[i] = do(i)
		})
	}
	start.Done()
	done.Wait()
	return errs
}

// wantOneWinner checks that exactly one of the errors is nil and that the others are of the given
// kind.
func wantOneWinner(t *testing.T, errs []error, kind error) {
	t.Helper()
	won := 0
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, kind):
			t.Errorf("got error %v, want %v", err, kind)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d calls succeeded, want one", won, len(errs))
	}
}

// TestOneWins lets many creates compete for one value, in every way in which the values of two
// entries can collide.
func TestOneWins(t *testing.T) {
	cases := []struct {
		name  string
		entry func(i int) userdb.NewEntry
	}{
		{"one name in several spellings", func(i int) userdb.NewEntry {
			spelled := []string{"Ann", "ANN", " ann ", "ａｎｎ"}[i%4]
			return userdb.NewEntry{Facets: schema.Texts("name", spelled, "email", fmt.Sprint("e", i))}
		}},
		{"two values crosswise", func(i int) userdb.NewEntry {
			return userdb.NewEntry{Facets: schema.Texts([]string{"email", "name"}[i%2], "x", []string{"name", "email"}[i%2], "Y")}
		}},
		{"three values in a ring", func(i int) userdb.NewEntry {
			v := []string{"x", "y", "z", "x", "y"}[i%3 : i%3+3]
			return userdb.NewEntry{Facets: schema.Texts("email", v[0], "name", v[1], "nick", v[2])}
		}},
		{"one UID", func(i int) userdb.NewEntry {
			return userdb.NewEntry{UID: "one", Facets: schema.Texts("name", fmt.Sprint("n", i))}
		}},
		{"one value in different fields", func(i int) userdb.NewEntry {
			return userdb.NewEntry{Facets: schema.Texts(secondaries[i%3], "x"), Tags: []string{"a"}}
		}},
	}
	eachStore(t, func(t *testing.T, s *site) {
		users := s.wide()
		for _, c := range cases {
			s.wipe()
			t.Run(c.name, func(t *testing.T) {
				wantOneWinner(t, runConcurrently(contenders, func(i int) error {
					_, err := users.Create(t.Context(), c.entry(i))
					return err
				}), userdb.ErrDuplicate)
				if n, err := users.Count(t.Context(), userdb.Query{}); n.Entries != 1 || err != nil {
					t.Errorf("Count: got %v, %v; want one entry", n, err)
				}
				s.inspect(t)
			})
		}
	})
}

// TestOneUpdateWins lets many entries compete for one value, and then many writers save the same
// revision. Each time, exactly one change must succeed.
func TestOneUpdateWins(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.wide(), t.Context()
		es := make([]userdb.Entry, contenders)
		for i := range es {
			es[i] = add(t, users, fmt.Sprint("u", i), "name", fmt.Sprint("n", i))
		}
		wantOneWinner(t, runConcurrently(contenders, func(i int) error {
			return errOf(users.Update(ctx, hints.UID(es[i].UID()), putText(secondaries[i%3], "X")))
		}), userdb.ErrDuplicate)
		e, err := users.Find(ctx, hints.UID("u0"))
		must(t, err)
		wantOneWinner(t, runConcurrently(contenders, func(i int) error {
			mine := e
			mine.Put("job", schema.Text(fmt.Sprint("j", i)))
			_, err := users.Save(ctx, mine)
			return err
		}), userdb.ErrConflict)
	})
}

// TestNoUpdateIsLost increments one facet from many goroutines. No increment may be lost.
func TestNoUpdateIsLost(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.wide(), t.Context()
		add(t, users, "u", "name", "n")
		const writers, each = 8, 10
		for _, err := range runConcurrently(writers, func(int) error {
			for range each {
				if _, err := users.Update(ctx, hints.UID("u"), func(e *userdb.Entry) error {
					n, _ := valueOf(e, "age").Number()
					e.Put("age", schema.Number(n+1))
					return nil
				}); err != nil {
					return err
				}
			}
			return nil
		}) {
			must(t, err)
		}
		e, err := users.Find(ctx, hints.UID("u"))
		must(t, err)
		if got := e.Text("age"); got != itoa(writers*each) {
			t.Errorf("counted to %s, want %d", got, writers*each)
		}
	})
}

func valueOf(e *userdb.Entry, field string) schema.Value {
	v, _ := e.Get(field)
	return v
}

// TestSwap keeps swapping the values of two fields of an entry while other goroutines look the
// entry up by them. They must always find it, and no other entry may get one of the values.
func TestSwap(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.wide(), t.Context()
		add(t, users, "u", "name", "x", "email", "y")
		swaps := 100
		if !s.has(cheapWrites) {
			swaps = 20
		}
		var done atomic.Bool
		errs := runConcurrently(4, func(i int) error {
			if i == 0 {
				defer done.Store(true)
				return swapFields(ctx, users, swaps)
			}
			for !done.Load() {
				if _, err := users.Find(ctx, hints.Any([]string{"x", "Y"}[i%2])); err != nil {
					return fmt.Errorf("finding the entry during a swap: %w", err)
				}
				_, err := users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("nick", "X")})
				if !errors.Is(err, userdb.ErrDuplicate) {
					return fmt.Errorf("creating another entry with the value: %w", err)
				}
			}
			return nil
		})
		must(t, errors.Join(errs...))
	})
}

func swapFields(ctx context.Context, users *userdb.Type, times int) error {
	for range times {
		if _, err := users.Update(ctx, hints.UID("u"), func(e *userdb.Entry) error {
			name, email := e.Text("name"), e.Text("email")
			e.Put("name", schema.Text(email))
			e.Put("email", schema.Text(name))
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// TestExchange lets two entries try to take each other's value. Each change must be refused without
// leaving anything behind.
func TestExchange(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.wide(), t.Context()
		add(t, users, "a", "name", "x", "email", "ex")
		add(t, users, "b", "name", "y", "email", "ey")
		put := func(uid, field, value string) error {
			return errOf(users.Update(ctx, hints.UID(uid), putText(field, value)))
		}
		s.wantUnchanged("a refused exchange", func() {
			for _, err := range runConcurrently(16, func(i int) error {
				if i%2 == 0 {
					return put("a", "name", "Y")
				}
				return put("b", "nick", "X")
			}) {
				wantErr(t, "exchange", err, userdb.ErrDuplicate)
			}
		})
		must(t, put("a", "name", "z"))
		must(t, put("b", "name", "x"))
		must(t, put("a", "name", "y"))
	})
}

// TestStorm creates, changes and deletes entries with very few values from many goroutines. The
// results of all calls must add up to the entries that exist at the end.
func TestStorm(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.wide(), t.Context()
		rounds := 40
		if !s.has(cheapWrites) {
			rounds = 8
		}
		var entries atomic.Int64
		errs := runConcurrently(16, func(i int) error {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for range rounds {
				n, err := callRandomMethod(ctx, users, r)
				entries.Add(n)
				if err != nil {
					return err
				}
			}
			return nil
		})
		must(t, errors.Join(errs...))
		if n, err := users.Count(ctx, userdb.Query{}); err != nil || n.Entries != entries.Load() {
			t.Errorf("Count: got %v, %v; want %d entries", n, err, entries.Load())
		}
	})
}

// callRandomMethod calls one random method and returns by how much the number of entries grew: 1, 0
// or -1.
func callRandomMethod(ctx context.Context, users *userdb.Type, r *rand.Rand) (int64, error) {
	uid := fmt.Sprint("u", r.IntN(4))
	value := func() schema.Value { return schema.Text([]string{"x", "X", "y", "z"}[r.IntN(4)]) }
	field := func() string { return secondaries[r.IntN(3)] }
	var err error
	var more int64
	switch r.IntN(5) {
	case 0, 1:
		n := userdb.NewEntry{UID: uid, Facets: schema.Facets{field(): value()}, Tags: []string{"a", uid}}
		n.Facets["job"] = value()
		if _, err = users.Create(ctx, n); err == nil {
			more = 1
		}
	case 2:
		if err = users.Delete(ctx, hints.Any(value().Text())); err == nil {
			more = -1
		}
	case 3:
		_, err = users.Update(ctx, hints.UID(uid), func(e *userdb.Entry) error {
			e.Drop(field())
			e.Put(field(), value())
			e.Put("job", value())
			return nil
		})
	case 4:
		if _, err = users.Tags(hints.UID(uid)).Add(ctx, "a", "b"); err == nil {
			_, err = users.Tags(hints.UID(uid)).Remove(ctx, "a")
		}
	}
	allowed := []error{nil, userdb.ErrDuplicate, userdb.ErrNotFound, userdb.ErrConflict}
	if !slices.ContainsFunc(allowed, func(kind error) bool { return errors.Is(err, kind) }) {
		return more, err
	}
	return more, nil
}

// TestClusterContention lets many callers compete for one free value on a cluster. Exactly one must
// get it; the others must get ErrDuplicate. With several runs, as in 'make soak', the median number
// of rounds until the first success is limited; in a single run it depends on how the machine
// schedules the callers. The tests of internal/store/cluster, which control time, cover how callers
// back off.
func TestClusterContention(t *testing.T) {
	runs := envInt("USERDB_CONTENTIONS", 1)
	s := clusterSite(t)
	t.Cleanup(s.check)
	users := s.wide()
	add(t, users, "first", "name", "first") // stores the schema
	for _, tt := range []struct {
		callers int
		fields  []string
	}{
		{64, secondaries[:1]},
		{256, secondaries[:1]},
		{64, secondaries},
		{256, secondaries},
	} {
		t.Run(fmt.Sprintf("%d callers, %d fields", tt.callers, len(tt.fields)), func(t *testing.T) {
			var rounds []int
			for run := range runs {
				value := fmt.Sprintf("v%d-%d-%d", tt.callers, len(tt.fields), run)
				rounds = append(rounds, contend(t, s, users, tt.callers, value, tt.fields))
			}
			slices.Sort(rounds)
			t.Logf("rounds of the first successful caller in each run: %v", rounds)
			if median := rounds[runs/2]; runs > 1 && median > 20 {
				t.Errorf("the first success took a median of %d rounds, want at most 20", median)
			}
		})
	}
}

type callerKey struct{}

// A caller counts the rounds of one call. Commands that overlap in time are one round.
type caller struct {
	sync.Mutex
	inFlight, rounds int
}

func (c *caller) countRound(send func() error) error {
	c.Lock()
	if c.inFlight == 0 {
		c.rounds++
	}
	c.inFlight++
	c.Unlock()
	err := send()
	c.Lock()
	c.inFlight--
	c.Unlock()
	return err
}

// contend returns the number of rounds that the first successful caller needed.
func contend(t *testing.T, s *site, users *userdb.Type, callers int, value string, fields []string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s.tap.set(func(ctx context.Context, _ []redis.Cmder, send func() error) error {
		if c, ok := ctx.Value(callerKey{}).(*caller); ok {
			return c.countRound(send)
		}
		return send()
	})
	defer s.tap.set(nil)
	var once sync.Once
	first := 0
	errs := runConcurrently(callers, func(i int) error {
		var c caller
		facets := schema.Texts(fields[i%len(fields)], value)
		_, err := users.Create(context.WithValue(ctx, callerKey{}, &c), userdb.NewEntry{Facets: facets})
		if err == nil {
			once.Do(func() { first = c.rounds })
		}
		return err
	})
	wantOneWinner(t, errs, userdb.ErrDuplicate)
	return first
}

// countRounds returns the number of rounds that do takes. Commands that overlap in time are one
// round. Each command takes a millisecond of simulated time.
func countRounds(tapped *tap, do func()) int {
	var mu sync.Mutex
	inFlight, rounds := 0, 0
	tapped.set(func(_ context.Context, _ []redis.Cmder, send func() error) error {
		mu.Lock()
		if inFlight == 0 {
			rounds++
		}
		inFlight++
		mu.Unlock()
		time.Sleep(time.Millisecond)
		err := send()
		mu.Lock()
		inFlight--
		mu.Unlock()
		return err
	})
	defer tapped.set(nil)
	do()
	return rounds
}

// TestClusterRounds counts the rounds of the most important methods without contention.
func TestClusterRounds(t *testing.T) { synctest.Test(t, testClusterRounds) }

func testClusterRounds(t *testing.T) {
	db := clusterOfOne(t, userdb.Options{Schema: plainUser()})
	tapped := &tap{}
	clientOf(db).AddHook(tapped)
	users, ctx := typeOf(t, db, "user"), t.Context()
	add(t, users, "first", "name", "first") // stores the schema and loads the scripts
	_, err := users.Update(ctx, hints.UID("first"), putText("name", "last"))
	must(t, err)
	for _, tt := range []struct {
		name string
		want int
		do   func() error
	}{
		{"create", 3, func() error {
			_, err := users.Create(ctx, userdb.NewEntry{UID: "u", Facets: schema.Texts("email", "u@example.com", "name", "you")})
			return err
		}},
		{"find by UID", 1, func() error { _, err := users.Find(ctx, hints.UID("u")); return err }},
		{"find by any identifier", 2, func() error { _, err := users.Find(ctx, hints.Any("you")); return err }},
		{"update of a facet", 2, func() error {
			_, err := users.Update(ctx, hints.UID("u"), putText("job", "cook"))
			return err
		}},
		{"update of an identifier", 6, func() error {
			_, err := users.Update(ctx, hints.UID("u"), putText("name", "me"))
			return err
		}},
	} {
		if got := countRounds(tapped, func() { must(t, tt.do()) }); got != tt.want {
			t.Errorf("%s: got %d rounds, want %d", tt.name, got, tt.want)
		}
	}
	wantRepairable(t, db, noExcuse)
	must(t, db.Close())
}
