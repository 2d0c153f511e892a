package web_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdbtest"
	"github.com/coffeenode/userdb/web"
)

// newAtOnce returns a site at which visitors sign up without a mail.
func newAtOnce(t *testing.T) (*flowSite, *userdbtest.Clock) {
	t.Helper()
	o := factorOptions()
	email := o.Schema.Types["user"].Fields["email"]
	email.Many = 3
	o.Schema.Types["user"].Fields["email"] = email
	store := userdbtest.New(t, userdbtest.With(o))
	return newAtOnceWith(t, store.Type("user")), store.Clock
}

// newAtOnceWith does what newAtOnce does, with accounts that the caller has opened.
func newAtOnceWith(t *testing.T, users *userdb.Type) *flowSite {
	t.Helper()
	s := newFlows(t, "memory:", func(f *web.Flows) { f.Users, f.SignUp = users, web.SignUpAtOnce })
	s.users = users
	return s
}

// eachStore runs a test on stores in memory, in a file, on Redis and on a cluster.
func eachStore(t *testing.T, test func(t *testing.T, store string)) {
	for name, open := range map[string]func(t *testing.T) string{
		"memory":  func(*testing.T) string { return "memory:" },
		"file":    func(t *testing.T) string { return "file:" + filepath.Join(t.TempDir(), "users.db") },
		"redis":   func(t *testing.T) string { return redistest.Start(t).URL() },
		"cluster": func(t *testing.T) string { return redistest.StartCluster(t).URL() },
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// proof returns the secret in the last mail, which must be about proving an address.
func (s *flowSite) proof() string {
	s.t.Helper()
	s.sent()
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.mails[len(s.mails)-1]
	secret, is := strings.CutPrefix(m.Link, "https://example.com/prove?token=")
	if !is || m.Kind != web.MailProve || m.Subject() != "Confirm your address" || !strings.Contains(m.Text(), "ignore this mail") {
		s.t.Fatalf("got the mail %s %q with the link %s, want one that proves the address", m.Kind, m.Subject(), m.Link)
	}
	return secret
}

func (s *flowSite) signUpAtOnce(c *http.Client, name string) {
	s.t.Helper()
	status, to, body := s.send(c, "/signup", "email", name+"@example.com", "name", name, "password", goodPassword)
	if status != http.StatusSeeOther || to != "/account?done=welcome" {
		s.t.Fatalf("signing up: got %d %s, want 303 to the account:\n%s", status, to, body)
	}
}

func (s *flowSite) find(name string) userdb.Entry {
	s.t.Helper()
	e, err := s.users.Find(s.t.Context(), hints.Any(name))
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

// TestSignUpAtOnce signs up without a mail. The account gets no second factor and no further
// address until its owner has proved the address.
func TestSignUpAtOnce(t *testing.T) {
	s, clock := newAtOnce(t)
	c := s.client()
	if _, _, body := s.send(c, "/signup"); !strings.Contains(body, `id="password"`) || !strings.Contains(body, `id="name"`) {
		t.Errorf("the page does not ask for everything:\n%s", body)
	}
	for _, form := range [][]string{{"email", "x", "password", goodPassword}, {"email", "no address", "name", "ann", "password", goodPassword}, {"email", "ann@example.com", "name", "ann"}} {
		if status, _, body := s.send(c, "/signup", form...); status != 422 || !strings.Contains(body, `role="alert"`) {
			t.Errorf("%q: got %d, want 422:\n%s", form, status, body)
		}
	}
	s.signUpAtOnce(c, "ann")
	s.wantLevel("after signing up", c, 1)
	if e := s.find("ann"); !e.Unproven() || e.Verified("email") {
		t.Errorf("the account is unproven: %v, verified: %v; want true and false", e.Unproven(), e.Verified("email"))
	}
	if status, _, body := s.send(s.client(), "/signup", "email", "Ann@example.com", "name", "other", "password", "another good horse"); status != 422 || !strings.Contains(body, "Somebody has this already") {
		t.Errorf("the address again: got %d, want 422:\n%s", status, body)
	}

	_, _, body := s.send(c, "/account/security")
	if !strings.Contains(body, "confirm your address first") || strings.Contains(body, "Add an app") {
		t.Errorf("the page offers what the account cannot have:\n%s", body)
	}
	const first = "Confirm your address first."
	if status, _, body := s.send(c, "/account/security", "do", "add", "label", "phone"); status != 422 || !strings.Contains(body, first) {
		t.Errorf("adding an app: got %d, want 422:\n%s", status, body)
	}
	if status, _, body := s.send(c, "/account/addresses", "do", "add", "email", "a@example.org", "password", goodPassword); status != 422 || !strings.Contains(body, first) {
		t.Errorf("adding an address: got %d, want 422:\n%s", status, body)
	}
	for n := range 4 {
		status, _, body := s.send(c, "/account/security", "do", "prove")
		if want := map[bool]int{true: http.StatusSeeOther, false: http.StatusTooManyRequests}[n < 3]; status != want {
			t.Errorf("asking for mail %d: got %d, want %d:\n%s", n+1, status, want, body)
		}
	}
	secret := s.proof()
	if _, _, body := s.send(c, "/prove?token="+secret); !strings.Contains(body, "ann@example.com") || strings.Contains(body, `id="password"`) {
		t.Errorf("the page lacks the address, or asks the owner of the session for a password:\n%s", body)
	}
	if status, to, body := s.send(c, "/prove", "token", secret); status != http.StatusSeeOther || to != "/account?done=proved" {
		t.Errorf("proving: got %d %s, want 303 to the account:\n%s", status, to, body)
	}
	s.wantLevel("after proving", c, 1)
	if e := s.find("ann"); e.Unproven() || !e.Verified("email") {
		t.Errorf("the account is unproven: %v, verified: %v; want false and true", e.Unproven(), e.Verified("email"))
	}
	a, form := s.addAppAfter(c, clock)
	if status, _, body := s.send(c, "/account/security", append(form, "code", a.code())...); status != 200 {
		t.Errorf("adding an app afterwards: got %d, want 200:\n%s", status, body)
	}
}

// addAppAfter does what addApp does, a second later.
func (s *flowSite) addAppAfter(c *http.Client, clock *userdbtest.Clock) (*app, []string) {
	s.t.Helper()
	clock.Advance(time.Second)
	return s.addApp(c, clock.Now, "phone")
}

// TestSignUpAtOnceTwice sends the form twice, as a double click does, on every store. Both answers
// lead to the account; a form with another password, address or name does not.
func TestSignUpAtOnceTwice(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		signUpAtOnceTwice(t, newAtOnceWith(t, openUsers(t, store, factorOptions())))
	})
}

func signUpAtOnceTwice(t *testing.T, s *flowSite) {
	t.Helper()
	for _, form := range [][]string{{"email", "ann@example.com", "name", "ann"}, {"email", "", "name", "kim"}} {
		form = append(form, "password", goodPassword)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if status, to, body := s.send(s.client(), "/signup", form...); status != http.StatusSeeOther || to != "/account?done=welcome" {
					t.Errorf("%q: got %d %s, want 303 to the account:\n%s", form, status, to, body)
				}
			})
		}
		both.Wait()
		form[len(form)-1] = "another good horse"
		if got, _, body := s.send(s.client(), "/signup", form...); got != 422 || !strings.Contains(body, "Somebody has this already") {
			t.Errorf("with another password: got %d, want 422:\n%s", got, body)
		}
	}
	for _, corrected := range [][]string{{"email", "anne@example.com", "name", "ann"}, {"email", "ann@example.com", "name", "anne"}} {
		if got, _, body := s.send(s.client(), "/signup", append(corrected, "password", goodPassword)...); got != 422 || !strings.Contains(body, "Somebody has this already") {
			t.Errorf("corrected to %q: got %d, want 422:\n%s", corrected, got, body)
		}
	}
	if got := len(s.sent()); got != 1 {
		t.Errorf("got %d mails, want 1", got)
	}
}

// TestSignUpAtOnceByStranger opens the mail of an account that a stranger created. Nothing of the
// stranger is left.
func TestSignUpAtOnceByStranger(t *testing.T) {
	s, clock := newAtOnce(t)
	stranger, owner := s.client(), s.client()
	s.signUpAtOnce(stranger, "ann")
	secret := s.proof()
	clock.Advance(time.Since(clock.Now())) // a double click is measured by the clock of the machine
	if _, _, body := s.send(owner, "/prove?token="+secret); !strings.Contains(body, "Somebody signed up with your address.") || !strings.Contains(body, `id="password"`) {
		t.Errorf("the page does not ask for a password:\n%s", body)
	}
	if status, _, body := s.send(owner, "/prove", "token", secret, "password", "short"); status != 422 || !strings.Contains(body, "At least 8 characters") {
		t.Errorf("a short password: got %d, want 422:\n%s", status, body)
	}
	for range 2 { // a double click
		if status, to, body := s.send(owner, "/prove", "token", secret, "password", "brand new horse"); status != http.StatusSeeOther || to != "/account?done=password" {
			t.Errorf("proving: got %d %s, want 303 to the account:\n%s", status, to, body)
		}
	}
	s.wantLevel("the owner", owner, 1)
	s.wantLevel("the stranger", stranger, 0)
	if status, _, _ := s.send(stranger, "/signin", "identifier", "ann", "password", goodPassword); status != 422 {
		t.Errorf("the password of the stranger: got %d, want 422", status)
	}
	if status, _, _ := s.send(owner, "/prove", "token", secret, "password", "brand new horse 2"); status != http.StatusGone {
		t.Errorf("the link again: got %d, want 410", status)
	}
	if status, _, _ := s.send(owner, "/prove?token=made-up"); status != http.StatusGone {
		t.Errorf("a link that was made up: got %d, want 410", status)
	}
}

// TestSignUpAtOnceLimit checks that one origin can create only a limited number of accounts.
func TestSignUpAtOnceLimit(t *testing.T) {
	s, _ := newAtOnce(t)
	visitor := s.client() // being signed in to another account does not matter
	for n := range 21 {
		want := map[bool]int{true: http.StatusSeeOther, false: http.StatusTooManyRequests}[n < 20]
		name := fmt.Sprint("visitor", n)
		if status, _, body := s.send(visitor, "/signup", "email", name+"@example.com", "name", name, "password", goodPassword); status != want {
			t.Fatalf("account %d: got %d, want %d:\n%s", n+1, status, want, body)
		}
	}
}

// newAdmins returns a site at which everybody who signs up without a mail gets the tag admin, and a
// function that returns the status of a page that requires the tag.
func newAdmins(t *testing.T) (s *flowSite, visit func(*http.Client) int) {
	t.Helper()
	s, _ = newAtOnce(t)
	s.flows.New = func(_ *http.Request, i userdb.Invitation, n *userdb.NewEntry) error {
		n.Tags = []string{"admin"} // a site may do so by the address, which anybody can type
		return nil
	}
	admin := s.flows.RequireTag("admin", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return s, func(c *http.Client) int {
		u, err := url.Parse(s.server.URL)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/admin", nil)
		for _, cookie := range c.Jar.Cookies(u) {
			r.AddCookie(cookie)
		}
		w := httptest.NewRecorder()
		admin.ServeHTTP(w, r)
		return w.Code
	}
}

// TestUnprovenHasNoRights checks that a tag counts only once the address with which somebody
// registered the account is verified.
func TestUnprovenHasNoRights(t *testing.T) {
	s, visit := newAdmins(t)
	c := s.client()
	s.signUpAtOnce(c, "ann")
	if status := visit(c); status != http.StatusForbidden {
		t.Errorf("before the address is verified: got %d, want 403", status)
	}
	if status, to, body := s.send(c, "/prove", "token", s.proof()); status != http.StatusSeeOther {
		t.Fatalf("verifying: got %d %s, want 303:\n%s", status, to, body)
	}
	if status := visit(c); status != http.StatusOK {
		t.Errorf("afterwards: got %d, want 200", status)
	}
}

// TestOtherAddressHasNoRights checks that somebody who signs up with an address that gets a tag,
// and then verifies an address of their own in its place, does not have the tag.
func TestOtherAddressHasNoRights(t *testing.T) {
	s, visit := newAdmins(t)
	c := s.client()
	s.signUpAtOnce(c, "ann")
	if status, _, body := s.send(c, "/account/email", "email", "mallory@example.org", "password", goodPassword); status != http.StatusSeeOther {
		t.Fatalf("changing the address: got %d, want 303:\n%s", status, body)
	}
	s.sent()
	s.mu.Lock()
	m := s.mails[len(s.mails)-1]
	s.mu.Unlock()
	_, secret, _ := strings.Cut(m.Link, "?token=")
	if status, to, body := s.send(c, "/confirm", "token", secret); m.To != "mallory@example.org" || status != http.StatusSeeOther {
		t.Fatalf("verifying %s: got %d %s, want 303:\n%s", m.To, status, to, body)
	}
	if e := s.find("ann"); e.Unproven() {
		t.Error("the account is still unproven")
	}
	if status := visit(c); status != http.StatusForbidden {
		t.Errorf("after another address was verified: got %d, want 403", status)
	}
}

// TestAccountPage checks that the default page of an account shows it, and leads to the pages that
// change it.
func TestAccountPage(t *testing.T) {
	s, _ := newAtOnce(t)
	c := s.client()
	s.signUpAtOnce(c, "ann")
	status, _, body := s.send(c, "/account/overview")
	for _, want := range []string{"<dd>ann</dd>", "<dd>ann@example.com</dd>", `"/account/email"`, `"/account/addresses"`, `"/account/password"`, `"/account/security"`, `"/account/devices"`} {
		if status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("got %d, want 200 and %s:\n%s", status, want, body)
		}
	}
}

// TestProblemWithoutInput signs up with a schema that requires a facet for which the form has no
// input. The page must say so.
func TestProblemWithoutInput(t *testing.T) {
	o := factorOptions()
	number := o.Schema.Types["user"].Fields["number"]
	number.Required = true
	o.Schema.Types["user"].Fields["number"] = number
	for _, mode := range []web.SignUp{web.SignUpByMail, web.SignUpAtOnce} {
		s := newFlows(t, "memory:", func(f *web.Flows) {
			f.Users, f.SignUp = userdbtest.New(t, userdbtest.With(o)).Type("user"), mode
		})
		path, form := "/signup", []string{"email", "ann@example.com", "name", "ann", "password", goodPassword}
		if mode == web.SignUpByMail {
			s.send(s.client(), path, form...)
			s.sent()
			_, secret, _ := strings.Cut(s.mails[0].Link, "token=")
			path, form = "/welcome", append(form, "token", secret)
		}
		status, _, body := s.send(s.client(), path, form...)
		if status != http.StatusUnprocessableEntity || strings.Count(body, `role="alert"`) != 1 || !strings.Contains(body, "number: This field is required.") {
			t.Errorf("%s: got %d, want 422 and the missing number:\n%s", path, status, body)
		}
	}
}

// TestAtOnceWithoutIdentifier checks that nobody creates an account to which nobody could sign in.
func TestAtOnceWithoutIdentifier(t *testing.T) {
	s, _ := newAtOnce(t)
	status, _, body := s.send(s.client(), "/signup", "email", "", "name", "", "password", goodPassword)
	if status != http.StatusUnprocessableEntity || !strings.Contains(body, "This field is required.") {
		t.Errorf("without an identifier: got status %d, want 422 and that the address is required: %s", status, body)
	}
	s.flows.New = func(_ *http.Request, _ userdb.Invitation, n *userdb.NewEntry) error {
		n.Values = map[string][]string{"email": {"lee@example.com"}}
		return nil
	}
	if status, _, body := s.send(s.client(), "/signup", "email", "", "password", goodPassword); status != http.StatusSeeOther {
		t.Errorf("with an identifier among the values of New: got status %d, want 303: %s", status, body)
	}
	s.flows.New = nil
	c := s.client()
	if status, _, body := s.send(c, "/signup", "email", "", "name", "kim", "password", goodPassword); status != http.StatusSeeOther {
		t.Errorf("with a name: got status %d, want 303: %s", status, body)
	}
	for _, path := range []string{"/account/email", "/account/security"} {
		if status, _, body := s.send(c, path); status != http.StatusOK || strings.Contains(body, "<strong></strong>") {
			t.Errorf("%s without an address: got status %d, want 200 and no empty address: %s", path, status, body)
		}
	}
}
