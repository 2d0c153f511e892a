package hashpool

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// mainThread stands for whatever priority the main thread has, which is left alone.
const mainThread = -1

// priority is that of the thread that asks, as the system counts: 20 for all who did not ask for
// another, and less for those who step aside.
func priority(t *testing.T) int {
	t.Helper()
	if syscall.Gettid() == syscall.Getpid() {
		return mainThread
	}
	p, err := syscall.Getpriority(syscall.PRIO_PROCESS, syscall.Gettid())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestJobsStepAside only while somebody is about, and only the jobs.
func TestJobsStepAside(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	usual := priority(t)
	if usual == 20-lowered {
		t.Skip("everything here has the lowest priority already")
	}
	p := New(Options{Workers: 1})
	defer p.Close()
	job := func() (got int) {
		if err := p.Do(t.Context(), func() { got = priority(t) }); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := job(); got != usual {
		t.Errorf("a job runs with priority %d, want the usual %d", got, usual)
	}
	p.Spare()
	for range 50 {
		if got := job(); got != 20-lowered {
			t.Fatalf("a job runs with priority %d beside others, want %d", got, 20-lowered)
		}
		if got := priority(t); got != usual {
			t.Fatalf("its caller runs with priority %d behind it, want %d", got, usual)
		}
	}
}

// TestStarvedJobsCompete: behind one that stepping aside made slow, for a while.
func TestStarvedJobsCompete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		usual := priority(t)
		if usual == 20-lowered {
			t.Skip("everything here has the lowest priority already")
		}
		p := New(Options{Workers: 1})
		defer p.Close()
		for i, tt := range []struct {
			wait, takes time.Duration
			want        int
		}{
			{0, starved - 1, 20 - lowered},
			{0, starved, 20 - lowered},
			{0, 0, usual},
			{competing - 2*time.Second, starved, usual}, // slow, but not for that reason
			{0, 0, 20 - lowered},
		} {
			time.Sleep(tt.wait)
			p.Spare()
			err := p.Do(t.Context(), func() {
				if got := priority(t); got != tt.want {
					t.Errorf("job %d runs with priority %d, want %d", i, got, tt.want)
				}
				time.Sleep(tt.takes)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// threads are those of this process that step aside.
func threads(t *testing.T) (lower int) {
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
		// A thread that ended meanwhile has no priority.
		if p, err := syscall.Getpriority(syscall.PRIO_PROCESS, tid); err == nil && p == 20-lowered {
			lower++
		}
	}
	return lower
}

// TestNoThreadStaysAside: the threads of jobs end with them, those of panics too, and none that Go made
// meanwhile took their priority over.
func TestNoThreadStaysAside(t *testing.T) {
	if p, err := syscall.Getpriority(syscall.PRIO_PROCESS, syscall.Getpid()); err != nil || p == 20-lowered {
		t.Skipf("the main thread has the lowest priority already: %v", err)
	}
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
