package hashpool

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// ways are those in which jobs step aside: the better one where the system permits it, and the other.
func ways(t *testing.T, test func(t *testing.T)) {
	notAside(t)
	t.Run("never to return", func(t *testing.T) {
		returns := mayReturn
		mayReturn = func() bool { return false }
		defer func() { mayReturn = returns }()
		test(t)
	})
	t.Run("until raised", func(t *testing.T) {
		if !mayReturn() {
			t.Skip("no right to raise a thread")
		}
		test(t)
	})
}

// notAside skips a test where everything runs behind others already, and has nobody else want the processors.
func notAside(t *testing.T) {
	if atFirst != "usual" {
		t.Skipf("everything here is %s already", atFirst)
	}
	if runtime.GOMAXPROCS(0) == 1 {
		t.Skip("nobody steps aside with Go's only processor")
	}
	really := crowded
	t.Cleanup(func() { crowded = really })
	crowded = func() bool { return false }
}

// atFirst is how the process stood before any test.
var atFirst = standing(unix.Getpid())

// standing is how a thread stands to others.
func standing(tid int) string {
	a, err := unix.SchedGetAttr(tid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return "gone"
	case err != nil:
		return err.Error()
	case a.Policy == unix.SCHED_IDLE || a.Nice == lowest:
		return "aside"
	}
	return "usual"
}

// TestJobsStepAside only while somebody is about, and only the jobs.
func TestJobsStepAside(t *testing.T) {
	ways(t, func(t *testing.T) {
		p := New(Options{Workers: 1})
		defer p.Close()
		job := func() (got string) {
			if err := p.Do(t.Context(), func() { got = standing(0) }); err != nil {
				t.Fatal(err)
			}
			return got
		}
		if got := job(); got != "usual" {
			t.Errorf("a job runs %s, with nobody about", got)
		}
		p.Spare()
		for range 50 {
			if got := job(); got != "aside" {
				t.Fatalf("a job runs %s beside others", got)
			}
			if got := standing(0); got != "usual" {
				t.Fatalf("its caller runs %s behind it", got)
			}
		}
	})
}

// starving has jobs wait for a processor from when it is told so, until it is told that they do not.
func starving(t *testing.T) (tell func(bool)) {
	really, begin := waited, time.Now()
	t.Cleanup(func() { waited = really })
	var from atomic.Int64 // in nanoseconds behind begin; 0: they do not
	waited = func(int) time.Duration {
		if n := from.Load(); n > 0 {
			return time.Since(begin) - time.Duration(n)
		}
		return 0
	}
	return func(yes bool) {
		from.Store(0)
		if yes {
			from.Store(max(1, int64(time.Since(begin))))
		}
	}
}

// TestStarvedJobsCompete: behind one that others leave no time, for a while, and from the moment when that is seen.
func TestStarvedJobsCompete(t *testing.T) {
	ways(t, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			starved := starving(t)
			p := New(Options{Workers: 1})
			defer p.Close()
			for i, tt := range []struct {
				starved     bool
				wait, takes time.Duration
				want        string
			}{
				{false, 0, 10 * soon, "aside"},
				{true, 0, soon - 1, "aside"},
				{true, 0, 3*soon + 1, "aside"},
				{true, 0, 0, "usual"},
				{true, competing - 2*soon - 2, soon, "usual"}, // slow, but not for that reason
				{true, 0, 0, "aside"},
			} {
				starved(tt.starved)
				time.Sleep(tt.wait)
				p.Spare()
				err := p.Do(t.Context(), func() {
					if got := standing(0); got != tt.want {
						t.Errorf("job %d runs %s, want %s", i, got, tt.want)
					}
					time.Sleep(tt.takes)
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	})
}

// TestStarvedJobIsRaised while it runs, where the system permits it, also behind a time when it was well.
func TestStarvedJobIsRaised(t *testing.T) {
	notAside(t)
	if !mayReturn() {
		t.Skip("no right to raise a thread")
	}
	synctest.Test(t, func(t *testing.T) {
		starved := starving(t)
		p := New(Options{Workers: 1})
		defer p.Close()
		p.Spare()
		err := p.Do(t.Context(), func() {
			time.Sleep(100*soon + 1)
			starved(true)
			time.Sleep(soon - 2)
			if got := standing(0); got != "aside" {
				t.Errorf("a job runs %s before it is starved", got)
			}
			time.Sleep(2 * time.Nanosecond)
			if got := standing(0); got != "usual" {
				t.Errorf("a starved job runs %s", got)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestWaited: what a thread that computes did not compute, also on a processor that two of them want.
func TestWaited(t *testing.T) {
	notAside(t)
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skip(err)
	}
	var one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &one); err != nil {
		t.Skip(err)
	}
	for cpu := len(one)*64 - 1; one.Count() > 1; cpu-- {
		one.Clear(cpu)
	}
	contend(t, 1, one)
	contend(t, 2, one)
}

// contend has threads compute on one processor, and looks how long each says that it waited.
func contend(t *testing.T, threads int, one unix.CPUSet) {
	const long, near = 400 * time.Millisecond, 150 * time.Millisecond
	begin := time.Now()
	var all sync.WaitGroup
	for range threads {
		all.Go(func() {
			onThread(func() bool {
				if err := unix.SchedSetaffinity(0, &one); err != nil {
					t.Error(err)
				}
				from, had, did := time.Now(), waited(unix.Gettid()), computed(t)
				for time.Since(begin) < long {
					continue
				}
				got, want := waited(unix.Gettid())-had, time.Since(from)-(computed(t)-did)
				if (got - want).Abs() > near {
					t.Errorf("one of %d threads waited %v, want about %v", threads, got, want)
				}
				return false
			})
		})
	}
	all.Wait()
}

// TestNobodyStepsAsideInACrowd of threads that all want the processors, for he might not come back for long.
func TestNobodyStepsAsideInACrowd(t *testing.T) {
	notAside(t)
	crowded = func() bool { return true }
	p := New(Options{Workers: 1})
	defer p.Close()
	p.Spare()
	if err := p.Do(t.Context(), func() {
		if got := standing(0); got != "usual" {
			t.Errorf("a job runs %s", got)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// TestCrowded: many more threads than processors are a crowd.
func TestCrowded(t *testing.T) {
	end := time.Now().Add(time.Second)
	for range (most + 2) * processors() {
		busy := exec.Command("sh", "-c", "while :; do :; done")
		if err := busy.Start(); err != nil {
			t.Skip(err)
		}
		defer func() { _, _ = busy.Process.Kill(), busy.Wait() }()
	}
	for !crowded() {
		if time.Now().After(end) {
			t.Fatal("nobody sees the crowd")
		}
	}
}

// computed is how long the thread that asks has computed.
func computed(t *testing.T) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Error(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestNobodyStepsAsideWithTheLast of Go's processors, for the whole program would wait with him.
func TestNobodyStepsAsideWithTheLast(t *testing.T) {
	notAside(t)
	p := New(Options{Workers: runtime.GOMAXPROCS(0)})
	defer p.Close()
	p.Spare()
	if err := p.Do(t.Context(), func() {
		if got := standing(0); got != "usual" {
			t.Errorf("a job runs %s", got)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// threads is how many of this process stand aside.
func threads(t *testing.T) (aside int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range all {
		tid, err := strconv.Atoi(thread.Name())
		if err != nil {
			t.Fatal(err)
		}
		if standing(tid) == "aside" {
			aside++
		}
	}
	return aside
}

// TestNoThreadStaysAside: the threads of jobs end with them or are raised, those of panics too, and none that Go made
// meanwhile took their priority over.
func TestNoThreadStaysAside(t *testing.T) { ways(t, noThreadStaysAside) }

func noThreadStaysAside(t *testing.T) {
	p := New(Options{Workers: max(1, runtime.GOMAXPROCS(0)-1), Queue: 1000})
	defer p.Close()
	p.Spare()
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			defer func() { _ = recover() }()
			_ = p.Do(t.Context(), func() {
				for range 4 {
					go runtime.Gosched() // work for more threads
				}
				time.Sleep(time.Millisecond)
				if i%10 == 0 {
					panic("job")
				}
			})
		})
	}
	wg.Wait()
	for range 10_000 {
		if threads(t) == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("%d threads stay aside", threads(t))
}
