package browser

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// A desk is an operator's desk: a browser that shows the console of `userdb serve`, and the command
// line.
type desk struct {
	*browser
	program, store, schema string
	setup                  string // the link that the service printed
}

// sit starts the service, with its accounts in a file, and opens a browser.
func sit(t *testing.T, l look, scripts bool) *desk {
	t.Helper()
	schema, err := filepath.Abs("testdata/schema.json")
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{store: "file:" + filepath.Join(t.TempDir(), "accounts.db"), schema: schema}
	d.browser = open(t, l, scripts, func(b *browser) {
		d.program = b.build("./cmd/userdb")
		cmd := exec.Command(d.program, "serve", "--store", d.store, "--schema", schema, "--listen", "127.0.0.1:0", "--reset-link", "https://shop.example/reset?token={secret}")
		out, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		b.start(cmd)
		lines := bufio.NewScanner(out)
		for lines.Scan() && b.base == "" {
			line := lines.Text()
			if strings.Contains(line, "/console/setup?token=") {
				d.setup = line
			}
			if at, is := strings.CutPrefix(line, "listening on "); is {
				b.base = at
				break
			}
		}
		go func() {
			for lines.Scan() { // so that the service never blocks
				continue
			}
		}()
	})
	if d.setup == "" || d.base == "" {
		t.Fatalf("the set-up link %q, listening on %q", d.setup, d.base)
	}
	return d
}

// userdb runs the command on the store that is served.
func (d *desk) userdb(stdin string, args ...string) string {
	d.t.Helper()
	cmd := exec.Command(d.program, append([]string{"--store", d.store, "--schema", d.schema}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("userdb %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// people creates the accounts that the tasks use.
func (d *desk) people() {
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

// setUp opens the link and creates the first operator.
func (d *desk) setUp() {
	d.t.Helper()
	d.visit("/console/find")
	d.at("Sign in")
	d.visit(d.setup)
	d.at("Make the first operator")
	d.send("/console/setup", "name", "", "password", "short")
	d.at("Make the first operator")
	d.problem("name", "This is needed.")
	d.problem("password", "This is too short")
	d.send("/console/setup", "name", "root", "password", password)
	d.at("Find an account", "root")
	d.visit(d.setup)
	d.at("This link is not good any more")
}

// TestConsole carries out every task of the console in every kind of window, with and without
// scripts.
func TestConsole(t *testing.T) {
	for i, l := range looks {
		for _, scripts := range []bool{false, true} {
			// This runs each look once, and each width both with and without scripts.
			if scripts != (i%2 == 0) {
				continue
			}
			t.Run(fmt.Sprintf("%s-scripts-%v", l.name, scripts), func(t *testing.T) {
				d := sit(t, l, scripts)
				d.people()
				d.setUp()
				d.finding()
				d.helping()
				d.editing()
				d.listing()
				d.looking()
				d.keeping()
				d.caring()
				d.leaving()
			})
		}
	}
}

func (d *desk) finding() {
	d.t.Helper()
	d.visit("/console/find")
	d.send("/console/find", "q", "ＡＬＩＣＥ")
	d.at("Find an account", "ＡＬＩＣＥ is read as alice: this account.", "They can sign in")
	d.send("/console/find", "q", "alcie")
	d.at("Find an account", "Nobody has alcie; one letter away is")
	d.send("/console/find", "q", "person 0")
	d.at("Find an account", "Others that begin so", "Person 07")
	if d.scripts {
		d.run("typing", chromedp.Evaluate(`document.querySelector("#q").value = ""; 0`, nil), chromedp.SendKeys("#q", "perso", chromedp.ByQuery))
		d.until("suggestions", `String(document.querySelectorAll("#suggestions option").length)`, "8")
	}
	d.send("/console/find", "q", "alice@EXAMPLE.com")
	d.follow("opening the account", chromedp.Click("article h2 a", chromedp.ByQuery))
	d.at("Alice", "They can sign in", "made the account")
}

// press submits the form of an action.
func (d *desk) press(action string) {
	d.t.Helper()
	d.follow("pressing "+action, chromedp.Click(fmt.Sprintf("form[action$=%q] button", action), chromedp.ByQuery))
}

const alice = "/console/types/user/9a4c88dbc084"

func (d *desk) helping() {
	d.t.Helper()
	d.press("/disable")
	d.at("Alice", "They cannot sign in: the account is disabled, by operator root at", "The account is disabled.", "Operator root disabled the account")
	d.press("/enable")
	d.at("Alice", "They can sign in", "The account may sign in again.")
	d.press("/waits")
	d.at("Alice", "nobody has to wait")
	d.press("/sessions/end")
	d.at("Alice", "They are signed out there.")
	d.press("/tokens")
	d.at("Alice", "This link is shown once: send it to alice@example.com.", "https://shop.example/reset?token=", "is unused and good until")
	d.send(alice+"/password", "password", "short")
	d.at("Alice")
	d.problem("password", "This is too short")
	d.send(alice+"/password", "password", "another long password")
	d.at("Alice", "The password is set.", "void since a password was set")
	d.run("writing a tag", chromedp.SendKeys("#add", "<b>new</b>", chromedp.ByQuery))
	d.follow("adding it", chromedp.Click(`form:has(#add) button`, chromedp.ByQuery))
	d.at("Alice", "The tags are changed.", "<b>new</b>", "vip")
	d.press("/tags")
	d.at("Alice", "The tags are changed.")
}

func (d *desk) editing() {
	d.t.Helper()
	d.visit(alice)
	d.send(alice, "f-email", "no address")
	d.at("Alice")
	d.problem("f-email", "This is not an e-mail address.")
	d.send(alice, "f-email", "P07@example.com")
	d.at("Alice", "p07@example.com is the email of Person 07.")
	d.send(alice, "f-email", "alice@example.org", "f-job", "smith")
	d.at("Change how this account is found?", "alice@example.com becomes alice@example.org")
	d.send(alice)
	d.at("Alice", "The account is changed.")
	var stale string
	d.run("reading the revision", chromedp.Evaluate(`document.querySelector("[name=rev]").value`, &stale))
	d.userdb("", "set", "email=alice@example.org", "job=cook")
	d.send(alice, "f-job", "gardener")
	d.at("Alice", "Somebody else changed this account meanwhile.", "Stored now: cook")
	d.send(alice)
	d.at("Alice", "The account is changed.")
	d.abroad()
}

// abroad changes another field of an account whose address browsers would rewrite.
func (d *desk) abroad() {
	d.t.Helper()
	const jo = "/console/types/user/a0b1c2d3e4f5"
	d.userdb(password+"\n", "create", "user", "uid=a0b1c2d3e4f5", "name=Jo", "email=user@straße.example", "bio=one\ntwo", "--password-stdin")
	d.visit(jo)
	d.send(jo, "f-job", "smith")
	d.at("Jo", "The account is changed.")
	d.visit(jo)
	d.send(jo, "f-email", "jo@straße.example")
	d.at("Change how this account is found?", "user@straße.example becomes jo@straße.example")
	d.send(jo)
	d.at("Jo", "The account is changed.")
	if out := d.userdb("", "get", "uid=a0b1c2d3e4f5", "--json"); !strings.Contains(out, `"jo@straße.example"`) || !strings.Contains(out, `"one\ntwo"`) {
		d.t.Errorf("the account is %s", out)
	}
	d.userdb("", "delete", "uid=a0b1c2d3e4f5", "--yes")
	d.visit(alice)
}

func (d *desk) listing() {
	d.t.Helper()
	d.visit("/console/types/user")
	d.at("Accounts: user", "31 accounts.", "Person")
	d.run("choosing", chromedp.SetValue("#by", "job", chromedp.ByQuery), chromedp.SetValue("#order", "name", chromedp.ByQuery))
	d.send("/console/types/user", "value", "cook")
	d.at("Accounts: user", "30 accounts.", "Person 24", "job is cook")
	d.follow("the page after", chromedp.Click(`.pages a`, chromedp.ByQuery))
	d.at("Accounts: user", "Person 29")
	d.run("choosing", chromedp.SetValue("#disabled", "true", chromedp.ByQuery))
	d.send("/console/types/user")
	d.at("Accounts: user", "There are none.")
}

func (d *desk) looking() {
	d.t.Helper()
	d.visit("/console/history")
	d.at("History", "Alice: Operator root changed job")
	if d.scripts {
		d.userdb("", "disable", "uid=u05")
		d.until("what happens", `String([...document.querySelectorAll(".events li")].some(li => li.textContent.includes("Person 05: The command line disabled")))`, "true")
	}
	d.run("choosing", chromedp.SetValue("#kind", "tags", chromedp.ByQuery))
	d.send("/console/history")
	d.at("History", "changed tags")
	d.visit("/console/schema")
	d.at("Schema", "email and name: no value fits both, which is proved", "MiB")
	d.visit("/console/status")
	d.until("the figures", `String(document.body.innerText.includes("Append-only") || document.body.innerText.includes("As it was"))`, "true")
	d.at("Status", "In the last seven days")
}

func (d *desk) keeping() {
	d.t.Helper()
	d.visit("/console/keys")
	d.send("/console/keys", "name", "webshop")
	d.at("API keys", "Choose at least one.")
	d.run("choosing", chromedp.Click("#scope-read", chromedp.ByQuery))
	d.send("/console/keys", "name", "webshop")
	d.at("API keys", "The key webshop is made.", "udb_")
	d.press("/revoke")
	d.at("API keys", "The key is revoked.", "There are none.")
}

// more returns a file with one account and one line that is refused.
func (d *desk) more() string {
	d.t.Helper()
	file := filepath.Join(d.t.TempDir(), "more.csv")
	if err := os.WriteFile(file, []byte("uid,name,email\nm1,More,more@example.com\nm2,Other,no address\n"), 0o600); err != nil {
		d.t.Fatal(err)
	}
	return file
}

// caring imports a file after a dry run, exports all accounts, runs a check, and confirms a repair.
func (d *desk) caring() {
	d.t.Helper()
	d.visit("/console/import")
	d.send("/console/import")
	d.at("Import accounts", "Choose a file.")
	d.run("choosing a file", chromedp.SetUploadFiles("#file", []string{d.more()}, chromedp.ByQuery))
	d.send("/console/import")
	d.settled("1 would be created", "1 refused", "Line 3")
	d.send("/console/import")
	d.settled("1 created", "1 refused")
	d.visit("/console/export")
	d.at("Export accounts")
	d.send("/console/export")
	d.settled("Wrote 32 accounts.", "Download accounts.jsonl")
	d.visit("/console/check")
	d.at("Check")
	d.send("/console/check")
	d.settled("Nothing is wrong.")
	d.visit("/console/check")
	d.follow("repairing", chromedp.Click(`form:has([name=repair]) button`, chromedp.ByQuery))
	d.at("Repair all accounts?", "No facet is deleted.")
	d.send("/console/check")
	d.settled("Nothing is wrong.")
}

func (d *desk) leaving() {
	d.t.Helper()
	d.follow("signing out", chromedp.Click(`form[action="/console/signout"] button`, chromedp.ByQuery))
	d.at("Sign in")
	d.send("/console/signin", "name", "root", "password", "wrong")
	d.at("Sign in", "Wrong name or password.")
	d.visit(alice)
	d.at("Sign in")
	d.send("/console/signin", "name", "ROOT", "password", password)
	d.at("Alice")
}

// settled waits until a job has ended.
func (d *desk) settled(words ...string) {
	d.t.Helper()
	for range 100 {
		var running bool
		d.run("looking at the job", chromedp.Evaluate(`document.querySelector("[data-running]") !== null`, &running))
		if !running {
			break
		}
		d.run("looking again", chromedp.Reload())
	}
	var heading string
	d.run("reading", chromedp.Evaluate(`document.querySelector("h1").textContent`, &heading))
	d.at(heading, words...)
}

// TestConsoleByKeyboard does an operator's work without a mouse.
func TestConsoleByKeyboard(t *testing.T) {
	d := sit(t, looks[3], true)
	d.people()
	d.visit(d.setup)
	d.at("Make the first operator")
	d.tabTo("name")
	d.keys("root", kb.Tab, password)
	d.enter(kb.Enter)
	d.at("Find an account")
	d.run("reading where the focus is", chromedp.Evaluate(`document.activeElement.blur(); 0`, nil))
	d.tabTo("q")
	d.keys("alice")
	d.enter(kb.Enter)
	d.at("Find an account", "this account")
	d.tabTo("Alice")
	d.enter(kb.Enter)
	d.at("Alice", "They can sign in")
	d.tabTo("f-job")
	d.keys(kb.End, "!")
	d.enter(kb.Enter)
	d.at("Alice", "The account is changed.")
	d.choose("Disable the account")
	d.at("Alice", "They cannot sign in")
	d.choose("Make the link")
	d.at("Alice", "a disabled account has no links")
	d.choose("Enable the account")
	d.at("Alice", "They can sign in")
	d.choose("End all sessions")
	d.at("Alice", "They are signed out there.")
	d.choose("Forget wrong guesses")
	d.at("Alice", "nobody has to wait")
	d.tabTo("life")
	d.keys("s", kb.Tab)
	d.enter(kb.Enter)
	d.at("Alice", "This link is shown once")
	d.tabTo("password")
	d.keys("another long password")
	d.enter(kb.Enter)
	d.at("Alice", "The password is set.")
	d.tabTo("add")
	d.keys("blue")
	d.enter(kb.Enter)
	d.at("Alice", "The tags are changed.", "blue")
	d.choose("remove the tag blue")
	d.at("Alice", "The tags are changed.")
	d.looksByKeyboard()
	d.keepsByKeyboard()
	d.choose("Sign out")
	d.at("Sign in")
	d.tabTo("name")
	d.keys("root", kb.Tab, "wrong")
	d.enter(kb.Enter)
	d.at("Sign in", "Wrong name or password.")
}

// looksByKeyboard visits lists, the history, the schema and the status.
func (d *desk) looksByKeyboard() {
	d.t.Helper()
	d.choose("Accounts")
	d.at("Accounts: user", "31 accounts.")
	d.tabTo("by")
	d.keys("j")
	d.tabTo("value")
	d.keys("cook")
	d.enter(kb.Enter)
	d.at("Accounts: user", "30 accounts.", "job is cook")
	d.choose("Next page")
	d.at("Accounts: user", "30 accounts.", "job is cook")
	d.choose("History")
	d.at("History", "Operator root set the password")
	d.tabTo("kind")
	d.keys("t")
	d.choose("Show")
	d.at("History", "changed tags")
	d.choose("Schema")
	d.at("Schema")
	d.choose("Status")
	d.at("Status")
}

// keepsByKeyboard creates and revokes a key, imports, exports, checks and repairs. It chooses the
// file without the keyboard, because that window is the system's.
func (d *desk) keepsByKeyboard() {
	d.t.Helper()
	d.choose("Keys")
	d.at("API keys")
	d.tabTo("name")
	d.keys("webshop")
	d.tabTo("scope-read")
	d.keys(" ")
	d.choose("Make the key")
	d.at("API keys", "The key webshop is made.")
	d.choose("Revoke webshop")
	d.at("API keys", "The key is revoked.")
	d.choose("Import")
	d.at("Import accounts")
	d.tabTo("file")
	d.run("choosing a file", chromedp.SetUploadFiles("#file", []string{d.more()}, chromedp.ByQuery))
	d.choose("Read the file")
	d.settled("1 would be created", "1 refused")
	d.choose("Import the file")
	d.settled("1 created", "1 refused")
	d.choose("Export")
	d.at("Export accounts")
	d.tabTo("type")
	d.choose("Export")
	d.settled("Wrote 32 accounts.")
	for _, button := range []string{"Check", "Repair …"} {
		d.choose("Check")
		d.at("Check")
		d.tabTo("To the content")
		d.keys(kb.Enter)
		d.choose(button)
		if button != "Check" {
			d.at("Repair all accounts?")
			d.choose("Repair now")
		}
		d.settled("Nothing is wrong.")
	}
}

// choose follows a link or presses a button that has this text.
func (d *desk) choose(text string) {
	d.t.Helper()
	d.tabTo(text)
	d.enter(kb.Enter)
}

// enter presses a key that leads to another page.
func (d *desk) enter(key string) {
	d.t.Helper()
	d.follow("a key", chromedp.KeyEvent(key))
}
