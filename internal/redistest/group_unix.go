//go:build unix

package redistest

import (
	"os/exec"
	"syscall"
)

// ownGroup keeps Ctrl-C from the keeper, whose server would outlive it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
