package serve_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/serve/scim"
	"github.com/coffeenode/userdb/userdbtest"
)

// last returns the last line of a response.
func last(r reply) string {
	all := strings.Split(strings.TrimSpace(r.text), "\n")
	return all[len(all)-1]
}

func TestImportAndExport(t *testing.T) {
	eachService(t, func(t *testing.T, c *client) {
		var lines strings.Builder
		for i := range 300 {
			fmt.Fprintf(&lines, `{"facets":{"name":"u%d","email":"u%d@example.com"},"tertiary":{"tags":{"kind":"set","value":["t"]}}}`+"\n", i, i%250)
		}
		c.equal("report of a dry run", last(c.do("200", "POST", "/v1/types/user/import?dry_run=true", lines.String())), `{"report":{"read":300,"created":250,"updated":0,"skipped":0,"refused":50,"without_password":250}}`)
		c.equal("count after a dry run", c.do("200", "GET", "/v1/types/user/count", "").str("count"), "0")
		r := c.do("200", "POST", "/v1/types/user/import", lines.String(), "Content-Type", "application/x-ndjson")
		c.equal("report", last(r), `{"report":{"read":300,"created":250,"updated":0,"skipped":0,"refused":50,"without_password":250}}`)
		var refused struct {
			Line   int64
			Reason string
		}
		first, _, _ := strings.Cut(r.text, "\n")
		if must(t, json.Unmarshal([]byte(first), &refused)); refused.Line != 251 || refused.Reason != "taken: email" {
			t.Errorf("got the refused line %s, want line 251 with the reason taken: email", first)
		}
		c.equal("report with duplicates skipped", last(c.do("200", "POST", "/v1/types/user/import?on_duplicate=skip", lines.String())), `{"report":{"read":300,"created":0,"updated":0,"skipped":250,"refused":50}}`)
		c.do("400 usage", "POST", "/v1/types/user/import?on_duplicate=maybe", "{}")
		unread := c.do("400 usage", "POST", "/v1/types/user/import?dry_run=true", `{"facets":{"name":"x"}}`+"\n"+`{"facets":{"emial":"x"}}`)
		if want := "of the lines before, 1 would be created, 0 updated, 0 skipped and 0 refused"; !strings.Contains(unread.text, want) {
			t.Errorf("a dry run that ends early: got %s, want %q", unread.text, want)
		}
		c.equal("report with an invalid line", last(c.do("200", "POST", "/v1/types/user/import", `{"facets":{"name":"x","email":"x@example.com"}}`+"\n"+`{"facets":`)), `{"report":{"read":2,"created":1,"updated":0,"skipped":0,"refused":1,"without_password":1}}`)
		r = c.do("200", "GET", "/v1/types/user/export", "")
		if n := strings.Count(r.text, "\n"); n != 251 || strings.Contains(r.text, "password\"") {
			t.Errorf("got %d lines, want 251 without passwords: %.300s", n, r.text)
		}
		path := c.create(alice)
		c.do("201", "POST", path+"/sessions", `{"agent":"a browser"}`)
		r = c.do("200", "GET", path+"/export", "")
		for _, part := range []string{"alice@example.com", `"tags"`, "\n{\"sessions\":[{", `"agent":"a browser"`, "\n{\"history\":[{", `"kind":"session_start"`, `"who":"key:all"`} {
			if !strings.Contains(r.text, part) {
				t.Errorf("the export of one entry lacks %s: %s", part, r.text)
			}
		}
		if strings.Count(r.text, "\n") != 3 || strings.Contains(r.text, "$2") {
			t.Errorf("the export of one entry does not have three lines, or has a hash: %s", r.text)
		}
		uid := path[strings.LastIndex(path, "/")+1:]
		first, _, _ = strings.Cut(r.text, "\n")
		c.do("204", "DELETE", path, "")
		c.equal("report of importing an export", last(c.do("200", "POST", "/v1/types/user/import", first)), `{"report":{"read":1,"created":1,"updated":0,"skipped":0,"refused":0,"without_password":1}}`)
		c.equal("UID after importing an export", c.do("200", "GET", path, "").str("uid"), uid)
		if problems := c.Check(t, check.Options{}); len(problems) > 0 {
			t.Errorf("check found problems: %v", problems)
		}
	})
}

// TestIdempotencyKeys checks that requests with the same key create one entry, even through several
// processes, and that later requests return the current state of that entry.
func TestIdempotencyKeys(t *testing.T) {
	eachService(t, func(t *testing.T, c *client) {
		other := newOtherService(t, c)
		create := func(c *client, want, body, key string) reply {
			return c.do(want, "POST", "/v1/types/user/entries", body, "Idempotency-Key", key)
		}
		body := `{"facets":{"name":"once"},"password":"battery staple 9"}`
		first := create(c, "201", body, "k1")
		c.equal("repeated request", create(other, "201", body, "k1").text, first.text)
		c.equal("repeated request with another password", create(c, "201", strings.Replace(body, "9", "10", 1), "k1").text, first.text)
		if r := create(c, "422 idempotency", `{"facets":{"name":"other"}}`, "k1"); !strings.Contains(r.str("detail"), "Idempotency-Key") || r.str("field") != "" {
			t.Errorf("the problem for another request does not name Idempotency-Key: %s", r.text)
		}
		create(c, "409 duplicate", body, "k2")
		path := first.header.Get("Location")
		c.do("200", "PATCH", path, `{"facets":{"job":"cook"}}`)
		c.equal("repeated request after a change", create(other, "201", body, "k1").str("facets.job"), "cook")
		c.do("204", "DELETE", path, "")
		create(c, "410 not_found", body, "k1")
		create(c, "201", body, "k2") // refused requests are forgotten
		c.do("400 usage", "POST", "/v1/types/user/entries", body, "Idempotency-Key", strings.Repeat("x", 256))

		var mu sync.Mutex
		var all sync.WaitGroup
		uids, codes := map[string]bool{}, map[string]int{}
		for i := range 40 {
			to := []*client{c, other}[i%2]
			all.Go(func() {
				r := to.send("POST", "/v1/types/user/entries", `{"facets":{"name":"crowd"}}`, "Idempotency-Key", "k3")
				mu.Lock()
				defer mu.Unlock()
				codes[fmt.Sprint(r.status, r.str("code"))]++
				if r.status == 201 {
					uids[r.str("uid")] = true
				} else if r.header.Get("Retry-After") == "" {
					t.Errorf("no Retry-After: %s", r.text)
				}
			})
		}
		all.Wait()
		if len(uids) != 1 || codes["201"]+codes["409conflict"] != 40 {
			t.Errorf("got the entries %v and the answers %v, want one entry and only 201 and 409 conflict", uids, codes)
		}
	})
}

// TestRoutesWithoutKey checks which routes need no key.
func TestRoutesWithoutKey(t *testing.T) {
	eachService(t, func(t *testing.T, c *client) {
		open := c.withKey("")
		for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ok\n"} {
			c.equal(path, open.do("200", "GET", path, "").text, want)
		}
		if r := open.do("200", "GET", "/docs", ""); !strings.Contains(r.text, "createEntry") || strings.Contains(r.text, "http://") || strings.Contains(r.text, "https://") {
			t.Errorf("the docs lack createEntry, or refer to another host: %s", r.text)
		}
		for _, path := range []string{"/v1/status", "/v1/schema"} {
			open.do("401 key", "GET", path, "")
		}
		id := open.do("401 key", "GET", "/v1/status", "", "X-Request-Id", "abc-1").header.Get("X-Request-Id")
		c.equal("request ID from the client", id, "abc-1")
		if id := open.do("401 key", "GET", "/v1/status", "", "X-Request-Id", "a b{}").header.Get("X-Request-Id"); strings.Contains(id, " ") || id == "" {
			t.Errorf("got the request ID %q, want one without spaces", id)
		}
	})
}

// TestStoreUnavailable checks that while the store does not answer, responses say only that, and
// that requests succeed again afterwards.
func TestStoreUnavailable(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		s = s.Under(t, testSchema())
		c := newClient(t, s, serve.Options{})
		c.create(alice)
		fault := &testdb.Cut{}
		s.AddHook(fault)
		for _, ask := range [][3]string{
			{"GET", "/v1/types/user/entries/alice", ""},
			{"POST", "/v1/types/user/login", `{"identifier":"alice","password":"battery staple 9"}`},
			{"POST", "/v1/types/user/entries", `{"uid":"alice2","facets":{"name":"alice2"}}`},
			{"PATCH", "/v1/types/user/entries/alice", `{"facets":{"job":"x"}}`},
			{"GET", "/v1/types/user/entries?order=age", ""},
			{"GET", "/v1/types/user/export", ""},
			{"GET", "/readyz", ""},
		} {
			r := c.send(ask[0], ask[1], ask[2])
			if r.status != 503 || r.str("code") != "unavailable" || r.header.Get("Retry-After") == "" || strings.Contains(r.text, "cut") {
				t.Errorf("%v: got %d %s %v, want 503 with a Retry-After and without the cause", ask, r.status, r.text, r.header)
			}
		}
		c.withKey("").do("200", "GET", "/healthz", "")
		if logs := c.logs.String(); strings.Contains(logs, "alice") {
			t.Errorf("the log has an identifier: %s", logs)
		}
		fault.Left.Store(1 << 40)
		c.do("200", "GET", "/v1/types/user/entries/alice", "")
	})
}

// TestPartialChanges makes the store fail in the middle of requests that make several changes. If
// any change was made, the response must say that it remains.
func TestPartialChanges(t *testing.T) {
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	c := newClient(t, s, serve.Options{SCIM: &scim.Options{}})
	fault := &testdb.Cut{}
	fault.Left.Store(1 << 40)
	s.AddHook(fault)
	path := c.create(alice)
	c.do("200", "GET", "/v1/types/user/entries/alice", "")
	c.send("GET", "/scim/v2/Users", "")
	state := func() string {
		return c.do("200", "GET", path, "").text + c.do("200", "GET", path+"/tags", "").text + c.send("GET", "/scim/v2/Groups", "").text
	}
	for _, ask := range [][3]string{
		{"PUT", path + "/password", `{"password":"battery staple %d","session":{}}`},
		{"POST", "/scim/v2/Groups", `{"displayName":"g%d","members":[{"value":"alice"}]}`},
	} {
		partly, status := 0, 0
		for left := int64(0); status < 200 || status >= 300; left++ {
			before := state()
			fault.Left.Store(left)
			r := c.send(ask[0], ask[1], fmt.Sprintf(ask[2], 100+left))
			fault.Left.Store(1 << 40)
			status = r.status
			switch partial := strings.Contains(r.text, "changes made so far remain"); {
			case partial:
				partly++
			case status >= 300 && state() != before:
				t.Errorf("%s %s, cut off after %d commands: a change was made, but the response is %s", ask[0], ask[1], left, r.text)
			}
			if left == 200 {
				t.Fatalf("the request never succeeds: %d %s", r.status, r.text)
			}
		}
		if partly == 0 {
			t.Errorf("%s %s: no response mentions partial changes", ask[0], ask[1])
		}
	}
}

// TestInterruptedExport checks that if the store fails in the middle of an export, the response is
// visibly incomplete and the log says so.
func TestInterruptedExport(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		s = s.Under(t, testSchema())
		c := newClient(t, s, serve.Options{})
		var lines strings.Builder
		for i := range 1500 {
			fmt.Fprintf(&lines, `{"facets":{"name":"u%d"}}`+"\n", i)
		}
		c.do("200", "POST", "/v1/types/user/import", lines.String())
		fault := &testdb.Cut{}
		s.AddHook(fault)
		whole, broken := false, 0
		for left := int64(0); !whole && left < 200; left++ {
			fault.Left.Store(1 << 40)
			c.do("200", "GET", "/v1/schema", "") // caches the key
			fault.Left.Store(left)
			req, err := http.NewRequestWithContext(c.Ctx, "GET", c.url+"/v1/types/user/export", nil)
			must(t, err)
			req.Header.Set("Authorization", "Bearer "+c.key)
			res, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				broken++
				continue
			}
			text, err := io.ReadAll(res.Body)
			res.Body.Close()
			n := strings.Count(string(text), "\n")
			switch {
			case res.StatusCode == 503:
			case err != nil:
				if broken++; !strings.Contains(c.logs.String(), `"level":"ERROR","msg":"request","id":"`+res.Header.Get("X-Request-Id")+`","method":"GET","operation":"exportEntries","status":200`) {
					t.Errorf("the log has no error: %s", c.logs)
				}
			case n != 1500:
				t.Fatalf("after %d commands: the response looks complete with %d lines of 1500", left, n)
			default:
				whole = true
			}
		}
		if !whole || broken == 0 {
			t.Errorf("never complete: %v; interrupted %d times; want a complete export after at least one interruption", !whole, broken)
		}
	})
}

// TestMetrics checks that requests are counted by operation and status, and by nothing that a
// client wrote.
func TestMetrics(t *testing.T) {
	t.Parallel()
	s := userdbtest.New(t)
	service, err := serve.New(s.DB, serve.Options{})
	must(t, err)
	for _, path := range []string{"/healthz", "/v1/types/user/entries/a", "/v1/types/user/entries/b", "/secret"} {
		w := httptest.NewRecorder()
		service.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
	}
	registry := prometheus.NewPedanticRegistry()
	must(t, registry.Register(service.Metrics()))
	families, err := registry.Gather()
	must(t, err)
	got := ""
	for _, m := range families[0].GetMetric() {
		got += fmt.Sprintln(m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetValue(), m.GetHistogram().GetSampleCount())
	}
	if want := "getEntry 401 2\nhealth 200 1\nnone 404 1\n"; got != want {
		t.Errorf("got counts:\n%swant:\n%s", got, want)
	}
}

// TestManyRefusedLines checks that a response has only the first megabyte of the refused lines,
// that it says how many it leaves out, and that no lines go to the disk.
func TestManyRefusedLines(t *testing.T) {
	t.Setenv("TMPDIR", "/nowhere")
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	c := newClient(t, s, serve.Options{})
	const line = `{"facets":{"name":"x","email":"nobody"}}` + "\n"
	for n, full := range map[int]bool{1000: true, 30_000: false} {
		r := c.do("200", "POST", "/v1/types/user/import", strings.Repeat(line, n))
		listed := strings.Count(r.text, "\n") - 1
		report := fmt.Sprintf(`{"report":{"read":%d,"created":0,"updated":0,"skipped":0,"refused":%d}`, n, n)
		if full {
			c.equal("report", last(r), report+"}")
		} else {
			c.equal("report", last(r), report+fmt.Sprintf(`,"omitted":%d}`, n-listed))
		}
		if (listed == n) != full || listed < 1000 || len(r.text) > 1<<20+200 {
			t.Errorf("of %d refused lines: got %d in %d bytes, want all that fit in 1 MiB", n, listed, len(r.text))
		}
		if !strings.HasPrefix(r.text, `{"line":1,`) || !strings.Contains(r.text, fmt.Sprintf(`{"line":%d,`, listed)) {
			t.Errorf("of %d refused lines: these are not the first", n)
		}
	}
}

// TestRevokedWhileImporting checks that an import ends when its key is revoked, although it has
// read many lines that are yet to be hashed and written, and its client sends no more.
func TestRevokedWhileImporting(t *testing.T) {
	g := newGatedClient(t) // hashes of passwords wait
	defer g.open()
	c, pass := g.withClock()
	old := c.withKey(c.makeKey(admin.Key{Name: "old", Scopes: []string{admin.ScopeAdmin}}))
	body, answer := old.startImport(http.DefaultClient, old.url)
	defer body.Close()
	var lines strings.Builder
	for i := range 300 {
		fmt.Fprintf(&lines, `{"clear_password":"battery staple %d","facets":{"name":"u%d"}}`+"\n", i, i)
	}
	_, err := io.WriteString(body, lines.String())
	must(t, err)
	jobs := func() int { n, _ := g.gate.counts(); return n }
	c.until("several passwords wait to be hashed", func() bool { return jobs() > 1 })
	keys, err := admin.OpenKeys(g.DB)
	must(t, err)
	must(t, keys.Revoke(t.Context(), "old"))
	pass(5 * time.Second)
	c.until("only the password that is being hashed is left", func() bool { return jobs() == 1 })
	g.open()
	select {
	case r := <-answer:
		if r.status != 401 || !strings.Contains(r.text, `"code":"key"`) {
			t.Errorf("got %d %s, want 401", r.status, r.text)
		}
	case <-time.After(20 * time.Second):
		t.Error("the import goes on, want it to end")
	}
	c.equal("count", c.do("200", "GET", "/v1/types/user/count", "").str("count"), "1") // alice
}
