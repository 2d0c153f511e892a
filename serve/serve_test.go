package serve_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

func TestMain(m *testing.M) {
	testdb.Restricted = true // Redis grants only the rights in the compose file
	os.Exit(testdb.Main(m))
}

// A client sends requests with a key to a service.
type client struct {
	*testdb.Site
	t    *testing.T
	url  string
	key  string
	logs *safeBuffer
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// testSchema returns a schema with a field of each role and two types.
func testSchema() schema.Schema {
	sc := testdb.DefaultSchema()
	user := sc.Types["user"]
	user.Fields["age"] = schema.Field{Role: schema.RoleOrdered, Codec: schema.CodecNumber}
	sc.Types["user"] = user
	return sc
}

// eachService runs a test with a service on every kind of store, and with a key that may do
// everything.
func eachService(t *testing.T, test func(t *testing.T, c *client)) {
	t.Helper()
	eachServiceOn(t, func(*view.Config) {}, test)
}

// eachServiceOn does the same as eachService, and calls edit to change the configuration of each
// store.
func eachServiceOn(t *testing.T, edit func(*view.Config), test func(t *testing.T, c *client)) {
	t.Helper()
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		s = s.Under(t, testSchema())
		s.Edit(t, edit)
		c := newClient(t, s, serve.Options{})
		test(t, c)
		for secret := range strings.SplitSeq("battery staple,udb_", ",") {
			if strings.Contains(c.logs.String(), secret) {
				t.Errorf("the log has %q:\n%s", secret, c.logs)
			}
		}
	})
}

func newClient(t *testing.T, s *testdb.Site, o serve.Options) *client {
	t.Helper()
	c := &client{Site: s, t: t, logs: &safeBuffer{}}
	s.Edit(t, func(c *view.Config) { c.History = true })
	o.Namespace, o.Logger = s.NS, slog.New(slog.NewJSONHandler(c.logs, nil))
	service, err := serve.New(s.DB, o)
	must(t, err)
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	c.url = server.URL
	c.key = c.makeKey(admin.Key{Name: "all", Scopes: []string{admin.ScopeAdmin}})
	return c
}

// makeKey creates a key for the namespace of the store.
func (c *client) makeKey(k admin.Key) string {
	c.t.Helper()
	if k.Namespace == "" {
		k.Namespace = c.NS.Path()
	}
	keys, err := admin.OpenKeys(c.DB)
	must(c.t, err)
	secret, err := keys.Create(c.Ctx, k)
	must(c.t, err)
	return secret
}

// withKey returns a client of the same service with another key.
func (c *client) withKey(key string) *client {
	other := *c
	other.key = key
	return &other
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A reply is a response of the service.
type reply struct {
	status int
	header http.Header
	text   string
	body   map[string]any
}

// str returns the value at a path of names in the body as text.
func (r reply) str(path string) string {
	var v any = r.body
	for name := range strings.SplitSeq(path, ".") {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// rules returns the errors in the body as field and rule.
func (r reply) rules() (all []string) {
	errs, _ := r.body["errors"].([]any)
	for _, e := range errs {
		m := e.(map[string]any)
		all = append(all, fmt.Sprint(m["field"], " ", m["rule"]))
	}
	slices.Sort(all)
	return all
}

// send sends a request and validates the response against the OpenAPI document.
func (c *client) send(method, path, body string, headers ...string) reply {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.Ctx, method, c.url+path, strings.NewReader(body))
	must(c.t, err)
	req.Header.Set("Authorization", "Bearer "+c.key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	must(c.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(c.t, err)
	r := reply{status: res.StatusCode, header: res.Header, text: string(text)}
	_ = json.Unmarshal(text, &r.body) // other bodies have no members
	c.validate(method, path, body, r)
	return r
}

// do sends a request and checks the status and, if it is a problem, the code.
func (c *client) do(want string, method, path, body string, headers ...string) reply {
	c.t.Helper()
	r := c.send(method, path, body, headers...)
	got := fmt.Sprint(r.status)
	if r.status >= 400 {
		got += " " + r.str("code")
		if r.header.Get("Content-Type") != "application/problem+json" || r.str("status") != fmt.Sprint(r.status) ||
			r.str("type") != "urn:userdb:error:"+r.str("code") || r.str("title") == "" || r.str("request_id") != r.header.Get("X-Request-Id") {
			c.t.Errorf("%s %s: malformed problem: %s %v", method, path, r.text, r.header)
		}
	}
	if got != want {
		c.t.Fatalf("%s %s: got %s %s, want %s", method, path, got, r.text, want)
	}
	return r
}

// create creates an entry and returns its path.
func (c *client) create(body string) string {
	c.t.Helper()
	return c.do("201", "POST", "/v1/types/user/entries", body).header.Get("Location")
}

const alice = `{"uid":"alice","facets":{"name":"Alice","email":"alice@example.com","job":"cook","age":41},"tags":["a","b"],"password":"battery staple 9"}`

func (c *client) equal(what, got, want string) {
	c.t.Helper()
	if got != want {
		c.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestEntries(t *testing.T) {
	eachService(t, func(t *testing.T, c *client) {
		r := c.do("201", "POST", "/v1/types/user/entries", alice)
		path := r.header.Get("Location")
		c.equal("path", path, "/v1/types/user/entries/alice")
		c.equal("type", r.str("type"), "user")
		c.equal("name", r.str("facets.name"), "Alice")
		c.equal("age", r.str("facets.age"), "41")
		if r.str("created") == "" || r.str("created") != r.str("facets.added") || r.header.Get("ETag") != `"`+r.str("rev")+`"` {
			t.Errorf("got %s, want created to equal the facet added, and the ETag to be the revision", r.text)
		}
		etag := r.header.Get("ETag")
		c.equal("entry read back", c.do("200", "GET", path, "").text, r.text)
		for _, tag := range []string{etag, "W/" + etag, `"x", ` + etag, "*"} {
			if r := c.do("304", "GET", path, "", "If-None-Match", tag); r.text != "" || r.header.Get("ETag") != etag {
				t.Errorf("If-None-Match %s: got a 304 with the body %q and the header %v, want no body and the ETag %s", tag, r.text, r.header, etag)
			}
		}
		c.do("200", "GET", path, "", "If-None-Match", `"x"`)
		c.do("412 precondition", "PATCH", path, `{"facets":{"age":1}}`, "If-Match", `"x"`)
		r = c.do("200", "PATCH", path, `{"facets":{"age":42,"job":null},"rev":"ignored","uid":"ignored"}`, "If-Match", "W/"+etag, "Content-Type", "application/merge-patch+json")
		c.equal("patched", r.str("facets.age")+r.str("facets.job")+r.str("facets.name"), "42Alice")
		c.do("412 precondition", "PATCH", path, `{"facets":{"age":1}}`, "If-Match", etag)
		c.do("200", "PATCH", path, `{"facets":{}}`)

		c.do("204", "POST", path+"/disable", "")
		c.equal("disabled", c.do("200", "GET", path, "").str("disabled"), "true")
		c.do("204", "POST", path+"/enable", "")
		c.do("204", "DELETE", path+"/waits", "")
		etag = c.do("200", "GET", path, "").header.Get("ETag")
		c.do("412 precondition", "DELETE", path, "", "If-Match", `"x"`)
		c.do("204", "DELETE", path, "", "If-Match", etag)
		for _, gone := range []func() reply{
			func() reply { return c.do("404 not_found", "GET", path, "") },
			func() reply { return c.do("404 not_found", "PATCH", path, `{"facets":{"age":1}}`) },
			func() reply { return c.do("404 not_found", "DELETE", path, "") },
			func() reply { return c.do("404 not_found", "POST", path+"/disable", "") },
			func() reply { return c.do("404 not_found", "DELETE", path+"/waits", "") },
			func() reply { return c.do("404 not_found", "GET", path+"/tags", "") },
			func() reply { return c.do("404 not_found", "PUT", path+"/tags", `{"tags":["x"]}`) },
			func() reply { return c.do("404 not_found", "GET", path+"/sessions", "") },
			func() reply { return c.do("404 not_found", "PUT", path+"/password", `{"password":"battery staple 1"}`) },
			func() reply { return c.do("404 not_found", "GET", path+"/export", "") },
		} {
			gone()
		}
	})
}

// TestAllErrorsReported checks that the response to a refused request lists everything that is
// wrong with it.
func TestAllErrorsReported(t *testing.T) {
	eachService(t, func(t *testing.T, c *client) {
		c.create(alice)
		r := c.do("409 duplicate", "POST", "/v1/types/user/entries", `{"facets":{"name":"ALICE","email":"alice@EXAMPLE.com"}}`)
		c.equal("rules", fmt.Sprint(r.rules()), "[email taken name taken]")
		c.equal("first error", r.str("field")+r.str("rule"), "emailtaken")
		r = c.do("422 invalid", "POST", "/v1/types/user/entries", `{"facets":{"name":"alice","email":"x","age":"x","nosuch":1},"password":"short"}`)
		c.equal("rules", fmt.Sprint(r.rules()), "[age codec email email name taken nosuch undeclared password min]")
		pointer := r.body["errors"].([]any)[0].(map[string]any)["pointer"]
		c.equal("pointer", fmt.Sprint(pointer), "/facets/age")
		r = c.do("422 invalid", "PATCH", "/v1/types/user/entries/alice", `{"facets":{"email":"x","age":true}}`)
		c.equal("rules of a patch", fmt.Sprint(r.rules()), "[age codec email email]")
		for body, want := range map[string]string{
			`{"facets":`: "not valid JSON", `[]`: "object", `{"faces":{}}`: "faces", `{"facets":[]}`: "facets", `{"tags":"x"}`: "tags", `{"uid":5}`: "uid", `"x"`: "object", "": "body",
		} {
			r := c.do("400 usage", "POST", "/v1/types/user/entries", body)
			if !strings.Contains(r.text, want) {
				t.Errorf("%s: got %s, want a mention of %s", body, r.text, want)
			}
		}
		for body, want := range map[string]string{`{"identifier":"x"}`: "/password", `{"identifier":"x","password":"y","session":true}`: "/session"} {
			r := c.do("400 usage", "POST", "/v1/types/user/login", body)
			c.equal(body, fmt.Sprint(r.body["errors"].([]any)[0].(map[string]any)["pointer"]), want)
		}
		c.do("413 usage", "POST", "/v1/types/user/entries", `{"facets":{"name":"`+strings.Repeat("x", 1<<20)+`"}}`)
		c.do("415 usage", "POST", "/v1/types/user/entries", "name=alice", "Content-Type", "application/x-www-form-urlencoded")
		c.do("404 not_found", "GET", "/v1/types/nosuch/entries/x", "")
		c.do("404 not_found", "GET", "/v1/nosuch", "")
		if r := c.do("405 usage", "PUT", "/v1/types/user/login", ""); r.header.Get("Allow") != "POST" {
			t.Errorf("got %v, want the header Allow: POST", r.header)
		}
	})
}

func TestListings(t *testing.T) {
	eachService(t, func(t *testing.T, c *client) {
		for i := range 7 {
			c.create(fmt.Sprintf(`{"uid":"u%d","facets":{"name":"user%d","age":%d,"job":"job%d"},"tags":["all","t%d"]}`, i, i, 10+i, i%2, i%3))
		}
		uids := func(r reply) (all string) {
			for _, e := range r.body["entries"].([]any) {
				all += " " + fmt.Sprint(e.(map[string]any)["uid"])
			}
			return all
		}
		list := func(query string) reply { return c.do("200", "GET", "/v1/types/user/entries?"+query, "") }
		c.equal("order", uids(list("order=age&gte=11&lte=14")), " u1 u2 u3 u4")
		c.equal("reverse", uids(list("order=age&reverse=true&limit=2")), " u6 u5")
		c.equal("where", uids(list("where=name:USER3")), " u3")
		c.equal("order, where and tags", uids(list("order=age&where=job:job1&tag=t0&tag=all")), " u3")
		pages, after, back := "", "", ""
		for {
			r := list("order=age&limit=3" + after)
			pages += "|" + uids(r)
			if r.str("next") == "" {
				break
			}
			after, back = "&after="+r.str("next"), r.str("prev")
		}
		c.equal("pages", pages, "| u0 u1 u2| u3 u4 u5| u6")
		c.equal("previous page", uids(list("order=age&limit=3&after="+back)), " u0 u1 u2")
		c.do("204", "POST", "/v1/types/user/entries/u2/disable", "")
		c.equal("disabled", uids(list("disabled=true")), " u2")
		for _, bad := range []string{"order=job", "order=nosuch", "where=age:5", "where=name", "limit=0", "limit=201", "limit=x", "after=x", "after=n.x", "nosuch=1", "gte=5", "order=age&gte=x", "disabled=maybe", "where=name:a&where=name:b", "tag=", "tag=all&tag=", "where=", "prefix=x", "reverse=true"} {
			r := c.do("400 usage", "GET", "/v1/types/user/entries?"+bad, "")
			if strings.HasPrefix(r.str("detail"), ":") {
				t.Errorf("%s: the detail does not say what is wrong: %s", bad, r.text)
			}
		}
		c.do("400 usage", "GET", "/v1/types/user/count?tag=", "")
		count := func(query string) string {
			r := c.do("200", "GET", "/v1/types/user/count?"+query, "")
			return r.str("count")
		}
		c.equal("counts", count("")+count("tag=t1")+count("where=job:job0")+count("disabled=false"), "7246")
		r := c.do("200", "POST", "/v1/types/user/lookup", `{"value":"USER4"}`)
		c.equal("lookup", r.str("uid"), "u4")
		c.equal("by field", c.do("200", "POST", "/v1/types/user/lookup", `{"value":"user4","field":"name"}`).str("uid"), "u4")
		c.do("404 not_found", "POST", "/v1/types/user/lookup", `{"value":"user4","field":"email"}`)
		// A record key is not an identifier.
		c.do("404 not_found", "POST", "/v1/types/user/lookup", `{"value":"user/uid:u1"}`)
		c.do("400 usage", "POST", "/v1/types/user/lookup", `{"value":""}`)
		r = c.do("200", "POST", "/v1/types/user/entries/get", `{"uids":["u1","nobody","u0"]}`)
		all := r.body["entries"].([]any)
		if len(all) != 3 || all[1] != nil || all[2].(map[string]any)["uid"] != "u0" {
			t.Errorf("got %s, want three entries, the second of them null and the third u0", r.text)
		}
		c.do("400 usage", "POST", "/v1/types/user/entries/get", `{"uids":["`+strings.Repeat(`x","`, 100)+`"]}`)
	})
}

func TestTags(t *testing.T) {
	eachService(t, func(t *testing.T, c *client) {
		path := c.create(alice)
		tags := func() string { return c.do("200", "GET", path+"/tags", "").text }
		c.equal("initial tags", tags(), `{"tags":["a","b"]}`+"\n")
		c.equal("replaced", c.do("200", "PUT", path+"/tags", `{"tags":["c","b","c"]}`).text, `{"tags":["b","c"]}`+"\n")
		c.do("204", "PUT", path+"/tags/d%2Fe%20%7B", "")
		c.do("204", "DELETE", path+"/tags/b", "")
		c.do("204", "DELETE", path+"/tags/nosuch", "")
		c.equal("changed tags", tags(), `{"tags":["c","d/e {"]}`+"\n")
		c.equal("by index", c.do("200", "GET", "/v1/types/user/count?tag=d%2Fe%20%7B", "").str("count"), "1")
		c.equal("by index, after removal", c.do("200", "GET", "/v1/types/user/count?tag=a", "").str("count"), "0")
		c.do("200", "PUT", path+"/tags", `{"tags":[]}`)
		c.equal("no tags", tags(), `{"tags":[]}`+"\n")
	})
}

func TestLoginsAndSessions(t *testing.T) {
	now := time.Now()
	// Time that passes would end the delay after wrong passwords, which begins at one second.
	still := func(c *view.Config) { c.Clock = func() time.Time { return now } }
	eachServiceOn(t, still, func(t *testing.T, c *client) {
		path := c.create(alice)
		c.do("401 login", "POST", "/v1/types/user/login", `{"identifier":"alice","password":"wrong"}`)
		c.do("401 login", "POST", "/v1/types/user/login", `{"identifier":"nobody","password":"battery staple 9"}`)
		r := c.do("200", "POST", "/v1/types/user/login", `{"identifier":"ALICE","password":"battery staple 9"}`)
		if c.equal("entry", r.str("entry.uid"), "alice"); r.body["session"] != nil {
			t.Errorf("got a session that was not requested: %s", r.text)
		}
		r = c.do("200", "POST", "/v1/types/user/login", `{"identifier":"Alice","password":"battery staple 9","origin":"192.0.2.1","agent":"test","session":{"life":"2d","idle":"1h"}}`)
		secret, id := r.str("session.secret"), r.str("session.id")
		active := func(secret string) string {
			return c.do("200", "POST", "/v1/session", `{"secret":"`+secret+`"}`).str("active")
		}
		c.equal("active", active(secret), "true")
		c.equal("unknown secret", active(secret[1:]), "false")
		r = c.do("200", "GET", path+"/sessions", "")
		if !strings.Contains(r.text, id) || !strings.Contains(r.text, `"agent":"test"`) || strings.Contains(r.text, secret) {
			t.Errorf("got %s, want the session with its ID and agent, but without its secret", r.text)
		}
		for _, bad := range []string{`{"life":"x"}`, `{"life":"500d"}`, `{"idle":"1s"}`, `{"life":"-1h"}`, `{"life":"0s"}`} {
			c.do("422 invalid", "POST", "/v1/types/user/login", `{"identifier":"Alice","password":"battery staple 9","session":`+bad+`}`)
		}
		c.equal("verified", c.do("200", "POST", "/v1/session/verify", `{"secret":"`+secret+`","password":"battery staple 9"}`).str("active"), "true")
		c.do("401 login", "POST", "/v1/session/verify", `{"secret":"`+secret+`","password":"wrong"}`)
		c.equal("unknown secret, verified", c.do("200", "POST", "/v1/session/verify", `{"secret":"x","password":"wrong"}`).str("active"), "false")
		c.equal("UID in the header", c.do("204", "GET", "/v1/session/check", "", "Cookie", "session="+secret).header.Get("Userdb-Uid"), "alice")
		// Some proxies also send the query of the visitor's request.
		c.do("204", "GET", "/v1/session/check?tab=a&tab=b&%zz;after=x", "", "Cookie", "session="+secret)
		c.do("401 login", "GET", "/v1/session/check", "", "Cookie", "session=x")
		c.do("401 login", "GET", "/v1/session/check", "")
		c.withKey("udb_x").do("403 key", "GET", "/v1/session/check", "", "Cookie", "session="+secret)

		r = c.do("201", "POST", path+"/sessions", `{"origin":"192.0.2.2","life":"1h"}`)
		second := r.str("session.secret")
		c.do("412 precondition", "POST", path+"/sessions", `{}`, "If-Match", `"x"`)
		c.do("204", "DELETE", path+"/sessions/"+id, "")
		c.do("404 not_found", "DELETE", path+"/sessions/"+id, "")
		c.equal("one session ended, the other active", active(secret)+active(second), "falsetrue")
		c.do("204", "POST", "/v1/session/end", `{"secret":"`+second+`"}`)
		c.do("204", "POST", "/v1/session/end", `{"secret":"`+second+`"}`)
		c.equal("session after its end", active(second), "false")

		third := c.do("201", "POST", path+"/sessions", `{}`).str("session.secret")
		c.do("204", "DELETE", path+"/sessions", "")
		c.equal("session after the end of all", active(third), "false")
		r = c.do("200", "PUT", path+"/password", `{"password":"battery staple 10","session":{}}`)
		fourth := r.str("session.secret")
		c.equal("session begun with the new password", active(fourth), "true")
		c.do("401 login", "PUT", path+"/password", `{"password":"battery staple 11","current":"battery staple 9"}`)
		c.do("200", "PUT", path+"/password", `{"password":"battery staple 11","current":"battery staple 10"}`)
		c.equal("session begun with an old password", active(fourth), "false")
		c.do("422 invalid", "PUT", path+"/password", `{"password":"short"}`)
		c.do("204", "POST", path+"/disable", "")
		c.do("409 conflict", "POST", path+"/sessions", `{}`)
		c.do("401 login", "POST", "/v1/types/user/login", `{"identifier":"alice","password":"battery staple 11"}`)
		c.do("204", "POST", path+"/enable", "")
		for i := range 12 {
			c.send("POST", "/v1/types/user/login", fmt.Sprintf(`{"identifier":"alice","password":"wrong %d"}`, i))
		}
		r = c.do("429 throttled", "POST", "/v1/types/user/login", `{"identifier":"alice","password":"battery staple 11"}`)
		if r.header.Get("Retry-After") == "" || r.header.Get("Retry-After") != r.str("retry_after") {
			t.Errorf("got %v %s, want a Retry-After that equals retry_after in the body", r.header, r.text)
		}
		c.do("204", "DELETE", path+"/waits", "")
		c.do("200", "POST", "/v1/types/user/login", `{"identifier":"alice","password":"battery staple 11"}`)
	})
}

func TestTokens(t *testing.T) {
	eachService(t, func(t *testing.T, c *client) {
		path := c.create(alice)
		c.equal("field of the error", c.do("422 invalid", "POST", "/v1/types/user/invitations", `{"field":"nosuch","address":"x"}`).str("field"), "field")
		issue := func(body string) string {
			return c.do("200", "POST", "/v1/types/user/tokens", body).str("secret")
		}
		secret := issue(`{"purpose":"verify","uid":"alice","value":"v","life":"1h"}`)
		body := `{"purpose":"verify","secret":"` + secret + `"}`
		c.equal("value when peeking", c.do("200", "POST", "/v1/tokens/peek", body).str("value"), "v")
		c.do("404 not_found", "POST", "/v1/tokens/redeem", `{"purpose":"other","secret":"`+secret+`"}`)
		r := c.do("200", "POST", "/v1/tokens/redeem", body)
		c.equal("value and entry when redeeming", r.str("value")+r.str("entry.uid"), "valice")
		c.do("404 not_found", "POST", "/v1/tokens/redeem", body)
		c.do("404 not_found", "POST", "/v1/tokens/peek", body)

		r = c.do("200", "POST", "/v1/types/user/tokens", `{"purpose":"reset","identifier":"ALICE@example.com","field":"email","origin":"192.0.2.1"}`)
		c.equal("address", r.str("address"), "alice@example.com")
		reset := `{"purpose":"reset","secret":"` + r.str("secret") + `","password":"battery staple 12","session":{}}`
		c.do("422 invalid", "POST", "/v1/password-resets", strings.Replace(reset, "battery staple 12", "short", 1))
		r = c.do("200", "POST", "/v1/password-resets", reset)
		c.equal("session of a password reset", c.do("200", "POST", "/v1/session", `{"secret":"`+r.str("session.secret")+`"}`).str("active"), "true")
		c.equal("verified", r.str("entry.verified"), "[email]")
		c.do("404 not_found", "POST", "/v1/password-resets", reset)
		c.do("404 not_found", "POST", "/v1/types/user/tokens", `{"purpose":"reset","identifier":"nobody@example.com","field":"email"}`)
		for range 3 {
			c.send("POST", "/v1/types/user/tokens", `{"purpose":"reset","identifier":"nobody@example.com","field":"email"}`)
		}
		c.do("429 throttled", "POST", "/v1/types/user/tokens", `{"purpose":"reset","identifier":"nobody@example.com","field":"email"}`)
		c.do("400 usage", "POST", "/v1/types/user/tokens", `{"purpose":"reset"}`)
		c.do("400 usage", "POST", "/v1/types/user/tokens", `{"purpose":"reset","uid":"alice","identifier":"alice"}`)
		c.do("404 not_found", "POST", "/v1/types/user/tokens", `{"purpose":"reset","uid":"nobody"}`)

		in := issue(`{"purpose":"sign in","uid":"alice","value":"w"}`)
		r = c.do("200", "POST", "/v1/tokens/redeem", `{"purpose":"sign in","secret":"`+in+`","session":{}}`)
		c.equal("value of the token", r.str("value"), "w")
		c.equal("session of a redeemed token", c.do("200", "POST", "/v1/session", `{"secret":"`+r.str("session.secret")+`"}`).str("active"), "true")
		for body, want := range map[string]string{
			`{"purpose":"change:email","uid":"alice"}`:             "[/value non-empty]",
			`{"purpose":"change:email","uid":"alice","value":"x"}`: "[/value email]",
			`{"purpose":"reset","uid":"alice","field":"number"}`:   "[/field absent]",
			`{"purpose":"change:nosuch","uid":"alice"}`:            "[/purpose change]",
			`{"purpose":"x","uid":"alice","life":"40d"}`:           "[/life range]",
		} {
			c.equal(body, fmt.Sprint(c.do("422 invalid", "POST", "/v1/types/user/tokens", body).pointers()), want)
		}
		for body, want := range map[string]string{
			`{"field":"email","address":"x"}`:                    "[/address email]",
			`{"field":"nosuch","address":"x"}`:                   "[/field change]",
			`{"field":"email","address":"y@x.org","life":"40d"}`: "[/life range]",
		} {
			c.equal(body, fmt.Sprint(c.do("422 invalid", "POST", "/v1/types/user/invitations", body).pointers()), want)
		}
		move := issue(`{"purpose":"change:email","uid":"alice","value":"new@example.com"}`)
		c.do("200", "POST", "/v1/tokens/redeem", `{"purpose":"change:email","secret":"`+move+`"}`)
		c.equal("new address", c.do("200", "GET", path, "").str("facets.email"), "new@example.com")

		r = c.do("200", "POST", "/v1/types/user/invitations", `{"field":"email","address":"bob@example.com","value":"hello"}`)
		c.equal("known, of a new address", r.str("known"), "false")
		invited := `"secret":"` + r.str("secret") + `"`
		c.equal("address of the invitation", c.do("200", "POST", "/v1/types/user/invitations/peek", "{"+invited+"}").str("address"), "bob@example.com")
		r = c.do("422 invalid", "POST", "/v1/types/user/invitations/accept", `{`+invited+`,"facets":{"name":"alice"},"password":"short"}`)
		c.equal("rules", fmt.Sprint(r.rules()), "[name taken password min]")
		c.create(`{"uid":"carol","facets":{"email":"carol@example.com"}}`)
		taken := issue(`{"purpose":"change:email","uid":"alice","value":"late@example.com"}`)
		toLate := c.do("200", "POST", "/v1/types/user/invitations", `{"field":"email","address":"late@example.com"}`).str("secret")
		c.create(`{"uid":"dave","facets":{"email":"late@example.com"}}`)
		r2 := c.do("409 duplicate", "POST", "/v1/tokens/redeem", `{"purpose":"change:email","secret":"`+taken+`"}`)
		c.equal("taken value of a token", fmt.Sprint(r2.pointers()), "[<nil> taken]")
		r2 = c.do("409 duplicate", "POST", "/v1/types/user/invitations/accept", `{"secret":"`+toLate+`","facets":{"name":"late"},"password":"battery staple 13"}`)
		c.equal("taken address of an invitation", fmt.Sprint(r2.pointers()), "[<nil> taken]")
		r = c.do("201", "POST", "/v1/types/user/invitations/accept", `{`+invited+`,"facets":{"name":"bob"},"password":"battery staple 13","session":{}}`)
		c.equal("address and verified", r.str("entry.facets.email")+r.str("entry.verified"), "bob@example.com[email]")
		if r.header.Get("Location") == "" || r.str("session.secret") == "" {
			t.Errorf("no location or no session: %s", r.text)
		}
		c.do("404 not_found", "POST", "/v1/types/user/invitations/accept", `{`+invited+`,"facets":{"name":"bob2"}}`)
		backend := c.withKey(c.makeKey(admin.Key{Name: "backend", Scopes: []string{admin.ScopeLogin}}))
		tagged := backend.do("200", "POST", "/v1/types/user/invitations", `{"field":"email","address":"tagged@example.com"}`).str("secret")
		backend.do("403 scope", "POST", "/v1/types/user/invitations/accept", `{"secret":"`+tagged+`","tags":["admin"]}`)
		backend.do("201", "POST", "/v1/types/user/invitations/accept", `{"secret":"`+tagged+`"}`)
		r = c.do("200", "POST", "/v1/types/user/invitations", `{"field":"email","address":"BOB@example.com"}`)
		c.equal("known, of a used address", r.str("known")+r.str("secret"), "true")
	})
}

// TestEmptyPasswords checks that an empty password is not treated as absent: it creates no account
// without a password, and as the current password it is wrong, even if the key has the scope write
// and so need not send one.
func TestEmptyPasswords(t *testing.T) {
	eachService(t, func(t *testing.T, c *client) {
		path := c.create(alice)
		for _, current := range []string{`""`, `" "`, "null"} {
			c.do("401 login", "PUT", path+"/password", `{"password":"battery staple 10","current":`+current+`}`)
		}
		c.do("200", "POST", "/v1/types/user/login", `{"identifier":"alice","password":"battery staple 9"}`)
		r := c.do("422 invalid", "POST", "/v1/types/user/entries", `{"facets":{"name":"bob"},"password":""}`)
		c.equal("rules of an empty password", fmt.Sprint(r.rules()), "[password min]")
		for _, headers := range [][]string{nil, {"Idempotency-Key", "k"}} {
			r = c.do("422 invalid", "POST", "/v1/types/user/entries", `{"facets":{"name":"Alice","email":"x"},"password":""}`, headers...)
			c.equal("rules", fmt.Sprint(r.rules()), "[email email name taken password min]")
		}
		c.do("201", "POST", "/v1/types/user/entries", `{"facets":{"name":"carl"}}`, "Idempotency-Key", "k")
		secret := c.do("200", "POST", "/v1/types/user/invitations", `{"field":"email","address":"bob@example.com"}`).str("secret")
		r = c.do("422 invalid", "POST", "/v1/types/user/invitations/accept", `{"secret":"`+secret+`","facets":{"name":"ALICE"},"password":""}`)
		c.equal("rules for an invitation", fmt.Sprint(r.rules()), "[name taken password min]")
		c.equal("count", c.do("200", "GET", "/v1/types/user/count", "").str("count"), "2")
	})
}

// TestDryRunValues checks that an import is refused if it may have been meant as a dry run.
func TestDryRunValues(t *testing.T) {
	eachService(t, func(t *testing.T, c *client) {
		for _, word := range []string{"1", "TRUE", "yes"} {
			c.do("400 usage", "POST", "/v1/types/user/import?dry_run="+word, `{"type":"user","facets":{"name":"bob"}}`)
		}
		c.equal("count", c.do("200", "GET", "/v1/types/user/count", "").str("count"), "0")
	})
}

// TestDryRunComparesNoPasswords checks that the report of a dry run is the same for the password of
// an account and for any other, so that nobody can try passwords with it.
func TestDryRunComparesNoPasswords(t *testing.T) {
	eachService(t, func(t *testing.T, c *client) {
		c.create(alice)
		report := func(password string) string {
			line := `{"facets":{"uid":"alice","name":"Alice"},"clear_password":"` + password + `"}`
			return c.do("200", "POST", "/v1/types/user/import?dry_run=true&on_duplicate=update", line).text
		}
		c.equal("report of a dry run", report("battery staple 9"), report("battery staple 10"))
	})
}

// TestInvalidSessionOptions checks that invalid session options are refused before anything is
// done: no password is set, no token is spent, and no account is created.
func TestInvalidSessionOptions(t *testing.T) {
	eachService(t, func(t *testing.T, c *client) {
		path := c.create(alice)
		token := c.do("200", "POST", "/v1/types/user/tokens", `{"purpose":"reset","uid":"alice"}`).str("secret")
		invitation := c.do("200", "POST", "/v1/types/user/invitations", `{"field":"email","address":"bob@example.com"}`).str("secret")
		for _, session := range []string{`{"life":"500d"}`, `{"idle":"1s"}`, `{"life":"x"}`} {
			for _, s := range [][3]string{
				{"PUT", path + "/password", `{"password":"battery staple 10","session":%s}`},
				{"POST", "/v1/password-resets", `{"purpose":"reset","secret":"` + token + `","password":"battery staple 10","session":%s}`},
				{"POST", "/v1/types/user/invitations/accept", `{"secret":"` + invitation + `","facets":{"name":"bob"},"session":%s}`},
				{"POST", "/v1/types/user/login", `{"identifier":"alice","password":"battery staple 9","session":%s}`},
				{"POST", "/v1/tokens/redeem", `{"purpose":"reset","secret":"` + token + `","session":%s}`},
			} {
				r := c.do("422 invalid", s[0], s[1], fmt.Sprintf(s[2], session))
				c.equal("pointer", fmt.Sprint(r.body["errors"].([]any)[0].(map[string]any)["pointer"]), "/session/"+r.str("field"))
			}
			r := c.do("422 invalid", "POST", path+"/sessions", session)
			c.equal("pointer", fmt.Sprint(r.body["errors"].([]any)[0].(map[string]any)["pointer"]), "/"+r.str("field"))
		}
		c.do("200", "POST", "/v1/types/user/login", `{"identifier":"alice","password":"battery staple 9"}`)
		c.do("200", "POST", "/v1/tokens/peek", `{"purpose":"reset","secret":"`+token+`"}`)
		c.equal("count", c.do("200", "GET", "/v1/types/user/count", "").str("count"), "1")
	})
}

// TestNewType checks that sessions and tokens of a type that another program has added are valid in
// every process.
func TestNewType(t *testing.T) {
	defer serve.SetSchemaMaxAge(0)()
	eachService(t, func(t *testing.T, c *client) {
		other := newOtherService(t, c)
		other.do("200", "GET", "/v1/schema", "")
		sc := testSchema()
		sc.Types["robot"] = sc.Types["user"]
		db, err := c.DB.With(sc)
		must(t, err)
		robots, err := db.Type("robot")
		must(t, err)
		_, err = robots.Create(c.Ctx, userdb.NewEntry{UID: "r2", Password: "battery staple 9"})
		must(t, err)
		e, err := robots.Find(c.Ctx, hints.UID("r2"))
		must(t, err)
		_, secret, err := robots.StartSession(c.Ctx, e, userdb.SessionOptions{})
		must(t, err)
		token, err := robots.Issue(c.Ctx, hints.UID("r2"), userdb.Token{Purpose: "p"})
		must(t, err)
		other.do("200", "POST", "/v1/tokens/peek", `{"purpose":"p","secret":"`+token+`"}`)
		c.equal("active", other.do("200", "POST", "/v1/session", `{"secret":"`+secret+`"}`).str("active"), "true")
		if r := other.do("200", "GET", "/v1/schema", ""); !strings.Contains(r.text, "robot") {
			t.Errorf("the schema lacks the new type: %s", r.text)
		}
	})
}

// TestSchemaLosesField checks that a service follows a change of the schema that removes a field
// with an index: it does not list entries by an index that nobody maintains, and refuses at most
// the first write.
func TestSchemaLosesField(t *testing.T) {
	defer serve.SetSchemaMaxAge(0)()
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, testSchema()), serve.Options{})
		for _, name := range []string{"writes", "lists"} { // what a key does first after the change
			k := c.withKey(c.makeKey(admin.Key{Name: name, Scopes: []string{admin.ScopeAdmin}, Namespace: strings.TrimPrefix(c.NS.Path()+"/"+name, "/")}))
			path := k.create(alice)
			k.do("200", "GET", "/v1/types/user/entries?order=age", "")
			ns, err := s.NS.Sub(name)
			must(t, err)
			db, err := c.DB.In(ns)
			must(t, err)
			sc := testSchema()
			delete(sc.Types["user"].Fields, "age")
			plan, err := migrate.Plan(c.Ctx, db, sc)
			must(t, err)
			must(t, plan.Apply(c.Ctx, nil))
			if name == "writes" {
				k.send("PATCH", path, `{"facets":{"name":"Alicia"}}`)
				k.do("200", "PATCH", path, `{"facets":{"name":"Ada"}}`)
			}
			k.do("400 usage", "GET", "/v1/types/user/entries?order=age", "")
			k.do("400 usage", "GET", "/v1/types/user/count?order=age", "")
			k.do("200", "PATCH", path, `{"facets":{"name":"Alice"}}`)
		}
		c.do("200", "GET", "/v1/types/user/entries?order=age", "")
	})
}

// TestDeclaredFieldRetires checks that a service whose own schema declares a field with an index
// follows a change that removes the field: it refuses at most the first write, although no list has
// read the stored schema.
func TestDeclaredFieldRetires(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, testSchema()), serve.Options{})
		path := c.create(alice)
		sc := testSchema()
		delete(sc.Types["user"].Fields, "age")
		plan, err := migrate.Plan(c.Ctx, c.DB, sc)
		must(t, err)
		must(t, plan.Apply(c.Ctx, nil))
		c.send("PATCH", path, `{"facets":{"name":"Alicia"}}`)
		c.do("200", "PATCH", path, `{"facets":{"name":"Ada"}}`)
		c.do("400 usage", "GET", "/v1/types/user/entries?order=age", "")
	})
}

// TestSchemaGetsField checks that a service accepts and finds the values of a field that was added
// to the schema, although no list has read the stored schema.
func TestSchemaGetsField(t *testing.T) {
	defer serve.SetSchemaMaxAge(0)()
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, testSchema()), serve.Options{})
		path := c.create(alice)
		sc, err := migrate.StoredSchema(c.Ctx, c.DB)
		must(t, err)
		sc.Types["user"].Fields["phone"] = schema.Field{Role: schema.RoleSecondary}
		plan, err := migrate.Plan(c.Ctx, c.DB, sc)
		must(t, err)
		must(t, plan.Apply(c.Ctx, nil))
		c.do("201", "POST", "/v1/types/user/entries", `{"facets":{"phone":"4930123"}}`)
		c.do("200", "PATCH", path, `{"facets":{"phone":"4930124"}}`)
		c.do("200", "POST", "/v1/types/user/lookup", `{"value":"4930124"}`)
	})
}

// TestUnreadableSchema checks that a running service goes on if the stored schema of some type can
// no longer be read, for example because a newer version has written it. The service finds entries
// of all types, and lists and changes those of other types.
func TestUnreadableSchema(t *testing.T) {
	defer serve.SetSchemaMaxAge(0)()
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		sc := testSchema()
		sc.Types["team"] = schema.Type{Primary: "uid", Fields: map[string]schema.Field{"name": {Role: schema.RoleSecondary}}}
		c := newClient(t, s.Under(t, sc), serve.Options{})
		path := c.create(alice)
		c.do("201", "POST", "/v1/types/team/entries", `{"facets":{"name":"red"}}`)
		c.Do(t, "HSET", "~/schema/team", "schema", `{"primary":"uid","invented":true}`)
		c.do("200", "GET", path, "")
		c.do("200", "PATCH", path, `{"facets":{"name":"Ada"}}`)
		c.do("200", "POST", "/v1/types/user/lookup", `{"value":"Ada"}`)
		c.do("200", "GET", "/v1/types/user/entries", "")
		c.do("200", "POST", "/v1/types/team/lookup", `{"value":"red"}`)
		c.do("404 not_found", "GET", "/v1/types/crew/entries", "")
	})
}

// TestReadersGoOn checks that, while a schema change stops writers, a service goes on to find
// entries by a field that was added after it started.
func TestReadersGoOn(t *testing.T) {
	defer serve.SetSchemaMaxAge(0)()
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, testSchema()), serve.Options{})
		path := c.create(alice)
		apply := func(edit func(fields map[string]schema.Field), progress func(done, about int64)) {
			sc, err := migrate.StoredSchema(c.Ctx, c.DB)
			must(t, err)
			edit(sc.Types["user"].Fields)
			plan, err := migrate.Plan(c.Ctx, c.DB, sc)
			must(t, err)
			must(t, plan.Apply(c.Ctx, progress))
		}
		apply(func(fields map[string]schema.Field) {
			fields["phone"] = schema.Field{Role: schema.RoleSecondary}
			fields["city"] = schema.Field{Role: schema.RoleIndexed}
		}, nil)
		c.do("200", "GET", "/v1/types/user/entries", "") // reads the stored schema
		c.do("200", "PATCH", path, `{"facets":{"phone":"4930123","city":"Bonn"}}`)
		const lookup = `{"field":"phone","value":"4930123"}`
		c.do("200", "POST", "/v1/types/user/lookup", lookup)
		calls := 0
		apply(func(fields map[string]schema.Field) { delete(fields, "city") }, func(int64, int64) {
			if calls++; calls == 1 {
				if r := c.send("PATCH", path, `{"facets":{"name":"Ada"}}`); r.status == 200 {
					t.Errorf("a write during the change: got %d", r.status)
				}
				c.do("200", "POST", "/v1/types/user/lookup", lookup)
			}
		})
		if calls == 0 {
			t.Error("the change reported no progress")
		}
		c.send("PATCH", path, `{"facets":{"name":"Ada"}}`)
		c.do("200", "PATCH", path, `{"facets":{"name":"Ada"}}`)
	})
}

// TestProgramAddsField checks that a field that only the service's own schema declares can be
// written after a list has read the stored schema, and that the write adds it to that schema.
func TestProgramAddsField(t *testing.T) {
	defer serve.SetSchemaMaxAge(0)()
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		before := newClient(t, s.Under(t, testSchema()), serve.Options{})
		path := before.create(alice)
		sc := testSchema()
		sc.Types["user"].Fields["score"] = schema.Field{Codec: schema.CodecNumber}
		db, err := view.Reconfigure(before.DB, func(c *view.Config) { c.Schema, c.OnSchema = sc, view.Later })
		must(t, err)
		after := *before
		service, err := serve.New(db, serve.Options{Namespace: before.NS})
		must(t, err)
		server := httptest.NewServer(service)
		t.Cleanup(server.Close)
		after.url = server.URL
		after.do("200", "GET", path, "")
		after.do("200", "GET", "/v1/types/user/entries?order=age", "")
		after.do("200", "PATCH", path, `{"facets":{"score":7}}`)
		stored, err := migrate.StoredSchema(before.Ctx, before.DB)
		must(t, err)
		if _, has := stored.Types["user"].Fields["score"]; !has {
			t.Error("the stored schema lacks the field that the write added")
		}
	})
}

// TestRemovedIndexAtOnce checks that a service refuses to list entries by an index that was removed
// just after the service read the schema.
func TestRemovedIndexAtOnce(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, testSchema()), serve.Options{})
		k := c.withKey(c.makeKey(admin.Key{Name: "below", Scopes: []string{admin.ScopeAdmin}, Namespace: strings.TrimPrefix(c.NS.Path()+"/below", "/")}))
		k.create(alice)
		k.do("200", "GET", "/v1/types/user/entries?order=age", "")
		db, err := c.DB.In(testdb.Must(s.NS.Sub("below")))
		must(t, err)
		sc := testSchema()
		delete(sc.Types["user"].Fields, "age")
		plan, err := migrate.Plan(c.Ctx, db, sc)
		must(t, err)
		must(t, plan.Apply(c.Ctx, nil))
		k.do("400 usage", "GET", "/v1/types/user/entries?order=age", "")
		k.do("400 usage", "GET", "/v1/types/user/count?order=age", "")
	})
}

// TestDefaults checks that a page has 50 entries, that counts are exact, and that durations may be
// in days.
func TestDefaults(t *testing.T) {
	eachService(t, func(t *testing.T, c *client) {
		path := c.create(alice)
		for i := range 50 {
			c.create(fmt.Sprintf(`{"uid":"u%02d","facets":{"age":%d}}`, i, i))
		}
		first := c.do("200", "GET", "/v1/types/user/entries?order=age", "")
		c.equal("entries on the first page", fmt.Sprint(len(first.body["entries"].([]any))), "50")
		second := c.do("200", "GET", "/v1/types/user/entries?order=age&after="+first.str("next"), "")
		c.equal("entries on the second page", fmt.Sprint(len(second.body["entries"].([]any)), second.str("next")), "1")
		c.equal("count", c.do("200", "GET", "/v1/types/user/count", "").text, `{"count":51,"exact":true}`+"\n")
		s := c.do("201", "POST", path+"/sessions", `{"life":"1d12h"}`)
		var times [2]time.Time
		for i, at := range []string{"session.begun", "session.expires"} {
			var err error
			times[i], err = time.Parse(time.RFC3339, s.str(at))
			must(t, err)
		}
		c.equal("life", times[1].Sub(times[0]).String(), "36h0m0s")
		device := c.do("200", "GET", path+"/sessions", "")
		seen, err := time.Parse(time.RFC3339, fmt.Sprint(device.value("sessions.0.seen")))
		if err != nil || seen.Before(times[0].Add(-time.Minute)) || seen.After(times[1]) {
			t.Errorf("got %s, want a session that was seen after it began, and not in the future", device.text)
		}
	})
}

// TestDamagedNamesake damages the entry of one type, and checks that sessions and tokens of the
// entry of another type with the same UID stay usable with a key for both types.
func TestDamagedNamesake(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		sc := testSchema()
		sc.Types["staff"] = sc.Types["user"]
		c := newClient(t, s.Under(t, sc), serve.Options{})
		c.create(`{"uid":"u1","facets":{"name":"alice"},"password":"correct horse battery"}`)
		secret := c.do("200", "POST", "/v1/types/user/login", `{"identifier":"alice","password":"correct horse battery","session":{}}`).str("session.secret")
		token := c.do("200", "POST", "/v1/types/user/tokens", `{"purpose":"x","uid":"u1"}`).str("secret")
		c.Do(t, "SET", "staff/uid:u1", "x")
		body := fmt.Sprintf(`{"secret":%q}`, secret)
		if r := c.do("200", "POST", "/v1/session", body); r.value("active") != true {
			t.Errorf("the session: got %s, want an active one", r.text)
		}
		c.do("200", "POST", "/v1/tokens/redeem", fmt.Sprintf(`{"purpose":"x","secret":%q}`, token))
		c.do("204", "POST", "/v1/session/end", body)
	})
}
