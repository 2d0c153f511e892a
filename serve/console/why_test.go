package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A reason describes why the owner of an account cannot sign in. cause makes it apply to an
// account, and words are how the page describes it.
type reason struct {
	cause func(d *testConsole, raw redis.UniversalClient, uid string)
	words string
}

var reasons = map[string]reason{
	"guesses": {func(d *testConsole, _ redis.UniversalClient, uid string) {
		for i := range 14 {
			_, _ = d.users.Login(d.t.Context(), uid+" name", "wrong", userdb.Attempt{Origin: fmt.Sprintf("192.0.2.%d", i%2)})
		}
	}, "they have to wait until "},
	"disabled": {func(d *testConsole, _ redis.UniversalClient, uid string) {
		d.post(http.StatusSeeOther, "/console/types/user/"+uid+"/disable")
	}, "the account is disabled, by operator Olga at "},
	"no password":       {func(d *testConsole, raw redis.UniversalClient, uid string) { setHash(d, raw, uid, "") }, "the account has no password"},
	"unusable password": {func(d *testConsole, raw redis.UniversalClient, uid string) { setHash(d, raw, uid, "$nosuch$") }, "its password is stored in a form that cannot be checked here"},
	"no identifier": {func(d *testConsole, _ redis.UniversalClient, uid string) {
		_, err := d.users.Update(d.t.Context(), hintOf(uid), func(e *userdb.Entry) error { e.Drop("name"); return nil })
		must(d.t, err)
	}, "the account has no name or address to sign in with"},
}

// TestWhyPasskey checks what the page says about accounts with passkeys, which need no password,
// and about parts of the second step that cannot be used.
func TestWhyPasskey(t *testing.T) {
	now := time.Now()
	can := userdb.LoginStatus{Password: userdb.PasswordStored, Identifiers: 1}
	none := userdb.LoginStatus{Password: userdb.PasswordNone}
	disabled := userdb.LoginStatus{Password: userdb.PasswordStored, Identifiers: 1, Disabled: true}
	waiting := userdb.LoginStatus{Password: userdb.PasswordStored, Identifiers: 1, Wait: time.Minute, Failures: 9}
	passkey, both := []string{"passkey"}, []string{"passkey", "totp"}
	methods := []string{"passkey", "recovery", "totp"}
	for _, tt := range []struct {
		name   string
		status userdb.LoginStatus
		step   userdb.SecondStep
		can    bool
		want   string
		note   string
	}{
		{"a passkey", can, userdb.SecondStep{Usable: passkey, RecoveryCodes: 9}, true, "They can sign in with a passkey, or with the right password and a second step.", ""},
		{"a passkey, and no code", can, userdb.SecondStep{Usable: passkey}, true, "They can sign in with a passkey, or", "They have no recovery codes left."},
		{"a passkey, and no password", none, userdb.SecondStep{Usable: passkey, RecoveryCodes: 9}, true, "They can sign in with a passkey, but not with a password: the account has no password; the account has no name", ""},
		{"a passkey, and guesses", waiting, userdb.SecondStep{Usable: passkey, RecoveryCodes: 9}, true, "They can sign in with a passkey, but not with a password: they have to wait until", ""},
		{"a passkey of a disabled account", disabled, userdb.SecondStep{Usable: passkey, RecoveryCodes: 9}, false, "They cannot sign in: the account is disabled.", ""},
		{"a passkey that cannot be used", none, userdb.SecondStep{Usable: []string{"totp"}, Damaged: true}, false, "They cannot sign in: the account has no password", ""},
		{"a passkey beside a lost app", can, userdb.SecondStep{Usable: passkey, Damaged: true}, true, "They can sign in with a passkey, or", "cannot be read here. A passkey still works."},
		{"an app beside a lost passkey", can, userdb.SecondStep{Usable: []string{"totp"}, Damaged: true}, true, "They can sign in with the right password and a second step.", "cannot be read here. A code of their app still works."},
		{"nothing that can be used", can, userdb.SecondStep{Damaged: true}, false, "so no code or passkey is accepted", ""},
		{"a passkey, and wrong codes", can, userdb.SecondStep{Usable: both, WrongCodes: 20, Wait: time.Hour}, true, "They can sign in with a passkey, or", "A passkey works."},
		{"a lost passkey, and wrong codes", can, userdb.SecondStep{Usable: []string{"totp"}, Damaged: true, WrongCodes: 20, Wait: time.Hour}, false, "no code of their app is checked until", ""},
	} {
		tt.status.SecondStep = tt.step
		tt.status.SecondStep.Methods = methods
		w := explain(tt.status, nil, nil, now)
		if w.Can != tt.can || !strings.Contains(w.Sentence, tt.want) || tt.note != "" && !strings.Contains(strings.Join(w.Notes, "\n"), tt.note) {
			t.Errorf("%s: got %v %q %q, want %v %q %q", tt.name, w.Can, w.Sentence, w.Notes, tt.can, tt.want, tt.note)
		}
	}
}

// TestUnprovenNote checks that the page of an account says that nobody has verified its address,
// but only if somebody signed up with that address.
func TestUnprovenNote(t *testing.T) {
	d := open(t, "memory:")
	d.createAccount("u1", "email", "ann@example.com")
	_, err := d.users.Create(t.Context(), userdb.NewEntry{UID: "u2", Facets: schema.Texts("email", "bob@example.com"), SelfRegistered: true})
	must(t, err)
	d.wantNoText(d.do(http.StatusOK, "/console/types/user/u1"), unprovenNote)
	d.wantText(d.do(http.StatusOK, "/console/types/user/u2"), unprovenNote)
}

// setHash writes the hash of a password behind the back of the store.
func setHash(d *testConsole, raw redis.UniversalClient, uid, text string) {
	d.t.Helper()
	prk, err := recordkey.PRK("user", "uid", uid)
	must(d.t, err)
	must(d.t, raw.HDel(d.t.Context(), prk.String(), "password").Err())
	if text != "" {
		must(d.t, raw.HSet(d.t.Context(), prk.String(), "password", text).Err())
	}
}

// TestWhy checks, for every reason and every pair of them, that the page gives exactly these
// reasons and that Login agrees.
func TestWhy(t *testing.T) {
	server := redistest.Start(t)
	raw := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = raw.Close() })
	d := openStill(t, server.URL())
	// The causes are applied in this order. The guesses come first, because they count for the
	// account only while it has the name that they are made with.
	names := []string{"guesses", "disabled", "no password", "unusable password", "no identifier"}
	n := 0
	for i, one := range append(names, "") {
		for _, other := range append(append([]string{}, names[min(i+1, len(names)):]...), "") {
			if one == "no password" && other == "unusable password" { // no account can have both
				continue
			}
			n++
			uid := fmt.Sprintf("why%d", n)
			d.createAccount(uid, "name", uid+" name", "job", "baker")
			for _, name := range []string{one, other} {
				if name != "" {
					reasons[name].cause(d, raw, uid)
				}
			}
			body := pageText(d.do(http.StatusOK, "/console/types/user/"+uid))
			for name, r := range reasons {
				if want := name == one || name == other; strings.Contains(body, r.words) != want {
					t.Errorf("%q and %q: the page gives the reason %q: %v, want %v\n%s", one, other, r.words, !want, want, body)
				}
			}
			_, err := d.users.Login(t.Context(), uid+" name", goodPassword, userdb.Attempt{Origin: "198.51.100.7"})
			if can := strings.Contains(body, "They can sign in"); can != (err == nil) || can == strings.Contains(body, "They cannot sign in:") {
				t.Errorf("%q and %q: Login returns %v, but the page says otherwise:\n%s", one, other, err, body)
			}
			if one == "guesses" && other != "no identifier" && !strings.Contains(body, "from two origins") {
				t.Errorf("%q and %q: the page lacks the origins of the guesses\n%s", one, other, body)
			}
		}
	}
	if n != 15 {
		t.Errorf("got %d cases, want 15", n)
	}
}

// TestLastSession checks that the start of a session counts as a sign-in, even without an origin.
func TestLastSession(t *testing.T) {
	d := open(t, "memory:")
	d.createAccount("u1", "name", "Alice")
	e, err := d.users.Find(t.Context(), hintOf("u1"))
	must(t, err)
	_, _, err = d.users.StartSession(t.Context(), e, userdb.SessionOptions{})
	must(t, err)
	d.wantText(d.do(http.StatusOK, "/console/types/user/u1"), "They last signed in at")
}

// TestLastLogin checks that the page shows the last login, that it says that guesses of strangers
// do not lock out the origin of that login, and that it offers to reset wrong guesses only if there
// are some.
func TestLastLogin(t *testing.T) {
	d := openStill(t, "memory:")
	_, err := d.users.Create(t.Context(), userdb.NewEntry{UID: "u1", Facets: schema.Texts("name", "Alice"), Password: goodPassword})
	must(t, err)
	const reset = "Reset wrong guesses"
	body := d.do(http.StatusOK, "/console/types/user/u1")
	d.wantText(body, "There is no record of a sign-in")
	d.wantNoText(body, reset)
	_, err = d.users.Login(t.Context(), "alice", goodPassword, userdb.Attempt{Origin: "192.0.2.7"})
	must(t, err)
	for range 12 {
		_, _ = d.users.Login(t.Context(), "alice", "wrong", userdb.Attempt{Origin: "198.51.100.9"})
	}
	d.wantText(d.do(http.StatusOK, "/console/types/user/u1"), reset, "They last signed in at", ", except at one place where they have signed in before, after 10 wrong guesses from one origin")
	d.wantNoText(d.do(http.StatusOK, d.post(http.StatusSeeOther, "/console/types/user/u1/waits")), reset)
}
