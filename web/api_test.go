package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// ask sends a request with headers to a handler.
func ask(t *testing.T, h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestBearer signs a program in, and checks that its token is accepted in the header Authorization,
// that a token there takes precedence over a cookie, and that programs get 401 in place of a
// redirect.
func TestBearer(t *testing.T) {
	p := newSite(t, false, func(a *web.Auth) { a.Bearer = true })
	login := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	if _, _, err := p.auth.Token(login, "alice", "wrong"); !errors.Is(err, userdb.ErrLogin) {
		t.Errorf("a wrong password: got %v, want ErrLogin", err)
	}
	secret, session, err := p.auth.Token(login, "alice", goodPassword)
	if err != nil || session.ID == "" {
		t.Fatal(err)
	}
	h, invalid := p.mux(), "Bearer x"
	for _, tt := range []struct {
		path    string
		headers []string
		want    int
	}{
		{"/account", []string{"Authorization", "Bearer " + secret}, 200},
		{"/account", []string{"authorization", "bearer " + secret}, 200},
		{"/admin/", []string{"Authorization", "Bearer " + secret}, 403},
		{"/account", []string{"Authorization", invalid}, 401},
		{"/account", []string{"Authorization", invalid, "Cookie", "session=" + secret}, 401},
		{"/account", []string{"Authorization", "Basic " + secret, "Cookie", "session=" + secret}, 200},
		{"/account", nil, 401},
		{"/account", []string{"Sec-Fetch-Mode", "cors"}, 401},
		{"/account", []string{"Sec-Fetch-Mode", "navigate"}, 303},
		{"/account", []string{"Accept", "text/html"}, 303},
	} {
		w := ask(t, h, tt.path, tt.headers...)
		if w.Code != tt.want {
			t.Errorf("%s %v: got %d %s, want %d", tt.path, tt.headers, w.Code, w.Body, tt.want)
		}
		if w.Code == 401 && (w.Header().Get("WWW-Authenticate") == "" || w.Header().Get("Content-Type") != "application/problem+json") {
			t.Errorf("%s %v: got the header %v, want a challenge and a problem", tt.path, tt.headers, w.Header())
		}
	}
	if _, err := p.users.EndSessions(t.Context(), hints.UID("alice")); err != nil {
		t.Fatal(err)
	}
	if w := ask(t, h, "/account", "Authorization", "Bearer "+secret); w.Code != 401 {
		t.Errorf("the secret of a session that has ended: got %d, want 401", w.Code)
	}
	p.auth.Bearer = false
	if w := ask(t, p.mux(), "/account", "Authorization", "Bearer "+secret); w.Code != 303 {
		t.Errorf("without Bearer: got %d, want 303", w.Code)
	}
	p.auth.Allowed = func(userdb.Entry) bool { return false }
	if _, _, err := p.auth.Token(login, "alice", goodPassword); !errors.Is(err, userdb.ErrLogin) {
		t.Errorf("an entry that may not sign in: got %v, want ErrLogin", err)
	}
}

func TestWriteProblem(t *testing.T) {
	wrong := errors.Join(&userdb.FieldError{Field: "email", Err: userdb.ErrDuplicate}, &userdb.FieldError{Field: "born", Rule: "date", Err: userdb.ErrInvalid, Reason: "not a date"})
	for _, tt := range []struct {
		err    error
		status int
		want   string
	}{
		{wrong, 422, `{"code":"invalid","errors":[{"detail":"Somebody has this already. Choose another one.","field":"email","params":{},"rule":"taken"},` +
			`{"detail":"This is not a date. Write it like 2026-11-20.","field":"born","params":{"reason":"not a date"},"rule":"date"}],"status":422,"title":"Unprocessable Entity","type":"urn:userdb:error:invalid"}`},
		{userdb.ErrNotFound, 404, `{"code":"not_found","detail":"This is no longer valid.","status":404,"title":"Not Found","type":"urn:userdb:error:not_found"}`},
		{&userdb.WaitError{Wait: time.Minute}, 429, `{"code":"throttled","detail":"Too many attempts. Try again in 60 seconds.","status":429,"title":"Too Many Requests","type":"urn:userdb:error:throttled"}`},
		{&userdb.FactorError{Ticket: "t", Methods: []string{"totp"}}, 401, `{"code":"factor","detail":"This account has a second factor, which cannot be entered here.","methods":["totp"],"status":401,"ticket":"t","title":"Unauthorized","type":"urn:userdb:error:factor"}`},
		{errors.New("dial 10.0.0.1: secret"), 500, `{"code":"other","detail":"The service is not responding. Try again in a moment.","status":500,"title":"Internal Server Error","type":"urn:userdb:error:other"}`},
	} {
		w := httptest.NewRecorder()
		web.WriteProblem(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), tt.err)
		if got := strings.TrimSpace(w.Body.String()); w.Code != tt.status || got != tt.want {
			t.Errorf("%v: got %d %s, want %d %s", tt.err, w.Code, got, tt.status, tt.want)
		}
		if wait := w.Header().Get("Retry-After"); (wait == "60") != (tt.status == 429) {
			t.Errorf("%v: got the Retry-After %q, want 60 for status 429 only", tt.err, wait)
		}
	}
}

// TestCookieOfBrowser checks cookies that end with the browser and cookies of a whole domain.
func TestCookieOfBrowser(t *testing.T) {
	for _, tls := range []bool{false, true} {
		p := newSite(t, tls, func(a *web.Auth) { a.Cookie = web.Cookie{Transient: true, Domain: "example.com"} })
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, map[bool]string{true: "https://a.example.com/", false: "http://a.example.com/"}[tls], nil)
		if _, err := p.auth.SignIn(w, r, "alice", goodPassword); err != nil {
			t.Fatal(err)
		}
		c := w.Result().Cookies()[0]
		want := map[bool]string{true: "__Secure-session", false: "session"}[tls]
		if c.Name != want || c.Domain != "example.com" || c.MaxAge != 0 || !c.Expires.IsZero() || c.Secure != tls {
			t.Errorf("got %s, want %s for example.com until the browser ends", c, want)
		}
	}
}

// TestProgramsGetProblems checks that programs never get a page, whether a limit is used up or the
// store does not answer.
func TestProgramsGetProblems(t *testing.T) {
	s := newFlows(t, "memory:", func(f *web.Flows) { f.Bearer = true })
	s.create("ann")
	secret, _, err := s.flows.Token(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil), "ann", goodPassword)
	if err != nil {
		t.Fatal(err)
	}
	for name, auth := range map[string]web.Auth{"flows": s.flows.Auth, "auth": {Users: s.users, Bearer: true}} {
		h := web.Limit{Auth: auth, Name: name, Max: 1}.Handler(http.NotFoundHandler())
		for _, want := range []int{404, 429} {
			w := ask(t, h, "/")
			if w.Code != want || want == 429 && (w.Header().Get("Content-Type") != "application/problem+json" || w.Header().Get("Retry-After") == "") {
				t.Errorf("%s: got %d %v %s, want %d", name, w.Code, w.Header(), w.Body, want)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		r := httptest.NewRequestWithContext(ended, http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+secret)
		w := httptest.NewRecorder()
		if auth.Require(http.NotFoundHandler()).ServeHTTP(w, r); w.Code != 503 || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: without a store: got %d %v, want 503 and a problem", name, w.Code, w.Header())
		}
	}
}

type profile struct {
	UID       string     `userdb:"uid,primary"`
	Name      string     `userdb:"name,secondary"`
	Born      *time.Time `userdb:"born"`
	Children  int8       `userdb:"children"`
	Height    *float64   `userdb:"height"`
	News      bool       `userdb:"news"`
	Interests []string   `userdb:"interests"`
	Role      string     `userdb:"role"`
}

func TestDecode(t *testing.T) {
	born, height := time.Date(1990, 2, 3, 0, 0, 0, 0, time.UTC), 1.75
	before := profile{UID: "u", Name: "ann", Born: &born, Children: 2, Height: &height, News: true, Interests: []string{"go"}, Role: "member"}
	all := []string{"name", "born", "children", "height", "news", "interests"}
	form, inJSON := "application/x-www-form-urlencoded", "application/json; charset=utf-8"
	for _, tt := range []struct{ kind, body, want, problems string }{
		{form, "name=+bob+&born=1990-02-03&children=3&height=1.8&news=on&interests=go&interests=&interests=+chess+&role=admin", "bob 1990-02-03 3 1.8 true [go chess] member", ""},
		{form, "name=+a%0D%0Ab", "a\nb 1990-02-03 2 1.75 false [] member", ""},
		{form, "name=&born=&children=&height=", " - 0 - false [] member", ""},
		{form, "", "ann 1990-02-03 2 1.75 false [] member", ""},
		{form, "born=3.2.1990&children=300&height=tall&news=maybe", "", "born date: This is not a date. Write it like 2026-11-20.; children number: This is not a number.; height number: This is not a number.; news boolean: Write true or false."},
		{inJSON, `{"name": "bob", "born": "1990-02-03", "children": 3, "height": null, "news": false, "interests": ["x"]}`, "bob 1990-02-03 3 - false [x] member", ""},
		{inJSON, `{"born": "1990-02-03T10:00:00Z"}`, "ann 1990-02-03 2 1.75 true [go] member", ""},
		{inJSON, `{}`, "ann 1990-02-03 2 1.75 true [go] member", ""},
		{inJSON, `{"role": "admin"}`, "", "role field: This is not allowed: cannot be set."},
		{inJSON, `{"children": 300, "born": 5}`, "", "born date: This is not a date. Write it like 2026-11-20.; children number: This is not a number."},
		{"text/plain", `{"name": "bob"}`, "", " form: This is not allowed: the body is neither a form nor JSON: see its Content-Type."},
		{inJSON, `[]`, "", " form: This is not allowed: the body is not a JSON object."},
		{inJSON, `{"name": "` + strings.Repeat("x", 64<<10) + `"}`, "", " size: This is too long."},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(tt.body))
		r.Header.Set("Content-Type", tt.kind)
		for range 2 { // Update may call it again
			v := before
			err := web.Decode(r, &v, all...)
			var problems []string
			for _, p := range web.Problems(err) {
				problems = append(problems, p.Field+" "+p.Rule+": "+p.Text)
			}
			if got := strings.Join(problems, "; "); got != tt.problems {
				t.Errorf("%s: got the problems %q, want %q", tt.body[:min(len(tt.body), 80)], got, tt.problems)
			}
			if err == nil && v.String() != tt.want {
				t.Errorf("%s: got %q, want %q", tt.body, v, tt.want)
			}
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("interests=go"))
	r.Header.Set("Content-Type", form)
	var pointed struct {
		UID       string    `userdb:"uid,primary"`
		Interests *[]string `userdb:"interests"`
	}
	if err := web.Decode(r, &pointed, "interests"); err != nil || pointed.Interests == nil || len(*pointed.Interests) != 1 {
		t.Errorf("a pointer to values: got %v, %v; want one value", pointed.Interests, err)
	}
	if err := web.Decode(r, &before, "nmae"); err == nil || userdb.CodeOf(err) != userdb.CodeOther {
		t.Errorf("a name that the struct does not have: got %v, want an error of the program", err)
	}
}

func (p profile) String() string {
	born, height := "-", "-"
	if p.Born != nil {
		born = p.Born.Format(time.DateOnly)
	}
	if p.Height != nil {
		text, _ := json.Marshal(p.Height)
		height = string(text)
	}
	return fmt.Sprint(p.Name, " ", born, " ", p.Children, " ", height, " ", p.News, " ", p.Interests, " ", p.Role)
}

// TestListQuery checks which fields visitors may list by, and how many entries they get.
func TestListQuery(t *testing.T) {
	sc := schema.User()
	sc.Types["user"].Tertiary["likes"] = schema.Tertiary{Kind: "set", Indexed: true}
	users := openUsers(t, "memory:", userdb.Options{Schema: sc})
	q, err := web.ListQuery(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/?likes=a&likes=b&other=c", nil), users, "name", "likes")
	if got := fmt.Sprint(q.Has, q.Where); err != nil || got != "map[likes:[a b]] map[]" {
		t.Errorf("of a set: got %s (%v), want the members a and b", got, err)
	}
	for path, want := range map[string]string{
		"/?order=name&prefix=+An&limit=5":            "name false an 5 [] map[]",
		"/?order=-name&limit=1000":                   "name true  100 [] map[]",
		"/?order=email&prefix=x&limit=-1":            " false  20 [] map[]",
		"/?job=cook&tag=go&tag=chess&order=":         " false  20 [go chess] map[job:cook]",
		"/?email=ann@example.com&uid=x&password=abc": " false  20 [] map[]",
	} {
		q, err := web.ListQuery(httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil), users, "name", "job", "tag")
		where := map[string]string{}
		for field, v := range q.Where {
			where[field] = v.Wire()
		}
		if got := fmt.Sprint(q.Order, " ", q.Reverse, " ", q.Prefix, " ", q.Limit, " ", q.Tags, " ", where); err != nil || got != want || q.MaxRead == 0 {
			t.Errorf("%s: got %q, %v; want %q", path, got, err, want)
		}
	}
	if _, err := web.ListQuery(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/?added=x", nil), users, "added"); !errors.Is(err, userdb.ErrInvalid) {
		t.Errorf("x as a date: got %v, want ErrInvalid", err)
	}
}

func TestPageLinks(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/members?order=name&after=x&tag=a&tag=b", nil)
	prev, next := web.PageLinks(r, "p/q", "n")
	if prev != "/members?before=p%2Fq&order=name&tag=a&tag=b" || next != "/members?after=n&order=name&tag=a&tag=b" {
		t.Errorf("got %s and %s, want the paths of both pages", prev, next)
	}
	if prev, next = web.PageLinks(r, "", ""); prev != "" || next != "" {
		t.Errorf("a single page: got %q and %q, want none", prev, next)
	}
}

// TestEnsureTagged checks that the owner of an address gets the tag only once the address is
// verified. The owner of a name, which needs no proof, gets it at once.
func TestEnsureTagged(t *testing.T) {
	users := openUsers(t, "memory:", userdb.Options{})
	if is, err := web.EnsureTagged(t.Context(), users, "email", "root@example.com", "admin"); is || err != nil {
		t.Errorf("nobody has the address: got %t, %v; want false", is, err)
	}
	e, err := users.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("name", "root", "email", "Root@example.com"), Password: goodPassword})
	if err != nil {
		t.Fatal(err)
	}
	if is, err := web.EnsureTagged(t.Context(), users, "email", "root@example.com", "admin"); is || err != nil {
		t.Errorf("the address is not verified: got %t, %v; want false", is, err)
	}
	h := hints.Key(e.Key())
	secret, _, err := users.IssueFor(t.Context(), h, "email", userdb.Token{Purpose: "verify"})
	if err == nil {
		_, _, err = users.Redeem(t.Context(), "verify", secret)
	}
	if err != nil {
		t.Fatal(err)
	}
	if is, err := web.EnsureTagged(t.Context(), users, "email", "root@example.com", "admin"); !is || err != nil {
		t.Errorf("the address is verified: got %t, %v; want true", is, err)
	}
	if has, err := users.Tags(h).Has(t.Context(), "admin"); !has || err != nil {
		t.Errorf("the entry has the tag: got %t, %v; want true", has, err)
	}
	if is, err := web.EnsureTagged(t.Context(), users, "name", "ROOT", "staff"); !is || err != nil {
		t.Errorf("a name, which needs no proof: got %t, %v; want true", is, err)
	}
}

// TestWriteProblemLanguages checks that problems, and refusals without a page, are in the language
// of the page or, outside of a page, in the one that the request asks for.
func TestWriteProblemLanguages(t *testing.T) {
	taken := &userdb.FieldError{Field: "job", Err: userdb.ErrDuplicate}
	for asked, want := range map[string][3]string{
		"":          {"en", "Somebody has this already. Choose another one.", "The service is not responding."},
		"tlh":       {"en", "Somebody has this already. Choose another one.", "The service is not responding."},
		"de-CH, en": {"de", "Das ist schon vergeben.", "Der Dienst antwortet nicht."},
		"fr":        {"fr", "Cette valeur est déjà prise.", "Le service ne répond pas."},
		"es-MX":     {"es", "Ya está en uso.", "El servicio no responde."},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Accept-Language", asked)
		w := httptest.NewRecorder()
		web.WriteProblem(w, r, taken)
		if !strings.Contains(w.Body.String(), `"detail":"`+want[1]) || w.Header().Get("Content-Language") != want[0] || w.Header().Get("Vary") != "Accept-Language" {
			t.Errorf("%s: got %v %s, want %q in the language %s", asked, w.Header(), w.Body, want[1], want[0])
		}
		w = httptest.NewRecorder()
		web.WriteProblem(w, r, userdb.ErrUnavailable)
		if !strings.Contains(w.Body.String(), `"detail":"`+want[2]) {
			t.Errorf("%s: got %s, want %q", asked, w.Body, want[2])
		}
		s := newFlows(t, "memory:", func(f *web.Flows) { f.Bearer, f.Languages = true, []string{"fr"} })
		w = httptest.NewRecorder()
		s.flows.Failed(w, r, taken)
		if !strings.Contains(w.Body.String(), "déjà prise") || w.Header().Get("Content-Language") != "fr" {
			t.Errorf("%s: got %v %s, want the only language of the site, fr", asked, w.Header(), w.Body)
		}
		limited := web.Limit{Auth: web.Auth{Users: s.users}, Name: asked, Max: 1}.Handler(http.NotFoundHandler())
		for range 2 {
			w = httptest.NewRecorder()
			limited.ServeHTTP(w, r)
		}
		if w.Code != http.StatusTooManyRequests || strings.Contains(w.Body.String(), "Too many") != (want[0] == "en") {
			t.Errorf("%s: got %d %s, want 429 in the language %s", asked, w.Code, w.Body, want[0])
		}
	}
}
