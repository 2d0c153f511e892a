package docs_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestServeCommands checks that the commands with which a page starts the service send nothing to
// another service that has its port, and keep the key of their first run if they run again.
func TestServeCommands(t *testing.T) {
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, "userdb"), "../cmd/userdb")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	seen := 0
	for _, page := range pages(t) {
		for _, code := range blocks(t, page, "sh") {
			if !strings.Contains(code, "userdb apikey create") {
				continue
			}
			seen++
			t.Run(page, func(t *testing.T) {
				requests := make(chan string, 100)
				l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:8470")
				if err != nil {
					t.Fatal(err)
				}
				other := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { requests <- r.URL.Path }))
				other.Listener.Close()
				other.Listener = l
				other.Start()
				dir := t.TempDir()
				runScript(t, bin, dir, code+"true\n")
				other.Close()
				if len(requests) > 0 {
					t.Errorf("another service got %d requests, first %s", len(requests), <-requests)
				}
				runScript(t, bin, dir, "rm -f *key*\n"+code+"cp *-key.txt first\ntest -s first\n"+code+"cmp *-key.txt first\n")
			})
		}
	}
	if seen < 4 {
		t.Errorf("found only %d blocks that start the service, want at least 4", seen)
	}
}
