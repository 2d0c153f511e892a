package console

import (
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/hashcost"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

func TestMain(m *testing.M) { os.Exit(hashcost.Cheap(m)) }

const (
	operatorName = "Olga"
	goodPassword = "correct horse battery"
	resetLink    = "https://shop.example/reset?token={secret}"
)

// testSchema returns the schema of the tests: the built-in one with everything that pages can show.
func testSchema() schema.Schema {
	s := schema.User()
	t := s.Types["user"]
	t.Factors = true
	email := t.Fields["email"]
	email.Many = 3
	t.Fields["email"] = email
	t.Fields["job"] = schema.Field{Role: schema.RoleIndexed}
	t.Fields["age"] = schema.Field{Role: schema.RoleOrdered, Codec: schema.CodecNumber}
	t.Fields["news"] = schema.Field{Codec: schema.CodecBoolean}
	t.Fields["bio"] = schema.Field{}
	t.Tertiary = map[string]schema.Tertiary{"tags": {Kind: "set", Indexed: true}}
	s.Types["user"] = t
	return s
}

// A testConsole is a console with an operator's browser.
type testConsole struct {
	t       *testing.T
	db      *userdb.DB
	users   *userdb.Type
	console *Console
	calls   *callCounter
	base    string
	client  *http.Client
}

// eachStore runs a test with a console whose accounts are in memory, and with one on Redis.
func eachStore(t *testing.T, test func(t *testing.T, d *testConsole)) {
	t.Helper()
	eachStoreBy(t, open, test)
}

// eachStillStore does the same as eachStore, with stores whose clocks stand still. All that happens
// then happens in the same hour.
func eachStillStore(t *testing.T, test func(t *testing.T, d *testConsole)) {
	t.Helper()
	eachStoreBy(t, openStill, test)
}

func eachStoreBy(t *testing.T, open func(t *testing.T, store string) *testConsole, test func(t *testing.T, d *testConsole)) {
	t.Helper()
	for _, store := range []string{"memory", "redis"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			at := "memory:"
			if store == "redis" {
				server := redistest.Start(t)
				_, rights := redistest.Rights(t)
				at = redistest.Restrict(t, server.Client(), rights).URLOf(server)
			}
			test(t, open(t, at))
		})
	}
}

// newTestConsole returns a console for the namespace of db, with a browser in which nobody is
// signed in.
func newTestConsole(t *testing.T, db *userdb.DB) *testConsole {
	t.Helper()
	users, err := db.Type("user")
	must(t, err)
	c, err := New(db, Options{Namespace: view.Of(db).NS.Path(), View: func(context.Context) (*userdb.DB, error) { return db, nil }, ResetLink: resetLink, Passkeys: passkeyConfig(), OnFailure: func(r *http.Request, err error) {
		t.Logf("%s %s failed: %v", r.Method, r.URL.Path, err)
	}})
	must(t, err)
	t.Cleanup(func() { c.Close(context.Background()) })
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	return (&testConsole{t: t, db: db, users: users, console: c, base: server.URL}).newBrowser()
}

// open returns a console with a store of its own, whose first operator is signed in.
func open(t *testing.T, store string) *testConsole {
	t.Helper()
	return openWith(t, store, true)
}

// openWith does the same as open, and sets whether histories are kept.
func openWith(t *testing.T, store string, history bool) *testConsole {
	t.Helper()
	return openSchema(t, store, testSchema(), history)
}

// openSchema does the same as openWith, with another schema.
func openSchema(t *testing.T, store string, sc schema.Schema, history bool) *testConsole {
	t.Helper()
	return openConfig(t, store, sc, history, func(*view.Config) {})
}

// openStill does the same as open, with a store whose clock stands still. Otherwise the delay after
// wrong passwords, which begins at one second, may end before a page is read.
func openStill(t *testing.T, store string) *testConsole {
	t.Helper()
	now := time.Now()
	return openConfig(t, store, testSchema(), true, func(c *view.Config) { c.Clock = func() time.Time { return now } })
}

// openConfig does the same as openSchema, and calls edit to change the store's configuration.
func openConfig(t *testing.T, store string, sc schema.Schema, history bool, edit func(*view.Config)) *testConsole {
	t.Helper()
	calls := &callCounter{}
	db, err := userdb.Open(t.Context(), store, userdb.Options{Schema: sc, History: history, Observers: []userdb.Observer{calls}, Keys: [][]byte{make([]byte, 32)}})
	must(t, err)
	t.Cleanup(func() {
		for p, err := range check.Run(context.Background(), db, check.Options{}) {
			if err != nil || p.Severity == check.SeverityError {
				t.Errorf("the check found %v, %v", p, err)
			}
		}
		must(t, db.Close())
	})
	edited, err := view.Reconfigure(db, edit)
	must(t, err)
	d := newTestConsole(t, edited)
	d.calls = calls
	_, err = admin.AddOperator(t.Context(), db, operatorName, goodPassword)
	must(t, err)
	d.signIn(operatorName, goodPassword)
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// skipUnderRace skips a test whose thousands of changes, one after the other, take most of a minute
// with the race detector.
func skipUnderRace(t *testing.T) {
	if testdb.RaceEnabled {
		t.Skip("one caller makes all changes, and the race detector slows it down")
	}
}

// newBrowser returns another browser at the same console.
func (d *testConsole) newBrowser() *testConsole {
	jar, _ := cookiejar.New(nil)
	o := *d
	o.client = &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &o
}

func (d *testConsole) signIn(name, password string) {
	d.t.Helper()
	if to := d.do(http.StatusSeeOther, "/console/signin", "name", name, "password", password); to != "/console" {
		d.t.Fatalf("signing in redirects to %q, want /console", to)
	}
}

func (d *testConsole) createAccount(uid string, facets ...string) userdb.Entry {
	d.t.Helper()
	all := schema.Texts(facets...)
	for field, v := range all {
		v, err := schema.ParseText(testSchema().Types["user"].Codec(field), v.Text())
		must(d.t, err)
		all[field] = v
	}
	e, err := d.users.Create(d.t.Context(), userdb.NewEntry{UID: uid, Facets: all, Password: goodPassword})
	must(d.t, err)
	return e
}

// do sends a POST with the form or, without a form, a GET. It checks the status of the response,
// and returns the body or, after a redirect, its target.
func (d *testConsole) do(want int, path string, form ...string) string {
	d.t.Helper()
	method, values := http.MethodGet, url.Values{}
	for i := 0; i+1 < len(form); i += 2 {
		method = http.MethodPost
		values.Add(form[i], form[i+1])
	}
	r, err := http.NewRequestWithContext(d.t.Context(), method, d.base+path, strings.NewReader(values.Encode()))
	must(d.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return d.send(want, r)
}

// post sends a form without fields.
func (d *testConsole) post(want int, path string) string {
	d.t.Helper()
	return d.do(want, path, "", "")
}

func (d *testConsole) send(want int, r *http.Request) string {
	d.t.Helper()
	answer, err := d.client.Do(r)
	must(d.t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	must(d.t, err)
	if answer.StatusCode != want {
		d.t.Errorf("%s %s: got %s, want %d\n%s", r.Method, r.URL.Path, answer.Status, want, body)
	}
	for _, name := range []string{"Content-Security-Policy", "X-Frame-Options", "X-Content-Type-Options"} {
		if answer.Header.Get(name) == "" {
			d.t.Errorf("%s has no header %s", r.URL.Path, name)
		}
	}
	for _, link := range regexp.MustCompile(` href="#([^"]+)"`).FindAllStringSubmatch(string(body), -1) {
		if !strings.Contains(string(body), ` id="`+link[1]+`"`) {
			d.t.Errorf("%s links to #%s, which it does not contain", r.URL.Path, link[1])
		}
	}
	policy := "same-origin"
	if r.URL.Query().Has("token") {
		policy = "strict-origin" // the address holds a secret
	}
	if got := answer.Header.Get("Referrer-Policy"); got != policy {
		d.t.Errorf("%s: the Referrer-Policy is %q, want %q", r.URL.Path, got, policy)
	}
	if to := answer.Header.Get("Location"); to != "" {
		return to
	}
	return string(body)
}

// wantText checks that the text of a page, as readers see it, contains some texts.
func (d *testConsole) wantText(body string, texts ...string) {
	d.t.Helper()
	words := pageText(body)
	for _, text := range texts {
		if !strings.Contains(words, text) {
			d.t.Errorf("there is no %q in\n%s", text, words)
		}
	}
}

func (d *testConsole) wantNoText(body string, texts ...string) {
	d.t.Helper()
	words := pageText(body)
	for _, text := range texts {
		if strings.Contains(words, text) {
			d.t.Errorf("there is %q in\n%s", text, words)
		}
	}
}

var tags, spaces = regexp.MustCompile(`<[^>]*>`), regexp.MustCompile(`\s+`)

func pageText(body string) string {
	return strings.TrimSpace(spaces.ReplaceAllString(html.UnescapeString(tags.ReplaceAllString(body, "")), " "))
}

func inputValue(body, name string) string {
	found := regexp.MustCompile(`<input[^>]* name="` + regexp.QuoteMeta(name) + `"[^>]* value="([^"]*)"`).FindStringSubmatch(body)
	if found == nil {
		return "there is no such input"
	}
	return html.UnescapeString(found[1])
}

// history returns the history of an account, the latest event first, as "KIND WHO".
func (d *testConsole) history(uid string) (all []string) {
	d.t.Helper()
	e, err := d.users.Find(d.t.Context(), hintOf(uid))
	must(d.t, err)
	events, err := d.users.History(d.t.Context(), hintOf(e.UID()))
	must(d.t, err)
	for _, e := range events {
		all = append(all, fmt.Sprint(e.Kind, " ", e.Actor))
	}
	return all
}

// newOperator creates another operator.
func newOperator(t *testing.T, d *testConsole, name string) (userdb.Entry, error) {
	t.Helper()
	return admin.AddOperator(t.Context(), d.db, name, goodPassword)
}

// TestStalledForms checks that the form of somebody who is not signed in must arrive within a short
// time, even if the server allows more.
func TestStalledForms(t *testing.T) {
	defer func(before time.Duration) { visitorTimeout = before }(visitorTimeout)
	d := open(t, "memory:")
	visitorTimeout = 50 * time.Millisecond
	for _, path := range []string{"/console/signin", "/console/setup"} {
		body, rest := io.Pipe()
		go func() { _, _ = io.WriteString(rest, "n") }()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.base+path, body)
		must(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		d.wantText(d.newBrowser().send(http.StatusBadRequest, r), "This form cannot be read")
		rest.Close()
	}
}

// advance sets the clock of the store, as the console sees it, ahead of this process's clock.
func (d *testConsole) advance(by time.Duration) {
	d.console.now = func(context.Context, userdb.Entry) (time.Time, error) { return time.Now().Add(by), nil }
}
