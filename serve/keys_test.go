package serve_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/admin"
)

// An operation is an operation of /openapi.json.
type operation struct {
	ID       string                `json:"operationId"`
	Security []map[string][]string `json:"security"`
	Method   string
	Path     string
	Body     map[string]any
}

// operations returns all operations of /openapi.json.
func (c *client) operations() (all []operation) {
	c.t.Helper()
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	must(c.t, json.Unmarshal([]byte(c.do("200", "GET", "/openapi.json", "").text), &doc))
	for path, item := range doc.Paths {
		for method, raw := range item {
			o := operation{Method: strings.ToUpper(method), Path: path}
			must(c.t, json.Unmarshal(raw, &o))
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b operation) int { return strings.Compare(a.ID, b.ID) })
	if len(all) < 35 {
		c.t.Errorf("got %d operations, want at least 35", len(all))
	}
	return all
}

// TestScopes checks that every operation accepts keys with the scope admin or with one of those
// that /openapi.json names for it, and no other keys.
func TestScopes(t *testing.T) {
	eachService(t, func(t *testing.T, c *client) {
		keys := map[string]string{}
		for _, scope := range admin.Scopes {
			keys[scope] = c.makeKey(admin.Key{Name: "only-" + scope, Scopes: []string{scope}})
		}
		for _, o := range c.operations() {
			path := strings.NewReplacer("{type}", "user", "{uid}", "nobody", "{tag}", "x", "{id}", "x", "{field}", "email").Replace(o.Path)
			scopes := o.Security[0]["key"]
			if len(scopes) == 0 {
				t.Errorf("%s needs no key", o.ID)
			}
			for scope, key := range keys {
				r := c.withKey(key).send(o.Method, path, "")
				allowed := slices.Contains(scopes, scope) || scope == admin.ScopeAdmin
				if refused := r.str("code") == "scope"; refused == allowed {
					t.Errorf("%s with a key for %s: got %d %s, want it to be allowed: %v", o.ID, scope, r.status, r.text, allowed)
				}
			}
			for _, key := range []string{"", "x", "udb_" + strings.Repeat("a", 32), strings.Repeat("a", 5000)} {
				r := c.withKey(key).send(o.Method, path, "")
				if r.str("code") != "key" && r.str("code") != "throttled" {
					t.Errorf("%s with the key %.10q: got %d, want the code key or throttled: %s", o.ID, key, r.status, r.text)
				}
				if r.status == 401 && !strings.HasPrefix(r.header.Get("WWW-Authenticate"), "Bearer") {
					t.Errorf("%s: got %v, want a WWW-Authenticate that begins with Bearer", o.ID, r.header)
				}
			}
		}
		// With the scope login, setting a password requires the current one.
		path := c.create(alice)
		login := c.withKey(keys[admin.ScopeLogin])
		login.do("403 scope", "PUT", path+"/password", `{"password":"battery staple 10"}`)
		login.do("200", "PUT", path+"/password", `{"password":"battery staple 10","current":"battery staple 9"}`)
	})
}

// TestNarrowKeys checks that a key sees only its types and its namespace.
func TestNarrowKeys(t *testing.T) {
	eachService(t, func(t *testing.T, c *client) {
		c.create(alice)
		signed := c.do("200", "POST", "/v1/types/user/login", `{"identifier":"alice","password":"battery staple 9","session":{}}`).str("session.secret")
		token := c.do("200", "POST", "/v1/types/user/tokens", `{"purpose":"p","uid":"alice"}`).str("secret")
		firm := c.withKey(c.makeKey(admin.Key{Name: "firm", Scopes: []string{admin.ScopeAdmin}, Types: []string{"firm"}}))
		firm.do("201", "POST", "/v1/types/firm/entries", `{"uid":"f","facets":{"name":"Firm"}}`)
		firm.do("403 scope", "GET", "/v1/types/user/entries/alice", "")
		// The refusal does not reveal which types exist.
		firm.do("403 scope", "GET", "/v1/types/nosuch/entries/alice", "")
		firm.do("403 scope", "POST", "/v1/types/user/login", `{"identifier":"alice","password":"battery staple 9"}`)
		c.equal("another type's session", firm.do("200", "POST", "/v1/session", `{"secret":"`+signed+`"}`).str("active"), "false")
		firm.do("204", "POST", "/v1/session/end", `{"secret":"`+signed+`"}`)
		firm.do("404 not_found", "POST", "/v1/tokens/redeem", `{"purpose":"p","secret":"`+token+`"}`)
		firm.do("403 scope", "POST", "/v1/types/user/import", `{"facets":{"name":"x"}}`)
		r := firm.send("POST", "/v1/types/firm/import", `{"type":"user","facets":{"name":"intruder"}}`)
		if !strings.Contains(r.text, `"refused":1`) {
			t.Errorf("a line of another type was not refused: %s", r.text)
		}
		if r := firm.do("200", "GET", "/v1/types/firm/export", ""); strings.Contains(r.text, "alice") {
			t.Errorf("the export has an entry of another type: %s", r.text)
		}
		if r := firm.do("200", "GET", "/v1/schema", ""); strings.Contains(r.text, "email") {
			t.Errorf("the schema has another type: %s", r.text)
		}
		if r := firm.do("200", "GET", "/v1/status", ""); strings.Contains(r.text, `"user"`) || !strings.Contains(r.text, `"firm"`) || strings.Contains(r.text, "servers") {
			t.Errorf("got the status %s, want only that of the type firm", r.text)
		}
		c.withKey(c.makeKey(admin.Key{Name: "reads", Scopes: []string{admin.ScopeRead}})).do("403 scope", "GET", "/v1/status", "")
		c.equal("the session afterwards", c.do("200", "POST", "/v1/session", `{"secret":"`+signed+`"}`).str("active"), "true")

		below := c.withKey(c.makeKey(admin.Key{Name: "below", Scopes: []string{admin.ScopeAdmin}, Namespace: strings.TrimPrefix(c.NS.Path()+"/below", "/")}))
		below.do("404 not_found", "GET", "/v1/types/user/entries/alice", "")
		below.do("201", "POST", "/v1/types/user/entries", alice)
		below.do("204", "DELETE", "/v1/types/user/entries/alice", "")
		c.do("200", "GET", "/v1/types/user/entries/alice", "")
		c.equal("another namespace's session", below.do("200", "POST", "/v1/session", `{"secret":"`+signed+`"}`).str("active"), "false")
		if c.NS.Path() != "" {
			beside := c.withKey(c.makeKey(admin.Key{Name: "beside", Scopes: []string{admin.ScopeAdmin}, Namespace: "beside"}))
			beside.do("403 scope", "GET", "/v1/types/user/entries/alice", "")
		}
	})
}

// withClock returns a client of another service for the same store, whose clock moves only when
// pass is called.
func (c *client) withClock() (other *client, pass func(time.Duration)) {
	c.t.Helper()
	return c.withClockAnd(serve.Options{})
}

// withClockAnd does the same as withClock, for a service with options.
func (c *client) withClockAnd(o serve.Options) (other *client, pass func(time.Duration)) {
	c.t.Helper()
	o.Namespace = c.NS
	service, err := serve.New(c.DB, o)
	must(c.t, err)
	now, mu := time.Now(), sync.Mutex{}
	service.SetClock(func() time.Time { mu.Lock(); defer mu.Unlock(); return now })
	server := httptest.NewServer(service)
	c.t.Cleanup(server.Close)
	other = c.withKey(c.key)
	other.url = server.URL
	return other, func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
}

// TestRevocation checks that a service refuses an expired key, and a key that was revoked five
// seconds ago.
func TestRevocation(t *testing.T) {
	testdb.EachStore(t, func(t *testing.T, s *testdb.Site) {
		s = s.Under(t, testSchema())
		c := newClient(t, s, serve.Options{})
		c, pass := c.withClock()
		short := c.withKey(c.makeKey(admin.Key{Name: "short", Scopes: []string{admin.ScopeRead}, Expires: time.Now().Add(time.Minute)}))
		short.do("200", "GET", "/v1/schema", "")
		gone := c.withKey(c.makeKey(admin.Key{Name: "gone", Scopes: []string{admin.ScopeRead}}))
		gone.do("200", "GET", "/v1/schema", "")
		keys, err := admin.OpenKeys(s.DB)
		must(t, err)
		must(t, keys.Revoke(s.Ctx, "GONE"))
		pass(5 * time.Second)
		gone.do("401 key", "GET", "/v1/schema", "")
		short.do("200", "GET", "/v1/schema", "")
		pass(time.Minute)
		short.do("401 key", "GET", "/v1/schema", "")
	})
}

// TestGuessedKeys checks that wrong keys are counted by origin, and that a valid key is always
// accepted, even from an origin that sent wrong ones.
func TestGuessedKeys(t *testing.T) {
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	c := newClient(t, s, serve.Options{Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	codes := map[string]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 500 {
		all.Go(func() {
			r := c.withKey(fmt.Sprintf("udb_%032d", i)).send("GET", "/v1/schema", "", "X-Forwarded-For", "192.0.2.1")
			mu.Lock()
			defer mu.Unlock()
			codes[fmt.Sprint(r.status, " ", r.str("code"))]++
		})
	}
	all.Wait()
	if codes["401 key"] > 20 || codes["401 key"]+codes["429 throttled"] != 500 {
		t.Errorf("got the answers %v, want 500, of which at most 20 are 401 key and the others 429 throttled", codes)
	}
	c.do("200", "GET", "/v1/schema", "", "X-Forwarded-For", "192.0.2.1")
	c.withKey("x").do("401 key", "GET", "/v1/schema", "", "X-Forwarded-For", "192.0.2.2")
}

// TestGuessedPasswords checks that of 500 concurrent guesses through two services no more are
// checked than the limits allow.
func TestGuessedPasswords(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		s, now := s.Under(t, testSchema()), time.Now()
		// Time that passes would admit more guesses.
		s.Edit(t, func(c *view.Config) { c.Clock = func() time.Time { return now } })
		c := newClient(t, s, serve.Options{})
		c.create(alice)
		other := newOtherService(t, c)
		var mu sync.Mutex
		codes := map[string]int{}
		var all sync.WaitGroup
		for i := range 500 {
			to := []*client{c, other}[i%2]
			all.Go(func() {
				r := to.send("POST", "/v1/types/user/login", fmt.Sprintf(`{"identifier":"alice","password":"guess %d","origin":"192.0.2.%d"}`, i, i%250))
				mu.Lock()
				defer mu.Unlock()
				codes[r.str("code")]++
			})
		}
		all.Wait()
		if codes["login"] > 10 || codes["login"] == 0 || codes["login"]+codes["throttled"]+codes["unavailable"] != 500 {
			t.Errorf("got the codes %v, want 500, of which 1 to 10 are login and the others throttled or unavailable", codes)
		}
	})
}

// newOtherService returns a client of another service for the same store.
func newOtherService(t *testing.T, c *client) *client {
	t.Helper()
	db, err := c.DB.With(testSchema())
	must(t, err)
	service, err := serve.New(db, serve.Options{Namespace: c.NS})
	must(t, err)
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	other := *c
	other.url = server.URL
	return &other
}
