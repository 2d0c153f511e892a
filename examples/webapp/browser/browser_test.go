// Package browser drives the example webapp with a real browser: every flow, what it answers to wrong input, by keyboard alone,
// without JavaScript, on a phone and on a desk, light and dark, and with every page judged by axe-core.
package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const password = "correct horse battery"

// A browser is one window of Chromium, at a site of its own.
type browser struct {
	t     *testing.T
	ctx   context.Context
	base  string
	mails string
	read  []string // mails that were
	look  string   // of the window: names screenshots
	axe   string   // the source of axe-core; "": pages are not judged by it
	shots int
}

// A look is a window.
type look struct {
	name   string
	width  int64
	scheme string
}

var looks = []look{{"phone-light", 360, "light"}, {"phone-dark", 360, "dark"}, {"desk-light", 1280, "light"}, {"desk-dark", 1280, "dark"}}

// open starts the site, and a window that runs no scripts of pages.
func open(t *testing.T, l look) *browser {
	t.Helper()
	chromium := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil && chromium == "" {
			chromium = path
		}
	}
	if chromium == "" {
		t.Skip("there is no chromium")
	}
	axe, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Log("there is no axe-core, and no page is judged by it: run npm ci")
	}
	b := &browser{t: t, mails: t.TempDir(), look: l.name, axe: string(axe)}
	b.serve()
	flags := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(chromium), chromedp.NoSandbox,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WindowSize(int(l.width), 900))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), flags...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	b.ctx, stop = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(stop)
	t.Cleanup(func() { _ = chromedp.Cancel(b.ctx) }) // waits for the browser, which writes into its folder to the end, and removes that
	b.run("opening the window",
		emulation.SetDeviceMetricsOverride(l.width, 900, 1, l.width < 600),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.scheme}}),
		emulation.SetScriptExecutionDisabled(true))
	return b
}

// serve builds the example and starts it.
func (b *browser) serve() {
	b.t.Helper()
	program := filepath.Join(b.t.TempDir(), "webapp")
	build := exec.CommandContext(b.t.Context(), "go", "build", "-o", program, "./examples/webapp")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		b.t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(program, "--listen", "127.0.0.1:0", "--mail", b.mails, "--admin", "root@example.com")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			b.t.Errorf("the site ends with %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.t.Fatal(err)
	}
	b.base = strings.TrimSpace(strings.TrimPrefix(line, "listening on"))
}

func (b *browser) run(what string, actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

// follow does what leads to another page, and waits for that.
func (b *browser) follow(what string, actions ...chromedp.Action) {
	b.t.Helper()
	b.run("marking the page", chromedp.Evaluate(`document.documentElement.dataset.old = "1"; 0`, nil))
	b.run(what, actions...)
	b.until(what, `document.documentElement.dataset.old ? "" : "another page"`, "another page")
}

// until waits until an expression is so, on a page that is complete.
func (b *browser) until(what, expression, want string) {
	b.t.Helper()
	var got, text string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		err := chromedp.Run(b.ctx, chromedp.Evaluate(`document.readyState === "complete" ? `+expression+` : ""`, &got))
		if err == nil && got == want {
			return
		}
	}
	b.run("reading the page", chromedp.Evaluate(`document.body.innerText`, &text))
	b.t.Fatalf("%s: %q, want %q:\n%s", what, got, want, text)
}

// at waits for a page with this heading, and judges it.
func (b *browser) at(heading string, words ...string) {
	b.t.Helper()
	b.until("heading", `document.querySelector("h1")?.textContent ?? ""`, heading)
	var text string
	b.run("reading the page", chromedp.Evaluate(`document.body.innerText`, &text))
	for _, word := range words {
		if !strings.Contains(text, word) {
			b.t.Errorf("at %q there is no %q:\n%s", heading, word, text)
		}
	}
	b.judge(heading)
}

// judge has axe-core look at the page, wants nothing wider than the window, and takes a screenshot where a folder is named for it.
func (b *browser) judge(heading string) {
	b.t.Helper()
	var wide bool
	b.run("measuring", chromedp.Evaluate(`document.documentElement.scrollWidth > document.documentElement.clientWidth`, &wide))
	if wide {
		b.t.Errorf("%s, %s: the page is wider than the window", b.look, heading)
	}
	if b.axe != "" {
		b.judgeByAxe(heading)
	}
	if dir := os.Getenv("SCREENSHOTS"); dir != "" {
		var png []byte
		b.run("screenshot", chromedp.FullScreenshot(&png, 100))
		b.shots++
		name := fmt.Sprintf("%s-%02d-%s.png", b.look, b.shots, regexp.MustCompile(`\W+`).ReplaceAllString(heading, "-"))
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), png, 0o600)); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *browser) judgeByAxe(heading string) {
	b.t.Helper()
	var found string
	await := func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
	b.run("axe", emulation.SetScriptExecutionDisabled(false), chromedp.Evaluate(b.axe+"; 0", nil), chromedp.Evaluate(
		`axe.run().then(r => JSON.stringify(r.violations.map(v => [v.id, v.help, v.nodes.map(n => n.html)])))`, &found, await),
		emulation.SetScriptExecutionDisabled(true))
	var violations []json.RawMessage
	if err := json.Unmarshal([]byte(found), &violations); err != nil || len(violations) > 0 {
		b.t.Errorf("%s, %s: %v: %s", b.look, heading, err, found)
	}
}

// visit goes to a path, or to a link of a mail.
func (b *browser) visit(path string) {
	b.t.Helper()
	if !strings.HasPrefix(path, "http") {
		path = b.base + path
	}
	b.run("visiting "+path, chromedp.Navigate(path))
}

// send fills a form in, by the ids of its inputs, and sends it.
func (b *browser) send(path string, fields ...string) {
	b.t.Helper()
	form := fmt.Sprintf("form[action^=%q]", path)
	for i := 0; i+1 < len(fields); i += 2 {
		id := "#" + fields[i]
		b.run("filling in "+id, chromedp.Evaluate(fmt.Sprintf("document.querySelector(%q).value = ''", id), nil),
			chromedp.SendKeys(id, fields[i+1], chromedp.ByQuery))
	}
	b.follow("sending "+form, chromedp.Click(form+" button", chromedp.ByQuery))
}

// problem wants a text beside a field, where people and programs find it.
func (b *browser) problem(field, text string) {
	b.t.Helper()
	var got string
	b.run("reading the problem", chromedp.Evaluate(fmt.Sprintf(
		`(() => { const i = document.getElementById(%q); const p = document.getElementById(i.getAttribute("aria-describedby"));
		return i.getAttribute("aria-invalid") + " " + p.getAttribute("role") + " " + p.textContent.trim() })()`, field), &got))
	if want := "true alert " + text; !strings.HasPrefix(got, want) {
		b.t.Errorf("%s: %q, want %q", field, got, want)
	}
}

// link is that of the mail which has come since the last one.
func (b *browser) link(to string) string {
	b.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		files, err := filepath.Glob(filepath.Join(b.mails, "mail-*"))
		if err != nil {
			b.t.Fatal(err)
		}
		for _, file := range files {
			if slices.Contains(b.read, file) {
				continue
			}
			b.read = append(b.read, file)
			text, err := os.ReadFile(file)
			if err != nil || !strings.HasPrefix(string(text), "To: "+to+"\nSubject: ") {
				b.t.Fatalf("%v, %s; want one to %s", err, text, to)
			}
			return strings.TrimSpace(regexp.MustCompile(`(?m)^http\S+$`).FindString(string(text)))
		}
	}
	b.t.Fatal("no mail has come")
	return ""
}

// signUp makes an account, and ends signed in.
func (b *browser) signUp(address, name string) {
	b.t.Helper()
	b.visit("/signup")
	b.at("Sign up")
	b.send("/signup", "email", address)
	b.at("Look into your mails", address)
	b.visit(b.link(address))
	b.at("Make your account", address)
	b.send("/welcome", "name", name, "password", password)
	b.at("Your account", name, address, "verified", "Welcome")
}

func (b *browser) signOut() {
	b.t.Helper()
	b.send("/signout")
	b.at("Welcome", "You are signed out.")
}

// TestFlows goes through the whole site, with wrong input in every form, in every window.
func TestFlows(t *testing.T) {
	for _, l := range looks {
		t.Run(l.name, func(t *testing.T) {
			b := open(t, l)
			b.visit("/")
			b.at("Welcome")
			b.signUps()
			b.signIns()
			b.edits()
			b.passwords()
			b.addresses()
			b.devices()
			b.administration()
		})
	}
}

func (b *browser) signUps() {
	b.t.Helper()
	b.visit("/signup")
	b.send("/signup", "email", "no address")
	b.at("Sign up")
	b.problem("email", "This is not an e-mail address.")
	b.send("/signup", "email", "ann@example.com")
	b.at("Look into your mails", "ann@example.com")
	welcome := b.link("ann@example.com")
	b.visit(welcome)
	b.send("/welcome", "name", "", "password", "short")
	b.at("Make your account")
	b.problem("name", "This is needed.")
	b.problem("password", "This is too short")
	b.send("/welcome", "name", "ann", "password", "password1")
	b.at("Make your account")
	b.problem("password", "This is one of the most common passwords")
	b.send("/welcome", "password", password)
	b.at("Your account", "ann", "ann@example.com", "verified", "Welcome. Your account is made.")
	b.visit(welcome)
	b.at("This does not work")
	b.signOut()
	b.visit("/signup") // once more, which nobody is told
	b.send("/signup", "email", "Ann@example.com")
	b.at("Look into your mails", "Ann@example.com")
	b.visit(b.link("ann@example.com"))
	b.at("Sign in")
	b.visit("/welcome?token=made-up")
	b.at("This does not work")
}

func (b *browser) signIns() {
	b.t.Helper()
	b.visit("/account")
	b.at("Sign in")
	b.send("/signin", "identifier", "ann", "password", "wrong")
	b.at("Sign in", "Wrong name or password.")
	b.send("/signin", "identifier", "nobody", "password", password)
	b.at("Sign in", "Wrong name or password.")
	b.send("/signin", "identifier", "ANN", "password", password)
	b.at("Your account", "ann")
	var number string
	b.run("reading the number", chromedp.Evaluate(`[...document.querySelectorAll("dt")].find(d => d.textContent === "Customer number").nextElementSibling.textContent`, &number))
	b.signOut()
	b.visit("/signin")
	b.send("/signin", "identifier", number, "password", password)
	b.at("Your account", "ann", number)
}

func (b *browser) edits() {
	b.t.Helper()
	b.visit("/account/edit")
	b.at("Change your account")
	b.send("/account/edit", "name", "", "job", "cook")
	b.at("Change your account")
	b.problem("name", "This is needed.")
	b.send("/account/edit", "name", "ann", "job", "cook")
	b.at("Your account", "cook", "Your account is changed.")
	b.visit("/account/edit")
	var stale string
	b.run("reading the revision", chromedp.Evaluate(`document.querySelector("[name=rev]").value`, &stale))
	b.send("/account/edit", "job", "baker")
	b.at("Your account", "baker")
	b.visit("/account/edit")
	b.run("an old page", chromedp.SetAttributeValue("[name=rev]", "value", stale, chromedp.ByQuery))
	b.send("/account/edit", "job", "smith")
	b.at("Change your account", "This was changed meanwhile", "baker")
	b.send("/account/edit")
	b.at("Your account", "smith")
}

func (b *browser) passwords() {
	b.t.Helper()
	b.visit("/account/password")
	b.at("Change your password")
	b.send("/account/password", "old", "wrong", "new", "battery staple horse")
	b.at("Change your password")
	b.problem("old", "Wrong name or password.")
	b.send("/account/password", "old", password, "new", "short")
	b.at("Change your password")
	b.problem("new", "This is too short")
	b.send("/account/password", "old", password, "new", "battery staple horse")
	b.at("Your account", "Your password is changed.")
	b.signOut()
	b.visit("/forgot")
	b.at("Forgotten password")
	b.send("/forgot", "identifier", "nobody at all")
	b.at("Look into your mails", "nobody at all")
	b.visit("/forgot")
	b.send("/forgot", "identifier", "ann")
	b.at("Look into your mails", "ann")
	reset := b.link("ann@example.com")
	b.visit(reset)
	b.at("Choose another password")
	b.send("/reset", "password", "short")
	b.at("Choose another password")
	b.problem("password", "This is too short")
	b.send("/reset", "password", password)
	b.at("Your account", "Your password is changed.")
	b.visit(reset)
	b.at("This does not work")
}

func (b *browser) addresses() {
	b.t.Helper()
	b.visit("/account/email")
	b.at("Change your address", "ann@example.com")
	b.send("/account/email", "email", "no address")
	b.at("Change your address")
	b.problem("email", "This is not an e-mail address.")
	b.send("/account/email", "email", "ann@example.org")
	b.at("Look into your mails", "ann@example.org")
	confirm := b.link("ann@example.org")
	b.visit(confirm)
	b.at("Confirm your address", "ann@example.org")
	b.send("/confirm")
	b.at("Your account", "ann@example.org", "verified", "Your address is changed.")
	b.visit(confirm)
	b.at("This does not work")
}

func (b *browser) devices() {
	b.t.Helper()
	b.visit("/account/devices")
	b.at("Devices", "this one")
	b.follow("everywhere", chromedp.Click(`form:has([name=all]) button`, chromedp.ByQuery))
	b.at("Sign in", "You are signed out everywhere.")
	b.visit("/account/devices")
	b.at("Sign in")
	b.send("/signin", "identifier", "ann", "password", password)
	b.at("Devices", "this one")
	b.follow("this one", chromedp.Click(`.devices button`, chromedp.ByQuery))
	b.at("Sign in")
	b.visit("/admin")
	b.at("Sign in")
}

func (b *browser) administration() {
	b.t.Helper()
	b.signUp("root@example.com", "root")
	b.visit("/admin")
	b.at("All accounts", "ann", "root", "root@example.com")
	b.send("/admin", "q", "ann@example.org")
	b.at("All accounts", "ann@example.org")
	b.follow("disabling", chromedp.Click(`button[value=disable]`, chromedp.ByQuery))
	b.at("All accounts", "The account is disabled.", "Enable")
	b.follow("enabling", chromedp.Click(`button[value=enable]`, chromedp.ByQuery))
	b.at("All accounts", "The account may sign in again.")
	b.send("/admin", "q", "nobody")
	b.at("All accounts", "Nobody.")
	b.signOut()
}

// TestKeyboard signs up, out and in without a mouse: everything is reached by Tab, in the order of the page, and seen to be.
func TestKeyboard(t *testing.T) {
	b := open(t, looks[2])
	b.visit("/signup")
	b.at("Sign up")
	b.tabTo("email")
	b.keys("kim@example.com", kb.Enter)
	b.at("Look into your mails")
	b.visit(b.link("kim@example.com"))
	b.at("Make your account")
	b.tabTo("name")
	b.keys("kim", kb.Tab, password, kb.Tab, kb.Enter)
	b.at("Your account", "kim")
	b.tabTo("Sign out")
	b.keys(kb.Enter)
	b.at("Welcome", "You are signed out.")
	b.tabTo("Sign in")
	b.keys(kb.Enter)
	b.at("Sign in")
	b.tabTo("identifier")
	b.keys("kim", kb.Tab, password, kb.Enter)
	b.at("Your account", "kim")
	b.tabTo("Change name or job")
	b.keys(kb.Enter)
	b.at("Change your account")
}

// tabTo presses Tab until what has the focus has this id or text, and wants to see where the focus is.
func (b *browser) tabTo(name string) {
	b.t.Helper()
	for range 30 {
		b.keys(kb.Tab)
		var at, outline string
		b.run("focus", chromedp.Evaluate(`(e => e.id || e.textContent.trim())(document.activeElement)`, &at),
			chromedp.Evaluate(`getComputedStyle(document.activeElement).outlineStyle`, &outline))
		if at == name {
			if outline == "none" {
				b.t.Errorf("%s: nobody sees that it has the focus", name)
			}
			return
		}
	}
	b.t.Fatalf("Tab never comes to %q", name)
}

func (b *browser) keys(keys ...string) {
	b.t.Helper()
	for _, key := range keys {
		b.run("typing", chromedp.KeyEvent(key))
	}
}
