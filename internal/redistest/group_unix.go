//go:build unix

package redistest

import (
	"os/exec"
	"syscall"
)

// ownGroup keeps Ctrl-C from reaching the keeper, which would leave its server running.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
