package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
)

// A fakeTB is the testing.TB with which redistest starts servers outside a test. A failure ends the
// process, and stop ends the servers.
type fakeTB struct {
	testing.TB // nil: redistest calls only the methods below
	cleanups   []func()
}

func (tb *fakeTB) Helper()                           {}
func (tb *fakeTB) Cleanup(f func())                  { tb.cleanups = append(tb.cleanups, f) }
func (tb *fakeTB) Fatal(args ...any)                 { must(errors.New(fmt.Sprint(args...))) }
func (tb *fakeTB) Fatalf(format string, args ...any) { must(fmt.Errorf(format, args...)) }
func (tb *fakeTB) Skip(args ...any)                  { tb.Fatal(args...) }

func (tb *fakeTB) stop() {
	for _, f := range slices.Backward(tb.cleanups) {
		f()
	}
}

// A server is a redis-server of this run, on a Unix socket and on TCP.
type server struct {
	*redistest.Server
	tcp   bool // clients connect over TCP
	admin *redis.Client
}

func startServer(tb *fakeTB) *server {
	s := &server{Server: redistest.Start(tb)}
	s.admin = s.client(1)
	return s
}

// url returns the server's URL for a client with a pool of this size.
func (s *server) url(pool int) string {
	if s.tcp {
		return fmt.Sprint(s.URL(), "?pool_size=", pool)
	}
	return fmt.Sprint(s.SocketURL(), "&pool_size=", pool)
}

// client returns a bare client.
func (s *server) client(pool int) *redis.Client {
	o := mustGet(redis.ParseURL(s.url(pool)))
	o.ContextTimeoutEnabled = true
	return redis.NewClient(o)
}

// info returns the numbers in a section of INFO.
func info(ctx context.Context, c *redis.Client, section string) map[string]float64 {
	numbers := map[string]float64{}
	for line := range strings.Lines(mustGet(c.Info(ctx, section).Result())) {
		name, v, _ := strings.Cut(strings.TrimSpace(line), ":")
		numbers[name], _ = strconv.ParseFloat(v, 64)
	}
	return numbers
}
