package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/authenticator"
	"github.com/coffeenode/userdb/passkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

const testOrigin = "https://accounts.example.com"

func passkeyConfig() *passkey.Config {
	return &passkey.Config{RPID: "example.com", Origins: []string{testOrigin}}
}

// answer asks for a challenge, as the script does, and returns the fields of a form with a device's
// answer to it.
func (d *testConsole) answer(device func(challenge string) (string, error), purpose string, form ...string) []string {
	d.t.Helper()
	body := d.do(http.StatusOK, "/console/passkey/"+purpose, append(form, "", "")...)
	text, err := device(body)
	must(d.t, err)
	_, state, _ := strings.Cut(body, `"state":"`)
	state, _, _ = strings.Cut(state, `"`)
	return []string{"passkey", text, "state", state}
}

// addPasskey adds a passkey to the operator who is signed in, and returns the page that follows.
func (d *testConsole) addPasskey(device *authenticator.Device) string {
	d.t.Helper()
	d.wantText(d.do(http.StatusOK, "/console/security/passkey", "passkey-label", "my laptop"), "Passkeys need JavaScript")
	return d.do(http.StatusOK, "/console/security/confirm", append(d.answer(device.Create, "add"), "passkey-label", "my laptop")...)
}

const passkeyPath = "/console/signin/passkey"

// TestPasskey checks that an operator adds a passkey, signs in with it, alone and as the second
// step, proves with it again who they are, and removes it.
func TestPasskey(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		device := authenticator.New("example.com", testOrigin)
		evil := device.With(func(d *authenticator.Device) { d.RP.Origin = "https://evil.example.org" })
		d.do(http.StatusUnauthorized, "/console/security/confirm", d.answer(evil.Create, "add")...)
		if codes := shownCodes(d.addPasskey(device)); len(codes) != 10 {
			t.Errorf("the first factor gives the codes %q, want ten", codes)
		}
		d.wantText(d.do(http.StatusOK, "/console/security"), "my laptop passkey", "You sign in with a passkey, or with your password")
		d.wantText(d.do(http.StatusConflict, "/console/security/confirm", d.answer(device.Create, "add")...), "in use already")

		// Alone. This console is another process, which has not read the schema of operators yet.
		d = newTestConsole(t, d.db)
		o := d.newBrowser()
		sign := o.answer(device.Get, "signin")
		d.do(http.StatusUnauthorized, passkeyPath, sign...) // of another browser
		before := d.operatorActions()
		o.do(http.StatusUnauthorized, passkeyPath, o.answer(evil.Get, "signin")...)
		unverified := device.With(func(d *authenticator.Device) { d.Auth.Options.UserNotVerified = true })
		o.wantText(o.do(http.StatusUnauthorized, passkeyPath, o.answer(unverified.Get, "signin")...), "This passkey was not accepted.")
		if after := d.operatorActions(); !slices.Equal(after, before) {
			t.Errorf("after wrong answers of strangers, the feed has the actions %q, want %q", after, before)
		}
		if to := o.do(http.StatusSeeOther, passkeyPath, append(sign, "return", "/console/keys")...); to != "/console/keys" {
			t.Errorf("the passkey leads to %q, want /console/keys", to)
		}
		o.do(http.StatusOK, "/console/find")
		d.newBrowser().do(http.StatusUnauthorized, passkeyPath, sign...)

		// As the second step.
		d = newTestConsole(t, d.db)
		o = d.newBrowser()
		page := o.do(http.StatusOK, "/console/signin", "name", "olga", "password", goodPassword)
		o.wantText(page, "Use your passkey", "Recovery code")
		by := inputValue(page, "by")
		o.wantText(o.do(http.StatusUnauthorized, codePath, append(o.answer(evil.Get, "code"), "by", by)...), "This passkey was not accepted.", "Use your passkey")
		o.do(http.StatusUnauthorized, codePath, append(o.answer(device.Get, "signin"), "by", by)...)
		o.do(http.StatusSeeOther, codePath, append(o.answer(device.Get, "code"), "by", by)...)
		o.do(http.StatusOK, "/console/find")

		// After ten minutes, again. The answer is sent together with the form that needs it.
		d.createAccount("u1", "name", "Alice")
		o.advance(verifiedFor + time.Minute)
		asked := o.do(http.StatusOK, "/console/keys", "name", "shop", "scope", "read")
		o.wantText(asked, "Confirm that it is you", "Your own password")
		again := func(answer []string) []string { return append(answer, packedName, inputValue(asked, packedName)) }
		o.wantText(o.do(http.StatusUnauthorized, "/console/keys", again(o.answer(evil.Get, "verify"))...), "This passkey was not accepted.")
		o.do(http.StatusUnauthorized, "/console/keys", again(o.answer(device.Get, "signin"))...)
		stolen := d.newBrowser()
		at, err := url.Parse(d.base)
		must(t, err)
		stolen.client.Jar.SetCookies(at, o.client.Jar.Cookies(at))
		o.wantText(o.do(http.StatusOK, "/console/keys", again(o.answer(device.Get, "verify"))...), "The key shop has been created.")
		stolen.do(http.StatusSeeOther, "/console/find")
		const set = "/console/types/user/u1/password"
		asked = o.do(http.StatusOK, set, "password", "another good password")
		if strings.Contains(asked, "new-password") {
			t.Error("the page asks for the new password of the account")
		}
		confirmed := o.do(http.StatusOK, set, append(again(o.answer(device.Get, "verify")), "password", "no new password")...)
		o.console.now = d.console.jobs.jobs.SessionTime
		o.do(http.StatusSeeOther, set, o.fillForm(confirmed, set, "password", "a third good password")...)
		_, err = d.users.Login(t.Context(), "alice", "a third good password", userdb.Attempt{})
		must(t, err)

		id := inputValue(o.do(http.StatusOK, "/console/security"), "id")
		o.wantText(o.do(http.StatusOK, "/console/security/remove", "id", id), "with your password alone")
		o.do(http.StatusSeeOther, "/console/security/remove", "id", id, confirmName, "true")
		d.newBrowser().do(http.StatusUnauthorized, passkeyPath, d.newBrowser().answer(device.Get, "signin")...)
		d.newBrowser().signIn(operatorName, goodPassword)
	})
}

// TestChallengeStoresNothing checks that challenges for visitors make no calls to the store, and
// use the capacity for visitors.
func TestChallengeStoresNothing(t *testing.T) {
	d := open(t, "memory:")
	var work []Work
	d.console.options.Admit = func(_ context.Context, w Work) (func(), error) { work = append(work, w); return func() {}, nil }
	d.calls.reset()
	o := d.newBrowser()
	o.post(http.StatusOK, "/console/passkey/signin")
	o.post(http.StatusOK, "/console/passkey/code")
	if calls := d.calls.reset(); len(calls) > 0 || !slices.Equal(work, []Work{WorkSignIn, WorkSignIn}) {
		t.Errorf("challenges made the calls %v and used the capacity %v, want no calls and twice that for signing in", calls, work)
	}
}

// TestPasskeyIsFactor checks that a passkey alone satisfies RequireFactors, that an operator adds
// the first with a link, and that it does not work while the operator is disabled or after
// ResetFactors.
func TestPasskeyIsFactor(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		must(t, admin.RequireFactors(t.Context(), d.db, true))
		link, err := admin.IssueEnrolLink(t.Context(), d.db, hints.Any("olga"))
		must(t, err)
		b, device := d.newBrowser(), authenticator.New("example.com", testOrigin)
		b.wantText(b.do(http.StatusOK, "/console/enrol", "token", link, "password", goodPassword), "Or a passkey")
		b.do(http.StatusGone, "/console/passkey/enrol", "token", "x")
		b.do(http.StatusSeeOther, "/console/passkey/add", "", "")
		answer := b.answer(device.Create, "enrol", "token", link)
		b.do(http.StatusSeeOther, "/console/security/confirm", answer...)
		if codes := shownCodes(b.do(http.StatusOK, "/console/enrol/confirm", append(answer, "token", link)...)); len(codes) != 10 {
			t.Errorf("the codes are %q, want 10", codes)
		}
		b.do(http.StatusGone, "/console/enrol?token="+link)
		page := b.do(http.StatusOK, "/console/security")
		b.wantText(b.do(http.StatusUnprocessableEntity, "/console/security/remove", "id", inputValue(page, "id"), confirmName, "true"), "before you remove the only one")
		o := d.newBrowser()
		o.do(http.StatusSeeOther, passkeyPath, o.answer(device.Get, "signin")...)
		o.do(http.StatusOK, "/console/find")

		operators, err := admin.Operators(d.db)
		must(t, err)
		must(t, operators.Disable(t.Context(), hints.Any("olga")))
		o.do(http.StatusSeeOther, "/console/find")
		o.do(http.StatusUnauthorized, passkeyPath, o.answer(device.Get, "signin")...)
		must(t, operators.Enable(t.Context(), hints.Any("olga")))
		o.do(http.StatusSeeOther, passkeyPath, o.answer(device.Get, "signin")...)
		_, err = operators.ResetFactors(t.Context(), hints.Any("olga"))
		must(t, err)
		o.do(http.StatusSeeOther, "/console/find")
		o.do(http.StatusUnauthorized, passkeyPath, o.answer(device.Get, "signin")...)
		e, err := operators.Find(t.Context(), hints.Any("olga"))
		if err != nil || len(e.FactorMethods()) > 0 || e.Text(admin.PasskeyField) != "" {
			t.Errorf("after ResetFactors the operator has %v and the digest %q, %v; want neither", e.FactorMethods(), e.Text(admin.PasskeyField), err)
		}
	})
}

// TestPasskeyOldStore checks that in a store of an earlier version operators can add passkeys after
// IssueEnrolLink, and that a process that had read the old schema then accepts them.
func TestPasskeyOldStore(t *testing.T) {
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{Schema: testSchema(), Keys: [][]byte{make([]byte, 32)}})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	inside, err := admin.Open(db) // its type of operators is that of the earlier version
	must(t, err)
	before, err := inside.Type("operator")
	must(t, err)
	_, err = before.Create(t.Context(), userdb.NewEntry{UID: "first", Facets: schema.Texts(admin.OperatorName, operatorName), Password: goodPassword})
	must(t, err)
	paul, other := newTestConsole(t, db), newTestConsole(t, db)
	_, err = newOperator(t, paul, "Paul")
	must(t, err)
	paul.signIn("paul", goodPassword)
	paul.wantText(paul.do(http.StatusOK, "/console/security"), "No passkey can be added yet", "userdb operator enrol NAME")
	paul.do(http.StatusOK, "/console/security/passkey", "", "")
	// The other process reads the schema.
	_, err = other.console.operators.SetPassword(t.Context(), hints.Any("olga"), goodPassword)
	must(t, err)
	_, err = admin.IssueEnrolLink(t.Context(), db, hints.Any("olga"))
	must(t, err)
	device := authenticator.New("example.com", testOrigin)
	if codes := shownCodes(paul.addPasskey(device)); len(codes) != 10 {
		t.Errorf("the first factor gives the codes %q, want ten", codes)
	}
	page := other.do(http.StatusOK, "/console/signin", "name", "paul", "password", goodPassword)
	other.do(http.StatusSeeOther, codePath, append(other.answer(device.Get, "code"), "by", inputValue(page, "by"))...)
	other.do(http.StatusOK, "/console/find")
}

// TestPasskeyName checks that the longest name is accepted, and that a longer one is refused before
// the browser makes a passkey, which would stay in the operator's device.
func TestPasskeyName(t *testing.T) {
	d := open(t, "memory:")
	const at = "/console/security/passkey"
	long := strings.Repeat("م", 33)
	form := d.do(http.StatusUnprocessableEntity, at, "passkey-label", long)
	d.wantText(form, "Your sign-in", "This name is too long.", "at most 64 letters")
	if !strings.Contains(form, `value="`+long+`"`) || !strings.Contains(form, `id="passkey-label-problem"`) {
		t.Errorf("the form has lost the name, or does not say beside it what is wrong:\n%s", form)
	}
	d.wantText(d.do(http.StatusOK, at, "passkey-label", " "+strings.Repeat("م", 32)+" "), "Your browser asks where to keep the passkey")
}
