//go:build unix

package redistest

import (
	"os/exec"
	"syscall"
)

// ownGroup starts cmd in its own process group, so that Ctrl-C does not reach it. cmd is the shell
// script that runs a server. If it ended first, the server would go on running.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
