package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// TestLanguages opens every default page of package web in each of its languages, on a phone, and
// checks that nothing is cut, also with text of twice the size.
func TestLanguages(t *testing.T) {
	t.Parallel()
	for i, language := range []string{"en", "de", "es", "fr"} {
		t.Run(language, func(t *testing.T) {
			w := window{"languages-" + language, 390, []string{"light", "dark"}[i%2]}
			b := open(t, w, i >= 2, func(b *browser) { b.startSite("./web/testdata/languages", nil) })
			b.run("choosing the language", network.Enable(), network.SetExtraHTTPHeaders(network.Headers{"Accept-Language": language}))
			b.signUpIn(language)
			b.changeIn(language)
			b.secureIn(language)
			b.signInIn(language)
		})
	}
}

// show opens a path, and checks the page.
func (b *browser) show(language, path string) {
	b.t.Helper()
	b.visit(path)
	b.checkLanguage(language)
}

// send submits a form, as browser.submit does, and checks the page that follows.
func (b *browser) send(language, path string, fields ...string) {
	b.t.Helper()
	b.submit(path, fields...)
	b.checkLanguage(language)
}

func (b *browser) signUpIn(language string) {
	b.t.Helper()
	b.show(language, "/signup")
	b.send(language, "/signup", "email", "no address")
	b.send(language, "/signup", "email", "ann@example.com")
	link := b.link("ann@example.com")
	b.show(language, link)
	b.send(language, "/welcome", "name", "", "password", "short")
	b.send(language, "/welcome", "name", "ann", "password", "password1")
	b.send(language, "/welcome", "name", "ann", "password", password)
	b.show(language, link) // which works once
}

func (b *browser) changeIn(language string) {
	b.t.Helper()
	b.show(language, "/account/password")
	b.send(language, "/account/password", "old", "wrong", "new", "short")
	b.show(language, "/account/email")
	b.send(language, "/account/email", "email", "no address", "password", "wrong")
	b.send(language, "/account/email", "email", "annabella.very.long.name@subdomain.example.org", "password", password)
	b.show(language, b.linkAmong("annabella.very.long.name@subdomain.example.org", "ann@example.com"))
	b.send(language, "/confirm")
	b.show(language, "/account/addresses")
	b.send(language, "/account/addresses", "email", "ann@example.net", "password", password)
	b.show(language, b.linkAmong("ann@example.net", "annabella.very.long.name@subdomain.example.org"))
	b.send(language, "/add")
	b.show(language, "/account/addresses")
	b.show(language, "/account/devices")
}

func (b *browser) secureIn(language string) {
	b.t.Helper()
	b.show(language, "/account/security")
	b.send(language, "/account/security", "label", strings.Repeat("long", 20))
	b.send(language, "/account/security", "label", "phone")
	secret := ""
	b.run("reading the key", chromedp.Evaluate(`new URL(document.querySelector("[name=uri]").value).searchParams.get("secret")`, &secret))
	b.send(language, "/account/security", "code", "no code")
	b.send(language, "/account/security", "code", codeAt(b.t, secret, time.Now()))
	// Both addresses are notified.
	b.linkAmong("annabella.very.long.name@subdomain.example.org", "ann@example.net")
	b.show(language, "/account/security")
	b.show(language, "/account/verify?return=/account/devices")
	b.send(language, "/account/verify", "password", "wrong", "code", "wrong")
}

func (b *browser) signInIn(language string) {
	b.t.Helper()
	b.follow("signing out", chromedp.Click(`form[action="/signout"] button`, chromedp.ByQuery))
	b.show(language, "/signin")
	b.send(language, "/signin", "identifier", "ann", "password", "wrong")
	b.send(language, "/signin", "identifier", "ann", "password", password)
	b.send(language, "/signin/code", "code", "wrong")
	b.show(language, "/signin/code?recovery=&by=totp+recovery&return=/")
	b.show(language, "/forgot")
	b.send(language, "/forgot", "identifier", "ann")
	b.show(language, b.link("annabella.very.long.name@subdomain.example.org"))
	b.send(language, "/reset", "password", "short")
	b.send(language, "/reset", "password", "battery staple horse")
	b.show(language, "/welcome?token=made-up")
}

// checkLanguage checks the page with checkPage, and that it is in the language. It then makes the
// text twice as large, and checks that nothing is cut or wider than the window.
func (b *browser) checkLanguage(language string) {
	b.t.Helper()
	b.until("waiting for the page", `document.documentElement.lang`, language)
	var heading, cut string
	b.run("reading the heading", chromedp.Evaluate(`document.querySelector("h1").textContent`, &heading))
	b.checkPage(heading)
	for _, size := range []string{"100%", "200%"} {
		b.run("measuring", chromedp.Evaluate(fmt.Sprintf(cutElements, size), &cut))
		if cut != "" {
			b.t.Errorf("%s, %s, text of %s: cut or wider than the window: %s", b.windowName, heading, size, cut)
		}
	}
	b.run("restoring the size", chromedp.Evaluate(`document.documentElement.style.fontSize = ""; 0`, nil))
}

// cutElements is an expression for the elements that are cut or wider than the window with text of
// a size. It leaves out text that only screen readers read.
const cutElements = `(() => {
	document.documentElement.style.fontSize = %q;
	const width = document.documentElement.clientWidth;
	return [...document.body.querySelectorAll("*")].filter(e => {
		const box = e.getBoundingClientRect(), style = getComputedStyle(e);
		if (box.width === 0 || e.closest(".hidden, svg")) return false;
		const cuts = style.overflowX !== "visible" && e.scrollWidth > e.clientWidth + 1 || style.overflowY !== "visible" && e.scrollHeight > e.clientHeight + 1;
		return box.right > width + 1 || box.left < -1 || cuts && e.tagName !== "INPUT";
	}).map(e => e.outerHTML.slice(0, 80)).join("; ");
})()`
