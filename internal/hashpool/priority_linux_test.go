package hashpool

import (
	"runtime"
	"syscall"
	"testing"
)

// TestJobsHaveLowerPriority checks that a job runs at a lower priority, and nothing else does.
func TestJobsHaveLowerPriority(t *testing.T) {
	nice := func() int {
		const zero = 20 // the system call returns 20 minus the niceness
		n, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
		if err != nil {
			t.Fatal(err)
		}
		return zero - n
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, inside := nice(), 0
	p := New(1)
	defer p.Close()
	if err := p.Do(t.Context(), Caller{}, func() { inside = nice() }); err != nil {
		t.Fatal(err)
	}
	if want := max(before, niceness); inside != want || nice() != before {
		t.Errorf("nice is %d before, %d in a job, %d after; want %d only in the job", before, inside, nice(), want)
	}
}
