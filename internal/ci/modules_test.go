package ci_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// core are the packages that an application compiles in any case. What of other people's it compiles with them is in
// modules.txt: who takes this module on, takes these on.
var core = []string{"userdb", "hints", "schema", "validate", "password", "recordkey"}

const (
	modulesFile = "modules.txt"
	mostModules = 14
)

// outside are the modules of others that packages import, directly or not, sorted.
func outside(t *testing.T, packages ...string) []string {
	t.Helper()
	args := []string{"list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}"}
	for _, p := range packages {
		args = append(args, "../../"+p)
	}
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Fields(string(out))
	slices.Sort(all)
	return slices.Compact(all)
}

// TestModules: no module comes into the core, or leaves it, without a line in the list.
func TestModules(t *testing.T) {
	found := outside(t, core...)
	if len(found) > mostModules {
		t.Errorf("the core needs %d modules of others, want at most %d: %v", len(found), mostModules, found)
	}
	if *update {
		if err := os.WriteFile(modulesFile, []byte(strings.Join(found, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(modulesFile)
	if err != nil {
		t.Fatal(err)
	}
	if listed := strings.Fields(string(text)); !slices.Equal(found, listed) {
		t.Errorf("the core needs\n%s\nand by %s\n%s\nIf that is as it should be: go test ./internal/ci -update",
			strings.Join(found, "\n"), modulesFile, strings.Join(listed, "\n"))
	}
}

// TestWatchersStayOut: who neither counts nor traces compiles nothing of it, and who does not serve nothing of what that needs. The
// command serves, and counts where it does.
func TestWatchersStayOut(t *testing.T) {
	traces := []string{"go.opentelemetry.io/", "github.com/redis/go-redis/extra/"}
	others := append([]string{"github.com/prometheus/", "github.com/danielgtaylor/"}, traces...)
	for _, c := range []struct{ packages, out []string }{
		{append(slices.Clone(core), "maintain/...", "web"), others}, {[]string{"cmd/...", "serve/..."}, traces},
	} {
		for _, module := range outside(t, c.packages...) {
			for _, of := range c.out {
				if strings.HasPrefix(module, of) {
					t.Errorf("%v: %s is compiled", c.packages, module)
				}
			}
		}
	}
}
