package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestManyCallers makes many calls at the same time while connections break. The commands of
// several calls may be sent in one batch. Each call must return what really happened, and no change
// may be made twice.
func TestManyCallers(t *testing.T) {
	s, proxy := startProxied(t)
	users, ctx := s.wide(), t.Context()
	add(t, users, "u", "name", "n")
	var stop atomic.Bool
	cut := make(chan bool)
	go func() {
		defer close(cut)
		for i := 0; !stop.Load(); i++ {
			proxy.CutReplies(1, []string{"evalsha", "hgetall", ""}[i%3])
			for proxy.Cuts() < i && !stop.Load() {
				_ = s.raw.Ping(ctx).Err()
			}
		}
	}()
	// On a busy machine, few replies are cut in the first rounds, so the callers go on.
	const callers, minRounds, maxRounds, wantCuts = 32, 16, 160, 5
	results := make([]appendResults, callers*maxRounds)
	errs := runConcurrently(callers, func(i int) error {
		for j := 0; j < minRounds || j < maxRounds && proxy.Cuts() < wantCuts; j++ {
			if err := callMethods(ctx, users, i*maxRounds+j, &results[i*maxRounds+j]); err != nil {
				return err
			}
		}
		return nil
	})
	stop.Store(true)
	<-cut
	proxy.Pass()
	must(t, errors.Join(errs...))
	if proxy.Cuts() < wantCuts {
		t.Errorf("%d replies were lost, want at least %d", proxy.Cuts(), wantCuts)
	}
	notes, err := users.List(hints.UID("u"), "notes").Items(ctx, 0, -1)
	must(t, err)
	found := map[string]int{}
	for _, note := range notes {
		found[note]++
	}
	for i, r := range results {
		times := found[itoa(i)]
		if times > 1 || times < r.done || times > r.done+r.unknown {
			t.Errorf("note %d: found %d times; appends: %d done, %d with unknown outcome", i, times, r.done, r.unknown)
		}
	}
}

// appendResults counts the outcomes of the appends of one note.
type appendResults struct{ done, unknown int }

// callMethods creates an entry, updates it, finds it, and appends a note to the entry u. It counts
// the outcome of the append in results.
func callMethods(ctx context.Context, users *userdb.Type, i int, results *appendResults) error {
	name := "n" + itoa(i)
	_, err := users.Create(ctx, userdb.NewEntry{UID: name, Facets: schema.Texts("name", name)})
	if err != nil && !errors.Is(err, userdb.ErrOutcomeUnknown) {
		return fmt.Errorf("create: %w", err)
	}
	if err == nil {
		_, err = users.Update(ctx, hints.UID(name), putText("email", "e"+name))
		if err != nil && !isUnavailable(err) {
			return fmt.Errorf("update: %w", err)
		}
		if e, err := users.Find(ctx, hints.Any(name)); err == nil && e.UID() != name || err != nil && !isUnavailable(err) {
			return fmt.Errorf("find: got %v, %w", e, err)
		}
	}
	_, err = users.List(hints.UID("u"), "notes").Append(ctx, itoa(i))
	switch {
	case err == nil:
		results.done++
	case errors.Is(err, userdb.ErrOutcomeUnknown):
		results.unknown++
	case !isUnavailable(err):
		return fmt.Errorf("append: %w", err)
	}
	return nil
}

// TestManyCallersCanceled cancels many calls whose commands are waiting. Each must succeed, or
// return the error of its context or ErrOutcomeUnknown, and none may hang.
func TestManyCallersCanceled(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.needs(interleaves)
		s.needs(oneScript)
		users := lossyStore(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		var waiting atomic.Int64
		release := make(chan bool)
		s.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			waiting.Add(int64(len(cmds)))
			<-release
			return send()
		})
		go func() {
			for waiting.Load() < 8 { // these are sent one by one; later commands wait for them
				runtime.Gosched()
			}
			cancel()
			close(release)
		}()
		errs := runConcurrently(contenders, func(i int) error {
			if i%2 == 0 {
				_, err := users.Create(ctx, userdb.NewEntry{UID: "v" + itoa(i), Facets: schema.Texts("name", "v"+itoa(i))})
				return err
			}
			_, err := users.Find(ctx, hints.Any("n"))
			return err
		})
		s.tap.set(nil)
		for i, err := range errs {
			if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, userdb.ErrOutcomeUnknown) {
				t.Errorf("call %d: got %v, want the context's error or ErrOutcomeUnknown", i, err)
			}
			if i%2 == 1 {
				continue
			}
			exists, findErr := users.Exists(t.Context(), hints.UID("v"+itoa(i)))
			must(t, findErr)
			if err == nil && !exists || err != nil && exists && !errors.Is(err, userdb.ErrOutcomeUnknown) {
				t.Errorf("create %d: got %v, but the entry exists: %v", i, err, exists)
			}
		}
	})
}

// TestManyReaders finds entries from many goroutines. Each call must return the entry it asked for.
func TestManyReaders(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := s.wide()
		for i := range 40 {
			add(t, users, "u"+itoa(i), "name", "n"+itoa(i), "email", "e"+itoa(i))
		}
		errs := runConcurrently(contenders, func(i int) error {
			for j := range 8 {
				n := itoa((i*7 + j) % 40)
				for _, h := range []hints.Hint{hints.UID("u" + n), hints.Any("n" + n), hints.Field("email", "e"+n)} {
					e, err := users.Find(t.Context(), h)
					if err != nil || e.UID() != "u"+n {
						return fmt.Errorf("finding %v: got %v, %w; want u%s", h, e, err, n)
					}
				}
			}
			return nil
		})
		must(t, errors.Join(errs...))
	})
}

// TestManyReadersOnBrokenConnections checks that reads are repeated if their reply is lost or their
// connection breaks.
func TestManyReadersOnBrokenConnections(t *testing.T) {
	s, proxy := startProxied(t)
	users := lossyStore(t, s)
	reads := map[string]func() error{
		"find by UID": func() error { _, err := users.Find(t.Context(), hints.UID("u")); return err },
		"find by *":   func() error { _, err := users.Find(t.Context(), hints.Any("n")); return err },
		"find all": func() error {
			for _, err := range users.FindAll(t.Context(), hints.Any("n"), hints.UID("u")) {
				return err
			}
			return io.EOF
		},
		"tags":  func() error { _, err := users.Tags(hints.UID("u")).Members(t.Context()); return err },
		"list":  func() error { return listAll(t, users, userdb.Query{Tags: []string{"a"}}) },
		"count": func() error { _, err := users.Count(t.Context(), userdb.Query{}); return err },
	}
	for name, read := range reads {
		proxy.CutReplies(1, "")
		before := proxy.Cuts()
		if err := read(); err != nil || proxy.Cuts() != before+1 {
			t.Errorf("%s with its reply lost: got error %v after %d cuts, want none after 1 cut", name, err, proxy.Cuts()-before)
		}
		proxy.CutAll()
		if err := read(); err != nil {
			t.Errorf("%s on a broken connection: %v", name, err)
		}
	}
	errs := runConcurrently(contenders, func(i int) error {
		for j := range 20 {
			if i == 0 {
				proxy.CutAll()
			}
			if e, err := users.Find(t.Context(), hints.Any("n")); err != nil || e.UID() != "u" {
				return fmt.Errorf("find %d: got %v, %w; want u", j, e, err)
			}
		}
		return nil
	})
	for _, err := range errs {
		if err != nil && !errors.Is(err, userdb.ErrUnavailable) {
			t.Error(err)
		}
	}
}

// TestFindWithoutSecondaryFields checks that no value finds an entry in a type without secondary
// fields.
func TestFindWithoutSecondaryFields(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		bare := schema.Schema{Types: map[string]schema.Type{"user": {Primary: "uid"}}}
		typ := typeOf(t, s.open(userdb.Options{Schema: bare, Namespace: parseNamespace(t, "nowhere")}), "user")
		e := add(t, typ, "1")
		var found []string
		for got, err := range typ.FindAll(t.Context(), hints.Any("a"), hints.UID("1"), hints.Any("b")) {
			if err != nil {
				wantErr(t, "find all", err, userdb.ErrNotFound)
				found = append(found, "")
				continue
			}
			found = append(found, got.UID())
		}
		if want := []string{"", e.UID(), ""}; !slices.Equal(found, want) {
			t.Errorf("found %q, want %q", found, want)
		}
		_, err := typ.Find(t.Context(), hints.Any("a"))
		wantErr(t, "finding", err, userdb.ErrNotFound)
		_, err = typ.FindExhaustive(t.Context(), hints.Any("a"))
		wantErr(t, "finding exhaustively", err, userdb.ErrNotFound)
		wantErr(t, "deleting", typ.Delete(t.Context(), hints.Any("a")), userdb.ErrNotFound)
		_, err = typ.Tags(hints.Any("a")).Members(t.Context())
		wantErr(t, "reading tags", err, userdb.ErrNotFound)
		_, err = typ.Login(t.Context(), "a", "a password", userdb.Attempt{})
		wantErr(t, "logging in", err, userdb.ErrLogin)
	})
}
