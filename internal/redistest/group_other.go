//go:build !unix

package redistest

import "os/exec"

// ownGroup does nothing, because only Unix has process groups.
func ownGroup(*exec.Cmd) {}
