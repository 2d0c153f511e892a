//go:build unix

package userdb_test

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/userdb"
)

// TestHangingServer stops the server's process: every verb ends with its context, and when the server
// goes on, all that it was asked is done wholly or not at all.
func TestHangingServer(t *testing.T) {
	s := startServer(t)
	users := lossyStore(t, s)
	before, err := users.Find(t.Context(), hints.UID("u"))
	must(t, err)
	signal := s.signaller()
	signal(syscall.SIGSTOP)
	resume := func() { signal(syscall.SIGCONT) }
	defer func() { resume() }()
	verbs := everyVerb(s.first, users, before)
	names := make([]string, 0, len(verbs))
	for name := range verbs {
		names = append(names, name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	errs := atOnce(len(names), func(i int) error { return verbs[names[i]](ctx) })
	for i, err := range errs {
		if ctx.Err() == nil {
			t.Errorf("%s ended before its context: %v", names[i], err)
		}
		if !errors.Is(err, userdb.ErrUnavailable) && !errors.Is(err, userdb.ErrOutcomeUnknown) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v", names[i], err)
		}
	}
	resume()
	resume = func() {}
	must(t, s.first.Ping(t.Context()))
}

// signaller finds the server's process, for signals that stop it and let it go on.
func (s *site) signaller() func(syscall.Signal) {
	s.t.Helper()
	info, err := s.raw.Info(s.t.Context(), "server").Result()
	must(s.t, err)
	found := regexp.MustCompile(`process_id:(\d+)`).FindStringSubmatch(info)
	if found == nil {
		s.t.Fatal("the server does not say its process id")
	}
	pid, _ := strconv.Atoi(found[1])
	return func(sig syscall.Signal) {
		if err := syscall.Kill(pid, sig); err != nil {
			s.t.Errorf("signal %v: %v", sig, err)
		}
	}
}
