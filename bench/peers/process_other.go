//go:build !linux

package main

import "syscall"

// childAttributes is for Linux: see main, which refuses other systems.
func childAttributes() *syscall.SysProcAttr { return nil }
