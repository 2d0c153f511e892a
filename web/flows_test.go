package web_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdbtest"
	"github.com/coffeenode/userdb/web"
)

// A flowSite serves Flows with the default pages.
type flowSite struct {
	t      *testing.T
	users  *userdb.Type
	flows  *web.Flows
	server *httptest.Server
	mu     sync.Mutex
	mails  []web.Mail
}

func newFlows(t *testing.T, store string, edit func(*web.Flows)) *flowSite {
	t.Helper()
	s := &flowSite{t: t, users: openUsers(t, store, userdb.Options{})}
	s.flows = &web.Flows{
		Auth: web.Auth{Users: s.users}, SignUp: web.SignUpByMail, Base: "https://example.com",
		Fields: []web.Field{{Name: "name", Label: "Name", Autocomplete: "username"}},
		// With one worker, the mails are sent in the order in which they were queued.
		Mail: &web.MailQueue{Workers: 1, Send: func(_ context.Context, m web.Mail) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.mails = append(s.mails, m)
			return nil
		}},
	}
	if edit != nil {
		edit(s.flows)
	}
	mux := http.NewServeMux()
	s.flows.Register(mux)
	mux.Handle("GET /account", s.flows.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, web.Entry(r.Context()).Texts("email"))
	})))
	mux.Handle("GET /account/overview", s.flows.Require(s.flows.Page("account", nil, nil)))
	mux.Handle("GET /admin", s.flows.RequireTag("admin", http.NotFoundHandler()))
	mux.Handle("GET /secret", s.flows.Require(s.flows.RequireRecent(time.Nanosecond, http.NotFoundHandler())))
	s.server = httptest.NewServer(web.Protect(mux))
	t.Cleanup(s.server.Close)
	return s
}

func (s *flowSite) client() *http.Client {
	jar, _ := cookiejar.New(nil)
	return &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// send sends a form, or a GET if there is none, and returns the status, the target of a redirect
// and the body.
func (s *flowSite) send(c *http.Client, path string, form ...string) (status int, to, body string) {
	s.t.Helper()
	method, values := http.MethodGet, url.Values{}
	for i := 0; i+1 < len(form); i += 2 {
		method = http.MethodPost
		values.Set(form[i], form[i+1])
	}
	return s.do(c, method, path, values.Encode())
}

// do sends a request with a form that is encoded already.
func (s *flowSite) do(c *http.Client, method, path, form string) (status int, to, body string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.server.URL+path, strings.NewReader(form))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := c.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Location"), string(text)
}

func (s *flowSite) create(name string) userdb.Entry {
	s.t.Helper()
	e, err := s.users.Create(s.t.Context(), userdb.NewEntry{Facets: schema.Texts("name", name, "email", name+"@example.com"), Password: goodPassword})
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

// sent waits for the mails and returns their kinds and addresses.
func (s *flowSite) sent() []string {
	for s.flows.Mail.Len() > 0 {
		time.Sleep(time.Millisecond)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, m := range s.mails {
		all = append(all, string(m.Kind)+" "+m.To)
	}
	return all
}

// TestFlowsTellNothing checks that answers do not show visitors who has an account, not even when
// the queue of mails is full or closed.
func TestFlowsTellNothing(t *testing.T) {
	for _, store := range []string{"memory:", redistest.Start(t).URL()} {
		s := newFlows(t, store, nil)
		s.create("known")
		answers := func() map[string]bool {
			all := map[string]bool{}
			for _, form := range [][3]string{
				{"/signup", "email", "known@example.com"},
				{"/signup", "email", "other@example.com"},
				{"/forgot", "identifier", "known@example.com"},
				{"/forgot", "identifier", "other@example.com"},
			} {
				status, to, body := s.send(s.client(), form[0], form[1], form[2])
				if status == http.StatusSeeOther {
					status, _, body = s.send(s.client(), to)
				}
				all[fmt.Sprint(status, strings.NewReplacer("known@", "", "other@", "").Replace(body))] = true
			}
			return all
		}
		if got := answers(); len(got) != 1 {
			t.Errorf("got %d different answers, want 1: %v", len(got), got)
		}
		if got := fmt.Sprint(s.sent()); len(s.sent()) != 3 || !strings.Contains(got, "registered known@") || !strings.Contains(got, "welcome other@") || !strings.Contains(got, "reset known@") {
			t.Errorf("got the mails %v, want registered and reset to known, and welcome to other", got)
		}
		release := make(chan struct{})
		s.flows.Mail = &web.MailQueue{Size: 1, Send: func(context.Context, web.Mail) error { <-release; return nil }}
		if err := s.flows.Mail.Mail(t.Context(), web.Mail{Kind: web.MailReset}); err != nil {
			t.Fatal(err)
		}
		for got := range answers() {
			if !strings.HasPrefix(got, "503") {
				t.Errorf("with a full queue: got %s, want 503", got)
			}
		}
		close(release)
		if err := s.flows.Mail.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := answers(); len(got) != 2 {
			t.Errorf("got %d different answers after Close, want one for each of 2 pages: %v", len(got), got)
		}
	}
}

// TestFlowsSentWithoutSpaces checks that the page after a form shows what was entered without the
// spaces around it, as the mail goes to it.
func TestFlowsSentWithoutSpaces(t *testing.T) {
	s := newFlows(t, "memory:", nil)
	for _, form := range [][2]string{{"/signup", "email"}, {"/forgot", "identifier"}} {
		status, to, body := s.send(s.client(), form[0], form[1], " \tann@example.com ")
		if status != http.StatusSeeOther || to != "/sent?to=ann%40example.com" {
			t.Errorf("%s: got %d %s, want 303 to the page with the address alone\n%s", form[0], status, to, body)
		}
	}
}

// TestFlowsDoTheSameWork checks that sign-up and a forgotten password send as many commands to the
// server for somebody known as for somebody unknown.
func TestFlowsDoTheSameWork(t *testing.T) {
	server := redistest.Start(t)
	s := newFlows(t, server.URL(), nil)
	s.create("known")
	commands := func(path, field, entered string) int {
		t.Helper()
		count := func() (n int) {
			info, err := server.Client().Info(t.Context(), "commandstats").Result()
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range strings.Split(info, "\r\n") {
				if name, rest, _ := strings.Cut(line, ":calls="); strings.Contains(name, "eval") || strings.HasSuffix(name, "_get") || strings.Contains(name, "hget") {
					var calls int
					_, _ = fmt.Sscan(strings.Split(rest, ",")[0], &calls)
					n += calls
				}
			}
			return n
		}
		before := count()
		if status, _, body := s.send(s.client(), path, field, entered); status != http.StatusSeeOther {
			t.Fatalf("%s: got %d, want 303\n%s", path, status, body)
		}
		return count() - before
	}
	for _, form := range [][2]string{{"/signup", "email"}, {"/forgot", "identifier"}} {
		commands(form[0], form[1], "first@example.com") // loads the scripts into the server
		commands(form[0], form[1], "known@example.com")
		known, unknown := commands(form[0], form[1], "known@example.com"), commands(form[0], form[1], "other@example.com")
		if known != unknown || known == 0 {
			t.Errorf("%s sends %d commands for somebody known and %d for somebody unknown, want the same number, not 0", form[0], known, unknown)
		}
	}
}

// TestThousandSignUps checks that a thousand visitors can sign up while the mailer hangs, that none
// of them waits for it, and that each of them gets one mail when it works again.
func TestThousandSignUps(t *testing.T) {
	release, got := make(chan struct{}), sync.Map{}
	s := newFlows(t, "memory:", func(f *web.Flows) {
		f.Mail = &web.MailQueue{Size: 2000, Timeout: time.Hour, Send: func(_ context.Context, m web.Mail) error {
			<-release
			if _, twice := got.LoadOrStore(m.To, m.Link); twice {
				t.Errorf("%s got a second mail, want one", m.To)
			}
			return nil
		}}
		f.Proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	var all sync.WaitGroup
	for worker := range 20 {
		all.Go(func() {
			for i := range 50 {
				form := url.Values{"email": {fmt.Sprintf("v%d@example.com", worker*50+i)}}
				req, err := http.NewRequestWithContext(t.Context(), "POST", s.server.URL+"/signup", strings.NewReader(form.Encode()))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				req.Header.Set("X-Forwarded-For", fmt.Sprintf("192.0.%d.%d", worker, i))
				resp, err := s.client().Do(req)
				if err != nil || resp.StatusCode != http.StatusSeeOther {
					t.Errorf("got %v, %v; want 303", resp, err)
					return
				}
				_ = resp.Body.Close()
			}
		})
	}
	all.Wait()
	if n := s.flows.Mail.Len(); n != 1000 {
		t.Errorf("%d mails are waiting, want 1,000", n)
	}
	close(release)
	if err := s.flows.Mail.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := 0
	got.Range(func(any, any) bool { n++; return true })
	if n != 1000 {
		t.Errorf("%d visitors got a mail, want 1,000", n)
	}
}

// TestFlowsNew checks that New is called again if another account has a facet that it chose, and
// that New can refuse an account.
func TestFlowsNew(t *testing.T) {
	refused := &userdb.FieldError{Field: "name", Rule: "reserved", Err: userdb.ErrInvalid, Reason: "reserved"}
	calls := 0
	s := newFlows(t, "memory:", func(f *web.Flows) {
		f.Fields = nil
		f.New = func(r *http.Request, _ userdb.Invitation, n *userdb.NewEntry) error {
			calls++
			name := r.PostFormValue("name")
			if name == "root" {
				return refused
			}
			n.Facets["name"] = schema.Text(fmt.Sprint(name, calls))
			return nil
		}
	})
	s.create("ann1")
	s.create("ann2")
	c := s.client()
	s.send(c, "/signup", "email", "new@example.com")
	s.sent()
	_, secret, _ := strings.Cut(s.mails[0].Link, "https://example.com/welcome?token=")
	if status, _, _ := s.send(c, "/welcome", "token", secret, "name", "root", "password", goodPassword); status != 422 {
		t.Errorf("got %d for a name that New refuses, want 422", status)
	}
	calls = 0
	if status, to, body := s.send(c, "/welcome", "token", secret, "name", "ann", "password", goodPassword); status != 303 || to != "/account?done=welcome" || calls != 3 {
		t.Errorf("got %d %s after %d calls, want 303 after 3: %s", status, to, calls, body)
	}
}

// TestFlowsPaths checks that a page without a path does not exist, that nobody can sign up unless
// SignUp allows it, and that RequireRecent asks for the password.
func TestFlowsPaths(t *testing.T) {
	s := newFlows(t, "memory:", func(f *web.Flows) {
		f.SignUp = web.SignUpClosed
		f.Paths = web.DefaultPaths
		f.Paths.Forgot = ""
	})
	s.create("ann")
	c := s.client()
	for _, path := range []string{"/signup", "/welcome", "/forgot"} {
		if status, _, _ := s.send(c, path); status != http.StatusNotFound {
			t.Errorf("%s: got %d, want 404", path, status)
		}
	}
	if _, _, body := s.send(c, "/signin"); strings.Contains(body, "/signup") || strings.Contains(body, "Forgotten") {
		t.Errorf("the page leads to pages that do not exist:\n%s", body)
	}
	if status, to, _ := s.send(c, "/account"); status != 303 || to != "/signin?return=%2Faccount" {
		t.Errorf("got %d %s, want 303 to the sign-in", status, to)
	}
	if status, to, _ := s.send(c, "/signin", "identifier", "ann", "password", goodPassword, "return", "/secret"); status != 303 || to != "/secret" {
		t.Errorf("got %d %s, want 303 to /secret", status, to)
	}
	if status, to, _ := s.send(c, "/secret"); status != 303 || to != "/account/verify?return=%2Fsecret" {
		t.Errorf("got %d %s, want 303 to the password", status, to)
	}
	if status, to, _ := s.send(c, "/account/verify", "password", goodPassword, "return", "/secret"); status != 303 || to != "/secret" {
		t.Errorf("got %d %s, want 303 to /secret", status, to)
	}
}

// TestDoubleClick sends the form that creates an account twice, one after the other and at the same
// time, and the form that sets a new password twice. Both answers sign the visitor in. With another
// password, a link that was used signs nobody in.
func TestDoubleClick(t *testing.T) {
	s := newFlows(t, "memory:", nil)
	invite := func(name string) (token string) {
		t.Helper()
		s.send(s.client(), "/signup", "email", name+"@example.com")
		s.sent()
		_, token, _ = strings.Cut(s.mails[len(s.mails)-1].Link, "token=")
		return token
	}
	create := func(c *http.Client, token, name, password string) (status int, to string) {
		status, to, _ = s.send(c, "/welcome", "token", token, "name", name, "password", password)
		return status, to
	}
	ann := invite("ann")
	for n := range 2 {
		c := s.client()
		if status, to := create(c, ann, "ann", goodPassword); status != http.StatusSeeOther || to != "/account?done=welcome" {
			t.Errorf("form %d: got %d %s, want 303 to the account", n+1, status, to)
		}
		if status, _, _ := s.send(c, "/account"); status != http.StatusOK {
			t.Errorf("after form %d: got %d, want the account", n+1, status)
		}
	}
	c := s.client()
	if status, _ := create(c, ann, "ann", "another good password"); status != http.StatusGone {
		t.Errorf("another password: got %d, want 410", status)
	}
	if status, _, _ := s.send(c, "/account"); status != http.StatusSeeOther {
		t.Errorf("after another password: got %d, want the page to sign in", status)
	}
	bob := invite("bob")
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if status, to := create(s.client(), bob, "bob", goodPassword); status != http.StatusSeeOther {
				t.Errorf("two forms at the same time: got %d %s, want 303", status, to)
			}
		})
	}
	both.Wait()

	s.send(s.client(), "/forgot", "identifier", "bob")
	s.sent()
	_, reset, _ := strings.Cut(s.mails[len(s.mails)-1].Link, "token=")
	const other = "another good password"
	for n := range 2 {
		if status, to, body := s.send(s.client(), "/reset", "token", reset, "password", other); status != http.StatusSeeOther || to != "/account?done=password" {
			t.Errorf("new password, form %d: got %d %s, want 303 to the account: %s", n+1, status, to, body)
		}
	}
	if status, _, _ := s.send(s.client(), "/reset", "token", reset, "password", goodPassword); status != http.StatusGone {
		t.Errorf("the earlier password: got %d, want 410", status)
	}
}

// TestSecondClickByOtherClock checks that a link that has set a password signs nobody in again if
// the store's clock, by which the password was set, is two minutes ahead.
func TestSecondClickByOtherClock(t *testing.T) {
	s, clock := newFactorFlows(t)
	ann := s.create("ann")
	clock.Advance(time.Since(clock.Now()) + 2*time.Minute)
	secret, _, err := s.users.IssueFor(t.Context(), hints.UID(ann.UID()), "email", userdb.Token{Purpose: "reset"})
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range []int{http.StatusSeeOther, http.StatusGone} {
		if status, _, body := s.send(s.client(), "/reset", "token", secret, "password", "another good password"); status != want {
			t.Errorf("form %d: got %d, want %d: %s", n+1, status, want, body)
		}
	}
}

// TestAddressField checks that Register panics if Address is not a field that holds mail addresses.
func TestAddressField(t *testing.T) {
	for _, field := range []string{"name", "nothing"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: got no panic, want one", field)
				}
			}()
			newFlows(t, "memory:", func(f *web.Flows) { f.Address = field })
		}()
	}
}

func TestStatus(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{nil, 200},
		{userdb.ErrLogin, 422},
		{userdb.ErrNotFound, 410},
		{userdb.ErrConflict, 409},
		{&userdb.FieldError{Field: "name", Err: userdb.ErrDuplicate}, 422},
		{&userdb.WaitError{Wait: time.Second}, 429},
		{web.ErrMailQueueFull, 503},
		{errors.New("broken"), 503},
	} {
		if got := web.Status(tt.err); got != tt.want {
			t.Errorf("%v: got %d, want %d", tt.err, got, tt.want)
		}
	}
}

// TestTokensAreNoReferrers checks that no request from a page whose address has a token carries
// that address, whether the token is good or not.
func TestTokensAreNoReferrers(t *testing.T) {
	s := newFlows(t, "memory:", nil)
	good := s.issue(s.create("known"), userdb.Token{Purpose: "reset"})
	for path, want := range map[string]string{
		"/reset?token=" + good: "strict-origin", "/reset?token=forged": "strict-origin", "/welcome?token=forged": "strict-origin",
		"/confirm?token=forged": "strict-origin", "/signin": "same-origin",
	} {
		resp, err := s.client().Get(s.server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("Referrer-Policy"); got != want {
			t.Errorf("%s: the Referrer-Policy is %q, want %q", path, got, want)
		}
	}
}

// TestInviteLanguage checks that invitations are in a language of the site: that of the visitor who
// invites, or else the first one, even if no page of Flows calls Invite.
func TestInviteLanguage(t *testing.T) {
	s := newFlows(t, "memory:", func(f *web.Flows) { f.Languages = []string{"de", "es"} })
	for accept, want := range map[string]string{"": "de", "es": "es", "en": "de"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
		r.Header.Set("Accept-Language", accept)
		if err := s.flows.Invite(r, "bob@example.com", ""); err != nil {
			t.Fatal(err)
		}
		if s.sent(); s.mails[len(s.mails)-1].Language != want {
			t.Errorf("Accept-Language %q: the mail is in %q, want %q", accept, s.mails[len(s.mails)-1].Language, want)
		}
	}
	if err := s.flows.EnsureTagged(t.Context(), "root@example.com", "admin"); err != nil {
		t.Fatal(err)
	}
	if s.sent(); s.mails[len(s.mails)-1].Language != "de" {
		t.Errorf("the mail to the administrator is in %q, want de", s.mails[len(s.mails)-1].Language)
	}
}

// TestWithoutPassword checks that a form without a password, such as one that the page "again" has
// sent, does not count as a wrong guess.
func TestWithoutPassword(t *testing.T) {
	s := newFlows(t, "memory:", nil)
	s.create("ann")
	c := s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	for path, form := range map[string][]string{
		"/signin":           {"identifier", "ann"},
		"/account/password": {"new", "brand new horse"},
		"/account/email":    {"email", "ann2@example.com"},
		"/account/verify":   {"return", "/account"},
	} {
		for range 3 {
			if status, _, body := s.send(c, path, form...); status != http.StatusUnprocessableEntity || !strings.Contains(body, "This field is required.") {
				t.Errorf("%s: got status %d, want 422 and that the password is required: %s", path, status, body)
			}
		}
	}
	if _, _, body := s.send(c, "/account/password", "old", "", "new", "brand new horse"); !strings.Contains(body, `id="old-problem"`) {
		t.Errorf("the problem is not beside the input for the old password: %s", body)
	}
	if st, err := s.users.LoginStatus(t.Context(), hints.Field("name", "ann")); err != nil || st.Failures > 0 {
		t.Errorf("%d failures are counted (%v), want none", st.Failures, err)
	}
}

// TestBase checks that Register refuses a Base with which links in mails would lead nowhere.
func TestBase(t *testing.T) {
	users := openUsers(t, "memory:", userdb.Options{})
	for _, base := range []string{"", "example.com", "/", "https://", "https://example.com/", "https://example.com/shop", "https://example.com?x"} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, "Flows.Base") {
					t.Errorf("Base %q: got the panic %s, want one about Base", base, text)
				}
			}()
			(&web.Flows{Auth: web.Auth{Users: users}, Mail: &web.MailQueue{}, Base: base}).Register(http.NewServeMux())
		}()
	}
}

// TestOneAddress checks that the page of addresses offers no further address if the schema allows
// only one.
func TestOneAddress(t *testing.T) {
	s := newFlows(t, "memory:", nil)
	s.create("ann")
	c := s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	if status, _, body := s.send(c, "/account/addresses"); status != http.StatusOK || strings.Contains(body, "Add an address") || strings.Contains(body, "remove one first") {
		t.Errorf("got status %d, want only the address: %s", status, body)
	}
}

// TestInvite checks that visitors invite others by mail, with a value for Flows.New, that this
// needs no page for sign-up, and that they do not learn who has an account.
func TestInvite(t *testing.T) {
	s := newFlows(t, "memory:", func(f *web.Flows) {
		f.Paths = web.DefaultPaths
		f.Paths.SignUp = ""
		f.New = func(_ *http.Request, i userdb.Invitation, n *userdb.NewEntry) error {
			n.Tags = []string{i.Value}
			return nil
		}
	})
	s.create("ann")
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	for _, address := range []string{"ann@example.com", "bob@example.com"} {
		if err := s.flows.Invite(r, address, "staff"); err != nil {
			t.Errorf("inviting %s: %v", address, err)
		}
	}
	if err := s.flows.Invite(r, "bob", "staff"); !errors.Is(err, userdb.ErrInvalid) {
		t.Errorf("inviting something other than an address: got %v, want ErrInvalid", err)
	}
	got := s.sent()
	if slices.Sort(got); !slices.Equal(got, []string{"invited bob@example.com", "registered ann@example.com"}) {
		t.Fatalf("got the mails %q, want an invitation to bob and a notice to ann", got)
	}
	for _, m := range s.mails {
		if m.Kind == web.MailInvited {
			secret, is := strings.CutPrefix(m.Link, s.flows.Base+"/welcome?token=")
			status, to, body := s.send(s.client(), "/welcome", "token", secret, "name", "bob", "password", goodPassword)
			if !is || status != http.StatusSeeOther {
				t.Fatalf("%s: got %d %s, want 303: %s", m.Link, status, to, body)
			}
		}
	}
	bob, err := s.users.Find(t.Context(), hints.Any("bob@example.com"))
	if err != nil || !bob.Verified("email") {
		t.Fatalf("got %v, %v, want an account with a verified address", bob, err)
	}
	if tags, err := s.users.Tags(hints.UID(bob.UID())).Members(t.Context()); err != nil || !slices.Equal(tags, []string{"staff"}) {
		t.Errorf("got the tags %q, %v, want staff", tags, err)
	}
	if status, _, _ := s.send(s.client(), "/signup"); status != http.StatusNotFound {
		t.Errorf("the page for everybody to sign up: got %d, want 404", status)
	}
}

// TestInviteLimits checks that one visitor can invite at most twelve addresses in an hour, and that
// nobody is invited to a site without the page that the mail leads to.
func TestInviteLimits(t *testing.T) {
	s := newFlows(t, "memory:", nil)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	for n := range 12 {
		if err := s.flows.Invite(r, fmt.Sprint("guest", n, "@example.com"), ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.flows.Invite(r, "late@example.com", ""); !errors.Is(err, userdb.ErrTooManyAttempts) {
		t.Errorf("a thirteenth invitation: got %v, want ErrTooManyAttempts", err)
	}
	closed := newFlows(t, "memory:", func(f *web.Flows) { f.SignUp = web.SignUpClosed })
	if err := closed.flows.Invite(r, "guest@example.com", ""); err == nil || len(closed.sent()) > 0 {
		t.Errorf("an invitation to a site without sign-up: got %v and the mails %q, want an error and no mail", err, closed.mails)
	}
}

// TestPageWithoutData checks that if the data of a page cannot be loaded, the visitor gets a page
// that says why. Only if the visitor came by a link does it say that links work once.
func TestPageWithoutData(t *testing.T) {
	s := newFlows(t, "memory:", nil)
	refused := &userdb.FieldError{Err: userdb.ErrInvalid, Field: "age", Rule: "number", Reason: "not a number"}
	for err, want := range map[error]string{refused: "age: This is not a number.", userdb.ErrNotFound: "This is no longer valid."} {
		w := httptest.NewRecorder()
		page := s.flows.Page("signin", func(*http.Request) (any, error) { return nil, err }, nil)
		page.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/list?age=x", nil))
		if w.Code != web.Status(err) || !strings.Contains(w.Body.String(), want) || strings.Contains(w.Body.String(), "A link works once") {
			t.Errorf("%v: got %d, want %d and %q without a word about links:\n%s", err, w.Code, web.Status(err), want, w.Body)
		}
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/reset?token=forged", nil)
	s.server.Config.Handler.ServeHTTP(w, r)
	if !strings.Contains(w.Body.String(), "A link works once") {
		t.Errorf("a link that is not valid: the page does not say that a link works once:\n%s", w.Body)
	}
}

// TestSaveForm checks that a form saves texts, numbers, dates and booleans, that it is refused if
// one of them cannot be read, and that it keeps further values, which it does not show.
func TestSaveForm(t *testing.T) {
	o := factorOptions()
	fields := o.Schema.Types["user"].Fields
	fields["born"], fields["age"], fields["news"] = schema.Field{Codec: schema.CodecDate}, schema.Field{Codec: schema.CodecNumber}, schema.Field{Codec: schema.CodecBoolean}
	fields["phone"] = schema.Field{Role: schema.RoleSecondary, Many: 3}
	store := userdbtest.New(t, userdbtest.With(o))
	s := newFlows(t, "memory:", func(f *web.Flows) { f.Users = store.Type("user") })
	s.users = store.Type("user")
	s.create("ann")
	_, err := s.users.Update(t.Context(), hints.Field("name", "ann"), func(e *userdb.Entry) error {
		e.SetTexts("phone", "100", "200")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	c := s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	page := s.flows.Require(s.flows.Page("account", nil, func(_ http.ResponseWriter, r *http.Request) (string, error) {
		_, err := s.flows.SaveForm(r, "born", "age", "news", "phone")
		return "/account?done=edit", err
	}))
	save := func(form url.Values) *httptest.ResponseRecorder {
		form.Set("rev", s.find("ann").Rev())
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/account/edit", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.AddCookie(&http.Cookie{Name: "session", Value: s.cookie(c, "session")})
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		return w
	}
	for _, tt := range []struct {
		born, age, news string
		status          int
		want            string
	}{
		{"1990-02-03", "30", "true", http.StatusSeeOther, "1990-02-03T00:00:00.000Z 30 true"},
		{"", "31", "false", http.StatusSeeOther, " 31 false"},
		{"soon", "31", "false", http.StatusUnprocessableEntity, " 31 false"},
		{"", "many", "false", http.StatusUnprocessableEntity, " 31 false"},
	} {
		form := url.Values{"born": {tt.born}, "age": {tt.age}, "news": {tt.news}}
		w, e := save(form), s.find("ann")
		if got := e.Text("born") + " " + e.Text("age") + " " + e.Text("news"); w.Code != tt.status || got != tt.want {
			t.Errorf("%v: got %d and %q, want %d and %q: %s", form, w.Code, got, tt.status, tt.want, w.Body)
		}
	}
	for _, tt := range [][2]string{{"300", "[300 200]"}, {"", "[200]"}} {
		save(url.Values{"phone": {tt[0]}})
		if got := fmt.Sprint(s.find("ann").Texts("phone")); got != tt[1] {
			t.Errorf("after the form with %q: got the values %s, want %s", tt[0], got, tt[1])
		}
	}
}

// TestForgotNothing checks that the form for a forgotten password is shown again if nothing was
// entered.
func TestForgotNothing(t *testing.T) {
	s := newFlows(t, "memory:", nil)
	for _, entered := range []string{"", " \t"} {
		if status, _, body := s.send(s.client(), "/forgot", "identifier", entered); status != http.StatusUnprocessableEntity || !strings.Contains(body, "This field is required.") {
			t.Errorf("%q: got %d, want 422 and the problem:\n%s", entered, status, body)
		}
	}
}

// TestInputShowsFacet checks that browsers send back the value of an input as it is, and that Shown
// returns the same value, so that a form that nobody touched changes nothing.
func TestInputShowsFacet(t *testing.T) {
	o := factorOptions()
	fields := o.Schema.Types["user"].Fields
	fields["born"], fields["age"] = schema.Field{Codec: schema.CodecDate}, schema.Field{Codec: schema.CodecNumber}
	users := userdbtest.New(t, userdbtest.With(o)).Type("user")
	for _, tt := range []struct{ field, stored, kind, wantKind, want string }{
		{"born", "1990-02-03", "date", "date", "1990-02-03"},
		{"born", "1990-02-03", "text", "text", "1990-02-03"},
		{"born", "1990-02-03T04:05:06Z", "date", "text", "1990-02-03T04:05:06.000Z"},
		{"born", "-000001-02-03T00:00:00.000Z", "date", "text", "-000001-02-03T00:00:00.000Z"},
		{"age", "30", "number", "number", "30"},
		{"age", "1.5e+30", "number", "number", "1.5e+30"},
		{"age", "NaN", "number", "text", "NaN"},
		{"email", "user@straße.example", "email", "text", "user@straße.example"},
		{"name", "1990-02-03T00:00:00.000Z", "text", "text", "1990-02-03T00:00:00.000Z"},
		{"job", "", "date", "date", ""},
		{"born", "1990-02-03T04:05:06Z", "datetime-local", "text", "1990-02-03T04:05:06.000Z"},
		{"born", "0000-02-03", "date", "text", "0000-02-03"},
		{"age", "30", "range", "text", "30"},
		{"job", "1e999", "number", "text", "1e999"},
		{"job", "12:30", "time", "time", "12:30"},
		{"job", "noon", "time", "text", "noon"},
		{"job", "1990-02", "month", "month", "1990-02"},
		{"job", "1990-13", "month", "text", "1990-13"},
		{"job", "1990-02-03T04:05", "datetime-local", "datetime-local", "1990-02-03T04:05"},
		{"job", "", "week", "week", ""},
		{"job", "1990-W54", "week", "text", "1990-W54"},
		{"job", "", "color", "text", ""},
		{"job", "#00ff00", "color", "color", "#00ff00"},
		{"job", "one\ntwo", "tel", "textarea", "one\ntwo"},
		{"job", "+49 30", "tel", "tel", "+49 30"},
		{"job", " https://example.com", "url", "text", " https://example.com"},
	} {
		v, err := schema.ParseText(users.Schema().Codec(tt.field), tt.stored)
		if err != nil {
			t.Fatal(err)
		}
		facets := schema.Facets{}
		if tt.stored != "" {
			facets[tt.field] = v
		}
		e, err := users.Create(t.Context(), userdb.NewEntry{Facets: facets})
		if err != nil {
			t.Fatal(err)
		}
		p := web.PageOf(e, users.Schema(), nil)
		in := p.Field(tt.field, "Label", tt.kind, "", e.Text(tt.field))
		if shown := p.Shown(tt.field); in.Type != tt.wantKind || in.Value != tt.want || shown != tt.want {
			t.Errorf("%s %s %q: got type %s, value %q and shown %q, want %s and %q", tt.kind, tt.field, tt.stored, in.Type, in.Value, shown, tt.wantKind, tt.want)
		}
		if err := users.Delete(t.Context(), hints.UID(e.UID())); err != nil {
			t.Fatal(err)
		}
	}
	entered := web.PageOf(userdb.Entry{}, users.Schema(), url.Values{"born": {"3.2.1990"}})
	if in := entered.Field("born", "Label", "date", "", ""); in.Type != "text" || in.Value != "3.2.1990" {
		t.Errorf("an input with what the visitor entered: %+v, want the text", in)
	}
}

// TestTouched checks which fields of a form count as changed.
func TestTouched(t *testing.T) {
	for _, tt := range []struct{ kind, body, want string }{
		{"application/x-www-form-urlencoded", "name=Ann&shown-name=Ann&city=Ulm&shown-city=Bonn&shown-news=1&shown-tips=", "[city news none]"},
		{"application/x-www-form-urlencoded", "name=a&name=b&shown-name=a&city=a&city=b&shown-city=a&shown-city=b&news=&shown-news=&tips=a&shown-tips=a&shown-tips=b&shown-none=", "[name tips]"},
		{"application/json", `{"name": "Ann"}`, "[name city news tips none]"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(tt.body))
		r.Header.Set("Content-Type", tt.kind)
		if got := fmt.Sprint(web.Touched(r, "name", "city", "news", "tips", "none")); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.body, got, tt.want)
		}
	}
}

// TestConfirmNamesAccount checks that the page that confirms an address names the account that it
// is for, unless the visitor is signed in to it: somebody else may have entered the address of a
// visitor, who would share the account with that person.
func TestConfirmNamesAccount(t *testing.T) {
	s := newFlows(t, "memory:", nil)
	ada := s.create("ada")
	s.create("bob")
	clients := map[string]*http.Client{"ada": s.client(), "bob": s.client(), "": s.client()}
	for name, c := range clients {
		if name != "" {
			s.send(c, "/signin", "identifier", name, "password", goodPassword)
		}
	}
	secret, err := s.users.Issue(t.Context(), hints.UID(ada.UID()), userdb.Token{Purpose: "change:email", Value: "carol@example.com"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range clients {
		status, _, body := s.send(c, "/confirm?token="+secret)
		if status != http.StatusOK || !strings.Contains(body, "<strong>carol@example.com</strong>") {
			t.Fatalf("%s: got %d, want the page with the address\n%s", name, status, body)
		}
		if names := strings.Contains(body, "the account <strong>ada</strong>"); names != (name != "ada") {
			t.Errorf("signed in as %q: the page names the account of ada: %t, want %t", name, names, !names)
		}
	}
}
