package console

import (
	"html"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// addValues adds unverified values to a field of an account.
func (d *testConsole) addValues(uid, field string, texts ...string) {
	d.t.Helper()
	_, err := d.users.Update(d.t.Context(), hintOf(uid), func(e *userdb.Entry) error {
		for _, text := range texts {
			e.AddText(field, text)
		}
		return nil
	})
	must(d.t, err)
}

// emails returns the addresses of an account.
func (d *testConsole) emails(uid string) []string {
	d.t.Helper()
	e, err := d.users.Find(d.t.Context(), hintOf(uid))
	must(d.t, err)
	return e.Texts("email")
}

// values sends a form that changes the values of an account, with the revision that the account's
// page shows.
func (d *testConsole) values(want int, at string, form ...string) string {
	d.t.Helper()
	rev := inputValue(d.do(http.StatusOK, at), "rev")
	return d.do(want, at+"/values", append([]string{"rev", rev}, form...)...)
}

// TestValues adds, removes and orders the values of a field. Each change is confirmed.
func TestValues(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		const at, first, work = "/console/types/user/u1", "alice@example.com", "Alice@work.example"
		d.createAccount("u1", "name", "Alice", "email", first)
		d.createAccount("u2", "name", "Bob", "email", "bob@example.com")
		body := d.do(http.StatusOK, at)
		d.wantText(body, "email "+first+" not verified", "All values of email", first+" first not verified", "Remove "+first, "Another email")
		d.wantNoText(body, "Details email", "Make first", "All values of invoice", "the first of several")

		confirm := func(question string) {
			t.Helper()
			d.wantText(question, "Change", "Cancel")
			to := d.do(http.StatusSeeOther, at+"/values", d.fillForm(question, at+"/values")...)
			d.wantText(d.do(http.StatusOK, to), "The account has been changed.")
			if past := d.history("u1"); past[0] != "identifier operator:"+operatorName {
				t.Errorf("the history begins with %q, want identifier", past[0])
			}
		}
		wantEmails := func(want ...string) {
			t.Helper()
			if got := d.emails("u1"); !slices.Equal(got, want) {
				t.Errorf("the addresses are %q, want %q", got, want)
			}
		}
		question := d.values(http.StatusOK, at, "field", "email", "do", "add", "value", " "+work+" ")
		d.wantText(question, work+" is added", work+" is not verified. Nobody can sign in with it")
		wantEmails(first)
		confirm(question)
		wantEmails(first, work)
		confirm(question) // a double click
		wantEmails(first, work)
		stale := d.fillForm(question, at+"/values", "value", "b@home.example")
		d.wantText(d.do(http.StatusConflict, at+"/values", stale...), "This was changed in the meantime.")
		wantEmails(first, work)
		body = d.do(http.StatusOK, at)
		d.wantText(body, "email "+first+" first not verified", "email "+work+" not verified", "Make first: "+work, "Remove "+work, "the first of several values")
		d.wantText(d.do(http.StatusOK, "/console/find?q=alice@WORK.example"), "Its email is "+work)

		secret, err := d.users.Issue(t.Context(), hintOf("u1"), userdb.Token{Purpose: userdb.PurposeAdd + "email", Value: "a@home.example"})
		must(t, err)
		d.wantText(d.do(http.StatusOK, at), "Unused: a link that adds another email, valid until")
		_, _, err = d.users.Redeem(t.Context(), userdb.PurposeAdd+"email", secret)
		must(t, err)
		body = d.do(http.StatusOK, at)
		d.wantText(body, "a@home.example verified", "The schema allows 3 values.")
		d.wantText(d.do(http.StatusOK, at+"?tab=history"), "used a link that adds another email")
		d.wantNoText(body, "Another email")
		d.wantText(d.values(http.StatusUnprocessableEntity, at, "field", "email", "do", "add", "value", "b@home.example"), "You have this already, or as many as are allowed.")

		question = d.values(http.StatusOK, at, "field", "email", "do", "first", "index", "2")
		d.wantText(question, "a@home.example becomes the first value", first+" is not verified")
		d.wantNoText(question, "is removed", "a@home.example is not verified")
		confirm(question)
		wantEmails("a@home.example", first, work)
		d.wantText(d.do(http.StatusOK, at), "a@home.example first verified")

		question = d.values(http.StatusOK, at, "field", "email", "do", "remove", "index", "1")
		d.wantText(question, first+" is removed")
		d.wantNoText(question, "becomes the first", "not verified", "no longer sign in")
		confirm(question)
		question = d.values(http.StatusOK, at, "field", "email", "do", "remove", "index", "0")
		d.wantText(question, "a@home.example is removed", work+" becomes the first value", work+" is not verified")
		confirm(question)
		wantEmails(work)
	})
}

// TestRefusedValues checks that the problem of a refused value is shown beside the form in which
// the value was entered.
func TestRefusedValues(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		const at = "/console/types/user/u1"
		d.createAccount("u1", "email", "alice@example.com")
		d.createAccount("u2", "name", "Bob", "email", "bob@example.com")
		d.addValues("u2", "email", "bob@work.example")
		for _, tt := range []struct {
			entered string
			status  int
			want    string
		}{
			{"", http.StatusUnprocessableEntity, "This field is required."},
			{"no address", http.StatusUnprocessableEntity, "This is not an e-mail address."},
			{"ALICE@example.com", http.StatusUnprocessableEntity, "This is not allowed: this account has it already."},
			{"BOB@work.example", http.StatusConflict, "Somebody has this already."},
		} {
			body := d.values(tt.status, at, "field", "email", "do", "add", "value", tt.entered)
			if !strings.Contains(body, `id="a-email-problem" role="alert">`+tt.want) || strings.Contains(body, "f-email-problem") {
				t.Errorf("%q: the problem is not beside the form:\n%s", tt.entered, pageText(body))
			}
			if got := inputValue(body, "value"); got != tt.entered {
				t.Errorf("the form has %q, want %q", got, tt.entered)
			}
			if tt.status == http.StatusConflict {
				d.wantText(body, "bob@work.example is the email of Bob", "user/email:bob@work.example/~prk points to user/uid:u2")
			}
		}
		for _, form := range [][]string{
			{"field", "name", "do", "add", "value", "x"},
			{"field", "nothing", "do", "add", "value", "x"},
			{"field", "email", "do", "replace", "value", "x"},
		} {
			d.values(http.StatusNotFound, at, form...)
		}
		for _, index := range []string{"-1", "1", "", "x", "99999999999999999999"} {
			d.wantText(d.values(http.StatusConflict, at, "field", "email", "do", "remove", "index", index), "This was changed in the meantime.")
		}
		d.wantText(d.do(http.StatusConflict, at+"/values", "rev", "other", "field", "email", "do", "remove", "index", "0"), "This was changed in the meantime.")
		// The first value is already the first, so nothing changes.
		d.values(http.StatusSeeOther, at, "field", "email", "do", "first", "index", "0")
		d.wantText(d.values(http.StatusOK, at, "field", "email", "do", "remove", "index", "0"), "alice@example.com is removed", "They can no longer sign in")
	})
}

// TestFirstOfSeveral checks that the form with the facets changes only the first of several values.
func TestFirstOfSeveral(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		const at = "/console/types/user/u1"
		d.createAccount("u1", "name", "Alice", "email", "a@example.com")
		d.addValues("u1", "email", "b@example.com", "c@example.com")
		change := func(entered string) (question string) {
			t.Helper()
			question = d.do(http.StatusOK, at, d.fillForm(d.do(http.StatusOK, at), at, "email", entered)...)
			d.do(http.StatusSeeOther, at, d.fillForm(question, at)...)
			return question
		}
		for _, tt := range []struct {
			entered string
			texts   []string
			want    []string
		}{
			{"z@example.com", []string{"a@example.com becomes z@example.com"}, []string{"z@example.com", "b@example.com", "c@example.com"}},
			{"", []string{"z@example.com is removed", "b@example.com becomes the first value"}, []string{"b@example.com", "c@example.com"}},
			{"c@example.com", []string{"b@example.com is removed", "c@example.com becomes the first value"}, []string{"c@example.com"}},
			{"", []string{"c@example.com is removed"}, nil},
		} {
			d.wantText(change(tt.entered), tt.texts...)
			if got := d.emails("u1"); !slices.Equal(got, tt.want) {
				t.Errorf("after %q the addresses are %q, want %q", tt.entered, got, tt.want)
			}
		}
	})
}

// TestOtherValues checks the values of a field that has no mail addresses. They are shown as they
// are, and none of them has to be verified.
func TestOtherValues(t *testing.T) {
	const at, odd = "/console/types/user/u1", "<b>a  b</b>"
	s := testSchema()
	s.Types["user"].Fields["invoice"] = schema.Field{Role: schema.RoleSecondary, Many: 3}
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{Schema: s, History: true})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	d := newTestConsole(t, db)
	_, err = newOperator(t, d, operatorName)
	must(t, err)
	d.signIn(operatorName, goodPassword)
	d.createAccount("u1", "name", "Alice", "invoice", "2026-1")
	d.addValues("u1", "invoice", odd, "2026-3")
	body := d.do(http.StatusOK, at)
	d.wantText(body, "2026-1 first", "2026-3")
	d.wantNoText(body, "not verified")
	if !strings.Contains(body, "<code>"+html.EscapeString(odd)+"</code>") {
		t.Errorf("the page does not show %q as it is:\n%s", odd, body)
	}
	question := d.values(http.StatusOK, at, "field", "invoice", "do", "remove", "index", "1")
	d.wantNoText(question, "not verified")
	d.do(http.StatusSeeOther, at+"/values", d.fillForm(question, at+"/values")...)
	e, err := d.users.Find(t.Context(), hintOf("u1"))
	must(t, err)
	if got, want := e.Texts("invoice"), []string{"2026-1", "2026-3"}; !slices.Equal(got, want) {
		t.Errorf("the values are %q, want %q", got, want)
	}
}

// TestValuesNeedPassword checks that an operator is asked for the password before a value changes.
func TestValuesNeedPassword(t *testing.T) {
	d := open(t, "memory:")
	const at = "/console/types/user/u1"
	d.createAccount("u1", "name", "Alice", "email", "alice@example.com")
	d.advance(verifiedFor + time.Minute)
	question := d.values(http.StatusOK, at, "field", "email", "do", "add", "value", "b@example.com")
	asked := d.do(http.StatusOK, at+"/values", d.fillForm(question, at+"/values")...)
	d.wantText(asked, "Your own password")
	if got := d.emails("u1"); len(got) != 1 {
		t.Errorf("before the password, the addresses are %q, want one", got)
	}
	d.do(http.StatusSeeOther, at+"/values", append(d.fillForm(asked, at+"/values"), verifyName, goodPassword)...)
	if got := d.emails("u1"); len(got) != 2 {
		t.Errorf("after the password, the addresses are %q, want two", got)
	}
}
