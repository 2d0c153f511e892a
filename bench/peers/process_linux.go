package main

import "syscall"

// childAttributes makes the kernel end a child with the thread that started it, which main never
// leaves.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
