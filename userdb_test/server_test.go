package userdb_test

import (
	"context"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest"
)

// serverSite is a database of its own on the server that all tests share.
func serverSite(t *testing.T) *site {
	t.Helper()
	srv := redistest.Shared(t)
	s := newSite(t, srv.URL(), nil)
	s.server = srv
	return s
}

// startServer is a server of its own, to stop, kill and configure.
func startServer(t *testing.T, opts ...redistest.Option) *site {
	t.Helper()
	srv := redistest.Start(t, opts...)
	s := newSite(t, srv.URL(), nil)
	s.server = srv
	t.Cleanup(s.check)
	return s
}

// startProxied is a server of its own behind a proxy that loses requests and answers.
func startProxied(t *testing.T) (*site, *redistest.Proxy) {
	t.Helper()
	srv := redistest.Start(t)
	proxy := redistest.NewProxy(t, srv)
	s := newSite(t, proxy.URL(), nil)
	s.server = srv
	t.Cleanup(s.check)
	return s, proxy
}

// command sends one command past the store, to configure a server.
func (s *site) command(args ...any) {
	s.t.Helper()
	if err := s.raw.Do(context.Background(), args...).Err(); err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
}
