package browser

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// A console is a browser that shows the console of a running `userdb serve`, with the command to
// look at and change the same store.
type console struct {
	*browser
	program, store, schema string
	setup                  string // the link that the service printed
	keyboard               bool   // tasks are carried out without a mouse
}

// openConsole starts the service with flags and its accounts in a file, and opens a browser.
func openConsole(t *testing.T, w window, scripts bool, flags ...string) *console {
	t.Helper()
	schema, err := filepath.Abs("testdata/schema.json")
	if err != nil {
		t.Fatal(err)
	}
	d := &console{store: "file:" + filepath.Join(t.TempDir(), "accounts.db"), schema: schema}
	d.browser = open(t, w, scripts, func(b *browser) {
		d.program = b.build("./cmd/userdb")
		args := []string{"serve", "--store", d.store, "--schema", schema, "--listen", "127.0.0.1:0", "--reset-link", "https://shop.example/reset?token={secret}"}
		cmd := exec.Command(d.program, append(args, flags...)...)
		out, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		b.start(cmd)
		lines := bufio.NewScanner(out)
		for lines.Scan() && b.base == "" {
			line := lines.Text()
			if link, ok := strings.CutPrefix(line, "first operator: "); ok {
				d.setup = link
			}
			if at, ok := strings.CutPrefix(line, "listening on "); ok {
				b.base = at
				break
			}
		}
		go func() {
			for lines.Scan() { // read the log, or the service would block
				continue
			}
		}()
	})
	if d.setup == "" || d.base == "" {
		t.Fatalf("the service printed the set-up link %q and the address %q, want both", d.setup, d.base)
	}
	return d
}

// userdb runs the command on the store that is served.
func (d *console) userdb(stdin string, args ...string) string {
	d.t.Helper()
	cmd := exec.Command(d.program, append([]string{"--store", d.store, "--schema", d.schema}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("userdb %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// createAccounts creates Alice, who is a baker, and 30 cooks.
func (d *console) createAccounts() {
	d.t.Helper()
	d.userdb(password+"\n", "create", "user", "uid=9a4c88dbc084", "name=Alice", "email=alice@example.com", "job=baker", "--tag", "vip", "--password-stdin")
	var lines strings.Builder
	for i := range 30 {
		fmt.Fprintf(&lines, `{"type":"user","facets":{"uid":"u%02d","name":"Person %02d","email":"p%02d@example.com","job":"cook"}}`+"\n", i, i, i)
	}
	file := filepath.Join(d.t.TempDir(), "people.jsonl")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		d.t.Fatal(err)
	}
	d.userdb("", "import", file)
}

// guess tries to sign in as Alice with a wrong password.
func (d *console) guess() {
	d.t.Helper()
	cmd := exec.Command(d.program, "--store", d.store, "--schema", d.schema, "login", "--password-stdin", "alice@example.com")
	cmd.Stdin = strings.NewReader("wrong\n")
	if out, err := cmd.CombinedOutput(); err == nil {
		d.t.Fatalf("a wrong password was accepted: %s", out)
	}
}

// setUp opens the set-up link and creates the first operator.
func (d *console) setUp() {
	d.t.Helper()
	d.visit("/console/find")
	d.onPage("Sign in")
	d.visit(d.setup)
	d.onPage("Create the first operator")
	d.submit("/console/setup", "name", "", "password", "short")
	d.onPage("Create the first operator")
	d.wantProblem("name", "This field is required.")
	d.wantProblem("password", "At least 8 characters")
	d.submit("/console/setup", "name", "root", "password", password)
	d.onPage("Home", "root")
	d.visit(d.setup)
	d.onPage("This link is no longer valid")
}

// consoleWindows are the windows in which the console is tested.
var consoleWindows = []window{{"console-390-light", 390, "light"}, {"console-390-dark", 390, "dark"}, {"console-1000-light", 1000, "light"}, {"console-1440-dark", 1440, "dark"}}

// TestConsole carries out every task of the console in every kind of window, half of them without
// scripts.
func TestConsole(t *testing.T) {
	t.Parallel()
	for i, w := range consoleWindows {
		for _, scripts := range []bool{false, true} {
			// Each window is tested once: the first and the third with scripts, the others without.
			if scripts != (i%2 == 0) {
				continue
			}
			t.Run(fmt.Sprintf("%s-scripts-%v", w.name, scripts), func(t *testing.T) {
				d := openConsole(t, w, scripts)
				d.createAccounts()
				d.setUp()
				d.find()
				d.manageAccount()
				d.editAccount()
				d.changeValues()
				d.listAccounts()
				d.viewPages()
				d.manageKeys()
				d.maintain()
				d.signOutAndIn()
			})
		}
	}
}

func (d *console) find() {
	d.t.Helper()
	d.visit("/console/find")
	d.submit("/console/find", "q", "ＡＬＩＣＥ")
	d.onPage("Alice", "ＡＬＩＣＥ is read as alice.", "They can sign in")
	d.follow("asking why", d.click(`main a[href^="/console/find"]`))
	d.onPage("Search", "ＡＬＩＣＥ is read as alice and belongs to this account.", "They can sign in")
	d.submit("/console/find", "q", "alcie")
	d.onPage("Search", "Nobody has alcie. One letter away:")
	d.submit("/console/find", "q", "person 0")
	d.onPage("Search", "Others that begin with this", "Person 07")
	if d.scripts {
		d.run("typing", chromedp.Evaluate(`document.querySelector("#q").value = ""; 0`, nil), chromedp.SendKeys("#q", "perso", chromedp.ByQuery))
		d.until("waiting for the suggestions", `String(document.querySelectorAll("#suggestions option").length)`, "8")
	}
	d.submit("/console/find", "q", "alice@example.com")
	d.onPage("Alice", "They can sign in")
	d.openTab("history", "created the account")
	d.openTab("signins", "There is no record of a sign-in")
	d.openTab("devices", "They are not signed in on any device.")
	d.visit(alice)
	d.onPage("Alice")
}

// openTab opens a tab of the account on the page, and checks that it contains words and begins in
// the upper half of the window.
func (d *console) openTab(name string, words ...string) {
	d.t.Helper()
	d.follow("opening the tab "+name, d.click(fmt.Sprintf(".tabs a[href*=%q]", "?tab="+name)))
	d.onPage("Alice", words...)
	d.until("looking for the tab", `String(document.querySelector(".tabs").getBoundingClientRect().top < innerHeight / 2)`, "true")
}

// press presses the button of the form whose action ends with action, such as /disable.
func (d *console) press(action string) {
	d.t.Helper()
	form := fmt.Sprintf("form[action$=%q]", action)
	d.unfold(form)
	d.follow("pressing "+action, d.click(form+" button"))
}

// click returns an action that clicks the first element that a selector selects. Without a mouse,
// it presses Tab until that element has the focus, and then a key.
func (d *console) click(selector string) chromedp.Action {
	if !d.keyboard {
		return click(selector)
	}
	return chromedp.ActionFunc(func(ctx context.Context) error {
		var checkbox bool
		d.tabUntil(fmt.Sprintf("e === document.querySelector(%q)", selector))
		if err := chromedp.Evaluate(`document.activeElement.type === "checkbox"`, &checkbox).Do(ctx); err != nil {
			return err
		}
		if checkbox {
			return chromedp.KeyEvent(" ").Do(ctx)
		}
		return chromedp.KeyEvent(kb.Enter).Do(ctx)
	})
}

// fill does what browser.fill does, without a mouse if there is none.
func (d *console) fill(input, text string) {
	d.t.Helper()
	if !d.keyboard {
		d.browser.fill(input, text)
		return
	}
	d.tabUntil(fmt.Sprintf("e === document.querySelector(%q)", input))
	d.run("selecting the text", chromedp.Evaluate(`document.activeElement.select(); 0`, nil))
	d.keys(kb.Delete, text)
}

// pick picks the option with a value.
func (d *console) pick(selector, value string) {
	d.t.Helper()
	if !d.keyboard {
		d.run("choosing "+value, chromedp.SetValue(selector, value, chromedp.ByQuery))
		return
	}
	d.tabUntil(fmt.Sprintf("e === document.querySelector(%q)", selector))
	for range 50 {
		var got string
		if d.run("reading "+selector, chromedp.Value(selector, &got, chromedp.ByQuery)); got == value {
			return
		}
		d.keys(kb.ArrowDown)
	}
	d.t.Fatalf("no option of %s has the value %s", selector, value)
}

// unfold opens the part of the page that hides a form or an input. form is a selector; the first
// match counts.
func (d *console) unfold(form string) {
	d.t.Helper()
	var hidden bool
	d.run("looking for "+form, chromedp.Evaluate(fmt.Sprintf(`document.querySelector(%q)?.closest("details:not([open])") != null`, form), &hidden))
	if hidden {
		d.run("unfolding "+form, d.click(fmt.Sprintf("details:not([open]):has(%s) > summary", form)))
	}
}

// submit does what browser.submit does, with the form whose action is exactly path, if there is
// one. The form may be folded.
func (d *console) submit(path string, fields ...string) {
	d.t.Helper()
	form := fmt.Sprintf("form[action=%q]:not([data-passkey])", path)
	var exact bool
	d.run("looking for "+form, chromedp.Evaluate(fmt.Sprintf("document.querySelector(%q) != null", form), &exact))
	if !exact {
		form = fmt.Sprintf("form[action^=%q]:not([data-passkey])", path)
	}
	d.unfold(form)
	for i := 0; i+1 < len(fields); i += 2 {
		d.fill("#"+fields[i], fields[i+1])
	}
	d.follow("sending "+form, d.click(form+" button"))
}

// wantProblem does what browser.wantProblem does. It also checks that the page shows the problem at
// once, without scrolling, and that a link leads from there to the input.
func (d *console) wantProblem(field, text string) {
	d.t.Helper()
	d.browser.wantProblem(field, text)
	var signedIn bool
	if d.run("looking for the operator", chromedp.Evaluate(`document.querySelector("header .out") != null`, &signedIn)); !signedIn {
		return // the page is short
	}
	d.until("looking for the focus", `document.activeElement.className`, "refusals")
	d.wantInWindow(".refusals")
	d.run("following the link", chromedp.Evaluate(fmt.Sprintf(`document.querySelector(".refusals a[href='#%s']").click(); 0`, field), nil))
	d.until("looking for the focus", `document.activeElement.id`, field)
	d.wantInWindow("#" + field)
}

// wantInWindow checks that the whole element is in the window and that nothing covers it.
func (d *console) wantInWindow(selector string) {
	d.t.Helper()
	d.until("looking at "+selector, fmt.Sprintf(`(e => { const r = e.getBoundingClientRect();
		const at = y => document.elementFromPoint(r.left + r.width / 2, y);
		return String(r.top >= 0 && r.bottom <= innerHeight && e.contains(at(r.top + 3)) && e.contains(at(r.bottom - 3))) })(document.querySelector(%q))`, selector), "true")
}

const alice = "/console/types/user/9a4c88dbc084"

func (d *console) manageAccount() {
	d.t.Helper()
	d.press("/disable")
	d.onPage("Alice", "They cannot sign in: the account is disabled, by operator root at", "The account is disabled.")
	d.press("/enable")
	d.onPage("Alice", "They can sign in", "The account may sign in again.")
	d.guess()
	d.visit(alice)
	d.press("/waits")
	d.onPage("Alice", "Nobody has to wait")
	d.press("/sessions/end")
	d.onPage("Alice", "The sessions have ended.")
	d.press("/tokens")
	d.onPage("Alice", "This link is shown only once. Send it to alice@example.com.", "https://shop.example/reset?token=", "is unused and valid until")
	d.wantInWindow(".issued")
	d.submit(alice+"/password", "password", "short")
	d.onPage("Alice")
	d.wantProblem("password", "At least 8 characters")
	d.submit(alice+"/password", "password", "another long password")
	d.onPage("Alice", "The password has been set.", "became invalid when a password was set")
	d.fill("#add", "<b>new</b>")
	d.follow("adding the tag", d.click(`form:has(#add) button`))
	d.onPage("Alice", "The tags have been changed.", "<b>new</b>", "vip")
	d.press("/tags")
	d.onPage("Alice", "The tags have been changed.")
	const tags = `[...document.querySelectorAll(".chips form > :is(a, bdi)")].map(t => t.textContent).join()`
	d.until("reading the tags", tags, "vip")
	d.follow("undoing that", d.click(".done button"))
	d.onPage("Alice", "The tags have been changed.")
	d.until("reading the tags", tags, "<b>new</b>,vip")
}

func (d *console) editAccount() {
	d.t.Helper()
	d.visit(alice)
	d.submit(alice, "f-email", "no address")
	d.onPage("Alice")
	d.wantProblem("f-email", "This is not an e-mail address.")
	d.submit(alice, "f-email", "P07@example.com")
	d.onPage("Alice", "p07@example.com is the email of Person 07.")
	d.submit(alice, "f-email", "alice@example.org", "f-job", "smith")
	d.onPage("Change how this account is found?", "alice@example.com becomes alice@example.org")
	d.submit(alice)
	d.onPage("Alice", "The account has been changed.")
	d.userdb("", "set", "email=alice@example.org", "job=cook")
	d.submit(alice, "f-job", "gardener")
	d.onPage("Alice", "Somebody else has changed this account in the meantime.", "Stored now: cook")
	d.wantInWindow("main > .problem")
	d.submit(alice)
	d.onPage("Alice", "The account has been changed.")
	d.editInternational()
}

// editInternational changes an account whose address browsers would rewrite in an input of type
// email. A change of another field must leave the address as it is.
func (d *console) editInternational() {
	d.t.Helper()
	const jo = "/console/types/user/a0b1c2d3e4f5"
	d.userdb(password+"\n", "create", "user", "uid=a0b1c2d3e4f5", "name=Jo", "email=user@straße.example", "bio=one\ntwo", "--password-stdin")
	d.visit(jo)
	d.submit(jo, "f-job", "smith")
	d.onPage("Jo", "The account has been changed.")
	d.visit(jo)
	d.submit(jo, "f-email", "jo@straße.example")
	d.onPage("Change how this account is found?", "user@straße.example becomes jo@straße.example")
	d.submit(jo)
	d.onPage("Jo", "The account has been changed.")
	if out := d.userdb("", "get", "uid=a0b1c2d3e4f5", "--json"); !strings.Contains(out, `"jo@straße.example"`) || !strings.Contains(out, `"one\ntwo"`) {
		d.t.Errorf("the account lacks the new values: %s", out)
	}
	d.userdb("", "delete", "uid=a0b1c2d3e4f5", "--yes")
	d.visit(alice)
}

// changeValues adds an address to the account of Alice, makes it the first, and removes the other
// one. Each of these is confirmed.
func (d *console) changeValues() {
	d.t.Helper()
	const question = "Change how this account is found?"
	d.onPage("Alice", "All values of email", "alice@example.org", "not verified")
	add := func(entered string) {
		d.t.Helper()
		d.unfold("#a-email")
		d.fill("#a-email", entered)
		d.follow("adding the address", d.click(`form:has(#a-email) button`))
	}
	add("no address")
	d.onPage("Alice")
	d.wantProblem("a-email", "This is not an e-mail address.")
	add("p07@example.com")
	d.onPage("Alice", "p07@example.com is the email of Person 07.")
	d.wantProblem("a-email", "Somebody has this already.")
	add("Alice@straße.example")
	d.onPage(question, "Alice@straße.example is added", "Alice@straße.example is not verified.")
	d.submit(alice)
	d.onPage("Alice", "The account has been changed.", "Alice@straße.example")
	d.submit(alice, "f-job", "baker")
	d.onPage("Alice", "The account has been changed.", "alice@example.org", "Alice@straße.example")
	d.unfold("button[value=first]")
	d.follow("making it the first", d.click(`.values button[value=first]`))
	d.onPage(question, "Alice@straße.example becomes the first value")
	d.submit(alice)
	d.onPage("Alice", "The account has been changed.")
	d.unfold("button[value=remove]")
	d.follow("removing the other", d.click(`.values li:last-child button[value=remove]`))
	d.onPage(question, "alice@example.org is removed")
	d.submit(alice)
	d.onPage("Alice", "The account has been changed.")
	if out := d.userdb("", "get", "uid=9a4c88dbc084", "--json"); !strings.Contains(out, `"Alice@straße.example"`) || strings.Contains(out, "alice@example.org") {
		d.t.Errorf("the account has other addresses than Alice@straße.example: %s", out)
	}
}

func (d *console) listAccounts() {
	d.t.Helper()
	d.visit("/console/types/user")
	d.onPage("Accounts", "\n31 accounts", "Person")
	d.selectOption("#by", "job")
	d.submit("/console/types/user", "value", "cook")
	d.onPage("Accounts", "\n30 accounts", "job is cook")
	d.until("reading the columns", `String([...document.querySelectorAll("tbody tr:nth-child(2) td[data-label]")]
		.filter(c => c.checkVisibility()).map(c => c.dataset.label).slice(0, 2).join() === (innerWidth < 600 ? "email" : "email,job"))`, "true")
	d.follow("sorting by name", d.click(`thead a[href*="order=name"]`))
	d.onPage("Accounts", "\n30 accounts", "Person 00", "Person 24", "job is cook")
	d.follow("opening the next page", d.click(`.pages a`))
	d.onPage("Accounts", "Person 29")
	d.selectOption("#disabled", "true")
	d.submit("/console/types/user")
	d.onPage("Accounts", "There are none.")
	d.chooseColumns()
	d.visit("/console/types/user?order=name&where=job:cook")
	d.run("selecting accounts", d.click(`[name=uid][value=u03]`), d.click(`[name=uid][value=u04]`))
	d.follow("disabling them", d.click(`form[action="/console/bulk"] button[value=disable]`))
	d.onPage("Disable 2 accounts?", "Nobody can sign in to 2 accounts")
	d.submit("/console/bulk")
	d.waitForJob("Disabled 2 accounts.")
	d.visit("/console/types/user?disabled=true")
	d.onPage("Accounts", "\n2 accounts", "Person 03", "Person 04")
}

// chooseColumns chooses the columns of a list, which has a filter and keeps it.
func (d *console) chooseColumns() {
	d.t.Helper()
	d.visit("/console/types/user?order=name&where=job:cook")
	d.unfold("#col-job")
	d.run("choosing columns", d.click("#col-job"), d.click("#col-bio"))
	d.follow("showing them", d.click("form:has(#col-bio) button"))
	d.onPage("Accounts", "job is cook", "Person 00")
	d.until("reading the columns", `[...document.querySelectorAll("thead th")].map(h => h.innerText.trim()).filter(t => t && t !== "Selected").join()`, "name,email,bio")
}

// selectOption selects an option of the form for a filter, which may be folded.
func (d *console) selectOption(selector, value string) {
	d.t.Helper()
	d.unfold(`form[action="/console/types/user"]`)
	d.pick(selector, value)
}

func (d *console) viewPages() {
	d.t.Helper()
	d.visit("/console/history")
	d.onPage("History", "Alice: Operator root changed job")
	if d.scripts {
		d.userdb("", "disable", "uid=u05")
		d.until("waiting for the event", `String([...document.querySelectorAll(".events li")].some(li => li.textContent.includes("Person 05: The command line disabled")))`, "true")
	}
	d.unfold(`form[action="/console/history"]`)
	d.pick("#kind", "tags")
	d.submit("/console/history")
	d.onPage("History", "changed tags")
	d.visit("/console/schema")
	d.onPage("Schema", "email and name: no value fits both (proved)", "MiB")
	d.visit("/console/status")
	d.until("waiting for the figures", `String(document.body.innerText.includes("Append-only") || document.body.innerText.includes("Read "))`, "true")
	d.onPage("Status", "Sign-ins")
}

func (d *console) manageKeys() {
	d.t.Helper()
	d.visit("/console/keys")
	d.submit("/console/keys", "name", "webshop")
	d.onPage("API keys", "Choose at least one.")
	d.run("choosing a scope", d.click("#scope-read"))
	d.submit("/console/keys", "name", "webshop")
	d.onPage("API keys", "The key webshop has been created.", "udb_")
	d.press("/revoke")
	d.onPage("API keys", "The key has been revoked.", "There are no keys yet.")
}

// importFile returns the path of a file with one account and one line that is refused.
func (d *console) importFile() string {
	d.t.Helper()
	file := filepath.Join(d.t.TempDir(), "more.csv")
	if err := os.WriteFile(file, []byte("uid,name,email\nm1,More,more@example.com\nm2,Other,no address\n"), 0o600); err != nil {
		d.t.Fatal(err)
	}
	return file
}

// maintain imports a file after a dry run, exports all accounts, runs a check, and confirms a
// repair.
func (d *console) maintain() {
	d.t.Helper()
	d.visit("/console/import")
	d.submit("/console/import")
	d.onPage("Import accounts", "Choose a file.")
	d.run("choosing a file", chromedp.SetUploadFiles("#file", []string{d.importFile()}, chromedp.ByQuery))
	d.submit("/console/import")
	d.onPage("Import more.csv", "Nothing has been written yet.", "accepted", "refused: ")
	d.follow("leaving out a column", chromedp.Evaluate(`document.querySelector("#c-0").value = ""; 0`, nil), d.click(`button[value=preview]`))
	d.onPage("Import more.csv", "1 would be created", "1 refused")
	d.follow("starting the dry run", d.click(`button[value=dry]`))
	d.waitForJob("1 would be created", "1 refused", "Line 3")
	d.submit("/console/import")
	d.waitForJob("1 created", "1 refused")
	d.visit("/console/export")
	d.onPage("Export accounts")
	d.submit("/console/export")
	d.waitForJob("Wrote 32 accounts.", "Download accounts.jsonl")
	d.visit("/console/check")
	d.onPage("Check")
	d.submit("/console/check")
	d.waitForJob("Nothing is wrong.")
	d.visit("/console/check")
	d.follow("repairing", d.click(`form:has([name=repair]) button`))
	d.onPage("Repair all accounts?", "It deletes no facets.")
	d.submit("/console/check")
	d.waitForJob("Nothing is wrong.")
}

func (d *console) signOutAndIn() {
	d.t.Helper()
	d.follow("signing out", d.click(`form[action="/console/signout"] button`))
	d.onPage("Sign in")
	d.submit("/console/signin", "name", "root", "password", "wrong")
	d.onPage("Sign in", "Wrong name or password.")
	d.visit(alice)
	d.onPage("Sign in")
	d.submit("/console/signin", "name", "ROOT", "password", password)
	d.onPage("Alice")
}

// waitForJob waits until the job on the page has ended, and checks that the page contains words.
func (d *console) waitForJob(words ...string) {
	d.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		var running bool
		d.run("looking at the job", chromedp.Evaluate(`document.querySelector("[data-running]") !== null`, &running))
		if !running {
			break
		}
		d.run("reloading the page", chromedp.Reload())
	}
	var heading string
	d.run("reading the heading", chromedp.Evaluate(`document.querySelector("h1").textContent`, &heading))
	d.onPage(heading, words...)
}

// TestConsoleByKeyboard carries out the tasks of an operator without a mouse.
func TestConsoleByKeyboard(t *testing.T) {
	t.Parallel()
	d := openConsole(t, consoleWindows[3], true)
	d.createAccounts()
	d.visit(d.setup)
	d.onPage("Create the first operator")
	d.tabTo("name")
	d.keys("root", kb.Tab, password)
	d.enter(kb.Enter)
	d.onPage("Home")
	d.until("waiting for the focus", `document.activeElement?.id ?? ""`, "q") // which comes late
	d.run("removing the focus", chromedp.Evaluate(`document.activeElement.blur(); 0`, nil))
	// KeyEvent would send the character by itself, also to the box that has just got the focus.
	d.run("pressing /", input.DispatchKeyEvent(input.KeyDown).WithKey("/").WithText("/"), input.DispatchKeyEvent(input.KeyUp).WithKey("/"))
	d.keys("alice")
	d.enter(kb.Enter)
	d.onPage("Alice", "They can sign in")
	d.unfoldByKey("Edit")
	d.tabTo("f-job")
	d.keys(kb.End, "!")
	d.enter(kb.Enter)
	d.onPage("Alice", "The account has been changed.")
	d.unfoldByKey("Disable …")
	d.choose("Disable the account")
	d.onPage("Alice", "They cannot sign in")
	d.choose("Undo")
	d.onPage("Alice", "They can sign in")
	d.unfoldByKey("End sessions …")
	d.choose("End all sessions")
	d.onPage("Alice", "The sessions have ended.")
	d.guess()
	d.visit(alice)
	d.choose("Reset wrong guesses")
	d.onPage("Alice", "Nobody has to wait")
	d.unfoldByKey("Make a link …")
	d.tabTo("life")
	d.choose("Make the link")
	d.onPage("Alice", "This link is shown only once")
	d.unfoldByKey("Set a password …")
	d.tabTo("password")
	d.keys("another long password")
	d.enter(kb.Enter)
	d.onPage("Alice", "The password has been set.")
	d.tabTo("add")
	d.keys("blue")
	d.enter(kb.Enter)
	d.onPage("Alice", "The tags have been changed.", "blue")
	d.choose("remove the tag blue")
	d.onPage("Alice", "The tags have been changed.")
	d.changeValuesByKeyboard()
	d.viewPagesByKeyboard()
	d.maintainByKeyboard()
	d.choose("Sign out")
	d.onPage("Sign in")
	d.tabTo("name")
	d.keys("root", kb.Tab, "wrong")
	d.enter(kb.Enter)
	d.onPage("Sign in", "Wrong name or password.")
}

// changeValuesByKeyboard adds an address, makes it the first, and removes it.
func (d *console) changeValuesByKeyboard() {
	d.t.Helper()
	const list = "All values of email …"
	d.unfoldByKey(list)
	d.tabTo("a-email")
	d.keys("a@work.example")
	d.enter(kb.Enter)
	for _, next := range []string{"Make first: a@work.example", "Remove a@work.example", ""} {
		d.onPage("Change how this account is found?", "a@work.example")
		d.choose("Change")
		d.onPage("Alice", "The account has been changed.")
		if next != "" {
			d.unfoldByKey(list)
			d.choose(next)
		}
	}
}

// viewPagesByKeyboard visits lists, the history, the schema and the status.
func (d *console) viewPagesByKeyboard() {
	d.t.Helper()
	d.choose("Accounts")
	d.onPage("Accounts", "\n31 accounts")
	d.unfoldByKey("Filter …")
	d.tabTo("by")
	d.keys("j")
	d.tabTo("value")
	d.keys("cook")
	d.enter(kb.Enter)
	d.onPage("Accounts", "\n30 accounts", "job is cook")
	d.choose("Next page")
	d.onPage("Accounts", "\n30 accounts", "job is cook")
	d.choose("History")
	d.onPage("History", "Operator root set the password")
	d.unfoldByKey("Filter …")
	d.tabTo("kind")
	d.keys("t")
	d.choose("Show")
	d.onPage("History", "changed tags")
	d.choose("Schema")
	d.onPage("Schema")
	d.choose("Status")
	d.onPage("Status")
}

// maintainByKeyboard creates and revokes a key, imports, exports, checks and repairs. It does not
// use the keyboard to choose the file, because that dialog belongs to the operating system.
func (d *console) maintainByKeyboard() {
	d.t.Helper()
	d.choose("API keys")
	d.onPage("API keys")
	d.tabTo("name")
	d.keys("webshop")
	d.tabTo("scope-read")
	d.keys(" ")
	d.choose("Create key")
	d.onPage("API keys", "The key webshop has been created.")
	d.choose("Revoke webshop")
	d.onPage("API keys", "The key has been revoked.")
	d.choose("Import")
	d.onPage("Import accounts")
	d.tabTo("file")
	d.run("choosing a file", chromedp.SetUploadFiles("#file", []string{d.importFile()}, chromedp.ByQuery))
	d.choose("Continue")
	d.onPage("Import more.csv", "1 would be created", "1 refused")
	d.tabTo("c-0")
	d.choose("Start dry run")
	d.waitForJob("1 would be created", "1 refused")
	d.choose("Import the file")
	d.waitForJob("1 created", "1 refused")
	d.choose("Export")
	d.onPage("Export accounts")
	d.tabTo("Skip to the content") // the rail also has a link Export
	d.keys(kb.Enter)
	d.choose("Export")
	d.waitForJob("Wrote 32 accounts.")
	for _, button := range []string{"Check", "Repair …"} {
		d.choose("Check")
		d.onPage("Check")
		d.tabTo("Skip to the content")
		d.keys(kb.Enter)
		d.choose(button)
		if button != "Check" {
			d.onPage("Repair all accounts?")
			d.choose("Repair now")
		}
		d.waitForJob("Nothing is wrong.")
	}
}

// choose follows a link or presses a button that has this text.
func (d *console) choose(text string) {
	d.t.Helper()
	d.tabTo(text)
	d.enter(kb.Enter)
}

// unfoldByKey opens the part of the page with this summary.
func (d *console) unfoldByKey(summary string) {
	d.t.Helper()
	d.tabTo(summary)
	d.keys(kb.Enter)
}

// enter presses a key that leads to another page.
func (d *console) enter(key string) {
	d.t.Helper()
	d.follow("pressing a key", chromedp.KeyEvent(key))
}
