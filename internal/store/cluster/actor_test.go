package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// A simulation runs the commands of several actors on one store, one at a time, in an order that a
// test chooses.
type simulation struct {
	direct     sync.Mutex // serializes commands that no actor sends
	world      *world
	tamper     tamper
	bareClaims bool  // claims lose their rev after the commit; set by a mutant
	careless   bool  // nothing is finished after a caller gave up; set by a mutant
	claimsStay bool  // garbage ignores claims and staged records, because an outcome is unknown
	until      int64 // when the actors' check of the schema expires, in milliseconds
	batch      int   // Options.MemberBatch
	patience   int   // how often an actor may pause before its time is over
	client     *redis.Client
	actors     []*actor
	commits    map[string]int // number of commits, by actor and verb
	late       [][]string     // writes that were carried out and may arrive again
}

// A tamper changes what an actor sends. If changed is nil, the command is not carried out, and is
// answered by reply.
type tamper func(a *actor, args []string) (changed []string, reply any)

// An actor runs operations, which are called verbs, one after the other on an engine of its own.
type actor struct {
	noting   bool // its commits add history lines
	id       int
	name     string
	sim      *simulation
	engine   *Engine
	mu       sync.Mutex
	pending  []*request
	ended    bool
	dead     bool
	first    thread             // its first goroutine
	threads  map[string]*thread // its other goroutines, by number
	pauses   int
	verb     string // the verb that is running
	revs     int    // number of attempts that have begun; each has a rev of its own
	commitOK bool   // for mutants: a commit of the running attempt returned ok
	results  []error
}

// A request is a command, a pause or an event that waits for its turn.
type request struct {
	actor *actor
	cmd   redis.Cmder // nil for a pause or an event
	args  []string
	text  string
	event func(*world) // runs instead of a command
	by    *thread
	after uint64 // by.digest when the request was made
	grant chan error
}

var (
	// errLost is the error for a command that was carried out but whose reply was lost.
	errLost = &net.OpError{Op: "read", Err: errors.New("connection reset")}
	errDead = fmt.Errorf("the actor has died: %w", context.Canceled)
	// errGaveUp is the error for a command whose caller's context ended before the answer.
	errGaveUp = &net.OpError{Op: "read", Err: context.Canceled}
	errTimeUp = fmt.Errorf("paused too often: %w", context.DeadlineExceeded)
)

// maxPauses is how often an actor may pause in a random run (see walk) before its time is over.
const maxPauses = 40

type actorKey struct{}

// newSimulation returns a simulation whose client never connects to anything.
func newSimulation(w *world, t tamper) *simulation {
	s := &simulation{world: w, tamper: t, until: math.MaxInt64, patience: maxPauses, client: redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})}
	s.client.AddHook(s)
	return s
}

// reset prepares a new run.
func (s *simulation) reset(start map[string]*cell) {
	s.world.reset(start)
	s.actors, s.commits, s.late = nil, map[string]int{}, nil
}

// newActor returns an actor that has begun to run verbs.
func (s *simulation) newActor(id int, verbs []verb) *actor {
	a := &actor{id: id, name: fmt.Sprint(id), sim: s, threads: map[string]*thread{}}
	a.engine = s.newEngine(people.Guard)
	a.engine.sleep = a.pause
	a.engine.newRev = a.newRev
	go func() {
		a.perform(context.WithValue(context.Background(), actorKey{}, a), verbs)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.ended = true
	}()
	return a
}

func (s *simulation) newEngine(guard store.Guard) *Engine {
	e := New(s.client, Options{MemberBatch: s.batch})
	fixed := time.Unix(1000, 0)
	e.now = func() time.Time { return fixed }
	e.goDetached = func(ctx context.Context, limit time.Duration, do func(context.Context)) {
		if !s.careless || limit != finishTime {
			do(ctx)
		}
	}
	e.schemaChecks.Store(guard.Key, schemaCheck{guard.Fingerprint, fixed, s.until})
	return e
}

// newRev returns a rev that names the attempt. It is the same whenever a run is repeated.
func (a *actor) newRev() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revs++
	a.commitOK = false
	return fmt.Sprintf("%c%02d_________", 'A'+a.id, a.revs)
}

// A thread is a goroutine of an actor. Several may send the same request at the same time, and
// which of them is answered first decides how the actor continues.
type thread struct {
	parent *thread // the thread that waits for it
	digest uint64  // of the answers to it, to its children, and to its parent before it began
}

// currentThread returns the running thread.
func (a *actor) currentThread() *thread {
	a.mu.Lock()
	defer a.mu.Unlock()
	var callers [200]uintptr
	if n := runtime.Callers(0, callers[:]); runtime.FuncForPC(callers[n-2]).Name() != "sync.(*WaitGroup).Go.func1" {
		return &a.first
	}
	// Only the stack trace has the numbers of the goroutine and of the one that created it.
	trace := make([]byte, 16<<10)
	_, rest, _ := strings.Cut(string(trace[:runtime.Stack(trace, false)]), "goroutine ")
	number, rest, _ := strings.Cut(rest, " ")
	if t := a.threads[number]; t != nil {
		return t
	}
	// The trace ends with "created by … in goroutine 33".
	_, parent, _ := strings.Cut(rest, "in goroutine ")
	parent, _, _ = strings.Cut(parent, "\n")
	a.threads[number] = cmp.Or(a.threads[parent], &a.first).child()
	return a.threads[number]
}

func (t *thread) child() *thread { return &thread{t, t.digest} }

// pause waits for its turn instead of sleeping.
func (a *actor) pause(context.Context, time.Duration) error { return a.ask(&request{text: "pause"}) }

// countPause counts a pause when it ends, and returns an error if the actor's time is over. It does
// not count pauses when they begin, because the order in which they begin is random.
func (a *actor) countPause(r *request) error {
	if r.text != "pause" {
		return nil
	}
	if a.pauses++; a.pauses <= a.sim.patience {
		return nil
	}
	return errTimeUp
}

func (a *actor) timedOut() bool { return a.pauses > a.sim.patience }

// event waits for its turn, and then calls do as a step of its own, which is not a command.
func (a *actor) event(text string, do func(*world)) error {
	return a.ask(&request{text: text, event: do})
}

// ask queues a request, waits until it has had its turn, and returns its error.
func (a *actor) ask(r *request) error {
	r.actor, r.grant = a, make(chan error, 1)
	if r.by == nil {
		r.by = a.currentThread()
	}
	a.mu.Lock()
	if a.dead {
		a.mu.Unlock()
		return errDead
	}
	r.after = r.by.digest
	a.pending = append(a.pending, r)
	a.mu.Unlock()
	return <-r.grant
}

// DialHook implements redis.Hook.
func (s *simulation) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (s *simulation) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return s.process(ctx, cmd, nil) }
}

// process makes a command wait for its turn. by is the thread that sends it, or nil for the running
// one.
func (s *simulation) process(ctx context.Context, cmd redis.Cmder, by *thread) error {
	a, ok := ctx.Value(actorKey{}).(*actor)
	args := argsOf(cmd)
	if !ok {
		s.direct.Lock()
		defer s.direct.Unlock()
		return s.carryOut(nil, cmd, args)
	}
	if err := a.ask(&request{cmd: cmd, args: args, text: strings.Join(args, " "), by: by}); err != nil {
		cmd.SetErr(err)
		return err
	}
	return cmd.Err()
}

// ProcessPipelineHook implements redis.Hook. The commands of a pipeline go to different nodes, and
// so are carried out in any order.
func (s *simulation) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		parent := &thread{}
		if a, ok := ctx.Value(actorKey{}).(*actor); ok {
			parent = a.currentThread()
		}
		errs := make([]error, len(cmds))
		_ = parallel(len(cmds), func(i int) error {
			errs[i] = s.process(ctx, cmds[i], parent.child())
			return nil
		})
		return cmp.Or(errs...)
	}
}

func argsOf(cmd redis.Cmder) []string {
	args := make([]string, len(cmd.Args()))
	for i, a := range cmd.Args() {
		switch a := a.(type) {
		case string:
			args[i] = a
		case *string:
			args[i] = *a
		default:
			args[i] = fmt.Sprint(a)
		}
	}
	return args
}

// carryOut runs a command on the world and sets its reply.
func (s *simulation) carryOut(a *actor, cmd redis.Cmder, args []string) error {
	var reply any
	if a != nil && s.tamper != nil {
		args, reply = s.tamper(a, args)
	}
	if args != nil {
		reply = s.do(a, args)
	}
	return setAnswer(cmd, reply)
}

// apply makes a change, with the same commands whenever a run is repeated.
func (a *actor) apply(ctx context.Context, c store.Change) error {
	slices.SortFunc(c.Set, func(x, y store.Facet) int { return cmp.Compare(x.Field, y.Field) })
	slices.Sort(c.Unset)
	c.Note = a.noteOf(c)
	rev, err := a.engine.Apply(ctx, c)
	if err == nil && a.sim.bareClaims {
		prk := c.Key.String()
		for _, srk := range c.Claim {
			_, _ = a.engine.runBool(ctx, swapScript, srk.String(), prk+" "+rev, prk)
		}
	}
	return err
}

// do runs a command. If a commit changes the rev of its entry, do counts it for the verb that the
// actor is running, so that violation can report a verb that commits twice (I7).
func (s *simulation) do(a *actor, args []string) any {
	if a == nil || len(args) < 5 || args[1] != commitScript.SHA {
		return s.world.do(args)
	}
	rev := func() string {
		past, _ := s.world.at(args[3]).field(store.FieldRev).(string)
		return past
	}
	before := rev()
	reply := s.world.do(args)
	if rev() != before {
		s.commits[fmt.Sprintf("%s: %s", a.name, a.verb)]++
	}
	if list, ok := reply.([]any); ok && list[0] == "ok" {
		a.commitOK = true
	}
	return reply
}

// setAnswer sets the reply of a command, converted to the type of that command's replies.
func setAnswer(cmd redis.Cmder, reply any) error {
	if err, is := reply.(replyError); is {
		cmd.SetErr(err)
		return err
	}
	switch c := cmd.(type) {
	case redisx.NoRetryCmd:
		return setAnswer(c.Cmd, reply)
	case *redis.Cmd:
		if reply == nil {
			c.SetErr(redis.Nil)
			return redis.Nil
		}
		c.SetVal(reply)
	case *redis.StringCmd:
		if reply == nil {
			c.SetErr(redis.Nil)
			return redis.Nil
		}
		c.SetVal(reply.(string))
	case *redis.IntCmd:
		c.SetVal(reply.(int64))
	case *redis.BoolCmd:
		c.SetVal(reply == int64(1))
	case *redis.SliceCmd:
		c.SetVal(reply.([]any))
	case *redis.StringSliceCmd:
		c.SetVal(stringsOf(reply.([]any)))
	case *redis.BoolSliceCmd:
		var bs []bool
		for _, item := range reply.([]any) {
			bs = append(bs, item == int64(1))
		}
		c.SetVal(bs)
	case *redis.MapStringStringCmd:
		flat, m := stringsOf(reply.([]any)), map[string]string{}
		for i := 0; i+1 < len(flat); i += 2 {
			m[flat[i]] = flat[i+1]
		}
		c.SetVal(m)
	default:
		panic(fmt.Sprintf("the simulation does not know %T", cmd))
	}
	return nil
}

func stringsOf(list []any) []string {
	out := make([]string, len(list))
	for i, item := range list {
		out[i], _ = item.(string)
	}
	return out
}

// A fault describes what goes wrong in a step.
type fault byte

const (
	none     fault = iota
	lost           // the command is carried out, but its answer is lost
	dies           // the actor stops forever, before the command
	gaveUp         // the command is carried out, but the caller's context ended before the answer
	delayed        // the same, except that the command is carried out later, if at all
	moved          // another node serves the slot, even at the client's last try
	asked          // the key has already moved to another node
	tryAgain       // some keys are at this node, and some are not
	undone         // after the answer, a replica that lacks the write takes over
	refused        // the script's first write is refused; refused+1: the second, …
)

// forbidden means that permission for the first command in writeCommands is missing from now on,
// forbidden+1 for the second, and so on.
const forbidden fault = 100

// refuses returns the value of world.refuse that makes the fault happen, or 0 for other faults.
func (f fault) refuses() int {
	if f >= forbidden {
		return -int(f-forbidden) - 1
	}
	return max(0, int(f)-int(refused)+1)
}

// elsewhere holds the replies of a node that does not serve a command.
var elsewhere = map[fault]replyError{
	moved: "MOVED 1 127.0.0.1:1", asked: "ASK 1 127.0.0.1:1", tryAgain: "TRYAGAIN Multiple keys request during rehashing of slot",
}

func (f fault) String() string {
	if f >= forbidden {
		return fmt.Sprintf("(%s forbidden)", writeCommands[f-forbidden])
	}
	if f >= refused {
		return fmt.Sprintf("(write %d refused)", f-refused+1)
	}
	return [...]string{"", "(lost)", "(dies)", "(gave up)", "(delayed)", "(moved)", "(asked)", "(try again)", "(undone)"}[f]
}

// step carries out one request with a fault, and waits until all actors wait again.
func (s *simulation) step(r *request, f fault) {
	a := r.actor
	if f == dies {
		s.die(a)
		return
	}
	a.mu.Lock()
	a.pending = slices.DeleteFunc(a.pending, func(p *request) bool { return p == r })
	a.mu.Unlock()
	answer := "ok"
	switch {
	case r.event != nil:
		r.event(s.world)
	case f == delayed:
		s.late = append(s.late, r.args)
	case r.cmd != nil:
		_ = s.carryOut(a, r.cmd, r.args) // the error is in the command
		answer = answerOf(r.cmd)
		if isWriting(r.args) {
			s.late = append(s.late, r.args)
		}
	}
	err := a.countPause(r)
	if failed := f.unanswered(); failed != nil {
		err, answer = failed, "lost"
	}
	a.addDigest(r, answer)
	r.grant <- err
	synctest.Wait()
}

// unanswered returns the error with which a command ends without an answer because of the fault, or
// nil if the fault does not cause that.
func (f fault) unanswered() error {
	switch f {
	case lost:
		return errLost
	case gaveUp, delayed:
		return errGaveUp
	}
	return nil
}

// canGiveUpOn reports whether a command changes an entry or a tertiary record for a caller. Other
// commands come before the change, or are sent even if the caller has given up.
func canGiveUpOn(args []string) bool {
	return args[0] == "evalsha" && slices.Contains([]string{commitScript.SHA, actScript.SHA, addScript.SHA}, args[1])
}

func answerOf(cmd redis.Cmder) string {
	o, ok := cmd.(redisx.NoRetryCmd)
	if !ok {
		return cmd.String()
	}
	switch v := o.Val().(type) {
	case string:
		return v
	case int64:
		return string(rune('0' + v))
	default:
		return fmt.Sprint(v, o.Err())
	}
}

// isWriting reports whether a command may have an effect if it arrives again.
func isWriting(args []string) bool {
	return slices.Contains([]string{"evalsha", "sadd", "srem", "zadd", "zrem", "unlink"}, strings.ToLower(args[0]))
}

// die stops an actor: none of its commands is carried out anymore.
func (s *simulation) die(a *actor) {
	a.mu.Lock()
	a.dead = true
	pending := a.pending
	a.pending = nil
	a.mu.Unlock()
	for _, r := range pending {
		r.grant <- errDead
	}
	synctest.Wait()
}

// close stops all remaining actors.
func (s *simulation) close() {
	for _, a := range s.actors {
		s.die(a)
	}
}

// waiting returns the requests of an actor, in an order that does not depend on chance.
func (a *actor) waiting() []*request {
	a.mu.Lock()
	defer a.mu.Unlock()
	rs := slices.Clone(a.pending)
	slices.SortFunc(rs, func(x, y *request) int {
		return cmp.Or(cmp.Compare(x.text, y.text), cmp.Compare(x.after, y.after))
	})
	return rs
}
