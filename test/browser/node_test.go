package browser

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// A nodeSite is a browser that shows the example in Node, which uses a running 'userdb serve'.
type nodeSite struct {
	*browser
	mails *bufio.Scanner // the site prints its mails
}

// openNode starts the service and the example as the README of the example says, with accounts in a
// file, and opens a browser.
func openNode(t *testing.T, w window) *nodeSite {
	t.Helper()
	const example = "../../examples/node"
	if _, err := os.Stat(filepath.Join(example, "node_modules")); err != nil {
		t.Skip("run 'npm ci' in examples/node")
	}
	d := &nodeSite{}
	d.browser = open(t, w, true, func(b *browser) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		_ = l.Close()
		b.base = "http://localhost:" + port
		program, store := b.build("./cmd/userdb"), "file:"+filepath.Join(t.TempDir(), "accounts.db")
		userdb := func(args ...string) *exec.Cmd { return exec.Command(program, append(args, "--store", store)...) }
		if out, err := userdb("schema", "apply", "--schema", filepath.Join(example, "schema.json")).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		key, err := userdb("apikey", "create", "web", "--scope", "read", "write", "login", "--type", "user").Output()
		if err != nil {
			t.Fatal(err)
		}

		service := userdb("serve", "--listen", "127.0.0.1:0", "--passkey-rp", "localhost", "--passkey-origin", b.base)
		out, err := service.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		b.start(service)
		log, at := bufio.NewScanner(out), ""
		for at == "" && log.Scan() {
			at, _ = strings.CutPrefix(log.Text(), "listening on ")
			if at == log.Text() {
				at = ""
			}
		}
		go func() {
			for log.Scan() { // read the log, or the service would block
				continue
			}
		}()

		site := exec.Command("node", "app.js")
		site.Dir, site.Stderr = example, os.Stderr
		site.Env = append(os.Environ(), "USERDB_URL="+at, "USERDB_KEY="+strings.TrimSpace(string(key)), "PORT="+port, "USERDB_TIMEOUT_MS=60000")
		out, err = site.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := site.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = site.Process.Kill() // it may have ended
			_ = site.Wait()
		})
		d.mails = bufio.NewScanner(out)
		if !d.mails.Scan() {
			t.Fatal("the site does not start")
		}
	})
	return d
}

// press clicks an element that leads to another page.
func (d *nodeSite) press(selector string) {
	d.t.Helper()
	d.follow("pressing "+selector, click(selector))
}

func (d *nodeSite) signOut() {
	d.t.Helper()
	d.visit("/")
	d.press(`form[action="/logout"] button`)
	d.onPage("Sign in", "Sign in with a passkey")
}

// TestNodePasskeys adds a passkey to an account of the example in Node, signs in with it, alone and
// as the second step, and removes it.
func TestNodePasskeys(t *testing.T) {
	d := openNode(t, passkeyWindows[0])
	d.newAuthenticator()
	d.visit("/signup")
	d.onPage("Sign up")
	d.submit("/signup", "name", "ann", "email", "ann@example.com", "password", password)
	d.onPage("Hello, ann")
	d.visit("/security")
	d.onPage("Security", "First show that the address ann@example.com is yours")
	d.press(`a[href="/forgot"]`)
	d.submit("/forgot", "identifier", "ann")
	d.onPage("Check your mail")
	d.mails.Scan()
	d.visit(strings.TrimPrefix(d.mails.Text(), "mail to ann@example.com: "))
	d.submit("/reset", "password", password)
	d.onPage("Hello, ann")

	d.press(`a[href="/security"]`)
	d.onPage("Security", "You sign in with your password alone.")
	d.wantPasskeyForm()
	d.fill("#name", "my laptop")
	d.press("form[data-passkey] button")
	d.onPage("Your recovery codes")
	d.press("main p a")
	d.onPage("Security", "my laptop", "10 left", "You sign in with a passkey, or with your password and a second step.")
	// The browser knows that this authenticator has a passkey already.
	d.fill("#name", "the same laptop")
	d.run("adding it again", click("form[data-passkey] button"), chromedp.WaitVisible("form[data-passkey] [role=alert]", chromedp.ByQuery))
	d.onPage("Security", "That did not work.")

	d.signOut()
	d.press("form[data-passkey] button")
	d.onPage("Hello, ann")

	d.signOut()
	d.submit("/login", "identifier", "ann", "password", password)
	d.onPage("Second step", "Use your passkey", "Without your passkey")
	d.press("form[data-passkey] button")
	d.onPage("Hello, ann")
	d.submit("/password", "current", password, "password", password+" 2")
	d.onPage("Hello, ann")

	d.visit("/security")
	d.onPage("Security", "my laptop")
	d.press(`form[action="/factors/remove"] button`)
	d.onPage("Security", "You sign in with your password alone.")
	d.signOut()
	d.press("form[data-passkey] button")
	d.onPage("Sign in", "This passkey was not accepted.")
	d.submit("/login", "identifier", "ann", "password", password+" 2")
	d.onPage("Hello, ann")
}
