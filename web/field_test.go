package web_test

import (
	"bytes"
	"fmt"
	"html/template"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdbtest"
	"github.com/coffeenode/userdb/web"
)

func uidOf(r *http.Request) hints.Hint { return hints.UID(web.Entry(r.Context()).UID()) }

// profileOptions returns options with facets of every type.
func profileOptions() userdb.Options {
	sc := schema.User()
	user := sc.Types["user"]
	user.Fields["born"] = schema.Field{Codec: schema.CodecDate}
	user.Fields["height"] = schema.Field{Codec: schema.CodecNumber}
	user.Fields["news"] = schema.Field{Codec: schema.CodecBoolean}
	user.Fields["about"] = schema.Field{}
	user.Fields["size"] = schema.Field{Kind: "pattern", Pattern: "^(small|large|very large)$"}
	sc.Types["user"] = user
	return userdb.Options{Schema: sc, History: true}
}

var profileFields = []string{"born", "height", "news", "about", "size"}

// newProfileSite returns a site with a page on which visitors edit their profileFields.
func newProfileSite(t *testing.T) (*userdbtest.Store, *userdbtest.Browser) {
	t.Helper()
	s := userdbtest.New(t, userdbtest.With(profileOptions()))
	page := template.Must(web.Templates().Parse(`{{define "edit"}}{{template "head" .}}{{template "nav" .}}{{template "notes" .}}
<form method="post"><input type="hidden" name="rev" value="{{.Rev}}">
{{range $name := .Data}}{{template "facet" ($.Field . . "text" "off" ($.Me.Text .))}}{{end}}
<button>Save</button></form>{{template "bottom"}}{{end}}`))
	f := &web.Flows{
		Auth: web.Auth{Users: s.Type("user")}, Mail: &web.MailQueue{Send: userdbtest.NewMails(t).Send}, Base: "https://example.com",
		Render: web.RenderTemplates(page), SignUp: web.SignUpAtOnce,
		Fields: []web.Field{{Name: "name", Label: "Name"}, {Name: "born", Label: "Born"}, {Name: "news", Label: "News"}, {Name: "size", Label: "Size"}},
	}
	mux := http.NewServeMux()
	f.Register(mux)
	mux.Handle("/account", f.Require(f.Page("edit", func(*http.Request) (any, error) { return profileFields, nil }, func(_ http.ResponseWriter, r *http.Request) (string, error) {
		_, err := f.SaveForm(r, profileFields...)
		return "/account", err
	})))
	return s, userdbtest.NewBrowser(t, web.Protect(mux))
}

// TestFieldsBySchema checks that the input for a facet is what its codec and pattern call for, at
// the sign-up and on a page of the application, and that what visitors choose there is saved.
func TestFieldsBySchema(t *testing.T) {
	s, b := newProfileSite(t)
	facets := func() (all []string) {
		e, err := s.Type("user").Find(t.Context(), hints.Field("name", "ann"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range profileFields {
			all = append(all, name+"="+e.Text(name))
		}
		return all
	}
	want := func(facetsWant ...string) {
		t.Helper()
		if got := strings.Join(facets(), " "); got != strings.Join(facetsWant, " ") {
			t.Errorf("got %s, want %s", got, strings.Join(facetsWant, " "))
		}
	}
	b.Open("/signup").Send("Create the account", "email", "ann@example.com", "name", "ann", "password", "short", "born", "2 May", "news", "true", "size", "large").
		Want(422, "At least 8 characters.", "This is not a date.")
	for _, html := range []string{`value="2 May"`, `type="checkbox" value="true" checked`, `<option value="large" selected>large</option>`, `<option value="">–</option>`} {
		if !strings.Contains(b.Body, html) {
			t.Errorf("the sign-up does not have %s:\n%s", html, b.Body)
		}
	}
	b.Send("Create the account", "email", "ann@example.com", "name", "ann", "password", goodPassword, "born", "2001-05-02").Want(200)
	want("born=2001-05-02T00:00:00.000Z", "height=", "news=true", "about=", "size=large")

	for _, html := range []string{`name="born" type="text" value="2001-05-02"`, `name="news" type="checkbox" value="true" checked`, `<option value="large" selected>`, `name="about" type="text"`} {
		if !strings.Contains(b.Body, html) {
			t.Errorf("the form does not have %s:\n%s", html, b.Body)
		}
	}
	b.Send("Save").Want(200)
	want("born=2001-05-02T00:00:00.000Z", "height=", "news=true", "about=", "size=large")
	b.Send("Save", "born", "2001-05-03", "height", "170", "size", "").Want(200)
	want("born=2001-05-03T00:00:00.000Z", "height=170", "news=true", "about=", "size=")
	b.Send("Save", "height", "tall", "news", "").Want(422, "This is not a number.")
	if strings.Contains(b.Body, "checked") {
		t.Errorf("the box that was unticked is ticked again:\n%s", b.Body)
	}
	b.Send("Save", "height", "171").Want(200)
	want("born=2001-05-03T00:00:00.000Z", "height=171", "news=false", "about=", "size=")
	b.Send("Save").Want(200)
	want("born=2001-05-03T00:00:00.000Z", "height=171", "news=false", "about=", "size=")

	// After a conflict the box has what the visitor chose.
	b.Send("Save", "news", "true").Want(200)
	if _, err := s.Type("user").Update(t.Context(), hints.Field("name", "ann"), func(e *userdb.Entry) error {
		e.Put("about", schema.Text("a\nb"))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	b.Send("Save", "news", "").Want(409)
	if strings.Contains(b.Body, "checked") || !strings.Contains(b.Body, ">\na\nb</textarea>") {
		t.Errorf("after a conflict the page has the ticked box, or not the new text:\n%s", b.Body)
	}
	b.Send("Save").Want(200)
	want("born=2001-05-03T00:00:00.000Z", "height=171", "news=false", "about=a\nb", "size=")
}

// TestFieldsChangeNothing checks that a form that is sent as it was shown changes nothing, whatever
// is stored.
func TestFieldsChangeNothing(t *testing.T) {
	s, b := newProfileSite(t)
	b.Open("/signup").Send("Create the account", "email", "ann@example.com", "name", "ann", "password", goodPassword).Want(200)
	born := time.Date(2001, 5, 2, 13, 14, 15, 16e6, time.UTC)
	for _, about := range []string{"one\ntwo", "\n\nbegins and ends with lines\n", "one\r\ntwo", "one\rtwo", " spaces ", "<b>&amp;</b>", "straße ς a\u200db"} {
		before, err := s.Type("user").Update(t.Context(), hints.Field("name", "ann"), func(e *userdb.Entry) error {
			e.Put("about", schema.Text(about))
			e.Put("born", schema.Date(born))
			e.Put("size", schema.Text("large"))
			e.Drop("news")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		b.Open("/account").Send("Save").Want(200)
		after, err := s.Type("user").Find(t.Context(), hints.Field("name", "ann"))
		if err != nil || after.Rev() != before.Rev() {
			t.Errorf("about %q: the form has changed the entry (%v)", about, err)
		}
	}
	b.Open("/account")
	var page bytes.Buffer
	p := web.Page{Form: map[string][]string{}}
	if err := web.Templates().ExecuteTemplate(&page, "field", p.Field("about", "About", "textarea", "off", "\nx")); err != nil || !strings.Contains(page.String(), ">\n\nx</textarea>") {
		t.Errorf("a page for further lines: got %s (%v), want a textarea", &page, err)
	}
}

// TestTwoTabs checks that a form of Decode and Touched that is refused after a conflict shows what
// the visitor changed, and what is stored now for all else, and that it can be sent again. A form
// that showed an empty set must not remove what is added to the set meanwhile.
func TestTwoTabs(t *testing.T) {
	type member struct {
		UID   string          `userdb:"uid,primary"`
		Rev   userdb.Revision `userdb:"~rev"`
		About string          `userdb:"about"`
		News  bool            `userdb:"news"`
		Likes []string        `userdb:"likes,set"`
	}
	o := profileOptions()
	user := o.Schema.Types["user"]
	user.Tertiary["likes"] = schema.Tertiary{Kind: "set"}
	o.Schema.Types["user"] = user
	s := userdbtest.New(t, userdbtest.With(o))
	members, err := userdb.Of[member](s.Type("user"))
	if err != nil {
		t.Fatal(err)
	}
	page := template.Must(web.Templates().Parse(`{{define "edit"}}{{template "notes" .}}<form method="post"><input type="hidden" name="rev" value="{{.Rev}}">
<input type="hidden" name="shown-about" value="{{.Shown "about"}}">{{template "field" (.Field "about" "About" "text" "off" (.Me.Text "about"))}}
<input type="hidden" name="shown-news" value="{{.Shown "news"}}">{{template "field" (.Field "news" "News" "text" "off" (.Me.Text "news"))}}
<input type="hidden" name="shown-likes" value="">{{range .Data.Likes}}<input type="hidden" name="shown-likes" value="{{.}}">{{end}}
<input type="checkbox" name="likes" value="chess"{{if .Ticked "likes" "chess" .Data.Likes}} checked{{end}}><button>Save</button></form>{{end}}`))
	f := &web.Flows{
		Auth: web.Auth{Users: s.Type("user")}, Mail: &web.MailQueue{Send: userdbtest.NewMails(t).Send}, Base: "https://example.com",
		Render: web.RenderTemplates(page),
	}
	mux := http.NewServeMux()
	f.Register(mux)
	mux.Handle("/account", f.Require(f.Page("edit", func(r *http.Request) (any, error) { return members.Find(r.Context(), uidOf(r)) }, func(_ http.ResponseWriter, r *http.Request) (string, error) {
		_, err := members.Update(r.Context(), uidOf(r), func(m *member) error {
			if m.Rev.String() != r.FormValue("rev") {
				return userdb.ErrConflict
			}
			return web.Decode(r, m, web.Touched(r, "about", "news", "likes")...)
		})
		return "/account", err
	})))
	if _, err := s.Type("user").Create(t.Context(), userdb.NewEntry{UID: "ann", Facets: schema.Texts("name", "ann"), Password: goodPassword}); err != nil {
		t.Fatal(err)
	}
	one := userdbtest.NewBrowser(t, web.Protect(mux))
	one.Open("/account").Send("Sign in", "identifier", "ann", "password", goodPassword).Want(200)
	one.Send("Save", "likes", "chess", "news", "true", "about", "first").Want(200)
	two := *one // another tab
	two.Open("/account").Send("Save", "about", "second").Want(200)
	one.Send("Save", "likes", "", "news", "").Want(409)
	if one.Value("about") != "second" || one.Value("likes") != "" || one.Value("news") != "" {
		t.Errorf("after a conflict: got %q, %q and %q, want what the other tab saved and two empty boxes", one.Value("about"), one.Value("likes"), one.Value("news"))
	}
	one.Send("Save").Want(200)
	m, err := members.Find(t.Context(), hints.UID("ann"))
	if err != nil || m.About != "second" || m.News || len(m.Likes) > 0 {
		t.Errorf("got %+v (%v), want the text of one tab and the boxes of the other", m, err)
	}
	// Tags and other sets change without a new revision.
	one.Open("/account")
	if _, err := s.Type("user").Set(hints.UID("ann"), "likes").Add(t.Context(), "chess"); err != nil {
		t.Fatal(err)
	}
	one.Send("Save", "about", "third").Want(200)
	m, err = members.Find(t.Context(), hints.UID("ann"))
	if err != nil || m.About != "third" || len(m.Likes) != 1 {
		t.Errorf("got %+v (%v), want the new text, and the member that was added to an empty set", m, err)
	}
}

// TestFirstAdministrator checks that EnsureTagged of Flows invites the administrator of a new
// store, at most three times in an hour, and later gives the tag to the account.
func TestFirstAdministrator(t *testing.T) {
	s := newFlows(t, "memory:", func(f *web.Flows) {
		f.New = func(_ *http.Request, i userdb.Invitation, n *userdb.NewEntry) error {
			n.Tags = []string{i.Value}
			return nil
		}
	})
	for range 5 {
		if err := s.flows.EnsureTagged(t.Context(), "root@example.com", "admin"); err != nil {
			t.Fatal(err)
		}
	}
	if sent := s.sent(); len(sent) != 3 || sent[0] != "invited root@example.com" {
		t.Fatalf("got the mails %q, want three invitations", sent)
	}
	_, secret, _ := strings.Cut(s.mails[2].Link, "?token=")
	if status, _, body := s.send(s.client(), "/welcome", "token", secret, "name", "root", "password", goodPassword); status != http.StatusSeeOther {
		t.Fatal(status, body)
	}
	tags := s.users.Tags(hints.Field("name", "root"))
	for range 2 {
		if has, err := tags.Has(t.Context(), "admin"); err != nil || !has {
			t.Errorf("the administrator has no tag (%v)", err)
		}
		if _, err := tags.Remove(t.Context(), "admin"); err != nil {
			t.Fatal(err)
		}
		if err := s.flows.EnsureTagged(t.Context(), "root@example.com", "admin"); err != nil {
			t.Fatal(err)
		}
	}
	if sent := s.sent(); len(sent) != 3 {
		t.Errorf("got the mails %q, want no further one", sent)
	}
}

// TestFirstAdministratorSignsUpElsewhere checks that EnsureTagged of Flows mails no link to a page
// that does not exist, and that the owner of an address that somebody else has registered learns
// of it.
func TestFirstAdministratorSignsUpElsewhere(t *testing.T) {
	s := newFlows(t, "memory:", func(f *web.Flows) { f.SignUp = web.SignUpClosed })
	if err := s.flows.EnsureTagged(t.Context(), "root@example.com", "admin"); err == nil || len(s.sent()) > 0 {
		t.Errorf("closed: got the mails %q (%v), want an error", s.sent(), err)
	}
	s, _ = newAtOnce(t)
	s.send(s.client(), "/signup", "email", "root@example.com", "name", "root", "password", goodPassword)
	s.newMails()
	if err := s.flows.EnsureTagged(t.Context(), "root@example.com", "admin"); err != nil {
		t.Fatal(err)
	}
	if sent := s.sent(); len(sent) != 1 || sent[0] != "registered root@example.com" {
		t.Errorf("registered: got the mails %q, want one that says so", sent)
	}
	if has, err := s.users.Tags(hints.Field("name", "root")).Has(t.Context(), "admin"); err != nil || has {
		t.Errorf("the tag of an account without a verified address: %t (%v), want none", has, err)
	}
}

// TestOptionLabels checks that the label of an option is in the catalogues under the field and the
// value or under the value, and is never a text for something else.
func TestOptionLabels(t *testing.T) {
	german := web.Catalogues["de"]
	german["small"], german["size large"] = "klein", "groß"
	t.Cleanup(func() {
		delete(german, "small")
		delete(german, "size large")
	})
	declared := schema.Type{Fields: map[string]schema.Field{"size": {Kind: "pattern", Pattern: "^(small|large|unknown|minutes)$"}}}
	for language, want := range map[string]string{"en": "– small large unknown minutes", "de": "– klein groß unknown minutes"} {
		p := web.PageOf(userdb.Entry{}, declared, nil)
		p.Language = language
		var labels []string
		for _, o := range p.Field("size", "Size", "text", "off", "").Options {
			labels = append(labels, o.Label)
		}
		if got := strings.Join(labels, " "); got != want {
			t.Errorf("%s: got the labels %q, want %q", language, got, want)
		}
	}
}

// TestListsOfWords checks that an input is a list only if the schema allows nothing but its words.
func TestListsOfWords(t *testing.T) {
	for pattern, want := range map[string]string{
		"^(small|large)$": "select", "^(?:small|large)$": "select", "(small|large)": "text", "^(DE|AT)": "text", "(com|org)$": "text", "^(a|b.)$": "text", "^(small)$": "text", "": "text",
	} {
		p := web.PageOf(userdb.Entry{}, schema.Type{Fields: map[string]schema.Field{"size": {Pattern: pattern}}}, nil)
		if in := p.Field("size", "Size", "text", "off", ""); in.Type != want {
			t.Errorf("%q: got an input of type %s, want %s", pattern, in.Type, want)
		}
	}
}

// TestEmptySearch checks that ListQuery ignores the empty inputs of a form, and only these.
func TestEmptySearch(t *testing.T) {
	users := userdbtest.New(t, userdbtest.With(profileOptions())).Type("user")
	for query, want := range map[string]string{"tag=&tag=x": "[x]", "tag=x&tag=": "[x]", "tag=x&tag=&tag=y": "[x y]", "tag=": "[]"} {
		q, err := web.ListQuery(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/?"+query, nil), users, "tag")
		if got := fmt.Sprint(q.Tags); err != nil || got != want {
			t.Errorf("%s: got the tags %s (%v), want %s", query, got, err, want)
		}
	}
}

// TestOneRound checks that what Decode finds wrong and what the schema finds wrong are reported
// together.
func TestOneRound(t *testing.T) {
	type member struct {
		UID  string     `userdb:"uid,primary"`
		Name string     `userdb:"name,secondary"`
		Size string     `userdb:"size"`
		Born *time.Time `userdb:"born"`
	}
	s := userdbtest.New(t, userdbtest.With(profileOptions()))
	users := s.Type("user")
	members, err := userdb.Of[member](users)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ann", "bob"} {
		if _, err := users.Create(t.Context(), userdb.NewEntry{UID: name, Facets: schema.Texts("name", name)}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, err error, texts ...string) {
		t.Helper()
		var got []string
		for _, p := range web.Problems(err) {
			got = append(got, p.Field+" "+p.Rule)
		}
		if strings.Join(got, ", ") != strings.Join(texts, ", ") {
			t.Errorf("%s: got the problems %q, want %q", what, got, texts)
		}
	}
	r := formRequest(t, "name", "BOB", "size", "huge", "born", "2 May")
	_, err = members.Update(t.Context(), hints.UID("ann"), func(m *member) error { return web.Decode(r, m, "name", "size", "born") })
	want("update", err, "born date", "name taken", "size pattern")
	var m member
	found := web.Decode(r, &m, "name", "size", "born")
	n, err := members.NewEntry(m)
	if err != nil {
		t.Fatal(err)
	}
	n.Problems, n.Password = found, "short"
	_, err = users.Create(t.Context(), n)
	want("create", err, "born date", "name taken", "size pattern", "password min")
}

// TestOrigins checks that histories record the visitor's address for what handlers do behind
// Require, Visitor and RequireLevel, and that an address that the application has set stays.
func TestOrigins(t *testing.T) {
	s := userdbtest.New(t, userdbtest.With(profileOptions()))
	users := s.Type("user")
	e, err := users.Create(t.Context(), userdb.NewEntry{UID: "ann", Facets: schema.Texts("name", "ann"), Password: goodPassword})
	if err != nil {
		t.Fatal(err)
	}
	_, secret, err := users.StartSession(t.Context(), e, userdb.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	change := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n++
		if _, err := users.Update(r.Context(), hints.UID("ann"), func(e *userdb.Entry) error { e.Put("height", schema.Number(float64(n))); return nil }); err != nil {
			t.Error(err)
		}
	})
	a := web.Auth{Users: users}
	proxied := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.Require(change).ServeHTTP(w, r.WithContext(userdb.WithActor(r.Context(), userdb.Actor{Origin: "198.51.100.9"})))
	})
	for _, tt := range []struct {
		h    http.Handler
		want string
	}{{a.Require(change), "192.0.2.1"}, {a.Visitor(change), "192.0.2.1"}, {a.RequireLevel(1, 0, change), "192.0.2.1"}, {proxied, "198.51.100.9"}} {
		r := formRequest(t)
		r.AddCookie(&http.Cookie{Name: "session", Value: secret})
		tt.h.ServeHTTP(nopWriter{http.Header{}}, r)
		events, err := users.History(t.Context(), hints.UID("ann"))
		if err != nil || events[0].Origin != tt.want {
			t.Errorf("got the events %+v (%v), want the last one from %q", events, err, tt.want)
		}
	}
}

type nopWriter struct{ h http.Header }

func (w nopWriter) Header() http.Header       { return w.h }
func (nopWriter) Write(b []byte) (int, error) { return len(b), nil }
func (nopWriter) WriteHeader(int)             {}
