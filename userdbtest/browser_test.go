package userdbtest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/userdbtest"
	"github.com/coffeenode/userdb/web"
)

// TestBrowser signs up and in at a site with the default pages.
func TestBrowser(t *testing.T) {
	t.Parallel()
	s, mails := userdbtest.New(t), userdbtest.NewMails(t)
	flows := &web.Flows{
		Auth: web.Auth{Users: s.Type("user")}, SignUp: web.SignUpByMail, Mail: &web.MailQueue{Send: mails.Send}, Base: "https://example.com",
		Fields: []web.Field{{Name: "name", Label: "Name", Autocomplete: "username"}},
	}
	mux := http.NewServeMux()
	flows.Register(mux)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`<form action="/sent"><input name="to" value="x"><input type="checkbox" name="a" value="1" checked>` +
			`<input type="checkbox" name="b" value="1"><textarea name="c">long</textarea><select name="d"><option value="1"><option value="2" selected></select>` +
			`<button name="e" value="1">One</button><button name="e" value="2">Two</button></form>`))
	})
	mux.Handle("GET /account", flows.Require(http.NotFoundHandler()))
	site := web.Protect(mux)

	b := userdbtest.NewBrowser(t, site)
	b.Open("/signup").Want(200, "Sign up").Send("", "email", "ann@example.com").Want(200, "Check your mail", "ann@example.com")
	b.Open(mails.To("ann@example.com").Link).Want(200, "Create your account")
	b.Send("Create the account", "name", "ann", "password", "short").Want(422, "At least 8 characters.")
	b.Send("Create the account", "name", "ann", "password", alicePassword).Want(404)
	if b.Path != "/account?done=welcome" {
		t.Errorf("ended at %s, want /account?done=welcome", b.Path)
	}
	userdbtest.NewBrowser(t, site).Open("/account").Want(200, "Sign in").Send("Sign in", "identifier", "ann", "password", "wrong").Want(422, "Wrong name or password.")

	if b.Open("/").Send("Two", "to", "y", "to", "z"); b.Path != "/sent?a=1&c=long&d=2&e=2&to=y&to=z" {
		t.Errorf("sent %s, want the inputs as given and as the page has them", b.Path)
	}
	if w := b.Do(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/nothing", nil)); w.Code != 404 || len(mails.Left()) != 0 {
		t.Errorf("got %d, and %d mails are left; want 404 and none", w.Code, len(mails.Left()))
	}
}

// TestBrowserFails checks what a test says if a form, an input or a text is absent, if the status
// is another one, or if a page cannot be opened.
func TestBrowserFails(t *testing.T) {
	site := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/round" {
			http.Redirect(w, r, "/round", http.StatusSeeOther)
		}
		_, _ = w.Write([]byte("<style>hidden</style><p>Hello</p><form><button>Go</button></form>"))
	})
	for _, tt := range []struct {
		do   func(*userdbtest.Browser)
		want string
	}{
		{func(b *userdbtest.Browser) { b.Send("Go") }, "no form"},
		{func(b *userdbtest.Browser) { b.Open("/").Send("Stop") }, "no form"},
		{func(b *userdbtest.Browser) { b.Open("/").Send("Go", "name", "x") }, "no form"},
		{func(b *userdbtest.Browser) { b.Open("/").Want(200, "hidden") }, `does not show "hidden"`},
		{func(b *userdbtest.Browser) { b.Open("/").Want(404) }, "got status 200, want 404"},
		{func(b *userdbtest.Browser) { b.Open("/round") }, "again and again"},
		{func(b *userdbtest.Browser) { b.Open("/%") }, "invalid URL escape"},
	} {
		if got := strings.Join(new(recorder).run(func(r *recorder) { tt.do(userdbtest.NewBrowser(r, site)) }), "\n"); !strings.Contains(got, tt.want) {
			t.Errorf("got the messages %q, want one with %q", got, tt.want)
		}
	}
}

// TestBrowserForms checks that a browser sends a form as browsers do: line breaks of texts, the
// first option of a list, and no box that is not ticked.
func TestBrowserForms(t *testing.T) {
	var sent url.Values
	b := userdbtest.NewBrowser(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		sent = r.PostForm
		fmt.Fprint(w, "<form method=post><input type=hidden name=shown value='a\nb'><textarea name=text>\n\na  b\nc</textarea>",
			"<input type=checkbox name=on checked><input type=checkbox name=box value=yes checked><input type=checkbox name=off value=1>",
			"<select name=size><option>small</option><option value=l>large</option></select><select name=many multiple><option>x</option></select><button>Save</button></form>")
	}))
	want := url.Values{"shown": {"a\r\nb"}, "text": {"\r\na  b\r\nc"}, "on": {"on"}, "size": {"small"}}
	if b.Open("/").Send("Save", "box", ""); !reflect.DeepEqual(sent, want) {
		t.Errorf("got %q, want %q", sent, want)
	}
	if b.Send("Save", "text", "a\nb"); sent.Get("text") != "a\r\nb" {
		t.Errorf("a text of two lines was sent as %q, want the line break of browsers", sent.Get("text"))
	}
	for name, value := range map[string]string{"text": "\r\na  b\r\nc", "box": "yes", "off": "", "size": "small", "none": ""} {
		if got := b.Value(name); got != value {
			t.Errorf("%s has the value %q, want %q", name, got, value)
		}
	}
}
