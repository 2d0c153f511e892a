package browser

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestConsoleSecondStep adds an app to the first operator, signs in with two steps, looks at and
// removes the second step of an account, and sets up that of another operator by a link.
func TestConsoleSecondStep(t *testing.T) {
	t.Parallel()
	for i, w := range []window{{"console-1440-light", 1440, "light"}, {"console-390-dark", 390, "dark"}, {"console-390-light", 390, "light"}, {"console-1000-dark-keyboard", 1000, "dark"}} {
		scripts := i%2 == 0
		t.Run(fmt.Sprintf("%s-scripts-%v", w.name, scripts), func(t *testing.T) {
			d := openConsole(t, w, scripts)
			d.createAccounts()
			d.setUp()
			d.keyboard = i == 3
			codes := d.addOwnApp()
			d.signInWithCodes(codes)
			d.removeFromAccount()
			d.setUpByLink()
		})
	}
}

// appCode returns the code that an app shows the given number of steps from now, by RFC 6238.
func appCode(t *testing.T, secret string, steps int64) string {
	t.Helper()
	key, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.ReplaceAll(secret, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha1.New, key)
	_, _ = mac.Write(binary.BigEndian.AppendUint64(nil, uint64(time.Now().Unix()/30+steps)))
	sum := mac.Sum(nil)
	return fmt.Sprintf("%06d", binary.BigEndian.Uint32(sum[sum[len(sum)-1]&15:])&(1<<31-1)%1_000_000)
}

func (d *console) addOwnApp() (codes []string) {
	d.t.Helper()
	d.visit("/console/find")
	d.follow("opening the page of the operator", d.click(`header .out a`))
	d.onPage("Your sign-in", "You sign in with your password alone.")
	d.submit("/console/security/add", "label", "my phone")
	d.onPage("Add an authenticator app", "Scan this code")
	var secret string
	d.run("reading the secret", chromedp.Text("code.secret", &secret, chromedp.ByQuery))
	d.submit("/console/security/confirm", "code", "no code")
	d.onPage("Add an authenticator app")
	d.wantProblem("code", "This is not the right code")
	d.submit("/console/security/confirm", "code", appCode(d.t, secret, 0))
	d.onPage("Your recovery codes", "They are shown only now.")
	d.run("reading the codes", chromedp.Evaluate(`[...document.querySelectorAll(".codes code")].map(c => c.textContent)`, &codes))
	if len(codes) != 10 {
		d.t.Fatalf("got the recovery codes %q, want ten", codes)
	}
	d.follow("going on", d.click("main a.button"))
	d.onPage("Your sign-in", "my phone", "10 of ten are left")
	return codes
}

func (d *console) signInWithCodes(codes []string) {
	d.t.Helper()
	d.follow("signing out", d.click(`form[action="/console/signout"] button`))
	d.visit(alice)
	d.onPage("Sign in")
	d.submit("/console/signin", "name", "root", "password", password)
	d.onPage("Second step")
	d.submit("/console/signin/code", "code", "123")
	d.onPage("Second step")
	d.wantProblem("code", "This is not the right code")
	d.submit("/console/signin/code", "code", codes[0])
	d.onPage("Alice")
}

// post sends JSON to the service with an API key, and returns the response.
func (d *console) post(key, path, body string) (answer map[string]any) {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.base+path, bytes.NewBufferString(body))
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode >= 300 {
		d.t.Fatalf("%s: %s, %v, %v", path, response.Status, answer, err)
	}
	return answer
}

func (d *console) removeFromAccount() {
	d.t.Helper()
	key := regexp.MustCompile(`udb_\w+`).FindString(d.userdb("", "apikey", "create", "web", "--scope", "login"))
	const types, entry = "/v1/types/user", "/v1/types/user/entries/9a4c88dbc084"
	signedIn := d.post(key, types+"/login", fmt.Sprintf(`{"identifier":"alice","password":%q,"origin":"192.0.2.7","session":{}}`, password))
	session := signedIn["session"].(map[string]any)["secret"]
	app := d.post(key, entry+"/factors", fmt.Sprintf(`{"kind":"totp","name":"Alice’s phone","session":%q}`, session))
	d.post(key, fmt.Sprintf("%s/factors/%s/confirm", entry, app["id"]), fmt.Sprintf(`{"code":%q,"session":%q}`, appCode(d.t, app["secret"].(string), 0), session))
	d.visit(alice)
	d.onPage("Alice", "They can sign in with the right password and a second step.", "Alice’s phone", "10 of ten are left")
	d.openTab("devices", "by two steps")
	d.follow("signing out a device", d.click("form:has([name=id]) button"))
	d.onPage("Alice", "The device has been signed out.", "They are not signed in on any device.")
	d.visit(alice)
	d.press("/codes")
	d.onPage("Alice", "These recovery codes are shown only once.")
	d.wantInWindow(".issued")
	d.press("/factors")
	d.onPage("Remove the second step?", "All sessions of the account end.", "Make sure first who asks for this")
	d.submit(alice + "/factors")
	d.onPage("Alice", "The second step has been changed.")
	d.openTab("devices", "They are not signed in on any device.")
}

// setUpByLink sets up the second step of another operator by a link of the command line, which
// works only once.
func (d *console) setUpByLink() {
	d.t.Helper()
	d.userdb(password+"\n", "operator", "add", "Olga", "--password-stdin")
	link := strings.TrimSpace(d.userdb("", "operator", "enrol", "olga", "--url", d.base+"/console"))
	d.follow("signing out", d.click(`form[action="/console/signout"] button`))
	d.visit(link)
	d.onPage("Set up the second step", "Olga signs in with a password and a second step")
	d.submit("/console/enrol", "password", "wrong")
	d.onPage("Set up the second step", "Wrong name or password.")
	d.submit("/console/enrol", "password", password)
	d.onPage("Add an authenticator app")
	var secret string
	d.run("reading the secret", chromedp.Text("code.secret", &secret, chromedp.ByQuery))
	d.submit("/console/enrol/confirm", "code", appCode(d.t, secret, 0))
	d.onPage("Your recovery codes")
	d.visit(link)
	d.onPage("This link is no longer valid")
}
