package web_test

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdbtest"
	"github.com/coffeenode/userdb/web"
)

// match returns what a pattern matches in a page, without the escapes of HTML.
func match(t *testing.T, page, pattern string) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("no %s in\n%s", pattern, page)
	}
	return html.UnescapeString(found[1])
}

// addApp begins to add an authenticator app, and returns it with the form that confirms it.
func (s *flowSite) addApp(c *http.Client, now func() time.Time, label string) (*app, []string) {
	s.t.Helper()
	status, to, body := s.send(c, "/account/security", "do", "add", "label", label, "return", "/secret")
	if status != 200 {
		s.t.Fatalf("adding an app: got %d %s, want 200: %s", status, to, body)
	}
	uri := match(s.t, body, `name="uri" value="([^"]+)"`)
	secret := match(s.t, uri, `secret=(\w+)`)
	if got := strings.ReplaceAll(match(s.t, body, `<code class="key">([^<]+)<`), " ", ""); got != secret {
		s.t.Errorf("the page shows the key %s, want %s", got, secret)
	}
	if got := match(s.t, body, `<a href="(otpauth:[^"]+)"`); got != uri {
		s.t.Errorf("the page leads to %s, want %s", got, uri)
	}
	form := []string{"do", "confirm", "uri", uri, "id", match(s.t, body, `name="id" value="([^"]+)"`), "return", match(s.t, body, `name="return" value="([^"]+)"`)}
	return newApp(s.t, secret, now), form
}

var codePattern = regexp.MustCompile(`<li><code>([0-9a-z]{5}-[0-9a-z]{5})</code></li>`)

func codesIn(page string) (codes []string) {
	for _, found := range codePattern.FindAllStringSubmatch(page, -1) {
		codes = append(codes, found[1])
	}
	return codes
}

// TestFlowsSecurity adds and removes second factors as their owner does, and uses them.
func TestFlowsSecurity(t *testing.T) {
	s, clock := newFactorFlows(t)
	s.create("ann")
	c, other := s.client(), s.client()
	for _, client := range []*http.Client{c, other} {
		s.send(client, "/signin", "identifier", "ann", "password", goodPassword)
	}
	if _, _, body := s.send(c, "/account/security"); !strings.Contains(body, "You sign in with your password alone.") {
		t.Errorf("the page does not say that there is no factor:\n%s", body)
	}
	if _, _, body := s.send(c, "/account/security?return=https://evil.example"); strings.Contains(body, "evil") {
		t.Errorf("the page leads to another site:\n%s", body)
	}

	// The first app brings recovery codes and ends all other sessions.
	phone, form := s.addApp(c, clock.Now, "my <phone>")
	status, _, body := s.send(c, "/account/security", append(form, "code", phone.wrong())...)
	if status != 422 || !strings.Contains(body, `id="code-problem" role="alert">This is not the right code`) || match(t, body, `name="uri" value="([^"]+)"`) != form[3] {
		t.Errorf("a wrong code: got %d, want 422 and the same key again:\n%s", status, body)
	}
	before := s.cookie(c, "session")
	status, _, body = s.send(c, "/account/security", append(form, "code", phone.code())...)
	codes := codesIn(body)
	if status != 200 || len(codes) != 10 || !strings.Contains(body, `href="/secret"`) {
		t.Fatalf("the right code: got %d and the recovery codes %q, want 200, ten codes and the way on:\n%s", status, codes, body)
	}
	if s.cookie(c, "session") == before {
		t.Error("the session kept its secret")
	}
	s.wantLevel("after the first app", c, 2)
	s.wantLevel("after the first app, the other device", other, 0)
	_, _, body = s.send(c, "/account/security")
	if !strings.Contains(body, "my &lt;phone&gt;") || !strings.Contains(body, "10 can still be used") || !strings.Contains(body, "make new ones") || len(codesIn(body)) > 0 {
		t.Errorf("the page does not list the factors, or shows the codes again:\n%s", body)
	}

	if status, to, body := s.send(c, "/account/security", append(form, "code", phone.code())...); status != 303 || to != "/account/security?done=app" {
		t.Errorf("a second click: got %d %s, want 303 to the page that says that the app was added:\n%s", status, to, body)
	}

	// A second app brings no codes and ends no session.
	clock.Advance(time.Minute)
	before = s.cookie(c, "session")
	tablet, form := s.addApp(c, clock.Now, "tablet")
	if status, to, body := s.send(c, "/account/security", append(form, "code", tablet.code())...); status != 303 || to != "/account/security?done=app" {
		t.Errorf("a second app: got %d %s, want 303: %s", status, to, body)
	}
	if s.cookie(c, "session") != before {
		t.Error("a second app replaced the session")
	}

	// New recovery codes replace the others.
	_, _, body = s.send(c, "/account/security", "do", "codes")
	if replaced := codesIn(body); len(replaced) != 10 || replaced[0] == codes[0] {
		t.Errorf("got the codes %q, want ten new ones:\n%s", replaced, body)
	} else {
		s.send(other, "/signin", "identifier", "ann", "password", goodPassword)
		if status, _, _ := s.send(other, "/signin/code", "recovery", codes[0]); status != 422 {
			t.Errorf("an old recovery code: got %d, want 422", status)
		}
		if status, _, _ := s.send(other, "/signin/code", "recovery", replaced[0]); status != 303 {
			t.Errorf("a new recovery code: got %d, want 303", status)
		}
	}

	// Each change of factors, and the list of them, asks visitors to verify again.
	clock.Advance(11 * time.Minute)
	const verify = "/account/verify?return=%2Faccount%2Fsecurity"
	ids := func() (ids []string) {
		t.Helper()
		all, err := s.users.Factors(t.Context(), hints.Any("ann"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			ids = append(ids, f.ID)
		}
		return ids
	}()
	for _, form := range [][]string{nil, {"do", "add"}, {"do", "codes"}, {"do", "remove", "id", ids[0]}} {
		if status, to, body := s.send(c, "/account/security", form...); status != 303 || to != verify {
			t.Errorf("%q after eleven minutes: got %d %s, want 303 to %s: %s", form, status, to, verify, body)
		}
	}
	if status, to, body := s.send(c, "/account/verify", "password", goodPassword, "code", tablet.code(), "return", "/account/security"); status != 303 {
		t.Fatalf("verifying: got %d %s, want 303: %s", status, to, body)
	}

	// After the last removal, a password is enough again.
	for _, id := range ids[:2] {
		if status, to, body := s.send(c, "/account/security", "do", "remove", "id", id); status != 303 || to != "/account/security?done=no-app" {
			t.Errorf("removing an app: got %d %s, want 303: %s", status, to, body)
		}
	}
	s.wantLevel("after the removal, the other device", other, 0)
	if status, _, body := s.send(c, "/account/security", "do", "remove", "id", ids[0]); status != 410 {
		t.Errorf("removing an app again: got %d, want 410: %s", status, body)
	}
	s.send(other, "/signin", "identifier", "ann", "password", goodPassword)
	s.wantLevel("with the password alone", other, 1)

	want := "[factor-added ann@example.com factor-added ann@example.com new-codes ann@example.com factor-removed ann@example.com factor-removed ann@example.com]"
	if got := fmt.Sprint(s.sent()); got != want {
		t.Errorf("got the mails %s, want %s", got, want)
	}
	for _, m := range s.mails {
		if m.Subject() != "How you sign in" || !strings.Contains(m.Text(), "If it was not you") || m.Link != "https://example.com/account/security" {
			t.Errorf("got the mail %q %q %s, want one about how the owner signs in", m.Subject(), m.Text(), m.Link)
		}
	}
}

// TestFlowsSecurityRefuses checks what the page says if no factor can be added, and that nobody
// adds one with a key from somewhere else.
func TestFlowsSecurityRefuses(t *testing.T) {
	s := newFlows(t, "memory:", nil) // its schema does not allow factors
	s.create("ann")
	c := s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	wantRefused := func(s *flowSite, c *http.Client) {
		t.Helper()
		if _, _, body := s.send(c, "/account/security"); !strings.Contains(body, "Second factors cannot be added here.") || strings.Contains(body, "Add an app") {
			t.Errorf("the page offers what is not possible:\n%s", body)
		}
		if status, _, body := s.send(c, "/account/security", "do", "add"); status != 422 || !strings.Contains(body, "Second factors cannot be added here.") {
			t.Errorf("got %d, want 422: %s", status, body)
		}
	}
	wantRefused(s, c)
	options := factorOptions()
	options.Keys = nil
	users := openUsers(t, "memory:", options)
	keyless := newFlows(t, "memory:", func(f *web.Flows) { f.Users = users })
	keyless.users = users
	keyless.create("ann")
	visitor := keyless.client()
	keyless.send(visitor, "/signin", "identifier", "ann", "password", goodPassword)
	wantRefused(keyless, visitor)
	for _, uri := range []string{"", "https://evil.example/?secret=A", "otpauth://totp/x?secret=" + strings.Repeat("A", 3000), "otpauth://totp/x?secret=AAAA"} {
		if status, _, body := s.send(c, "/account/security", "do", "confirm", "id", "x", "uri", uri, "code", "123456"); status == 303 || status == 200 {
			t.Errorf("confirming %.40q: got %d, want an error: %s", uri, status, body)
		}
	}
	if status, to, _ := s.send(s.client(), "/account/security"); status != 303 || to != "/signin?return=%2Faccount%2Fsecurity" {
		t.Errorf("nobody: got %d %s, want 303 to the sign-in", status, to)
	}
}

// TestFlowsRequireLevel goes from a page that requires level 2 to a second factor and back.
func TestFlowsRequireLevel(t *testing.T) {
	store := userdbtest.New(t, userdbtest.With(factorOptions()))
	users := store.Type("user")
	s := newFlows(t, "memory:", func(f *web.Flows) { f.Users = users })
	s.users = users
	guarded := s.flows.RequireLevel(2, 10*time.Minute, http.NotFoundHandler())
	mux := http.NewServeMux()
	mux.Handle("GET /vault", guarded)
	mux.Handle("/", s.server.Config.Handler)
	s.server.Config.Handler = mux
	if _, err := users.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("name", "ann"), Password: goodPassword}); err != nil {
		t.Fatal(err)
	}
	c := s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	status, to, _ := s.send(c, "/vault")
	if status != 303 || to != "/account/security?return=%2Fvault" {
		t.Fatalf("without a factor: got %d %s, want 303 to the page where one is added", status, to)
	}
	if _, _, body := s.send(c, to); !strings.Contains(body, "The page that you asked for needs a second step") || !strings.Contains(body, `name="return" value="/vault"`) {
		t.Errorf("the page does not say why, or where to go on:\n%s", body)
	}
	a, form := s.addApp(c, store.Clock.Now, "")
	if status, _, body := s.send(c, "/account/security", append(form, "code", a.code())...); status != 200 {
		t.Fatalf("got %d, want 200: %s", status, body)
	}
	if status, to, _ := s.send(c, "/vault"); status != 404 {
		t.Errorf("with a factor: got %d %s, want the page", status, to)
	}
	store.Clock.Advance(time.Hour)
	if status, to, _ := s.send(c, "/vault"); status != 303 || to != "/account/verify?return=%2Fvault" {
		t.Errorf("an hour later: got %d %s, want 303 to verify", status, to)
	}
}

// TestUnconfirmedNotice removes an app while no replica confirms changes. The change is made, so
// the owner gets the mail.
func TestUnconfirmedNotice(t *testing.T) {
	url := redistest.Start(t).URL()
	users := openUsers(t, url, factorOptions())
	s := newFlows(t, "memory:", func(f *web.Flows) { f.Users = users })
	s.users = users
	a, c := enrol(t, users, s.create("ann"), soon), s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	if status, to, body := s.send(c, "/signin/code", "code", a.code()); status != http.StatusSeeOther {
		t.Fatalf("signing in: got %d %s, want 303:\n%s", status, to, body)
	}
	o := factorOptions()
	o.Replicas, o.ReplicaTimeout = 1, time.Millisecond
	mux := http.NewServeMux()
	unconfirmed := &web.Flows{Auth: web.Auth{Users: openUsers(t, url, o)}, Base: s.flows.Base, Mail: s.flows.Mail}
	unconfirmed.Register(mux)
	s.server.Config.Handler = web.Protect(mux)
	all, err := users.Factors(t.Context(), hints.Any("ann"))
	if err != nil {
		t.Fatal(err)
	}
	if status, _, body := s.send(c, "/account/security", "do", "remove", "id", all[0].ID); status != http.StatusServiceUnavailable {
		t.Errorf("removing the app: got %d, want 503:\n%s", status, body)
	}
	if left, err := users.Factors(t.Context(), hints.Any("ann")); err != nil || len(left) > 0 {
		t.Errorf("the account has %d factors, %v; want none", len(left), err)
	}
	if got := fmt.Sprint(s.sent()); got != "[factor-removed ann@example.com]" {
		t.Errorf("got the mails %s, want the notice", got)
	}
}

// TestChangeOfAddressTwoSteps checks that the addresses of an account with a second factor are
// changed only by a visitor who took both steps recently, and that such a visitor need not type the
// password again.
func TestChangeOfAddressTwoSteps(t *testing.T) {
	s, clock := newAtOnce(t)
	ann := s.create("ann")
	s.addAddresses(ann, "ann@work.example", "other@example.com")
	a, c := enrol(t, s.users, s.find("ann"), clock.Now), s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	s.send(c, "/signin/code", "code", a.code())
	clock.Advance(11 * time.Minute)
	// The password alone renews only the first step.
	if _, _, err := s.users.VerifySession(t.Context(), s.cookie(c, "session"), goodPassword, userdb.Attempt{}); err != nil {
		t.Fatal(err)
	}
	const verify = "/account/verify?return="
	before := s.find("ann").Rev()
	for _, tt := range []struct {
		form []string
		want string
	}{
		{[]string{"/account/email"}, verify + "%2Faccount%2Femail"},
		{[]string{"/account/email", "email", "new@example.com", "password", goodPassword}, verify + "%2Faccount%2Femail%3Femail%3Dnew%2540example.com"},
		{
			[]string{"/account/addresses", "do", "add", "email", "new@example.com", "password", goodPassword},
			verify + "%2Faccount%2Faddresses%3Femail%3Dnew%2540example.com",
		},
		{[]string{"/account/addresses", "do", "first", "address", "ann@work.example"}, verify + "%2Faccount%2Faddresses"},
		{[]string{"/account/addresses", "do", "remove", "address", "ann@work.example"}, verify + "%2Faccount%2Faddresses"},
	} {
		if status, to, body := s.send(c, tt.form[0], tt.form[1:]...); status != 303 || to != tt.want {
			t.Errorf("%q after eleven minutes: got %d %s, want 303 to %s: %s", tt.form, status, to, tt.want, body)
		}
	}
	if got := s.newMails(); len(got) > 0 || s.find("ann").Rev() != before {
		t.Errorf("got the mails %q, or a change of the account; want neither", got)
	}

	clock.Advance(time.Minute)
	const filledForm = "/account/email?email=new%40example.com"
	if status, to, body := s.send(c, "/account/verify", "password", goodPassword, "code", a.code(), "return", filledForm); status != 303 || to != filledForm {
		t.Fatalf("verifying: got %d %s, want 303 to %s: %s", status, to, filledForm, body)
	}
	if _, _, body := s.send(c, filledForm); !strings.Contains(body, `value="new@example.com"`) || strings.Contains(body, `name="password"`) {
		t.Errorf("the page does not show what was entered, or asks for the password again:\n%s", body)
	}
	if _, _, body := s.send(c, "/account/addresses"); strings.Contains(body, `name="password"`) {
		t.Errorf("the page asks for the password again:\n%s", body)
	}
	clock.Advance(9 * time.Minute)
	if status, to, body := s.send(c, "/account/email", "email", "new@example.com"); status != 303 || to != "/sent?to=new%40example.com" {
		t.Errorf("changing the address: got %d %s, want 303: %s", status, to, body)
	}
	want := "[change new@example.com changing ann@example.com changing ann@work.example]"
	if got := fmt.Sprint(s.newMails()); got != want {
		t.Errorf("got the mails %s, want %s", got, want)
	}
	if status, to, body := s.send(c, "/account/addresses", "do", "first", "address", "ann@work.example"); status != 303 || to != "/account/addresses?done=first" {
		t.Errorf("another first address: got %d %s, want 303: %s", status, to, body)
	}
	clock.Advance(2 * time.Minute)
	if status, to, _ := s.send(c, "/account/email", "email", "new@example.com"); status != 303 || !strings.HasPrefix(to, verify) {
		t.Errorf("eleven minutes later: got %d %s, want 303 to the page that asks for both steps", status, to)
	}
}

// TestChangeOfAddressWithoutVerify checks that a site without a page that asks for both steps
// changes no address of an account that needs them.
func TestChangeOfAddressWithoutVerify(t *testing.T) {
	store := userdbtest.New(t, userdbtest.With(factorOptions()))
	users := store.Type("user")
	s := newFlows(t, "memory:", func(f *web.Flows) { f.Users, f.Paths = users, web.DefaultPaths; f.Paths.Verify = "" })
	s.users = users
	a, c := enrol(t, users, s.create("ann"), store.Clock.Now), s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	s.send(c, "/signin/code", "code", a.code())
	store.Clock.Advance(time.Hour)
	status, _, body := s.send(c, "/account/email", "email", "new@example.com", "password", goodPassword)
	if status != 403 || !strings.Contains(body, `role="alert"`) {
		t.Errorf("got %d, want 403: %s", status, body)
	}
	if got := s.newMails(); len(got) > 0 {
		t.Errorf("got the mails %q, want none", got)
	}
}
