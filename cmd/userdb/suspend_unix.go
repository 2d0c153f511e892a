//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// blockSuspend ignores Ctrl-Z until the returned function is called. If the command were suspended
// at a prompt, the shell would turn the echo on again and show the rest of the password.
func blockSuspend() func() {
	signal.Ignore(syscall.SIGTSTP)
	return func() { signal.Reset(syscall.SIGTSTP) }
}
