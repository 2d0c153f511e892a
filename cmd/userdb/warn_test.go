package main

import (
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest"
)

func TestWarnings(t *testing.T) {
	server := redistest.Start(t, redistest.Config("maxmemory 100mb", "maxmemory-policy allkeys-lru"))
	t.Setenv("USERDB_STORE", server.URL())
	got := here(nil, "", "count", "user")
	if got.code != 0 || got.out != "0\n" || !strings.HasPrefix(got.err, "userdb: warning: ") || !strings.HasSuffix(got.err, "; set maxmemory-policy noeviction\n") {
		t.Errorf("count at a server that evicts: %+v", got)
	}
	if got := here(nil, "", "count", "user", "--json"); got != (result{0, "0\n", ""}) {
		t.Errorf("count --json at a server that evicts: %+v", got)
	}
	if got := here(nil, "x", "login", "Alice", "--password-stdin"); got != (result{5, "", "userdb: wrong identifier or password\n"}) {
		t.Errorf("login at a server that evicts: %+v", got)
	}
}
