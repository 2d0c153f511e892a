package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// TestStoppedWriters makes a change that stops other writers. If the change is interrupted, a
// warning must say that they still cannot write; if it finishes, there must be no warning.
func TestStoppedWriters(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  int // the step at which the change is interrupted; 0 if it finishes
		want string
	}{
		{"the change finishes", 0, ""},
		{"the change is interrupted", 4, "the change is not done: nobody else can write entries of type user until 'userdb schema apply' completes it\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			db, err := userdb.Open(t.Context(), "memory:", userdb.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			users, err := db.Type("user")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := users.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("name", "Alice", "job", "cook")}); err != nil {
				t.Fatal(err)
			}
			next := schema.User()
			delete(next.Types["user"].Fields, "job")
			next.Types["user"].Fields["city"] = schema.Field{Role: schema.RoleIndexed}
			ch, err := migrate.Plan(t.Context(), db, next)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			err = ch.Apply(ctx, func(int64, int64) {
				if n++; n == tt.end {
					cancel()
				}
			})
			if (err != nil) != (tt.end > 0) {
				t.Fatalf("Apply ends after %d steps: %v; want an error: %v", n, err, tt.end > 0)
			}
			var errs bytes.Buffer
			s := &session{db: db, std: stdio{err: &errs}}
			if s.warnStopped(ctx, []string{"user", "org"}); errs.String() != tt.want {
				t.Errorf("got %q, want %q", &errs, tt.want)
			}
		})
	}
}

// TestNamespaceDropWaits checks that nothing is left of a namespace if a process that still trusts
// a key writes to it after the key was revoked.
func TestNamespaceDropWaits(t *testing.T) {
	t.Setenv("USERDB_STORE", redistest.Shared(t).URL())
	for _, line := range []string{
		"create user uid=u1 --namespace acme --no-password", "apikey create old --namespace acme --scope write",
	} {
		if got := runCommand(nil, "", strings.Fields(line)...); got.code != 0 {
			t.Fatalf("%s: %+v, want exit 0", line, got)
		}
	}
	var errs bytes.Buffer
	var waited time.Duration
	late := func(_ context.Context, d time.Duration) error {
		waited = d
		if got := runCommand(nil, "", "create", "user", "uid=late", "--namespace", "acme", "--no-password"); got.code != 0 {
			t.Errorf("a late create: %+v, want exit 0", got)
		}
		return nil
	}
	code := run([]string{"namespace", "drop", "acme", "--yes"}, stdio{in: strings.NewReader(""), out: io.Discard, err: &errs, sleep: late})
	if code != 0 || waited != admin.RevocationTime || !strings.Contains(errs.String(), "waiting 55s") {
		t.Errorf("namespace drop: exit code %d after waiting %s: %s; want 0 after %s", code, waited, errs.String(), admin.RevocationTime)
	}
	if got := runCommand(nil, "", "list", "user", "--namespace", "acme"); got.out != "" {
		t.Errorf("the namespace has %s, want no entries", got.out)
	}
}

// TestNamespaceDropWaitsAgain checks that a drop waits even if the keys were revoked before, that
// it removes keys that were made meanwhile, and that it does not wait in a store that was never
// served.
func TestNamespaceDropWaitsAgain(t *testing.T) {
	drop := func(during func()) (waits int) {
		t.Helper()
		sleep := func(_ context.Context, d time.Duration) error {
			if waits++; waits == 1 {
				during()
			}
			return nil
		}
		var errs bytes.Buffer
		if code := run([]string{"namespace", "drop", "acme", "--yes"}, stdio{in: strings.NewReader(""), out: io.Discard, err: &errs, sleep: sleep}); code != 0 {
			t.Fatalf("namespace drop: exit code %d, want 0: %s", code, &errs)
		}
		return waits
	}
	do := func(line string) (out string) {
		t.Helper()
		got := runCommand(nil, "", strings.Fields(line)...)
		if got.code != 0 {
			t.Fatalf("%s: %+v, want exit 0", line, got)
		}
		return got.out
	}
	t.Setenv("USERDB_STORE", "file:"+t.TempDir()+"/store")
	do("create user uid=u1 --namespace acme --no-password")
	if waits := drop(func() {}); waits != 0 {
		t.Errorf("a store that was never served: waited %d times, want none", waits)
	}
	t.Setenv("USERDB_STORE", redistest.Shared(t).URL())
	do("create user uid=u1 --namespace acme --no-password")
	do("apikey create old --namespace acme --scope write")
	do("apikey revoke old")
	if waits := drop(func() { do("apikey create late --namespace acme --scope write") }); waits != 2 {
		t.Errorf("waited %d times, want once for the old key and once for the key made meanwhile", waits)
	}
	if keys := do("apikey list"); strings.Contains(keys, "late") {
		t.Errorf("the key made meanwhile is left: %s", keys)
	}
}
