package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest"
)

// TestGetManyTags checks that get prints tags that are together larger than a facet may be.
func TestGetManyTags(t *testing.T) {
	useFile(t)
	create := []string{"create", "user", "uid=a", "--no-password"}
	for i := range 100 {
		create = append(create, fmt.Sprintf("--tag=%d%s", i, strings.Repeat("x", 1000)))
	}
	if got := runCommand(nil, "", create...); got.code != 0 {
		t.Fatal(got.err)
	}
	got := runCommand(nil, "", "get", "a", "--json")
	var entry struct {
		Tags []string `json:"~tags"`
	}
	if err := json.Unmarshal([]byte(got.out), &entry); err != nil || len(entry.Tags) != 100 {
		t.Errorf("get --json: %d tags, %v, exit code %d, %s", len(entry.Tags), err, got.code, got.err)
	}
	if got = runCommand(nil, "", "get", "a"); got.code != 0 || !strings.Contains(got.out, `"99xxx`) {
		t.Errorf("get: exit code %d, %s", got.code, got.err)
	}
}

// TestRemoveFailsHalfway checks that remove says how far it came if the server stops to answer.
func TestRemoveFailsHalfway(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Shared(t))
	t.Setenv("USERDB_STORE", proxy.URL())
	for _, uid := range []string{"a", "b", "c"} {
		if got := runCommand(nil, "", "create", "user", "uid="+uid, "name=name-"+uid, "--no-password"); got.code != 0 {
			t.Fatal(got.err)
		}
	}
	order := strings.Fields(runCommand(nil, "", "walk", "user/uid:*").out)
	if len(order) != 3 {
		t.Fatalf("walk: %q", order)
	}
	proxy.CutRequests(-1, "name-"+order[2][len("user/uid:"):])
	got := runCommand(nil, "", "remove", "user/uid:*", "--yes")
	const want = "userdb: warning: stopped after 2 records; the same command removes the rest\n"
	if got.code != 6 || got.out != "" || !strings.HasPrefix(got.err, want) {
		t.Errorf("remove: exit code %d, output %q, errors %q", got.code, got.out, got.err)
	}
	proxy.Pass()
	if got = runCommand(nil, "", "remove", "user/uid:*", "--yes"); got.out != "1\n" {
		t.Errorf("remove again: %q, %s", got.out, got.err)
	}
}
