//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// holdStill keeps Ctrl-Z from leaving a prompt: the shell would bring the echo back, and the rest of
// the password would be seen.
func holdStill() func() {
	signal.Ignore(syscall.SIGTSTP)
	return func() { signal.Reset(syscall.SIGTSTP) }
}
