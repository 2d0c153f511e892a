package browser

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestConsoleStates opens the pages that no task of TestConsole leads to: those of an empty store,
// those that ask for a confirmation, and those that say what is wrong.
func TestConsoleStates(t *testing.T) {
	t.Parallel()
	schema := filepath.Join(t.TempDir(), "schema.json")
	text := `{"types": {"user": {"primary": "uid", "retire": true, "fields": {
		"email": {"role": ["secondary", "ordered"], "kind": "email"}, "name": {"role": ["secondary", "ordered"], "kind": "nickname", "hold": "90d"}, "links": {"role": "secondary", "many": 5, "typed": false},
		"job": {"role": "indexed"}, "bio": {}, "added": {"role": "ordered", "codec": "date"}}, "tertiary": {"tags": {"kind": "set", "indexed": true}}}}}`
	if err := os.WriteFile(schema, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, w := range []window{{"console-390-dark", 390, "dark"}, {"console-1440-light", 1440, "light"}, {"console-1000-light-keyboard", 1000, "light"}} {
		t.Run(w.name, func(t *testing.T) {
			d := openConsole(t, w, i == 1, "--schema", schema)
			d.schema = schema
			d.setUp()
			d.keyboard = i == 2
			d.visit("/console")
			d.onPage("Home", "There are no accounts yet", "Create an account")
			for _, page := range [][2]string{{"jobs", "Jobs"}, {"operators", "Operators"}, {"groups?type=user", "Groups of directories: user"}, {"retired?type=user", "UIDs of deleted accounts: user"}} {
				d.visit("/console/" + page[0])
				d.onPage(page[1])
			}
			d.createByForm()
			d.createAccounts()
			d.chooseColumns()
			d.confirmBulk()
			d.removeLink()
			d.confirmPassword()
			d.releaseDeleted()
			d.viewProblems()
		})
	}
}

func (d *console) createByForm() {
	d.t.Helper()
	d.visit("/console/new")
	d.onPage("New account")
	d.submit("/console/new", "f-email", "no address")
	d.onPage("New account")
	d.wantProblem("f-email", "This is not an e-mail address.")
	d.submit("/console/new", "f-email", "bea@example.com", "f-name", "Bea")
	d.onPage("Bea", "They cannot sign in: the account has no password.")
	d.visit("/console/new")
	d.submit("/console/new", "f-email", "BEA@example.com")
	d.onPage("New account", "bea@example.com is the email of Bea.")
}

func (d *console) confirmBulk() {
	d.t.Helper()
	for do, done := range map[string]string{"tag": "Added the tag to 2 accounts.", "enable": "Enabled 2 accounts.", "export": "Wrote 2 accounts."} {
		d.visit("/console/types/user?order=name&where=job:cook")
		d.run("selecting accounts", d.click(`[name=uid][value=u03]`), d.click(`[name=uid][value=u04]`))
		d.fill("[name=add]", "new")
		d.follow("pressing "+do, d.click(fmt.Sprintf(`form[action="/console/bulk"] button[value=%s]`, do)))
		d.until("waiting for the question", `String(document.querySelector("h1").textContent.endsWith("2 accounts?"))`, "true")
		d.checkPage(do)
		d.submit("/console/bulk")
		d.waitForJob(done)
	}
	d.visit("/console/types/user")
	d.follow("selecting nobody", d.click(`form[action="/console/bulk"] button[value=disable]`))
	d.onPage("Nothing was done", "Select accounts in the list")
}

// removeLink removes an identity at another provider from the account of Alice.
func (d *console) removeLink() {
	d.t.Helper()
	d.userdb("", "set", "uid=9a4c88dbc084", "links+="+strings.Repeat("ab", 32))
	d.visit(alice)
	d.onPage("Alice", "Linked accounts")
	d.follow("removing the link", d.click(`section[aria-labelledby^="v-"] button[value=remove]`))
	d.onPage("Change how this account is found?", "is removed")
	d.submit(alice)
	d.onPage("Alice", "The account has been changed.")
	d.until("looking for the link", `String(document.body.innerText.includes("Linked accounts"))`, "false")
	if out := d.userdb("", "get", "uid=9a4c88dbc084", "--json"); strings.Contains(out, "abab") || !strings.Contains(out, "alice@example.com") {
		d.t.Errorf("the account still has the link, or lost its address: %s", out)
	}
}

// confirmPassword creates a key and sets a password, each more than ten minutes after the operator
// gave their own password, which is asked for again.
func (d *console) confirmPassword() {
	d.t.Helper()
	d.passTime()
	d.visit("/console/keys")
	d.run("choosing a scope", d.click("#scope-read"))
	d.submit("/console/keys", "name", "webshop")
	d.onPage("Confirm your password", "Nothing has been done yet.")
	d.submit("/console/keys", "own-password", "wrong")
	d.onPage("Confirm your password", "Wrong password.")
	if out := d.userdb("", "apikey", "list"); strings.Contains(out, "webshop") {
		d.t.Errorf("there is a key without the password: %s", out)
	}
	d.submit("/console/keys", "own-password", password)
	d.onPage("API keys", "The key webshop has been created.")
	d.passTime()
	d.visit(alice)
	d.submit(alice+"/password", "password", "another long password")
	d.onPage("Confirm your password", "After this, enter the new password of the account again.")
	d.until("looking for passwords", `[...document.querySelectorAll("[type=password]")].map(i => i.id).join()`, "own-password")
	d.submit(alice+"/password", "own-password", password)
	d.onPage("Alice", "Now enter the new password of the account.")
	d.until("looking for the focus", `document.activeElement.id`, "password")
	d.wantInWindow("#password")
	d.submit(alice+"/password", "password", "another long password")
	d.onPage("Alice", "The password has been set.")
}

// passTime lets the sessions of the first operator look as if the password had been given long ago.
// It changes their record over the socket of the store.
func (d *console) passTime() {
	d.t.Helper()
	conn, err := net.Dial("unix", strings.TrimPrefix(d.store, "file:")+".sock")
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close()
	const script = `local n, all = 0, redis.call('HGETALL', KEYS[1])
		for i = 1, #all, 2 do
			local text, replaced = string.gsub(all[i + 1], '^(%d+ %d+ %d+) %d+', '%1 1')
			redis.call('HSET', KEYS[1], all[i], text)
			n = n + replaced
		end
		return n`
	const key = "~~userdb/~/session/{~~userdb/operator/uid:first}"
	var command strings.Builder
	fmt.Fprint(&command, "*4\r\n")
	for _, word := range []string{"EVAL", script, "1", key} {
		fmt.Fprintf(&command, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err = conn.Write([]byte(command.String())); err != nil {
		d.t.Fatal(err)
	}
	if answer, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(answer, ":") || answer == ":0\r\n" {
		d.t.Fatalf("changing the sessions: %q, %v", answer, err)
	}
}

// releaseDeleted deletes an account, and then lets others have its name and its UID.
func (d *console) releaseDeleted() {
	d.t.Helper()
	d.visit(alice)
	d.press("/delete")
	d.onPage("Accounts", "The account has been deleted.")
	d.visit("/console/find?q=ALICE")
	d.onPage("Search", "had given up alice, its name.")
	d.submit("/console/held")
	d.onPage("Let others take this value?", "alice was the name of the deleted account")
	d.submit("/console/held")
	d.onPage("Search", "Nobody has alice.")
	d.visit("/console/retired?type=user")
	d.onPage("UIDs of deleted accounts: user", "9a4c88dbc084")
	d.submit("/console/retired", "uid", "9a4c88dbc084")
	d.onPage("Allow this UID to be reused?")
	d.submit("/console/retired")
	d.onPage("UIDs of deleted accounts: user", "There are none.")
}

func (d *console) viewProblems() {
	d.t.Helper()
	for _, page := range [][3]string{
		{"nothing", "Page not found", "does not exist"},
		{"types/user/nobody", "Page not found", "does not exist"},
		{"types/user?where=bio:x", "Accounts", "neither an indexed nor a secondary field"},
		{"types/user?order=name&after=n.junk", "Accounts", "no longer exists"},
		{"types/user?by=~prefix:name&value=a&from=2026-11-20", "Nothing was filtered", "Leave one of them out."},
		{"history?account=nobody", "History", "Nobody has “nobody”."},
		{"history?from=yesterday", "History", "Not a date"},
		{"find?q=somebody+else+altogether", "Search", "Nobody has somebody else altogether."},
	} {
		d.visit("/console/" + page[0])
		d.onPage(page[1], page[2])
	}
}

// TestConsolePages opens every page, with all its questions and forms unfolded, in the windows in
// which TestConsole carries out no tasks.
func TestConsolePages(t *testing.T) {
	t.Parallel()
	for i, w := range []window{{"console-1000-dark", 1000, "dark"}, {"console-1440-light", 1440, "light"}} {
		t.Run(w.name, func(t *testing.T) {
			d := openConsole(t, w, i > 0)
			d.createAccounts()
			d.setUp()
			for _, page := range [][2]string{
				{"", "Home"},
				{"/find?q=person+0", "Search"},
				{"/types/user?order=name&where=job:cook", "Accounts"},
				{"/new", "New account"},
				{"/types/user/9a4c88dbc084", "Alice"},
				{"/types/user/9a4c88dbc084?tab=history", "Alice"},
				{"/history", "History"},
				{"/history?account=alice&from=2026-01-01&until=2099-12-31", "History"},
				{"/history?account=alice&from=yesterday", "History"},
				{"/import", "Import accounts"},
				{"/export", "Export accounts"},
				{"/check", "Check"},
				{"/jobs", "Jobs"},
				{"/schema", "Schema"},
				{"/keys", "API keys"},
				{"/operators", "Operators"},
				{"/status", "Status"},
				{"/security", "Your sign-in"},
				{"/nothing", "Page not found"},
			} {
				d.visit("/console" + page[0])
				d.run("unfolding everything", chromedp.Evaluate(`document.querySelectorAll("details").forEach(d => d.open = true); 0`, nil))
				d.onPage(page[1])
			}
		})
	}
}

// TestConsoleTasksByKeyboard creates and deletes an account, and disables some of a list, without a
// mouse, without scripts, and on a phone.
func TestConsoleTasksByKeyboard(t *testing.T) {
	t.Parallel()
	d := openConsole(t, window{"console-390-light", 390, "light"}, false)
	d.createAccounts()
	d.setUp()
	d.visit("/console/types/user")
	d.choose("New account")
	d.onPage("New account")
	d.tabTo("f-email")
	d.keys("bea@example.com")
	d.enter(kb.Enter)
	d.onPage("bea@example.com", "They cannot sign in: the account has no password.")
	d.unfoldByKey("Delete …")
	d.choose("Delete the account")
	d.onPage("Accounts", "The account has been deleted.", "\n31 accounts")
	d.choose("name")
	d.onPage("Accounts", "Person 23")
	for _, box := range []string{"Select Person 03", "Select Person 04"} {
		d.tabTo(box)
		d.keys(" ")
	}
	d.choose("Disable")
	d.onPage("Disable 2 accounts?")
	d.choose("Disable 2 accounts")
	d.waitForJob("Disabled 2 accounts.")
}
