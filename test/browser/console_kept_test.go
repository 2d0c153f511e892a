package browser

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestConsoleFormComesBack ends an operator's session while a form is filled in, with and without
// scripts. After signing in on the page that answers the form, one click saves what was entered.
func TestConsoleFormComesBack(t *testing.T) {
	t.Parallel()
	for _, scripts := range []bool{false, true} {
		t.Run(fmt.Sprintf("scripts-%v", scripts), func(t *testing.T) {
			d := openConsole(t, consoleWindows[3], scripts)
			d.setUp()
			d.createAccounts()
			d.visit(alice)
			d.unfold("#f-bio")
			d.fill("#f-bio", "a long text")
			d.userdb(password+"\n", "operator", "passwd", "root", "--password-stdin")
			d.follow("saving", d.click("form:has(#f-bio) button"))
			d.onPage("Sign in", "You are no longer signed in, so nothing was changed.")
			d.submit("/console/signin", "name", "root", "password", "wrong")
			d.onPage("Sign in", "Wrong name or password.")
			d.submit("/console/signin", "name", "root", "password", password)
			d.onPage("Go on", "It has not been sent yet.")
			d.submit(alice)
			d.onPage("Alice", "The account has been changed.", "a long text")
		})
	}
}

// TestConsoleDoubleClick clicks twice on the button that creates a key. The browser shows the
// secret, and not that there is a key with the name.
func TestConsoleDoubleClick(t *testing.T) {
	t.Parallel()
	d := openConsole(t, consoleWindows[3], true)
	d.setUp()
	d.visit("/console/keys")
	d.fill("#name", "webshop")
	d.run("choosing a scope", d.click("#scope-read"))
	d.follow("clicking twice", chromedp.DoubleClick(`form[action="/console/keys"] button`, chromedp.ByQuery))
	d.onPage("API keys", "The key webshop has been created.", "udb_")
	d.press("/revoke")
	d.onPage("API keys", "The key has been revoked.", "There are no keys yet.")
}
