package web_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdbtest"
	"github.com/coffeenode/userdb/web"
)

var hiddenInput = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)

// hidden returns the hidden inputs of the first form in a page that is sent to action, as names and
// values in turn. If action is "", it is the form without an action.
func hidden(t *testing.T, page, action string) (form []string) {
	t.Helper()
	start := `action="` + html.EscapeString(action) + `"`
	if action == "" {
		start = `<form method="post">`
	}
	_, rest, is := strings.Cut(page, start)
	if !is {
		t.Fatalf("no form is sent to %q in\n%s", action, page)
	}
	rest, _, _ = strings.Cut(rest, "</form>")
	for _, in := range hiddenInput.FindAllStringSubmatch(rest, -1) {
		form = append(form, html.UnescapeString(in[1]), html.UnescapeString(in[2]))
	}
	return form
}

// keeping returns a site with a page of its own, /profile, whose form sends a text, and the forms
// that arrived. Visitors must have proved within ten minutes who they are for /delicate.
func keeping(t *testing.T) (s *flowSite, clock *userdbtest.Clock, arrived *[]string) {
	t.Helper()
	s, clock = newFactorFlows(t)
	arrived = new([]string)
	form := func(_ http.ResponseWriter, r *http.Request) (string, error) {
		*arrived = append(*arrived, web.Entry(r.Context()).Text("name")+": "+strings.Join(r.PostForm["text"], "|")+r.PostFormValue("do"))
		return "/account?done=edit", nil
	}
	mux := http.NewServeMux()
	s.flows.Register(mux)
	page := s.flows.Page("account", nil, form)
	mux.Handle("/profile", s.flows.Require(page))
	mux.Handle("POST /act", s.flows.Require(page))
	mux.Handle("/delicate", s.flows.Require(s.flows.RequireRecent(10*time.Minute, page)))
	mux.Handle("/level", s.flows.RequireLevel(1, 10*time.Minute, page))
	mux.Handle("GET /account", s.flows.Require(http.NotFoundHandler()))
	s.server.Config.Handler = web.Protect(mux)
	return s, clock, arrived
}

// TestFormAfterSession sends forms after the session has ended. The visitor signs in on the page
// that comes back, and sends the form with one click. No page has a password or a code, and another
// account gets nothing.
func TestFormAfterSession(t *testing.T) {
	s, clock, arrived := keeping(t)
	clock.Advance(time.Since(clock.Now()))
	s.create("ann")
	s.create("bob")
	a := enrol(t, s.users, s.create("eve"), clock.Now)
	ended := func(name string) *http.Client {
		t.Helper()
		c := s.client()
		if status, to, body := s.send(c, "/signin", "identifier", name, "password", goodPassword); status != http.StatusSeeOther {
			t.Fatalf("%s: got %d %s:\n%s", name, status, to, body)
		}
		if name == "eve" {
			clock.Advance(time.Minute)
			if status, to, body := s.send(c, "/signin/code", "code", a.code()); status != http.StatusSeeOther {
				t.Fatalf("%s: got %d %s:\n%s", name, status, to, body)
			}
		}
		if _, err := s.users.EndSessions(t.Context(), hints.Field("name", name)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	text := []string{"text", "<first>\r\nsecond & third", "do", "save", "shown-text", "", "password", "my secret horse", "Passwort2", "my secret horse", "code", "123456", "return", "/elsewhere"}
	interrupt := func(c *http.Client, path string, form ...string) []string {
		t.Helper()
		status, to, body := s.send(c, path, form...)
		if status != http.StatusForbidden || !strings.Contains(body, "You are no longer signed in.") {
			t.Fatalf("%s: got %d %s, want 403 and the page to sign in:\n%s", path, status, to, body)
		}
		if strings.Contains(body, "secret horse") || strings.Contains(body, "123456") || strings.Contains(body, goodPassword) {
			t.Errorf("%s: the page has a password or a code:\n%s", path, body)
		}
		return hidden(t, body, "/signin")
	}
	const want = "<first>\r\nsecond & thirdsave"
	credentials := func(name string) []string { return []string{"identifier", name, "password", goodPassword} }

	// One step, with a wrong password first.
	for _, path := range []string{"/profile?tab=2", "/act"} {
		c := ended("ann")
		carried := interrupt(c, path, text...)
		status, _, body := s.send(c, "/signin", append(carried, "identifier", "ann", "password", "wrong horse battery")...)
		if status != http.StatusUnprocessableEntity || !slices.Equal(hidden(t, body, "/signin"), carried) {
			t.Errorf("a wrong password: got %d, want 422 and the same inputs %q:\n%s", status, carried, body)
		}
		status, to, body := s.send(c, "/signin", append(carried, credentials("ann")...)...)
		if status != http.StatusOK || !strings.Contains(body, "It has not been sent yet.") || !strings.Contains(body, "Sign out") {
			t.Fatalf("signing in again: got %d %s, want 200 and the form:\n%s", status, to, body)
		}
		*arrived = nil
		if status, to, body = s.send(c, path, hidden(t, body, path)...); status != http.StatusSeeOther || !slices.Equal(*arrived, []string{"ann: " + want}) {
			t.Errorf("%s: got %d %s and %q, want 303 and what was entered:\n%s", path, status, to, *arrived, body)
		}
	}

	// Another account.
	c := ended("ann")
	status, to, body := s.send(c, "/signin", append(interrupt(c, "/profile", text...), credentials("bob")...)...)
	if status != http.StatusSeeOther || to != "/account" {
		t.Errorf("another account: got %d %s, want 303 to its own page:\n%s", status, to, body)
	}
	c = ended("ann")
	carried := interrupt(c, "/profile", text...)
	s.send(c, "/signin", credentials("bob")...) // in another tab
	*arrived = nil
	_, _, body = s.send(s.client(), "/signin", append(carried, credentials("ann")...)...)
	if status, _, _ = s.send(c, "/profile", hidden(t, body, "/profile")...); status != http.StatusForbidden || len(*arrived) > 0 {
		t.Errorf("the form of an account that has signed in again, sent by another one: got %d and %q, want 403 and nothing", status, *arrived)
	}
	if status, to, body = s.send(c, "/signin", append(carried, credentials("bob")...)...); status != http.StatusSeeOther || to != "/account" {
		t.Errorf("another account in another tab: got %d %s, want 303 to its own page:\n%s", status, to, body)
	}

	// Two steps: with a wrong code, the other way, and a ticket that has expired.
	c = ended("eve")
	status, to, body = s.send(c, "/signin", append(interrupt(c, "/profile", text...), credentials("eve")...)...)
	if status != http.StatusOK || !strings.Contains(body, `name="code"`) {
		t.Fatalf("the first step: got %d %s, want 200 and the page that asks for a code:\n%s", status, to, body)
	}
	carried = hidden(t, body, "/signin/code")
	if status, _, body = s.send(c, "/signin/code", append(carried, "code", a.wrong())...); status != http.StatusUnprocessableEntity || !slices.Equal(hidden(t, body, "/signin/code"), carried) {
		t.Errorf("a wrong code: got %d, want 422 and the same inputs %q:\n%s", status, carried, body)
	}
	if status, _, body = s.send(c, "/signin/code", append(carried, "code", "", "other-step", "1")...); status != http.StatusOK || !strings.Contains(body, `name="recovery"`) {
		t.Errorf("the other way: got %d, want 200 and the page that asks for a recovery code:\n%s", status, body)
	}
	clock.Advance(6 * time.Minute)
	if status, _, body = s.send(c, "/signin/code", append(carried, "code", a.code())...); status != http.StatusOK || !strings.Contains(body, "Sign in again.") {
		t.Errorf("a ticket that has expired: got %d, want 200 and the page to sign in:\n%s", status, body)
	}
	_, _, body = s.send(c, "/signin", append(hidden(t, body, "/signin"), credentials("eve")...)...)
	clock.Advance(time.Minute)
	status, _, body = s.send(c, "/signin/code", append(hidden(t, body, "/signin/code"), "code", a.code())...)
	if status != http.StatusOK {
		t.Fatalf("the second step: got %d, want 200 and the form:\n%s", status, body)
	}
	*arrived = nil
	if s.send(c, "/profile", hidden(t, body, "/profile")...); !slices.Equal(*arrived, []string{"eve: " + want}) {
		t.Errorf("after two steps: got %q, want what was entered", *arrived)
	}

	// The pages of Flows. An address is asked for again with the password; passwords are not kept,
	// nor is the key of an app.
	c = ended("ann")
	carried = interrupt(c, "/account/email", "email", "new@example.com", "password", goodPassword)
	_, _, body = s.send(c, "/signin", append(carried, credentials("ann")...)...)
	if status, _, body = s.send(c, "/account/email", hidden(t, body, "/account/email")...); status != http.StatusUnprocessableEntity || !strings.Contains(body, `value="new@example.com"`) || !strings.Contains(body, `id="password-problem"`) {
		t.Errorf("a change of the address: got %d, want 422 and the form with the address:\n%s", status, body)
	}
	for path, form := range map[string][]string{
		"/account/password": {"old", goodPassword, "new", "my secret horse"},
		"/account/security": {"do", "confirm", "id", "x", "uri", "otpauth://totp/x?secret=my+secret+horse", "code", "123456"},
	} {
		c = ended("ann")
		carried = interrupt(c, path, form...)
		if status, to, body = s.send(c, "/signin", append(carried, credentials("ann")...)...); status != http.StatusSeeOther || to != path || len(carried) != 2 {
			t.Errorf("%s: got %d %s and the inputs %q, want 303 to the page and none but its path:\n%s", path, status, to, carried, body)
		}
	}

	// A link of another site cannot make up a form.
	forged := "?return=%2Fprofile&kept=" + s.find("ann").UID() + "&kept:text=forged"
	for _, path := range []string{"/signin", "/account/verify"} {
		c = s.client()
		if path == "/account/verify" {
			s.send(c, "/signin", credentials("ann")...)
		}
		if _, _, body := s.send(c, path+forged); strings.Contains(body, "forged") || strings.Contains(body, `name="kept`) {
			t.Errorf("%s: a link makes up a form:\n%s", path, body)
		}
		if status, to, body := s.send(c, path+forged, append(credentials("ann"), "return", "/profile")...); status != http.StatusSeeOther || to != "/profile" {
			t.Errorf("%s: a form that a link makes up: got %d %s, want 303 to the page:\n%s", path, status, to, body)
		}
	}

	// Forms that a sign-in cannot carry, and others that only claim to carry so much.
	for _, form := range []string{"text=" + strings.Repeat("x", 50<<10), strings.Repeat("a&", 501)} {
		c = ended("ann")
		if status, to, _ := s.do(c, http.MethodPost, "/profile", form); status != http.StatusSeeOther || to != "/signin?return=%2Fprofile" {
			t.Errorf("a form of %d bytes: got %d %s, want 303 to the page to sign in", len(form), status, to)
		}
	}
	c = ended("ann")
	carried = interrupt(c, "/profile", "text", strings.Repeat("ü", 7<<10))
	if status, _, body = s.send(c, "/signin", append(carried, credentials("ann")...)...); status != http.StatusOK || !slices.Contains(hidden(t, body, "/profile"), strings.Repeat("ü", 7<<10)) {
		t.Errorf("a long form: got %d, want 200 and the form", status)
	}
	if status, _, body = s.do(s.client(), http.MethodPost, "/signin", strings.Repeat("kept:a&", 501)+"kept=x"); status != http.StatusUnprocessableEntity || strings.Contains(body, "kept") {
		t.Errorf("a stranger's form: got %d, want 422 and a page that carries nothing:\n%s", status, body)
	}

	// A form that has nothing but a password, at a path that is no page.
	c = ended("ann")
	if got := interrupt(c, "/act", "password", goodPassword); !slices.Equal(got, []string{"return", "/account"}) {
		t.Errorf("a password for a path that is no page: the form has %q, want the path of the account only", got)
	}

	// Nobody who never was signed in gets such a page, and no program does.
	if status, to, _ := s.send(s.client(), "/profile", text...); status != http.StatusSeeOther || to != "/signin" {
		t.Errorf("without a session: got %d %s, want 303 to the sign-in", status, to)
	}
	c = ended("ann")
	c.Transport = withHeader{"Accept", "application/json"}
	if status, _, body := s.send(c, "/profile", text...); status != http.StatusUnauthorized || strings.Contains(body, "first") {
		t.Errorf("a program: got %d, want 401 and no form: %s", status, body)
	}
}

// TestFormBeforeProof sends forms to pages for which the visitor must first prove again who they
// are. Afterwards the form is sent with one click, unless somebody else is signed in by then.
func TestFormBeforeProof(t *testing.T) {
	s, clock, arrived := keeping(t)
	s.create("ann")
	s.create("bob")
	for _, path := range []string{"/delicate?tab=2", "/level"} {
		c := s.client()
		s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
		clock.Advance(time.Hour)
		status, to, body := s.send(c, path, "text", "kept text", "password", "my secret horse")
		if status != http.StatusForbidden || !strings.Contains(body, "Confirm that it is you.") || strings.Contains(body, "horse") {
			t.Fatalf("%s: got %d %s, want 403 and the page that asks for the password:\n%s", path, status, to, body)
		}
		carried := hidden(t, body, "/account/verify")
		status, to, body = s.send(c, "/account/verify", append(carried, "password", goodPassword)...)
		if status != http.StatusOK {
			t.Fatalf("%s: got %d %s, want 200 and the form:\n%s", path, status, to, body)
		}
		*arrived = nil
		if s.send(c, path, hidden(t, body, path)...); !slices.Equal(*arrived, []string{"ann: kept text"}) {
			t.Errorf("%s: got %q, want what was entered", path, *arrived)
		}
		s.send(c, "/signin", "identifier", "bob", "password", goodPassword)
		if status, to, body = s.send(c, "/account/verify", append(carried, "password", goodPassword)...); status != http.StatusForbidden || strings.Contains(body, "kept text") {
			t.Errorf("%s: another account: got %d %s, want 403 and nothing of the form:\n%s", path, status, to, body)
		}
		carried = slices.DeleteFunc(carried, func(text string) bool { return text == "~whose" || text == "kept" || text == s.find("ann").UID() })
		carried = append(carried, "kept", s.find("ann").UID()) // as from a template of a site
		if status, to, body = s.send(c, "/account/verify", append(carried, "password", goodPassword)...); status != http.StatusSeeOther || to != "/account" {
			t.Errorf("%s: another account: got %d %s, want 303 to its own page:\n%s", path, status, to, body)
		}
	}

	// The name of an app that somebody has typed.
	c := s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	clock.Advance(time.Hour)
	const filled = "/account/security?label=my+phone&return=%2Fvault"
	if status, to, body := s.send(c, "/account/security", "do", "add", "label", "my phone", "return", "/vault"); status != http.StatusSeeOther || to != "/account/verify?"+(url.Values{"return": {filled}}).Encode() {
		t.Errorf("adding an app: got %d %s, want 303 to the page that asks for the password, and then to %s:\n%s", status, to, filled, body)
	}
	s.send(c, "/account/verify", "password", goodPassword)
	if _, _, body := s.send(c, filled); !strings.Contains(body, `value="my phone"`) {
		t.Errorf("the page does not have the name that was typed:\n%s", body)
	}
}

// TestNoMessageForOthers checks that a message about what was done is not shown to the visitor who
// signs in next.
func TestNoMessageForOthers(t *testing.T) {
	s := newFlows(t, "memory:", nil)
	for path, want := range map[string]string{
		"/account?done=email": "/signin?return=%2Faccount", "/account?page=2&done=edit": "/signin?return=%2Faccount%3Fpage%3D2",
		"/account?b=1&a=2": "/signin?return=%2Faccount%3Fb%3D1%26a%3D2", "/signin/code?return=%2Faccount%3Fdone%3Dpassword": "/signin?return=%2Faccount&done=again",
	} {
		if _, to, _ := s.send(s.client(), path); to != want {
			t.Errorf("%s: redirected to %s, want %s", path, to, want)
		}
	}
}

// TestWrongOwnPassword checks that the page says that the current password is wrong, and not that
// the name may be, beside the input of that password.
func TestWrongOwnPassword(t *testing.T) {
	s, clock := newAtOnce(t)
	clock.Advance(time.Since(clock.Now()))
	s.create("ann")
	c := s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	clock.Advance(2 * time.Minute)
	for path, tt := range map[string]struct {
		form []string
		want string
	}{
		"/account/password":  {[]string{"old", "wrong horse", "new", "brand new horse"}, `id="old-problem" role="alert">This is not your current password.`},
		"/account/email":     {[]string{"email", "ann2@example.com", "password", "wrong horse"}, `id="password-problem" role="alert">This is not your password.`},
		"/account/addresses": {[]string{"do", "add", "email", "ann2@example.com", "password", "wrong horse"}, `id="password-problem" role="alert">This is not your password.`},
		"/account/verify":    {[]string{"password", "wrong horse"}, `id="password-problem" role="alert">This is not your password.`},
	} {
		status, _, body := s.send(c, path, tt.form...)
		if status != http.StatusUnprocessableEntity || !strings.Contains(body, tt.want) || strings.Contains(body, "name or password") {
			t.Errorf("%s: got %d, want 422 and %s:\n%s", path, status, tt.want, body)
		}
	}
}

// TestNewPasswordTwice sends the form for a new password twice, as a double click does, one after
// the other and at the same time. Whichever answer the browser shows, the visitor is signed in.
func TestNewPasswordTwice(t *testing.T) {
	s := newFlows(t, "memory:", nil)
	s.create("ann")
	c := s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	old := []*http.Cookie{{Name: "session", Value: s.cookie(c, "session")}}
	var clients []*http.Client
	for range 3 {
		one := s.client()
		one.Jar.SetCookies(mustURL(t, s.server.URL), old)
		clients = append(clients, one)
	}
	change := func(c *http.Client) {
		status, to, body := s.send(c, "/account/password", "old", goodPassword, "new", "brand new horse")
		if status != http.StatusSeeOther || to != "/account?done=password" {
			t.Errorf("got %d %s, want 303 to the account:\n%s", status, to, body)
		}
		if status, _, _ := s.send(c, "/account"); status != http.StatusOK {
			t.Errorf("got %d, want the account", status)
		}
	}
	var both sync.WaitGroup
	for _, one := range clients[:2] {
		both.Go(func() { change(one) })
	}
	both.Wait()
	change(clients[2])
	c = s.client()
	c.Jar.SetCookies(mustURL(t, s.server.URL), old)
	if status, _, body := s.send(c, "/account/password", "old", goodPassword, "new", "another new horse"); status != http.StatusForbidden {
		t.Errorf("another new password: got %d, want 403 and the page to sign in:\n%s", status, body)
	}
}

// TestConfirmForOtherAccount confirms an address of an account in browsers that are signed in to
// another account, to none, and to that account. Only the last shows the message on the page of the
// account.
func TestConfirmForOtherAccount(t *testing.T) {
	for _, path := range []string{"/confirm", "/add"} {
		for _, name := range []string{"bob", "", "ada"} {
			s, _ := newAtOnce(t)
			ada := s.create("ada")
			s.create("bob")
			c := s.client()
			if name != "" {
				s.send(c, "/signin", "identifier", name, "password", goodPassword)
			}
			purpose := map[string]string{"/confirm": "change:email", "/add": "add:email"}[path]
			secret := s.issue(ada, userdb.Token{Purpose: purpose, Value: "carol@example.com"})
			status, to, body := s.send(c, path, "token", secret)
			if name == "ada" {
				if want := "/account?done=" + map[string]string{"/confirm": "email", "/add": "add"}[path]; status != http.StatusSeeOther || to != want {
					t.Errorf("%s signed in as ada: got %d %s, want 303 to %s", path, status, to, want)
				}
				continue
			}
			const whose = "<strong>carol@example.com</strong> is now an address of the account <strong>ada</strong>."
			if status != http.StatusOK || !strings.Contains(body, whose) || strings.Contains(body, "another account") != (name == "bob") {
				t.Errorf("%s signed in as %q: got %d %s, want 200 and a page that names the account:\n%s", path, name, status, to, body)
			}
			if !slices.Contains(s.find("ada").Texts("email"), "carol@example.com") {
				t.Errorf("%s: the account has the addresses %q", path, s.find("ada").Texts("email"))
			}
		}
	}
}

// TestSpentLinkOffers checks what the page of a link that is no longer valid offers: visitors who
// are signed in need not sign in, and another link comes from the page that mails such links.
func TestSpentLinkOffers(t *testing.T) {
	s, _ := newAtOnce(t)
	s.create("ann")
	c := s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	for path, another := range map[string][2]string{
		"/reset": {"/forgot", "/forgot"}, "/welcome": {"/signup", ""}, "/confirm": {"/account/email", "/account/email"},
		"/add": {"/account/addresses", "/account/addresses"}, "/prove": {"/forgot", ""},
	} {
		for n, visitor := range []*http.Client{s.client(), c} {
			status, _, body := s.send(visitor, path+"?token=spent")
			_, body, _ = strings.Cut(body, "<main>")
			signsIn, account := strings.Contains(body, `href="/signin"`), strings.Contains(body, `href="/account"`)
			if status != http.StatusGone || signsIn == (n == 1) || account != (n == 1) {
				t.Errorf("%s, signed in: %t: got %d, a link to sign in: %t, to the account: %t:\n%s", path, n == 1, status, signsIn, account, body)
			}
			if links := strings.Contains(body, "Ask for another link"); links != (another[n] != "") || links && !strings.Contains(body, `<a href="`+another[n]+`">Ask for another link`) {
				t.Errorf("%s, signed in: %t: want a link to %q for another link:\n%s", path, n == 1, another[n], body)
			}
		}
	}
}

// TestWelcomeTwice sends the form that creates an account again with another name. The visitor is
// signed in, and learns that the second name was not saved.
func TestWelcomeTwice(t *testing.T) {
	s := newFlows(t, "memory:", nil)
	invitation, err := s.users.Invite(t.Context(), "email", "ann@example.com", userdb.Token{}, userdb.Attempt{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range [][2]string{{"ann", "welcome"}, {"ann", "welcome"}, {"anne", "welcome-twice"}, {"", "welcome-twice"}} {
		c := s.client()
		status, to, body := s.send(c, "/welcome", "token", invitation.Secret, "name", tt[0], "password", goodPassword)
		if status != http.StatusSeeOther || to != "/account?done="+tt[1] {
			t.Errorf("with the name %q: got %d %s, want 303 and the message %s:\n%s", tt[0], status, to, tt[1], body)
		}
		if _, _, body := s.send(c, "/account/overview?done="+tt[1]); !strings.Contains(body, "<dd>ann</dd>") || strings.Contains(body, "only what you entered first was saved") != (tt[1] == "welcome-twice") {
			t.Errorf("with the name %q: the page does not say what was saved:\n%s", tt[0], body)
		}
	}
}

// TestFormWithOwnSignIn checks that a form is not answered with a page of Flows if the site has
// pages of its own to sign in and to verify.
func TestFormWithOwnSignIn(t *testing.T) {
	store := userdbtest.New(t, userdbtest.With(factorOptions()))
	s := newFlows(t, "memory:", func(f *web.Flows) {
		f.Users, f.SignInPath, f.VerifyPath = store.Type("user"), "/login", "/proof"
	})
	s.users = store.Type("user")
	s.create("ann")
	c := s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	store.Clock.Advance(time.Hour)
	page := s.flows.Page("account", nil, nil)
	s.server.Config.Handler = web.Protect(s.flows.RequireLevel(1, time.Minute, page))
	if status, to, body := s.send(c, "/profile", "text", "x"); status != http.StatusSeeOther || to != "/proof" {
		t.Errorf("verified too long ago: got %d %s, want 303 to the site's page:\n%s", status, to, body)
	}
	if _, err := s.users.EndSessions(t.Context(), hints.Field("name", "ann")); err != nil {
		t.Fatal(err)
	}
	if status, to, body := s.send(c, "/profile", "text", "x"); status != http.StatusSeeOther || to != "/login" {
		t.Errorf("the session has ended: got %d %s, want 303 to the site's page:\n%s", status, to, body)
	}
}

// TestFormOfOtherAccount sends forms of an account after somebody else has signed in, as in another
// tab. None of them changes anything, and none is shown again. Without any cookie, the account
// signs in and sends its form.
func TestFormOfOtherAccount(t *testing.T) {
	s, clock, arrived := keeping(t)
	clock.Advance(time.Since(clock.Now()))
	ann := s.create("ann")
	c, other := s.client(), s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	pages := map[string]string{}
	for _, path := range []string{"/account/password", "/account/email", "/account/addresses", "/account/devices", "/account/security", "/account/verify"} {
		_, _, body := s.send(c, path)
		pages[path] = body
		// The first form signs out.
		posts, marks := strings.Count(body, `<form`)-1, strings.Count(body, `name="~whose" value="`+ann.UID()+`"`)
		if posts > 0 && posts != marks {
			t.Errorf("%s: %d of %d forms say whose they are:\n%s", path, marks, posts, body)
		}
	}
	s.create("eve")
	s.send(c, "/signin", "identifier", "eve", "password", goodPassword)
	s.send(other, "/signin", "identifier", "eve", "password", goodPassword)
	const whose = "You are signed in to another account by now"
	for path, form := range map[string][]string{
		"/account/password": {"old", goodPassword, "new", "brand new horse"}, "/account/email": {"email", "ann2@example.com", "password", goodPassword},
		"/account/devices": {"all", "1"}, "/account/security": {"do", "add", "label", "phone"}, "/profile": {"text", "typed by ann"},
	} {
		status, to, body := s.send(c, path, append(form, "~whose", ann.UID())...)
		if status != http.StatusForbidden || !strings.Contains(body, whose) || strings.Contains(body, "typed by ann") {
			t.Errorf("%s: got %d %s, want 403 and that somebody else is signed in:\n%s", path, status, to, body)
		}
	}
	if status, _, _ := s.send(other, "/account"); status != http.StatusNotFound || len(*arrived) > 0 || len(s.sent()) > 0 {
		t.Errorf("the other device of eve gets %d, and %q and the mails %q arrived; want the page, and neither", status, *arrived, s.sent())
	}

	c = s.client() // the cookie has expired
	status, _, body := s.send(c, "/profile", "text", "typed by ann", "~whose", ann.UID())
	if status != http.StatusForbidden {
		t.Fatalf("without a cookie: got %d, want 403 and the page to sign in:\n%s", status, body)
	}
	_, _, body = s.send(c, "/signin", append(hidden(t, body, "/signin"), "identifier", "ann", "password", goodPassword)...)
	if s.send(c, "/profile", hidden(t, body, "/profile")...); !slices.Equal(*arrived, []string{"ann: typed by ann"}) {
		t.Errorf("got %q, want what was entered", *arrived)
	}
}

// sendTwice sends a form twice at the same time, as a double click does, and then once more. All
// answers must lead to want.
func (s *flowSite) sendTwice(c *http.Client, path, want string, form ...string) {
	s.t.Helper()
	send := func() {
		if status, to, body := s.send(c, path, form...); status != http.StatusSeeOther || to != want {
			s.t.Errorf("%s twice: got %d %s, want 303 to %s:\n%s", path, status, to, want, body)
		}
	}
	var both sync.WaitGroup
	both.Go(send)
	both.Go(send)
	both.Wait()
	send()
}

// TestConfirmTwice sends the forms that confirm an address twice, as a double click does. All
// answers say that it was done to a visitor who is signed in to the account, and to nobody else.
func TestConfirmTwice(t *testing.T) {
	s, _ := newAtOnce(t)
	ann := s.create("ann")
	s.create("bob")
	c, other := s.client(), s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	s.send(other, "/signin", "identifier", "bob", "password", goodPassword)
	for path, tt := range map[string][2]string{"/confirm": {"change:email", "email"}, "/add": {"add:email", "add"}} {
		secret := s.issue(ann, userdb.Token{Purpose: tt[0], Value: tt[1] + "@example.org"})
		_, _, body := s.send(c, path+"?token="+secret)
		form := hidden(t, body, path)
		s.sendTwice(c, path, "/account?done="+tt[1], form...)
		for _, visitor := range []*http.Client{s.client(), other} {
			if status, _, body := s.send(visitor, path, form...); status != http.StatusGone {
				t.Errorf("%s, somebody else: got %d, want 410:\n%s", path, status, body)
			}
		}
		if status, _, body := s.send(c, path, "token", secret, "address", "elsewhere@example.org"); status != http.StatusGone {
			t.Errorf("%s, another address: got %d, want 410:\n%s", path, status, body)
		}
	}
	s.newMails()
	owner := s.client()
	s.signUpAtOnce(owner, "kim")
	secret := s.proof()
	s.sendTwice(owner, "/prove", "/account?done=proved", "token", secret)
}
