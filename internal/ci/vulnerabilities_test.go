// Package ci_test tests the scripts that CI runs and checks rules for the whole repository.
package ci_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// database creates a vulnerability database with one entry, for a function of golang.org/x/text.
func database(t *testing.T, function string) (url string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"index/db.json":      `{"modified":"2020-01-01T00:00:00Z"}`,
		"index/modules.json": `[{"path":"golang.org/x/text","vulns":[{"id":"GO-2000-0001","modified":"2020-01-01T00:00:00Z"}]}]`,
		"ID/GO-2000-0001.json": `{"schema_version":"1.3.1","id":"GO-2000-0001","modified":"2020-01-01T00:00:00Z",
			"published":"2020-01-01T00:00:00Z","details":"made up for a test","database_specific":{"url":""},
			"affected":[{"package":{"name":"golang.org/x/text","ecosystem":"Go"},"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],
			"ecosystem_specific":{"imports":[{"path":"golang.org/x/text/unicode/norm","symbols":["` + function + `"]}]}}]}`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return "file://" + dir
}

// closedPort returns the URL of a local port that refuses connections.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

const outOfReach = "the database is out of reach"

func TestVulnerabilities(t *testing.T) {
	if testing.Short() {
		t.Skip("builds govulncheck")
	}

	if out, err := exec.Command("go", "tool", "-n", "govulncheck").CombinedOutput(); err != nil {
		t.Fatalf("building govulncheck: %v\n%s", err, out)
	}
	for _, tt := range []struct {
		name, env string
		code      int
		want      string
	}{
		{"vulnerable function that is called", "USERDB_VULNDB=" + database(t, "Form.String"), 3, "GO-2000-0001"},
		{"vulnerable function that nobody calls", "USERDB_VULNDB=" + database(t, "Iter.Seek"), 0, "No vulnerabilities found"},
		{"no network", "HTTPS_PROXY=" + closedPort(t), 0, outOfReach},
		{"unsupported kind of database", "USERDB_VULNDB=mailto:nobody", 1, "unsupported scheme"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command("../../.ci/vulnerabilities", "./validate")
			cmd.Env = append(os.Environ(), tt.env)
			out, _ := cmd.CombinedOutput() // the exit code is checked below
			if code := cmd.ProcessState.ExitCode(); code != tt.code || !strings.Contains(string(out), tt.want) {
				t.Errorf("got code %d, want %d, and %q in:\n%s", code, tt.code, tt.want, out)
			}
			if tt.want == outOfReach && strings.Count(string(out), "\n") != 1 {
				t.Errorf("want one line of output, got:\n%s", out)
			}
		})
	}
}
