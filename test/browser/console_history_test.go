package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestHistoryFiltersByKeyboard sets and removes filters of the history without a mouse, with and
// without scripts. The form is folded unless something in it is wrong, so that the events begin in
// the upper half of the window.
func TestHistoryFiltersByKeyboard(t *testing.T) {
	t.Parallel()
	for i, w := range []window{{"console-390-light", 390, "light"}, {"console-390-dark", 390, "dark"}, {"console-1000-dark", 1000, "dark"}, {"console-1440-light", 1440, "light"}} {
		t.Run(w.name, func(t *testing.T) {
			d := openConsole(t, w, i%2 == 0)
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
			d.onPage("History")
			d.wantProblem("from", "Not a date")
			d.run("emptying the input", chromedp.Evaluate(`document.querySelector("#from").value = ""; 0`, nil))
			d.tabTo("from")
			d.keys("2026-01-01")
			d.tabTo("until")
			d.keys("2099-12-31")
			d.choose("Show")
			d.onPage("History", "Alice: The command line created the account", "from 2026-01-01", "until 2099-12-31")
			d.until("reading the events", `String([...document.querySelectorAll(".events a")].every(a => a.textContent === "Alice"))`, "true")
			d.until("looking for the events", `String(document.querySelector(".events").getBoundingClientRect().top < innerHeight / 2)`, "true")
			d.choose("remove the filter account ALICE")
			d.onPage("History", "Person 29", "from 2026-01-01")
			d.choose("Show all")
			d.onPage("History", "Person 29")
			d.until("looking for filters", `String(document.querySelector(".chips"))`, "null")
		})
	}
}
