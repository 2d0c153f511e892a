package browser

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// webapp starts the example.
func webapp(b *browser) {
	b.t.Helper()
	cmd := exec.Command(b.build("./examples/webapp"), "--listen", "127.0.0.1:0", "--mail", b.mails, "--admin", "root@example.com")
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

// link waits for the next mail and returns the link in it.
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

// linkAmong waits for two mails, one of them to another address, and returns the link in the mail
// to the first address.
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
				b.t.Errorf("a mail is %s; want one to %s", text, other)
			}
		}
		return link
	}
	b.t.Fatal("no two mails have come")
	return ""
}

// signUp creates an account and ends signed in.
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

// TestAddressAsTyped checks that an account gets the address as it was typed, and that a form does
// not change fields that nobody edited.
func TestAddressAsTyped(t *testing.T) {
	b := open(t, looks[2], false, webapp)
	b.signUp("user@straße.example", "jo")
	b.visit("/account/edit")
	b.send("/account/edit", "job", "smith")
	b.at("Your account", "jo", "user@straße.example", "smith")
}

func (b *browser) signOut() {
	b.t.Helper()
	b.send("/signout")
	b.at("Welcome", "You are signed out.")
}

// TestFlows goes through the whole site, with wrong input in every form, in every kind of window.
func TestFlows(t *testing.T) {
	for _, l := range looks {
		t.Run(l.name, func(t *testing.T) {
			b := open(t, l, false, webapp)
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
	b.visit("/signup") // a second time, which the page must not reveal
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
	b.send("/account/email", "email", "ann@example.org")
	b.at("Change your address")
	b.problem("password", "Wrong name or password.")
	b.send("/account/email", "email", "no address", "password", password)
	b.at("Change your address")
	b.problem("email", "This is not an e-mail address.")
	b.send("/account/email", "email", "ann@example.org", "password", password)
	b.at("Look into your mails", "ann@example.org")
	confirm := b.linkAmong("ann@example.org", "ann@example.com")
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

// TestKeyboard signs up, out and in without a mouse. Tab must reach everything, in the order of the
// page, and the focus must be visible.
func TestKeyboard(t *testing.T) {
	b := open(t, looks[2], false, webapp)
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
