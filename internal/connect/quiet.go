package connect

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// go-redis has one logger for the whole process, which prints to standard error what callers are told as errors
// anyway. It is set before main begins, so that a program that wants those words may set one of its own.
func init() { redis.SetLogger(quiet{}) }

type quiet struct{}

// Printf is asked by go-redis.
func (quiet) Printf(context.Context, string, ...any) {}
