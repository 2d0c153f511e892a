//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// blockSuspend ignores Ctrl-Z until the returned function is called. If a prompt were suspended,
// the shell would turn the echo on again, and the rest of the password would be visible.
func blockSuspend() func() {
	signal.Ignore(syscall.SIGTSTP)
	return func() { signal.Reset(syscall.SIGTSTP) }
}
