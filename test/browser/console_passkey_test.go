package browser

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// TestConsolePasskey adds a passkey to the first operator, signs in with it, alone and as the
// second step, signs in without it while no scripts run, and removes it.
func TestConsolePasskey(t *testing.T) {
	t.Parallel()
	for i, w := range append(slices.Clone(passkeyWindows), window{"1000-light-keyboard", 1000, "light"}) {
		t.Run(w.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			address := l.Addr().String()
			_ = l.Close()
			_, port, _ := net.SplitHostPort(address)
			origin := "http://localhost:" + port
			d := openConsole(t, w, true, "--listen", address, "--passkey-rp", "localhost", "--console-origin", origin)
			d.base, d.setup = origin, strings.Replace(d.setup, "127.0.0.1", "localhost", 1)
			a := d.newAuthenticator()
			d.setUp()
			d.keyboard = i == 2
			d.visit("/console/security")
			d.onPage("Your sign-in", "Add a passkey")
			d.submit("/console/security/passkey", "passkey-label", "my laptop")
			d.onPage("Add a passkey", "You unlock it with a finger")
			d.wantPasskeyForm()
			d.usePasskey()
			d.onPage("Your recovery codes")
			var code string
			d.run("reading a code", chromedp.Text(".codes code", &code, chromedp.ByQuery))
			d.follow("going on", d.click("main a.button"))
			d.onPage("Your sign-in", "my laptop", "You sign in with a passkey, or with your password")
			// The browser knows that this authenticator has a passkey already.
			d.submit("/console/security/passkey")
			d.onPage("Add a passkey")
			d.run("adding it again", d.click("form[data-passkey] button"), chromedp.WaitVisible("[data-passkey-error]", chromedp.ByQuery))
			d.onPage("Add a passkey", "That did not work.")

			d.visit("/console/security")
			d.signOut()
			d.until("signing in", `(() => { const error = document.querySelector("[data-passkey-error]");
				return error && error.hidden ? "" : document.querySelector("h1").textContent })()`, "Home")

			a.touch(false)
			d.signOut()
			d.onPage("Sign in", "Sign in with a passkey")
			d.submit("/console/signin", "name", "root", "password", password)
			d.onPage("Second step", "Use your passkey", "Recovery code")
			a.touch(true)
			d.usePasskey()
			d.onPage("Home")
			d.doWithoutScripts(code)

			d.visit("/console/security")
			d.press("/remove")
			d.onPage("Remove this passkey?", "with your password alone")
			d.submit("/console/security/remove")
			d.onPage("Your sign-in", "The passkey has been removed.", "You sign in with your password alone.")
		})
	}
}

// doWithoutScripts checks that pages say what to do instead of using a passkey if no scripts run,
// and signs in with a recovery code.
func (d *console) doWithoutScripts(code string) {
	d.t.Helper()
	run := func(scripts bool) {
		d.scripts = scripts
		d.run("switching scripts", emulation.SetScriptExecutionDisabled(!scripts))
	}
	run(false)
	defer run(true)
	d.visit("/console/security")
	d.submit("/console/security/passkey", "passkey-label", "my phone")
	d.onPage("Add a passkey", "Passkeys need JavaScript", "Add an authenticator app instead")
	d.wantPasskeyForm()
	d.follow("going back to add an app", d.click(`[data-passkey-missing] a`))
	d.onPage("Your sign-in", "Add an authenticator app")
	d.signOut()
	d.onPage("Sign in")
	d.submit("/console/signin", "name", "root", "password", password)
	d.onPage("Second step", "Passkeys need JavaScript", "Recovery code")
	d.wantPasskeyForm()
	d.submit("/console/signin/code", "code", code)
	d.onPage("Home")
}

// usePasskey sends the form for a passkey.
func (d *console) usePasskey() {
	d.t.Helper()
	d.follow("using the passkey", d.click("form[data-passkey] button"))
}

func (d *console) signOut() {
	d.t.Helper()
	d.follow("signing out", d.click(`form[action="/console/signout"] button`))
}
