package serve_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/admin"
)

// startRequest sends a request without the last byte of its body, and returns when the service,
// which has checked the key, reads the body. finish sends that byte and returns the response.
func (c *client) startRequest(method, path, text string) (finish func() reply) {
	c.t.Helper()
	body, rest := io.Pipe()
	req, err := http.NewRequestWithContext(c.Ctx, method, c.url+path, body)
	must(c.t, err)
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Expect", "100-continue") // the service sends 100 when it reads the body
	c.t.Cleanup(func() { _ = rest.Close() }) // so that the service can end even if the test fails
	answers := make(chan reply, 1)
	go func() {
		transport := &http.Transport{ExpectContinueTimeout: time.Minute}
		defer transport.CloseIdleConnections()
		res, err := transport.RoundTrip(req)
		if err != nil {
			answers <- reply{text: err.Error()}
			return
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			text = append(text, err.Error()...)
		}
		r := reply{status: res.StatusCode, header: res.Header, text: string(text)}
		_ = json.Unmarshal(text, &r.body) // other bodies have no members
		answers <- r
	}()
	_, err = io.WriteString(rest, text[:len(text)-1])
	must(c.t, err)
	return func() reply {
		// If these fail, the service has answered already.
		_, _ = io.WriteString(rest, text[len(text)-1:])
		_ = rest.Close()
		return <-answers
	}
}

// until waits until condition returns true.
func (c *client) until(what string, condition func() bool) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("timed out before %s", what)
		}
	}
}

// TestRevokedWhileBodyArrives checks that a request does nothing if its key was revoked after its
// headers had arrived, but before all of its body had.
func TestRevokedWhileBodyArrives(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		sc, o := directorySchema()
		c := newClient(t, s.Under(t, sc), serve.Options{SCIM: &o})
		path := c.create(alice)
		timed, pass := c.withClockAnd(serve.Options{SCIM: &o})
		old := timed.withKey(c.makeKey(admin.Key{Name: "old", Scopes: []string{admin.ScopeAdmin}}))
		old.scim("200", "GET", "/Users", "")
		before := c.do("200", "GET", path+"/history", "").text
		var finish []func() reply
		for _, sent := range [][3]string{
			{"POST", "/v1/types/user/login", `{"identifier":"alice","password":"battery staple 9","session":{}}`},
			{"PUT", path + "/password", `{"password":"another staple 10"}`},
			{"POST", path + "/sessions", `{}`},
			{"PATCH", path, `{"facets":{"job":"smith"}}`},
			{"PUT", path + "/tags", `{"tags":["x"]}`},
			{"POST", "/v1/types/user/tokens", `{"purpose":"p","uid":"alice"}`},
			{"POST", "/v1/types/user/entries", `{"facets":{"name":"Bob"}}`},
			{"POST", "/v1/types/user/import", `{"facets":{"name":"Bob"}}`},
			{"POST", "/scim/v2/Users", `{` + userURN + `"userName":"bob@example.com"}`},
			{"PATCH", "/scim/v2/Users/alice", `{` + patchURN + `"Operations":[{"op":"replace","path":"active","value":false}]}`},
		} {
			finish = append(finish, old.startRequest(sent[0], sent[1], sent[2]))
		}
		keys, err := admin.OpenKeys(c.DB)
		must(t, err)
		must(t, keys.Revoke(c.Ctx, "old"))
		pass(5 * time.Second)
		for _, one := range finish {
			if r := one(); r.status != 401 {
				t.Errorf("got %d %s, want 401", r.status, r.text)
			}
		}
		c.equal("history", c.do("200", "GET", path+"/history", "").text, before)
		c.equal("count", c.do("200", "GET", "/v1/types/user/count", "").str("count"), "1")
		c.do("200", "POST", "/v1/types/user/login", `{"identifier":"alice","password":"battery staple 9"}`)
	})
}

// occupySlot sends a GET that occupies a slot and waits for the store until end is called. The
// service must have the key in its cache, and a clock that stands still, so that it does not read
// the key again.
func (c *client) occupySlot(path string) (end func()) {
	c.t.Helper()
	g := &gate{waiting: make(chan struct{}, 100), opened: make(chan struct{})}
	c.AddHook(g)
	g.shut.Store(true)
	open := sync.OnceFunc(func() { close(g.opened) })
	answered, done := make(chan reply, 1), make(chan struct{})
	c.t.Cleanup(func() { open(); <-done }) // so that the service can end even if the test fails
	go func() {
		defer close(done)
		answered <- c.send("GET", path, "")
	}()
	<-g.waiting
	g.shut.Store(false)
	return func() {
		c.t.Helper()
		open()
		if r := <-answered; r.status != 200 {
			c.t.Errorf("a request that was running got %d %s, want 200", r.status, r.text)
		}
	}
}

// TestSharesOfKeys checks that one key leaves slots for requests, streams, imports and exports of
// other keys, and that all keys together leave some for operators.
func TestSharesOfKeys(t *testing.T) {
	defer serve.SetMaxConcurrent(8)()
	defer serve.SetSchemaMaxAge(time.Hour)()
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	c, _ := newClient(t, s, serve.Options{}).withClockAnd(serve.Options{Console: true})
	var greedy []*client
	for i := range 4 {
		one := c.withKey(c.makeKey(admin.Key{Name: fmt.Sprint("greedy", i), Namespace: "a", Types: []string{"user"}, Scopes: []string{admin.ScopeAdmin}}))
		one.do("200", "GET", "/v1/types/user/entries", "")
		greedy = append(greedy, one)
	}
	c.do("200", "GET", "/v1/types/user/entries", "")
	_, err := admin.AddOperator(c.Ctx, c.DB, "Olga", "correct horse battery")
	must(t, err)

	const entries, export = "/v1/types/user/entries", "/v1/types/user/export"
	var ends []func()
	for i, one := range greedy {
		ends = append(ends, one.occupySlot(entries), one.occupySlot(entries))
		one.do("503 unavailable", "GET", "/v1/schema", "")
		if i < 3 {
			c.do("200", "GET", "/v1/schema", "")
		}
	}
	c.do("503 unavailable", "GET", "/v1/schema", "")
	jar, _ := cookiejar.New(nil)
	browser := &http.Client{Jar: jar}
	page, err := browser.PostForm(c.url+"/console/signin", url.Values{"name": {"olga"}, "password": {"correct horse battery"}})
	must(t, err)
	defer page.Body.Close()
	if page.StatusCode != 200 || page.Request.URL.Path != "/console" {
		t.Errorf("while keys have all slots, an operator got %s at %s, want 200 at /console", page.Status, page.Request.URL.Path)
	}
	for _, end := range ends {
		end()
	}

	ends = []func(){greedy[0].occupySlot(export), greedy[0].occupySlot(export)}
	greedy[0].do("503 unavailable", "GET", export, "")
	for range 3 { // exports take no slots of other requests
		greedy[0].do("200", "GET", "/v1/schema", "")
	}
	c.do("200", "GET", export, "")
	for _, end := range ends {
		end()
	}

	const streams, importing = "text/event-stream", "/v1/types/user/import"
	greedy[0].listen("")
	greedy[0].listen("")
	greedy[0].do("503 unavailable", "GET", "/v1/events", "", "Accept", streams)
	for range 3 { // listeners take no slots of other requests
		greedy[0].do("200", "GET", "/v1/schema", "")
	}
	c.listen("")

	patient := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	defer patient.CloseIdleConnections()
	for range 2 {
		body, answer := greedy[0].startImport(patient, c.url)
		defer func() { _ = body.Close(); <-answer }()
		_, err := io.WriteString(body, "\n") // waits until the import has its place
		must(t, err)
	}
	greedy[0].do("503 unavailable", "POST", importing, `{"facets":{"name":"x"}}`)
	c.do("200", "POST", importing, `{"facets":{"name":"Bob"}}`)
}

// TestBodiesInMemory checks that the memory for bodies that are arriving is limited for each key,
// and that it is free again afterwards.
func TestBodiesInMemory(t *testing.T) {
	defer serve.SetMaxBodies(4000)()
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	c := newClient(t, s, serve.Options{})
	greedy := c.withKey(c.makeKey(admin.Key{Name: "greedy", Scopes: []string{admin.ScopeRead}}))
	const path = "/v1/types/user/lookup"
	body := `{"value":"` + strings.Repeat("x", 700) + `"}`
	var finish func() reply
	greedy.until("the first body arrives before the second", func() bool {
		finish = greedy.startRequest("POST", path, body)
		if greedy.send("POST", path, body).status == 503 {
			return true
		}
		finish() // the second body came first, so this one is refused
		return false
	})
	c.do("404 not_found", "POST", path, body)
	if r := finish(); r.status != 404 {
		t.Errorf("the first body: got %d %s, want 404", r.status, r.text)
	}
	greedy.until("the memory is free", func() bool { return greedy.send("POST", path, body).status == 404 })
	greedy.do("503 unavailable", "POST", path, `{"value":"`+strings.Repeat("x", 1000)+`"}`)
	for range 10 {
		greedy.do("404 not_found", "POST", path, body)
	}
}

// TestBodiesOfReads checks that a request for which a body means nothing is answered at once, even
// if it announces a long body, and that its connection is closed then.
func TestBodiesOfReads(t *testing.T) {
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	c := newClient(t, s, serve.Options{})
	c.create(alice)
	for _, request := range []struct{ line, want string }{
		{"GET /v1/types/user/entries/alice", "200"},
		{"GET /v1/types/user/entries", "200"},
		{"DELETE /v1/types/user/entries/alice/tags/x", "204"},
		{"GET /v1/session/check", "401"},
	} {
		for _, length := range []string{"Content-Length: 1000", "Content-Length: 1048576", "Transfer-Encoding: chunked"} {
			conn, err := net.Dial("tcp", strings.TrimPrefix(c.url, "http://"))
			must(t, err)
			_, err = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n\r\n", request.line, c.key, length)
			must(t, err)
			must(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
			r, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil {
				_, err = io.Copy(io.Discard, r.Body)
			}
			if err != nil || fmt.Sprint(r.StatusCode) != request.want || !r.Close {
				t.Errorf("%s, %s: got %+v, %v; want %s and Connection: close", request.line, length, r, err, request.want)
			}
			must(t, conn.Close())
		}
	}
}

// A deadlineRecorder records the deadline that is set for writing a response.
type deadlineRecorder struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (d *deadlineRecorder) SetWriteDeadline(t time.Time) error {
	d.deadline = t
	return nil
}

// TestUnreadDiscovery checks that clients without a key must read a description of SCIM in time, so
// that clients that read nothing keep no slot.
func TestUnreadDiscovery(t *testing.T) {
	sc, o := directorySchema()
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), sc)
	service, err := serve.New(s.DB, serve.Options{SCIM: &o})
	must(t, err)
	for _, path := range []string{"ServiceProviderConfig", "ResourceTypes", "Schemas"} {
		w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
		service.ServeHTTP(w, httptest.NewRequest("GET", "/scim/v2/"+path, nil))
		if left := time.Until(w.deadline); w.Code != 200 || left > 5*time.Second || left < -20*time.Second {
			t.Errorf("%s: got %d with %v left to read it, want 200 and at most 5s", path, w.Code, left)
		}
	}
}

// TestResponsesInMemory checks that the memory for responses that a client does not read is limited
// for each key, and that it is free again when they have been read. Small responses are not
// refused, and the error in place of a refused response says that the change was made.
func TestResponsesInMemory(t *testing.T) {
	defer serve.SetMaxResponses(4 * 8 << 20)() // a key reads one page at a time
	defer serve.SetSlotTimeout(100 * time.Millisecond)()
	sc := testSchema()
	sc.Types["user"].Fields["bio"] = schema.Field{}
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), sc)
	c := newClient(t, s, serve.Options{})
	service, err := serve.New(s.DB, serve.Options{Namespace: s.NS})
	must(t, err)
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	c.url = server.URL
	// A response is still in memory for a moment after its client has received all of it.
	waitUntilFree := func(key string) {
		t.Helper()
		c.until("no response to "+key+" is in memory", func() bool { return service.ResponsesOf(key) == 0 })
	}
	for i := range 200 { // 8 MiB together; quotation marks take two bytes in JSON
		c.create(fmt.Sprintf(`{"uid":"u%d","facets":{"bio":%q}}`, i, strings.Repeat(`"`, 41_900)))
	}
	small := c.create(`{"uid":"small"}`)
	large := c.create(fmt.Sprintf(`{"uid":"large","facets":{"bio":%q}}`, strings.Repeat("x", 60_000)))
	greedy := c.withKey(c.makeKey(admin.Key{Name: "greedy", Scopes: []string{admin.ScopeRead, admin.ScopeWrite}}))
	const page = "/v1/types/user/entries?limit=200"
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.url, "http://"))
	must(t, err)
	defer conn.Close()
	must(t, conn.(*net.TCPConn).SetReadBuffer(256<<10)) // the response has 16 MiB
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n", page, greedy.key)
	must(t, err)
	_, err = io.ReadFull(conn, make([]byte, 1000))
	must(t, err)
	for _, request := range [][3]string{
		{"GET", page},
		{"GET", "/v1/types/user/entries?limit=1"},
		{"POST", "/v1/types/user/entries/get", `{"uids":["u1"]}`},
		{"GET", large},
		{"GET", large + "/tags"},
		{"POST", "/v1/types/user/lookup", `{"field":"uid","value":"large"}`},
	} {
		greedy.do("503 unavailable", request[0], request[1], request[2])
		waitUntilFree("all")
		c.do("200", request[0], request[1], request[2])
	}
	greedy.do("200", "GET", small, "")
	if r := greedy.do("503 unavailable", "PATCH", large, `{"facets":{"job":"cook"}}`); !strings.HasSuffix(r.str("detail"), "; changes made so far remain") {
		t.Errorf("a change whose response is refused: the detail does not say that changes remain: %s", r.text)
	}
	waitUntilFree("all")
	c.equal("the job after that change", c.do("200", "GET", large, "").str("facets.job"), "cook")
	n, err := io.Copy(io.Discard, conn)
	if err != nil || n < 10<<20 {
		t.Errorf("the rest of the page: got %d bytes, %v; want at least 10 MiB", n, err)
	}
	for range 5 {
		waitUntilFree("greedy")
		greedy.do("200", "GET", page, "")
	}
}

// TestCountsOfOneKey checks that counts of one key do not keep out counts of other keys.
func TestCountsOfOneKey(t *testing.T) {
	defer serve.SetSchemaMaxAge(time.Hour)()
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	c, _ := newClient(t, s, serve.Options{}).withClock()
	greedy := c.withKey(c.makeKey(admin.Key{Name: "greedy", Scopes: []string{admin.ScopeRead}}))
	for _, one := range []*client{c, greedy} {
		one.do("200", "GET", "/v1/types/user/count", "")
	}
	g := &gate{waiting: make(chan struct{}, 1000), opened: make(chan struct{})}
	s.AddHook(g)
	g.shut.Store(true)
	replies := make(chan reply)
	for i := range 6 {
		go func() { replies <- greedy.send("GET", fmt.Sprintf("/v1/types/user/count?order=age&gte=%d", i), "") }()
	}
	var all []reply
	select {
	case r := <-replies: // refused, because counts have taken all slots
		all = append(all, r)
	case <-time.After(100 * time.Millisecond):
	}
	go func() { replies <- c.send("GET", "/v1/types/user/count?disabled=true", "") }()
	select {
	case r := <-replies:
		all = append(all, r)
	case <-time.After(100 * time.Millisecond):
	}
	g.shut.Store(false)
	close(g.opened)
	for range 7 - len(all) {
		all = append(all, <-replies)
	}
	for _, r := range all {
		if r.status != 200 {
			t.Errorf("a count got %d %s, want 200", r.status, r.text)
		}
	}
}

// TestPeerConnections checks that a client has only a limited number of connections to a service
// that speaks TLS itself, even if it sends nothing, and that a proxy may have any number.
func TestPeerConnections(t *testing.T) {
	defer serve.SetMaxPeerConns(3)()
	c := newClient(t, testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema()), serve.Options{})
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	defer certified.Close()
	secured := &tls.Config{Certificates: certified.TLS.Certificates}
	clientTLS := certified.Client().Transport.(*http.Transport).TLSClientConfig
	for _, proxies := range [][]netip.Prefix{nil, {netip.MustParsePrefix("127.0.0.0/8")}} {
		address, end := startService(t, c, serve.Options{TLS: secured, Proxies: proxies})
		dial := func() (io.Closer, error) {
			ctx, cancel := context.WithTimeout(c.Ctx, 20*time.Second)
			defer cancel()
			return (&tls.Dialer{Config: clientTLS}).DialContext(ctx, "tcp", address)
		}
		var all []io.Closer
		for range 3 {
			conn, err := dial()
			must(t, err)
			all = append(all, conn)
		}
		conn, err := dial()
		if err == nil {
			all = append(all, conn)
		}
		if (err == nil) != (proxies != nil) {
			t.Errorf("with the proxies %v, a fourth connection: got %v, want no error only with proxies", proxies, err)
		}
		must(t, all[0].Close())
		c.until("another connection is accepted", func() bool {
			conn, err := dial()
			if err == nil {
				all = append(all, conn)
			}
			return err == nil
		})
		for _, conn := range all {
			_ = conn.Close() // the first is closed already
		}
		must(t, end())
	}
}

// TestUnreadBodies checks how many bytes of bodies a client may send over HTTP/2 before they are
// read, according to the settings and to the first update of the window of a connection.
func TestUnreadBodies(t *testing.T) {
	c := newClient(t, testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema()), serve.Options{})
	certified := httptest.NewUnstartedServer(nil)
	certified.EnableHTTP2 = true
	certified.StartTLS()
	defer certified.Close()
	address, end := startService(t, c, serve.Options{TLS: certified.TLS.Clone()})
	config := certified.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", address, config)
	must(t, err)
	_, err = io.WriteString(conn, http2.ClientPreface)
	must(t, err)
	frames := http2.NewFramer(conn, conn)
	must(t, frames.WriteSettings())
	stream, window := uint32(0), uint32(0)
	for window == 0 {
		frame, err := frames.ReadFrame()
		must(t, err)
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if value, has := f.Value(http2.SettingInitialWindowSize); has {
				stream = value
			}
		case *http2.WindowUpdateFrame:
			window = 65_535 + f.Increment
		}
	}
	if stream != 128<<10 || window != 128<<10 {
		t.Errorf("a stream may send %d bytes and a connection %d, want %d", stream, window, 128<<10)
	}
	must(t, conn.Close())
	must(t, end())
}

// TestPeerRequests checks that a client has only a limited number of requests at a time to a
// service that speaks TLS itself, even on one connection, and that a proxy may have any number.
func TestPeerRequests(t *testing.T) {
	defer serve.SetMaxPeerRequests(3)()
	c := newClient(t, testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema()), serve.Options{})
	certified := httptest.NewUnstartedServer(nil)
	certified.EnableHTTP2 = true
	certified.StartTLS()
	defer certified.Close()
	secured := certified.TLS.Clone()
	for _, proxies := range [][]netip.Prefix{nil, {netip.MustParsePrefix("127.0.0.0/8")}} {
		address, end := startService(t, c, serve.Options{TLS: secured, Proxies: proxies})
		web := &http.Client{Transport: &http.Transport{TLSClientConfig: certified.Client().Transport.(*http.Transport).TLSClientConfig.Clone(), ForceAttemptHTTP2: true, ExpectContinueTimeout: time.Minute}}
		get := func() error {
			req, err := http.NewRequestWithContext(c.Ctx, "GET", "https://"+address+"/healthz", nil)
			must(t, err)
			res, err := web.Do(req)
			if err != nil {
				return err
			}
			if res.ProtoMajor != 2 {
				t.Fatalf("got %s, want HTTP/2", res.Proto)
			}
			return res.Body.Close()
		}
		must(t, get())
		var bodies []io.Closer
		for range 3 {
			body, answer := c.startImport(web, "https://"+address)
			_, err := io.WriteString(body, "\n") // waits until the import has its place
			must(t, err)
			bodies = append(bodies, body)
			defer func() { <-answer }()
		}
		if err := get(); (err == nil) != (proxies != nil) {
			t.Errorf("with the proxies %v, a fourth request: got %v, want no error only with proxies", proxies, err)
		}
		must(t, bodies[0].Close())
		c.until("another request is served", func() bool { return get() == nil })
		for _, body := range bodies[1:] {
			must(t, body.Close())
		}
		must(t, end())
		web.CloseIdleConnections()
	}
}
