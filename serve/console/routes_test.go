package console

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// withoutPassword lists the routes that never ask for the operator's password, and why.
var withoutPassword = map[string]string{
	"POST /console/signout":                         "ends the operator's own session",
	"POST /console/types/{type}/{uid}/disable":      "only takes access away",
	"POST /console/types/{type}/{uid}/sessions/end": "only takes access away",
	"POST /console/keys/revoke":                     "only takes access away",
	"POST /console/jobs/{id}/stop":                  "only stops a job",

	"/console/": "has no page", "GET /console": "shows a few accounts", "GET /console/{$}": "shows a few accounts",
	"GET /console/find": "shows a few accounts", "GET /console/suggest": "shows a few accounts",
	"GET /console/types/{type}": "shows a page of accounts", "GET /console/types/{type}/{uid}": "shows one account",
	"GET /console/history": "shows no values", "GET /console/schema": "shows no accounts", "GET /console/status": "shows no accounts",
	"GET /console/retired": "shows a page of UIDs", "GET /console/groups": "shows a page of groups",
	"GET /console/keys": "shows no secrets", "GET /console/import": "shows a form", "GET /console/export": "shows a form",
	"GET /console/import/{id}":  "shows ten lines of the operator's own upload",
	"POST /console/import/{id}": "shows ten lines of the operator's own upload, or tries it",
	"GET /console/new":          "shows a form",
	"GET /console/security":     "shows no secrets", "GET /console/operators": "shows no accounts",
	"GET /console/check": "shows a form", "GET /console/jobs": "shows progress", "GET /console/jobs/{id}": "shows progress",
	"POST /console/passkey/add": "the library asks for a session that was verified", "POST /console/passkey/verify": "proves nothing by itself",
}

// withForm lists forms that ask for the password only if they do more than show or try something.
var withForm = map[string]url.Values{
	"POST /console/types/{type}/{uid}":         {confirmName: {"true"}},
	"POST /console/types/{type}/{uid}/values":  {confirmName: {"true"}},
	"POST /console/held":                       {confirmName: {"true"}},
	"POST /console/bulk":                       {confirmName: {"true"}},
	"POST /console/retired":                    {confirmName: {"true"}},
	"POST /console/check":                      {"repair": {"true"}, "confirm": {"true"}},
	"POST /console/types/{type}/{uid}/factors": {confirmName: {"true"}},
}

// TestRoutesAskForPassword checks that all routes ask operators for their password again, except
// for those that are listed with a reason.
func TestRoutesAskForPassword(t *testing.T) {
	d := open(t, "memory:")
	d.createAccount("u1", "name", "Alice")
	d.advance(verifiedFor + time.Minute)
	path := strings.NewReplacer("{type}", "user", "{uid}", "u1", "{id}", "nosuch", "{name}", exportFile, "{$}", "")
	for _, route := range d.console.table() {
		if route.pattern == "POST /console/signout" {
			continue // the other routes need the session
		}
		method, pattern, ok := strings.Cut(route.pattern, " ")
		if !ok {
			method, pattern = http.MethodPost, route.pattern+"nothing"
		}
		r, err := http.NewRequestWithContext(t.Context(), method, d.base+path.Replace(pattern), strings.NewReader(withForm[route.pattern].Encode()))
		must(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		answer, err := d.client.Do(r)
		must(t, err)
		body, err := io.ReadAll(answer.Body)
		must(t, err)
		answer.Body.Close()
		asks := answer.StatusCode == http.StatusOK && strings.Contains(string(body), "Your own password")
		if reason, exempt := withoutPassword[route.pattern]; asks == exempt {
			t.Errorf("%s asks for the password: %v, and is listed as an exception: %v %s; want exactly one of the two", route.pattern, asks, exempt, reason)
		}
	}
	if e, err := d.users.Find(t.Context(), hintOf("u1")); err != nil || !e.Disabled() {
		t.Errorf("without a password, an operator cannot disable an account: %v, %v", e, err)
	}
}

// TestImportAsksForPassword checks that a dry run starts without the password, and that the import
// of the same file needs it.
func TestImportAsksForPassword(t *testing.T) {
	d := open(t, "memory:")
	d.advance(verifiedFor + time.Minute)
	at := d.upload(http.StatusSeeOther, "people.csv", people, "type", "user")
	d.waitForJob(at)
	asked := d.do(http.StatusOK, "/console/import", "from", at[strings.LastIndex(at, "/")+1:])
	d.wantText(asked, "Your own password", "Nothing has been done yet.")
	if _, err := d.users.Find(t.Context(), hintOf("p1")); !isAny(err, userdb.ErrNotFound) {
		t.Errorf("the file was imported without the password: %v", err)
	}
	d.waitForJob(d.do(http.StatusSeeOther, "/console/import", append(d.fillForm(asked, "/console/import"), verifyName, goodPassword)...))
	_, err := d.users.Find(t.Context(), hintOf("p1"))
	must(t, err)
}

// TestIdentifiersAskForPassword checks that a change of an identifier is shown without the
// password, but saved only with it, and that other facets need none.
func TestIdentifiersAskForPassword(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		const at = "/console/types/user/u1"
		d.createAccount("u1", "name", "Alice", "email", "alice@example.com", "bio", "one\ntwo")
		d.advance(verifiedFor + time.Minute)
		d.do(http.StatusSeeOther, at, d.fillForm(d.do(http.StatusOK, at), at, "job", "cook")...)
		question := d.do(http.StatusOK, at, d.fillForm(d.do(http.StatusOK, at), at, "email", "alice@example.org", "bio", "one\nthree")...)
		d.wantText(question, "alice@example.com becomes alice@example.org")
		asked := d.do(http.StatusOK, at, d.fillForm(question, at)...)
		d.wantText(asked, "Your own password")
		if e, err := d.users.Find(t.Context(), hintOf("u1")); err != nil || e.Text("email") != "alice@example.com" {
			t.Errorf("without the password: got %q, %v; want the address as before", e.Facets(), err)
		}
		d.do(http.StatusSeeOther, at, append(d.fillForm(asked, at), verifyName, goodPassword)...)
		if e, err := d.users.Find(t.Context(), hintOf("u1")); err != nil || e.Text("email") != "alice@example.org" || e.Text("bio") != "one\nthree" || e.Text("job") != "cook" {
			t.Errorf("with the password: got %q, %v; want the changed address", e.Facets(), err)
		}
	})
}

// TestMailAddressesAskForPassword checks that a change of a mail address is shown, and saved only
// with the password, even if the address is no identifier: applications may send links there.
func TestMailAddressesAskForPassword(t *testing.T) {
	s := testSchema()
	s.Types["user"].Fields["backup"] = schema.Field{Kind: "email"}
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{Schema: s, History: true})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	d := newTestConsole(t, db)
	_, err = newOperator(t, d, operatorName)
	must(t, err)
	d.signIn(operatorName, goodPassword)
	const at = "/console/types/user/u1"
	d.createAccount("u1", "name", "Alice", "backup", "alice@example.com")
	d.advance(verifiedFor + time.Minute)
	question := d.do(http.StatusOK, at, d.fillForm(d.do(http.StatusOK, at), at, "backup", "alice@example.org", "job", "cook")...)
	d.wantText(question, mailTitle, "alice@example.com becomes alice@example.org", "password reset links")
	asked := d.do(http.StatusOK, at, d.fillForm(question, at)...)
	d.wantText(asked, "Your own password")
	if e, err := d.users.Find(t.Context(), hintOf("u1")); err != nil || e.Text("backup") != "alice@example.com" {
		t.Errorf("without the password: got %q, %v; want the address as before", e.Facets(), err)
	}
	d.do(http.StatusSeeOther, at, append(d.fillForm(asked, at), verifyName, goodPassword)...)
	if e, err := d.users.Find(t.Context(), hintOf("u1")); err != nil || e.Text("backup") != "alice@example.org" || e.Text("job") != "cook" {
		t.Errorf("with the password: got %q, %v; want the changed address", e.Facets(), err)
	}
	d.wantText(d.do(http.StatusOK, at, d.fillForm(d.do(http.StatusOK, at), at, "backup", "", "name", "Al")...), confirmTitle, "alice@example.org is removed", "Alice becomes Al")
}

// TestDownloadAsksForPassword checks that a file of a job can be downloaded only with the password,
// and that the feed says who downloaded it, even if another operator created it.
func TestDownloadAsksForPassword(t *testing.T) {
	d := open(t, "memory:")
	d.createAccount("u1", "name", "Alice", "email", "alice@example.com")
	job := d.do(http.StatusSeeOther, "/console/export", "type", "user")
	d.wantText(d.waitForJob(job), "Download accounts.jsonl")
	_, err := newOperator(t, d, "Paul")
	must(t, err)
	paul := d.newBrowser()
	paul.signIn("paul", goodPassword)
	d.advance(verifiedFor + time.Minute)
	file := job + "/files/" + exportFile
	asked := paul.do(http.StatusOK, file)
	d.wantText(asked, "Your own password", "Back to the job")
	d.wantNoText(asked, "alice@example.com")
	d.wantText(paul.do(http.StatusUnauthorized, file, verifyName, "wrong"), "Wrong password.")
	before := len(d.operatorActions())
	if text := paul.do(http.StatusOK, file, append(d.fillForm(asked, file), verifyName, goodPassword)...); !strings.Contains(text, `"alice@example.com"`) {
		t.Errorf("the file does not have the account:\n%s", text)
	}
	id := strings.TrimPrefix(job, "/console/jobs/")
	want := "export operator:Paul " + id + "/" + exportFile + " 127.0.0.1"
	if all := d.operatorActions()[before:]; len(all) != 1 || all[0] != want {
		t.Errorf("the feed has %q, want %q", all, want)
	}
	d.wantText(d.do(http.StatusOK, "/console/history"), "Operator Paul downloaded the file accounts.jsonl of the job "+id+" from 127.0.0.1")
	if page := d.do(http.StatusOK, job); strings.Contains(page, "download>") {
		t.Error("the browser would save the form that asks for the password as the file")
	}
}

// TestLongForms checks that a multipart form longer than the limit is refused, and that a shorter
// one is read.
func TestLongForms(t *testing.T) {
	d := open(t, "memory:")
	d.createAccount("u1", "name", "Alice")
	send := func(want int, path, name, value string) string {
		t.Helper()
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		must(t, form.WriteField(name, value))
		must(t, form.Close())
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.base+path, &body)
		must(t, err)
		r.Header.Set("Content-Type", form.FormDataContentType())
		return d.send(want, r)
	}
	const at = "/console/types/user/u1/tags"
	d.wantText(send(http.StatusBadRequest, at, "add", strings.Repeat("x", maxForm)), "This form cannot be read")
	send(http.StatusSeeOther, at, "add", "vip")
	d.wantText(d.do(http.StatusOK, "/console/types/user/u1"), "vip")
}
