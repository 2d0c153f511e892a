//go:build !unix

package main

func holdStill() func() { return func() {} }
