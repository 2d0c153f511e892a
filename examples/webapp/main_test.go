package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base32"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/hashcost"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/totp"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// childFlags names the environment variable with the flags of a process of the example.
const childFlags = "USERDB_TEST_WEBAPP_FLAGS"

func TestMain(m *testing.M) {
	if flags := os.Getenv(childFlags); flags != "" {
		os.Args = append(os.Args[:1], strings.Fields(flags)...)
		main()
		return
	}
	os.Exit(hashcost.Cheap(m))
}

const password = "correct horse battery"

// A visitor is one browser at a site.
type visitor struct {
	t      *testing.T
	s      *site
	server *httptest.Server
	client *http.Client
	read   map[string]bool // the mail files that the method links has read
}

// eachStore runs a test on sites with accounts in memory, in a file, on Redis and on a cluster.
func eachStore(t *testing.T, test func(t *testing.T, v *visitor)) {
	t.Helper()
	eachConfig(t, func(*view.Config) {}, test)
}

// eachConfig does the same as eachStore, and calls edit to change the configuration of each store.
func eachConfig(t *testing.T, edit func(*view.Config), test func(t *testing.T, v *visitor)) {
	t.Helper()
	for name, open := range map[string]func(t *testing.T) string{
		"memory":  func(*testing.T) string { return "memory:" },
		"file":    func(t *testing.T) string { return "file:" + filepath.Join(t.TempDir(), "users.db") },
		"redis":   func(t *testing.T) string { return redistest.Start(t).URL() },
		"cluster": func(t *testing.T) string { return redistest.StartCluster(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := open(t)
			text, err := files.Open("pages/schema.json")
			must(t, err)
			accounts, err := schema.Load(text)
			must(t, err)
			db, err := userdb.Open(t.Context(), store, userdb.Options{Schema: accounts, Keys: [][]byte{bytes.Repeat([]byte("k"), 32)}})
			must(t, err)
			t.Cleanup(func() { must(t, db.Close()) })
			db, err = view.Reconfigure(db, edit)
			must(t, err)
			users, err := db.Type("user")
			must(t, err)
			s := &site{mail: t.TempDir(), admin: "Root@example.com"}
			server := httptest.NewUnstartedServer(nil)
			server.Config.Handler, err = s.handler(db, users, "http://"+server.Listener.Addr().String())
			must(t, err)
			server.Start()
			t.Cleanup(server.Close)
			t.Cleanup(func() { must(t, s.flows.Mail.Close(context.Background())) })
			test(t, (&visitor{t: t, s: s, server: server, read: map[string]bool{}}).newVisitor())
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newVisitor returns another browser at the same site.
func (v *visitor) newVisitor() *visitor {
	jar, _ := cookiejar.New(nil)
	o := *v
	o.client = &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &o
}

// do sends a request: a POST if there is a form, otherwise a GET. It returns the body or, after a
// 303, the target.
func (v *visitor) do(want int, path string, form ...string) string {
	v.t.Helper()
	method, values := http.MethodGet, url.Values{}
	for i := 0; i+1 < len(form); i += 2 {
		method = http.MethodPost
		values.Set(form[i], form[i+1])
	}
	req, err := http.NewRequestWithContext(v.t.Context(), method, v.server.URL+strings.TrimPrefix(path, v.server.URL), strings.NewReader(values.Encode()))
	must(v.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := v.client.Do(req)
	must(v.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(v.t, err)
	if resp.StatusCode != want {
		v.t.Errorf("%s %s %v: got %s, want %d\n%s", method, path, form, resp.Status, want, body)
	}
	for _, name := range []string{"Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy"} {
		if resp.Header.Get(name) == "" {
			v.t.Errorf("%s: there is no header %s", path, name)
		}
	}
	if to := resp.Header.Get("Location"); to != "" {
		return to
	}
	return string(body)
}

// checkProblem checks that a page shows a problem next to a field, or above the form if field is
// "".
func (v *visitor) checkProblem(body, field, text string) {
	v.t.Helper()
	want := fmt.Sprintf(`<span class="problem" id="%s-problem" role="alert">%s`, field, text)
	if field == "" {
		want = `<p class="problem" role="alert">` + text
	}
	if !strings.Contains(body, want) {
		v.t.Errorf("no %q in\n%s", want, body)
	}
}

// link returns the link of the only mail since the last call of link or links.
func (v *visitor) link(to string) string {
	v.t.Helper()
	links := v.links()
	if len(links) != 1 || links[to] == "" {
		v.t.Fatalf("got mails with the links %v, want one to %s", links, to)
	}
	return links[to]
}

// waitForMails waits until all mails have been sent.
func (v *visitor) waitForMails() {
	for v.s.flows.Mail.Len() > 0 {
		time.Sleep(time.Millisecond)
	}
}

// links returns the links of all mails since the last call, by address.
func (v *visitor) links() map[string]string {
	v.t.Helper()
	v.waitForMails()
	all, err := filepath.Glob(filepath.Join(v.s.mail, "*"))
	must(v.t, err)
	links := map[string]string{}
	for _, file := range all {
		if v.read[file] {
			continue
		}
		v.read[file] = true
		text, err := os.ReadFile(file)
		must(v.t, err)
		mail := regexp.MustCompile(`^To: (.*)\nSubject: (?s:.*)\n(http\S+)\n$`).FindStringSubmatch(string(text))
		if mail == nil {
			v.t.Fatalf("got the mail\n%s\nwant a recipient, a subject and a link", text)
		}
		links[mail[1]] = mail[2]
	}
	return links
}

func tokenOf(link string) string { return link[strings.Index(link, "token=")+len("token="):] }

// signUp creates an account.
func (v *visitor) signUp(address, name string) {
	v.t.Helper()
	v.do(303, "/signup", "email", address)
	v.do(303, "/welcome", "token", tokenOf(v.link(address)), "name", name, "password", password)
}

// TestSignUp checks that the pages after signing up and after asking for a new password are the
// same for everybody, and that nobody gets too many mails.
func TestSignUp(t *testing.T) {
	eachStore(t, func(t *testing.T, v *visitor) {
		v.signUp("known@example.com", "known")
		v.do(303, "/signout", "x", "")
		v.signUp("disabled@example.com", "disabled")
		e, err := v.s.flows.Users.Find(t.Context(), hints.Any("disabled"))
		must(t, err)
		must(t, v.s.flows.Users.Disable(t.Context(), hints.UID(e.UID())))
		v = v.newVisitor()
		v.checkProblem(v.do(422, "/signup", "email", "no address"), "email", "This is not an e-mail address.")
		v.checkProblem(v.do(422, "/signup", "email", ""), "email", "This field is required.")
		pages := map[string]bool{}
		for _, address := range []string{"known@example.com", "disabled@example.com", "new@example.com", "limit@example.com"} {
			for n := range 5 {
				page := v.do(200, v.do(303, "/signup", "email", address))
				pages[strings.ReplaceAll(page, address, "ADDRESS")] = true
				if address != "limit@example.com" || n == 4 {
					break
				}
			}
		}
		for identifier := range map[string]bool{"known": true, "nobody": true, "disabled": true} {
			page := v.do(200, v.do(303, "/forgot", "identifier", identifier))
			pages[strings.ReplaceAll(page, "<strong>"+identifier, "<strong>ADDRESS")] = true
		}
		if len(pages) != 1 {
			t.Errorf("got %d different pages after sign-up and forgotten passwords, want 1", len(pages))
		}
		mails := map[string]int{}
		v.waitForMails()
		all, _ := filepath.Glob(filepath.Join(v.s.mail, "mail-*"))
		for _, file := range all {
			text, err := os.ReadFile(file)
			must(t, err)
			to, _, _ := strings.Cut(string(text), "\n")
			mails[to]++
		}
		if fmt.Sprint(mails) != "map[To: disabled@example.com:2 To: known@example.com:3 To: limit@example.com:3 To: new@example.com:1]" {
			t.Errorf("got the numbers of mails %v, want 3 for known and limit, 2 for disabled and 1 for new", mails)
		}
	})
}

// TestAccount visits the pages for the visitor's name, password, address and devices, and fills in
// their forms with wrong and with right input.
func TestAccount(t *testing.T) {
	eachStore(t, func(t *testing.T, v *visitor) {
		v.do(303, "/signup", "email", "ann@example.com")
		welcome := v.link("ann@example.com")
		if page := v.do(200, welcome); !strings.Contains(page, "ann@example.com") {
			t.Error("the page does not show the address")
		}
		page := v.do(422, "/welcome", "token", tokenOf(welcome), "name", "", "password", "short")
		v.checkProblem(page, "name", "This field is required.")
		v.checkProblem(page, "password", "At least 8 characters")
		v.checkProblem(v.do(422, "/welcome", "token", tokenOf(welcome), "name", "ann", "password", ""), "password", "At least 8 characters.")
		if to := v.do(303, "/welcome", "token", tokenOf(welcome), "name", "ann", "password", password); to != "/account?done=welcome" {
			t.Errorf("redirected to %s, want /account?done=welcome", to)
		}
		for _, again := range []string{v.do(410, welcome), v.do(410, "/welcome", "token", tokenOf(welcome), "name", "eve", "password", "battery staple horse")} {
			if strings.Contains(again, `name="password"`) {
				t.Error("a link that was used still shows its form")
			}
		}
		if !strings.Contains(v.do(200, "/account?done=welcome"), `role="status"`) || strings.Contains(v.do(200, "/account?done=<b>"), "<b>") {
			t.Error("the page does not show what was done, or shows HTML of the query")
		}

		rev := regexp.MustCompile(`name="rev" value="([^"]+)"`)
		first := rev.FindStringSubmatch(v.do(200, "/account/edit"))[1]
		v.do(303, "/account/edit", "rev", first, "name", "ann", "job", "cook")
		page = v.do(409, "/account/edit", "rev", first, "name", "ann", "job", "baker")
		if !strings.Contains(page, "cook") || !strings.Contains(page, `value="baker"`) {
			t.Error("a conflict does not show both values")
		}
		second := rev.FindStringSubmatch(page)[1]
		page = v.do(422, "/account/edit", "rev", second, "name", "a@b", "job", "")
		v.checkProblem(page, "name", "Use letters, digits and single spaces.")
		v.do(303, "/account/edit", "rev", rev.FindStringSubmatch(page)[1], "name", "annie", "job", "")

		other := v.newVisitor()
		other.do(303, "/signin", "identifier", "annie", "password", password)
		v.checkProblem(v.do(422, "/account/password", "old", "wrong", "new", "battery staple horse"), "old", "This is not your current password.")
		v.checkProblem(v.do(422, "/account/password", "old", password, "new", "short"), "new", "At least 8 characters")
		v.do(303, "/account/password", "old", password, "new", "battery staple horse")
		if got, want := v.link("ann@example.com"), v.server.URL+"/forgot"; got != want {
			t.Errorf("the mail about the new password leads to %s, want %s", got, want)
		}
		v.do(200, "/account")
		if to := other.do(303, "/account"); !strings.HasPrefix(to, "/signin?return=") {
			t.Errorf("after a new password another device was redirected to %s, want /signin", to)
		}

		const now = "battery staple horse"
		v.checkProblem(v.do(422, "/account/email", "email", "new@example.com"), "password", "This field is required.")
		v.checkProblem(v.do(422, "/account/email", "email", "new@example.com", "password", password), "password", "This is not your password.")
		v.checkProblem(v.do(422, "/account/email", "email", "no address", "password", now), "email", "This is not an e-mail address.")
		v.do(303, "/account/email", "email", "new@example.com", "password", now)
		links := v.links()
		confirm := links["new@example.com"]
		if !strings.HasSuffix(links["ann@example.com"], "/forgot") || len(links) != 2 {
			t.Errorf("the mails lead to %v, want one to each address", links)
		}
		if page := v.do(200, "/account"); !strings.Contains(page, "ann@example.com") {
			t.Error("the address has changed before it was confirmed")
		}
		v.do(200, confirm)
		v.do(303, "/confirm", "token", tokenOf(confirm))
		v.do(410, confirm)
		if page := v.do(200, "/account"); !strings.Contains(page, "new@example.com") || !strings.Contains(page, "verified") {
			t.Error("the page does not show the new address, or not as verified")
		}

		for _, entered := range []string{" newer@example.com ", "\u3000new@example.com "} {
			want := strings.TrimSpace(entered)
			v.do(303, "/account/email", "email", entered, "password", now)
			links := v.links()
			if links[want] == "" {
				t.Fatalf("%q: the mails go to %v, want one to %s", entered, links, want)
			}
			v.do(303, "/confirm", "token", tokenOf(links[want]))
			e, err := v.s.flows.Users.Find(t.Context(), hints.Any(want))
			must(t, err)
			if got := e.Text("email"); got != want {
				t.Errorf("%q: stored as %q, want %q", entered, got, want)
			}
		}

		other.do(303, "/signin", "identifier", "new@example.com", "password", "battery staple horse")
		ids := regexp.MustCompile(`name="id" value="([^"]+)"`).FindAllStringSubmatch(v.do(200, "/account/devices"), -1)
		if len(ids) != 2 {
			t.Fatalf("got %d devices, want 2", len(ids))
		}
		for range 2 { // the second time, the session has already ended
			v.do(303, "/account/devices", "id", ids[0][1])
			v.do(303, "/account/devices", "id", "made-up")
		}
		v.do(303, "/signin", "identifier", "annie", "password", "battery staple horse")
		v.do(303, "/account/devices", "all", "1")
		v.do(303, "/account")
	})
}

// wantAddresses checks the addresses of an account, in order.
func (v *visitor) wantAddresses(name string, want ...string) {
	v.t.Helper()
	e, err := v.s.flows.Users.Find(v.t.Context(), hints.Any(name))
	must(v.t, err)
	if got := e.Texts("email"); !slices.Equal(got, want) {
		v.t.Errorf("%s has the addresses %q, want %q", name, got, want)
	}
}

// addAddress asks for a link that adds an address to an account whose first address is first. It
// returns the link and the page that is shown, with ADDRESS in place of the address.
func (v *visitor) addAddress(address, first string) (link, page string) {
	v.t.Helper()
	page = v.do(200, v.do(303, "/account/addresses", "do", "add", "email", address, "password", password))
	links := v.links() // also those of the notices to verified addresses
	if !strings.HasSuffix(links[first], "/forgot") || !strings.Contains(links[address], "/add?token=") {
		v.t.Fatalf("got mails with the links %v, want one to %s and one to %s", links, address, first)
	}
	return links[address], strings.ReplaceAll(page, address, "ADDRESS")
}

// TestAddresses adds an address, moves it to the first place and removes the other one.
func TestAddresses(t *testing.T) {
	eachStore(t, func(t *testing.T, v *visitor) {
		const at, first, work = "/account/addresses", "ann@example.com", "ann@work.example"
		v.newVisitor().signUp("bob@example.com", "bob")
		v.signUp(first, "ann")
		v.checkProblem(v.do(422, at, "do", "add", "email", work, "password", "wrong"), "password", "This is not your password.")
		v.checkProblem(v.do(422, at, "do", "add", "email", "no address", "password", password), "email", "This is not an e-mail address.")
		link, page := v.addAddress(work, first)
		_, same := v.addAddress("bob@example.com", first)
		if page != same {
			t.Errorf("the page tells whether somebody has an address:\n%s\n%s", page, same)
		}
		if page := v.do(200, link); !strings.Contains(page, work) {
			t.Error("the page does not show the address that is added")
		}
		v.wantAddresses("ann", first)
		if to := v.do(303, "/add", "token", tokenOf(link)); to != "/account?done=add" {
			t.Errorf("redirected to %s, want /account?done=add", to)
		}
		v.do(410, link)
		// Using that link has also ended the link to bob@example.com.
		taken, _ := v.addAddress("bob@example.com", first)
		v.do(410, "/confirm", "token", tokenOf(taken))
		v.checkProblem(v.do(422, "/add", "token", tokenOf(taken)), "", "Somebody has this already.")
		v.wantAddresses("ann", first, work)
		v.wantAddresses("bob", "bob@example.com")

		v.newVisitor().do(303, "/signin", "identifier", "ANN@work.example", "password", password)
		v.newVisitor().do(303, "/forgot", "identifier", work)
		v.link(work)
		for _, address := range []string{first, "ANN@example.com"} {
			v.checkProblem(v.do(422, at, "do", "remove", "address", address), "", "The first address must be a verified one, and it cannot be removed.")
		}
		v.do(303, at, "do", "first", "address", work)
		v.wantAddresses("ann", work, first)
		if page := v.do(200, at); strings.Count(page, ">verified<") != 2 {
			t.Errorf("the page does not show two verified addresses:\n%s", page)
		}
		v.do(303, at, "do", "remove", "address", first)
		if links := v.links(); len(links) != 2 || !strings.HasSuffix(links[first], "/forgot") || !strings.HasSuffix(links[work], "/forgot") {
			t.Errorf("got notices with the links %v, want one to each address", links)
		}
		v.checkProblem(v.do(422, at, "do", "remove", "address", work), "", "The first address must be a verified one, and it cannot be removed.")
		v.wantAddresses("ann", work)
		v.newVisitor().do(422, "/signin", "identifier", first, "password", password)
		v.newVisitor().signUp(first, "another")
	})
}

// TestUnverifiedAddress checks that an address that was added without verification, as an
// administrator may do, cannot become the first, and is verified in the same way as a new one.
func TestUnverifiedAddress(t *testing.T) {
	eachStore(t, func(t *testing.T, v *visitor) {
		const at, first, given = "/account/addresses", "ann@example.com", "given@example.com"
		v.signUp(first, "ann")
		e, err := v.s.flows.Users.Update(t.Context(), hints.Any("ann"), func(e *userdb.Entry) error { e.AddText("email", given); return nil })
		must(t, err)
		if page := v.do(200, at); strings.Count(page, ">not verified<") != 1 {
			t.Errorf("the page does not show one address as not verified:\n%s", page)
		}
		v.checkProblem(v.do(422, at, "do", "first", "address", given), "", "The first address must be a verified one")
		v.newVisitor().do(422, "/signin", "identifier", given, "password", password)
		link, _ := v.addAddress(given, first)
		v.do(303, "/add", "token", tokenOf(link))
		v.newVisitor().do(303, "/signin", "identifier", given, "password", password)
		v.do(303, at, "do", "first", "address", given)
		v.wantAddresses(e.Text("number"), given, first)
	})
}

// TestFullAddresses checks that an account with as many addresses as the schema allows gets no
// further one, and that the link for it works once another address is removed.
func TestFullAddresses(t *testing.T) {
	eachStore(t, func(t *testing.T, v *visitor) {
		const first = "ann@example.com"
		v.signUp(first, "ann")
		link, _ := v.addAddress("late@example.com", first)
		_, err := v.s.flows.Users.Update(t.Context(), hints.Any("ann"), func(e *userdb.Entry) error {
			for i := range 4 {
				e.AddText("email", fmt.Sprintf("ann%d@example.com", i))
			}
			return nil
		})
		must(t, err)
		if page := v.do(200, "/account/addresses"); !strings.Contains(page, "You have 5 addresses.") || strings.Contains(page, `name="email"`) {
			t.Errorf("the page does not say that there are as many addresses as are allowed:\n%s", page)
		}
		v.checkProblem(v.do(422, "/add", "token", tokenOf(link)), "", "You have this already, or as many as are allowed.")
		v.do(303, "/account/addresses", "do", "remove", "address", "ann1@example.com")
		v.do(303, "/add", "token", tokenOf(link)) // the link is still valid
		v.wantAddresses("ann", first, "ann0@example.com", "ann2@example.com", "ann3@example.com", "late@example.com")
	})
}

// TestEditSavesOnlyChanges checks that a form saves only the fields that were changed in it, even
// after a conflict.
func TestEditSavesOnlyChanges(t *testing.T) {
	eachStore(t, func(t *testing.T, v *visitor) {
		v.signUp("ann@example.com", "ann")
		input := func(page, name string) string {
			t.Helper()
			found := regexp.MustCompile(`name="` + name + `"[^>]* value="([^"]*)"`).FindStringSubmatch(page)
			if found == nil {
				t.Fatalf("no input %s in\n%s", name, page)
			}
			return found[1]
		}
		send := func(want int, page string, changes ...string) string {
			t.Helper()
			form := map[string]string{}
			for _, name := range []string{"rev", "shown-name", "shown-job", "name", "job"} {
				form[name] = input(page, name)
			}
			for i := 0; i < len(changes); i += 2 {
				form[changes[i]] = changes[i+1]
			}
			var all []string
			for name, value := range form {
				all = append(all, name, value)
			}
			return v.do(want, "/account/edit", all...)
		}
		first := v.do(200, "/account/edit")
		send(303, first, "job", "cook")
		conflict := send(409, first, "name", "annie")
		if input(conflict, "job") != "cook" || input(conflict, "name") != "annie" {
			t.Errorf("the form after a conflict has %s and %s, want annie and cook", input(conflict, "name"), input(conflict, "job"))
		}
		send(303, conflict)
		e, err := v.s.flows.Users.Find(t.Context(), hints.Any("ann@example.com"))
		if err != nil || e.Text("name") != "annie" || e.Text("job") != "cook" {
			t.Errorf("the account is %q, %v; want the name annie and the job cook", e.Facets(), err)
		}
	})
}

// TestStrangersMails checks that nobody gets more than three mails an hour because others claim
// their address.
func TestStrangersMails(t *testing.T) {
	eachStore(t, func(t *testing.T, v *visitor) {
		v.signUp("ann@example.com", "ann")
		for range 5 {
			v.do(303, "/account/email", "email", "stranger@example.com", "password", password)
		}
		mails := 0
		v.waitForMails()
		all, _ := filepath.Glob(filepath.Join(v.s.mail, "mail-*"))
		for _, file := range all {
			text, err := os.ReadFile(file)
			must(t, err)
			if strings.HasPrefix(string(text), "To: stranger@example.com\n") {
				mails++
			}
		}
		if mails != 3 {
			t.Errorf("got %d mails to a stranger, want 3", mails)
		}
	})
}

// TestStoreDoesNotAnswer checks that if the store does not answer, signed-in visitors get an error
// page and stay signed in.
func TestStoreDoesNotAnswer(t *testing.T) {
	eachStore(t, func(t *testing.T, v *visitor) {
		v.signUp("ann@example.com", "ann")
		home, err := url.Parse(v.server.URL)
		must(t, err)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for _, path := range []string{"/", "/account", "/admin"} {
			r, w := httptest.NewRequestWithContext(ended, http.MethodGet, path, nil), httptest.NewRecorder()
			for _, c := range v.client.Jar.Cookies(home) {
				r.AddCookie(c)
			}
			v.server.Config.Handler.ServeHTTP(w, r)
			if w.Code != http.StatusServiceUnavailable || w.Header().Get("Set-Cookie") != "" {
				t.Errorf("%s: got %d %v, want 503 and no cookie", path, w.Code, w.Header())
			}
			v.checkProblem(w.Body.String(), "", "The service is not responding.")
		}
		v.do(200, "/account")
	})
}

// TestForgottenPassword checks that a link sets the password once and signs in.
func TestForgottenPassword(t *testing.T) {
	now := time.Now()
	// Time that passes would end the delay after wrong passwords, which begins at one second.
	still := func(c *view.Config) { c.Clock = func() time.Time { return now } }
	eachConfig(t, still, func(t *testing.T, v *visitor) {
		v.signUp("ann@example.com", "ann")
		v = v.newVisitor()
		v.do(303, "/forgot", "identifier", "ANN")
		reset := v.link("ann@example.com")
		v.do(200, reset)
		v.checkProblem(v.do(422, "/reset", "token", tokenOf(reset), "password", "short"), "password", "At least 8 characters")
		v.do(303, "/reset", "token", tokenOf(reset), "password", "battery staple horse")
		v.do(200, "/account")
		v.do(410, reset)
		// This counts as a guess.
		v.do(410, "/reset", "token", tokenOf(reset), "password", "another staple horse")
		v.do(410, "/reset?token=made-up")
		v.do(410, "/reset")
		v = v.newVisitor()
		v.checkProblem(v.do(422, "/signin", "identifier", "ann", "password", password), "", "Wrong name or password.")
		for range 8 {
			v.do(422, "/signin", "identifier", "ann", "password", "wrong")
		}
		v.checkProblem(v.do(429, "/signin", "identifier", "ann", "password", "wrong"), "", "Too many attempts.")
	})
}

// TestAdmin checks that only administrators see the list of accounts, and that they can page
// through it, search it, and disable and enable accounts.
func TestAdmin(t *testing.T) {
	eachStore(t, func(t *testing.T, v *visitor) {
		for i := range 25 {
			_, err := v.s.flows.Users.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("name", fmt.Sprintf("user%02d", i),
				"email", fmt.Sprintf("user%02d@example.com", i), "number", fmt.Sprintf("000000%02d", i)), Password: password})
			must(t, err)
		}
		member := v.newVisitor()
		member.do(303, "/signin", "identifier", "00000007", "password", password)
		member.do(403, "/admin")
		member.do(403, "/admin", "uid", "x", "do", "disable")
		v.newVisitor().do(303, "/admin")
		v.signUp("root@example.com", "root")
		page := v.do(200, "/admin")
		after := regexp.MustCompile(`href="(/admin\?[^"]*after=[^"]+)"`).FindStringSubmatch(page)
		if !strings.Contains(page, "root@example.com") || strings.Contains(page, "user24") || after == nil {
			t.Fatal("the first page shows the wrong accounts or no link to the second")
		}
		if page := v.do(200, strings.ReplaceAll(after[1], "&amp;", "&")); !strings.Contains(page, "user24") || strings.Contains(page, "user01") {
			t.Error("the second page shows the wrong accounts")
		}
		v.do(200, "/admin?after=made-up")
		if page := v.do(200, "/admin?q=user1"); strings.Contains(page, "user09") || !strings.Contains(page, "user19") {
			t.Error("a search by the beginning of a name shows the wrong accounts")
		}
		page = v.do(200, "/admin?q=USER07@example.com")
		if !strings.Contains(page, "user07") || strings.Contains(page, "user08") {
			t.Error("a search by an identifier shows the wrong accounts")
		}
		uid := regexp.MustCompile(`name="uid" value="([^"]+)"`).FindStringSubmatch(page)[1]
		to := v.do(303, "/admin?q=USER07@example.com&after=", "uid", uid, "do", "disable")
		if page := v.do(200, to); !strings.Contains(page, "Enable") || !strings.Contains(page, "The account is disabled.") {
			t.Error("the page does not show that the account is disabled")
		}
		member.do(303, "/account")
		member.do(422, "/signin", "identifier", "user07", "password", password)
		v.do(303, "/admin", "uid", uid, "do", "enable")
		member.do(303, "/signin", "identifier", "user07", "password", password)
		v.do(410, "/admin", "uid", "nobody", "do", "disable")
	})
}

// TestSecondFactor adds an app and signs in with it, and with a recovery code.
func TestSecondFactor(t *testing.T) {
	eachStore(t, func(t *testing.T, v *visitor) {
		v.signUp("ann@example.com", "ann")
		page := v.do(200, "/account/security", "do", "add", "label", "phone")
		form := []string{"do", "confirm"}
		for _, name := range []string{"id", "uri"} {
			value := regexp.MustCompile(`name="` + name + `" value="([^"]+)"`).FindStringSubmatch(page)
			if value == nil || !strings.Contains(page, `<svg class="qr" role="img"`) {
				t.Fatalf("the page lacks the QR code or the input %s:\n%s", name, page)
			}
			form = append(form, name, html.UnescapeString(value[1]))
		}
		app, err := url.Parse(form[5])
		must(t, err)
		secret, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(app.Query().Get("secret"))
		must(t, err)
		if got := app.Query().Get("issuer") + app.Path; got != "Webapp/Webapp:ann@example.com" {
			t.Errorf("the app shows %s, want the site and the address", got)
		}
		step := totp.Step(time.Now())
		page = v.do(200, "/account/security", append(form, "code", totp.Code(secret, step))...)
		codes := regexp.MustCompile(`<li><code>([^<]+)</code>`).FindAllStringSubmatch(page, -1)
		if len(codes) != 10 {
			t.Fatalf("got %d recovery codes, want 10:\n%s", len(codes), page)
		}
		v.links() // the mail about the new app
		for _, code := range [][]string{{"code", totp.Code(secret, step+1)}, {"recovery", codes[9][1]}} {
			v = v.newVisitor()
			v.do(303, "/signin", "identifier", "ann", "password", password)
			v.do(303, "/account")
			v.do(200, "/signin/code")
			v.do(303, "/signin/code", code...)
			v.do(200, "/account")
		}
	})
}

// TestOtherSites checks that forms from other sites and large requests are refused.
func TestOtherSites(t *testing.T) {
	eachStore(t, func(t *testing.T, v *visitor) {
		req, err := http.NewRequestWithContext(t.Context(), "POST", v.server.URL+"/signup", strings.NewReader("email=ann%40example.com"))
		must(t, err)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Sec-Fetch-Site", "cross-site")
		resp, err := v.client.Do(req)
		must(t, err)
		must(t, resp.Body.Close())
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("another site's form: got %s, want 403", resp.Status)
		}
		if left, _ := filepath.Glob(filepath.Join(v.s.mail, "*")); len(left) > 0 {
			t.Errorf("another site's form sent the mails %q", left)
		}
		v.do(400, "/signup", "email", strings.Repeat("x", 100_000))
		v.do(404, "/nowhere")
		v.do(405, "/signout")
	})
}

// TestLines checks that the example stays short.
func TestLines(t *testing.T) {
	text, err := os.ReadFile("main.go")
	must(t, err)
	if n := strings.Count(string(text), "\n"); n > 220 {
		t.Errorf("main.go has %d lines, want at most 220", n)
	}
}

// TestTerminate starts the example, lets visitors sign up, and sends SIGTERM to the example. It
// must end without an error, after it has sent all mails.
func TestTerminate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childFlags+"=--listen 127.0.0.1:0 --mail "+dir)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	base, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("got %q, %v; want the address", line, err)
	}
	const visitors = 20
	for i := range visitors {
		resp, err := http.PostForm(base+"/signup", url.Values{"email": {fmt.Sprintf("v%d@example.com", i)}})
		must(t, err)
		must(t, resp.Body.Close())
		if resp.Request.URL.Path != "/sent" {
			t.Fatalf("got %s at %s, want /sent", resp.Status, resp.Request.URL.Path)
		}
	}
	begin := time.Now()
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil || time.Since(begin) > 15*time.Second {
		t.Errorf("ended with %v after %s, want no error within 15 seconds", err, time.Since(begin))
	}
	mails, err := filepath.Glob(filepath.Join(dir, "mail-*.txt"))
	if must(t, err); len(mails) != visitors {
		t.Errorf("%d mails were sent, want %d", len(mails), visitors)
	}
}
