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
		d.run("reading "+id, chromedp.Focus("#"+id, chromedp.ByQuery), chromedp.Evaluate(`document.activeElement.select(); document.activeElement.value`, &text))
		if text != "" {
			d.run("pasting into "+id, input.InsertText(text))
		}
		d.run("leaving "+id, chromedp.Evaluate(`document.activeElement.blur(); 0`, nil))
	}
}
