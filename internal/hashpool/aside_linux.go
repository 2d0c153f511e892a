package hashpool

import (
	"errors"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lowest is the nice value of jobs that step aside where a thread cannot be raised again. With 10 a read
// beside them waited three times as long as without; with 19 mostly no longer.
const lowest = 19

// Every so often it is looked whether a job has had its least share of a processor, a tenth. One that had not
// is starved; it is raised where that is possible.
const soon, least = 500 * time.Millisecond, 10

// errExited: a job ended its goroutine (runtime.Goexit), which was not its caller's.
var errExited = errors.New("hashpool: a job ended its goroutine")

// aside runs a job on a thread that the system lets run behind others: who waits for an answer gets a
// processor at once, and not when the time slice of a hash ends. It says whether others left the job no time.
func aside(job func()) (starved bool) {
	onThread(func() (usual bool) {
		step := stepAside
		if mayReturn() {
			step = stepBack
		}
		starved, usual = step().run(job)
		return usual
	})
	return starved
}

// onThread runs f on a thread of its own, which ends with it unless f says that it is as it was: Go makes no
// other thread from one that is locked. A panic of f is the caller's.
func onThread(f func() (usual bool)) {
	var failed any = errExited
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				failed = p
			}
		}()
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			onThread(f) // on another thread, for this one is taken: the main thread cannot end
		} else if f() {
			runtime.UnlockOSThread()
		}
		failed = nil
	}()
	<-done
	if failed != nil {
		panic(failed)
	}
}

// mayReturn says whether a thread that runs behind all others may be raised again, which takes CAP_SYS_NICE
// or an RLIMIT_NICE of 20. One that may not would keep the whole program waiting on a machine that is busy with
// something else: Go's garbage collector stops every thread for a moment.
var mayReturn = sync.OnceValue(func() (may bool) {
	onThread(func() bool {
		may = stepBack().raise()
		return may
	})
	return may
})

// A lower is a thread that runs behind others.
type lower struct {
	tid       int
	begin     time.Time
	before    time.Duration // what the thread had computed then
	mu        sync.Mutex
	usual     *unix.SchedAttr // what it was, if it can be that again; nil: it was raised, or cannot be
	fine      bool            // it is as it was
	starved   bool
	lookAgain *time.Timer
}

// stepAside has the thread that calls run behind most others, for ever. Where that is refused, it runs as
// it did.
func stepAside() *lower {
	tid := unix.Gettid()
	_ = unix.Setpriority(unix.PRIO_PROCESS, tid, lowest)
	return &lower{tid: tid, begin: time.Now(), before: cpuTime(tid)}
}

// stepBack has the thread that calls run behind all others, also those with the highest nice value, until it is
// raised: a processor that has nothing else to do counts as idle, so that who wakes up comes to it at once.
func stepBack() *lower {
	tid := unix.Gettid()
	l := &lower{tid: tid, begin: time.Now(), before: cpuTime(tid)}
	usual, err := unix.SchedGetAttr(tid, 0)
	if err != nil {
		return l
	}
	idle := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE, Nice: usual.Nice}
	if unix.SchedSetAttr(tid, idle, 0) == nil {
		l.usual = usual
	}
	return l
}

// run runs a job on its thread, and raises it in the end, or when others leave it no time.
func (l *lower) run(job func()) (starved, usual bool) {
	l.mu.Lock()
	l.lookAgain = time.AfterFunc(soon, l.look)
	l.mu.Unlock()
	defer func() {
		usual = l.raise()
		starved = l.starved
	}()
	job()
	return
}

// look looks whether the job has its share, and goes on looking.
func (l *lower) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.lookAgain == nil: // the job is done
	case cpuTime(l.tid)-l.before >= time.Since(l.begin)/least:
		l.lookAgain.Reset(soon)
	default:
		l.starved = true
		l.restore()
	}
}

// raise makes the thread what it was, while it is still there, and says whether it is.
func (l *lower) raise() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.restore()
	return l.fine
}

func (l *lower) restore() {
	if l.lookAgain != nil {
		l.lookAgain.Stop()
		l.lookAgain = nil
	}
	if l.usual != nil {
		l.fine = unix.SchedSetAttr(l.tid, l.usual, 0) == nil
		l.usual = nil
	}
}

// cpuTime is how long a thread of this process has computed.
func cpuTime(tid int) time.Duration {
	const ofThread, scheduled = 4, 2 // as pthread_getcpuclockid puts them together
	var t unix.Timespec
	if unix.ClockGettime(int32(^tid<<3|ofThread|scheduled), &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
