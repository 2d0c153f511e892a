package web_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// serveMails names the environment variable with the directory for the mails of TestServeProcess.
const serveMails = "USERDB_TEST_SERVE_MAILS"

// TestServeProcess runs a site, in the process that TestServeEnds starts. Its mailer takes 50 ms
// for each mail, or hangs.
func TestServeProcess(t *testing.T) {
	dir := os.Getenv(serveMails)
	if dir == "" {
		t.Skip("runs in TestServeEnds")
	}
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	users := openUsers(t, "memory:", userdb.Options{})
	queue := &web.MailQueue{Send: func(ctx context.Context, m web.Mail) error {
		if strings.HasPrefix(m.To, "hangs") {
			<-ctx.Done()
			return ctx.Err()
		}
		time.Sleep(50 * time.Millisecond)
		return os.WriteFile(filepath.Join(dir, m.To), []byte(m.Link), 0o600)
	}}
	flows := &web.Flows{Auth: web.Auth{Users: users}, SignUp: web.SignUpByMail, Mail: queue, Base: "https://example.com"}
	mux := http.NewServeMux()
	flows.Register(mux)
	l := listen(t)
	fmt.Println("listening on", l.Addr())
	err := web.Serve(ctx, "", web.Protect(mux), web.Ops{Grace: 10 * time.Second, Close: queue.Close, Listener: l})
	fmt.Println("ended:", err)
}

// TestServeEnds checks that a process that gets SIGTERM sends the mails that wait, and ends in time
// although a mailer hangs.
func TestServeEnds(t *testing.T) {
	for _, tt := range []struct {
		hangs bool
		want  string
	}{{false, "ended: <nil>"}, {true, "ended: mails that were not sent: 1: context deadline exceeded"}} {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServeProcess$", "-test.count=1")
		cmd.Env = append(os.Environ(), serveMails+"="+dir)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		base := ""
		for !strings.HasPrefix(base, "listening on ") {
			if base, err = lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		base = "http://" + strings.TrimSpace(strings.TrimPrefix(base, "listening on "))
		const visitors = 20
		signUp := func(address string) {
			resp, err := http.PostForm(base+"/signup", url.Values{"email": {address}})
			if err != nil || resp.Request.URL.Path != "/sent" {
				t.Fatalf("signing up: got %v, %v; want the page sent", resp, err)
			}
			_ = resp.Body.Close()
		}
		if tt.hangs {
			signUp("hangs@example.com")
		}
		for i := range visitors {
			signUp(fmt.Sprintf("v%d@example.com", i))
		}
		begin := time.Now()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(lines)
		if err := cmd.Wait(); err != nil || !strings.Contains(string(rest), tt.want) || time.Since(begin) > time.Minute {
			t.Errorf("ended with %v after %s, want %q:\n%s", err, time.Since(begin), tt.want, rest)
		}
		if mails, err := os.ReadDir(dir); len(mails) != visitors || err != nil {
			t.Errorf("%d mails were sent, %v; want %d", len(mails), err, visitors)
		}
	}
}

// TestServe checks the pages for operators, and that requests in progress are finished.
func TestServe(t *testing.T) {
	var ready atomic.Pointer[error]
	notYet := errors.New("not yet")
	ready.Store(&notYet)
	ended := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	slow := make(chan struct{})
	l, free := listen(t), listen(t)
	site, operators := l.Addr().String(), free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	go func() {
		ended <- web.Serve(ctx, "", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(slow)
			time.Sleep(200 * time.Millisecond)
			fmt.Fprint(w, "whole")
		}), web.Ops{
			Addr: operators, Ready: func(context.Context) error { return *ready.Load() },
			Metrics:  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "metrics") }),
			Listener: l,
		})
	}()
	get := func(url string) string {
		resp, err := http.Get(url)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", string(body)))
	}
	for begin := time.Now(); get("http://"+operators+"/livez") != "200" && time.Since(begin) < time.Minute; {
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	for path, want := range map[string]string{"/livez": "200", "/readyz": "503 Service Unavailable", "/metrics": "200 metrics"} {
		if got := get("http://" + operators + path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	ready.Store(new(error))
	if got := get("http://" + operators + "/readyz"); got != "200" {
		t.Errorf("/readyz: got %q, want 200", got)
	}
	answer := make(chan string, 1)
	go func() { answer <- get("http://" + site) }()
	<-slow
	cancel()
	if got := <-answer; got != "200 whole" {
		t.Errorf("a request in progress got %q, want 200 and all of the body", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := web.Serve(t.Context(), "256.0.0.1:x", http.NotFoundHandler(), web.Ops{}); err == nil {
		t.Error("serving at an impossible address: got no error")
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestServeCloses checks that a request that does not end takes none of the time for Ops.Close.
func TestServeCloses(t *testing.T) {
	listener := listen(t)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	begun, closed := make(chan struct{}), errors.New("not called")
	ended := make(chan error, 1)
	go func() {
		stuck := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { close(begun); <-r.Context().Done() })
		ended <- web.Serve(ctx, "", stuck, web.Ops{Listener: listener, Grace: 100 * time.Millisecond, Close: func(ctx context.Context) error {
			closed = ctx.Err()
			return nil
		}})
	}()
	go func() {
		if resp, err := http.Get("http://" + listener.Addr().String()); err == nil {
			_ = resp.Body.Close()
		}
	}()
	<-begun
	end()
	if err := <-ended; !errors.Is(err, context.DeadlineExceeded) || closed != nil {
		t.Errorf("Serve returned %v, and the context of Close had ended: %v; want DeadlineExceeded, and a context that has not ended", err, closed)
	}
}
