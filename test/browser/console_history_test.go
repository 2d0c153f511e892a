package browser

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestHistoryFiltersByKeyboard sets and removes filters of the history without a mouse, with and
// without scripts. The filters are folded until one is set.
func TestHistoryFiltersByKeyboard(t *testing.T) {
	for _, scripts := range []bool{false, true} {
		t.Run(fmt.Sprintf("scripts-%v", scripts), func(t *testing.T) {
			d := openConsole(t, window{"console-390-light", 390, "light"}, scripts)
			d.createAccounts()
			d.setUp()
			d.visit("/console/history")
			d.onPage("History", "Person 29")
			d.unfoldByKey("Filter …")
			d.tabTo("account")
			d.keys("ALICE")
			d.tabTo("from")
			d.keys("yesterday")
			d.enter(kb.Enter)
			d.onPage("History", "Not a date")
			d.run("emptying the input", chromedp.Evaluate(`document.querySelector("#from").value = ""; 0`, nil))
			d.tabTo("from")
			d.keys("2026-01-01")
			d.choose("Show")
			d.onPage("History", "Alice: The command line created the account")
			d.choose("Show all")
			d.onPage("History", "Person 29")
		})
	}
}
