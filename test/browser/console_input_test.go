package browser

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// TestInputsKeepWhatTheyShow saves the page of an account whose texts browsers like to rewrite:
// addresses with an international domain, ß and ς, joiners, combining and invisible characters,
// spaces at the ends, and line breaks. Nothing may change if nobody touched the inputs, or if
// somebody pasted into each the text that it already has and left it, or if the browser filled it
// in. If an address is changed, which is confirmed, the others stay.
func TestInputsKeepWhatTheyShow(t *testing.T) {
	t.Parallel()
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
			for how, touch := range map[string]func(){"untouched": func() {}, "pasted": d.pasteSame, "filled in": d.fillInSame} {
				d.visit(at)
				d.unfold(fmt.Sprintf("form[action=%q]", at))
				touch()
				d.submit(at)
				d.onPage(persian, "The account has been changed.")
				if after := d.userdb("", "get", "uid=a0b1c2d3e4f5", "--json"); after != before {
					t.Errorf("%s: the account was\n%s\nand is\n%s", how, before, after)
				}
			}
			d.visit(at)
			d.submit(at, "f-email", "δς@straße.example")
			d.onPage("Change how this account is found?", "Größe.ς@straße.example becomes δς@straße.example")
			d.submit(at)
			d.onPage(persian, "The account has been changed.")
			if after := otherFacets(t, d.userdb("", "get", "uid=a0b1c2d3e4f5", "--json")); after != otherFacets(t, before) {
				t.Errorf("confirmed: the account was\n%s\nand has the facets\n%s", before, after)
			}
		})
	}
}

// otherFacets returns the facets of an account in JSON, except the address.
func otherFacets(t *testing.T, text string) string {
	t.Helper()
	all := map[string]any{}
	if err := json.Unmarshal([]byte(text), &all); err != nil || all["email"] == nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, name := range []string{"email", "~values", "~rev"} {
		delete(all, name)
	}
	return fmt.Sprintf("%q", all)
}

// fillInSame sets each input for a facet to the text that it contains, as browsers do when they
// fill in a form, even in the inputs that are not shown.
func (d *console) fillInSame() {
	d.t.Helper()
	d.run("filling in the form", chromedp.Evaluate(`for (const i of document.querySelectorAll("form:has([name=rev]) :is(input, textarea, select)")) {
		const text = i.value;
		i.focus();
		i.value = "";
		i.value = text;
		for (const kind of ["keydown", "input", "keyup", "change", "blur"]) i.dispatchEvent(new Event(kind, { bubbles: true }));
	} 0`, nil))
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

// enteredText is a text that browsers like to rewrite.
const enteredText = " Größe.ς@straße.example ＡＢ e\u0301 می\u200cخ 👩\u200d👧  "

// wantEntered checks that inputs contain the text that somebody entered into them.
func (b *browser) wantEntered(text string, ids ...string) {
	b.t.Helper()
	for _, id := range ids {
		var got string
		if b.run("reading "+id, chromedp.Value("#"+id, &got, chromedp.ByQuery)); got != text {
			b.t.Errorf("the input %s contains %q, want %q", id, got, text)
		}
	}
}

// TestConsoleFormsKeepWhatWasEntered checks that forms of the console that are refused show what
// was pasted and chosen, and that a list is filtered by exactly that.
func TestConsoleFormsKeepWhatWasEntered(t *testing.T) {
	t.Parallel()
	for _, scripts := range []bool{false, true} {
		t.Run(fmt.Sprintf("scripts-%v", scripts), func(t *testing.T) {
			d := openConsole(t, consoleWindows[3], scripts)
			d.visit(d.setup)
			d.paste("name", enteredText)
			d.submit("/console/setup", "password", "short")
			d.wantEntered(enteredText, "name")
			d.setUp()
			d.createAccounts()
			d.userdb(password+"\n", "create", "user", "uid=ann", "name=Ann", "job="+enteredText, "--tag", enteredText, "--password-stdin")
			refused := func(path string, fields ...string) {
				d.t.Helper()
				d.visit(path)
				d.unfold("#" + fields[0])
				for _, id := range fields {
					d.paste(id, enteredText)
				}
				d.follow("sending the form", d.click(fmt.Sprintf("form:has(#%s) button", fields[0])))
				d.wantEntered(enteredText, fields...)
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
				d.paste(id, enteredText)
				d.submit("/console/types/user")
				d.onPage("Accounts", "\n1 account", "Ann")
			}
			d.visit("/console/keys")
			d.run("choosing", d.click("#scope-login"), chromedp.SetValue("#expires", "90d", chromedp.ByQuery))
			d.submit("/console/keys", "name", "Größe")
			d.wantEntered("90d", "expires")
			d.until("looking at the scope", `String(document.querySelector("#scope-login").checked)`, "true")
			d.visit("/console/import")
			d.run("choosing", chromedp.SetValue("#on_duplicate", "update", chromedp.ByQuery))
			d.submit("/console/import")
			d.wantEntered("update", "on_duplicate")
			d.run("choosing a file", chromedp.SetUploadFiles("#file", []string{d.importFile()}, chromedp.ByQuery))
			d.submit("/console/import")
			d.follow("leaving out a column", chromedp.SetValue("#c-0", "", chromedp.ByQuery), d.click(`button[value=preview]`))
			d.onPage("Import more.csv")
			d.wantEntered("", "c-0")
			d.wantEntered("email", "c-2")
			d.visit("/console/security")
			d.paste("label", enteredText+enteredText)
			d.submit("/console/security/add")
			d.wantEntered(enteredText+enteredText, "label")
			d.follow("signing out", d.click(`form[action="/console/signout"] button`))
			d.paste("name", enteredText)
			d.submit("/console/signin", "password", "wrong")
			d.wantEntered(enteredText, "name")
		})
	}
}

// TestFlowsKeepWhatWasEntered checks that forms of the example that are refused show what was
// pasted.
func TestFlowsKeepWhatWasEntered(t *testing.T) {
	t.Parallel()
	for _, scripts := range []bool{false, true} {
		t.Run(fmt.Sprintf("scripts-%v", scripts), func(t *testing.T) {
			b := open(t, windows[2], scripts, webapp)
			refused := func(path, field string, more ...string) {
				b.t.Helper()
				b.visit(path)
				b.paste(field, enteredText)
				b.submit(path, more...)
				b.wantEntered(enteredText, field)
			}
			refused("/signup", "email")
			refused("/signin", "identifier", "password", "wrong")
			b.visit("/signup")
			b.submit("/signup", "email", "ann@example.com")
			b.visit(b.link("ann@example.com"))
			b.paste("name", enteredText)
			b.submit("/welcome", "password", "short")
			b.wantEntered(enteredText, "name")
			b.submit("/welcome", "name", "ann", "password", password)
			b.onPage("Your account", "ann")
			refused("/account/email", "email", "password", password)
			refused("/account/addresses", "email", "password", password)
			refused("/account/edit", "job", "name", "")
			b.visit("/account/security")
			b.paste("label", enteredText+enteredText)
			b.submit("/account/security")
			b.wantEntered(enteredText+enteredText, "label")
		})
	}
}
