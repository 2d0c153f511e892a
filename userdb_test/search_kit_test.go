package userdb_test

import (
	"cmp"
	"context"
	"net"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// An explorer runs the calls of several actors in many orders of their commands. A preemption stops
// an actor before a command while others continue. The explorer tries all orders with at most the
// given number of preemptions. Every order is a new execution, on an entry of its own.
type explorer struct {
	start         func(*execution) // starts the actors of an execution
	verify        func() string    // returns what is wrong after an execution, or ""
	tamper        *tamper          // nil for none
	preemptions   int
	maxExecutions int
	executions    int
}

// A tamper changes what an actor sends, or the reply that it gets.
type tamper struct {
	before, after func(who *actor, cmd redis.Cmder)
}

// An execution runs the commands of its actors in one order.
type execution struct {
	mu      sync.Mutex
	tamper  *tamper
	number  int
	actors  []*actor
	choices []choice
	steps   int
	onStep  func(*actor) // called after every step of an actor
}

// A choice is a moment of an execution: who could continue, and who did.
type choice struct {
	options     []int // actors, beginning with that of the last step, and timePasses
	chosen      int   // index into options
	mayPreempt  bool  // the first option is the actor of the last step
	preemptions int   // before this choice
}

// timePasses is the option in which no actor continues and time passes.
const timePasses = -1

// An actor makes calls, one after the other.
type actor struct {
	id        int
	execution *execution
	pending   []*pendingCommand
	ended     bool
}

// A pendingCommand waits for its turn.
type pendingCommand struct {
	cmd      redis.Cmder
	text     string
	send     chan struct{}
	sent     chan struct{}
	observed chan struct{} // closed after onStep has seen the effect
}

type actorKey struct{}

// addActor starts an actor that calls do.
func (x *execution) addActor(do func(ctx context.Context, who *actor)) {
	who := &actor{id: len(x.actors), execution: x}
	x.actors = append(x.actors, who)
	go func() {
		do(context.WithValue(context.Background(), actorKey{}, who), who)
		x.mu.Lock()
		defer x.mu.Unlock()
		who.ended = true
	}()
}

// A turnHook makes the commands of actors wait for their turn. It is the last hook of a client.
type turnHook struct{}

// DialHook implements redis.Hook.
func (turnHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (turnHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		who, is := ctx.Value(actorKey{}).(*actor)
		if !is || handshake([]redis.Cmder{cmd}) {
			return next(ctx, cmd)
		}
		return who.send(cmd, func() error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook implements redis.Hook. The commands wait one by one, since a cluster sends
// them to different nodes.
func (turnHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		who, is := ctx.Value(actorKey{}).(*actor)
		if !is || handshake(cmds) {
			return next(ctx, cmds)
		}
		errs := make([]error, len(cmds))
		var wg sync.WaitGroup
		for i, cmd := range cmds {
			wg.Go(func() {
				errs[i] = who.send(cmd, func() error { return next(ctx, []redis.Cmder{cmd}) })
			})
		}
		wg.Wait()
		return cmp.Or(errs...)
	}
}

// send waits for the command's turn and sends it.
func (who *actor) send(cmd redis.Cmder, next func() error) error {
	p := &pendingCommand{
		cmd: cmd, text: wordsOf(cmd),
		send: make(chan struct{}), sent: make(chan struct{}), observed: make(chan struct{}),
	}
	x := who.execution
	x.mu.Lock()
	who.pending = append(who.pending, p)
	x.mu.Unlock()
	<-p.send
	if t := x.tamper; t != nil && t.before != nil {
		t.before(who, cmd)
	}
	err := next()
	if t := x.tamper; t != nil && t.after != nil && err == nil {
		t.after(who, cmd)
	}
	close(p.sent)
	<-p.observed
	return err
}

// firstPending returns the next command of an actor. If several are pending, it returns the same
// one in every execution.
func (who *actor) firstPending() *pendingCommand {
	return slices.MinFunc(who.pending, func(a, b *pendingCommand) int { return cmp.Compare(a.text, b.text) })
}

// options returns the actors that can continue, beginning with last. It appends timePasses if
// others sleep.
func (x *execution) options(last int) []int {
	x.mu.Lock()
	defer x.mu.Unlock()
	var ready []int
	asleep := false
	for _, who := range x.actors {
		switch {
		case len(who.pending) > 0:
			ready = append(ready, who.id)
		case !who.ended:
			asleep = true
		}
	}
	// last compares as 0, and all others as 1.
	slices.SortStableFunc(ready, func(a, b int) int { return cmp.Compare(min(1, (a-last)*(a-last)), min(1, (b-last)*(b-last))) })
	if asleep {
		ready = append(ready, timePasses)
	}
	return ready
}

// step lets an actor send one command, or lets time pass for those that sleep.
func (x *execution) step(id int) {
	if id == timePasses {
		time.Sleep(time.Second)
	} else {
		who := x.actors[id]
		x.mu.Lock()
		next := who.firstPending()
		who.pending = slices.DeleteFunc(who.pending, func(o *pendingCommand) bool { return o == next })
		x.steps++
		x.mu.Unlock()
		close(next.send)
		<-next.sent
		x.onStep(who)
		close(next.observed)
	}
	synctest.Wait()
}

// run makes the choices of prefix, and then continues without a preemption to the end.
func (x *execution) run(prefix []int) {
	synctest.Wait()
	last, used := 0, 0
	for options := x.options(last); len(options) > 0; options = x.options(last) {
		c := choice{options: options, mayPreempt: options[0] == last, preemptions: used}
		if at := len(x.choices); at < len(prefix) {
			c.chosen = min(prefix[at], len(options)-1)
		}
		x.choices = append(x.choices, c)
		if c.mayPreempt && c.chosen > 0 {
			used++
		}
		if next := options[c.chosen]; next != timePasses {
			last = next
		}
		x.step(options[c.chosen])
	}
}

// nextPrefix returns the choices with which the next execution begins, or nil after the last one.
func (x *execution) nextPrefix(maxPreemptions int) []int {
	for at := len(x.choices) - 1; at >= 0; at-- {
		c := x.choices[at]
		if c.chosen+1 >= len(c.options) || c.mayPreempt && c.chosen == 0 && c.preemptions >= maxPreemptions {
			continue
		}
		prefix := make([]int, at+1)
		for i := range at {
			prefix[i] = x.choices[i].chosen
		}
		prefix[at] = c.chosen + 1
		return prefix
	}
	return nil
}

// explore returns a violation, or "" after it has run all orders.
func (e *explorer) explore() string {
	for prefix := []int{}; prefix != nil && e.executions < e.maxExecutions; {
		x := &execution{number: e.executions, tamper: e.tamper}
		e.start(x)
		x.run(prefix)
		e.executions++
		if violation := e.verify(); violation != "" {
			return violation + " in the order " + x.String()
		}
		prefix = x.nextPrefix(e.preemptions)
	}
	return ""
}

// String returns the actor of each step as a digit, and a dot for each step in which time passed.
func (x *execution) String() string {
	text := make([]byte, len(x.choices))
	for i, c := range x.choices {
		text[i] = '.'
		if id := c.options[c.chosen]; id != timePasses {
			text[i] = byte('0' + id)
		}
	}
	return string(text)
}
