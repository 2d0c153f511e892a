package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A network carries every command in the same time, and records the rounds of each caller: commands
// sent at the same time are one round. It uses the clock of the test's bubble (see package
// synctest), so the speed of the machine does not matter.
type network struct {
	mu    sync.Mutex
	world *world
}

const roundTrip = time.Millisecond

// threeFields is a type with three secondary fields.
var threeFields = func() *change.Type {
	field := schema.Field{Role: schema.RoleSecondary}
	c, err := change.Compile(schema.Schema{Types: map[string]schema.Type{"user": {
		Primary: "uid", Fold: schema.FoldCasefold, Fields: map[string]schema.Field{"email": field, "name": field, "nick": field},
	}}}, recordkey.Namespace{})
	if err != nil {
		panic(err)
	}
	t, err := c.Type("user")
	if err != nil {
		panic(err)
	}
	return t
}()

type roundsKey struct{}

// rounds records the times at which a caller sent commands.
type rounds struct {
	mu sync.Mutex
	at map[time.Time]bool
}

func (n *network) DialHook(next redis.DialHook) redis.DialHook { return next }

func (n *network) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if r, is := ctx.Value(roundsKey{}).(*rounds); is {
			r.mu.Lock()
			r.at[time.Now()] = true
			r.mu.Unlock()
		}
		time.Sleep(roundTrip / 2)
		n.mu.Lock()
		err := setAnswer(cmd, n.world.do(argsOf(cmd)))
		n.mu.Unlock()
		time.Sleep(roundTrip / 2)
		return err
	}
}

func (n *network) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	one := n.ProcessHook(nil)
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return parallel(len(cmds), func(i int) error { return one(ctx, cmds[i]) })
	}
}

// TestContention makes many callers create entries with the same free values at the same time, in
// the same fields or in different ones. One caller must succeed, the others must be refused as
// duplicates, and none may need more than 16 rounds.
func TestContention(t *testing.T) {
	for _, tt := range []struct {
		name   string
		facets []string // those of the first caller, of the second, and so on, repeated
	}{
		{"one value, one field", []string{"email=a"}},
		{"one value, three fields", []string{"email=a", "name=a", "nick=a"}},
		{"two values crosswise", []string{"email=a name=b", "email=b name=a"}},
		{"three values, assigned to three fields in all ways", []string{
			"email=a name=b nick=c", "email=a name=c nick=b", "email=b name=a nick=c",
			"email=b name=c nick=a", "email=c name=a nick=b", "email=c name=b nick=a",
		}},
	} {
		for _, callers := range []int{8, 64} {
			for run := range 5 {
				t.Run(fmt.Sprintf("%s/%d callers/run %d", tt.name, callers, run), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { contend(t, callers, tt.facets) })
				})
			}
		}
	}
}

// newEngine returns an engine that sends its commands over the network, each in a round trip of its
// own, and a function that closes its client.
func (n *network) newEngine(g store.Guard) (e *Engine, end func() error) {
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	client.AddHook(n)
	e = New(client, Options{})
	e.client = redisx.NewClient(client, e.client.Retry, true)
	e.schemaChecks.Store(g.Key, schemaCheck{g.Fingerprint, time.Now().Add(time.Hour), math.MaxInt64})
	return e, client.Close
}

// contend lets callers create entries at the same time. They get the given facets in turn.
func contend(t *testing.T, callers int, facets []string) {
	t.Helper()
	w := newWorld(unchanged)
	w.reset(map[string]*cell{})
	e, end := (&network{world: w}).newEngine(threeFields.Guard)
	defer end()
	var mu sync.Mutex
	succeeded, winnerRounds, maxRounds := 0, 0, 0
	_ = parallel(callers, func(i int) error {
		c, err := threeFields.Create(change.Draft{UID: fmt.Sprint("u", i), Facets: pairs(facets[i%len(facets)])})
		if err != nil {
			t.Error(err)
			return nil
		}
		r := &rounds{at: map[time.Time]bool{}}
		_, err = e.Apply(context.WithValue(context.Background(), roundsKey{}, r), c)
		mu.Lock()
		defer mu.Unlock()
		if maxRounds = max(maxRounds, len(r.at)); err == nil {
			succeeded, winnerRounds = succeeded+1, len(r.at)
		} else if !errors.Is(err, store.ErrDuplicate) {
			t.Error(err)
		}
		return nil
	})
	t.Logf("the winner took %d rounds; nobody took more than %d", winnerRounds, maxRounds)
	if succeeded != 1 || winnerRounds > 16 || maxRounds > 16 {
		t.Errorf("%d callers succeeded, the last one in %d rounds, and all ended within %d; want 1, and at most 16 rounds", succeeded, winnerRounds, maxRounds)
	}
}

// TestMovedValue moves a value from a field of one entry to another field of another entry while a
// reader looks for it under both. The reader reads the first entry before the move and the second
// one after it, so both seem to have the value. The reader must not report that as damage.
func TestMovedValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(newWorld(unchanged), nil)
		before, after := entries(someRev, "A email=x", "B email=b")(), entries(someRev, "A email=a", "B email=b name=x")()
		before["user/name:x/~prk"] = after["user/name:x/~prk"] // B's claim comes first
		s.reset(before)
		var found store.Found
		s.addActor(sequence(findAny([]string{"user/email:x/~prk", "user/name:x/~prk"}, &found)))
		synctest.Wait()
		defer s.close()
		a := s.actors[0]
		for len(a.waiting()) > 0 {
			r := a.waiting()[0]
			s.step(r, none)
			if r.args[0] == "hgetall" && r.args[1] == "user/uid:A" {
				s.world.cells = after
			}
		}
		if err := a.results[0]; err != nil || found.Err != nil || found.Record.Key.Value() != "B" {
			t.Errorf("got %v, %v, %v; want B", found.Record.Key, found.Err, err)
		}
	})
}

// findAny returns a verb that looks for an entry by any of several SRKs.
func findAny(srks []string, found *store.Found) verb {
	return verb{name: "find", do: func(ctx context.Context, a *actor) error {
		var l store.Lookup
		for _, text := range srks {
			srk, err := recordkey.Parse(text)
			if err != nil {
				return err
			}
			l.SRKs = append(l.SRKs, srk)
		}
		all, err := a.engine.Find(ctx, []store.Lookup{l})
		if err == nil {
			*found = all[0]
		}
		return err
	}}
}

// A slowNetwork carries claims more slowly than other commands, and drops the commands of a caller
// that has given up.
type slowNetwork struct{ network }

func (s *slowNetwork) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		takes := 10 * time.Millisecond
		if slices.Contains(cmd.Args(), any(claimScript.SHA)) {
			takes = time.Second
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(takes):
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return setAnswer(cmd, s.world.do(argsOf(cmd)))
	}
}

func (s *slowNetwork) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	one := s.ProcessHook(nil)
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return parallel(len(cmds), func(i int) error { return one(ctx, cmds[i]) })
	}
}

// TestLateClaims makes many callers give up while their claims are under way in shared round trips.
// All claims must be removed.
func TestLateClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(unchanged)
		w.reset(map[string]*cell{})
		client := newBubbleClient()
		n := &slowNetwork{network{world: w}}
		client.AddHook(n)
		defer client.Close()
		e := New(client, Options{})
		g := threeFields.Guard
		e.schemaChecks.Store(g.Key, schemaCheck{g.Fingerprint, time.Now().Add(time.Hour), math.MaxInt64})
		_ = parallel(4*redisx.BatchThreshold, func(i int) error {
			c, err := threeFields.Create(change.Draft{UID: fmt.Sprint("u", i), Facets: pairs(fmt.Sprintf("email=e%d name=n%d", i, i))})
			if err != nil {
				t.Error(err)
				return nil
			}
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			if _, err := e.Apply(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			return nil
		})
		time.Sleep(time.Minute)
		n.mu.Lock()
		defer n.mu.Unlock()
		for key := range w.cells {
			t.Errorf("%s is left, want no records", key)
		}
	})
}
