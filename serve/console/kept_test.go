package console

import (
	"context"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// hiddenInputs returns the hidden inputs of the form in a page that is sent to action, as names and
// values in turn.
func hiddenInputs(t *testing.T, page, action string) (form []string) {
	t.Helper()
	_, rest, is := strings.Cut(page, `action="`+html.EscapeString(action)+`"`)
	if !is {
		t.Fatalf("no form is sent to %s in\n%s", action, page)
	}
	rest, _, _ = strings.Cut(rest, "</form>")
	for _, in := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`).FindAllStringSubmatch(rest, -1) {
		form = append(form, html.UnescapeString(in[1]), html.UnescapeString(in[2]))
	}
	return form
}

// endSessions ends all sessions of an operator.
func (d *testConsole) endSessions(name string) {
	d.t.Helper()
	_, err := d.console.operators.EndSessions(d.t.Context(), hints.Field(admin.OperatorName, name))
	must(d.t, err)
}

// TestFormAfterSession checks that an operator whose session has ended signs in on the page that
// answers a form, and then sends the form with one click, and that no other operator gets it.
func TestFormAfterSession(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		_, err := newOperator(t, d, "Paul")
		must(t, err)
		e := d.createAccount("u1", "name", "Alice", "job", "cook")
		const at = "/console/types/user/u1"
		form := []string{"rev", e.Rev(), shownName("bio"), "", "bio", "<two>\r\nlines & more", "name", "Alice", shownName("name"), "Alice"}
		end := func(form ...string) (carried []string) {
			t.Helper()
			d.endSessions(operatorName)
			page := d.do(http.StatusUnauthorized, at, form...)
			d.wantText(page, "You are no longer signed in")
			d.wantNoText(page, "Sign out")
			return hiddenInputs(t, page, "/console/signin")
		}
		carried := end(form...)
		d.do(http.StatusUnauthorized, "/console/signin", append(carried, "name", operatorName, "password", "wrong")...)
		page := d.do(http.StatusOK, "/console/signin", append(carried, "name", operatorName, "password", goodPassword)...)
		d.wantText(page, "It has not been sent yet.")
		paul := d.newBrowser() // another tab
		paul.signIn("Paul", goodPassword)
		d.wantText(paul.do(http.StatusForbidden, at, hiddenInputs(t, page, at)...), "as another operator")
		d.do(http.StatusSeeOther, at, hiddenInputs(t, page, at)...)
		if e, err = d.users.Find(t.Context(), hintOf("u1")); err != nil || e.Text("bio") != "<two>\nlines & more" {
			t.Errorf("the account has the text %q (%v), want what was entered", e.Text("bio"), err)
		}

		carried = end("rev", e.Rev(), "job", "chef", shownName("job"), "cook")
		other := d.newBrowser()
		if to := other.do(http.StatusSeeOther, "/console/signin", append(carried, "name", "Paul", "password", goodPassword)...); to != "/console" {
			t.Errorf("another operator is sent to %q, want /console", to)
		}
		d.signIn(operatorName, goodPassword)

		// Two steps.
		a, _ := d.addFactor()
		carried = end("rev", e.Rev(), "job", "chef", shownName("job"), "cook")
		admit := d.console.options.Admit
		d.console.options.Admit = func(_ context.Context, w Work) (func(), error) {
			if w == WorkSignIn {
				return nil, userdb.ErrUnavailable
			}
			return func() {}, nil
		}
		for _, path := range []string{"/console/signin", codePath} {
			page = d.do(http.StatusServiceUnavailable, path, append(carried, "name", operatorName, "password", goodPassword)...)
			if got := hiddenInputs(t, page, "/console/signin"); !slices.Equal(got, carried) {
				t.Errorf("%s without capacity: the page carries %q, want %q", path, got, carried)
			}
		}
		d.console.options.Admit = admit
		page = d.do(http.StatusOK, "/console/signin", append(carried, "name", operatorName, "password", goodPassword)...)
		page = d.do(http.StatusOK, codePath, append(hiddenInputs(t, page, codePath), "code", a.code(t, 1))...)
		d.do(http.StatusSeeOther, at, hiddenInputs(t, page, at)...)
		if e, err = d.users.Find(t.Context(), hintOf("u1")); err != nil || e.Text("job") != "chef" {
			t.Errorf("the account has the job %q (%v), want what was entered", e.Text("job"), err)
		}
	})
}

// TestNoSecretIsKept checks that no page carries passwords, codes or files, and that a form that is
// too long, stalls, or comes from a script is not carried.
func TestNoSecretIsKept(t *testing.T) {
	defer func(before time.Duration) { visitorTimeout = before }(visitorTimeout)
	d := open(t, "memory:")
	d.createAccount("u1", "name", "Alice")
	d.endSessions(operatorName)
	const at = "/console/types/user/u1"
	for _, form := range [][]string{
		{"add", "vip", verifyName, "my secret horse", codeName, "my secret horse"},
		{packedName, url.Values{"add": {"vip"}, verifyName: {"my secret horse"}, codeName: {"my secret horse"}}.Encode(), "passkey", "my secret horse"},
	} {
		page := d.do(http.StatusUnauthorized, at+"/tags", form...)
		if got := hiddenInputs(t, page, "/console/signin"); strings.Contains(page, "horse") || len(got) != 6 || got[5] != "vip" {
			t.Errorf("%q: the page carries %q, want the path, the owner and the tag only:\n%s", form, got, page)
		}
	}
	if to := d.do(http.StatusSeeOther, at+"/password", "password", "my secret horse"); to != "/console/signin" {
		t.Errorf("a form with nothing but a password leads to %q, want /console/signin", to)
	}
	if to := d.do(http.StatusSeeOther, at, "bio", strings.Repeat("x", maxKept)); to != "/console/signin" {
		t.Errorf("a long form leads to %q, want /console/signin", to)
	}
	request := func(body io.Reader) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.base+at, body)
		must(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return r
	}
	r := request(strings.NewReader("bio=x"))
	r.Header.Set("Sec-Fetch-Mode", "cors")
	answer, err := d.client.Do(r)
	must(t, err)
	answer.Body.Close()
	if kind := answer.Header.Get("Content-Type"); answer.StatusCode != http.StatusUnauthorized || !strings.HasPrefix(kind, "application/problem+json") {
		t.Errorf("a script gets %s and %s, want 401 and a problem", answer.Status, kind)
	}
	visitorTimeout = 50 * time.Millisecond
	body, rest := io.Pipe()
	defer rest.Close()
	go func() { _, _ = io.WriteString(rest, "b") }()
	if to := d.send(http.StatusSeeOther, request(body)); to != "/console/signin" {
		t.Errorf("a form that stalls leads to %q, want /console/signin", to)
	}
}

// TestSlowFormsTakeNoCapacity checks that a form of somebody who may not be signed in does not keep
// the capacity for looking up sessions while it arrives.
func TestSlowFormsTakeNoCapacity(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t))
	d := open(t, proxy.URL())
	left := make(chan struct{}, 10)
	d.console.options.Admit = func(context.Context, Work) (func(), error) {
		return sync.OnceFunc(func() { left <- struct{}{} }), nil
	}
	send := func(want int) {
		t.Helper()
		body, rest := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.base+"/console/keys", body)
		must(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		go func() {
			_, _ = io.WriteString(rest, "name=sh")
			<-left
			_, _ = io.WriteString(rest, "op")
			rest.Close()
		}()
		if page := d.send(want, r); !strings.Contains(page, `name" value="shop"`) {
			t.Errorf("the page does not carry the form:\n%s", page)
		}
	}
	d.endSessions(operatorName)
	send(http.StatusUnauthorized)
	proxy.CutRequests(1<<30, "")
	send(http.StatusServiceUnavailable)
	proxy.Pass()
}

// TestFormWithoutStore checks that a form that arrives while the server is down comes back, without
// passwords, and can be sent again.
func TestFormWithoutStore(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t))
	d := open(t, proxy.URL())
	e := d.createAccount("u1", "name", "Alice")
	const at = "/console/types/user/u1"
	proxy.CutRequests(1<<30, "")
	page := d.do(http.StatusServiceUnavailable, at, "rev", e.Rev(), shownName("bio"), "", "bio", "a long text")
	d.wantText(page, "The store is not responding", "What you entered is still here")
	if form := hiddenInputs(t, page, at); !slices.Contains(form, ownerInput) {
		t.Errorf("the form does not say whose it is: %q", form)
	}
	if secret := d.do(http.StatusServiceUnavailable, at+"/password", "password", "my secret horse"); strings.Contains(secret, "horse") {
		t.Errorf("the page has a password:\n%s", secret)
	}
	signIn := d.newBrowser().do(http.StatusServiceUnavailable, "/console/signin", "name", operatorName, "password", "my secret horse")
	if strings.Contains(signIn, "Send it again") {
		t.Errorf("the sign-in offers to send a form without its password again:\n%s", signIn)
	}
	proxy.Pass()
	d.do(http.StatusSeeOther, at, hiddenInputs(t, page, at)...)
	if e, err := d.users.Find(t.Context(), hintOf("u1")); err != nil || e.Text("bio") != "a long text" {
		t.Errorf("the account has the text %q (%v), want what was entered", e.Text("bio"), err)
	}
}

// TestDoubleClicks sends forms twice, as a double click does. The answer to the second form, which
// browsers show, does not report a conflict with the first, or says plainly what is so.
func TestDoubleClicks(t *testing.T) {
	d := open(t, "memory:")
	e := d.createAccount("u1", "name", "Alice", "email", "alice@example.com")
	const at = "/console/types/user/u1"
	twice := func(path string, form ...string) {
		t.Helper()
		for range 2 {
			if to := d.do(http.StatusSeeOther, path, form...); to != at+"?done=saved" {
				t.Errorf("%s leads to %q, want the account", path, to)
			}
		}
	}
	twice(at, "rev", e.Rev(), "bio", "first\r\nsecond", shownName("bio"), "")
	e, err := d.users.Find(t.Context(), hintOf("u1"))
	must(t, err)
	twice(at, "rev", e.Rev(), "name", "Alicia", shownName("name"), "Alice", confirmName, "true")
	d.wantText(d.do(http.StatusConflict, at, "rev", e.Rev(), "name", "Alina", shownName("name"), "Alice", confirmName, "true"), "Stored now: Alicia")
	e, err = d.users.Find(t.Context(), hintOf("u1"))
	must(t, err)
	twice(at+"/values", "rev", e.Rev(), "field", "email", "do", "add", "value", "alice2@example.com", confirmName, "true")

	d.do(http.StatusOK, "/console/keys", "name", "shop", "scope", "read")
	d.wantText(d.do(http.StatusConflict, "/console/keys", "name", "shop", "scope", "read"), "There is a key with this name. Its secret is not shown again")
	d.do(http.StatusSeeOther, "/console/keys/revoke", "name", "shop")
	d.wantText(d.do(http.StatusNotFound, "/console/keys/revoke", "name", "shop"), "API keys", "There is no such key.")
	d.wantText(d.do(http.StatusNotFound, at+"/factors", "id", "nosuch"), "Alicia", "The account does not have this part")
	for _, want := range []string{"The account has been deleted.", "There is no such account"} {
		d.wantText(d.do(http.StatusOK, d.post(http.StatusSeeOther, at+"/delete")), want)
	}
}

// TestSetupTwice sends the form for the first operator twice. The answer to the second form, which
// browsers show after a double click, leads to the sign-in. It checks no password: the answer would
// come later if there is an operator with the name.
func TestSetupTwice(t *testing.T) {
	calls := &callCounter{}
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{Schema: testSchema(), Observers: []userdb.Observer{calls}})
	must(t, err)
	defer db.Close()
	token, err := admin.BeginSetup(t.Context(), db)
	must(t, err)
	d := newTestConsole(t, db)
	form := []string{"token", token, "name", "root", "password", goodPassword}
	d.do(http.StatusSeeOther, "/console/setup", form...)
	calls.reset()
	b := d.newBrowser()
	d.wantText(b.do(http.StatusGone, "/console/setup", form...), "that may have created you already", "Sign in")
	b.do(http.StatusSeeOther, "/console/find")
	if made := calls.reset(); made["Login"] > 0 {
		t.Errorf("the second form made the calls %v, want no login", made)
	}
}

// TestRefusedTagStays checks that a tag that is refused stays in its input.
func TestRefusedTagStays(t *testing.T) {
	d := open(t, "memory:")
	d.createAccount("u1", "name", "Alice")
	long := strings.Repeat("x", 2000)
	page := d.do(http.StatusUnprocessableEntity, "/console/types/user/u1/tags", "add", long)
	if got := inputValue(page, "add"); got != long {
		t.Errorf("the input has %q, want what was entered", got)
	}
}
