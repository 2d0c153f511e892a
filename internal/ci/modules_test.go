package ci_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// core lists the packages that every application compiles. modules.txt lists the modules that these
// packages need. Every user of this module depends on them.
var core = []string{"userdb", "hints", "schema", "validate", "password", "recordkey"}

const (
	modulesFile = "modules.txt"
	maxModules  = 14
)

// otherModules returns the other modules whose packages the given packages import, directly or
// indirectly, sorted.
func otherModules(t *testing.T, packages ...string) []string {
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

// TestModules compares the modules that the core needs with modules.txt. With -update it rewrites
// the list.
func TestModules(t *testing.T) {
	found := otherModules(t, core...)
	if len(found) > maxModules {
		t.Errorf("the core needs %d other modules, want at most %d: %v", len(found), maxModules, found)
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
		t.Errorf("the core needs the modules\n%s\nbut %s lists\n%s\nIf the first list is right, run: go test ./internal/ci -update",
			strings.Join(found, "\n"), modulesFile, strings.Join(listed, "\n"))
	}
}

// TestUnusedModulesStayOut checks that programs do not compile modules for features that they do
// not use. The core, maintain and web must not depend on modules for metrics, tracing or serving
// HTTP. The command and the service have metrics but must not depend on modules for tracing. Only
// programs that import web/oidc or passkey may compile the modules of these packages. The command,
// the service and its console import passkey.
func TestUnusedModulesStayOut(t *testing.T) {
	openID := []string{"github.com/coreos/go-oidc/", "github.com/go-jose/", "golang.org/x/oauth2"}
	passkeys := []string{"github.com/go-webauthn/", "github.com/fxamacker/", "github.com/golang-jwt/", "github.com/google/go-tpm"}
	traces := append([]string{"go.opentelemetry.io/", "github.com/redis/go-redis/extra/"}, openID...)
	others := append([]string{"github.com/prometheus/", "github.com/danielgtaylor/"}, append(passkeys, traces...)...)
	for _, c := range []struct{ packages, excluded []string }{
		{append(slices.Clone(core), "maintain/...", "web"), others},
		{[]string{"cmd/...", "serve/..."}, traces},
		{[]string{"serve/scim", "serve/admin"}, passkeys},
		{[]string{"web/oidc"}, passkeys},
	} {
		for _, module := range otherModules(t, c.packages...) {
			for _, prefix := range c.excluded {
				if strings.HasPrefix(module, prefix) {
					t.Errorf("the packages %v depend on module %s, want no module with the prefix %s", c.packages, module, prefix)
				}
			}
		}
	}
}
