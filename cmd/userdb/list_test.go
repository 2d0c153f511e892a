package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/userdb"
)

func TestTimeLimit(t *testing.T) {
	for line, want := range map[string]time.Duration{
		"list user": 30 * time.Second, "create user": 30 * time.Second, "schema show": 30 * time.Second,
		"check": 0, "schema check": 0, "hint x": 0, "recordkey split x": 0, "export": 0, "import x": 0, "namespace drop x": 0,
		"check --timeout 5s": 5 * time.Second, "list user --timeout 2m": 2 * time.Minute, "list user --timeout 0": 0,
		"list user --timeout 1d12h": 36 * time.Hour,
	} {
		s, err := parseLine(strings.Fields(line)...)
		if err != nil || s.timeout() != want {
			t.Errorf("the limit of %s is %v, %v; want %v", line, s.timeout(), err, want)
		}
	}
	for _, wrong := range []string{"-1ms", "soon", "d", "1d-1h", "", "1", "70000d"} {
		if _, err := parseLine("list", "user", "--timeout="+wrong); userdb.CodeOf(err) != userdb.CodeUsage {
			t.Errorf("--timeout=%s: %v, want a usage error", wrong, err)
		}
	}
}

// TestContradictingType checks that --type must agree with the type that an argument names.
func TestContradictingType(t *testing.T) {
	for line, wrong := range map[string]bool{
		"list user --type shop": true, "count user --type shop": true, "create user a=b --type shop": true, "schema add user a --type shop": true,
		"list user --type user": false, "list --type shop": false, "create a=b --type shop": false, "get user:a --type shop": false,
	} {
		if _, err := parseLine(strings.Fields(line)...); (userdb.CodeOf(err) == userdb.CodeUsage) != wrong {
			t.Errorf("%s: error %v, want a usage error: %t", line, err, wrong)
		}
	}
}

// TestPages checks that no entry is lost between pages, which have pageSize entries. An entry may
// be listed twice, because SCAN may return a key twice while the hash table of the server grows.
func TestPages(t *testing.T) {
	server := redistest.Shared(t)
	t.Setenv("USERDB_STORE", server.URL())
	const all, first = 3*pageSize + 10, 2*pageSize + 7
	c := server.Client()
	if _, err := c.Pipelined(context.Background(), func(p redis.Pipeliner) error {
		for i := range all {
			uid := fmt.Sprintf("u%d", i)
			p.HSet(context.Background(), "user/uid:"+uid, "~isa", "user", "~prk", "user/uid:"+uid, "uid", uid)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	take := func(got result) int {
		t.Helper()
		lines := strings.Split(strings.TrimSpace(got.out), "\n")
		for _, line := range lines {
			var e struct{ UID string }
			if err := json.Unmarshal([]byte(line), &e); err != nil || got.code != 0 {
				t.Fatalf("list: exit %d, %s, %v for the line %s; want exit 0 and entries as JSON", got.code, got.err, err, line)
			}
			seen[e.UID] = true
		}
		return len(lines)
	}
	got := runCommand(nil, "", "list", "user", "--json", "--limit", fmt.Sprint(first))
	if n := take(got); n != first {
		t.Errorf("%d entries, want %d", n, first)
	}
	var more struct{ After string }
	if err := json.Unmarshal([]byte(got.err), &more); err != nil || more.After == "" {
		t.Fatalf("standard error %q does not say where to continue: %v", got.err, err)
	}
	take(runCommand(nil, "", "list", "user", "--json", "--after", more.After))
	if len(seen) != all {
		t.Errorf("%d different entries, want %d", len(seen), all)
	}
	got = runCommand(nil, "", "list", "user", "--json", "--limit", fmt.Sprint(2*all))
	if n := take(got); n < all || got.err != "" {
		t.Errorf("with a limit beyond the end: %d entries, %q; want at least %d and no message", n, got.err, all)
	}
}

// TestGetWithDamagedTags checks that an entry is printed even if its tags cannot be read.
func TestGetWithDamagedTags(t *testing.T) {
	server := redistest.Shared(t)
	t.Setenv("USERDB_STORE", server.URL())
	if got := runCommand(nil, "", "create", "user", "uid=u1", "name=Alice", "--no-password"); got.code != 0 {
		t.Fatalf("create: %+v, want exit 0", got)
	}
	if err := server.Client().Set(context.Background(), "user/uid:u1/tags", "no set", 0).Err(); err != nil {
		t.Fatal(err)
	}
	got := runCommand(nil, "", "get", "u1", "--json")
	if !strings.Contains(got.out, `"name":"Alice"`) || !strings.Contains(got.err, "tags") || got.code != userdb.CodeCorrupt.ExitStatus() {
		t.Errorf("get: %+v, want the entry, an error and exit code %d", got, userdb.CodeCorrupt.ExitStatus())
	}
}
