package hashpool

import "syscall"

// niceness gives a hash a tenth of what others get. With 19 it is a seventieth: too little beside a few busy programs.
const niceness = 10

// lowerPriority makes the thread nicer. A thread that is nicer already, or that the system forbids it, runs as it is.
func lowerPriority() {
	const zero = 20 // the system adds it, to the opposite of what it is asked for
	if n, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0); err == nil && zero-n < niceness {
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, niceness)
	}
}
