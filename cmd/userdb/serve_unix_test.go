//go:build unix

package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest"
)

// A serviceProcess is 'userdb serve' in a separate process.
type serviceProcess struct {
	t     *testing.T
	cmd   *exec.Cmd
	store string
	url   string
	lines chan string // of standard error, except the one with the URL
}

// serveOn starts a service on a store, and returns when it listens. It ends with the test.
func serveOn(t *testing.T, store string, flags ...string) *serviceProcess {
	t.Helper()
	cmd, _ := newProcess(t, store, append([]string{"serve", "--listen=127.0.0.1:0"}, flags...)...)
	cmd.Stderr = nil
	errs, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	in := bufio.NewReader(errs)
	s := &serviceProcess{t, cmd, store, "", make(chan string, 100_000)}
	for s.url == "" {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("the service prints %q, %v; want its address", line, err)
		}
		url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
		if ok {
			s.url = url
		} else {
			s.lines <- line
		}
	}
	go func() {
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				close(s.lines)
				return
			}
			select {
			case s.lines <- line:
			default:
			}
		}
	}()
	return s
}

// run runs another command on the same store and returns its output.
func (s *serviceProcess) run(args ...string) string {
	s.t.Helper()
	cmd, errs := newProcess(s.t, s.store, args...)
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("userdb %q: %v, want exit 0: %s", args, err, errs)
	}
	return strings.TrimSpace(string(out))
}

// ask sends a request and returns the status and the body.
func (s *serviceProcess) ask(key, method, path, body string, headers ...string) (int, map[string]any, error) {
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	var m map[string]any
	_ = json.Unmarshal(text, &m)
	return res.StatusCode, m, err
}

// checkMetrics checks that the metrics contain all words. One of the first lines of the log has
// their address.
func (s *serviceProcess) checkMetrics(words ...string) {
	s.t.Helper()
	url, ok := "", false
	for i := 0; i < 3 && !ok; i++ {
		url, ok = strings.CutPrefix(strings.TrimSpace(<-s.lines), "metrics at ")
	}
	if !ok {
		s.t.Fatal("the service does not print the address of the metrics")
	}
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	for _, word := range words {
		if err != nil || !strings.Contains(string(text), word) {
			s.t.Errorf("the metrics lack %s: %v\n%s", word, err, text)
		}
	}
}

// stop sends a signal and returns the exit code.
func (s *serviceProcess) stop(sig os.Signal) int {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
	return exitCode(s.cmd.Wait())
}

// TestServe checks that other commands can use the file of a running service, that the service
// stops on SIGTERM, and that its log contains no names and no secrets.
func TestServe(t *testing.T) {
	store := "file:" + filepath.Join(t.TempDir(), "users.jsonl")
	s := serveOn(t, store, "--metrics=127.0.0.1:0")
	key := s.run("apikey", "create", "web", "--scope", "write", "read", "--type", "user")
	if status, body, err := s.ask(key, "POST", "/v1/types/user/entries", `{"facets":{"name":"alice"}}`); status != 201 {
		t.Fatalf("create: %d %v %v, want 201", status, body, err)
	}
	s.checkMetrics(`userdb_http_request_duration_seconds_count{operation="createEntry",status="201"} 1`, `userdb_verb_duration_seconds_count{outcome="ok",verb="Create"}`, "go_goroutines")
	if got := s.run("count", "user"); got != "1" {
		t.Errorf("another command counts %s entries, want 1", got)
	}
	s.run("create", "user", "name=bob", "--no-password")
	if status, body, _ := s.ask(key, "POST", "/v1/types/user/lookup", `{"value":"BOB"}`); status != 200 {
		t.Errorf("looking up an entry that another command created: %d %v, want 200", status, body)
	}
	if got := s.run("apikey", "list"); !strings.HasPrefix(got, "web, write read, types user, made by command at ") {
		t.Errorf("apikey list prints %q, want the key web with its scopes and type", got)
	}
	if got := s.stop(syscall.SIGTERM); got != 0 {
		t.Errorf("after SIGTERM: exit code %d, want 0", got)
	}
	if _, err := os.Stat(strings.TrimPrefix(store, "file:") + ".sock"); err == nil {
		t.Error("the socket is still there")
	}
	if got := s.run("count", "user"); got != "2" {
		t.Errorf("after the service ended there are %s entries, want 2", got)
	}
	for range 3 {
		<-s.lines // addresses of accounts and console, and the set-up link
	}
	for line := range s.lines {
		if strings.Contains(line, "alice") || strings.Contains(line, "udb_") || !json.Valid([]byte(line)) {
			t.Errorf("the log has a line that is not JSON, or reveals a name or a key: %s", line)
		}
	}
}

// certificate writes a certificate for this machine, and its key, to files.
func certificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		BasicConstraintsValid: true, IsCA: true,
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: signed}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestServeTLS checks that a service with a certificate answers only with TLS.
func TestServeTLS(t *testing.T) {
	cert, key := certificate(t, t.TempDir())
	s := serveOn(t, "memory:", "--tls-cert", cert, "--tls-key", key)
	text, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
	res, err := client.Get(s.url + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	if res.Body.Close(); res.StatusCode != 200 || res.ProtoMajor != 2 {
		t.Errorf("got %d by %s, want 200 by HTTP/2", res.StatusCode, res.Proto)
	}
	if res, err := http.Get(strings.Replace(s.url, "https", "http", 1) + "/healthz"); err == nil {
		if res.Body.Close(); res.StatusCode == 200 {
			t.Error("the service answers a request without TLS")
		}
	}
}

// TestServeExamples checks that the examples in the help work.
func TestServeExamples(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificate(t, dir)
	for line := range strings.Lines(serveCommand(newSession(stdio{})).Example) {
		line = strings.NewReplacer(":8470", ":0", ":9470", ":0", "cert.pem", cert, "key.pem", key).Replace(line)
		s := serveOn(t, "memory:", strings.Fields(line)[2:]...)
		if got := s.stop(syscall.SIGINT); got != 0 {
			t.Errorf("%s: exit code %d, want 0", line, got)
		}
	}
}

// TestServeRefuses checks that serve, apikey and events refuse bad addresses, bad values of flags,
// and flags without other flags that they need. serve must not listen beyond this machine without
// TLS, or open a file that another process uses.
func TestServeRefuses(t *testing.T) {
	for _, line := range []string{
		"serve --listen :0", "serve --listen 0.0.0.0:0", "serve --listen [::]:0", "serve --listen nosuch", "serve --tls-cert x", "serve --tls-cert x --tls-key y",
		"serve --proxy 10.0.0.0/8", "serve --proxy x --behind-proxy", "serve --listen 127.0.0.1:0 --metrics nosuch", "apikey create x", "apikey create x --scope root",
		"apikey create --scope read -- a/b", "apikey create x --scope read --type nosuch", "apikey create x --scope read --expires 0s", "apikey revoke",
		"serve --listen 127.0.0.1:0 --scim-username name", "serve --listen 127.0.0.1:0 --scim --scim-username nosuch", "serve --listen 127.0.0.1:0 --scim --scim-map x",
		"serve --listen 127.0.0.1:0 --scim --scim-map x=a --scim-map y=a", "serve --listen 127.0.0.1:0 --scim --scim-mapping /nosuch",
		"serve --listen 127.0.0.1:0 --scim --scim-mapping /dev/null",
		"serve --listen 127.0.0.1:0 --reset-link https://shop.example/reset", "serve --listen 127.0.0.1:0 --reset-link /reset?token={secret}",
		"serve --listen 127.0.0.1:0 --reset-link javascript:{secret}", "serve --listen 127.0.0.1:0 --reset-link https://a/{secret} --console=false",
	} {
		cmd, errs := newProcess(t, "memory:", strings.Fields(line)...)
		if err := cmd.Run(); exitCode(err) != 2 {
			t.Errorf("%s: %v, want exit 2: %s", line, err, errs)
		}
	}
	s := serveOn(t, "file:"+filepath.Join(t.TempDir(), "users.jsonl"))
	s.run("apikey", "create", "web", "--scope", "read")
	for _, tt := range []struct {
		store, line string
		code        int
		want        string
	}{
		{"memory:", "serve --listen=127.0.0.1:0 --scim --scim-mapping=/", 2, "is a directory"},
		{"memory:", "serve --listen 8470", 2, "with a port"},
		{"memory:", "serve --listen 127.0.0.1: --metrics 127.0.0.1:0", 2, "with a port"},
		{"memory:", "serve --listen 127.0.0.1:0 --metrics 9470", 2, "with a port"},
		{"memory:", "serve --listen " + strings.TrimPrefix(s.url, "http://"), 2, "stop what is listening there, or choose another port"},
		{"memory:", "serve --listen 127.0.0.1:0 --behind-proxy --proxy proxy.example", 2, "want addresses such as 10.0.0.0/8 or 192.0.2.7"},
		{"memory:", "serve --listen 127.0.0.1:0 --session-cookie a;b", 2, "--session-cookie"},
		{"memory:", "serve --listen 127.0.0.1:0 --session-cookie=", 2, "--session-cookie"},
		{"memory:", "serve --listen 127.0.0.1:0 --passkey-rp example.com", 2, "--passkey-rp needs --passkey-origin or --console-origin"},
		{"memory:", "serve --listen 127.0.0.1:0 --passkey-origin https://example.com", 2, "and they need it"},
		{"memory:", "serve --listen 127.0.0.1:0 --console-origin https://example.com", 2, "and they need it"},
		{"memory:", "serve --listen 127.0.0.1:0 --passkey-rp example.com --console-origin https://example.com/console", 2, "is not an origin"},
		{"memory:", "serve --listen 127.0.0.1:0 --passkey-rp example.com --console-origin https://example.com --console=false", 2, "--console=false"},
		{"memory:", "serve --listen 127.0.0.1:0 --passkey-rp example.com --console-origin https://example.com", 2, "give --key-file"},
		{"memory:", "serve --listen 127.0.0.1:0 --passkey-rp example.com --passkey-origin https://example.org", 2, `"https://example.org" does not belong to the relying party "example.com"`},
		{"memory:", "serve --listen 127.0.0.1:0 --passkey-rp example.com --passkey-origin http://example.com", 2, "only over https"},
		{"memory:", "serve --listen 127.0.0.1:0 --passkey-rp https://example.com --passkey-origin https://example.com", 2, "must be a domain in lower case"},
		{"memory:", "serve --listen 127.0.0.1:0 --passkey-rp localhost --passkey-origin http://localhost:3000", 2, "give --key-file"},
		{lockedFile(t), "serve --listen 127.0.0.1:0 --timeout 100ms", 6, "file is locked by another process"},
		{s.store, "serve --listen 127.0.0.1:0", 2, "another 'userdb serve' is using the file"},
		{s.store, "apikey create WEB --scope read", 4, "key WEB: a key of that name exists (case does not matter): revoke it, or choose another name\n"},
		{s.store, "events --kind logins", 2, "login_failed"},
	} {
		cmd, errs := newProcess(t, tt.store, strings.Fields(tt.line)...)
		if err := cmd.Run(); exitCode(err) != tt.code || !strings.Contains(errs.String(), tt.want) {
			t.Errorf("%s: %v, %s; want exit %d, %s", tt.line, err, errs, tt.code, tt.want)
		}
	}
	cmd, errs := newProcess(t, "memory:", "apikey", "revoke", "nosuch")
	if err := cmd.Run(); exitCode(err) != 3 {
		t.Errorf("a key that does not exist: %v, want exit 3: %s", err, errs)
	}
}

// TestServeKilled checks that each create with an idempotency key, sent until it is answered, makes
// exactly one entry, even if the service is killed again and again.
func TestServeKilled(t *testing.T) {
	for _, name := range []string{"redis", "file"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, creates := "file:"+filepath.Join(t.TempDir(), "users.jsonl"), 100
			if name == "redis" {
				store, creates = redistest.Start(t).URL(), 1000
			}
			running := serveOn(t, store)
			key := running.run("apikey", "create", "web", "--scope", "write", "read")
			var mu sync.Mutex
			current := func() *serviceProcess { mu.Lock(); defer mu.Unlock(); return running }
			made := make([]string, creates)
			answered := make(chan bool, creates)
			var all sync.WaitGroup
			for w := range 8 {
				all.Go(func() {
					for i := w; i < creates; i += 8 {
						for begin := time.Now(); made[i] == "" && time.Since(begin) < 2*time.Minute; {
							status, body, err := current().ask(key, "POST", "/v1/types/user/entries", fmt.Sprintf(`{"facets":{"name":"user%d"}}`, i), "Idempotency-Key", fmt.Sprint(i))
							switch {
							case err == nil && status == 201:
								made[i] = fmt.Sprint(body["uid"])
								answered <- true
							case err == nil && status != 409 && status != 503:
								t.Errorf("create %d: %d %v, want 201, 409 or 503", i, status, body)
								return
							default:
								time.Sleep(50 * time.Millisecond)
							}
						}
					}
				})
			}
			for kill := range 4 {
				for range creates / 6 {
					<-answered
				}
				mu.Lock()
				_ = running.cmd.Process.Signal(syscall.SIGKILL)
				_ = running.cmd.Wait()
				running = serveOn(t, store)
				mu.Unlock()
				t.Logf("killed %d times", kill+1)
			}
			all.Wait()
			seen := map[string]int{}
			for i, uid := range made {
				if uid == "" {
					t.Errorf("create %d got no UID", i)
				} else if other, twice := seen[uid]; twice {
					t.Errorf("create %d got the UID %q, which create %d also got", i, uid, other)
				}
				seen[uid] = i
				status, body, err := current().ask(key, "POST", "/v1/types/user/lookup", fmt.Sprintf(`{"value":"user%d"}`, i))
				if status != 200 || body["uid"] != uid {
					t.Errorf("create %d returned %s, but a lookup of its name: %d %v %v", i, uid, status, body, err)
				}
			}
			if got := current().run("count", "user"); got != fmt.Sprint(creates) {
				t.Errorf("there are %s entries, want %d", got, creates)
			}
			current().run("check", "--json") // it exits 7 on damage
		})
	}
}
