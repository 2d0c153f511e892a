package serve_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/admin"
)

const formType = "application/x-www-form-urlencoded"

// TestStalledForms checks that clients that have no key and send a form slowly, or too large a
// form, keep nobody out, over HTTP/1 and HTTP/2. Requests with a key, /readyz, the sign-in of an
// operator and the pages for operators continue to work.
func TestStalledForms(t *testing.T) {
	defer serve.SetMaxConcurrent(1)()
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
			c := newClient(t, s, serve.Options{Console: true})
			service, err := serve.New(s.DB, serve.Options{Console: true})
			must(t, err)
			arrived := make(chan struct{}, 100)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Stalls") != "" {
					arrived <- struct{}{}
				}
				service.ServeHTTP(w, r)
			}))
			server.EnableHTTP2 = protocol == "HTTP/2.0"
			server.StartTLS()
			t.Cleanup(server.Close)
			web := server.Client()
			web.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			c.url = server.URL
			send := func(method, path string, body io.Reader, headers ...string) *http.Response {
				req, err := http.NewRequestWithContext(c.Ctx, method, c.url+path, body)
				must(t, err)
				for i := 0; i < len(headers); i += 2 {
					req.Header.Set(headers[i], headers[i+1])
				}
				answer, err := web.Do(req)
				must(t, err)
				must(t, answer.Body.Close())
				if answer.Proto != protocol {
					t.Fatalf("%s %s: got protocol %s, want %s", method, path, answer.Proto, protocol)
				}
				return answer
			}
			_, err = admin.AddOperator(c.Ctx, c.DB, "Olga", "correct horse battery")
			must(t, err)

			ended := make(chan struct{})
			var stalled []*io.PipeWriter
			for _, path := range []string{"/console/signin", "/console/signin", "/console/setup", "/console/setup", "/v1/types/user/lookup", "/nosuch"} {
				r, w := io.Pipe()
				stalled = append(stalled, w)
				go func() {
					defer func() { ended <- struct{}{} }()
					req, _ := http.NewRequestWithContext(context.WithoutCancel(c.Ctx), "POST", c.url+path, r)
					req.Header.Set("Stalls", "yes")
					req.Header.Set("Content-Type", formType)
					if answer, err := web.Do(req); err == nil {
						answer.Body.Close()
					}
				}()
				go func() { _, _ = io.WriteString(w, "n") }()
				<-arrived
			}
			for _, path := range []string{"/readyz", "/v1/schema", "/healthz"} {
				if answer := send("GET", path, nil, "Authorization", "Bearer "+c.key); answer.StatusCode != 200 {
					t.Errorf("%s: got %s, want 200", path, answer.Status)
				}
			}
			in := url.Values{"name": {"olga"}, "password": {"correct horse battery"}}.Encode()
			signedIn := send("POST", "/console/signin", strings.NewReader(in), "Content-Type", formType)
			cookie, _, _ := strings.Cut(signedIn.Header.Get("Set-Cookie"), ";")
			if answer := send("GET", "/console/find", nil, "Cookie", cookie); signedIn.StatusCode != 303 || answer.StatusCode != 200 {
				t.Errorf("an operator got %s for signing in and %s for a page, want 303 and 200", signedIn.Status, answer.Status)
			}
			long := in + "&x=" + strings.Repeat("x", 8<<10)
			if answer := send("POST", "/console/signin", strings.NewReader(long), "Content-Type", formType); answer.StatusCode != 400 {
				t.Errorf("a form that is too long got %s, want 400", answer.Status)
			}
			for _, w := range stalled {
				w.Close()
			}
			for range stalled {
				<-ended
			}
		})
	}
}

// A gate blocks the commands of a client while it is shut.
type gate struct {
	shut    atomic.Bool
	waiting chan struct{} // receives a value for each command that waits
	opened  chan struct{}
}

func (g *gate) wait() {
	if g.shut.Load() {
		g.waiting <- struct{}{}
		<-g.opened
	}
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		g.wait()
		return next(ctx, cmd)
	}
}

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		g.wait()
		return next(ctx, cmds)
	}
}

// TestStalledLookups checks that a request with a valid key is answered while a slow store looks up
// an unknown one.
func TestStalledLookups(t *testing.T) {
	defer serve.SetMaxConcurrent(1)()
	defer serve.SetSchemaMaxAge(time.Hour)()
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	c, _ := newClient(t, s, serve.Options{}).withClock()
	c.do("200", "GET", "/v1/schema", "")
	g := &gate{waiting: make(chan struct{}, 100), opened: make(chan struct{})}
	s.AddHook(g)
	g.shut.Store(true)
	ended := make(chan reply)
	go func() { ended <- c.withKey("udb_wrong").send("GET", "/v1/schema", "") }()
	<-g.waiting
	r := c.send("GET", "/v1/schema", "")
	g.shut.Store(false)
	close(g.opened)
	if wrong := <-ended; r.status != 200 || wrong.status != 401 {
		t.Errorf("a valid key got %d %s, want 200; a wrong one got %d, want 401", r.status, r.text, wrong.status)
	}
}

// TestForeignRecords checks that a page takes few SCANs in a store that also holds very many
// records of other applications, and that the pages and the count have all entries.
func TestForeignRecords(t *testing.T) {
	s := testdb.Open(t, testdb.ServerClient(t), testdb.Space(t, ""), testSchema())
	c := newClient(t, s, serve.Options{})
	for i := range 3 {
		c.create(fmt.Sprintf(`{"uid":"u%d","facets":{"job":"cook"}}`, i))
	}
	for part := range 50 { // one long script would make the server refuse what other tests ask for
		must(t, s.Raw.Eval(c.Ctx, "for i = 1, 5000 do redis.call('SET', 'other/' .. ARGV[1] .. '/' .. i, 'x') end return 1", nil, part).Err())
	}
	count := &counter{}
	s.AddHook(count)
	reader := c.withKey(c.makeKey(admin.Key{Name: "reader", Scopes: []string{admin.ScopeRead}}))
	for _, query := range []string{"limit=1", "limit=1&disabled=false", "limit=200"} {
		var uids []string
		for after, pages := "", 0; pages == 0 || after != ""; pages++ {
			count.scans.Store(0)
			r := reader.do("200", "GET", "/v1/types/user/entries?"+query+"&after="+url.QueryEscape(after), "")
			if n := count.scans.Load(); n > 101 {
				t.Errorf("%s: a page took %d scans, want at most 101", query, n)
			}
			for _, e := range r.body["entries"].([]any) {
				uids = append(uids, e.(map[string]any)["uid"].(string))
			}
			after = r.str("next")
		}
		slices.Sort(uids)
		c.equal(query, strings.Join(slices.Compact(uids), " "), "u0 u1 u2")
	}
	c.equal("count", reader.do("200", "GET", "/v1/types/user/count", "").str("count"), "3")
}

// A counter counts the SCAN commands of a client. The store sends all of them in pipelines.
type counter struct{ scans atomic.Int64 }

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if cmd.Name() == "scan" {
				c.scans.Add(1)
			}
		}
		return next(ctx, cmds)
	}
}
