package hashpool

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// lowest is the nice value of jobs that step aside where a thread cannot be raised again. With 10 a read
// beside them waited three times as long as without; with 19 mostly no longer.
const lowest = 19

// Every so often it is looked how a job fared. One that waited for a processor for most of that time, nine
// tenths, is starved; it is raised where that is possible.
const soon, share = 500 * time.Millisecond, 10

// most is how many threads may want each processor when one runs behind others.
const most = 2

// errExited: a job ended its goroutine (runtime.Goexit), which was not its caller's.
var errExited = errors.New("hashpool: a job ended its goroutine")

// aside runs a job on a thread that the system lets run behind others: who waits for an answer gets a
// processor at once, and not when the time slice of a hash ends. It calls starved as soon as others leave
// the job no time. On a crowded machine it runs the job as it is.
func aside(job, starved func()) {
	if crowded() {
		job()
		return
	}
	onThread(func() (usual bool) {
		step := stepAside
		if !lost.Load() && mayReturn() {
			step = stepBack
		}
		return step().run(job, starved)
	})
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
// or an RLIMIT_NICE of 20. One that may not would keep the whole program waiting, for minutes on a machine that is
// busy with something else: Go's garbage collector stops every thread for a moment.
var mayReturn = sync.OnceValue(func() (may bool) {
	onThread(func() bool {
		may = stepBack().raise()
		return may
	})
	return may
})

// lost: a thread could not be raised, although that was possible once.
var lost atomic.Bool

// crowded says whether so many threads want the processors that one behind others might wait for many seconds, and
// with it whoever needs Go's garbage collector: while that waits for a thread, nothing of this program runs, so
// that nobody could raise it either.
var crowded = func() bool {
	text, err := os.ReadFile("/proc/loadavg") // 0.20 0.18 0.12 1/80 11206: one of 80 threads runs or wants to
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 4 {
		return false
	}
	wanting, _, _ := strings.Cut(fields[3], "/")
	n, err := strconv.Atoi(wanting)
	return err == nil && n > most*processors()
}

// processors are those of the machine, as many threads as are counted there may use.
var processors = sync.OnceValue(func() (n int) {
	text, _ := os.ReadFile("/proc/stat")
	for line := range strings.Lines(string(text)) {
		if len(line) > 3 && strings.HasPrefix(line, "cpu") && line[3] != ' ' {
			n++
		}
	}
	return max(n, runtime.NumCPU())
})

// A lower is a thread that runs behind others.
type lower struct {
	tid   int
	begin time.Time     // of the time that is looked at
	had   time.Duration // how long it had waited then
	mu    sync.Mutex
	usual *unix.SchedAttr // what it was, if it can be that again; nil: it was raised, or cannot be
	fine  bool            // it is as it was
	again *time.Timer     // nil: nobody looks any more
}

// stepAside has the thread that calls run behind most others, for ever. Where that is refused, it runs as
// it did.
func stepAside() *lower {
	tid := unix.Gettid()
	_ = unix.Setpriority(unix.PRIO_PROCESS, tid, lowest)
	return &lower{tid: tid}
}

// stepBack has the thread that calls run behind all others, also those with the highest nice value, until it is
// raised: a processor that has nothing else to do counts as idle, so that who wakes up comes to it at once.
func stepBack() *lower {
	l := &lower{tid: unix.Gettid()}
	usual, err := unix.SchedGetAttr(l.tid, 0)
	if err != nil {
		return l
	}
	if usual.Policy == unix.SCHED_NORMAL || usual.Policy == unix.SCHED_BATCH {
		usual.Runtime = 0 // a slice of its own, if it is set
	}
	idle := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE, Nice: usual.Nice}
	if unix.SchedSetAttr(l.tid, idle, 0) == nil {
		l.usual = usual
	}
	return l
}

// run runs a job on its thread, and raises it in the end, or when others leave it no time.
func (l *lower) run(job, starved func()) (usual bool) {
	l.mu.Lock()
	l.begin, l.had = time.Now(), waited(l.tid)
	l.again = time.AfterFunc(soon, func() { l.look(starved) })
	l.mu.Unlock()
	defer func() { usual = l.raise() }()
	job()
	return
}

// look looks how the job fared, and goes on looking while it is well.
func (l *lower) look(starved func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.again == nil { // the job is done
		return
	}
	now, had := time.Now(), waited(l.tid)
	if had-l.had < now.Sub(l.begin)*(share-1)/share {
		l.begin, l.had = now, had
		l.again.Reset(soon)
		return
	}
	l.restore()
	starved()
}

// raise makes the thread what it was, while it is still there, and says whether it is.
func (l *lower) raise() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.restore()
	return l.fine
}

func (l *lower) restore() {
	if l.again != nil {
		l.again.Stop()
		l.again = nil
	}
	if l.usual != nil {
		l.fine = unix.SchedSetAttr(l.tid, l.usual, 0) == nil
		lost.Store(lost.Load() || !l.fine)
		l.usual = nil
	}
}

// waited is how long a thread of this process has waited for a processor, and not for anything else: the lanes
// of Argon2 run on other threads. Where the system does not tell, all of its time counts as waiting.
var waited = func(tid int) time.Duration {
	text, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(tid) + "/schedstat")
	if fields := strings.Fields(string(text)); err == nil && len(fields) > 1 {
		if ns, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
			return time.Duration(ns)
		}
	}
	return time.Since(start)
}

var start = time.Now()
