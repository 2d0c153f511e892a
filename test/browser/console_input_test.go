package browser

import (
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// TestInputsKeepWhatTheyShow saves the page of an account whose texts browsers like to rewrite:
// addresses with an international domain, ß and ς, joiners, combining and invisible characters,
// spaces at the ends, and line breaks. Nothing may change, neither if nobody touched the inputs nor
// if somebody pasted into each the text that it already has, and left it.
func TestInputsKeepWhatTheyShow(t *testing.T) {
	const at, persian = "/console/types/user/a0b1c2d3e4f5", "می\u200cخواهم"
	for _, scripts := range []bool{false, true} {
		t.Run(fmt.Sprintf("scripts-%v", scripts), func(t *testing.T) {
			d := openConsole(t, consoleWindows[3], scripts)
			d.setUp()
			d.userdb(password+"\n", "create", "user", "uid=a0b1c2d3e4f5", "name="+persian, "email=Größe.ς@straße.example",
				"job=  Νικολάου ς\u200d\u200c e\u0301 \u202eabc\u202c 👩‍👩‍👧 ß\u00ad\ufeff\t ", "news=false",
				"bio=one \n\n two\t\r\nthree\rfour\n", "age=0.10", "added=2026-02-16T23:59:59Z", "--password-stdin")
			d.userdb("", "set", "uid=a0b1c2d3e4f5", "email+=Δς@пример.испытание")
			before := d.userdb("", "get", "uid=a0b1c2d3e4f5", "--json")
			for _, paste := range []bool{false, true} {
				d.visit(at)
				d.unfold(fmt.Sprintf("form[action=%q]", at))
				if paste {
					d.pasteSame()
				}
				d.submit(at)
				d.onPage(persian, "The account has been changed.")
				if after := d.userdb("", "get", "uid=a0b1c2d3e4f5", "--json"); after != before {
					t.Errorf("pasted %v: the account was\n%s\nand is\n%s", paste, before, after)
				}
			}
		})
	}
}

// paste pastes a text into an input in place of what it contains, and leaves the input.
func (b *browser) paste(id, text string) {
	b.t.Helper()
	b.run("pasting into "+id, chromedp.Focus("#"+id, chromedp.ByQuery), chromedp.Evaluate(`document.activeElement.select(); 0`, nil),
		input.InsertText(text), chromedp.Evaluate(`document.activeElement.blur(); 0`, nil))
}

// pasteSame pastes into each input for a facet the text that it contains, and leaves it.
func (d *console) pasteSame() {
	d.t.Helper()
	var ids []string
	d.run("looking at the inputs", chromedp.Evaluate(`[...document.querySelectorAll("input[id^=f-], textarea[id^=f-]")].map(i => i.id)`, &ids))
	if len(ids) != 6 {
		d.t.Fatalf("the form has the inputs %q", ids)
	}
	for _, id := range ids {
		var text string
		d.run("reading "+id, chromedp.Value("#"+id, &text, chromedp.ByQuery))
		if text != "" {
			d.paste(id, text)
		}
	}
}

// typedText is a text that browsers like to rewrite.
const typedText = " Größe.ς@straße.example ＡＢ e\u0301 می\u200cخ 👩\u200d👧  "

// wantTyped checks that inputs contain the text that somebody typed into them.
func (b *browser) wantTyped(text string, ids ...string) {
	b.t.Helper()
	for _, id := range ids {
		var got string
		if b.run("reading "+id, chromedp.Value("#"+id, &got, chromedp.ByQuery)); got != text {
			b.t.Errorf("the input %s contains %q, want %q", id, got, text)
		}
	}
}

// TestConsoleFormsKeepWhatWasTyped checks that forms of the console that are refused show what was
// pasted and chosen, and that a list is filtered by exactly that.
func TestConsoleFormsKeepWhatWasTyped(t *testing.T) {
	for _, scripts := range []bool{false, true} {
		t.Run(fmt.Sprintf("scripts-%v", scripts), func(t *testing.T) {
			d := openConsole(t, consoleWindows[3], scripts)
			d.visit(d.setup)
			d.paste("name", typedText)
			d.submit("/console/setup", "password", "short")
			d.wantTyped(typedText, "name")
			d.setUp()
			d.createAccounts()
			d.userdb(password+"\n", "create", "user", "uid=typed", "name=Typed", "job="+typedText, "--tag", typedText, "--password-stdin")
			refused := func(path string, fields ...string) {
				d.t.Helper()
				d.visit(path)
				d.unfold("#" + fields[0])
				for _, id := range fields {
					d.paste(id, typedText)
				}
				d.follow("sending the form", d.click(fmt.Sprintf("form:has(#%s) button", fields[0])))
				d.wantTyped(typedText, fields...)
			}
			refused("/console/new", "f-email", "f-name", "f-added", "f-age", "f-bio", "f-job")
			refused(alice, "f-email", "f-name", "f-added", "f-age", "f-bio", "f-job")
			refused(alice, "a-email")
			refused("/console/history", "account", "by", "origin", "from", "until")
			refused("/console/find", "q")
			refused("/console/keys", "name")
			for _, id := range []string{"value", "tag"} {
				d.visit("/console/types/user")
				d.selectOption("#by", "job")
				d.paste(id, typedText)
				d.submit("/console/types/user")
				d.onPage("Accounts", "\n1 account", "Typed")
			}
			d.visit("/console/keys")
			d.run("choosing", d.click("#scope-login"), chromedp.SetValue("#expires", "90d", chromedp.ByQuery))
			d.submit("/console/keys", "name", "Größe")
			d.wantTyped("90d", "expires")
			d.until("looking at the scope", `String(document.querySelector("#scope-login").checked)`, "true")
			d.visit("/console/import")
			d.run("choosing", chromedp.SetValue("#on_duplicate", "update", chromedp.ByQuery))
			d.submit("/console/import")
			d.wantTyped("update", "on_duplicate")
			d.run("choosing a file", chromedp.SetUploadFiles("#file", []string{d.importFile()}, chromedp.ByQuery))
			d.submit("/console/import")
			d.follow("leaving out a column", chromedp.SetValue("#c-0", "", chromedp.ByQuery), d.click(`button[value=preview]`))
			d.onPage("Import more.csv")
			d.wantTyped("", "c-0")
			d.wantTyped("email", "c-2")
			d.visit("/console/security")
			d.paste("label", typedText+typedText)
			d.submit("/console/security/add")
			d.wantTyped(typedText+typedText, "label")
			d.follow("signing out", d.click(`form[action="/console/signout"] button`))
			d.paste("name", typedText)
			d.submit("/console/signin", "password", "wrong")
			d.wantTyped(typedText, "name")
		})
	}
}

// TestFlowsKeepWhatWasTyped checks that forms of the example that are refused show what was pasted.
func TestFlowsKeepWhatWasTyped(t *testing.T) {
	for _, scripts := range []bool{false, true} {
		t.Run(fmt.Sprintf("scripts-%v", scripts), func(t *testing.T) {
			b := open(t, windows[2], scripts, webapp)
			refused := func(path, field string, more ...string) {
				b.t.Helper()
				b.visit(path)
				b.paste(field, typedText)
				b.submit(path, more...)
				b.wantTyped(typedText, field)
			}
			refused("/signup", "email")
			refused("/signin", "identifier", "password", "wrong")
			b.visit("/signup")
			b.submit("/signup", "email", "ann@example.com")
			b.visit(b.link("ann@example.com"))
			b.paste("name", typedText)
			b.submit("/welcome", "password", "short")
			b.wantTyped(typedText, "name")
			b.submit("/welcome", "name", "ann", "password", password)
			b.onPage("Your account", "ann")
			refused("/account/email", "email", "password", password)
			refused("/account/addresses", "email", "password", password)
			refused("/account/edit", "job", "name", "")
			b.visit("/account/security")
			b.paste("label", typedText+typedText)
			b.submit("/account/security")
			b.wantTyped(typedText+typedText, "label")
		})
	}
}
