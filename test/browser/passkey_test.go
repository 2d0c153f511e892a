package browser

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"
)

// passkeyWindows are the windows in which pages with passkeys and linked accounts are tested.
var passkeyWindows = []window{{"1440-light", 1440, "light"}, {"390-dark", 390, "dark"}}

// An authenticator is a virtual authenticator of Chromium.
type authenticator struct {
	b  *browser
	id webauthn.AuthenticatorID
}

func (b *browser) newAuthenticator() *authenticator {
	b.t.Helper()
	a := &authenticator{b: b}
	b.run("adding an authenticator", webauthn.Enable(), chromedp.ActionFunc(func(ctx context.Context) (err error) {
		a.id, err = webauthn.AddVirtualAuthenticator(&webauthn.VirtualAuthenticatorOptions{
			Protocol: webauthn.AuthenticatorProtocolCtap2, Transport: webauthn.AuthenticatorTransportInternal,
			HasResidentKey: true, HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true,
		}).Do(ctx)
		return err
	}))
	return a
}

// touch lets the authenticator answer at once, as if its user touched it, or not at all.
func (a *authenticator) touch(touched bool) {
	a.b.t.Helper()
	a.b.run("touching", webauthn.SetAutomaticPresenceSimulation(a.id, touched))
}

// credential returns the only credential.
func (a *authenticator) credential() *webauthn.Credential {
	a.b.t.Helper()
	var all []*webauthn.Credential
	a.b.run("reading the credentials", chromedp.ActionFunc(func(ctx context.Context) (err error) {
		all, err = webauthn.GetCredentials(a.id).Do(ctx)
		return err
	}))
	if len(all) != 1 {
		a.b.t.Fatalf("the authenticator has %d credentials, want 1", len(all))
	}
	return all[0]
}

// replace puts a credential in the place of the one with the same ID.
func (a *authenticator) replace(c *webauthn.Credential) {
	a.b.t.Helper()
	a.b.run("replacing the credential", webauthn.RemoveCredential(a.id, c.CredentialID), webauthn.AddCredential(a.id, c))
}

// wantPasskeyForm checks that a page has a visible form for passkeys, or says what they need if
// there are no scripts.
func (b *browser) wantPasskeyForm() {
	b.t.Helper()
	want := "form"
	if !b.scripts {
		want = "note"
	}
	b.until("looking for the form", `[["form[data-passkey]", "form"], ["[data-passkey-missing]", "note"]]
		.filter(([selector, _]) => document.querySelector(selector)?.checkVisibility()).map(([_, name]) => name).join()`, want)
}

// signInByPasskey opens the sign-in page. The browser offers the passkey as autofill of the name,
// and the authenticator answers without a click. signInByPasskey then checks the page that is
// shown.
func (b *browser) signInByPasskey(heading string, words ...string) {
	b.t.Helper()
	b.visit("/signin?return=/account")
	b.until("signing in", `(() => { const error = document.querySelector("[data-passkey-error]");
		return error && error.hidden ? "" : document.querySelector("h1").textContent })()`, heading)
	b.onPage(heading, words...)
}

// TestPasskeys adds a passkey, signs in with it, alone and as the second step, verifies the visitor
// again with it, and removes it.
func TestPasskeys(t *testing.T) {
	t.Parallel()
	for _, w := range passkeyWindows {
		t.Run(w.name, func(t *testing.T) { open(t, w, true, webapp).testPasskeys() })
	}
}

func (b *browser) testPasskeys() {
	b.t.Helper()
	a := b.newAuthenticator()
	b.signUp("ann@example.com", "ann")
	b.visit("/account/security")
	b.onPage("Security", "Add a passkey", "Add an app")
	b.wantPasskeyForm()
	b.submitForm("form[data-passkey]", "passkey-name", "my laptop")
	b.onPage("Your recovery codes")
	b.follow("going on", chromedp.Click("main a.button", chromedp.ByQuery))
	b.onPage("Security", "my laptop", "You sign in with a passkey, or with your password and a second step.")
	// The browser knows that this authenticator has a passkey already.
	b.run("adding it again", chromedp.Click("form[data-passkey] button", chromedp.ByQuery), chromedp.WaitVisible("[data-passkey-error]", chromedp.ByQuery))
	b.onPage("Security", "That did not work.")

	b.signOut()
	b.signInByPasskey("Your account", "ann")

	b.signOut()
	a.touch(false)
	b.visit("/signin?return=/account/edit")
	b.onPage("Sign in", "Sign in with a passkey")
	b.submit("/signin", "identifier", "ann", "password", password)
	b.onPage("Second step", "Use your passkey", "One of your recovery codes")
	a.touch(true)
	b.submitForm("form[data-passkey]")
	b.onPage("Change your account")

	b.visit("/account/verify?return=/account/security")
	b.onPage("Confirm that it is you", "Use your passkey")
	b.submitForm("form[data-passkey]")
	b.onPage("Security", "my laptop")

	// A copy of the passkey whose counter has fallen behind is refused.
	copied := a.credential()
	b.signOut()
	b.signInByPasskey("Your account", "ann")
	b.signOut()
	copied.SignCount--
	a.replace(copied)
	b.signInByPasskey("Sign in", "This passkey was not accepted.")
	copied.SignCount += 10
	a.replace(copied)
	b.submitForm("form[data-passkey]") // after an error, the page needs a click
	b.onPage("Your account", "ann")

	b.visit("/account/security")
	b.follow("removing the passkey", chromedp.Click("button[value=remove]", chromedp.ByQuery))
	b.onPage("Security", "The passkey has been removed.", "You sign in with your password alone.")
	b.signOut()
	b.signInByPasskey("Sign in", "This passkey was not accepted.")
}

// TestPasskeyOrigins checks that the browser creates no passkey on a domain other than the
// configured one, and that the site refuses a passkey that was created on another port.
func TestPasskeyOrigins(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	b := open(t, passkeyWindows[0], true, webappWith("--listen", address, "--url", "http://localhost:1"))
	b.newAuthenticator()
	port := address[strings.LastIndex(address, ":"):]
	for i, at := range []struct{ base, text string }{
		{"http://localhost" + port, "This passkey was not accepted."}, {"http://127.0.0.1" + port, "That did not work."},
	} {
		b.base = at.base
		name := fmt.Sprint("ann", i)
		b.visit("/signup")
		b.submit("/signup", "email", name+"@example.com")
		b.visit(strings.Replace(b.link(name+"@example.com"), "http://localhost:1", at.base, 1))
		b.submit("/welcome", "name", name, "password", password)
		b.onPage("Your account")
		b.visit("/account/security")
		b.run("adding a passkey", chromedp.Click("form[data-passkey] button", chromedp.ByQuery))
		b.until("the error", `(e => e.hidden ? "" : e.textContent.trim().slice(0, 30))(document.querySelector("[data-passkey-error]"))`, fmt.Sprintf("%.30s", at.text+" Try again, or continue without it."))
		b.signOut()
	}
}
