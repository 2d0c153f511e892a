//go:build unix

package deploy_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest"
)

// TestProxy runs nginx in front of two service processes, and in front of a site whose visitors
// have sessions. No request may fail when one of the processes is told to end, no visitor may claim
// an account, and no log may hold a query.
func TestProxy(t *testing.T) {
	requireProgram(t, "nginx")
	requireProgram(t, "openssl")
	store := "USERDB_STORE=" + redistest.Start(t).URL()
	var processes []*exec.Cmd
	var addresses []string
	for range 2 {
		words := strings.Fields(strings.NewReplacer(":%i", ":0", "$USERDB_FLAGS", "").Replace(unitCommand(t)))
		cmd := exec.CommandContext(t.Context(), program, words[1:]...)
		cmd.Env = append(os.Environ(), store)
		addresses = append(addresses, strings.TrimPrefix(startServing(t, cmd), "http://"))
		processes = append(processes, cmd)
	}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s at %s for %q", r.URL.EscapedPath(), r.Host, r.Header.Get("Userdb-Uid"))
	}))
	defer site.Close()
	admin := createKey(t, store, "admin")
	front, logged := startNginx(t, addresses, strings.TrimPrefix(site.URL, "http://"), createKey(t, store, "login"))

	exercise(t, front, admin)
	_, created, _ := send(t, "POST", front+"/v1/types/user/entries", admin, `{"uid":"carol","facets":{"email":"carol@example.com"}}`)
	_, session, _ := send(t, "POST", front+"/v1/types/user/entries/carol/sessions", admin, `{}`)
	_, secret, _ := strings.Cut(session, `"secret":"`)
	secret, _, _ = strings.Cut(secret, `"`)
	if secret == "" {
		t.Fatalf("no session began: %s %s", created, session)
	}
	// A visitor without a session cannot claim to be somebody: nginx redirects to the sign-in page.
	if status, body, header := send(t, "GET", front+"/account", "", "", "Host", "app.example.com", "Userdb-Uid", "carol"); status != http.StatusSeeOther || !strings.HasSuffix(header.Get("Location"), "/signin") {
		t.Errorf("the account page without a session: got %d %s, want a redirect to the sign-in page", status, body)
	}
	if status, body, _ := send(t, "GET", front+"/signin", "", "", "Host", "app.example.com", "Userdb-Uid", "carol"); status != http.StatusOK || body != `/signin at app.example.com for ""` {
		t.Errorf("the sign-in page: got %d %s, want it for app.example.com and without a UID", status, body)
	}
	// The cookie has the name that package web and the example in Node use with TLS.
	if status, body, header := send(t, "GET", front+"/account", "", "", "Host", "app.example.com:8443", "Userdb-Uid", "mallory", "Cookie", "__Host-session="+secret); status != http.StatusOK ||
		body != `/account at app.example.com:8443 for "carol"` || header.Get("Strict-Transport-Security") == "" {
		t.Errorf("the account page with a session of carol: got %d %s %v, want it for carol, with HSTS", status, body, header)
	}

	// The service refuses headers that are repeated, so nginx does not pass them on to it.
	for _, name := range []string{"Content-Type", "Idempotency-Key", "Last-Event-Id", "X-Forwarded-For"} {
		if status, body := visitTwice(t, front, secret, name); status != http.StatusOK || body != `/account at app.example.com for "carol"` {
			t.Errorf("the account page with two headers %s: got %d %s, want it for carol", name, status, body)
		}
	}

	// A browser names the port in Host and in Origin. The service compares the two, so nginx must
	// pass the port on.
	if status, body, _ := send(t, "POST", front+"/console/signin", "", "", "Host", "console.example.com:8443", "Origin", "https://console.example.com:8443"); status == http.StatusForbidden {
		t.Errorf("a form sent to port 8443: got %d %s, want any other status", status, body)
	}
	for _, path := range []string{"/console", "/console/signin"} {
		if status, body, _ := send(t, "GET", front+path, "", ""); status != http.StatusNotFound {
			t.Errorf("%s at the server for backends: got %d %s, want 404", path, status, body)
		}
	}

	checkPaths(t, front)

	uploadToConsole(t, front, store)
	send(t, "GET", front+"/v1/types/user/entries?where=email:zoe@example.com", admin, "", "Referer", "https://console.example.com/console/find?q=zoe@example.com")
	if log := logged(); !strings.Contains(log, " GET /v1/types/user/entries ") || !strings.Contains(log, " /console/import ") || strings.Contains(log, "zoe") {
		t.Errorf("the log lacks requests, or has what they search for:\n%s", log)
	}

	// Requests do not fail when a process is told to end.
	must(t, processes[0].Process.Signal(os.Interrupt))
	for done := time.Now().Add(2 * time.Second); time.Now().Before(done); {
		if status, body, _ := send(t, "POST", front+"/v1/types/user/lookup", admin, `{"value":"carol@example.com"}`); status != http.StatusOK {
			t.Fatalf("a lookup while a process ends: got %d %s, want 200", status, body)
		}
	}

	// If nothing answers, no log has the query.
	must(t, processes[1].Process.Kill())
	_ = processes[1].Wait() // killed
	site.Close()
	for host, path := range map[string]string{
		"accounts.example.com": "/v1/types?token=udb_secret", "console.example.com": "/console/find?token=udb_secret",
		"app.example.com": "/signin?token=udb_secret",
	} {
		if status, body, _ := send(t, "GET", front+path, "", "", "Host", host, "Referer", "https://"+host+"/?token=udb_secret"); status < 500 {
			t.Errorf("%s without a service: got %d %s, want 502 or 504", host, status, body)
		}
	}
	// nginx writes the line after it has sent the response.
	for end := time.Now().Add(10 * time.Second); !strings.Contains(logged(), " /v1/types 502 ") && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	if log := logged(); !strings.Contains(log, " /v1/types 502 ") || strings.Contains(log, "udb_secret") {
		t.Errorf("the logs lack a request, or have what was in its query:\n%s", log)
	}
}

// visitTwice requests the account page with a session, sends one header twice, and returns the
// status and the body of the response. The cookies are in two headers, as HTTP/2 allows.
func visitTwice(t *testing.T, front, secret, name string) (int, string) {
	t.Helper()
	c, err := tls.Dial("tcp", strings.TrimPrefix(front, "https://"), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec
	must(t, err)
	defer c.Close()
	_, err = fmt.Fprintf(c, "GET /account HTTP/1.1\r\nHost: app.example.com\r\nConnection: close\r\n%[2]s: a\r\n%[2]s: b\r\n"+
		"Cookie: lang=en\r\nCookie: __Host-session=%[1]s\r\n\r\n", secret, name)
	must(t, err)
	reply, err := http.ReadResponse(bufio.NewReader(c), nil)
	must(t, err)
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	must(t, err)
	return reply.StatusCode, string(body)
}

// checkPaths checks that nginx and the servers behind it agree where each path leads. The request
// lines are sent unchanged, because an HTTP client would normalize them.
func checkPaths(t *testing.T, front string) {
	t.Helper()
	for _, tt := range []struct {
		host, path string
		want       string // a status, or part of a page with status 200
	}{
		{"app.example.com", "/admin/..%2fsignin", "400"},
		{"app.example.com", "/admin/%2e%2E/signin", "400"},
		{"app.example.com", "/admin/../signin", "400"},
		{"app.example.com", "/admin/..%5c../signin", "400"},
		{"app.example.com", "/signin#/../admin", "400"},
		{"app.example.com", "/signin#/admin", "/signin at"},
		{"app.example.com", "//signin", "/signin at"},
		{"app.example.com", "/./%73ignin?next=/a/../b", "/signin at"},
		{"app.example.com", "/SIGNIN", "303"},
		{"app.example.com", "/signin/..", "400"},
		{"app.example.com", "/signin;a=b", "303"},
		{"app.example.com", "/signin%00", "400"},
		{"app.example.com", "/userdb-session", "404"},
		{"app.example.com", "//userdb-session", "404"},
		{"app.example.com", "/%75serdb-session", "404"},
		{"app.example.com", `/account\..\signin`, "400"},
		{"app.example.com", "/account/.;/signin", "303"},
		{"app.example.com", "https://app.example.com/admin/..%2fsignin", "400"},
		{"app.example.com", "https://app.example.com/account", "303"},
		{"accounts.example.com\r\nHost: console.example.com", "/console/signin", "400"},
		{"accounts.example.com", "/console;x/signin", "404"},
		{"accounts.example.com", "/CONSOLE/signin", "404"},
		{"accounts.example.com", "/v1/types/%2e/%2e%2e%2f..%2fconsole", "400"},
		{"accounts.example.com", "/console/accounts/user/..%2f..%2f..%2f..%2fv1", "400"},
		{"accounts.example.com", "/%63onsole/%2e%2e%2fv1", "400"},
		{"accounts.example.com", "/.//%63onsole/signin", "404"},
		{"accounts.example.com", "/v1/..%2fconsole/signin", "400"},
		{"accounts.example.com", "/v1/types/user/entries/a..%2fb", "401"},
		{"accounts.example.com", "/v1/types/user/entries/...", "401"},
		{"console.example.com", "/v1/types/..%2f..%2fconsole", "400"},
		{"console.example.com", "/v1/types", "404"},
	} {
		c, err := tls.Dial("tcp", strings.TrimPrefix(front, "https://"), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec
		must(t, err)
		_, err = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", tt.path, tt.host)
		must(t, err)
		answer, err := io.ReadAll(c)
		must(t, err)
		must(t, c.Close())
		head, body, _ := strings.Cut(string(answer), "\r\n\r\n")
		status, _, _ := strings.Cut(strings.TrimPrefix(head, "HTTP/1.1 "), " ")
		if status != tt.want && !(status == "200" && strings.Contains(body, tt.want)) {
			t.Errorf("%s at %s: got %s %s, want %s", tt.path, tt.host, status, body, tt.want)
		}
	}
}

// TestRequestBuffering checks that nginx forwards a request only when it has received all of it, so
// that slow clients occupy only nginx. Imports are exceptions, because only administrators and
// operators send them.
func TestRequestBuffering(t *testing.T) {
	var unbuffered []string
	location := ""
	for line := range strings.Lines(read(t, "nginx.conf")) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "location" {
			location, _, _ = strings.Cut(strings.Join(words[1:], " "), " {")
		} else if strings.Contains(line, "proxy_request_buffering off") {
			unbuffered = append(unbuffered, location)
		}
	}
	if want := []string{"~ ^/v1/types/[^/]+/import$", "= /console/import"}; !slices.Equal(unbuffered, want) {
		t.Errorf("nginx forwards requests unbuffered at %q, want %q", unbuffered, want)
	}
}

// uploadToConsole signs in to the console and uploads a file that is longer than nginx allows by
// default. Only the process that has the file shows its lines.
func uploadToConsole(t *testing.T, front, store string) {
	t.Helper()
	add := exec.CommandContext(t.Context(), program, "operator", "add", "root", "--password-stdin")
	add.Env, add.Stdin = append(os.Environ(), store), strings.NewReader("correct horse battery\n")
	if out, err := add.CombinedOutput(); err != nil {
		t.Fatalf("operator add: %v\n%s", err, out)
	}
	const form, host = "application/x-www-form-urlencoded", "console.example.com"
	status, body, header := send(t, "POST", front+"/console/signin", "", "name=root&password=correct+horse+battery", "Content-Type", form, "Host", host)
	if status != http.StatusSeeOther {
		t.Fatalf("signing in: got %d %s, want 303", status, body)
	}
	if cookie := header.Get("Set-Cookie"); !strings.Contains(cookie, "; Secure") || !strings.HasPrefix(cookie, "__Host-") {
		t.Errorf("the cookie is %q, want it to begin __Host- and to have Secure", cookie)
	}
	cookie, _, _ := strings.Cut(header.Get("Set-Cookie"), ";")
	file := "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"people.csv\"\r\n\r\nname\n" + strings.Repeat("no name\a\n", 300_000) + "\r\n--x--\r\n"
	status, body, header = send(t, "POST", front+"/console/import", "", file, "Content-Type", "multipart/form-data; boundary=x", "Cookie", cookie, "Host", host)
	if status != http.StatusSeeOther {
		t.Fatalf("a long file: got %d %s, want 303", status, body)
	}
	for range 20 {
		if _, body, _ = send(t, "GET", front+header.Get("Location"), "", "", "Cookie", cookie, "Host", host); !strings.Contains(body, "Nothing has been written yet") {
			t.Fatalf("a request of the operator went to the other process:\n%s", body)
		}
	}
}

// TestSlowHeaders checks that nginx soon closes a connection whose client does not send a whole
// header: no limit counts such a connection, so an address could use up all connections of nginx.
func TestSlowHeaders(t *testing.T) {
	requireProgram(t, "nginx")
	requireProgram(t, "openssl")
	const nobody = "127.0.0.1:1"
	front, _ := startNginx(t, []string{nobody, nobody}, nobody, "udb_none", "client_header_timeout 10s", "client_header_timeout 1s")
	for _, host := range []string{"accounts.example.com", "console.example.com", "app.example.com"} {
		c, err := tls.Dial("tcp", strings.TrimPrefix(front, "https://"), &tls.Config{InsecureSkipVerify: true, ServerName: host}) //nolint:gosec
		must(t, err)
		defer c.Close()
		_, err = fmt.Fprintf(c, "GET /v1/types HTTP/1.1\r\nHost: %s\r\nCookie: ", host)
		must(t, err)
		must(t, c.SetReadDeadline(time.Now().Add(30*time.Second)))
		if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: a connection with half a header is still open", host)
		}
	}
}

// TestSlowBodies checks that an address cannot use up nginx's connections with bodies that it sends
// slowly, to any of the servers.
func TestSlowBodies(t *testing.T) {
	requireProgram(t, "nginx")
	requireProgram(t, "openssl")
	const nobody = "127.0.0.1:1"
	front, _ := startNginx(t, []string{nobody, nobody}, nobody, "udb_none",
		"limit_conn userdb 1000", "limit_conn userdb 1", "limit_conn userdb-console 100", "limit_conn userdb-console 1", "limit_conn userdb-site 200", "limit_conn userdb-site 1")
	for host, path := range map[string]string{"accounts.example.com": "/v1/types/user/login", "console.example.com": "/console/signin", "app.example.com": "/signin"} {
		begin := func() net.Conn {
			c, err := tls.Dial("tcp", strings.TrimPrefix(front, "https://"), &tls.Config{InsecureSkipVerify: true, ServerName: host}) //nolint:gosec
			must(t, err)
			t.Cleanup(func() { _ = c.Close() }) // nginx may have closed it
			_, err = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 10\r\n\r\n1", path, host)
			must(t, err)
			return c
		}
		// nginx may read the two requests in any order, and answers only the one that it refuses.
		answers := make(chan string, 2)
		for _, c := range []net.Conn{begin(), begin()} {
			go func() {
				line, _ := bufio.NewReader(c).ReadString('\n') // the other one ends with the test
				answers <- line
			}()
		}
		select {
		case line := <-answers:
			if !strings.Contains(line, " 503 ") {
				t.Errorf("%s: one of two requests at a time got %q, want 503", host, line)
			}
		case <-time.After(30 * time.Second):
			t.Errorf("%s: nginx refuses neither of two requests at a time", host)
		}
	}
}

// TestAddressesOfOnePrefix checks that nginx limits all addresses of an IPv6 /64 prefix together,
// but apart from the addresses of other prefixes and from IPv4 addresses.
func TestAddressesOfOnePrefix(t *testing.T) {
	requireProgram(t, "nginx")
	requireProgram(t, "openssl")
	const nobody = "127.0.0.1:1"
	front, _ := startNginx(t, []string{nobody, nobody}, nobody, "udb_none",
		"limit_conn userdb 1000", "limit_conn userdb 1; set_real_ip_from 127.0.0.1; real_ip_header X-Visitor")
	// begin sends a header and returns the status with which nginx asks for the body, or refuses.
	begin := func(visitor string) string {
		c, err := tls.Dial("tcp", strings.TrimPrefix(front, "https://"), &tls.Config{InsecureSkipVerify: true, ServerName: "accounts.example.com"}) //nolint:gosec
		must(t, err)
		t.Cleanup(func() { _ = c.Close() }) // nginx may have closed it
		must(t, c.SetDeadline(time.Now().Add(30*time.Second)))
		_, err = fmt.Fprintf(c, "POST /v1/types/user/login HTTP/1.1\r\nHost: accounts.example.com\r\nX-Visitor: %s\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n", visitor)
		must(t, err)
		line, err := bufio.NewReader(c).ReadString('\n')
		must(t, err)
		return strings.Fields(line)[1]
	}
	const reads, refuses = "100", "503"
	for _, tt := range []struct{ visitor, want string }{
		{"2001:db8:1:2::1", reads},
		{"2001:db8:1:2:f:e:d:c", refuses},
		{"2001:db8:1:3::1", reads},
		{"2001:db8:1::1", reads},
		{"2001:db8:1::2:3", refuses},
		{"2001:db8:1:0:a:b:c:d", refuses},
		{"2001:db8:0:0:1::", reads},
		{"2001:db8::1:2:3:4", refuses},
		{"2001:db8:0:1::", reads},
		{"::1", reads},
		{"192.0.2.7", reads},
		{"192.0.2.8", reads},
		{"192.0.2.8", refuses},
		{"::ffff:192.0.2.9", reads},
		{"192.0.2.9", refuses},
	} {
		if got := begin(tt.visitor); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.visitor, got, tt.want)
		}
	}
}

// startNginx starts nginx with nginx.conf, and returns its URL and a function that returns its log.
// replace holds pairs of a text in the file and the text to put in its place.
func startNginx(t *testing.T, services []string, site, key string, replace ...string) (url string, logged func() string) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755)) //nolint:gosec // for nginx, which is another user
	must(t, os.Chmod(dir, 0o755))               //nolint:gosec
	cert, certKey := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	output(t, nil, "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
		"-subj", "/CN=accounts.example.com", "-keyout", certKey, "-out", cert)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	front := l.Addr().String()
	must(t, l.Close())
	write(t, filepath.Join(dir, "userdb-key.conf"), `proxy_set_header Authorization "Bearer `+key+"\";\n")
	conf := strings.NewReplacer(append(replace,
		"127.0.0.1:8470", services[0], "127.0.0.1:8471", services[1], "127.0.0.1:3000", site,
		"/var/log/nginx/", dir+"/", "listen 443 ssl", "listen "+front+" ssl", "/etc/nginx/tls/", dir+"/", "/etc/nginx/userdb-key.conf", filepath.Join(dir, "userdb-key.conf"),
	)...).Replace(read(t, "nginx.conf"))
	temporary := ""
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temporary += kind + "_temp_path " + filepath.Join(dir, kind) + ";\n"
	}
	main := filepath.Join(dir, "nginx.conf")
	write(t, main, "daemon off;\nmaster_process off;\npid "+dir+"/pid;\nerror_log "+dir+"/error.log warn;\nevents {}\nhttp {\naccess_log off;\n"+temporary+conf+"}\n")
	cmd := exec.CommandContext(t.Context(), "nginx", "-p", dir, "-c", main)
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // ended by the signal
	})
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		// The certificate is the test's own.
		c, err := tls.Dial("tcp", front, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec
		if err == nil {
			must(t, c.Close())
			return "https://" + front, func() string {
				logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
				must(t, err)
				text := ""
				for _, log := range logs {
					text += read(t, log)
				}
				return text
			}
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
