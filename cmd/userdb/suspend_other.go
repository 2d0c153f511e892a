//go:build !unix

package main

func blockSuspend() func() { return func() {} }
