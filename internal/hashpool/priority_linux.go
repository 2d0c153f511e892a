package hashpool

import "syscall"

// lowerPriority gives the thread nice 19. A system that forbids it runs the job as it is.
func lowerPriority() { _ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19) }
