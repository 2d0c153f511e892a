// Package hashpool bounds how many password hashes are made at once.
//
// A hash keeps a core busy for a quarter of a second. A [Pool] lets as many run
// as it has workers, lets the others wait in the order they came, and refuses at
// once whoever cannot be served before its deadline: that keeps a flood of logins
// from growing into memory and from delaying everything else.
//
// It has a worker for each processor. While something else is about that wants to be
// quick, as its users tell it by [Pool.Spare], it leaves one processor free, and jobs
// step aside for everybody else on the others, where the system (Linux) has a way to
// say so: it lets a hash finish its slice of some milliseconds otherwise before it runs what
// waits for an answer, Redis too. A program that may raise its threads again (CAP_SYS_NICE,
// or an RLIMIT_NICE of 20) has jobs run behind all others, and others have nice 19. Where that
// leaves one no time, as on a machine that is busy with something else, they compete again
// for a minute. Jobs do not step aside where they may have all of GOMAXPROCS, nor while more than
// two threads for each processor of the machine want to run.
//
// Go looks at the network when a processor has nothing else to do, or every 10 ms: on a machine
// whose processors all make hashes, a read from Redis takes those 10 ms several times over.
// Where GOMAXPROCS is more than the processors, one is free for Go anyway. Where it is 1, none
// can be left; a program that is to be quick there sets it to 2.
//
// A job runs on the goroutine of its caller, or on one that ends with it. The pool has
// none of its own, so none can leak, and a panic of a job is the caller's.
package hashpool

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

var (
	// ErrBusy: more jobs wait than the pool takes, or than it can serve before
	// the deadline of the caller. The job did not run; later it may.
	ErrBusy = errors.New("hashpool: too many jobs are waiting")
	// ErrClosed: the pool is closed. The job did not run.
	ErrClosed = errors.New("hashpool: closed")
)

const (
	// perWorker is how many jobs wait for one worker where Options do not say:
	// at a quarter of a second for each the last one waits for 16 seconds.
	perWorker = 64
	// spared is how long a processor is left free after a call of Spare.
	spared = time.Second
	// competing is how long no job steps aside behind one that was starved so, on a machine that is busy
	// with something else.
	competing = time.Minute
)

// Options are what New needs.
type Options struct {
	Workers int // jobs that run at once; 0 or less: one for each processor, less while Spare is called
	Queue   int // jobs that wait at most; 0: 64 for each worker; less: none
}

// Pool runs jobs, a few at a time. It is safe for concurrent use. The zero Pool
// is not usable; make one with New.
type Pool struct {
	workers, queue int
	spares         bool
	begin          time.Time
	asked          atomic.Int64 // when Spare was called last, in nanoseconds since begin
	compete        atomic.Int64 // until when no job steps aside, likewise

	mu      sync.Mutex
	running int
	waiting []chan struct{} // in the order they came; each is closed when its turn has come
	mean    time.Duration   // moving average of what a job takes; 0: none has run
	idle    sync.Cond       // no job runs
	closed  chan struct{}
}

// New returns a pool.
func New(o Options) *Pool {
	p := &Pool{workers: o.Workers, begin: time.Now(), closed: make(chan struct{})}
	p.idle.L = &p.mu
	p.asked.Store(-int64(spared))
	if o.Workers <= 0 {
		p.workers, p.spares = min(runtime.GOMAXPROCS(0), runtime.NumCPU()), true
	}
	if o.Queue == 0 {
		o.Queue = perWorker * p.workers
	}
	p.queue = max(o.Queue, 0)
	return p
}

// Spare tells the pool that something else is about that wants to be quick. For the
// next second it begins no job that would leave no processor free, unless Options say
// how many workers it has, and those that it begins step aside. That takes no lock.
func (p *Pool) Spare() {
	// Every 10 ms is enough, and spares all processors from writing to one place.
	now := int64(time.Since(p.begin))
	if last := p.asked.Load(); now-last > int64(10*time.Millisecond) {
		p.asked.Store(now)
	}
}

// hurried says whether somebody else wants to be quick.
func (p *Pool) hurried() bool {
	return time.Since(p.begin)-time.Duration(p.asked.Load()) < spared
}

// run runs a job whose turn has come, and says what it took.
func (p *Pool) run(job func()) time.Duration {
	begin := time.Since(p.begin)
	if p.hurried() && p.leavesOne() && begin >= time.Duration(p.compete.Load()) {
		aside(job, func() { p.compete.Store(int64(time.Since(p.begin) + competing)) })
	} else {
		job()
	}
	return time.Since(p.begin) - begin
}

// leavesOne says whether jobs leave one of Go's processors to others. One that waits for the system's keeps its
// own of Go's, and with the last of them it would keep the whole program waiting.
func (p *Pool) leavesOne() bool { return p.limit() < runtime.GOMAXPROCS(0) }

// limit is how many jobs may run now.
func (p *Pool) limit() int {
	if !p.spares || !p.hurried() {
		return p.workers
	}
	return max(min(p.workers, runtime.GOMAXPROCS(0)-1), 1)
}

// Do runs job and returns nil when it is done. It waits for its turn until ctx
// ends, and then returns ctx's error without having run job. A job that has begun
// is waited for even when ctx ends: what it wrote is complete when Do returns.
//
// ErrBusy and ErrClosed are returned at once and without having run job; ErrClosed
// also when the pool is closed during the wait.
func (p *Pool) Do(ctx context.Context, job func()) error {
	turn, err := p.enter(ctx)
	if err != nil {
		return err
	}
	if err := p.await(ctx, turn); err != nil {
		return err
	}
	defer p.leave()
	p.took(p.run(job))
	return nil
}

// Close refuses all jobs from now on, those that wait too, and returns when
// those that run are done. It may be called more than once.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isClosed() {
		close(p.closed)
	}
	for p.running > 0 {
		p.idle.Wait()
	}
}

func (p *Pool) isClosed() bool {
	select {
	case <-p.closed:
		return true
	default:
		return false
	}
}

// enter puts a job behind those that wait, or says why it has to stay out.
func (p *Pool) enter(ctx context.Context) (turn chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isClosed() {
		return nil, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	limit := p.limit()
	if p.running+len(p.waiting) >= limit+p.queue || p.late(ctx, limit) {
		return nil, ErrBusy
	}
	turn = make(chan struct{})
	p.waiting = append(p.waiting, turn)
	p.next()
	return turn, nil
}

// next lets jobs run while there are workers for them.
func (p *Pool) next() {
	for len(p.waiting) > 0 && p.running < p.limit() && !p.isClosed() {
		close(p.waiting[0])
		p.waiting = slices.Delete(p.waiting, 0, 1)
		p.running++
	}
}

// await returns nil when the job may run: its turn has come, and nothing speaks against it.
func (p *Pool) await(ctx context.Context, turn chan struct{}) error {
	select {
	case <-turn:
	case <-ctx.Done():
	case <-p.closed:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	err := ctx.Err()
	if p.isClosed() {
		err = ErrClosed
	}
	if err == nil {
		return nil
	}
	if i := slices.Index(p.waiting, turn); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	} else {
		p.end()
	}
	return err
}

func (p *Pool) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
}

// end gives a worker back.
func (p *Pool) end() {
	p.running--
	p.next()
	if p.running == 0 {
		p.idle.Broadcast()
	}
}

// late reports whether one more job would end after the deadline. A free worker
// is never refused, however short the deadline: else an average that was once too
// long would keep away the very jobs that correct it.
func (p *Pool) late(ctx context.Context, limit int) bool {
	ahead := p.running + len(p.waiting) - limit + 1
	deadline, ok := ctx.Deadline()
	if !ok || ahead <= 0 {
		return false
	}
	wait := p.mean * time.Duration(ahead) / time.Duration(limit)
	return wait+p.mean > time.Until(deadline)
}

// took adds one job to the average; the last eight count for most of it.
func (p *Pool) took(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mean == 0 {
		p.mean = d
		return
	}
	p.mean += (d - p.mean) / 8
}
