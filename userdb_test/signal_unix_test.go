//go:build unix

package userdb_test

import (
	"regexp"
	"strconv"
	"syscall"
)

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
