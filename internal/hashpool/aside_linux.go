package hashpool

import (
	"errors"
	"runtime"
	"syscall"
)

// lowered is the nice value of jobs that step aside. With 10 a read beside them waited three times as
// long as without; with 19 mostly no longer.
const lowered = 19

// errExited: a job ended its goroutine (runtime.Goexit), which was not its caller's.
var errExited = errors.New("hashpool: a job ended its goroutine")

// aside runs a job on a thread that the system lets run behind others: who waits for an answer gets a
// processor at once, and not when the time slice of a hash ends. The thread ends with the job, for its
// priority cannot be raised again, and Go makes no other thread from one that is locked. A panic is
// the caller's, as of any job.
func aside(job func()) {
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
		if tid := syscall.Gettid(); tid == syscall.Getpid() {
			defer runtime.UnlockOSThread()
			aside(job) // on another thread, for this one is taken: the main thread cannot end
		} else {
			// Where this is refused, the job runs as it would otherwise.
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, tid, lowered)
			job()
		}
		failed = nil
	}()
	<-done
	if failed != nil {
		panic(failed)
	}
}
