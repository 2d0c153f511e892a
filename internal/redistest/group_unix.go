//go:build unix

package redistest

import (
	"os/exec"
	"syscall"
)

// ownGroup makes cmd start in its own process group, so that Ctrl-C does not reach it. cmd is the
// shell script that runs a server and kills it when the test process ends.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
