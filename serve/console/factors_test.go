package console

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// enrolAccount adds an app to an account, and returns the app, the recovery codes and the secret of
// the owner's session.
func (d *testConsole) enrolAccount(e userdb.Entry) (a app, codes []string, session string) {
	d.t.Helper()
	_, session, err := d.users.StartSession(d.t.Context(), e, userdb.SessionOptions{})
	must(d.t, err)
	pending, err := d.users.EnrolTOTP(d.t.Context(), session, userdb.TOTPOptions{Name: "my <b>phone</b>"})
	must(d.t, err)
	a = app{pending.ID, pending.Secret}
	done, err := d.users.ConfirmTOTP(d.t.Context(), session, a.id, a.code(d.t, 0), userdb.SessionOptions{})
	must(d.t, err)
	return a, done.RecoveryCodes, done.Secret
}

// ticket takes the first step of a login, and returns the ticket for the second.
func (d *testConsole) ticket(name string) string {
	d.t.Helper()
	_, err := d.users.Login(d.t.Context(), name, goodPassword, userdb.Attempt{})
	refused, is := errors.AsType[*userdb.FactorError](err)
	if !is {
		d.t.Fatalf("one step: got %v, want a *FactorError", err)
	}
	return refused.Ticket
}

// TestAccountFactors checks that the page of an account shows its second step without secrets, and
// that an operator can replace the recovery codes and, after a confirmation, remove the second
// step.
func TestAccountFactors(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		e := d.createAccount("u1", "name", "Alice", "email", "alice@example.com")
		const at = "/console/types/user/u1"
		d.wantNoText(d.do(http.StatusOK, at), "Second step")
		_, _, err := d.users.StartSession(t.Context(), e, userdb.SessionOptions{})
		must(t, err)
		d.wantText(d.do(http.StatusOK, at+"?tab=devices"), "by one step")
		a, codes, session := d.enrolAccount(e)
		body := d.do(http.StatusOK, at)
		d.wantText(body, "Second step", "my <b>phone</b>", "10 of ten are left", "They can sign in with the right password and a second step.")
		d.wantText(d.do(http.StatusOK, at+"?tab=devices"), "by two steps")
		d.wantText(d.do(http.StatusOK, at+"?tab=history"), "The application changed the second step, which is now by app or recovery code")
		for _, secret := range append(slices.Clone(codes), a.secret, session) {
			if strings.Contains(body, secret) {
				t.Error("the page shows a secret")
			}
		}
		fresh := shownCodes(d.do(http.StatusOK, at+"/codes", "", ""))
		if len(fresh) != 10 || slices.Equal(fresh, codes) {
			t.Errorf("the new codes are %q, want 10 others", fresh)
		}
		_, err = d.users.Prove(t.Context(), d.ticket("alice"), userdb.RecoveryCode(fresh[0]), userdb.Attempt{})
		must(t, err)
		d.wantText(d.do(http.StatusOK, at), "9 of ten are left")

		question := d.do(http.StatusOK, at+"/factors", "id", a.id)
		d.wantText(question, "Remove the second step?", "Alice signs in with the password alone", "All sessions of the account end", "Make sure first who asks for this", "Tell the owner by mail")
		_, _, err = d.users.Session(t.Context(), session)
		must(t, err) // nothing has been done yet
		d.do(http.StatusNotFound, at+"/factors", "id", "nosuch")
		to := d.do(http.StatusSeeOther, at+"/factors", "id", a.id, confirmName, "true")
		d.wantText(d.do(http.StatusOK, to), "The second step has been changed.")
		d.wantText(d.do(http.StatusOK, at+"?tab=history"), "Operator Olga removed the second step")
		if _, _, err = d.users.Session(t.Context(), session); !isAny(err, userdb.ErrNotFound) {
			t.Errorf("a session after the removal: got %v, want ErrNotFound", err)
		}
		_, err = d.users.Login(t.Context(), "alice", goodPassword, userdb.Attempt{})
		must(t, err)
	})
}

// TestWhySecondStep checks that the page of an account says what keeps its owner from taking the
// second step, and that Prove agrees.
func TestWhySecondStep(t *testing.T) {
	server := redistest.Start(t)
	raw := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = raw.Close() })
	d := open(t, server.URL())
	const at = "/console/types/user/u1"
	a, codes, _ := d.enrolAccount(d.createAccount("u1", "name", "Alice"))
	wrong := func(n int) {
		for range n {
			_, err := d.users.Prove(t.Context(), d.ticket("alice"), userdb.TOTP("x"), userdb.Attempt{Origin: "192.0.2.9"})
			if !isAny(err, userdb.ErrLogin) {
				t.Fatalf("a wrong code: got %v, want ErrLogin", err)
			}
		}
	}
	wrong(3)
	d.wantText(d.do(http.StatusOK, at), "They can sign in", "There were three wrong codes within a day")
	wrong(17)
	d.wantText(d.do(http.StatusOK, at), "They can sign in", "After 20 wrong codes, no code of their app is checked until", "A recovery code works.")
	d.wantText(d.do(http.StatusOK, "/console/history"), "entered too many wrong codes")
	for _, code := range codes {
		_, err := d.users.Prove(t.Context(), d.ticket("alice"), userdb.RecoveryCode(code), userdb.Attempt{})
		must(t, err)
	}
	d.wantText(d.do(http.StatusOK, at), "They cannot sign in: after 20 wrong codes no code of their app is checked until", "and no recovery code is left")
	if _, err := d.users.Prove(t.Context(), d.ticket("alice"), userdb.TOTP(a.code(t, 1)), userdb.Attempt{}); !isAny(err, userdb.ErrTooManyAttempts) {
		t.Errorf("the right code: got %v, want ErrTooManyAttempts", err)
	}
	record, err := recordkey.PRK("user", "uid", "u1")
	must(t, err)
	factors, err := record.Own("factor")
	must(t, err)
	must(t, raw.HDel(t.Context(), factors.String(), "tries/").Err()) // the count of wrong codes
	d.wantText(d.do(http.StatusOK, at), "They can sign in", "They have no recovery codes left.")
	kept, err := raw.HGetAll(t.Context(), factors.String()).Result()
	must(t, err)
	must(t, raw.Del(t.Context(), factors.String()).Err())
	d.wantText(d.do(http.StatusOK, at), "They cannot sign in: the account’s data for the second step is missing", "The second step is damaged.")
	d.do(http.StatusOK, at+"/factors", "", "") // the whole second step can be removed nevertheless
	for name, value := range kept {
		must(t, raw.HSet(t.Context(), factors.String(), name, value).Err())
	}
	d.wantText(d.do(http.StatusOK, at), "They can sign in")
}
