//go:build unix

package deploy_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCaddy runs Caddy, with the lines of docs/deploy.md, in front of a site. The site must get the
// header with the visitor's account, even if the visitor names that header in Connection. It must
// get no header in which the visitor claims an account, in any spelling: a site that reads headers
// as variables sees no difference between the spellings. A connection with half a header must end.
func TestCaddy(t *testing.T) {
	caddy, err := exec.LookPath("caddy")
	if err != nil {
		t.Skip("caddy is not installed")
	}
	page, err := os.ReadFile("../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, lines, found := strings.Cut(string(page), "\n    {\n        servers {")
	options, lines, _ := strings.Cut(lines, "\n    }\n    app.example.com {")
	lines, _, _ = strings.Cut(lines, "\n    }\n")
	if !found || lines == "" {
		t.Fatal("docs/deploy.md has no lines for Caddy")
	}
	names := func(h http.Header) (all []string) {
		for name, values := range h {
			if strings.HasPrefix(strings.ToLower(name), "userdb") {
				all = append(all, fmt.Sprint(name, values))
			}
		}
		return all
	}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, names(r.Header))
	}))
	defer site.Close()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Userdb-Uid", "alice")
		w.WriteHeader(http.StatusNoContent)
	}))
	defer service.Close()
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	config := "{\n\tadmin off\n\tservers {" + strings.Replace(options, "read_header 10s", "read_header 1s", 1) + "\n}\nhttp://" + address + " {" +
		strings.NewReplacer("127.0.0.1:3000", site.Listener.Addr().String(), "127.0.0.1:8470", service.Listener.Addr().String()).Replace(lines) + "\n}\n"
	file := filepath.Join(dir, "Caddyfile")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(caddy, "run", "--config", file, "--adapter", "caddyfile")
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir, "USERDB_KEY=x")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for path, want := range map[string]string{"/signin": "[]", "/account": "[Userdb-Uid[alice]]"} {
		var body string
		for end := time.Now().Add(20 * time.Second); body == "" && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			body = visit(t, address, path)
		}
		if body != want {
			t.Errorf("%s: the site got %q, want %q", path, body, want)
		}
	}
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err = io.WriteString(c, "GET /account HTTP/1.1\r\nHost: app.example.com\r\nCookie: "); err != nil {
		t.Fatal(err)
	}
	if err = c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err = io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a connection with half a header is still open")
	}
}

// visit requests a page with headers in which the visitor claims another account. It returns "" if
// nobody listens.
func visit(t *testing.T, address, path string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Userdb-Uid", "Userdb_Uid", "userdb_uid", "Userdb.Uid"} {
		r.Header[name] = []string{"victim"}
	}
	r.Header.Set("Connection", "Userdb-Uid")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
