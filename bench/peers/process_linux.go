package main

import "syscall"

// childAttributes has a server end with the thread that started it: main never leaves the thread of the process.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
