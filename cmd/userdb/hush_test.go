package main

import (
	"strings"
	"testing"
)

// TestStoreIsNotEchoed: whatever is mistyped about a store, no output says a password that stands in it.
func TestStoreIsNotEchoed(t *testing.T) {
	useFile(t)
	for _, store := range []string{
		"hush@host", "hush:hush@host:6379", "hush://u@h", "redis:hush@host", "redis://u:hush@ho st", "redis://u:hush@127.0.0.1:1", "redis://:hush@127.0.0.1:1/0",
		"redis://hush@127.0.0.1:1", "redis://u:hush/x@host:1", "redis://u:hush@h?no=1", "redis+cluster://u:hush@127.0.0.1:1", "redis+sentinel://u:hush@127.0.0.1:1",
		"redis+sentinel://u:hush@127.0.0.1:1?master_name=m&password=hush", "rediss://u:hush@127.0.0.1:1?tls_ca=/nowhere", "unix://u:hush@/nowhere/s",
	} {
		lines := [][]string{{"--store", store, "count", "user"}, {"--store=" + store, "check"}, {"get", "a1", "--store", store, "--help"}, {"--store", store, "login", "--help"}}
		if strings.Contains(store, "://") && !strings.Contains(store, "hush://") {
			lines = append(lines, []string{store, "count", "user"}, []string{"count", "user", store}, []string{"--stor=" + store, "count", "user"}, []string{"count", "user", "--stor", store},
				[]string{"get", store}, []string{"--timeout", store, "count", "user"}, []string{"--namespace", store, "count", "user"}, []string{"login", store, store})
		}
		for _, line := range lines {
			for _, args := range [][]string{line, append([]string{"--json"}, line...)} {
				if got := here(nil, "", append(args, "--timeout", "300ms")...); strings.Contains(got.out+got.err, "hush") {
					t.Errorf("userdb %q: %s%s", args, got.out, got.err)
				}
			}
		}
		t.Setenv("USERDB_STORE", store)
		for _, args := range [][]string{{"count", "user"}, {"count", "user", "--json"}, {"--help"}} {
			if got := here(nil, "", append(args, "--timeout", "300ms")...); strings.Contains(got.out+got.err, "hush") {
				t.Errorf("USERDB_STORE=%s userdb %q: %s%s", store, args, got.out, got.err)
			}
		}
		useFile(t)
	}
}
