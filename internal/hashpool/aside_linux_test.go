package hashpool

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync"
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

// notAside skips a test where everything runs behind others already.
func notAside(t *testing.T) {
	if s := standing(t, unix.Getpid()); s != "usual" {
		t.Skipf("everything here is %s already", s)
	}
}

// standing is how a thread stands to others.
func standing(t *testing.T, tid int) string {
	a, err := unix.SchedGetAttr(tid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return "gone"
	case err != nil:
		t.Error(err)
		return ""
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
			if err := p.Do(t.Context(), func() { got = standing(t, 0) }); err != nil {
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
			if got := standing(t, 0); got != "usual" {
				t.Fatalf("its caller runs %s behind it", got)
			}
		}
	})
}

// TestStarvedJobsCompete: behind one that stepping aside made slow, for a while.
func TestStarvedJobsCompete(t *testing.T) {
	ways(t, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := New(Options{Workers: 1})
			defer p.Close()
			for i, tt := range []struct {
				wait, takes time.Duration
				want        string
			}{
				{0, soon - 1, "aside"},
				{0, soon + 1, "aside"},
				{0, 0, "usual"},
				{competing - soon, soon + 1, "usual"}, // slow, but not for that reason
				{0, 0, "aside"},
			} {
				time.Sleep(tt.wait)
				p.Spare()
				err := p.Do(t.Context(), func() {
					if got := standing(t, 0); got != tt.want {
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

// TestStarvedJobIsRaised while it runs, where the system permits it.
func TestStarvedJobIsRaised(t *testing.T) {
	notAside(t)
	if !mayReturn() {
		t.Skip("no right to raise a thread")
	}
	synctest.Test(t, func(t *testing.T) {
		p := New(Options{Workers: 1})
		defer p.Close()
		p.Spare()
		err := p.Do(t.Context(), func() {
			time.Sleep(soon - 1)
			if got := standing(t, 0); got != "aside" {
				t.Errorf("a job runs %s before it is starved", got)
			}
			time.Sleep(2 * time.Nanosecond)
			if got := standing(t, 0); got != "usual" {
				t.Errorf("a starved job runs %s", got)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	})
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
		if standing(t, tid) == "aside" {
			aside++
		}
	}
	return aside
}

// TestNoThreadStaysAside: the threads of jobs end with them or are raised, those of panics too, and none that Go made
// meanwhile took their priority over.
func TestNoThreadStaysAside(t *testing.T) { ways(t, noThreadStaysAside) }

func noThreadStaysAside(t *testing.T) {
	p := New(Options{Workers: 4, Queue: 1000})
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
