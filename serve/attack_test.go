package serve_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/own"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/serve"
)

// TestUIDInHeader: no two UIDs come out of /v1/session/check as one, also where a proxy takes the spaces from around a header.
func TestUIDInHeader(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, house()), serve.Options{})
		seen := map[string]bool{}
		for uid, want := range map[string]string{
			"admin": "admin", " admin": "%20admin", "admin\n": "admin%0A", "admin\r\nX: y": "admin%0D%0AX:%20y", "é": "%C3%A9", "a%20": "a%2520", "a/b+c": "a/b+c",
		} {
			body, err := json.Marshal(map[string]any{"uid": uid})
			must(t, err)
			secret := c.do("201", "POST", c.create(string(body))+"/sessions", "{}").at("session.secret")
			got := c.do("204", "GET", "/v1/session/check", "", "Cookie", "session="+secret).header.Get("Userdb-Uid")
			c.equal(uid, got, want)
			if seen[got] {
				t.Errorf("%q is two", got)
			}
			seen[got] = true
		}
	})
}

// TestBrokenQueries: a query that cannot be read whole is refused, and so is a word that means nothing: a filter, or a dry run, that is
// passed over would be worse.
func TestBrokenQueries(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, house()), serve.Options{})
		c.create(alice)
		for _, path := range []string{"/v1/types/user/entries?where=job:a;b", "/v1/types/user/count?tag=%zz", "/v1/types/user/entries?tag=a&where=job:%z", "/v1/events?kind=a;b"} {
			c.do("400 usage", "GET", path, "")
		}
		for _, query := range []string{"dry_run=true;", "dry_run=false&dry_run=true", "dryrun=true", "Dry_Run=true", "on_duplicate=update&x=%"} {
			c.do("400 usage", "POST", "/v1/types/user/import?"+query, `{"type":"user","facets":{"name":"bob"}}`)
		}
		c.equal("there are", c.do("200", "GET", "/v1/types/user/count", "").at("count"), "1")
	})
}

// TestMembersTwice: a limit holds for what is read, also where a member is there a second time in other letters.
func TestMembersTwice(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, house()), serve.Options{})
		many := `["x"` + strings.Repeat(`,"x"`, 100) + `]`
		for _, body := range []string{`{"uids":` + many + `}`, `{"uids":[],"UIDS":` + many + `}`, `{"UIDs":` + many + `,"uids":[]}`, `{"uids":[],"uid` + "\u017f" + `":` + many + `}`} {
			c.do("400 usage", "POST", "/v1/types/user/entries/get", body)
		}
		c.do("200", "POST", "/v1/types/user/entries/get", `{"uids":["x"]}`)
		c.do("201", "POST", "/v1/types/user/entries", `{"facets":{"name":"Bob"}}`)
	})
}

// TestFacetLimits: a facet that is too long, or that cannot be JSON, is refused and never kept as an empty text; nor do facets of a
// request take more work than their number.
func TestFacetLimits(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		sc := house()
		user := sc.Types["user"]
		user.Open = true
		sc.Types["user"] = user
		c := newClient(t, s.Under(t, sc), serve.Options{})
		path := c.create(alice)
		facets := func(v string) string { return `{"facets":{"job":` + v + `}}` }
		for _, v := range []string{`"` + strings.Repeat("x", 70_000) + `"`, strings.Repeat("[", 9000) + strings.Repeat("]", 9000), `{"a":1,"a":2}`} {
			r := c.do("422 invalid", "POST", "/v1/types/user/entries", facets(v))
			c.equal("wrong", fmt.Sprint(r.rules()), "[job codec]")
			c.do("422 invalid", "PATCH", path, facets(v))
		}
		var many strings.Builder
		for i := range 1001 {
			fmt.Fprintf(&many, `,"f%d":"x"`, i)
		}
		c.do("400 usage", "POST", "/v1/types/user/entries", `{"facets":{`+many.String()[1:]+`}}`)
		c.do("400 usage", "PATCH", path, `{"facets":{`+many.String()[1:]+`}}`)
		c.equal("as it was", c.do("200", "GET", path, "").at("facets.job"), "cook")
		c.equal("there are", c.do("200", "GET", "/v1/types/user/count", "").at("count"), "1")
	})
}

// TestStreamsOfRevoked: a key that was revoked reads and writes nothing more, also by a request that it began before.
func TestStreamsOfRevoked(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		s = s.Under(t, house())
		c := newClient(t, s, serve.Options{})
		service, err := serve.New(s.DB, serve.Options{Namespace: s.NS})
		must(t, err)
		now, mu := time.Now(), sync.Mutex{}
		service.GoBy(func() time.Time { mu.Lock(); defer mu.Unlock(); return now })
		server := httptest.NewServer(service)
		defer server.Close()
		old := c.with(c.makeKey(own.Key{Name: "old", Scopes: []string{own.ScopeAdmin}}))
		old.url = server.URL
		stream := old.listen("")
		body, answer := old.sendImport(server.Client(), server.URL)
		_, err = body.Write([]byte(`{"facets":{"name":"before"}}` + "\n"))
		must(t, err)
		keys, err := own.KeysOf(s.DB)
		must(t, err)
		must(t, keys.Revoke(s.Ctx, "old"))
		mu.Lock()
		now = now.Add(5 * time.Second)
		mu.Unlock()
		_, err = body.Write([]byte(`{"facets":{"name":"after"}}` + "\n"))
		must(t, err)
		must(t, body.Close())
		if r := <-answer; r.status != 401 || !strings.Contains(r.text, `"code":"key"`) {
			t.Errorf("an import: %d %s", r.status, r.text)
		}
		c.do("404 not_found", "POST", "/v1/types/user/lookup", `{"value":"after"}`)
		c.create(alice)
		for stream.in.Scan() {
			if strings.Contains(stream.in.Text(), "alice") {
				t.Error("a stream tells who has come since")
			}
		}
	})
}
