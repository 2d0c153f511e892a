//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest"
)

// eachServed runs a test with a store on Redis, and with one in a file. For the file, server is
// nil.
func eachServed(t *testing.T, test func(t *testing.T, store string, server *redistest.Server)) {
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.AppendOnly("always"))
		test(t, server.URL(), server)
	})
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		test(t, "file:"+filepath.Join(t.TempDir(), "users.jsonl"), nil)
	})
}

// beginImport begins an import whose body the test writes while the service reads it. The service's
// answer is sent on the channel.
func (s *serviceProcess) beginImport(key, query string) (body *io.PipeWriter, answer chan string) {
	s.t.Helper()
	r, w := io.Pipe()
	answer = make(chan string, 1)
	go func() {
		req, err := http.NewRequestWithContext(s.t.Context(), "POST", s.url+"/v1/types/user/import"+query, r)
		if err == nil {
			req.Header.Set("Authorization", "Bearer "+key)
			var res *http.Response
			if res, err = http.DefaultClient.Do(req); err == nil {
				defer res.Body.Close()
				var text []byte
				text, err = io.ReadAll(res.Body)
				answer <- fmt.Sprint(res.StatusCode, " ", string(text))
			}
		}
		if err != nil {
			answer <- err.Error()
			r.CloseWithError(err)
		}
	}()
	return w, answer
}

// userLines returns lines of an import, one for each user number n with from ≤ n < to.
func userLines(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, `{"facets":{"name":"user%d"}}`+"\n", i)
	}
	return b.String()
}

// waitFor waits until condition returns true.
func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for begin := time.Now(); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// TestServeEndsUnderLoad checks that a service that gets SIGTERM answers all requests that it has
// received, and then exits 0.
func TestServeEndsUnderLoad(t *testing.T) {
	eachServed(t, func(t *testing.T, store string, _ *redistest.Server) {
		s := serveOn(t, store)
		key := s.run("apikey", "create", "web", "--scope", "admin")
		body, imported := s.beginImport(key, "")
		_, err := io.WriteString(body, `{"facets":{"name":"begun"`)
		if err != nil {
			t.Fatal(err)
		}
		var answered atomic.Int64
		var all sync.WaitGroup
		for w := range 32 {
			all.Go(func() {
				c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				in := bufio.NewReader(c)
				for i, last := 0, false; !last; i++ {
					text := fmt.Sprintf(`{"facets":{"name":"worker%d-%d"}}`, w, i)
					fmt.Fprintf(c, "POST /v1/types/user/entries HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", key, len(text), text)
					res, err := http.ReadResponse(in, nil)
					if err != nil {
						t.Errorf("a connection broke during the shutdown: %v", err)
						return
					}
					_, err = io.Copy(io.Discard, res.Body)
					res.Body.Close()
					if err != nil || res.StatusCode != 201 {
						t.Errorf("create answers %d, %v; want 201", res.StatusCode, err)
						return
					}
					last = res.Close
					answered.Add(1)
				}
			})
		}
		waitFor(t, "100 creates are answered", func() bool { return answered.Load() > 100 })
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if _, err := io.WriteString(body, "}}\n"); err != nil {
			t.Error(err)
		}
		body.Close()
		if got := <-imported; !strings.HasPrefix(got, "200 ") || !strings.Contains(got, `"created":1,`) {
			t.Errorf("import: %s, want 200 and one created entry", got)
		}
		if got := exitCode(s.cmd.Wait()); got != 0 {
			t.Errorf("after SIGTERM: exit code %d, want 0", got)
		}
		if got := s.run("count", "user"); got != fmt.Sprint(answered.Load()+1) {
			t.Errorf("there are %s entries, want %d: one for each answered create, and the imported one", got, answered.Load()+1)
		}
	})
}

// TestServeKilledInImport checks that an import whose service is killed leaves only complete
// entries, and can be repeated.
func TestServeKilledInImport(t *testing.T) {
	const users = 4000
	eachServed(t, func(t *testing.T, store string, _ *redistest.Server) {
		s := serveOn(t, store)
		key := s.run("apikey", "create", "web", "--scope", "admin")
		body, answer := s.beginImport(key, "")
		done := make(chan bool)
		go func() {
			defer close(done)
			for i := 0; i < users; i += 100 {
				if _, err := io.WriteString(body, userLines(i, i+100)); err != nil {
					return
				}
			}
			_, _ = io.WriteString(body, `{"facets":{"name":"half`)
		}()
		waitFor(t, "entries are imported", func() bool { return s.run("count", "user") != "0" })
		if err := s.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = s.cmd.Wait()
		<-done
		// A client notices the end of its connection only after it has sent everything.
		_ = body.CloseWithError(io.ErrUnexpectedEOF)
		if got := <-answer; strings.HasPrefix(got, "200 ") {
			t.Errorf("the import succeeded although the service was killed: %s", got)
		}
		s.run("check") // it exits 7 on damage
		before := s.run("count", "user")
		s = serveOn(t, store)
		body, answer = s.beginImport(key, "?on_duplicate=skip")
		if _, err := io.WriteString(body, userLines(0, users)); err != nil {
			t.Error(err)
		}
		body.Close()
		if got := <-answer; !strings.HasPrefix(got, "200 ") || !strings.Contains(got, fmt.Sprintf(`"read":%d,`, users)) || !strings.Contains(got, `"skipped":`+before+`,"refused":0`) {
			t.Errorf("the second import: %s; want 200, %d lines read and %s skipped", got, users, before)
		}
		if got := s.run("count", "user"); got != fmt.Sprint(users) {
			t.Errorf("there are %s entries, want %d", got, users)
		}
		s.run("check")
		if got := s.stop(syscall.SIGTERM); got != 0 {
			t.Errorf("after SIGTERM: exit code %d, want 0", got)
		}
	})
}

// TestServeStoreAway checks that a service answers 503 while Redis is away, after a short while
// even for cached API keys, and works again when Redis is back.
func TestServeStoreAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.AppendOnly("always"))
	s := serveOn(t, server.URL())
	key := s.run("apikey", "create", "web", "--scope", "write", "read")
	create := func(name string) int {
		status, _, err := s.ask(key, "POST", "/v1/types/user/entries", `{"facets":{"name":"`+name+`"}}`)
		if err != nil {
			t.Errorf("creating %s: %v", name, err)
		}
		return status
	}
	status := func(path string) int {
		status, _, err := s.ask(key, "GET", path, "")
		if err != nil {
			t.Errorf("asking for %s: %v", path, err)
		}
		return status
	}
	if got := create("before"); got != 201 {
		t.Fatalf("create before Redis is killed: %d, want 201", got)
	}
	for i := range 3 {
		server.Kill()
		if got := create(fmt.Sprint("away", i)); got != 503 {
			t.Errorf("create while Redis is away: %d, want 503", got)
		}
		waitFor(t, "/readyz answers 503", func() bool { return status("/readyz") == 503 })
		waitFor(t, "a cached API key is answered 503", func() bool { return status("/v1/schema") == 503 })
		if got := status("/healthz"); got != 200 {
			t.Errorf("/healthz while Redis is away: %d, want 200", got)
		}
		server.Restart()
		waitFor(t, "/readyz answers 200 again", func() bool { return status("/readyz") == 200 })
		if got := create(fmt.Sprint("back", i)); got != 201 {
			t.Errorf("create after Redis is back: %d, want 201", got)
		}
		if got := status("/v1/schema"); got != 200 {
			t.Errorf("/v1/schema after Redis is back: %d, want 200", got)
		}
	}
	s.run("check")
	if got := s.stop(syscall.SIGTERM); got != 0 {
		t.Errorf("after SIGTERM: exit code %d, want 0", got)
	}
}

// TestServeLogBlocked checks that requests are answered, and that the service can be stopped, while
// its log goes into a pipe that nobody reads or that is closed.
func TestServeLogBlocked(t *testing.T) {
	for _, name := range []string{"full pipe", "closed pipe"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, _ := newProcess(t, "memory:", "serve", "--listen=127.0.0.1:0", "--console=false")
			cmd.Stderr = nil
			errs, err := cmd.StderrPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			url, found := "", false
			for in := bufio.NewReader(errs); !found; {
				line, err := in.ReadString('\n')
				if err != nil {
					t.Fatalf("the service prints %q, %v; want its address", line, err)
				}
				url, found = strings.CutPrefix(strings.TrimSpace(line), "listening on ")
			}
			if name == "closed pipe" {
				errs.Close()
			}
			s := &serviceProcess{t: t, cmd: cmd, url: url}
			for i := range 1000 { // a pipe has room for 350 lines
				if status, _, err := s.ask("", "GET", "/healthz", ""); status != 200 {
					t.Fatalf("request %d: %d, want 200: %v", i, status, err)
				}
			}
			if got := s.stop(syscall.SIGTERM); got != 0 {
				t.Errorf("after SIGTERM: exit code %d, want 0", got)
			}
		})
	}
}

// followCreates reads the stream of create events after a position, until the stream breaks off or
// counts has the given number of UIDs. It counts the events of each UID, and returns the last
// position.
func (s *serviceProcess) followCreates(key, after string, counts map[string]int, uids int) string {
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+"/v1/events?kind=create", nil)
	if err != nil {
		return after
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Last-Event-ID", after)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return after
	}
	defer res.Body.Close()
	id, uid := after, ""
	for in := bufio.NewScanner(res.Body); len(counts) < uids && in.Scan(); {
		line := in.Text()
		if text, ok := strings.CutPrefix(line, "id: "); ok {
			id = text
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			var e struct{ UID string }
			_ = json.Unmarshal([]byte(data), &e)
			uid = e.UID
		}
		if line != "" {
			continue
		}
		// The event is complete. A client that used its ID earlier would miss an incomplete event.
		if after = id; uid != "" {
			counts[uid]++
			uid = ""
		}
	}
	return after
}

// TestServeKilledInStream checks that a client that reconnects with the last event ID gets each
// create once, although the service is killed again and again.
func TestServeKilledInStream(t *testing.T) {
	const creates = 200
	eachServed(t, func(t *testing.T, store string, _ *redistest.Server) {
		s := serveOn(t, store)
		key := s.run("apikey", "create", "web", "--scope", "admin")
		var now atomic.Pointer[serviceProcess]
		now.Store(s)
		_, page, err := s.ask(key, "GET", "/v1/events", "")
		if err != nil {
			t.Fatal(err)
		}
		counts, done := map[string]int{}, make(chan bool)
		go func() {
			defer close(done)
			for after := fmt.Sprint(page["next"]); len(counts) < creates && t.Context().Err() == nil; time.Sleep(10 * time.Millisecond) {
				after = now.Load().followCreates(key, after, counts, creates)
			}
		}()
		for i := range creates {
			if i%50 == 25 {
				_ = s.cmd.Process.Kill()
				_ = s.cmd.Wait()
				s = serveOn(t, store)
				now.Store(s)
			}
			status, body, err := s.ask(key, "POST", "/v1/types/user/entries", fmt.Sprintf(`{"uid":"u%d"}`, i))
			if err != nil || status != http.StatusCreated {
				t.Fatalf("create: %d %v %v, want 201", status, body, err)
			}
		}
		<-done
		for uid, times := range counts {
			if times != 1 {
				t.Errorf("the event of %s was received %d times, want once", uid, times)
			}
		}
	})
}
