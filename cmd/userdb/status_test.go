package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/maintain/inspect"
)

// TestStatusOfSettings checks what 'status' prints about a server with good settings, about one
// with bad settings, and to a user who may not read settings. Warnings come last and leave the exit
// code 0.
func TestStatusOfSettings(t *testing.T) {
	server := redistest.Start(t, redistest.Config("appendonly yes", "save 900 1"))
	c, ctx := server.Client(), t.Context()
	t.Setenv("USERDB_STORE", server.URL())
	clock := regexp.MustCompile(`[+-]\d+\.\d{3} s, give or take \d+\.\d{3} s`)
	version := regexp.MustCompile(`(redis|valkey) [0-9.]+|3/[0-9.]+`)
	status := func(url string) string {
		t.Helper()
		got := runCommand(nil, "", "status", "--store", url)
		if got.code != 0 {
			t.Fatalf("status: %+v, want exit 0", got)
		}
		return version.ReplaceAllString(clock.ReplaceAllString(strings.ReplaceAll(got.out, server.Addr(), "HERE"), "CLOCK"), "VERSION")
	}
	want := `store               redis
server              HERE, VERSION, master
  when full         maxmemory-policy noeviction
  append-only file  yes, appendfsync everysec, last write ok
  snapshots         900 1, last one ok
  a crash may lose  the last second
  replicas          0 replicas, min-replicas-to-write 0
  clock             CLOCK
type user           0 entries, 4 fields, built-in schema, canonical form VERSION
namespaces          none
`
	// No column depends on the length of the address, so HERE can stand for it.
	if got := status(server.URL()); got != want {
		t.Errorf("status with good settings:\n%s\nwant\n%s", got, want)
	}

	for setting, value := range map[string]string{"appendonly": "no", "save": "", "maxmemory-policy": "allkeys-lru"} {
		if err := c.ConfigSet(ctx, setting, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	got := status(server.URL())
	last := regexp.MustCompile(`\nnamespaces +none\nWARNING: the server HERE has maxmemory-policy allkeys-lru: .*\n` +
		`WARNING: the server HERE keeps nothing on disk: .*\n$`)
	lost := "append-only file  no\n  snapshots         never, last one ok\n  a crash may lose  everything\n"
	if !last.MatchString(got) || !strings.Contains(got, lost) {
		t.Errorf("status with bad settings:\n%s\nwant what a crash may lose, and two warnings at the end", got)
	}
	var st inspect.Status
	js := runCommand(nil, "", "status", "--json")
	if js.code != 0 || json.Unmarshal([]byte(js.out), &st) != nil || len(st.Warnings) != 2 || len(st.Servers) != 1 ||
		st.Warnings[0].Code != "evicts" || st.Warnings[1].Code != "not_persistent" || st.Servers[0].Save != "never" {
		t.Errorf("status --json: %+v, want one server with the warnings evicts and not_persistent", js)
	}

	// If the user may not read settings, the status says that they are unknown.
	if err := c.Do(ctx, "acl", "setuser", "app", "on", ">secret", "~*", "+@all", "-config", "-time").Err(); err != nil {
		t.Fatal(err)
	}
	got = status("redis://app:secret@" + server.Addr())
	for _, want := range []string{
		"  snapshots         unknown, last one ok\n", "  a crash may lose  unknown\n", "min-replicas-to-write unknown\n",
		"  clock             unknown\n", "WARNING: the server HERE has maxmemory-policy",
	} {
		if !strings.Contains(got, want) || strings.Contains(got, "secret") || strings.Contains(got, "keeps nothing") {
			t.Errorf("status for a user without rights:\n%s\nwant %q, and neither \"secret\" nor \"keeps nothing\"", got, want)
		}
	}
}

// TestClockRow checks that an offset that rounds to zero has no minus sign.
func TestClockRow(t *testing.T) {
	for ahead, want := range map[float64]string{-0.3: "+0.000 s", 0.3: "+0.000 s", -1: "-0.001 s", 2000: "+2.000 s"} {
		got := ""
		serverRows(func(name string, cells ...string) {
			if name == "  clock" {
				got = cells[0]
			}
		}, inspect.Server{Clock: &inspect.Clock{Ahead: ahead, Within: 1}})
		if want += ", give or take 0.001 s"; got != want {
			t.Errorf("%v ms ahead: got %q, want %q", ahead, got, want)
		}
	}
}
