package serve_test

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/serve/scim"
)

// A meteredWriter records a response, and the most that the key had of the quota for responses
// while it was written.
type meteredWriter struct {
	*httptest.ResponseRecorder
	used func() int
	most int
}

func (w *meteredWriter) Write(b []byte) (int, error) {
	w.most = max(w.most, w.used())
	return w.ResponseRecorder.Write(b)
}

// TestResponsesAreCounted checks that every large response counts as much as it takes, from before
// it is written until it has been written, whatever the operation and the form of its path.
func TestResponsesAreCounted(t *testing.T) {
	sc, o := directorySchema()
	for i := range 4 {
		sc.Types["user"].Fields[fmt.Sprint("bio", i)] = schema.Field{}
	}
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), sc)
	c := newClient(t, s, serve.Options{SCIM: &o})
	var facets, tags, members []string
	for i := range 4 {
		facets = append(facets, fmt.Sprintf(`"bio%d":%q`, i, strings.Repeat("x", 50_000)))
	}
	for i := range 300 {
		tags = append(tags, fmt.Sprintf(`"%0900d"`, i))
	}
	large := fmt.Sprintf(`"facets":{%s,"email":"u1@x.org","name":"Una"},"password":"battery staple 9"`, strings.Join(facets, ","))
	path := c.create(`{"uid":"u1",` + large + `}`)
	c.do("200", "PUT", path+"/tags", `{"tags":[`+strings.Join(tags, ",")+`]}`)
	for i := range 120 {
		uid := fmt.Sprintf("m%0900d", i)
		c.create(fmt.Sprintf(`{"uid":%q,"facets":{"email":"m%d@x.org"}}`, uid, i))
		members = append(members, uid)
	}
	secret := c.do("201", "POST", path+"/sessions", `{}`).str("session.secret")
	directory := c.withKey(c.makeKey(admin.Key{Name: "directory", Scopes: []string{admin.ScopeSCIM}}))
	group := "/Groups/" + directory.createGroup("Cooks", members...)

	service, err := serve.New(s.DB, serve.Options{Namespace: s.NS, SCIM: &o, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	for _, request := range [][3]string{
		{"GET", path},
		{"PATCH", path, `{"facets":{"job":"cook"}}`},
		{"POST", "/v1/types/user/lookup", `{"value":"u1@x.org"}`},
		{"POST", "/v1/types/user/login", `{"identifier":"u1@x.org","password":"battery staple 9"}`},
		{"POST", path + "/sessions", `{}`},
		{"POST", "/v1/session", `{"secret":"` + secret + `"}`},
		{"PUT", path + "/password", `{"password":"battery staple 9"}`},
		{"GET", path + "/tags"},
		{"PUT", path + "/tags", `{"tags":[` + strings.Join(tags, ",") + `]}`},
		{"GET", "/v1/types/user/entries"},
		{"POST", "/v1/types/user/entries/get", `{"uids":["u1"]}`},
		{"GET", "/scim/v2/Users"},
		{"POST", "/scim/v2/Users/.search", `{}`},
		{"POST", "/scim/v2/Users/.search/", `{}`},
		{"POST", "/scim/v2/Groups/.search/", `{}`},
		{"GET", "/scim/v2" + group},
		{"PUT", "/scim/v2" + group, `{` + groupURN + `"displayName":"Chefs"}`},
		{"PATCH", "/scim/v2" + group + "?attributes=members", `{` + patchURN + `"Operations":[{"op":"replace","path":"displayName","value":"Cooks"}]}`},
	} {
		name, key := "all", c.key
		if strings.HasPrefix(request[1], "/scim/") {
			name, key = "directory", directory.key
		}
		r := httptest.NewRequestWithContext(c.Ctx, request[0], request[1], strings.NewReader(request[2]))
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Content-Type", "application/json")
		w := &meteredWriter{ResponseRecorder: httptest.NewRecorder(), used: func() int { return service.ResponsesOf(name) }}
		service.ServeHTTP(w, r)
		if w.Code >= 300 || w.Body.Len() < 50_000 {
			t.Fatalf("%s %s: got %d with %d bytes, want a large response", request[0], request[1], w.Code, w.Body.Len())
		}
		if w.most < w.Body.Len()*3/4 || w.most > w.Body.Len()*4 {
			t.Errorf("%s %s: the response has %d bytes and counts as %d, want about the same", request[0], request[1], w.Body.Len(), w.most)
		}
		if left := w.used(); left != 0 {
			t.Errorf("%s %s: %d bytes still count afterwards, want none", request[0], request[1], left)
		}
	}
}

// TestGroupsWithoutMemory checks that a group is not changed if there is no memory for the
// response, which lists its members.
func TestGroupsWithoutMemory(t *testing.T) {
	defer serve.SetSlotTimeout(50 * time.Millisecond)()
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	c := newClient(t, s, serve.Options{})
	service, err := serve.New(c.DB, serve.Options{Namespace: c.NS, SCIM: &scim.Options{}})
	must(t, err)
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	c.url = server.URL
	send := func(want int, method, path, body string) reply {
		t.Helper()
		r := c.send(method, path, body)
		if r.status != want {
			t.Fatalf("%s %s: got %d %s, want %d", method, path, r.status, r.text, want)
		}
		return r
	}
	const groups, group = "/scim/v2/Groups", `{"displayName":"%s"}`
	path := groups + "/" + send(201, "POST", groups, fmt.Sprintf(group, "one")).str("id")
	for range 4 { // all that a key may have
		defer service.HoldResponse("all")()
	}
	send(503, "POST", groups, fmt.Sprintf(group, "two"))
	send(503, "PUT", path, fmt.Sprintf(group, "three"))
	send(503, "PATCH", path+"?attributes=members", `{"schemas":["urn:ietf:params:scim:api:messages:2.0:PatchOp"],"Operations":[{"op":"replace","path":"displayName","value":"four"}]}`)
	c.equal("the group", send(200, "GET", path+"?excludedAttributes=members", "").str("displayName"), "one")
	send(201, "POST", groups+"?excludedAttributes=members", fmt.Sprintf(group, "two"))
}

// TestWaitingForResponses checks that requests that wait until they may read a page have slots, so
// that only a limited number of one key wait.
func TestWaitingForResponses(t *testing.T) {
	defer serve.SetMaxConcurrent(8)()          // 2 for a key
	defer serve.SetMaxResponses(4 * 8 << 20)() // a key reads one page at a time
	defer serve.SetSlotTimeout(time.Hour)()
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	c := newClient(t, s, serve.Options{})
	service, err := serve.New(s.DB, serve.Options{Namespace: s.NS})
	must(t, err)
	get := func(path string) int {
		r := httptest.NewRequestWithContext(c.Ctx, "GET", path, nil)
		r.Header.Set("Authorization", "Bearer "+c.key)
		w := httptest.NewRecorder()
		service.ServeHTTP(w, r)
		return w.Code
	}
	const page = "/v1/types/user/entries"
	end := service.HoldResponse("all")
	codes := make(chan int, 2)
	for range 2 {
		go func() { codes <- get(page) }()
	}
	c.until("the requests that wait have slots", func() bool { return service.SlotsOf("all") == 2 })
	for _, path := range []string{page, "/v1/schema"} {
		if code := get(path); code != 503 {
			t.Errorf("%s, while as many requests wait as there are slots: got %d, want 503", path, code)
		}
	}
	end()
	for range 2 {
		if code := <-codes; code != 200 {
			t.Errorf("a request that waited got %d, want 200", code)
		}
	}
	if slots, bytes := service.SlotsOf("all"), service.ResponsesOf("all"); slots != 0 || bytes != 0 {
		t.Errorf("afterwards, %d slots and %d bytes are in use, want none", slots, bytes)
	}
}
