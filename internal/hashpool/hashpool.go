// Package hashpool bounds how many password hashes are made at once.
//
// A hash keeps a processor busy for a quarter of a second. A [Pool] runs as many as it has workers, lets the others
// wait in the order they came, and refuses at once those that it cannot serve before their deadline: that keeps a flood
// of logins from growing into memory and from delaying everything else.
//
// Nothing else waits for them. Go looks at the network when one of its processors (GOMAXPROCS) has nothing to do, or
// every 10 ms: where all of them make hashes, a read from Redis takes those 10 ms several times over. So a pool that
// has as many workers as Go has processors gives Go one more. And on Linux a hash runs on a thread of lower
// priority (nice 10), which gives way to other work.
//
// A panic of a job is the caller's, and so is runtime.Goexit.
package hashpool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

var (
	// ErrBusy: more jobs wait than the pool takes, or than it can serve before the deadline of the caller. The job did
	// not run; later it may.
	ErrBusy = errors.New("hashpool: too many jobs are waiting")
	// ErrClosed: the pool is closed. The job did not run.
	ErrClosed = errors.New("hashpool: closed")
)

// A BusyError stands in the chain of ErrBusy.
type BusyError struct {
	Wait time.Duration // what the jobs that run or wait take, by what the last ones took
}

func (e *BusyError) Error() string { return ErrBusy.Error() }

// Unwrap returns ErrBusy.
func (e *BusyError) Unwrap() error { return ErrBusy }

// perWorker is how many jobs wait for one worker at most: at a quarter of a second for each the last one waits for 16
// seconds.
const queuePerWorker = 64

// Pool runs jobs, a few at a time. It is safe for concurrent use. The zero Pool is not usable; make one with New.
type Pool struct {
	workers, queue int
	turns          *semaphore.Weighted // one for each worker
	open           context.Context     // ends when the pool is closed
	close          context.CancelFunc

	mu   sync.Mutex
	jobs int           // how many run or wait
	mean time.Duration // moving average of what a job takes; 0: none has run
}

// New returns a pool that runs so many jobs at once; 0 or less: one for each processor, and at most GOMAXPROCS.
func New(workers int) *Pool {
	if workers <= 0 {
		workers = min(initialProcs(), runtime.NumCPU())
	}
	addProcessor(workers)
	p := &Pool{workers: workers, queue: queuePerWorker * workers, turns: semaphore.NewWeighted(int64(workers))}
	p.open, p.close = context.WithCancel(context.Background())
	return p
}

// Do runs job and returns nil when it is done. It waits for its turn until ctx ends, and then returns ctx's error
// without having run job, and ErrBusy with it if the deadline passed meanwhile. A job that has
// begun is waited for even when ctx ends: what it wrote is complete when Do
// returns.
//
// ErrBusy and ErrClosed are returned at once and without having run job; ErrClosed also when the pool is closed during
// the wait.
func (p *Pool) Do(ctx context.Context, job func()) error {
	if err := p.enter(ctx); err != nil {
		return err
	}
	defer p.leave()
	wait, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(p.open, stop)()
	if err := p.turns.Acquire(wait, 1); err != nil {
		return p.waitError(ctx)
	}
	defer p.turns.Release(1)
	if err := p.refusal(ctx); err != nil {
		return err
	}
	begin := time.Now()
	run(job)
	p.addDuration(time.Since(begin))
	return nil
}

// given is how many processors Go had before the first pool.
var initialProcs = sync.OnceValue(func() int { return runtime.GOMAXPROCS(0) })

// leaveOne gives Go a processor besides those of the workers, unless the environment says how many it may have.
func addProcessor(workers int) {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) <= workers && workers <= runtime.NumCPU() {
		runtime.GOMAXPROCS(workers + 1)
	}
}

// run runs a job on a thread of lower priority, which ends with it: a thread may lower its priority, but not raise
// it again.
func run(job func()) {
	var panicked any
	ended := false
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // and never unlocked
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

// refusal says why a job may not run although it has its turn, or was not given one.
func (p *Pool) refusal(ctx context.Context) error {
	if p.open.Err() != nil {
		return ErrClosed
	}
	return ctx.Err()
}

// gaveUp says why a job was not given its turn.
func (p *Pool) waitError(ctx context.Context) error {
	err := p.refusal(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		p.mu.Lock()
		defer p.mu.Unlock()
		err = fmt.Errorf("%w: %w", &BusyError{p.ahead()}, err)
	}
	return err
}

// Close refuses all jobs from now on, those that wait too, and returns when those that run are done. It may be called
// more than once.
func (p *Pool) Close() {
	p.close()
	all := int64(p.workers)
	if p.turns.Acquire(context.Background(), all) == nil {
		p.turns.Release(all)
	}
}

// enter counts one more job, or says why it has to stay out.
func (p *Pool) enter(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.refusal(ctx); err != nil {
		return err
	}
	if p.jobs >= p.workers+p.queue || p.tooLate(ctx) {
		return &BusyError{p.ahead()}
	}
	p.jobs++
	return nil
}

func (p *Pool) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.jobs--
}

// late reports whether one more job would end after the deadline. A free worker is never refused, however short the
// deadline: else an average that was once too long would keep away the very jobs that correct it.
func (p *Pool) tooLate(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	wait := p.ahead()
	if !ok || wait <= 0 {
		return false
	}
	return wait+p.mean > time.Until(deadline)
}

// ahead returns how long one more job would wait; 0 if a worker is free.
func (p *Pool) ahead() time.Duration {
	return p.mean * time.Duration(max(p.jobs-p.workers+1, 0)) / time.Duration(p.workers)
}

// took adds one job to the average; the last eight count for most of it.
func (p *Pool) addDuration(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mean == 0 {
		p.mean = d
		return
	}
	p.mean += (d - p.mean) / 8
}
