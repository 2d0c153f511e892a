package serve_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/own"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/serve"
)

// TestFacetsTwice: how many facets a request has is judged by what is read of it, also where the member stands there twice.
func TestFacetsTwice(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		sc := house()
		user := sc.Types["user"]
		user.Open = true
		sc.Types["user"] = user
		c := newClient(t, s.Under(t, sc), serve.Options{})
		path := c.create(alice)
		var many strings.Builder
		for i := range 1001 {
			fmt.Fprintf(&many, `,"f%d":"x"`, i)
		}
		body := `{"facets":{` + many.String()[1:] + `},"facets":{}}`
		c.do("400 usage", "PATCH", path, body)
		c.do("400 usage", "POST", "/v1/types/user/entries", body)
	})
}

// TestNoOtherPath: a path with an empty part is none, and leads to no other one: who leaves a UID empty would end the entry of somebody.
func TestNoOtherPath(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, house()), serve.Options{})
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

// TestUsersOfTypeGroup: pages of users do not go on among groups, whatever the type of the users is called.
func TestUsersOfTypeGroup(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		sc, o := directory()
		sc.Types["group"] = sc.Types["user"]
		c := newClient(t, s.Under(t, sc), serve.Options{SCIM: &o})
		c = c.with(c.makeKey(own.Key{Name: "directory", Scopes: []string{own.ScopeSCIM}, Types: []string{"group"}}))
		for i := range 4 {
			c.scim("201", "POST", "/Users", fmt.Sprintf(`{%s"userName":"u%d@example.com"}`, userURN, i))
			c.scim("201", "POST", "/Groups", fmt.Sprintf(`{%s"displayName":"g%d"}`, groupURN, i))
		}
		c.scim("200", "GET", "/Users?count=2", "")
		r := c.scim("200", "GET", "/Groups?startIndex=3&count=2", "")
		c.equal("a group", fmt.Sprint(r.in("Resources.0.displayName")), "g2")
	})
}

// TestDirectoryWork: a request of a directory that asks for much work with few bytes is refused before that is done.
func TestDirectoryWork(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		sc, o := directory()
		c := newDirectory(t, s.Under(t, sc), o)
		user := "/Users/" + c.scim("201", "POST", "/Users", `{`+userURN+`"userName":"a@example.com"}`).at("id")
		group := "/Groups/" + c.scim("201", "POST", "/Groups", `{`+groupURN+`"displayName":"g"}`).at("id")
		var names, removals strings.Builder // names that are let pass are read, too
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
		c.scim("400 invalidPath", "PATCH", user, `{`+patchURN+`"Operations":[{"op":"add","value":{`+names.String()[1:]+`}}]}`)
		c.scim("204", "PATCH", group, `{`+patchURN+`"Operations":[`+removals.String()[1:]+`]}`)
		attributes := `["userName"` + strings.Repeat(`,"x"`, 1000) + `]`
		c.scim("400 invalidValue", "POST", "/Users/.search", `{"attributes":`+attributes+`}`)
		c.scim("400 invalidValue", "POST", "/Groups/.search", `{"excludedAttributes":`+attributes+`}`)
		c.scim("200", "POST", "/Users/.search", `{"attributes":["userName"]}`)
	})
}

// TestHalfCharacters: what is no text is refused, and not read as another one: two identifiers, or two passwords, would be the same.
func TestHalfCharacters(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		sc, o := directory()
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

// A stuck is the connection of a client that reads nothing.
type stuck struct {
	*httptest.ResponseRecorder
	begun, end chan struct{}
}

func (s stuck) Write(b []byte) (int, error) {
	s.begun <- struct{}{}
	<-s.end
	return len(b), nil
}

// TestSlowReaders: who has no key, and reads slowly, keeps nobody out.
func TestSlowReaders(t *testing.T) {
	defer serve.MostAtOnce(serve.MostAtOnce(1))
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), house())
	service, err := serve.New(s.DB, serve.Options{Namespace: s.NS})
	must(t, err)
	for _, path := range []string{"/openapi.json", "/docs"} {
		w, done := stuck{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}, make(chan struct{})
		go func() {
			service.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
			close(done)
		}()
		<-w.begun
		other := httptest.NewRecorder()
		service.ServeHTTP(other, httptest.NewRequestWithContext(t.Context(), "GET", "/nosuch", nil))
		if other.Code != 404 {
			t.Errorf("while somebody reads %s: %d %s", path, other.Code, other.Body)
		}
		go func() { // what comes after the first part
			for range w.begun {
			}
		}()
		close(w.end)
		<-done
		close(w.begun)
	}
}

// TestManyWrongs: an answer does not grow with what is wrong beyond all that a request may have.
func TestManyWrongs(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, house()), serve.Options{})
		r := c.do("400 usage", "POST", "/v1/types/user/entries/get", `{"uids":[1`+strings.Repeat(",1", 20_000)+`]}`)
		if n := len(r.rules()); n != 2500 {
			t.Errorf("%d are told", n)
		}
		r = c.do("400 usage", "PUT", c.create(alice)+"/tags", `{"tags":[1`+strings.Repeat(",1", 999)+`]}`)
		if n := len(r.rules()); n != 1000 {
			t.Errorf("%d are told", n)
		}
	})
}
