package browser

import (
	"net"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestConsolePasskey adds a passkey to the first operator, signs in with it, alone and as the
// second step, and removes it.
func TestConsolePasskey(t *testing.T) {
	for _, w := range passkeyWindows {
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
			d.visit("/console/security")
			d.onPage("Your sign-in", "Add a passkey")
			d.submit("/console/security/passkey", "passkey-label", "my laptop")
			d.onPage("Add a passkey", "You unlock it with a finger")
			d.wantPasskeyForm()
			d.usePasskey()
			d.onPage("Your recovery codes")
			d.follow("going on", click("main a.button"))
			d.onPage("Your sign-in", "my laptop", "You sign in with a passkey, or with your password")
			// The browser knows that this authenticator has a passkey already.
			d.submit("/console/security/passkey")
			d.onPage("Add a passkey")
			d.run("adding it again", click("form[data-passkey] button"), chromedp.WaitVisible("[data-passkey-error]", chromedp.ByQuery))
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

			d.visit("/console/security")
			d.press("/remove")
			d.onPage("Remove this passkey?", "with your password alone")
			d.submit("/console/security/remove")
			d.onPage("Your sign-in", "The passkey has been removed.", "You sign in with your password alone.")
		})
	}
}

// usePasskey sends the form for a passkey.
func (d *console) usePasskey() {
	d.t.Helper()
	d.follow("using the passkey", click("form[data-passkey] button"))
}

func (d *console) signOut() {
	d.t.Helper()
	d.follow("signing out", click(`form[action="/console/signout"] button`))
}
