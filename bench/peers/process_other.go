//go:build !linux

package main

import "syscall"

// childAttributes matters only on Linux; main refuses to run on other systems.
func childAttributes() *syscall.SysProcAttr { return nil }
