package check_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/store/cluster"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestCheckWhileWriting lets writers change everything about their entries, back and forth, while
// checks run. No check may report an intermediate state as damage.
func TestCheckWhileWriting(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.Clean(t)
		for n := range 4 {
			s.User(t, n+1)
		}
		stop := s.startWriters(t, 4)
		for range 10 {
			testdb.Same(t, "all entries", s.Check(t, check.Options{}), nil)
			testdb.Same(t, "one entry", s.Check(t, check.Options{Only: hints.UID("u1").Of("user")}), nil)
		}
		stop()
		testdb.Same(t, "at rest", s.Check(t, check.Options{}), nil)
	})
}

// startWriters starts n goroutines that change entries. The function stop ends them and waits for
// them.
func (s *site) startWriters(t *testing.T, n int) (stop func()) {
	ctx, cancel := context.WithCancel(s.Ctx)
	var writers sync.WaitGroup
	for n := range n {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := s.rewrite(ctx, n+1, i); err != nil && ctx.Err() == nil {
					t.Errorf("writer %d: %v", n, err)
					return
				}
			}
		})
	}
	return func() {
		cancel()
		writers.Wait()
	}
}

// rewrite switches entry n between two states, and creates and deletes another entry.
func (s *site) rewrite(ctx context.Context, n, i int) error {
	user, err := s.DB.Type("user")
	if err != nil {
		return err
	}
	h := hints.UID(fmt.Sprintf("u%d", n))
	_, err = user.Update(ctx, h, func(e *userdb.Entry) error {
		e.Put("name", schema.Text(fmt.Sprintf("Name %d %d", n, i%2)))
		e.Put("job", schema.Text([]string{"Cook", "Boss"}[i%2]))
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := user.Tags(h).Add(ctx, "to and fro"); err != nil {
		return err
	}
	if _, err := user.Tags(h).Remove(ctx, "to and fro"); err != nil {
		return err
	}
	temporary := userdb.NewEntry{UID: fmt.Sprintf("p%d", n), Tags: []string{"a"}, Facets: schema.Texts("name", fmt.Sprintf("passing %d", n), "email", fmt.Sprintf("p%d@x.org", n), "job", "Cook")}
	if _, err := user.Create(ctx, temporary); err != nil && !errors.Is(err, userdb.ErrDuplicate) {
		return err
	}
	return user.Delete(ctx, hints.UID(temporary.UID))
}

// A pacer lets the commands of writers through one by one, each time after the check has sent some
// commands. This simulates a network that is slow for either side, in the same way in every run.
type pacer struct {
	pass    chan struct{} // lets a command be sent
	done    chan struct{} // reports that the command was answered
	stopped chan struct{}
	mu      sync.Mutex
	pending int // commands of the check since a writer's last one
	every   int // how many commands of the check come before each step of writers
	perStep int // how many commands of writers pass in a step
	steps   int // how many commands of writers have passed
}

func newPacer() *pacer {
	return &pacer{pass: make(chan struct{}), done: make(chan struct{}), stopped: make(chan struct{}), every: 1, perStep: 1}
}

// step lets n commands of writers through.
func (p *pacer) step(n int) {
	for range n {
		select {
		case p.pass <- struct{}{}:
			<-p.done
			p.steps++
		case <-p.stopped:
			return
		}
	}
}

// tick counts a command of the check.
func (p *pacer) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending++; p.pending >= p.every {
		p.pending = 0
		p.step(p.perStep)
	}
}

// wait blocks a writer's command until its turn.
func (p *pacer) wait() (done func()) {
	select {
	case <-p.pass:
		return func() { p.done <- struct{}{} }
	case <-p.stopped:
		return func() {}
	}
}

// A hook calls around before every command or pipeline. Afterwards it calls the function that
// around returned.
type hook struct{ around func() func() }

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer h.around()()
		return next(ctx, cmd)
	}
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		defer h.around()()
		return next(ctx, cmds)
	}
}

// A settlingEngine lets writers continue while a check waits, and counts how often checks wait.
type settlingEngine struct {
	*cluster.Engine
	pace  *pacer
	waits atomic.Int64 // number of checks that waited
}

func (e *settlingEngine) Settle(ctx context.Context, n int) (bool, error) {
	if n == 0 {
		e.waits.Add(1)
	}
	e.pace.mu.Lock()
	e.pace.step(31 + 17*n*n) // not a multiple of the commands in one rewrite
	e.pace.mu.Unlock()
	return e.Engine.Settle(ctx, n)
}

// TestHealthyClusterBesideWriters interleaves the commands of checks with those of writers of a
// cluster. In some runs the checks are faster, in others the writers. A check must report nothing,
// even in the middle of a change, except the damage that the test does at the end.
func TestHealthyClusterBesideWriters(t *testing.T) {
	server := redistest.Shared(t)
	writers := newSite(testdb.Open(t, server.Client(), recordkey.Namespace{}, testdb.DefaultSchema()))
	checks := newSite(testdb.Open(t, server.Client(), recordkey.Namespace{}, testdb.DefaultSchema()))
	pace := newPacer()
	e := &settlingEngine{Engine: testdb.FakeClockEngine(checks.Raw), pace: pace}
	checks.Edit(t, func(c *view.Config) { c.Engine = e })
	writers.Edit(t, func(c *view.Config) { c.Engine = testdb.FakeClockEngine(writers.Raw) })
	for n := range 2 {
		writers.User(t, n+1)
	}
	writers.Raw.AddHook(hook{pace.wait})
	checks.Raw.AddHook(hook{func() func() { pace.tick(); return func() {} }})
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		defer close(pace.stopped)
		for i := 0; ctx.Err() == nil; i++ {
			if err := writers.rewrite(ctx, i/2%2+1, i); err != nil && ctx.Err() == nil {
				t.Errorf("writing: %v", err)
				return
			}
		}
	})
	runs := 0
	for _, speed := range []struct{ every, perStep int }{{1, 1}, {2, 1}, {5, 1}, {9, 1}, {14, 1}, {30, 1}, {1, 3}, {1, 8}} {
		pace.mu.Lock()
		pace.every, pace.perStep = speed.every, speed.perStep
		pace.mu.Unlock()
		for i := range 12 {
			runs++
			testdb.Same(t, fmt.Sprintf("%+v", speed), checks.Check(t, check.Options{Repair: i%4 == 3}), nil)
		}
	}
	t.Logf("%d checks during %d commands of writers; %d of the checks waited for a writer", runs, pace.steps, e.waits.Load())
	if e.waits.Load() < 5 {
		t.Errorf("got %d checks that waited for a writer, of %d; want at least 5", e.waits.Load(), runs)
	}
	if err := server.Client().Set(t.Context(), "user/name:nobody/~prk", "user/uid:nobody", 0).Err(); err != nil {
		t.Fatal(err)
	}
	testdb.Same(t, "with damage", checks.Check(t, check.Options{}), []string{"srk_orphan user/name:nobody/~prk"})
	cancel()
	for ended := false; !ended; {
		select {
		case <-pace.stopped:
			ended = true
		default:
			pace.step(1)
		}
	}
	writing.Wait()
}
