// Package browser tests the example webapp and the console in a real browser, and the passkeys of
// the example in Node. It carries out every task, including with wrong input and with only the
// keyboard, with and without scripts, on a phone and on a desktop, in light and dark colors.
// axe-core checks the accessibility of every page.
package browser

import (
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
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const password = "correct horse battery"

// A browser is a Chromium window with the site that it shows, which no other test uses.
type browser struct {
	t          *testing.T
	ctx        context.Context
	base       string   // the URL of the site
	mails      string   // the folder to which the site writes its mails
	read       []string // files of mails that have been read
	windowName string   // the names of screenshots contain it
	scheme     string   // light or dark
	axe        string   // the source of axe-core; if "", it checks no page
	shots      int      // number of screenshots

	scripts bool // whether pages may run scripts
}

// A window describes the size and the color scheme of a browser window.
type window struct {
	name   string
	width  int64
	scheme string
}

var windows = []window{{"phone-light", 360, "light"}, {"phone-dark", 360, "dark"}, {"desktop-light", 1280, "light"}, {"desktop-dark", 1280, "dark"}}

// open opens a window. serve starts the site and sets b.base.
func open(t *testing.T, w window, scripts bool, serve func(b *browser)) *browser {
	t.Helper()
	chromium := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil && chromium == "" {
			chromium = path
		}
	}
	if chromium == "" {
		t.Skip("chromium is not installed")
	}
	axe, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Log("axe-core is missing, so it checks no page: run npm ci")
	}
	b := &browser{t: t, mails: t.TempDir(), windowName: w.name, scheme: w.scheme, axe: string(axe), scripts: scripts}
	serve(b)
	flags := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(chromium), chromedp.NoSandbox,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WindowSize(int(w.width), 900))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), flags...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	b.ctx, stop = context.WithTimeout(ctx, 6*time.Minute)
	t.Cleanup(stop)
	// The browser writes to its directory until it ends. Cancel waits for that, and then removes
	// the directory.
	t.Cleanup(func() { _ = chromedp.Cancel(b.ctx) })
	b.run("opening the window",
		emulation.SetDeviceMetricsOverride(w.width, 900, 1, w.width < 600),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: w.scheme}}),
		emulation.SetScriptExecutionDisabled(!scripts))
	return b
}

// programs is a directory for the commands that build has built, one at a time.
var (
	programs string
	building sync.Mutex
)

func TestMain(m *testing.M) {
	var err error
	if programs, err = os.MkdirTemp("", "userdb-browser-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(programs)
	os.Exit(code)
}

// build builds a command of this repository, unless an earlier test has built it.
func (b *browser) build(folder string) (program string) {
	b.t.Helper()
	building.Lock()
	defer building.Unlock()
	program = filepath.Join(programs, filepath.Base(folder))
	if _, err := os.Stat(program); err == nil {
		return program
	}
	build := exec.CommandContext(b.t.Context(), "go", "build", "-o", program, folder)
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		b.t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// start starts a program and interrupts it at the end of the test.
func (b *browser) start(cmd *exec.Cmd) {
	b.t.Helper()
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			b.t.Errorf("the site exited: %v", err)
		}
	})
}

func (b *browser) run(what string, actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

// follow runs actions that lead to another page, and waits for that page.
func (b *browser) follow(what string, actions ...chromedp.Action) {
	b.t.Helper()
	b.run("marking the page", chromedp.Evaluate(`document.documentElement.dataset.old = "1"; 0`, nil))
	b.run(what, actions...)
	b.until(what, `document.documentElement.dataset.old ? "" : "another page"`, "another page")
}

// until waits until an expression has a value, on a page that has loaded.
func (b *browser) until(what, expression, want string) {
	b.t.Helper()
	var got, text string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		err := chromedp.Run(b.ctx, chromedp.Evaluate(`document.readyState === "complete" ? `+expression+` : ""`, &got))
		if err == nil && got == want {
			return
		}
	}
	b.run("reading the page", chromedp.Evaluate(`document.body.innerText`, &text))
	b.t.Fatalf("%s: got %q, want %q, on this page:\n%s", what, got, want, text)
}

// onPage waits for a page with this heading, checks that it contains words, and calls checkPage.
func (b *browser) onPage(heading string, words ...string) {
	b.t.Helper()
	b.until("waiting for the heading", `document.querySelector("h1")?.textContent ?? ""`, heading)
	var text string
	b.run("reading the page", chromedp.Evaluate(`document.body.innerText`, &text))
	for _, word := range words {
		if !strings.Contains(text, word) {
			b.t.Errorf("the page %q lacks %q:\n%s", heading, word, text)
		}
	}
	b.checkPage(heading)
}

// checkPage checks the page with axe-core, and checks that nothing is wider than the window, that
// no input has a type whose text browsers change, and that every input says what browsers may fill
// in. It also takes a screenshot if SCREENSHOTS names a directory.
func (b *browser) checkPage(heading string) {
	b.t.Helper()
	var wide bool
	b.run("measuring", chromedp.Evaluate(`document.documentElement.scrollWidth > document.documentElement.clientWidth`, &wide))
	if wide {
		b.t.Errorf("%s, %s: the page is wider than the window", b.windowName, heading)
	}
	var rewriting string
	b.run("looking at the inputs", chromedp.Evaluate(`[...document.querySelectorAll("input")].map(i => i.type)
		.filter(t => !["text", "search", "password", "hidden", "checkbox", "file"].includes(t)).join()`, &rewriting))
	if rewriting != "" {
		b.t.Errorf("%s, %s: browsers rewrite the text of inputs of type %s", b.windowName, heading, rewriting)
	}
	var open string
	b.run("looking at the inputs", chromedp.Evaluate(`[...document.querySelectorAll("input:not([type=hidden], [type=checkbox], [type=file]), textarea")]
		.filter(i => !i.autocomplete || i.type === "password" && !i.autocomplete.endsWith("-password")).map(i => i.outerHTML).join()`, &open))
	if open != "" {
		b.t.Errorf("%s, %s: browsers may fill anything into %s", b.windowName, heading, open)
	}
	if b.axe != "" {
		b.checkWithAxe(heading)
	}
	if dir := os.Getenv("SCREENSHOTS"); dir != "" {
		var png []byte
		b.run("taking a screenshot", chromedp.FullScreenshot(&png, 100))
		b.shots++
		name := fmt.Sprintf("%s-%02d-%s.png", b.windowName, b.shots, regexp.MustCompile(`\W+`).ReplaceAllString(heading, "-"))
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), png, 0o600)); err != nil {
			b.t.Fatal(err)
		}
	}
}

// withoutViolations holds the pages in which axe-core has found no violations. Each key is the name
// of the window, followed by the HTML of the page without the wording of its texts.
var withoutViolations sync.Map

// checkWithAxe checks a page with axe-core, unless a page that differs only in the wording of its
// texts had no violations in a window of the same size and colors.
func (b *browser) checkWithAxe(heading string) {
	b.t.Helper()
	var page string
	b.run("reading the structure", chromedp.Evaluate(`document.documentElement.outerHTML.replace(/>[^<]*[^<\s][^<]*</g, ">text<")
		.replace(/ (value|href|action|datetime|content)="[^"]+"/g, ' $1="text"')`, &page))
	page = b.windowName + " " + page
	if _, ok := withoutViolations.Load(page); ok {
		return
	}
	var found string
	await := func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
	b.run("running axe-core", emulation.SetScriptExecutionDisabled(false), chromedp.Evaluate(b.axe+"; 0", nil), chromedp.Evaluate(
		`axe.run().then(r => JSON.stringify(r.violations.map(v => [v.id, v.help, v.nodes.map(n => n.html)])))`, &found, await),
		emulation.SetScriptExecutionDisabled(!b.scripts))
	var violations []json.RawMessage
	if err := json.Unmarshal([]byte(found), &violations); err != nil || len(violations) > 0 {
		b.t.Errorf("%s, %s: accessibility violations (%v): %s", b.windowName, heading, err, found)
		return
	}
	withoutViolations.Store(page, true)
}

// visit opens a path, or a link from a mail.
func (b *browser) visit(path string) {
	b.t.Helper()
	if !strings.HasPrefix(path, "http") {
		path = b.base + path
	}
	b.run("visiting "+path, chromedp.Navigate(path))
}

// submit fills in the form whose action begins with path and which is not for passkeys, and submits
// it. fields holds pairs of the id of an input and the text to type.
func (b *browser) submit(path string, fields ...string) {
	b.t.Helper()
	b.submitForm(fmt.Sprintf("form[action^=%q]:not([data-passkey])", path), fields...)
}

// submitForm fills in the form that a selector selects, and submits it.
func (b *browser) submitForm(form string, fields ...string) {
	b.t.Helper()
	for i := 0; i+1 < len(fields); i += 2 {
		b.fill("#"+fields[i], fields[i+1])
	}
	b.follow("sending "+form, chromedp.Click(form+" button", chromedp.ByQuery))
}

// fill types a text into an input in place of what it contains.
func (b *browser) fill(input, text string) {
	b.t.Helper()
	b.run("filling in "+input, chromedp.Evaluate(fmt.Sprintf("document.querySelector(%q).value = ''", input), nil),
		chromedp.SendKeys(input, text, chromedp.ByQuery))
}

// click returns an action that scrolls an element to the middle, where no bar covers it, and clicks
// it.
func click(selector string) chromedp.Action {
	scroll := fmt.Sprintf(`document.querySelector(%q)?.scrollIntoView({block: "center"}); 0`, selector)
	return chromedp.Tasks{chromedp.Evaluate(scroll, nil), chromedp.Click(selector, chromedp.ByQuery)}
}

// wantProblem checks that an error message is shown for a field, and that both are marked for
// assistive software.
func (b *browser) wantProblem(field, text string) {
	b.t.Helper()
	var got string
	b.run("reading the problem", chromedp.Evaluate(fmt.Sprintf(
		`(() => { const i = document.getElementById(%q); const p = document.getElementById(i.getAttribute("aria-describedby"));
		return i.getAttribute("aria-invalid") + " " + p.getAttribute("role") + " " + p.textContent.trim() })()`, field), &got))
	if want := "true alert " + text; !strings.HasPrefix(got, want) {
		b.t.Errorf("the problem at %s is %q, want %q", field, got, want)
	}
}

// tabTo presses Tab until the element with this id or text, or the checkbox with this label, has
// the focus, and checks that the focus is visible.
func (b *browser) tabTo(name string) {
	b.t.Helper()
	b.tabUntil(fmt.Sprintf(`(e.id || e.type === "checkbox" && e.ariaLabel || e.textContent.trim()) === %q`, name))
}

// tabUntil presses Tab until a condition on the element e that has the focus is met, and checks
// that the focus is visible.
func (b *browser) tabUntil(condition string) {
	b.t.Helper()
	for range 150 {
		var outline string
		b.keys(kb.Tab)
		b.run("reading the focus", chromedp.Evaluate(`(e => `+condition+` ? getComputedStyle(e).outlineStyle : "")(document.activeElement)`, &outline))
		if outline == "none" {
			b.t.Errorf("the element with %s has the focus, but that is not visible", condition)
		}
		if outline != "" {
			return
		}
	}
	b.t.Fatalf("Tab never reaches the element with %s", condition)
}

func (b *browser) keys(keys ...string) {
	b.t.Helper()
	for _, key := range keys {
		b.run("typing", chromedp.KeyEvent(key))
	}
}
