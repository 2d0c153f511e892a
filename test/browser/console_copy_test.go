package browser

import (
	"context"
	"fmt"
	"testing"

	cdp "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// TestConsoleCopies copies identifiers and a link with the buttons of the page. If the browser does
// not allow that, the button selects the text. Without scripts or a clipboard there are no buttons.
func TestConsoleCopies(t *testing.T) {
	t.Parallel()
	const address = "Größe.ς@straße.example"
	for _, w := range []window{{"console-390-light", 390, "light"}, {"console-1440-dark-keyboard", 1440, "dark"}} {
		t.Run(w.name, func(t *testing.T) {
			d := openConsole(t, w, true)
			d.createAccounts()
			d.userdb("", "set", "uid=9a4c88dbc084", "email+="+address)
			d.setUp()
			d.keyboard = w.width > 1000
			d.run("focusing the window", emulation.SetFocusEmulationEnabled(true))
			d.allowCopies(cdp.PermissionSettingGranted)
			d.visit(alice)
			d.onPage("Alice")
			d.copyOf("h1", "Alice")
			d.copyOf(".who li:nth-child(2) .what", address)
			d.until("looking at the other button", `document.querySelector("h1 + .copy").textContent`, "Copy name")
			d.press("/tokens")
			d.onPage("Alice", "This link is shown only once.")
			var link string
			d.run("reading the link", chromedp.Text(".secret", &link, chromedp.ByQuery))
			d.copyOf(".secret", link)

			d.allowCopies(cdp.PermissionSettingDenied)
			d.visit(alice)
			d.run("copying", d.click("h1 + .copy"))
			d.until("looking at the button", `document.querySelector("h1 + .copy").textContent`, "Selected name")
			d.until("looking at the selection", `getSelection().toString()`, "Alice")

			d.run("removing the clipboard", chromedp.ActionFunc(func(ctx context.Context) error {
				_, err := page.AddScriptToEvaluateOnNewDocument(`Object.defineProperty(navigator, "clipboard", {value: undefined})`).Do(ctx)
				return err
			}))
			d.wantNoCopyButtons()
			d.run("turning scripts off", emulation.SetScriptExecutionDisabled(true))
			d.wantNoCopyButtons()
		})
	}
}

// allowCopies sets whether pages may write to the clipboard. They may read it.
func (d *console) allowCopies(setting cdp.PermissionSetting) {
	d.t.Helper()
	d.run("setting permissions",
		cdp.SetPermission(&cdp.PermissionDescriptor{Name: "clipboard-read"}, cdp.PermissionSettingGranted),
		cdp.SetPermission(&cdp.PermissionDescriptor{Name: "clipboard-write", AllowWithoutSanitization: true}, setting),
		cdp.SetPermission(&cdp.PermissionDescriptor{Name: "clipboard-write"}, setting))
}

// copyOf presses the button after an element, and checks that the clipboard has the text.
func (d *console) copyOf(selector, want string) {
	d.t.Helper()
	d.run("copying", d.click(selector+" + .copy"))
	d.until("waiting for the copy", fmt.Sprintf(`document.querySelector(%q).firstChild.data`, selector+" + .copy"), "Copied")
	var got string
	await := func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
	d.run("reading the clipboard", chromedp.Evaluate(`navigator.clipboard.readText()`, &got, await))
	if got != want {
		d.t.Errorf("the clipboard has %q, want %q", got, want)
	}
}

// wantNoCopyButtons checks that a page has texts that could be copied, but no buttons to copy them.
func (d *console) wantNoCopyButtons() {
	d.t.Helper()
	d.visit(alice)
	d.onPage("Alice")
	d.until("looking for buttons", `String(document.querySelectorAll("[data-copy]").length > 2) + document.querySelectorAll("button.copy").length`, "true0")
}
