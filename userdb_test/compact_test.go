package userdb_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
)

// What the README says of memory is so: the larger form is left by a reload alone.
func TestNotCompactUntilReload(t *testing.T) {
	s := startServer(t, redistest.Config("enable-debug-command local"))
	users := s.users()
	add(t, users, "u", "name", "n", "bio", strings.Repeat("x", 65))
	form := func(want string) int64 {
		t.Helper()
		if got := s.raw.ObjectEncoding(t.Context(), "user/uid:u").Val(); got != want {
			t.Errorf("kept as %s, want %s", got, want)
		}
		return s.raw.MemoryUsage(t.Context(), "user/uid:u", 0).Val()
	}
	large := form("hashtable")
	must(t, s.raw.(*redis.Client).HSet(t.Context(), "user/uid:u", "bio", "short").Err())
	form("hashtable")
	s.command("DEBUG", "RELOAD")
	if small := form("listpack"); small*3 > large*2 {
		t.Errorf("compact it takes %d bytes, else %d", small, large)
	}
}
