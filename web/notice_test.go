package web_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// addAddresses gives an account a further address that is verified, and one that is not.
func (s *flowSite) addAddresses(e userdb.Entry, verified, other string) {
	s.t.Helper()
	h := hints.UID(e.UID())
	secret, err := s.users.Issue(s.t.Context(), h, userdb.Token{Purpose: userdb.PurposeAdd + "email", Value: verified})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, _, err := s.users.Redeem(s.t.Context(), userdb.PurposeAdd+"email", secret); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.users.Update(s.t.Context(), h, func(e *userdb.Entry) error {
		e.AddText("email", other)
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
}

// newMails returns the mails that were sent since the last call.
func (s *flowSite) newMails() []string {
	s.t.Helper()
	all := s.sent()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.mails {
		wrong := m.Subject() != "Your password" || m.Link != "https://example.com/forgot" || !strings.Contains(m.Text(), "If it was not you")
		if m.Kind == web.MailPassword && wrong {
			s.t.Errorf("got the notice %q %q %s, want one about a new password", m.Subject(), m.Text(), m.Link)
		}
	}
	s.mails = nil
	slices.Sort(all)
	return all
}

// TestPasswordNotice checks that the owner of an account gets a mail about a new password at the
// first address and at each further one that is verified, whichever way the password was set, and
// none if it was not set.
func TestPasswordNotice(t *testing.T) {
	s, clock := newAtOnce(t)
	ann := s.create("ann")
	s.addAddresses(ann, "ann@work.example", "stranger@example.com")
	want := func(what string, want ...string) {
		t.Helper()
		if got := s.newMails(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got the mails %q, want %q", what, got, want)
		}
	}
	both := []string{"password ann@example.com", "password ann@work.example"}
	passwords := []string{"brand new horse 1", "brand new horse 2", "brand new horse 3"}

	c := s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	s.send(c, "/account/password", "old", "wrong", "new", passwords[0])
	s.send(c, "/account/password", "old", goodPassword, "new", "short")
	want("a change that was refused")
	if status, to, body := s.send(c, "/account/password", "old", goodPassword, "new", passwords[0]); status != http.StatusSeeOther {
		t.Fatalf("changing the password: got %d %s, want 303: %s", status, to, body)
	}
	want("a change", both...)

	reset := func(password string) (int, string) {
		t.Helper()
		secret, _, err := s.users.IssueFor(t.Context(), hints.UID(ann.UID()), "email", userdb.Token{Purpose: "reset"})
		if err != nil {
			t.Fatal(err)
		}
		status, to, _ := s.send(s.client(), "/reset", "token", secret, "password", password)
		return status, to
	}
	if status, _ := reset("short"); status != http.StatusUnprocessableEntity {
		t.Errorf("a short password: got %d, want 422", status)
	}
	s.send(s.client(), "/reset", "token", "made up", "password", passwords[1])
	want("a reset that was refused")
	if status, to := reset(passwords[1]); status != http.StatusSeeOther {
		t.Errorf("a reset: got %d %s, want 303", status, to)
	}
	want("a reset", both...)

	enrol(t, s.users, s.find("ann"), clock.Now)
	if status, to := reset(passwords[2]); status != http.StatusSeeOther || to != "/signin?done=password" {
		t.Errorf("a reset with a second factor: got %d %s, want 303 to the sign-in", status, to)
	}
	want("a reset with a second factor", both...)
}

// TestPasswordNoticeWithoutLimit checks that the owner gets the notice of a new password if the
// server does not answer when the notices are counted.
func TestPasswordNoticeWithoutLimit(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t))
	s := newFlows(t, proxy.URL(), nil)
	s.create("ann")
	c := s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	proxy.CutRequests(-1, "visits")
	if status, _, body := s.send(c, "/account/password", "old", goodPassword, "new", "brand new horse 1"); status != http.StatusSeeOther || proxy.Cuts() == 0 {
		t.Fatalf("got %d after %d cuts, want 303 after some:\n%s", status, proxy.Cuts(), body)
	}
	if got := s.newMails(); len(got) != 1 || got[0] != "password ann@example.com" {
		t.Errorf("got the mails %q, want the notice", got)
	}
}

// TestAddressNotice checks that somebody who finds an open session neither removes an address of
// the account nor makes another one the first. It also checks that the owner learns of such a
// change at all verified addresses, including the one that is gone, and that such requests are
// limited.
func TestAddressNotice(t *testing.T) {
	s, clock := newAtOnce(t)
	ann, ctx := s.create("ann"), t.Context()
	s.addAddresses(ann, "ann@work.example", "stranger@example.com")
	secret, _, err := s.users.IssueFor(ctx, hints.UID(ann.UID()), "email", userdb.Token{Purpose: "verify"})
	if err == nil {
		_, _, err = s.users.Redeem(ctx, "verify", secret)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	clock.Advance(11 * time.Minute)
	const verify = "/account/verify?return=%2Faccount%2Faddresses"
	for _, do := range []string{"first", "remove"} {
		status, to, body := s.send(c, "/account/addresses", "do", do, "address", "ann@work.example")
		if status != http.StatusSeeOther || to != verify {
			t.Errorf("%s after eleven minutes: got %d %s, want 303 to %s: %s", do, status, to, verify, body)
		}
	}
	if got := s.newMails(); len(got) > 0 || s.find("ann").Text("email") != "ann@example.com" {
		t.Errorf("got the mails %q or another first address, want neither", got)
	}
	s.send(c, "/account/verify", "password", goodPassword, "return", "/account/addresses")
	for _, tt := range []struct{ do, address, want string }{
		{"first", "ann@work.example", "[first ann@example.com first ann@work.example]"},
		{"first", "ann@work.example", "[]"}, // it is the first already
		{"remove", "nobody@example.com", "[]"},
		{"first", "stranger@example.com", "[]"}, // it is not verified
		{"remove", "ANN@example.com", "[removed ann@example.com removed ann@work.example]"},
	} {
		s.send(c, "/account/addresses", "do", tt.do, "address", tt.address)
		s.sent()
		for _, m := range s.mails {
			if !strings.Contains(m.Text(), strings.ToLower(tt.address)) || m.Link != "https://example.com/forgot" {
				t.Errorf("%s %s: got the mail %q %s, want the address as it is stored", tt.do, tt.address, m.Text(), m.Link)
			}
		}
		if got := fmt.Sprint(s.newMails()); got != tt.want {
			t.Errorf("%s %s: got the mails %s, want %s", tt.do, tt.address, got, tt.want)
		}
	}
	for range 20 {
		s.send(c, "/account/addresses", "do", "remove", "address", "nobody@example.com")
	}
	if status, _, _ := s.send(c, "/account/addresses", "do", "remove", "address", "stranger@example.com"); status != http.StatusTooManyRequests {
		t.Errorf("after twenty changes: got %d, want 429", status)
	}
}

// TestPasswordNoticeUnproven checks that a visitor who signs up with the address of somebody else
// sends that person no notices, and that the person who claims the account gets one.
func TestPasswordNoticeUnproven(t *testing.T) {
	s, _ := newAtOnce(t)
	stranger := s.client()
	s.signUpAtOnce(stranger, "ann")
	s.newMails()
	if status, _, body := s.send(stranger, "/account/password", "old", goodPassword, "new", "brand new horse 1"); status != http.StatusSeeOther {
		t.Fatalf("changing the password: got %d, want 303: %s", status, body)
	}
	if got := s.newMails(); len(got) > 0 {
		t.Errorf("after a change by a stranger: got the mails %q, want none", got)
	}
	s.send(stranger, "/account/security", "do", "prove") // the change has ended the first link
	secret := s.proof()
	if secret == "" {
		t.Fatal("no mail has a new link")
	}
	s.newMails()
	if status, _, body := s.send(s.client(), "/prove", "token", secret, "password", "brand new horse 2"); status != http.StatusSeeOther {
		t.Fatalf("claiming the account: got %d, want 303: %s", status, body)
	}
	if got := fmt.Sprint(s.newMails()); got != "[password ann@example.com]" {
		t.Errorf("after claiming the account: got the mails %s, want a notice", got)
	}
}

// TestPasswordNoticeLimit checks that a mailbox gets at most twenty notices in an hour.
func TestPasswordNoticeLimit(t *testing.T) {
	s := newFlows(t, "memory:", nil)
	s.create("ann")
	c := s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	passwords := []string{goodPassword, otherPassword}
	for n := range 22 {
		if status, _, body := s.send(c, "/account/password", "old", passwords[n%2], "new", passwords[(n+1)%2]); status != http.StatusSeeOther {
			t.Fatalf("change %d: got %d, want 303: %s", n+1, status, body)
		}
	}
	if got := s.newMails(); len(got) != 20 {
		t.Errorf("got %d notices of 22 changes, want 20", len(got))
	}
}

// TestPasswordNoticeFullQueue checks that a full queue refuses a new password, so that no change
// goes without its notice.
func TestPasswordNoticeFullQueue(t *testing.T) {
	s := newFlows(t, "memory:", nil)
	ann := s.create("ann")
	c := s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	secret, _, err := s.users.IssueFor(t.Context(), hints.UID(ann.UID()), "email", userdb.Token{Purpose: "reset"})
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	s.flows.Mail = &web.MailQueue{Size: 1, Send: func(context.Context, web.Mail) error { <-release; return nil }}
	if err := s.flows.Mail.Mail(t.Context(), web.Mail{Kind: web.MailReset}); err != nil {
		t.Fatal(err)
	}
	if status, _, _ := s.send(c, "/reset", "token", "forged", "password", otherPassword); status != http.StatusGone {
		t.Errorf("a forged token with a full queue: got %d, want 410, because it needs no slot in the queue", status)
	}
	for _, form := range [][]string{
		{"/reset", "token", secret, "password", otherPassword},
		{"/account/password", "old", goodPassword, "new", otherPassword},
	} {
		if status, _, body := s.send(c, form[0], form[1:]...); status != http.StatusServiceUnavailable {
			t.Errorf("%s with a full queue: got %d, want 503: %s", form[0], status, body)
		}
	}
	close(release)
	if err := s.flows.Mail.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.users.Login(t.Context(), "ann", goodPassword, userdb.Attempt{}); err != nil {
		t.Errorf("the password was changed: %v", err)
	}
}

// TestSmallMailQueue checks that a queue that is smaller than the mails of one flow still takes
// them when it is empty.
func TestSmallMailQueue(t *testing.T) {
	s, _ := newAtOnce(t)
	s.addAddresses(s.create("ann"), "second@example.com", "third@example.com")
	s.flows.Mail.Size = 1
	c := s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	if status, _, body := s.send(c, "/account/password", "old", goodPassword, "new", otherPassword); status != http.StatusSeeOther {
		t.Fatalf("a new password with a queue of one mail: got %d, want 303: %s", status, body)
	}
	if got := s.newMails(); len(got) != 2 {
		t.Errorf("got the notices %q, want one to the first address and one to the verified further one", got)
	}
}

// TestNamesInMails checks that the name of an account in a mail, which may go to a stranger, is
// neither a message nor a link.
func TestNamesInMails(t *testing.T) {
	s := newFlows(t, "memory:", nil)
	for name, shown := range map[string]bool{
		"Ann O'Hara": true, "Dr. José Núñez-Pérez jr.": true, "अनन्या 王": true, strings.Repeat("ß", 40): true, strings.Repeat("ß", 41): false,
		"log in at evil.example/ann": false, "call tel:+100200300": false, "see evil.example now": false,
	} {
		e, err := s.users.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("name", name)})
		if err != nil {
			t.Fatal(err)
		}
		text := web.Mail{Kind: web.MailChange, Entry: e}.Text()
		if strings.Contains(text, name) != shown || strings.Contains(text, e.UID()) == shown {
			t.Errorf("got the mail %q of the account %q, want it to have the name: %v", text, name, shown)
		}
	}
	e, err := s.users.Create(t.Context(), userdb.NewEntry{UID: "evil.example/" + strings.Repeat("u", 60)})
	if err != nil {
		t.Fatal(err)
	}
	if text := (web.Mail{Kind: web.MailChange, Entry: e}).Text(); !strings.Contains(text, " evilexample"+strings.Repeat("u", 29)+".") {
		t.Errorf("got the mail %q, want the beginning of the UID in it, without the characters of a URL", text)
	}
}

// TestNoticeOfUnknownOutcome checks that nobody changes a password without a notice by hanging up
// before the store has answered.
func TestNoticeOfUnknownOutcome(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t))
	s := newFlows(t, proxy.URL(), nil)
	s.create("ann")
	c := s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	proxy.CutReplies(1000, "~passwd")
	go func() {
		for proxy.Cuts() == 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		hangUp()
	}()
	form := url.Values{"old": {goodPassword}, "new": {"brand new horse 1"}}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/account/password", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.AddCookie(&http.Cookie{Name: "session", Value: s.cookie(c, "session")})
	s.server.Config.Handler.ServeHTTP(httptest.NewRecorder(), r)
	proxy.Pass()
	if got := s.newMails(); fmt.Sprint(got) != "[password ann@example.com]" {
		t.Errorf("got the mails %q, want a notice", got)
	}
}
