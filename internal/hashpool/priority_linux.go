package hashpool

import "syscall"

// niceness is the nice value of a thread that hashes. At 10 it gets a tenth of the processor time
// of other work. At 19 it would get a seventieth, which is too little next to a few busy programs.
const niceness = 10

// lowerPriority raises the niceness of the thread. It does nothing if the niceness is already as
// high, or if the system forbids the change.
func lowerPriority() {
	const zero = 20 // the system call returns 20 minus the niceness
	if n, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0); err == nil && zero-n < niceness {
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, niceness)
	}
}
