// Package hashpool limits how many password hashes run at once.
//
// A hash keeps a processor busy for a quarter of a second. A [Pool] runs one job for each of its
// workers, lets others wait in order of arrival, and immediately refuses jobs that it cannot finish
// before their deadline. A flood of logins therefore neither fills memory nor delays everything
// else.
//
// Jobs wait in lanes, depending on who needs them. While jobs wait in several lanes, the lanes take
// turns. Nobody can fill a lane alone: each origin and each account has a small share of it, and an
// actor, such as an API key, has at most as many slots as it leaves free.
//
// Hashing does not slow down other work. Go polls the network when one of its processors
// (GOMAXPROCS) is idle, or else every 10 ms. If all processors are hashing, a read from Redis waits
// for several such polls. A pool with as many workers as Go has processors therefore raises
// GOMAXPROCS by one. On Linux, a hash runs on a thread of lower priority (nice 10), which yields to
// other work.
//
// Do passes a panic or runtime.Goexit of a job on to its caller.
package hashpool

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

var (
	// ErrBusy means that more jobs are waiting than the pool accepts, in all or from one caller, or
	// than it can finish before the caller's deadline. The job did not run; it may be tried again
	// later.
	ErrBusy = errors.New("hashpool: too many jobs are waiting")
	// ErrClosed means that the pool is closed. The job did not run.
	ErrClosed = errors.New("hashpool: closed")
)

// A BusyError says how long to wait after ErrBusy, which it wraps.
type BusyError struct {
	Wait time.Duration // how long one more job would wait, estimated from the last jobs
}

func (e *BusyError) Error() string { return ErrBusy.Error() }

// Unwrap returns ErrBusy.
func (e *BusyError) Unwrap() error { return ErrBusy }

// A Lane is one of the queues in which jobs wait.
type Lane int

const (
	General   Lane = iota // for everybody
	Proved                // for those who have proved that they may act for an account
	Imports               // for imports
	Operators             // for operators, and for signing in as one
	laneCount
)

// queuePerWorker limits the jobs that wait in a lane, for each worker. A single actor gets half of
// them, which is 64 in the general lane: at a quarter of a second each, the last of these waits for
// 16 seconds, and up to four times as long if jobs arrive in all the other lanes meanwhile.
var queuePerWorker = [laneCount]int{General: 128, Proved: 32, Imports: 16, Operators: 32}

// sharePerWorker limits the jobs of one origin, and those of one account, that run or wait in a
// lane, for each worker. At a quarter of a second each, they delay others by two seconds.
const sharePerWorker = 8

// A Caller says on whose behalf a job runs. Unknown parts are "" and are not limited.
type Caller struct {
	Lane    Lane   // where the job waits
	Actor   string // who asks for the job, such as an API key
	Origin  string // where the request comes from
	Account string // the account that the job is about
	// Spare says that the job may be left out. It is refused unless a worker is free, so that
	// nobody waits for it.
	Spare bool
}

// A Pool runs a limited number of jobs at once. It is safe for concurrent use. The zero Pool is not
// usable; call New.
type Pool struct {
	workers int
	turns   *semaphore.Weighted // one for each worker
	open    context.Context     // ends when the pool is closed
	close   context.CancelFunc

	lanes [laneCount]lane

	mu      sync.Mutex
	mean    time.Duration         // moving average of a job's duration; 0 before the first job
	slower  bool                  // the job that ended last took longer than the average
	running map[*waiter]time.Time // when each running job began
}

// A lane is a queue of jobs. Only the job at its head competes for a turn, so that lanes in which
// jobs wait get turns alternately, however many jobs each of them holds.
type lane struct {
	head  *semaphore.Weighted // taken by the job at the head
	limit int                 // maximum of jobs

	// Protected by Pool.mu.

	waiting                   []*waiter // in order of arrival
	jobs                      int       // running or waiting
	actors, origins, accounts tally     // the same jobs, by their callers
}

// A waiter is a job that waits or runs.
type waiter struct {
	deadline time.Time
	limited  bool   // there is a deadline
	stop     func() // ends the wait
	late     bool   // the wait was ended because the deadline cannot be met

	check *time.Timer // while the job runs: calls recheck
}

func newLane(limit int) lane {
	return lane{head: semaphore.NewWeighted(1), limit: limit, actors: tally{}, origins: tally{}, accounts: tally{}}
}

// add adds n jobs of a caller. n may be negative.
func (l *lane) add(c Caller, n int) {
	l.jobs += n
	l.actors.add(c.Actor, n)
	l.origins.add(c.Origin, n)
	l.accounts.add(c.Account, n)
}

// isFull reports whether a caller cannot get another slot. An actor has at most as many slots as
// are free, so that there is always room for another actor. share limits the slots of an origin
// and of an account.
func (l *lane) isFull(c Caller, share int) bool {
	free := l.limit - l.jobs
	return free <= l.actors[c.Actor] || share <= l.origins[c.Origin] || share <= l.accounts[c.Account]
}

// A tally counts jobs by a name.
type tally map[string]int

// add adds n to the count of a name, unless the name is "".
func (t tally) add(name string, n int) {
	if name == "" {
		return
	}
	if t[name] += n; t[name] == 0 {
		delete(t, name)
	}
}

// New returns a pool that runs up to workers jobs at once. If workers is 0 or less, it uses the
// number of processors, but at most GOMAXPROCS.
func New(workers int) *Pool {
	if workers <= 0 {
		workers = min(initialProcs(), runtime.NumCPU())
	}
	addProcessor(workers)
	p := &Pool{workers: workers, turns: semaphore.NewWeighted(int64(workers)), running: map[*waiter]time.Time{}}
	for i, n := range queuePerWorker {
		p.lanes[i] = newLane((1 + n) * workers)
	}
	p.open, p.close = context.WithCancel(context.Background())
	return p
}

// Do runs job and returns nil when job is done. If ctx ends before job starts, Do returns ctx's
// error without running job; if the deadline passed in the queue, the error matches ErrBusy as
// well. Once job has started, Do waits for it even if ctx ends, so that what job wrote is complete
// when Do returns.
//
// If the lane is full or the pool is closed, Do returns ErrBusy or ErrClosed at once, without
// running job. It also returns them while job waits: ErrClosed if the pool is closed, and ErrBusy
// as soon as the jobs ahead of it take so long that job could not end before its deadline.
func (p *Pool) Do(ctx context.Context, c Caller, job func()) error {
	l := &p.lanes[c.Lane]
	w := &waiter{}
	w.deadline, w.limited = ctx.Deadline()
	wait, stop := context.WithCancel(ctx)
	defer stop()
	w.stop = stop
	if err := p.enter(ctx, l, c, w); err != nil {
		return err
	}
	defer p.leave(l, c, w)
	if !p.wait(wait, stop, l) {
		return p.waitError(ctx, l, w)
	}
	defer p.turns.Release(1)
	if err := p.refusal(ctx); err != nil {
		return err
	}
	p.begin(l, w)
	defer p.end(w)
	run(job)
	return nil
}

// wait waits in a lane for a turn, which the caller must give back. It reports whether it got one
// before ctx ended. It ends ctx if the pool is closed.
func (p *Pool) wait(ctx context.Context, stop func(), l *lane) bool {
	defer context.AfterFunc(p.open, stop)()
	if l.head.Acquire(ctx, 1) != nil {
		return false
	}
	defer l.head.Release(1)
	return p.turns.Acquire(ctx, 1) == nil
}

// begin moves a job from those that wait to those that run.
func (p *Pool) begin(l *lane, w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.remove(w)
	p.running[w] = time.Now()
	w.check = time.AfterFunc(max(2*p.mean, firstCheck), func() { p.recheck(w) })
}

// firstCheck is the least time after which a running job counts as slow.
const firstCheck = 100 * time.Millisecond

// recheck refuses jobs that are late because a job has been running for longer than expected. It
// runs again when the job has taken twice as long.
func (p *Pool) recheck(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if begun, is := p.running[w]; is {
		now := time.Now()
		p.refuseLate(now)
		w.check.Reset(now.Sub(begun))
	}
}

// end removes a job from those that run, adds its duration to the average, and refuses jobs that
// are late according to it.
func (p *Pool) end(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	w.check.Stop()
	d := now.Sub(p.running[w])
	p.mean, p.slower = withDuration(p.mean, d, p.slower), d > p.mean
	delete(p.running, w)
	p.refuseLate(now)
}

// withDuration returns a moving average with the duration of one more job. If several jobs in a row
// were slower, because the machine became busy, the average follows them quickly, so that the pool
// soon refuses what it cannot do. A single slow job, such as a hash of a higher cost, changes it
// little.
func withDuration(mean, d time.Duration, several bool) time.Duration {
	switch {
	case mean == 0:
		return d
	case d > mean && several:
		return mean + (d-mean)/2
	}
	return mean + (d-mean)/8
}

// expected returns how long the next job will probably take. If all workers have been busy for
// longer than the average, it counts the job that began last as if it had just ended.
func (p *Pool) expected(now time.Time) time.Duration {
	if len(p.running) < p.workers {
		return p.mean
	}
	shortest := time.Duration(math.MaxInt64)
	for _, begun := range p.running {
		shortest = min(shortest, now.Sub(begun))
	}
	if shortest < p.mean {
		return p.mean
	}
	return withDuration(p.mean, shortest, p.slower || p.workers > 1)
}

// remove removes a job from those that wait, if it is among them.
func (l *lane) remove(w *waiter) {
	if i := slices.Index(l.waiting, w); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
}

// initialProcs returns GOMAXPROCS as it was before the first pool.
var initialProcs = sync.OnceValue(func() int { return runtime.GOMAXPROCS(0) })

// addProcessor raises GOMAXPROCS to one more than the number of workers if it is not higher. It
// does nothing if the environment sets GOMAXPROCS or if there are more workers than processors.
func addProcessor(workers int) {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) <= workers && workers <= runtime.NumCPU() {
		runtime.GOMAXPROCS(workers + 1)
	}
}

// run runs a job on a thread of lower priority. The thread ends with the job, because a thread may
// lower its priority but not raise it again.
func run(job func()) {
	var panicked any
	ended := false
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends
		defer close(done)
		defer func() { panicked = recover() }()
		lowerPriority()
		job()
		ended = true
	}()
	<-done
	switch {
	case panicked != nil:
		panic(panicked)
	case !ended:
		runtime.Goexit()
	}
}

// refusal returns ErrClosed if the pool is closed, or the error of ctx if that has ended. Otherwise
// it returns nil, and the job may run.
func (p *Pool) refusal(ctx context.Context) error {
	if p.open.Err() != nil {
		return ErrClosed
	}
	return ctx.Err()
}

// waitError returns why a job did not get its turn.
func (p *Pool) waitError(ctx context.Context, l *lane, w *waiter) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch err := p.refusal(ctx); {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", &BusyError{p.expectedWait(l)}, err)
	case err == nil && w.late:
		return &BusyError{p.expectedWait(l)}
	default:
		return err
	}
}

// Close refuses all further jobs, including those that are waiting, and returns when the running
// jobs are done. It may be called more than once.
func (p *Pool) Close() {
	p.close()
	all := int64(p.workers)
	if p.turns.Acquire(context.Background(), all) == nil {
		p.turns.Release(all)
	}
}

// enter counts one more job in a lane, or returns why the pool refuses it.
func (p *Pool) enter(ctx context.Context, l *lane, c Caller, w *waiter) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.refusal(ctx); err != nil {
		return err
	}
	if l.isFull(c, sharePerWorker*p.workers) || p.tooLate(ctx, l) || c.Spare && p.jobs() >= p.workers {
		return &BusyError{p.expectedWait(l)}
	}
	l.add(c, 1)
	l.waiting = append(l.waiting, w)
	return nil
}

func (p *Pool) leave(l *lane, c Caller, w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.add(c, -1)
	l.remove(w)
}

// jobs returns how many jobs run or wait in all lanes.
func (p *Pool) jobs() (all int) {
	for i := range p.lanes {
		all += p.lanes[i].jobs
	}
	return all
}

// refuseLate ends the wait of each job that could no longer end before its deadline if those ahead
// of it take as long as expected. Otherwise, jobs that were admitted while hashes were fast would
// all wait until their deadlines when the machine becomes busy. The first jobs of each lane, one
// for each worker, stay: if the average duration from which the end is estimated is too long, only
// jobs that run can correct it.
func (p *Pool) refuseLate(now time.Time) {
	for i := range p.lanes {
		l := &p.lanes[i]
		l.waiting = slices.DeleteFunc(l.waiting, p.lateCheck(i, now))
	}
}

// lateCheck returns a function that must be called for each job that waits in a lane, from the
// first to the last. The function reports whether the job is late, and if so, ends its wait.
func (p *Pool) lateCheck(lane int, now time.Time) func(*waiter) bool {
	before := 0 // in this lane
	each := p.expected(now)
	return func(w *waiter) bool {
		ahead := before
		for i := range p.lanes {
			if i != lane {
				ahead += min(len(p.lanes[i].waiting), before+1)
			}
		}
		end := now.Add(each * time.Duration(ahead/p.workers+1)) // as if a worker were free now
		if before < p.workers || !w.limited || !end.After(w.deadline) {
			before++
			return false
		}
		w.late = true
		w.stop()
		return true
	}
}

// tooLate reports whether one more job would end after its deadline. It returns false if a worker
// is free, however close the deadline is: if the average duration of jobs was once too long, only
// jobs that run can correct it.
func (p *Pool) tooLate(ctx context.Context, l *lane) bool {
	deadline, ok := ctx.Deadline()
	wait := p.expectedWait(l)
	if !ok || wait <= 0 {
		return false
	}
	return wait+p.expected(time.Now()) > time.Until(deadline)
}

// expectedWait returns how long one more job of a lane would wait, or 0 if a worker is free.
func (p *Pool) expectedWait(l *lane) time.Duration {
	first := 0
	for i := range p.lanes {
		jobs := p.lanes[i].jobs
		// The lanes take turns, so at most l.jobs+1 jobs of each other lane run first.
		first += min(jobs, l.jobs+1)
	}
	waiting := min(p.jobs()-p.workers, first)
	if waiting < 0 {
		return 0
	}
	return p.expected(time.Now()) * time.Duration(waiting+1) / time.Duration(p.workers)
}
