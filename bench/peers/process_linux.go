package main

import "syscall"

// childAttributes makes the kernel kill a child when the thread that started it ends. The main
// goroutine never leaves that thread (see init).
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
