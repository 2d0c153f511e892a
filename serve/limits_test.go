package serve_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/admin"
)

// TestUIDInHeader checks that /v1/session/check returns different headers for different UIDs, even
// if a proxy trims spaces around them.
func TestUIDInHeader(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, testSchema()), serve.Options{})
		seen := map[string]bool{}
		for uid, want := range map[string]string{
			"admin": "admin", " admin": "%20admin", "admin\n": "admin%0A", "admin\r\nX: y": "admin%0D%0AX:%20y", "é": "%C3%A9", "a%20": "a%2520", "a/b+c": "a/b+c",
		} {
			body, err := json.Marshal(map[string]any{"uid": uid})
			must(t, err)
			secret := c.do("201", "POST", c.create(string(body))+"/sessions", "{}").str("session.secret")
			got := c.do("204", "GET", "/v1/session/check", "", "Cookie", "session="+secret).header.Get("Userdb-Uid")
			c.equal(uid, got, want)
			if seen[got] {
				t.Errorf("%q stands for two UIDs, want one", got)
			}
			seen[got] = true
		}
	})
}

// TestMalformedQueries checks that a query is refused if a part of it cannot be read or has no
// meaning. Ignoring a filter or dry_run would be worse.
func TestMalformedQueries(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, testSchema()), serve.Options{})
		c.create(alice)
		for _, path := range []string{"/v1/types/user/entries?where=job:a;b", "/v1/types/user/count?tag=%zz", "/v1/types/user/entries?tag=a&where=job:%z", "/v1/events?kind=a;b"} {
			c.do("400 usage", "GET", path, "")
		}
		for _, query := range []string{"dry_run=true;", "dry_run=false&dry_run=true", "dryrun=true", "Dry_Run=true", "on_duplicate=update&x=%"} {
			c.do("400 usage", "POST", "/v1/types/user/import?"+query, `{"type":"user","facets":{"name":"bob"}}`)
		}
		c.equal("count", c.do("200", "GET", "/v1/types/user/count", "").str("count"), "1")
	})
}

// TestQueryProblems checks that a response lists everything that is wrong with a query, by
// parameter.
func TestQueryProblems(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, testSchema()), serve.Options{})
		for path, want := range map[string]string{
			"types/user/entries?where=name&where=age:x&gte=1&reverse=true&after=x": "where where order reverse after",
			"types/user/entries?where=job:a&where=job:b":                           "where",
			"types/user/count?tag=&order=age&gte=x&lte=y":                          "tag gte lte",
			"types/user/entries?after=n.x":                                         "after",
			"types/user/entries?limit=2&limit=3&order=age&order=name":              "limit order",
			"events?limit=0&kind=x&kind=y&since=1":                                 "since kind kind limit",
			"events?after=x":                                                       "after",
			"types/user/export?tag=a":                                              "tag",
		} {
			r := c.do("400 usage", "GET", "/v1/"+path, "")
			var names []string
			for _, e := range r.body["errors"].([]any) {
				names = append(names, fmt.Sprint(e.(map[string]any)["pointer"]))
			}
			c.equal(path, strings.Join(names, " "), want)
		}
		many := c.do("400 usage", "GET", "/v1/events?"+strings.Repeat("&kind=x", 2600)[1:], "")
		c.equal("number of errors", fmt.Sprint(len(many.rules())), "2500")
		if r := c.do("405 usage", "POST", "/v1/schema", ""); r.header.Get("Allow") != "GET, HEAD" {
			t.Errorf("got %v, want the header Allow: GET, HEAD", r.header)
		}
	})
}

// TestDuplicateMembers checks that no object, however deep, may contain a member twice, and that
// members of the body itself may not differ only in case. Otherwise limits could apply to one of
// the two while the other is used.
func TestDuplicateMembers(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, testSchema()), serve.Options{})
		many := `["x"` + strings.Repeat(`,"x"`, 100) + `]`
		for _, body := range []string{`{"uids":` + many + `}`, `{"uids":[],"UIDS":` + many + `}`, `{"UIDs":` + many + `,"uids":[]}`, `{"uids":[],"uid` + "\u017f" + `":` + many + `}`} {
			c.do("400 usage", "POST", "/v1/types/user/entries/get", body)
		}
		for _, body := range []string{`{"facets":{"name":"Bob"},"facets":{}}`, `{"facets":{"name":"Ann","name":"Bob"}}`, `{"facets":{"name":"Bob","job":{"a":1,"a":2}}}`} {
			r := c.do("400 usage", "POST", "/v1/types/user/entries", body)
			c.equal("detail", r.str("detail"), "invalid request: a member appears twice")
		}
		c.do("200", "POST", "/v1/types/user/entries/get", `{"uids":["x"]}`)
		c.do("201", "POST", "/v1/types/user/entries", `{"facets":{"name":"Bob"}}`)
	})
}

// TestFacetLimits checks that a facet that is over 64 KiB, or JSON that is nested too deeply, is
// refused rather than stored as empty text, and that the number of facets in a request is limited.
func TestFacetLimits(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		sc := testSchema()
		user := sc.Types["user"]
		user.Open = true
		sc.Types["user"] = user
		c := newClient(t, s.Under(t, sc), serve.Options{})
		path := c.create(alice)
		facets := func(v string) string { return `{"facets":{"job":` + v + `}}` }
		for _, v := range []string{`"` + strings.Repeat("x", 70_000) + `"`, strings.Repeat("[", 9000) + strings.Repeat("]", 9000)} {
			r := c.do("422 invalid", "POST", "/v1/types/user/entries", facets(v))
			c.equal("rules", fmt.Sprint(r.rules()), "[job codec]")
			c.do("422 invalid", "PATCH", path, facets(v))
		}
		var many strings.Builder
		for i := range 1001 {
			fmt.Fprintf(&many, `,"f%d":"x"`, i)
		}
		c.do("400 usage", "POST", "/v1/types/user/entries", `{"facets":{`+many.String()[1:]+`}}`)
		c.do("400 usage", "PATCH", path, `{"facets":{`+many.String()[1:]+`}}`)
		c.equal("facet afterwards", c.do("200", "GET", path, "").str("facets.job"), "cook")
		c.equal("count", c.do("200", "GET", "/v1/types/user/count", "").str("count"), "1")
	})
}

// TestRevokedKeyStreams checks that nothing more is read or written for a revoked key, even in a
// request that began before the revocation.
func TestRevokedKeyStreams(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		s = s.Under(t, testSchema())
		c := newClient(t, s, serve.Options{})
		other, pass := c.withClock()
		old := other.withKey(c.makeKey(admin.Key{Name: "old", Scopes: []string{admin.ScopeAdmin}}))
		stream := old.listen("")
		body, answer := old.startImport(http.DefaultClient, old.url)
		_, err := body.Write([]byte(`{"facets":{"name":"before"}}` + "\n"))
		must(t, err)
		keys, err := admin.OpenKeys(s.DB)
		must(t, err)
		must(t, keys.Revoke(s.Ctx, "old"))
		pass(5 * time.Second)
		_, err = body.Write([]byte(`{"facets":{"name":"after"}}` + "\n"))
		must(t, err)
		must(t, body.Close())
		if r := <-answer; r.status != 401 || !strings.Contains(r.text, `"code":"key"`) {
			t.Errorf("import: got %d, want 401: %s", r.status, r.text)
		}
		c.do("404 not_found", "POST", "/v1/types/user/lookup", `{"value":"after"}`)
		c.create(alice)
		for stream.in.Scan() {
			if strings.Contains(stream.in.Text(), "alice") {
				t.Error("a stream has an event that came after the revocation")
			}
		}
	})
}

// TestLongTags checks that a tag has at most 1 KiB, even if tags have no index.
func TestLongTags(t *testing.T) {
	plain := testSchema()
	user := plain.Types["user"]
	user.Tertiary = map[string]schema.Tertiary{"tags": {Kind: "set"}}
	plain.Types["user"] = user
	c := newClient(t, testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), plain), serve.Options{})
	path := c.create(alice)
	tag := strings.Repeat("x", 1<<10)
	c.do("204", "PUT", path+"/tags/"+tag, "")
	c.do("200", "PUT", path+"/tags", `{"tags":["`+tag+`"]}`)
	c.do("422 invalid", "PUT", path+"/tags/"+tag+"x", "")
	c.do("422 invalid", "PUT", path+"/tags", `{"tags":["a","`+tag+`x"]}`)
	c.do("422 invalid", "POST", "/v1/types/user/entries", `{"facets":{"name":"x"},"tags":["`+tag+`x"]}`)
}

// TestRevokedKeyReadsNothing checks that nothing more of a body is read once the key is known to be
// revoked, even if the store then does not respond. ReadBodyAfterRevocation makes both happen.
func TestRevokedKeyReadsNothing(t *testing.T) {
	revoked := errors.New("revoked")
	if err := serve.ReadBodyAfterRevocation(revoked); !errors.Is(err, revoked) {
		t.Errorf("got %v, want %v", err, revoked)
	}
}

// TestUncleanPaths checks that a path with an empty segment, or one of dots, is not found and not
// redirected. Otherwise leaving out a UID could delete the entry of somebody else.
func TestUncleanPaths(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, testSchema()), serve.Options{})
		c.create(`{"uid":"sessions"}`)
		for _, path := range []string{"/v1/types/user/entries//sessions", "/v1/types/user/entries/./sessions", "/v1/types/user/entries/x/../sessions", "//v1/types/user/entries/sessions"} {
			c.do("404 not_found", "DELETE", path, "")
			req, err := http.NewRequestWithContext(c.Ctx, "DELETE", c.url+path, nil)
			must(t, err)
			req.Header.Set("Authorization", "Bearer "+c.key)
			res, err := http.DefaultClient.Do(req)
			must(t, err)
			must(t, res.Body.Close())
		}
		c.do("200", "GET", "/v1/types/user/entries/sessions", "")
	})
}

// TestUsersOfTypeGroup checks that a page of groups does not continue a page of users, even if the
// type of the users is called group.
func TestUsersOfTypeGroup(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		sc, o := directorySchema()
		sc.Types["group"] = sc.Types["user"]
		c := newClient(t, s.Under(t, sc), serve.Options{SCIM: &o})
		c = c.withKey(c.makeKey(admin.Key{Name: "directory", Scopes: []string{admin.ScopeSCIM}, Types: []string{"group"}}))
		for i := range 4 {
			c.scim("201", "POST", "/Users", fmt.Sprintf(`{%s"userName":"u%d@example.com"}`, userURN, i))
			c.scim("201", "POST", "/Groups", fmt.Sprintf(`{%s"displayName":"g%d"}`, groupURN, i))
		}
		c.scim("200", "GET", "/Users?count=2", "")
		r := c.scim("200", "GET", "/Groups?startIndex=3&count=2", "")
		// Which groups are on the page depends on the milliseconds in which they were created.
		if name, _ := r.value("Resources.0.displayName").(string); !strings.HasPrefix(name, "g") {
			t.Errorf("got %s, want a page of groups", r.text)
		}
	})
}

// TestDirectoryRequestLimits sends requests of a directory that ask for much work in few bytes, and
// checks which of them are refused.
func TestDirectoryRequestLimits(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		sc, o := directorySchema()
		c := newDirectory(t, s.Under(t, sc), o)
		user := "/Users/" + c.scim("201", "POST", "/Users", `{`+userURN+`"userName":"a@example.com"}`).str("id")
		group := "/Groups/" + c.scim("201", "POST", "/Groups", `{`+groupURN+`"displayName":"g"}`).str("id")
		var names, removals strings.Builder // the paths of ignored attributes are also parsed
		for i := range 1 << 13 {
			name := []byte("preferredlanguage")
			for at := range name {
				name[at] -= byte(i>>at&1) << 5
			}
			fmt.Fprintf(&names, `,%q:"x"`, name)
		}
		for i := range 2000 {
			fmt.Fprintf(&removals, `,{"op":"remove","path":"members[value eq \"%036d\"]"}`, i)
		}
		c.scim("400 invalidSyntax", "PATCH", user, `{`+patchURN+`"Operations":[{"op":"add","value":{`+names.String()[1:]+`}}]}`)
		c.scim("204", "PATCH", group, `{`+patchURN+`"Operations":[`+removals.String()[1:]+`]}`)
		attributes := `["userName"` + strings.Repeat(`,"x"`, 1000) + `]`
		c.scim("400 invalidValue", "POST", "/Users/.search", `{"attributes":`+attributes+`}`)
		c.scim("400 invalidValue", "POST", "/Groups/.search", `{"excludedAttributes":`+attributes+`}`)
		c.scim("400 invalidValue", "GET", "/Users?attributes=userName"+strings.Repeat(",x", 1000), "")
		c.scim("200", "POST", "/Users/.search", `{"attributes":["userName"]}`)
	})
}

// TestTagsAreFull checks that a user with as many tags as the schema allows gets no further group
// from a directory, and that the API gives no user more tags. The response must name the record and
// the limit. If a directory creates or replaces a group, the response must say instead that the
// group was saved.
func TestTagsAreFull(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		sc, o := directorySchema()
		tags := sc.Types["user"].Tertiary["tags"]
		tags.Max = 2
		sc.Types["user"].Tertiary["tags"] = tags
		api := newClient(t, s.Under(t, sc), serve.Options{SCIM: &o})
		c := api.withKey(api.makeKey(admin.Key{Name: "directory", Scopes: []string{admin.ScopeSCIM}}))
		uid := c.createUser("a")
		c.createGroup("one", uid)
		c.createGroup("two", uid)
		add := `{` + patchURN + `"Operations":[{"op":"add","path":"members","value":[{"value":"` + uid + `"}]}]}`
		three := c.createGroup("three")
		for _, partial := range []struct{ method, path, body, done string }{
			{"POST", "/Groups", `{` + groupURN + `"displayName":"four","members":[{"value":"` + uid + `"}]}`, "the group was created"},
			{"PUT", "/Groups/" + three, `{` + groupURN + `"displayName":"five","members":[{"value":"` + uid + `"}]}`, "the group was changed"},
		} {
			r := c.scim("400 invalidValue", partial.method, partial.path, partial.body)
			if !strings.Contains(r.text, partial.done) || !strings.Contains(r.text, uid) {
				t.Errorf("%s %s: the response does not contain %q and the UID of the user: %s", partial.method, partial.path, partial.done, r.text)
			}
		}
		if r := c.scim("200", "GET", "/Groups", ""); !strings.Contains(r.text, `"four"`) || !strings.Contains(r.text, `"five"`) {
			t.Errorf("got %s, want the groups four and five, which the responses report", r.text)
		}
		for _, r := range []reply{
			c.scim("400 invalidValue", "PATCH", "/Groups/"+three, add),
			api.do("422 invalid", "PUT", "/v1/types/user/entries/"+uid+"/tags/x", ""),
			api.do("422 invalid", "PUT", "/v1/types/user/entries/"+uid+"/tags", `{"tags":["x","y","z"]}`),
			api.do("422 invalid", "POST", "/v1/types/user/entries", `{"uid":"other","tags":["x","y","z"]}`),
		} {
			if !strings.Contains(r.text, "tags") || !strings.Contains(r.text, "over 2 members") {
				t.Errorf("got %s, want an error that names the record and its limit", r.text)
			}
		}
		api.do("200", "PUT", "/v1/types/user/entries/"+uid+"/tags", `{"tags":["x"]}`)
	})
}

// TestLargeEntries checks that a page of large entries ends early, and that a request for too many
// large entries by their UIDs is refused.
func TestLargeEntries(t *testing.T) {
	defer serve.SetMaxReadBytes(300_000)()
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		sc := testSchema()
		sc.Types["user"].Fields["bio"] = schema.Field{}
		c := newClient(t, s.Under(t, sc), serve.Options{})
		const large = 17
		for i := range large {
			c.create(fmt.Sprintf(`{"uid":"u%02d","facets":{"name":"user%d","age":%d,"bio":%q}}`, i, i, i, strings.Repeat("x", 20_000)))
		}
		for _, query := range []string{"?limit=200", "?limit=200&order=age"} {
			seen := map[string]bool{}
			pages := 0
			for after := ""; pages == 0 || after != ""; pages++ {
				r := c.do("200", "GET", "/v1/types/user/entries"+query+after, "")
				all := r.body["entries"].([]any)
				for _, e := range all {
					seen[e.(map[string]any)["uid"].(string)] = true
				}
				if len(all) > 16 {
					t.Errorf("%s: a page has %d large entries, want at most 16", query, len(all))
				}
				if after = ""; r.str("next") != "" {
					after = "&after=" + r.str("next")
				}
			}
			if len(seen) != large || pages < 2 {
				t.Errorf("%s: %d pages have %d entries, want %d on several", query, pages, len(seen), large)
			}
		}
		uids := func(n int) string {
			var all []string
			for i := range n {
				all = append(all, fmt.Sprintf("%q", fmt.Sprintf("u%02d", i)))
			}
			return `{"uids":[` + strings.Join(all, ",") + `]}`
		}
		if r := c.do("200", "POST", "/v1/types/user/entries/get", uids(16)); len(r.body["entries"].([]any)) != 16 {
			t.Errorf("got %d entries by UIDs, want 16", len(r.body["entries"].([]any)))
		}
		if r := c.do("400 usage", "POST", "/v1/types/user/entries/get", uids(large)); !strings.Contains(r.str("detail"), "too large for one response") {
			t.Errorf("too many large entries: the detail does not say why they are refused: %s", r.str("detail"))
		}
	})
}

// TestInvalidText checks that invalid text is refused, and not replaced. Otherwise two identifiers
// or two passwords could become the same.
func TestInvalidText(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		sc, o := directorySchema()
		c := newClient(t, s.Under(t, sc), serve.Options{SCIM: &o})
		path := c.create(`{"uid":"a\ufffdb","facets":{"email":"e@example.com"},"password":"battery \ufffd staple 9"}`)
		c.scim("201", "POST", "/Users", `{`+userURN+`"userName":"u@example.com","externalId":"E\ufffd"}`)
		for _, half := range []string{`\ud800`, `\udfff`, "\xff", "\xed\xa0\x80"} {
			c.do("400 usage", "POST", "/v1/types/user/entries", `{"uid":"x`+half+`"}`)
			c.do("400 usage", "POST", "/v1/types/user/entries", `{"facets":{"name":"x`+half+`"}}`)
			c.do("400 usage", "POST", "/v1/types/user/entries/get", `{"uids":["a`+half+`b"]}`)
			c.do("400 usage", "POST", "/v1/types/user/login", `{"identifier":"e@example.com","password":"battery `+half+` staple 9"}`)
			c.do("400 usage", "PUT", path+"/tags", `{"tags":["x`+half+`"]}`)
			c.scim("400 invalidSyntax", "POST", "/Users", `{`+userURN+`"userName":"x`+half+`@example.com"}`)
			c.scim("400 invalidFilter", "GET", "/Users?filter="+url.QueryEscape(`externalId eq "E`+half+`"`), "")
		}
		c.do("200", "POST", "/v1/types/user/login", `{"identifier":"e@example.com","password":"battery \ufffd staple 9"}`)
		c.do("201", "POST", "/v1/types/user/entries", `{"uid":"\ud83d\ude00"}`)
	})
}

// A stuckWriter is the connection of a client that reads nothing.
type stuckWriter struct {
	*httptest.ResponseRecorder
	begun, end chan struct{}
}

func (s stuckWriter) Write(b []byte) (int, error) {
	s.begun <- struct{}{}
	<-s.end
	return len(b), nil
}

// TestSlowReaders checks that a client that has no key and reads slowly keeps nobody out.
func TestSlowReaders(t *testing.T) {
	defer serve.SetMaxConcurrent(1)()
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	service, err := serve.New(s.DB, serve.Options{Namespace: s.NS})
	must(t, err)
	for _, path := range []string{"/openapi.json", "/docs"} {
		w, done := stuckWriter{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}, make(chan struct{})
		go func() {
			service.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
			close(done)
		}()
		<-w.begun
		other := httptest.NewRecorder()
		service.ServeHTTP(other, httptest.NewRequestWithContext(t.Context(), "GET", "/nosuch", nil))
		if other.Code != 404 {
			t.Errorf("while another client reads %s: got %d, want 404: %s", path, other.Code, other.Body)
		}
		go func() { // accept the rest of the response
			for range w.begun {
			}
		}()
		close(w.end)
		<-done
		close(w.begun)
	}
}

// TestErrorLimit checks that a response lists at most 2,500 errors, and all of them if there are
// fewer.
func TestErrorLimit(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, testSchema()), serve.Options{})
		r := c.do("400 usage", "POST", "/v1/types/user/entries/get", `{"uids":[1`+strings.Repeat(",1", 20_000)+`]}`)
		if n := len(r.rules()); n != 2500 {
			t.Errorf("got %d errors, want 2500", n)
		}
		r = c.do("400 usage", "PUT", c.create(alice)+"/tags", `{"tags":[1`+strings.Repeat(",1", 999)+`]}`)
		if n := len(r.rules()); n != 1000 {
			t.Errorf("got %d errors, want 1000", n)
		}
	})
}

// TestValuesOfBodies checks that a body with very many values is refused before its values are
// checked one by one, unless they are in facets, which may have any form.
func TestValuesOfBodies(t *testing.T) {
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	c := newClient(t, s, serve.Options{})
	many := func(n int) string { return "[1" + strings.Repeat(",1", n-1) + "]" }
	for _, body := range []string{`{"uids":` + many(60_000) + `}`, `{"x":{"y":[` + many(30_000) + `,` + many(30_000) + `]}}`, many(60_001)} {
		if r := c.do("400 usage", "POST", "/v1/types/user/entries/get", body); !strings.Contains(r.text, "the body has too many values") {
			t.Errorf("%.12s…: got %.200s, want an error that the body has too many values", body, r.text)
		}
	}
	if r := c.do("400 usage", "POST", "/v1/types/user/entries/get", `{"uids":`+many(59_999)+`}`); !strings.Contains(r.text, "/uids: expected array length") {
		t.Errorf("got %.200s, want the errors of a body with fewer values", r.text)
	}
	if r := c.do("400 usage", "POST", "/v1/types/user/entries", `{"values":{"email":["a"`+strings.Repeat(`,"a"`, 100)+`]}}`); !strings.Contains(r.text, "expected array length") {
		t.Errorf("got %s, want an error that 101 values are too many for a field", r.text)
	}
	c.do("422 invalid", "POST", "/v1/types/user/entries", `{"facets":{"name":`+many(60_000)+`}}`)
}

// TestMemoryOfBodies checks that a decoded body takes at most 15 MiB. In facets, the values of a
// body of 1 MiB may have any form. Elsewhere, so many values are refused.
func TestMemoryOfBodies(t *testing.T) {
	const most = 15 << 20
	heap := func() int64 {
		var mem runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&mem)
		return int64(mem.HeapAlloc)
	}
	for _, value := range []string{`{"":0}`, `{}`, `[]`, `[0]`, `0`, `""`, `{"a":{"":0}}`} {
		many := `[` + strings.Repeat(value+`,`, (1<<20-100)/(len(value)+1)) + `0]`
		before := heap()
		body, err := serve.DecodeBody([]byte(`{"facets":{"name":` + many + `}}`))
		if took := heap() - before; err != nil || took > most {
			t.Errorf("a facet with values %s took %d bytes, error %v; want at most %d bytes", value, took, err, most)
		}
		runtime.KeepAlive(body)
		if body, err = serve.DecodeBody([]byte(`{"value":` + many + `}`)); err == nil || body != nil {
			t.Errorf("another member with values %s: got error %v, want it refused", value, err)
		}
	}
	largest := `[` + strings.Repeat(`{"":0},`, 29_990) + `0]`
	before := heap()
	body, err := serve.DecodeBody([]byte(`{"value":` + largest + `}`))
	if took := heap() - before; err != nil || took > most {
		t.Errorf("the most values that a body may have took %d bytes, error %v; want at most %d bytes", took, err, most)
	}
	runtime.KeepAlive(body)
}
