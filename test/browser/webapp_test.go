package browser

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// webapp starts the example and sets b.base.
func webapp(b *browser) { webappWith()(b) }

// webappWith returns a function that starts the example with more flags, and sets b.base.
func webappWith(flags ...string) func(b *browser) {
	return func(b *browser) { b.startWebapp(flags) }
}

func (b *browser) startWebapp(flags []string) {
	b.t.Helper()
	b.startSite("./examples/webapp", append([]string{"--admin", "root@example.com"}, flags...))
}

// startSite starts a program that writes its mails to b.mails, and sets b.base.
func (b *browser) startSite(folder string, flags []string) {
	b.t.Helper()
	cmd := exec.Command(b.build(folder), append([]string{"--listen", "127.0.0.1:0", "--mail", b.mails}, flags...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	b.start(cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.t.Fatal(err)
	}
	b.base = strings.TrimSpace(strings.TrimPrefix(line, "listening on"))
}

// link waits for the next mail, which must be to this address, and returns the link in it.
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
				b.t.Fatalf("got the mail %s, %v; want one to %s", text, err, to)
			}
			return strings.TrimSpace(regexp.MustCompile(`(?m)^http\S+$`).FindString(string(text)))
		}
	}
	b.t.Fatal("no mail came")
	return ""
}

// linkAmong waits for two mails, in any order, to the addresses to and other. It returns the link
// in the mail to the first.
func (b *browser) linkAmong(to, other string) (link string) {
	b.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		files, err := filepath.Glob(filepath.Join(b.mails, "mail-*"))
		if err != nil {
			b.t.Fatal(err)
		}
		if len(files) < len(b.read)+2 {
			continue
		}
		for _, file := range files {
			if slices.Contains(b.read, file) {
				continue
			}
			b.read = append(b.read, file)
			text, err := os.ReadFile(file)
			if err != nil {
				b.t.Fatal(err)
			}
			if strings.HasPrefix(string(text), "To: "+to+"\n") {
				link = strings.TrimSpace(regexp.MustCompile(`(?m)^http\S+$`).FindString(string(text)))
			} else if !strings.HasPrefix(string(text), "To: "+other+"\n") {
				b.t.Errorf("got the mail %s, want one to %s", text, other)
			}
		}
		return link
	}
	b.t.Fatal("the two mails did not come")
	return ""
}

// signUp creates an account, which leaves the browser signed in.
func (b *browser) signUp(address, name string) {
	b.t.Helper()
	b.visit("/signup")
	b.onPage("Sign up")
	b.submit("/signup", "email", address)
	b.onPage("Check your mail", address)
	b.visit(b.link(address))
	b.onPage("Create your account", address)
	b.submit("/welcome", "name", name, "password", password)
	b.onPage("Your account", name, address, "verified", "Welcome")
}

// TestAddressAsEntered checks that an account gets the address as it was entered, and that a form
// does not change fields that nobody edited.
func TestAddressAsEntered(t *testing.T) {
	t.Parallel()
	b := open(t, windows[2], false, webapp)
	b.signUp("user@straße.example", "jo")
	b.visit("/account/edit")
	b.submit("/account/edit", "job", "smith")
	b.onPage("Your account", "jo", "user@straße.example", "smith")
}

func (b *browser) signOut() {
	b.t.Helper()
	b.submit("/signout")
	b.onPage("Welcome", "You are signed out.")
}

// TestFlows uses the pages of the site for accounts without a second factor, with right and wrong
// input, in every kind of window without scripts, and in one with scripts.
func TestFlows(t *testing.T) {
	t.Parallel()
	for i, w := range append(slices.Clone(windows), windows[2]) {
		scripts := i == len(windows)
		name := w.name
		if scripts {
			name += "-scripts"
		}
		t.Run(name, func(t *testing.T) {
			b := open(t, w, scripts, webapp)
			b.visit("/")
			b.onPage("Welcome")
			b.testSignUp()
			b.testSignIn()
			b.testEdit()
			b.testPasswords()
			b.testAddressChange()
			b.testAddresses()
			b.testDevices()
			b.testAdministration()
		})
	}
}

func (b *browser) testSignUp() {
	b.t.Helper()
	b.visit("/signup")
	b.submit("/signup", "email", "no address")
	b.onPage("Sign up")
	b.wantProblem("email", "This is not an e-mail address.")
	b.submit("/signup", "email", "ann@example.com")
	b.onPage("Check your mail", "ann@example.com")
	welcome := b.link("ann@example.com")
	b.visit(welcome)
	b.submit("/welcome", "name", "", "password", "short")
	b.onPage("Create your account")
	b.wantProblem("name", "This field is required.")
	b.wantProblem("password", "At least 8 characters")
	b.submit("/welcome", "name", "ann", "password", "password1")
	b.onPage("Create your account")
	b.wantProblem("password", "This is one of the most common passwords")
	b.submit("/welcome", "password", password)
	b.onPage("Your account", "ann", "ann@example.com", "verified", "Welcome. Your account has been created.")
	b.visit(welcome)
	b.onPage("This does not work")
	b.signOut()
	b.visit("/signup") // a second time, which the page must not reveal
	b.submit("/signup", "email", "Ann@example.com")
	b.onPage("Check your mail", "Ann@example.com")
	b.visit(b.link("ann@example.com"))
	b.onPage("Sign in")
	b.visit("/welcome?token=made-up")
	b.onPage("This does not work")
}

func (b *browser) testSignIn() {
	b.t.Helper()
	b.visit("/account")
	b.onPage("Sign in")
	b.submit("/signin", "identifier", "ann", "password", "wrong")
	b.onPage("Sign in", "Wrong name or password.")
	b.submit("/signin", "identifier", "nobody", "password", password)
	b.onPage("Sign in", "Wrong name or password.")
	b.submit("/signin", "identifier", "ANN", "password", password)
	b.onPage("Your account", "ann")
	b.wantStay(false)
	var number string
	b.run("reading the customer number", chromedp.Evaluate(`[...document.querySelectorAll("dt")].find(d => d.textContent === "Customer number").nextElementSibling.textContent`, &number))
	b.signOut()
	b.visit("/signin")
	b.run("choosing to stay signed in", click(`[name=stay]`))
	b.submit("/signin", "identifier", number, "password", password)
	b.onPage("Your account", "ann", number)
	b.wantStay(true)
}

// wantStay checks whether the cookie of the session outlives the browser.
func (b *browser) wantStay(want bool) {
	b.t.Helper()
	found, stays := false, false
	b.run("reading the cookies", chromedp.ActionFunc(func(ctx context.Context) error {
		cookies, err := network.GetCookies().Do(ctx)
		for _, c := range cookies {
			if strings.HasSuffix(c.Name, "session") {
				found, stays = true, !c.Session
			}
		}
		return err
	}))
	if !found || stays != want {
		b.t.Errorf("found a cookie of the session: %v; it outlives the browser: %v, want %v", found, stays, want)
	}
}

func (b *browser) testEdit() {
	b.t.Helper()
	b.visit("/account/edit")
	b.onPage("Change your account")
	b.submit("/account/edit", "name", "", "job", "cook")
	b.onPage("Change your account")
	b.wantProblem("name", "This field is required.")
	b.submit("/account/edit", "name", "ann", "job", "cook")
	b.onPage("Your account", "cook", "Your account has been changed.")
	b.visit("/account/edit")
	var stale string
	b.run("reading the revision", chromedp.Evaluate(`document.querySelector("[name=rev]").value`, &stale))
	b.submit("/account/edit", "job", "baker")
	b.onPage("Your account", "baker")
	b.visit("/account/edit")
	b.run("restoring the old revision", chromedp.SetAttributeValue("[name=rev]", "value", stale, chromedp.ByQuery))
	b.submit("/account/edit", "job", "smith")
	b.onPage("Change your account", "This was changed in the meantime", "baker")
	b.submit("/account/edit")
	b.onPage("Your account", "smith")
}

func (b *browser) testPasswords() {
	b.t.Helper()
	b.visit("/account/password")
	b.onPage("Change your password")
	b.submit("/account/password", "old", "wrong", "new", "battery staple horse")
	b.onPage("Change your password")
	b.wantProblem("old", "This is not your current password.")
	b.submit("/account/password", "old", password, "new", "short")
	b.onPage("Change your password")
	b.wantProblem("new", "At least 8 characters")
	b.submit("/account/password", "old", password, "new", "battery staple horse")
	b.onPage("Your account", "Your password has been changed.")
	b.link("ann@example.com") // the notice
	b.signOut()
	b.visit("/forgot")
	b.onPage("Forgotten password")
	b.submit("/forgot", "identifier", "nobody at all")
	b.onPage("Check your mail", "nobody at all")
	b.visit("/forgot")
	b.submit("/forgot", "identifier", "ann")
	b.onPage("Check your mail", "ann")
	reset := b.link("ann@example.com")
	b.visit(reset)
	b.onPage("Choose a new password")
	b.submit("/reset", "password", "short")
	b.onPage("Choose a new password")
	b.wantProblem("password", "At least 8 characters")
	b.submit("/reset", "password", password)
	b.onPage("Your account", "Your password has been changed.")
	b.link("ann@example.com") // the notice
	b.visit(reset)
	b.onPage("This does not work")
}

func (b *browser) testAddressChange() {
	b.t.Helper()
	b.visit("/account/email")
	b.onPage("Change your address", "ann@example.com")
	b.submit("/account/email", "email", "ann@example.org", "password", "wrong")
	b.onPage("Change your address")
	b.wantProblem("password", "This is not your password.")
	b.submit("/account/email", "email", "no address", "password", password)
	b.onPage("Change your address")
	b.wantProblem("email", "This is not an e-mail address.")
	b.submit("/account/email", "email", "ann@example.org", "password", password)
	b.onPage("Check your mail", "ann@example.org")
	confirm := b.linkAmong("ann@example.org", "ann@example.com")
	b.visit(confirm)
	b.onPage("Confirm your address", "ann@example.org")
	b.submit("/confirm")
	b.onPage("Your account", "ann@example.org", "verified", "Your address has been changed.")
	b.visit(confirm)
	b.onPage("This does not work")
}

func (b *browser) testAddresses() {
	b.t.Helper()
	press := func(selector, done string) {
		b.t.Helper()
		b.follow("pressing "+selector, chromedp.Click(selector, chromedp.ByQuery))
		b.onPage("Addresses", done, "ann@example.org")
		b.linkAmong("ann@straße.example", "ann@example.org") // both get a notice
	}
	b.visit("/account/addresses")
	b.onPage("Addresses", "ann@example.org", "first", "verified")
	b.submit("/account/addresses", "email", "ann@straße.example", "password", "wrong")
	b.onPage("Addresses")
	b.wantProblem("password", "This is not your password.")
	b.submit("/account/addresses", "email", "no address", "password", password)
	b.onPage("Addresses")
	b.wantProblem("email", "This is not an e-mail address.")
	b.submit("/account/addresses", "email", "ann@straße.example", "password", password)
	b.onPage("Check your mail", "ann@straße.example")
	link := b.linkAmong("ann@straße.example", "ann@example.org")
	b.visit(link)
	b.onPage("Confirm your address", "ann@straße.example")
	b.submit("/add")
	b.onPage("Your account", "ann@straße.example", "ann@example.org", "The address has been added.")
	b.visit(link)
	b.onPage("This does not work")
	b.visit("/account/addresses")
	press(`button[value=first]`, "The address is now the first one.")
	press(`button[value=first]`, "The address is now the first one.")
	press(`button[value=remove]`, "The address has been removed.")
}

// codeAt returns the code that an app shows at a time, by RFC 6238.
func codeAt(t *testing.T, secret string, at time.Time) string {
	t.Helper()
	key, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(secret)
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha1.New, key)
	_, _ = mac.Write(binary.BigEndian.AppendUint64(nil, uint64(at.Unix()/30)))
	sum := mac.Sum(nil)
	return fmt.Sprintf("%06d", binary.BigEndian.Uint32(sum[sum[len(sum)-1]&15:])&(1<<31-1)%1_000_000)
}

// TestSecondFactor adds an app, signs in with one of its codes and with a recovery code, and
// removes it, in every kind of window without scripts, and in one with scripts.
func TestSecondFactor(t *testing.T) {
	t.Parallel()
	for i, w := range append(slices.Clone(windows), windows[2]) {
		scripts := i == len(windows)
		name := w.name
		if scripts {
			name += "-scripts"
		}
		t.Run(name, func(t *testing.T) { open(t, w, scripts, webapp).testFactors() })
	}
}

func (b *browser) testFactors() {
	b.t.Helper()
	b.signUp("ann@example.com", "ann")
	press := func(selector string) {
		b.t.Helper()
		b.follow("pressing "+selector, chromedp.Click(selector, chromedp.ByQuery))
	}
	toCode := func() {
		b.t.Helper()
		b.signOut()
		b.visit("/account/edit")
		b.submit("/signin", "identifier", "ann", "password", password)
		b.onPage("Enter a code")
	}
	b.visit("/account/security")
	b.onPage("Security", "You sign in with your password alone.")
	b.wantPasskeyForm()
	secret := b.beginApp()
	b.submit("/account/security", "code", "no code")
	b.onPage("Add an app", "Scan this code")
	b.wantProblem("code", "This is not the right code")
	now := time.Now()
	b.submit("/account/security", "code", codeAt(b.t, secret, now))
	b.onPage("Your recovery codes", "ann@example.com", "They are not shown again.")
	var codes []string
	b.run("reading the codes", chromedp.Evaluate(`[...document.querySelectorAll(".codes code")].map(c => c.textContent)`, &codes))
	if len(codes) != 10 {
		b.t.Fatalf("got the recovery codes %q, want ten", codes)
	}
	b.checkPrint(codes)
	press("main a.button")
	b.onPage("Security", "phone", "10 can still be used")

	toCode()
	b.submit("/signin/code", "code", "12345")
	b.onPage("Enter a code")
	b.wantProblem("code", "This is not the right code")
	next := now.Add(30 * time.Second) // of the next step, or of the current one if that is later
	if now = time.Now(); now.After(next) {
		next = now
	}
	b.submit("/signin/code", "code", codeAt(b.t, secret, next))
	b.onPage("Change your account")
	toCode()
	press("main p a")
	b.onPage("Enter a code", "Each recovery code works once.")
	b.submit("/signin/code", "recovery", "wrong-codes")
	b.wantProblem("recovery", "This is not the right code")
	b.submit("/signin/code", "recovery", strings.ToUpper(codes[0]))
	b.onPage("Change your account")

	b.visit("/account/verify?recovery=&return=/account/security")
	b.onPage("Confirm that it is you")
	b.submit("/account/verify", "password", password, "recovery", codes[1])
	b.onPage("Security", "8 can still be used")
	press("button[value=codes]")
	b.onPage("Your recovery codes")
	b.visit("/account/security")
	press("button[value=remove]")
	b.onPage("Security", "The app has been removed.", "You sign in with your password alone.")
}

// beginApp begins to add an app, and returns its key.
func (b *browser) beginApp() (secret string) {
	b.t.Helper()
	b.submit("/account/security", "label", "phone")
	b.onPage("Add an app", "Scan this code")
	var uri string
	b.run("reading the key", chromedp.Value("[name=uri]", &uri, chromedp.ByQuery))
	app, err := url.Parse(uri)
	if err != nil {
		b.t.Fatal(err)
	}
	return app.Query().Get("secret")
}

// addApp adds an app as the first second factor, and returns the recovery codes.
func (b *browser) addApp() (codes []string) {
	b.t.Helper()
	b.visit("/account/security")
	b.submit("/account/security", "code", codeAt(b.t, b.beginApp(), time.Now()))
	b.onPage("Your recovery codes")
	b.run("reading the codes", chromedp.Evaluate(`[...document.querySelectorAll(".codes code")].map(c => c.textContent)`, &codes))
	return codes
}

// checkPrint checks that the recovery codes are on the page as it is printed, and the links of the
// page are not.
func (b *browser) checkPrint(codes []string) {
	b.t.Helper()
	var text string
	b.run("printing", emulation.SetEmulatedMedia().WithMedia("print"), chromedp.Evaluate(`document.body.innerText`, &text))
	for _, code := range codes {
		if !strings.Contains(text, code) {
			b.t.Errorf("the printed page lacks the code %s:\n%s", code, text)
		}
	}
	if strings.Contains(text, "Sign out") || strings.Contains(text, "not shown again") || !strings.Contains(text, "Webapp") {
		b.t.Errorf("the printed page shows what is only for the screen, or does not name the site:\n%s", text)
	}
	if dir := os.Getenv("SCREENSHOTS"); dir != "" {
		var png []byte
		b.run("taking a screenshot", chromedp.FullScreenshot(&png, 100))
		if err := os.WriteFile(filepath.Join(dir, b.windowName+"-print.png"), png, 0o600); err != nil {
			b.t.Fatal(err)
		}
	}
	b.run("ending the print view", emulation.SetEmulatedMedia().WithMedia("").WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: b.scheme}}))
}

func (b *browser) testDevices() {
	b.t.Helper()
	b.visit("/account/verify?return=/account/devices")
	b.onPage("Confirm that it is you")
	b.submit("/account/verify", "password", "wrong")
	b.onPage("Confirm that it is you")
	b.wantProblem("password", "This is not your password.")
	b.submit("/account/verify", "password", password)
	b.onPage("Devices", "this one")
	b.follow("signing out everywhere", chromedp.Click(`form:has([name=all]) button`, chromedp.ByQuery))
	b.onPage("Sign in", "You are signed out everywhere.")
	b.visit("/account/devices")
	b.onPage("Sign in")
	b.submit("/signin", "identifier", "ann", "password", password)
	b.onPage("Devices", "this one")
	b.follow("signing out this device", chromedp.Click(`.devices button`, chromedp.ByQuery))
	b.onPage("Sign in")
	b.visit("/admin")
	b.onPage("Sign in")
}

func (b *browser) testAdministration() {
	b.t.Helper()
	b.signUp("root@example.com", "root")
	b.visit("/admin")
	b.onPage("All accounts", "ann", "root", "root@example.com")
	b.submit("/admin", "q", "ann@example.org")
	b.onPage("All accounts", "ann@example.org")
	b.follow("disabling the account", chromedp.Click(`button[value=disable]`, chromedp.ByQuery))
	b.onPage("All accounts", "The account is disabled.", "Enable")
	b.follow("enabling the account", chromedp.Click(`button[value=enable]`, chromedp.ByQuery))
	b.onPage("All accounts", "The account may sign in again.")
	b.submit("/admin", "q", "nobody")
	b.onPage("All accounts", "No accounts.")
	b.signOut()
}

// TestKeyboard signs up, out and in without a mouse. Tab must reach everything, in the order of the
// page, and the focus must be visible.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	b := open(t, windows[2], false, webapp)
	b.visit("/signup")
	b.onPage("Sign up")
	b.tabTo("email")
	b.keys("kim@example.com", kb.Enter)
	b.onPage("Check your mail")
	b.visit(b.link("kim@example.com"))
	b.onPage("Create your account")
	b.tabTo("name")
	b.keys("kim", kb.Tab, password, kb.Tab, kb.Enter)
	b.onPage("Your account", "kim")
	b.tabTo("Sign out")
	b.keys(kb.Enter)
	b.onPage("Welcome", "You are signed out.")
	b.tabTo("Sign in")
	b.keys(kb.Enter)
	b.onPage("Sign in")
	b.tabTo("identifier")
	b.keys("kim", kb.Tab, password, kb.Enter)
	b.onPage("Your account", "kim")
	b.tabTo("Change name or job")
	b.keys(kb.Enter)
	b.onPage("Change your account")
}
