package serve_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/scim"
	"github.com/coffeenode/userdb/userdb"
)

// startService runs a service as the program does. end shuts it down.
func startService(t *testing.T, c *client, o serve.Options) (address string, end func() error) {
	t.Helper()
	o.Namespace = c.NS
	service, err := serve.New(c.DB, o)
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx, l) }()
	return l.Addr().String(), func() error { stop(); return <-ended }
}

// startImport starts an import whose body the test writes.
func (c *client) startImport(by *http.Client, url string) (body *io.PipeWriter, answer chan reply) {
	c.t.Helper()
	r, w := io.Pipe()
	req, err := http.NewRequestWithContext(c.t.Context(), "POST", url+"/v1/types/user/import", r)
	must(c.t, err)
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("Expect", "100-continue") // the service sends 100 when it reads the body
	answer = make(chan reply, 1)
	go func() {
		res, err := by.Do(req)
		if err != nil {
			answer <- reply{text: err.Error()}
			return
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			text = append(text, err.Error()...)
		}
		answer <- reply{status: res.StatusCode, header: res.Header, text: string(text)}
	}()
	return w, answer
}

// TestLongImport checks that an import is answered, whether it succeeds or fails, even if its body
// took longer than a response may take.
func TestLongImport(t *testing.T) {
	const responseLimit = time.Second
	defer serve.SetResponseTimeout(serve.SetResponseTimeout(responseLimit))
	c := newClient(t, testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema()), serve.Options{})
	certified := httptest.NewUnstartedServer(nil)
	certified.EnableHTTP2 = true
	certified.StartTLS()
	defer certified.Close()
	plain, endPlain := startService(t, c, serve.Options{})
	secured, endSecured := startService(t, c, serve.Options{TLS: &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}})
	for _, way := range []struct {
		url    string
		client *http.Client
	}{{"http://" + plain, http.DefaultClient}, {"https://" + secured, certified.Client()}} {
		good, goodAnswer := c.startImport(way.client, way.url)
		bad, badAnswer := c.startImport(way.client, way.url)
		_, err := io.WriteString(good, `{"facets":{"name":"`+way.url[:5]+`"`)
		must(t, err)
		_, err = io.WriteString(bad, `{"nosuch":`)
		must(t, err)
		time.Sleep(responseLimit * 3 / 2)
		_, err = io.WriteString(good, "}}\n")
		must(t, err)
		_, err = io.WriteString(bad, "1}\n")
		must(t, err)
		good.Close()
		bad.Close()
		if r := <-goodAnswer; r.status != 200 || !strings.Contains(r.text, `"read":1,`) {
			t.Errorf("%s: got %d, want 200 and one line read: %s", way.url, r.status, r.text)
		}
		if r := <-badAnswer; r.status != 400 || !strings.Contains(r.text, "nosuch") {
			t.Errorf("%s: got %d %s, want 400 with the reason", way.url, r.status, r.text)
		}
	}
	must(t, endPlain())
	must(t, endSecured())
}

// TestImportDuringShutdown checks that the response to an import that a shutdown interrupts has the
// status 503 and says how many lines were imported.
func TestImportDuringShutdown(t *testing.T) {
	c := newClient(t, testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema()), serve.Options{})
	running := c.url
	read, endStoreCalls, _ := c.drains(c.DB)
	body, answer := c.startImport(http.DefaultClient, c.url)
	const lines = `{"facets":{"name":"one"}}` + "\n" + `{"facets":`
	_, err := io.WriteString(body, lines)
	must(t, err)
	c.until("the lines have arrived", func() bool { return read.Load() == int64(len(lines)) })
	endStoreCalls()
	r := <-answer
	if r.status != 503 || !strings.Contains(r.text, "line 2 and what follows it cannot be read") || !strings.Contains(r.text, "1 were created") || r.header.Get("Retry-After") == "" {
		t.Errorf("got %d, want 503 that says what was read and created: %s", r.status, r.text)
	}
	c.url = running
	c.do("200", "POST", "/v1/types/user/lookup", `{"value":"one"}`)
}

// A countedBody counts the bytes that are read.
type countedBody struct {
	io.ReadCloser
	n *atomic.Int64
}

func (b countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	return n, err
}

// drains makes the client send its requests to another service, which shuts down when endStoreCalls
// and then endStreams are called. read is the number of bytes of bodies that it has read.
func (c *client) drains(db *userdb.DB) (read *atomic.Int64, endStoreCalls, endStreams func()) {
	c.t.Helper()
	service, err := serve.New(db, serve.Options{Namespace: c.NS})
	must(c.t, err)
	store, endStoreCalls := context.WithCancel(c.t.Context())
	stream, endStreams := context.WithCancel(c.t.Context())
	read = new(atomic.Int64)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(r.Context()) // net/http looks at the body of the original
		r.Body = countedBody{r.Body, read}
		service.ServeHTTP(w, r)
	}))
	server.Config.BaseContext = func(net.Listener) context.Context { return serve.WithDrain(context.Background(), store, stream) }
	server.Start()
	c.t.Cleanup(server.Close)
	c.url = server.URL
	return read, endStoreCalls, endStreams
}

// TestHashingImportDuringShutdown checks that a shutdown ends an import whose body was sent
// completely, but whose passwords are not all hashed, and that the response says so.
func TestHashingImportDuringShutdown(t *testing.T) {
	g := newGatedClient(t) // hashes of passwords wait
	defer g.open()
	_, endStoreCalls, endStreams := g.drains(g.DB)
	body, answer := g.startImport(http.DefaultClient, g.url)
	for i := range 300 {
		_, err := fmt.Fprintf(body, `{"clear_password":"battery staple %d","facets":{"name":"u%d"}}`+"\n", i, i)
		must(t, err)
	}
	must(t, body.Close())
	jobs := func() int { n, _ := g.gate.counts(); return n }
	g.until("several passwords wait to be hashed", func() bool { return jobs() > 1 })
	endStoreCalls()
	endStreams()
	g.until("only the password that is being hashed is left", func() bool { return jobs() == 1 })
	g.open()
	if r := <-answer; r.status != 503 || !strings.Contains(r.text, "shutting down") || r.header.Get("Retry-After") == "" {
		t.Errorf("got %d %s, want 503", r.status, r.text)
	}
}

// A hungStore is a client hook. While hanging is true, a command fails when its context ends, and
// not before.
type hungStore struct {
	hanging atomic.Bool
	asked   chan struct{}
}

func (h *hungStore) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *hungStore) wait(ctx context.Context) error {
	if !h.hanging.Load() {
		return nil
	}
	h.asked <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

func (h *hungStore) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h.wait(ctx); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (h *hungStore) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := h.wait(ctx); err != nil {
			return err
		}
		return next(ctx, cmds)
	}
}

// TestHungStoreDuringShutdown checks that requests that wait for an unresponsive store are answered
// before the service ends.
func TestHungStoreDuringShutdown(t *testing.T) {
	defer serve.SetDrainTimeout(serve.SetDrainTimeout(300 * time.Millisecond))
	// However slow the machine is, the shutdown alone ends the call to the store, and the response
	// is not cut off.
	defer serve.SetStoreTimeout(time.Hour)()
	defer serve.SetAbortTimeout(time.Hour)()
	c := newClient(t, testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema()), serve.Options{})
	store := &hungStore{asked: make(chan struct{}, 100)}
	c.AddHook(store)
	c.create(alice)
	for _, path := range []string{"/v1/types/user/entries/alice", "/v1/events", "/scim/v2/Groups"} {
		address, end := startService(t, c, serve.Options{SCIM: &scim.Options{}})
		c.url = "http://" + address
		c.send("GET", path, "")
		for len(store.asked) > 0 { // by commands of the round before
			<-store.asked
		}
		store.hanging.Store(true)
		answer := make(chan string, 1)
		go func() {
			req, err := http.NewRequestWithContext(c.Ctx, "GET", c.url+path, nil)
			if err == nil {
				req.Header.Set("Authorization", "Bearer "+c.key)
				var res *http.Response
				if res, err = http.DefaultTransport.RoundTrip(req); err == nil {
					res.Body.Close()
					answer <- res.Status
					return
				}
			}
			answer <- err.Error()
		}()
		<-store.asked
		must(t, end())
		c.equal(path, <-answer, "503 Service Unavailable")
		store.hanging.Store(false)
	}
}

// TestHungStoreOutlastsReadTimeout checks that the time limit for a request's body does not end a
// request that has arrived. The request would get the answer for one that its client canceled.
func TestHungStoreOutlastsReadTimeout(t *testing.T) {
	defer serve.SetReadTimeouts(time.Second)()
	c := newClient(t, testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema()), serve.Options{})
	store := &hungStore{asked: make(chan struct{}, 100)}
	c.AddHook(store)
	c.create(alice)
	defer serve.SetStoreTimeout(3 * time.Second)()
	address, end := startService(t, c, serve.Options{})
	c.url = "http://" + address
	c.send("GET", "/v1/types/user/entries/alice", "")
	store.hanging.Store(true)
	for _, tt := range []struct{ method, path, body string }{
		{"POST", "/v1/types/user/entries", `{"facets":{"name":"late"}}`},
		{"GET", "/v1/types/user/entries/alice", ""},
		{"DELETE", "/v1/types/user/entries/alice", ""},
	} {
		if got := c.send(tt.method, tt.path, tt.body); got.status != 503 || strings.Contains(got.text, "canceled") {
			t.Errorf("%s %s: got %d %s; want 503, but not because the client canceled it", tt.method, tt.path, got.status, got.text)
		}
	}
	store.hanging.Store(false)
	must(t, end())
}

// TestInterruptedExportIsLogged checks that an interrupted export is logged, but not as an error if
// the client disconnected.
func TestInterruptedExportIsLogged(t *testing.T) {
	c := newClient(t, testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema()), serve.Options{})
	var lines strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&lines, `{"facets":{"name":"u%d","job":"%s"}}`+"\n", i, strings.Repeat("x", 4000))
	}
	c.do("200", "POST", "/v1/types/user/import", lines.String())
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.url, "http://"))
	must(t, err)
	_, err = io.WriteString(conn, "GET /v1/types/user/export HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+c.key+"\r\n\r\n")
	must(t, err)
	_, err = conn.Read(make([]byte, 1000))
	must(t, err)
	conn.Close() // the export is larger than all buffers on the way
	for begin := time.Now(); !strings.Contains(c.logs.String(), `"operation":"exportEntries"`); time.Sleep(time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("the log has no line for the export: %s", c.logs)
		}
	}
	if strings.Contains(c.logs.String(), `"level":"ERROR"`) {
		t.Errorf("the log has an error: %s", c.logs)
	}
}
