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
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestActions checks that each form of an account does one thing, and that the history of the
// account names the operator.
func TestActions(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		e := d.createAccount("u1", "name", "Alice", "email", "alice@example.com")
		_, secret, err := d.users.StartSession(t.Context(), e, userdb.SessionOptions{Agent: "Firefox on a train", Origin: "192.0.2.7"})
		must(t, err)
		const at = "/console/types/user/u1"
		d.wantText(d.do(http.StatusOK, at+"?tab=devices"), "Firefox on a train", "from 192.0.2.7", "They can sign in")
		for _, action := range []struct{ path, done, kind string }{
			{"/sessions/end", "The sessions have ended.", "session_end"},
			{"/disable", "is disabled", "disable"},
			{"/enable", "may sign in again", "enable"},
			{"/waits", "has been reset", ""},
		} {
			to := d.post(http.StatusSeeOther, at+action.path)
			if !strings.HasPrefix(to, at+"?done=") {
				t.Errorf("%s redirects to %q, want the account with a message", action.path, to)
			}
			d.wantText(d.do(http.StatusOK, to), action.done)
			if past := d.history("u1"); action.kind != "" && past[0] != action.kind+" operator:"+operatorName {
				t.Errorf("after %s the history begins with %q, want %s", action.path, past[0], action.kind)
			}
		}
		if _, _, err := d.users.Session(t.Context(), secret); !isAny(err, userdb.ErrNotFound) {
			t.Errorf("the session has the error %v, want ErrNotFound", err)
		}
		body := d.do(http.StatusUnprocessableEntity, at+"/password", "password", "short")
		d.wantText(body, "At least 8 characters.")
		if strings.Contains(body, `value="short"`) {
			t.Error("the password is shown")
		}
		d.wantText(d.do(http.StatusOK, d.do(http.StatusSeeOther, at+"/password", "password", "another long password")), "The password has been set.")
		_, err = d.users.Login(t.Context(), "alice", "another long password", userdb.Attempt{})
		must(t, err)
		d.do(http.StatusSeeOther, at+"/tags", "add", "admin")
		d.do(http.StatusSeeOther, at+"/tags", "add", "<b>vip</b>")
		d.wantText(d.do(http.StatusOK, at), "admin", "<b>vip</b>")
		d.do(http.StatusSeeOther, at+"/tags", "remove", "admin")
		_, err = d.users.Tags(hintOf("u1")).Add(t.Context(), "two\nlines")
		must(t, err)
		d.do(http.StatusSeeOther, at+"/tags", "remove", "two\r\nlines") // as browsers send it
		if tags, err := d.users.Tags(hintOf("u1")).Members(t.Context()); err != nil || !slices.Equal(tags, []string{"<b>vip</b>"}) {
			t.Errorf("the tags are %q, %v; want only the vip tag", tags, err)
		}
		d.wantText(d.do(http.StatusNotFound, "/console/types/user/nobody/disable", "", ""), "Page not found")
		d.do(http.StatusNotFound, "/console/types/nothing/u1")
	})
}

// TestOneDevice checks that ending one session leaves the others.
func TestOneDevice(t *testing.T) {
	d := open(t, "memory:")
	e := d.createAccount("u1", "name", "Alice")
	kept, secret, err := d.users.StartSession(t.Context(), e, userdb.SessionOptions{})
	must(t, err)
	gone, _, err := d.users.StartSession(t.Context(), e, userdb.SessionOptions{})
	must(t, err)
	for range 2 { // the second time it has ended already
		to := d.do(http.StatusSeeOther, "/console/types/user/u1/sessions/end", "id", gone.ID)
		d.wantText(d.do(http.StatusOK, to), "The device has been signed out.", "An unknown device")
	}
	if _, s, err := d.users.Session(t.Context(), secret); err != nil || s.ID != kept.ID {
		t.Errorf("the other session: got %+v, %v; want %s", s, err, kept.ID)
	}
}

// TestLinks checks that a link is shown once, leads to the configured address, and becomes invalid
// when the account's mail address changes. Disabled accounts get no links.
func TestLinks(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		d.createAccount("u1", "name", "Alice", "email", "alice@example.com")
		const at = "/console/types/user/u1"
		body := d.post(http.StatusOK, at+"/tokens")
		d.wantText(body, "This link is shown only once. Send it to alice@example.com.", "is unused and valid until")
		link := regexp.MustCompile(`https://shop\.example/reset\?token=([\w-]+)`).FindStringSubmatch(body)
		if link == nil {
			t.Fatal("there is no link in", pageText(body))
		}
		if again := d.do(http.StatusOK, at); strings.Contains(again, link[1]) {
			t.Error("the link is shown twice")
		}
		_, err := d.users.ResetPassword(t.Context(), "reset", link[1], "another long password")
		must(t, err)
		d.wantText(d.do(http.StatusOK, at), "A reset link was issued", "it was used at")
		d.do(http.StatusOK, at+"/tokens", "life", "24h", "field", "email")
		_, err = d.users.Update(t.Context(), hintOf("u1"), func(e *userdb.Entry) error { e.Put("email", schema.Text("alice@example.org")); return nil })
		must(t, err)
		d.wantText(d.do(http.StatusOK, at), "became invalid when email was changed")
		d.post(http.StatusSeeOther, at+"/disable")
		d.wantText(d.do(http.StatusUnprocessableEntity, at+"/tokens", "purpose", "reset"), "a disabled account cannot have links")
	})
}

// TestEdit checks that a form is saved only over the revision that it shows.
func TestEdit(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		d.createAccount("u1", "name", "Alice", "email", "alice@example.com", "bio", "two\nlines", "job", "baker")
		d.createAccount("u2", "name", "Bob", "email", "bob@example.com")
		const at = "/console/types/user/u1"
		rev := inputValue(d.do(http.StatusOK, at), "rev")
		whole := func(pairs ...string) []string {
			return append([]string{"rev", rev, "name", "Alice", "email", "alice@example.com", "bio", "two\r\nlines", "job", "baker", "age", "", "news", ""}, pairs...)
		}
		d.do(http.StatusSeeOther, at, whole()...)
		if e, err := d.users.Find(t.Context(), hintOf("u1")); err != nil || e.Rev() != rev {
			t.Errorf("a form that was not touched changed the account: %v", err)
		}
		d.wantText(d.do(http.StatusUnprocessableEntity, at, "rev", rev, "email", "no address", "age", "old", "name", ""), "This is not an e-mail address.", "This is not a number.")
		body := d.do(http.StatusConflict, at, "rev", rev, "email", "BOB@example.com", "job", "cook")
		d.wantText(body, "Somebody has this already.", "bob@example.com is the email of Bob", "user/email:bob@example.com/~prk points to user/uid:u2")
		if inputValue(body, "email") != "BOB@example.com" || inputValue(body, "job") != "cook" || inputValue(body, "rev") != rev {
			t.Errorf("the page lost what was entered:\n%s", body)
		}
		to := d.do(http.StatusSeeOther, at, "rev", rev, "job", "cook", "age", "42", "news", "true", "bio", "")
		d.wantText(d.do(http.StatusOK, to), "The account has been changed.")
		e, err := d.users.Find(t.Context(), hintOf("u1"))
		must(t, err)
		age, _ := e.Get("age")
		news, _ := e.Get("news")
		if _, has := e.Get("bio"); has || age != schema.Number(42) || news != schema.Bool(true) || e.Text("job") != "cook" || e.Text("name") != "Alice" {
			t.Errorf("the saved form stored %v, want no bio and what the form has", e.Facets())
		}
		if past := d.history("u1"); past[0] != "update operator:"+operatorName {
			t.Errorf("the history begins with %q, want update", past[0])
		}
		body = d.do(http.StatusConflict, at, "rev", rev, "job", "smith", "age", "42")
		d.wantText(body, "Somebody else has changed this account in the meantime.", "Stored now: cook")
		if inputValue(body, "job") != "smith" || inputValue(body, "rev") != e.Rev() {
			t.Errorf("a conflict shows %q at %q, want what was entered at the newest rev", inputValue(body, "job"), inputValue(body, "rev"))
		}
		d.do(http.StatusSeeOther, at, "rev", e.Rev(), "job", "smith")
	})
}

// TestEditMistyped checks that a form is refused, and shown again with what was entered, if the
// codec of a field cannot parse its text. A text of valid JSON must be saved.
func TestEditMistyped(t *testing.T) {
	s := testSchema()
	s.Types["user"].Fields["prefs"] = schema.Field{Codec: schema.CodecJSON}
	d := openSchema(t, "memory:", s, true)
	prefs, err := schema.JSON([]byte(`{"a":1}`))
	must(t, err)
	_, err = d.users.Create(t.Context(), userdb.NewEntry{UID: "u1", Facets: schema.Facets{"name": schema.Text("Alice"), "prefs": prefs}})
	must(t, err)
	const at = "/console/types/user/u1"
	rev := inputValue(d.do(http.StatusOK, at), "rev")
	for field, entered := range map[string]string{"prefs": `{"a":1`, "age": "old", "news": "yes"} {
		for _, path := range []string{at, "/console/new"} {
			body := d.do(http.StatusUnprocessableEntity, path, "rev", rev, "type", "user", field, entered)
			// The input of news is a list of two values, which cannot show another.
			if field != "news" && !strings.Contains(html.UnescapeString(body), entered) {
				t.Errorf("%s, %s: the page lost what was entered", path, field)
			}
		}
	}
	for _, entered := range []string{`{"a":1,"a":2}`, `{}{}`, strings.Repeat("[", 70_000)} {
		d.do(http.StatusUnprocessableEntity, at, "rev", rev, "prefs", entered)
	}
	if e, err := d.users.Find(t.Context(), hintOf("u1")); err != nil || e.Rev() != rev {
		t.Errorf("the account was changed: %v", err)
	}
	d.do(http.StatusSeeOther, at, "rev", rev, "prefs", `{"b": [2]}`)
	e, err := d.users.Find(t.Context(), hintOf("u1"))
	must(t, err)
	if v, _ := e.Get("prefs"); v.Codec() != schema.CodecJSON || v.Text() != `{"b":[2]}` {
		t.Errorf("the form stored %v, want the JSON value", v)
	}
}

var formInput = regexp.MustCompile(`<(?:input[^>]* name="([^"]*)"[^>]* value="([^"]*)"|textarea[^>]* name="([^"]*)"[^>]*>\n([^<]*))`)

// fillForm returns the form of a page as a browser sends it after some inputs were changed.
func (d *testConsole) fillForm(body, action string, changes ...string) (form []string) {
	d.t.Helper()
	_, body, found := strings.Cut(body, `<form method="post" action="`+action+`"`)
	body, _, _ = strings.Cut(body, "</form>")
	if !found {
		d.t.Fatalf("there is no form for %s", action)
	}
	for _, m := range formInput.FindAllStringSubmatch(body, -1) {
		name, value := html.UnescapeString(m[1]+m[3]), html.UnescapeString(m[2]+m[4])
		for i := 0; i+1 < len(changes); i += 2 {
			if changes[i] == name {
				value = changes[i+1]
			}
		}
		form = append(form, name, strings.ReplaceAll(lineEnds.Replace(value), "\n", "\r\n"))
	}
	return form
}

// TestUntouchedFacets checks that a form writes only what was changed in it. A text that browsers
// cannot send unchanged stays as it is, and changes that another operator made meanwhile are shown
// and kept.
func TestUntouchedFacets(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		const at, odd = "/console/types/user/u1", "a zero: \x00"
		d.createAccount("u1", "name", "Alice", "email", "user@straße.example", "bio", odd, "job", "baker")
		d.addValues("u1", "email", "User@work.example", "jo@straße.example")
		before := d.emails("u1")
		body := d.do(http.StatusOK, at)
		if strings.Contains(body, `type="email"`) || !strings.Contains(body, `type="text" inputmode="email"`) {
			t.Error("the input for the address has the type email, with which browsers rewrite it; want text")
		}
		d.do(http.StatusSeeOther, at, d.fillForm(body, at, "job", "cook")...)
		e, err := d.users.Find(t.Context(), hintOf("u1"))
		must(t, err)
		if e.Text("bio") != odd || e.Text("email") != "user@straße.example" || e.Text("job") != "cook" {
			t.Errorf("a form that changed only the job stored %q, want the other fields as before", e.Facets())
		}
		stale := d.do(http.StatusOK, at)
		_, err = d.users.Update(t.Context(), hintOf("u1"), func(e *userdb.Entry) error { e.Put("job", schema.Text("smith")); return nil })
		must(t, err)
		conflict := d.do(http.StatusConflict, at, d.fillForm(stale, at, "age", "42")...)
		if inputValue(conflict, "job") != "smith" || inputValue(conflict, "age") != "42" {
			t.Errorf("the next form has the job %q and the age %q, want smith and 42", inputValue(conflict, "job"), inputValue(conflict, "age"))
		}
		d.do(http.StatusSeeOther, at, d.fillForm(conflict, at)...)
		if e, err = d.users.Find(t.Context(), hintOf("u1")); err != nil || e.Text("job") != "smith" || e.Text("age") != "42" || e.Text("bio") != odd {
			t.Errorf("the form after a conflict stored %q, %v; want the job smith and the other fields as before", e.Facets(), err)
		}
		if after := d.emails("u1"); !slices.Equal(after, before) {
			t.Errorf("the addresses are %q, want %q", after, before)
		}
	})
}

// TestLineEnds checks that a facet keeps its kind of line ends, whatever forms send.
func TestLineEnds(t *testing.T) {
	d := open(t, "memory:")
	const at = "/console/types/user/u1"
	d.createAccount("u1", "name", "Alice", "bio", "one\ntwo")
	d.do(http.StatusSeeOther, at, d.fillForm(d.do(http.StatusOK, at), at, "bio", "one\ntwo\nthree")...)
	if e, err := d.users.Find(t.Context(), hintOf("u1")); err != nil || e.Text("bio") != "one\ntwo\nthree" {
		t.Errorf("got %q, %v, want lines that end with \\n", e.Text("bio"), err)
	}
}

// TestIdentifiersAreConfirmed checks that an identifier changes only after an operator has seen
// both values and confirmed the change.
func TestIdentifiersAreConfirmed(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		const at = "/console/types/user/u1"
		d.createAccount("u1", "name", "Alice", "email", "alice@example.com", "job", "baker")
		d.createAccount("u2", "name", "Bob", "email", "bob@example.com")
		body := d.do(http.StatusOK, at)
		d.wantText(d.do(http.StatusUnprocessableEntity, at, d.fillForm(body, at, "email", "no address")...), "This is not an e-mail address.")
		d.wantText(d.do(http.StatusConflict, at, d.fillForm(body, at, "email", "bob@example.com")...), "bob@example.com is the email of Bob")
		question := d.do(http.StatusOK, at, d.fillForm(body, at, "email", "alice@example.org", "name", "", "job", "cook")...)
		d.wantText(question, "alice@example.com becomes alice@example.org", "Alice is removed", "Change", "Cancel")
		e, err := d.users.Find(t.Context(), hintOf("u1"))
		if err != nil || e.Text("email") != "alice@example.com" || e.Text("job") != "baker" {
			t.Errorf("before the confirmation: got %q, %v; want the account as before", e.Facets(), err)
		}
		d.wantText(d.do(http.StatusOK, d.do(http.StatusSeeOther, at, d.fillForm(question, at)...)), "The account has been changed.")
		e, err = d.users.Find(t.Context(), hintOf("u1"))
		if _, named := e.Get("name"); err != nil || named || e.Text("email") != "alice@example.org" || e.Text("job") != "cook" {
			t.Errorf("after the confirmation: got %q, %v; want the changed account", e.Facets(), err)
		}
		d.do(http.StatusSeeOther, at, d.fillForm(question, at)...) // a double click
		d.do(http.StatusSeeOther, at, "rev", inputValue(d.do(http.StatusOK, at), "rev"), "job", "chef", shownName("job"), "cook")
		d.wantText(d.do(http.StatusConflict, at, d.fillForm(question, at)...), "Somebody else has changed this account in the meantime.")
	})
}

// TestTwoOperators checks that if two operators edit one account at the same time, the second one
// learns of the other's change.
func TestTwoOperators(t *testing.T) {
	d := open(t, "memory:")
	d.createAccount("u1", "name", "Alice")
	_, err := newOperator(t, d, "Paul")
	must(t, err)
	other := d.newBrowser()
	other.signIn("paul", goodPassword)
	first, second := inputValue(d.do(http.StatusOK, "/console/types/user/u1"), "rev"), inputValue(other.do(http.StatusOK, "/console/types/user/u1"), "rev")
	other.do(http.StatusSeeOther, "/console/types/user/u1", "rev", second, "job", "cook")
	d.wantText(d.do(http.StatusConflict, "/console/types/user/u1", "rev", first, "job", "baker"), "Somebody else has changed this account", "Stored now: cook")
	other.post(http.StatusSeeOther, "/console/types/user/u1/disable")
	d.wantText(d.do(http.StatusOK, "/console/types/user/u1"), "They cannot sign in: the account is disabled, by operator Paul at")
}

// TestFacetsOfEveryName checks that a facet may have the name of one of the form's own inputs.
func TestFacetsOfEveryName(t *testing.T) {
	s := testSchema()
	for _, name := range []string{"rev", "value", "purpose", "life"} {
		s.Types["user"].Fields[name] = schema.Field{}
	}
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{Schema: s, History: true})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	d := newTestConsole(t, db)
	_, err = newOperator(t, d, operatorName)
	must(t, err)
	d.signIn(operatorName, goodPassword)
	d.createAccount("u1", "name", "Alice", "rev", "first")
	body := d.do(http.StatusOK, "/console/types/user/u1")
	d.do(http.StatusSeeOther, "/console/types/user/u1", "rev", inputValue(body, "rev"), "rev", "second", "purpose", "none")
	e, err := d.users.Find(t.Context(), hintOf("u1"))
	if err != nil || e.Text("rev") != "second" || e.Text("purpose") != "none" {
		t.Errorf("got %v, %v; want second and none in rev and purpose", e.Facets(), err)
	}
	if body := d.do(http.StatusOK, "/console/types/user/u1/tokens", "life", "24h"); !strings.Contains(body, `id="f-life" name="life" value=""`) {
		t.Error("the input of the facet life shows the lifetime of a link, want an empty input")
	}
}

// hostile lists texts that a page must show but never run.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `</textarea><script>alert(1)</script>`, `{{.Data}}`,
	`javascript:alert(1)`, "\u202Egnp.exe", `--><!--`, `%3Cscript%3E`, `a/b?c#d`, `..;/`, `a+b c`, `\u003cscript\u003e`,
}

// TestMarkup checks that pages never run markup, whether it is stored in a field, tag or UID or
// reflected from a request.
func TestMarkup(t *testing.T) {
	d := open(t, "memory:")
	for i, text := range hostile {
		e, err := d.users.Create(t.Context(), userdb.NewEntry{UID: text, Facets: schema.Texts("job", text, "bio", text), Tags: []string{text}})
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		_, _, err = d.users.StartSession(userdb.WithActor(t.Context(), userdb.Actor{Name: text, Origin: text}), e, userdb.SessionOptions{Agent: text, Origin: text})
		must(t, err)
		_, err = d.users.Login(t.Context(), text, text, userdb.Attempt{Origin: text})
		if err == nil {
			t.Errorf("%q signed in, though it has no password", text)
		}
		at := accountPath("user", text)
		q := url.QueryEscape(text)
		for _, path := range []string{
			at, "/console/find?q=" + q, "/console/types/user", "/console/types/user?where=job:" + q, "/console/types/user?by=job&value=" + q, "/console/types/user?tag=" + q,
			"/console/types/user?order=" + q, "/console/types/user?where=" + q + ":x", "/console/types/user?after=" + q, "/console/history?kind=" + q, "/console/history?after=" + q,
			"/console/history", "/console/history?since=" + q, "/console/signin?return=" + q, "/console/setup?token=" + q, at + "?done=" + q, "/console/types/" + url.PathEscape(text), "/console/" + url.PathEscape(text),
			"/console/keys", "/console/status", "/console/schema", "/console/suggest?q=" + q,
		} {
			d.wantHarmless(path)
		}
		d.wantHarmless(at, "rev", text, "job", text+"!", "email", text, "name", text)
		d.wantHarmless(at+"/tags", "add", text+"2")
		d.wantHarmless(at+"/tokens", "purpose", text, "field", text)
		d.wantHarmless(at+"/password", "password", text[:2])
		d.wantHarmless(at+"/sessions/end", "id", text)
		d.wantHarmless("/console/keys", "name", text, "scope", text, "type", text)
		d.wantHarmless("/console/signin", "name", text, "password", text, "return", text)
		if i == 0 {
			d.wantText(d.do(http.StatusOK, at), text)
		}
	}
}

var liveMarkup = regexp.MustCompile(`(?i)<script>|<img|onerror=alert\(1\)>|' onmouseover='|href="javascript|action="javascript`)

// wantHarmless checks that a response contains no live markup, does not redirect to another site,
// and reports no error of the server.
func (d *testConsole) wantHarmless(path string, form ...string) {
	d.t.Helper()
	method, values := http.MethodGet, url.Values{}
	for i := 0; i+1 < len(form); i += 2 {
		method = http.MethodPost
		values.Add(form[i], form[i+1])
	}
	r, err := http.NewRequestWithContext(context.Background(), method, d.base+path, strings.NewReader(values.Encode()))
	must(d.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := d.client.Do(r)
	must(d.t, err)
	defer answer.Body.Close()
	var body strings.Builder
	_, err = io.Copy(&body, answer.Body)
	must(d.t, err)
	if answer.StatusCode >= http.StatusInternalServerError {
		d.t.Errorf("%s %s: got %s, want no error of the server", method, path, answer.Status)
	}
	if to := answer.Header.Get("Location"); to != "" && !strings.HasPrefix(to, "/console/") {
		d.t.Errorf("%s redirects to %q, want a page of the console", path, to)
	}
	if at := liveMarkup.FindStringIndex(body.String()); at != nil && strings.HasPrefix(answer.Header.Get("Content-Type"), "text/html") {
		d.t.Errorf("%s: live markup: %s", path, body.String()[max(0, at[0]-80):min(body.Len(), at[1]+80)])
	}
}

// TestStrangers checks that nothing is shown or done without a session, after the end of a session,
// or after its operator was disabled.
func TestStrangers(t *testing.T) {
	d := open(t, "memory:")
	d.createAccount("u1", "name", "Alice")
	paths := []string{"/console", "/console/find", "/console/find?q=Alice", "/console/suggest?q=al", "/console/types/user", "/console/types/user/u1", "/console/history", "/console/keys", "/console/schema", "/console/status", "/console/import", "/console/export", "/console/check", "/console/nothing"}
	typed := []string{"/console/types/user/u1", "/console/types/user/u1/tags", "/console/types/user/u1/values", "/console/new", "/console/bulk", "/console/keys", "/console/import/x"}
	forms := []string{"/console/types/user/u1/disable", "/console/types/user/u1/tokens", "/console/types/user/u1/password", "/console/keys/revoke", "/console/check", "/console/export", "/console/signout"}
	wantSignInPage := func(who string, v *testConsole) {
		t.Helper()
		for _, path := range paths {
			if to := v.do(http.StatusSeeOther, path); !strings.HasPrefix(to, "/console/signin?") {
				t.Errorf("%s: %s redirects to %q, want the sign-in page", who, path, to)
			}
		}
		for _, path := range forms {
			if to := v.do(http.StatusSeeOther, path, "password", "whatever it is"); to != "/console/signin" {
				t.Errorf("%s: POST %s redirects to %q, want the sign-in page", who, path, to)
			}
		}
		for _, path := range typed {
			status := http.StatusUnauthorized
			if who == "a stranger" { // without a cookie, there was no session
				status = http.StatusSeeOther
			}
			if page := v.do(status, path, "password", "whatever it is"); page != "/console/signin" {
				v.wantText(page, "You are no longer signed in, so nothing was changed.")
				v.wantNoText(page, "Alice", "Sign out", "Accounts")
			}
		}
	}
	wantSignInPage("a stranger", d.newBrowser())
	attacker := d.newBrowser()
	u, _ := url.Parse(d.base)
	attacker.client.Jar.SetCookies(u, d.client.Jar.Cookies(u))
	attacker.do(http.StatusOK, "/console/find")
	d.post(http.StatusSeeOther, "/console/signout")
	wantSignInPage("a stolen cookie after sign-out", attacker)
	d.signIn(operatorName, goodPassword)
	must(t, d.console.operators.Disable(t.Context(), hints.Any(operatorName)))
	wantSignInPage("a disabled operator", d)
	d.wantText(d.do(http.StatusUnauthorized, "/console/signin", "name", operatorName, "password", goodPassword), "Wrong name or password.")
	if e, err := d.users.Find(t.Context(), hintOf("u1")); err != nil || e.Disabled() {
		t.Errorf("without a session, the account was changed: disabled %v, error %v", e.Disabled(), err)
	}
}

// TestOtherSites checks that forms of other sites do nothing and that no page appears in a frame.
func TestOtherSites(t *testing.T) {
	d := open(t, "memory:")
	d.createAccount("u1", "name", "Alice")
	for _, header := range []http.Header{{"Sec-Fetch-Site": {"cross-site"}}, {"Sec-Fetch-Site": {"same-site"}}, {"Origin": {"https://evil.example"}}, {"Origin": {"null"}}} {
		for _, path := range []string{"/console/types/user/u1/disable", "/console/signin", "/console/signout", "/console/setup?token=x", "/console/keys"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.base+path, strings.NewReader("name=x"))
			must(t, err)
			r.Header = header.Clone()
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			d.wantText(d.send(http.StatusForbidden, r), "This form came from another site")
		}
	}
	if e, err := d.users.Find(t.Context(), hintOf("u1")); err != nil || e.Disabled() {
		t.Errorf("a form of another site changed the account: disabled %v, error %v", e.Disabled(), err)
	}
	answer, err := d.client.Get(d.base + "/console/find")
	must(t, err)
	answer.Body.Close()
	if policy := answer.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("got the policy %q, want frame-ancestors 'none' and nothing unsafe", policy)
	}
}

// TestReturnStaysInConsole checks that signing in leads to a page of the console, whatever the link
// to the form says.
func TestReturnStaysInConsole(t *testing.T) {
	d := open(t, "memory:")
	for to, want := range map[string]string{
		"/console/types/user?tag=../a": "/console/types/user?tag=../a",
		"/console/types/user/a%2F%2Fb": "/console/types/user/a%2F%2Fb",
		"/console/../evil":             "/console",
		"/console/types/x/../../../x":  "/console",
		"/console/..//evil.example":    "/console",
		"/console/%2e%2E/evil":         "/console",
		"/console/.%2e/%2e./x?a=/b":    "/console",
		"/consolex":                    "/console",
		"//evil.example/console/":      "/console",
	} {
		if got := d.newBrowser().do(http.StatusSeeOther, "/console/signin", "name", operatorName, "password", goodPassword, "return", to); got != want {
			t.Errorf("return=%s: signing in leads to %q, want %q", to, got, want)
		}
	}
}

// TestGuesses checks that guesses of an operator's password are throttled.
func TestGuesses(t *testing.T) {
	d := openStill(t, "memory:")
	v := d.newBrowser()
	// Failures allowed from an origin that has signed in before, and from all others together.
	const familiar, strangers = 8, 10
	for range familiar + strangers {
		v.do(http.StatusUnauthorized, "/console/signin", "name", operatorName, "password", "wrong")
	}
	v.wantText(v.do(http.StatusTooManyRequests, "/console/signin", "name", operatorName, "password", "wrong"), "Too many attempts. Try again in")
}

// TestHeadOfAccount checks that the page shows the identifier in its title only once, unless the
// head says more about it.
func TestHeadOfAccount(t *testing.T) {
	d := open(t, "memory:")
	d.createAccount("u1", "name", "Alice", "email", "alice@example.com")
	d.createAccount("u2", "email", "bob@example.com")
	d.createAccount("u3", "job", "baker")
	for uid, want := range map[string][2]string{
		"u1": {`<h1 data-copy="name">Alice</h1>`, "Alice email alice@example.com not verified uid u1 They"},
		"u2": {`<h1>bob@example.com</h1>`, "bob@example.com email bob@example.com not verified uid u2 They"},
		"u3": {`<h1 data-copy="uid">u3</h1>`, "u3 They"},
	} {
		body := d.do(http.StatusOK, "/console/types/user/"+uid)
		if !strings.Contains(body, want[0]) {
			t.Errorf("%s: the page has no %s", uid, want[0])
		}
		_, body, _ = strings.Cut(body, "<h1")
		d.wantText("<h1"+body, want[1])
	}
}
