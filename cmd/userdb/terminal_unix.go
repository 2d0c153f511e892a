//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// ignoreStopSignals ignores Ctrl-Z and Ctrl-\ until the returned function is called. If Ctrl-Z
// suspended the command at a prompt, the shell would turn the echo on again and show the rest of
// the password. If Ctrl-\ ended it, the echo would stay off.
func ignoreStopSignals() func() {
	signal.Ignore(syscall.SIGTSTP, syscall.SIGQUIT)
	return func() { signal.Reset(syscall.SIGTSTP, syscall.SIGQUIT) }
}

// discards reports whether f was closed when the process began. Go then opens the null device in
// its place, for reading and writing, whereas "> /dev/null" opens it only for writing.
func discards(f *os.File) bool {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR {
		return false
	}
	opened, err := f.Stat()
	null, nullErr := os.Stat(os.DevNull)
	return err == nil && nullErr == nil && os.SameFile(opened, null)
}
