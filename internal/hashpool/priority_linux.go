package hashpool

import "syscall"

// niceness gives a hash a tenth of what others get. With 19 it is a seventieth: too little beside a few busy programs.
const niceness = 10

// lowerPriority makes the thread nicer. A system that forbids it, or a process that is nicer, runs the job as it is.
func lowerPriority() { _ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, niceness) }
