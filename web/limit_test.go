package web_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// limitURL names the environment variable with the store of TestLimitProcess.
const limitURL = "USERDB_TEST_LIMIT_URL"

// TestLimitProcess sends requests in one of the processes of TestLimitAcrossProcesses.
func TestLimitProcess(t *testing.T) {
	url := os.Getenv(limitURL)
	if url == "" {
		t.Skip("runs in TestLimitAcrossProcesses")
	}
	users := openUsers(t, url, userdb.Options{})
	limit := web.Limit{Auth: web.Auth{Users: users}, Name: "comments", Max: 100}
	handler := limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	var admitted, refused atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				w := httptest.NewRecorder()
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
				r.RemoteAddr = "192.0.2.7:1000"
				switch handler.ServeHTTP(w, r); {
				case w.Code == http.StatusNoContent:
					admitted.Add(1)
				case w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") != "" && w.Header().Get("Vary") == "Accept-Language":
					refused.Add(1)
				default:
					t.Errorf("got %d %v, want 204, or 429 with Retry-After and Vary", w.Code, w.Header())
				}
			}
		})
	}
	all.Wait()
	fmt.Printf("\nadmitted %d\n", admitted.Load())
	if n := admitted.Load() + refused.Load(); n != 160 {
		t.Errorf("got %d answers, want 160", n)
	}
}

// TestLimitAcrossProcesses checks that two processes together admit exactly as many requests as the
// limit allows.
func TestLimitAcrossProcesses(t *testing.T) {
	url := redistest.Start(t).URL()
	openUsers(t, url, userdb.Options{}) // stores the schema
	var outputs [2][]byte
	var all sync.WaitGroup
	for i := range outputs {
		all.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLimitProcess$", "-test.count=1")
			cmd.Env = append(os.Environ(), limitURL+"="+url)
			var err error
			if outputs[i], err = cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, outputs[i])
			}
		})
	}
	all.Wait()
	sum := 0
	for _, out := range outputs {
		_, text, _ := strings.Cut(string(out), "admitted ")
		var n int
		if _, err := fmt.Sscan(text, &n); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		sum += n
	}
	if sum != 100 {
		t.Errorf("two processes admitted %d requests, want 100", sum)
	}
}

// TestLimitOfVisitors checks that two addresses share no counter, unless they are IPv6 addresses
// with the same first half, and that visitors who are signed in share none with those who are not.
func TestLimitOfVisitors(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	p := newSite(t, false, func(a *web.Auth) { a.Proxies = proxies })
	limit := web.Limit{Auth: p.auth, Name: "comments", Max: 2}
	var last error
	mux := http.NewServeMux()
	mux.Handle("/signin", p.server.Config.Handler)
	mux.Handle("/comment", p.auth.Visitor(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { last = limit.Allow(r) })))
	p.server.Config.Handler = mux
	from, admitted := "", 0
	for _, tt := range []struct {
		from     string
		admitted int
	}{{"192.0.2.1", 2}, {"192.0.2.2", 2}, {"2001:db8::1", 2}, {"2001:db8::2", 0}, {"signed in", 2}, {"192.0.2.1", 0}} {
		if from, admitted = tt.from, 0; from == "signed in" {
			p.do("POST", "/signin", "identifier", "alice", "password", goodPassword)
		}
		for range 4 {
			req, err := http.NewRequestWithContext(t.Context(), "POST", p.server.URL+"/comment", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Forwarded-For", strings.Replace(from, "signed in", "192.0.2.1", 1))
			resp, err := p.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if last == nil {
				admitted++
			} else if !errors.Is(last, userdb.ErrTooManyAttempts) {
				t.Fatal(last)
			}
		}
		if admitted != tt.admitted {
			t.Errorf("%s: admitted %d, want %d", tt.from, admitted, tt.admitted)
		}
		if tt.from == "signed in" { // from here on without the session
			p.client.Jar = nil
		}
	}
}

// TestLimitWithoutStore checks that a limit does not let requests through if the store does not
// answer, and that a visitor without an address is not limited.
func TestLimitWithoutStore(t *testing.T) {
	p := newSite(t, false, nil)
	limit := web.Limit{Auth: p.auth, Max: 1, Window: time.Minute}
	calls := 0
	handler := limit.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls++ }))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.RemoteAddr = "@"
	for range 3 {
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	if calls != 3 {
		t.Errorf("admitted %d requests without an address, want 3", calls)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	r = r.WithContext(ended)
	r.RemoteAddr = "192.0.2.7:1"
	handler.ServeHTTP(w, r)
	if w.Code != http.StatusServiceUnavailable || calls != 3 {
		t.Errorf("got %d and %d calls without a store, want 503 and 3", w.Code, calls)
	}
}
