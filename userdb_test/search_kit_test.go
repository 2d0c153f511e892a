package userdb_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// An explorer runs the calls of several actors in many orders of their commands. A preemption stops
// an actor before a command while others continue. The explorer tries all orders with at most the
// given number of preemptions. Every order is a new execution.
//
// A delay is a fault: the sender of a script gets an error, and the script arrives later, which may
// be before the sender sends it again, after that, or after the sender has ended. If the script
// arrives before anything else happens, only its reply was lost.
type explorer struct {
	start         func(*execution) // starts the actors of an execution
	verify        func() string    // returns the problem after an execution, or ""
	tamper        *tamper          // nil for none
	preemptions   int
	mayDelay      func(redis.Cmder) bool // which scripts may be delayed, one in each execution
	maxExecutions int
	executions    int
	// seen maps the digest of a state to the fewest preemptions with which it was reached. If it is
	// not nil, a state is continued again only if it is reached with fewer.
	seen map[uint64]int
}

// A tamper changes what an actor sends, or the reply that it gets.
type tamper struct {
	before, after func(who *actor, cmd redis.Cmder)
}

// An execution runs the commands of its actors in one order.
type execution struct {
	mu       sync.Mutex
	process  func(context.Context, redis.Cmder) error // sends what was delayed
	tamper   *tamper
	number   int
	actors   []*actor
	choices  []choice
	steps    int
	onStep   func(*actor)           // called after every step of an actor
	mayDelay func(redis.Cmder) bool // nil if no further script may be delayed
	ticks    int                    // how often time has passed
	progress progress
	known    int // the first choice in a state that an earlier execution has reached; -1: none

	violation string // the first rule that the execution broke, or ""
}

// report keeps the first violation of a rule.
func (x *execution) report(format string, args ...any) {
	if x.violation == "" {
		x.violation = fmt.Sprintf(format, args...)
	}
}

// A choice is a moment of an execution: the actors that could continue, and the one that did.
type choice struct {
	options     []int // actors, beginning with that of the last step, timePasses, and delays
	chosen      int   // index into options
	mayPreempt  bool  // the first option is the actor of the last step
	preemptions int   // before this choice
}

const (
	timePasses = -1  // the option in which no actor continues and time passes
	delayed    = 100 // added to an actor for the option in which its script is delayed
)

// preempts reports whether an option stops the actor of the last step.
func (c choice) preempts(option int) bool {
	return c.mayPreempt && c.options[option]%delayed != c.options[0]
}

// errLost is the error of a command that was delayed.
var errLost = &net.OpError{Op: "read", Err: errors.New("connection reset")}

// An actor makes calls, one after the other.
type actor struct {
	id        int
	execution *execution
	pending   []*pendingCommand
	ended     bool
	delayedBy *actor // for an actor that sends a delayed script: the script's first sender
}

// A pendingCommand waits for its turn.
type pendingCommand struct {
	cmd      redis.Cmder
	text     string
	delay    bool
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
		who, ok := ctx.Value(actorKey{}).(*actor)
		if !ok || handshake([]redis.Cmder{cmd}) {
			return next(ctx, cmd)
		}
		return who.send(cmd, func() error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook implements redis.Hook. The commands wait one by one, since a cluster sends
// them to different nodes.
func (turnHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		who, ok := ctx.Value(actorKey{}).(*actor)
		if !ok || handshake(cmds) {
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
	var err error = errLost
	if !p.delay {
		err = next()
	} else {
		x.addDelayed(who, cmd)
		cmd.SetErr(err)
	}
	if t := x.tamper; t != nil && t.after != nil && err == nil {
		t.after(who, cmd)
	}
	close(p.sent)
	<-p.observed
	return err
}

// addDelayed adds an actor that sends a delayed command.
func (x *execution) addDelayed(by *actor, cmd redis.Cmder) {
	args := slices.Clone(cmd.Args())
	for i, arg := range args {
		if p, ok := arg.(*string); ok {
			args[i] = *p
		}
	}
	late := redis.NewCmd(context.Background(), args...)
	x.mu.Lock()
	who := &actor{id: len(x.actors), execution: x, ended: true, delayedBy: by}
	x.actors = append(x.actors, who)
	x.mu.Unlock()
	go func() {
		_ = who.send(late, func() error {
			_ = x.process(context.Background(), late)
			return nil
		})
	}()
}

// firstPending returns the next command of an actor. If several are pending, it returns the same
// one in every execution.
func (who *actor) firstPending() *pendingCommand {
	return slices.MinFunc(who.pending, func(a, b *pendingCommand) int { return cmp.Compare(a.text, b.text) })
}

// options returns the actors that can continue, beginning with last. It appends timePasses if
// others sleep, and then an option for each script that may be delayed.
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
	for _, id := range ready {
		if id != timePasses && x.mayDelay != nil && !x.actors[id].ended && x.mayDelay(x.actors[id].firstPending().cmd) {
			ready = append(ready, delayed+id)
		}
	}
	return ready
}

// step lets an actor send one command, or lets time pass for those that sleep.
func (x *execution) step(id int) {
	if id == timePasses {
		x.ticks++
		time.Sleep(time.Second)
	} else {
		who := x.actors[id%delayed]
		x.mu.Lock()
		next := who.firstPending()
		if next.delay = id >= delayed; next.delay {
			x.mayDelay = nil
		}
		x.progress.add(who.id, next, x.ticks)
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
func (x *execution) run(prefix []int, seen map[uint64]int) {
	synctest.Wait()
	last, used := 0, 0
	for options := x.options(last); len(options) > 0; options = x.options(last) {
		c := choice{options: options, mayPreempt: options[0] == last, preemptions: used}
		if at := len(x.choices); at < len(prefix) {
			c.chosen = min(prefix[at], len(options)-1)
		} else if seen != nil && x.known < 0 {
			sum := x.progress.sum(last, x.ticks)
			if before, ok := seen[sum]; ok && before <= used {
				x.known = at
			} else {
				seen[sum] = used
			}
		}
		x.choices = append(x.choices, c)
		if c.preempts(c.chosen) {
			used++
		}
		if next := options[c.chosen]; next != timePasses {
			last = next % delayed
		}
		x.step(options[c.chosen])
	}
}

// nextPrefix returns the choices with which the next execution begins, or nil after the last one.
func (x *execution) nextPrefix(maxPreemptions int) []int {
	at := len(x.choices) - 1
	if x.known >= 0 {
		at = x.known - 1
	}
	for ; at >= 0; at-- {
		c := x.choices[at]
		for option := c.chosen + 1; option < len(c.options); option++ {
			if c.preempts(option) && c.preemptions >= maxPreemptions {
				continue
			}
			prefix := make([]int, at+1)
			for i := range at {
				prefix[i] = x.choices[i].chosen
			}
			prefix[at] = option
			return prefix
		}
	}
	return nil
}

// explore returns a violation, or "" after it has run all orders, or maxExecutions of them.
func (e *explorer) explore() string {
	for prefix := []int{}; prefix != nil && e.executions < e.maxExecutions; {
		x := &execution{number: e.executions, tamper: e.tamper, mayDelay: e.mayDelay, known: -1, progress: newProgress()}
		e.start(x)
		x.run(prefix, e.seen)
		e.executions++
		if x.known < 0 {
			if violation := e.verify(); violation != "" {
				return violation + " in the order " + x.String()
			}
		}
		prefix = x.nextPrefix(e.preemptions)
	}
	return ""
}

// String returns the actor of each step as a digit, with an exclamation mark after it if its script
// was delayed, and a dot for each step in which time passed.
func (x *execution) String() string {
	var text []byte
	for _, c := range x.choices {
		switch id := c.options[c.chosen]; {
		case id == timePasses:
			text = append(text, '.')
		case id >= delayed:
			text = append(text, byte('0'+id-delayed), '!')
		default:
			text = append(text, byte('0'+id))
		}
	}
	return string(text)
}

// progress identifies the state after some steps. It holds a digest of the steps of each actor: for
// each step, the last writes to its keys, how often time had passed, and whether it was delayed.
// The commands and replies of the actor follow from these. Two orders that differ only in steps
// that do not affect one another lead to the same digests.
type progress struct {
	actors map[int]uint64    // digest of the steps of each actor
	writes map[string]uint64 // digest of the last write to each key
}

func newProgress() progress { return progress{actors: map[int]uint64{}, writes: map[string]uint64{}} }

// add adds the next step of an actor.
func (o progress) add(who int, p *pendingCommand, ticks int) {
	keys, writes := touches(p)
	sum := combine(o.actors[who], uint64(ticks))
	for _, key := range keys {
		sum = combine(sum, o.writes[key])
	}
	if p.delay {
		sum++
	}
	o.actors[who] = sum
	for _, key := range keys {
		if writes {
			o.writes[key] = combine(sum, uint64(who))
		}
	}
}

// sum returns the digest of a state.
func (o progress) sum(last, ticks int) uint64 {
	sum := combine(uint64(last), uint64(ticks))
	for _, who := range slices.Sorted(maps.Keys(o.actors)) {
		sum = combine(combine(sum, uint64(who)), o.actors[who])
	}
	return sum
}

// touches returns the keys that a step reads or writes, and reports whether it may write.
func touches(p *pendingCommand) (keys []string, writes bool) {
	words := strings.SplitN(p.text, " ", 40)
	switch {
	case p.delay, len(words) < 2:
		return nil, false // it arrives later
	case strings.HasPrefix(words[0], "eval"):
		words = strings.Split(p.text, " ")
		if words[0] == "eval" { // its source has spaces
			args := p.cmd.Args()
			n, _ := args[2].(int)
			for _, arg := range args[3 : 3+n] {
				keys = append(keys, fmt.Sprint(arg))
				if p, ok := arg.(*string); ok {
					keys[len(keys)-1] = *p
				}
			}
			return keys, args[1] != "return redis.call('TIME')"
		}
		n, _ := strconv.Atoi(words[2])
		return words[3 : 3+n], words[3+n] != "read"
	case slices.Contains([]string{"hgetall", "hget", "hmget", "get", "exists", "smembers", "time"}, words[0]):
		return words[1:2], false
	}
	return words[1:], true
}

// combine returns a hash of h and x.
func combine(h, x uint64) uint64 {
	h = (h*0x9e3779b97f4a7c15 + x + 1) * 0xbf58476d1ce4e5b9 // + 1, because digests begin with 0
	h = (h ^ h>>29) * 0x94d049bb133111eb
	return h ^ h>>32
}
