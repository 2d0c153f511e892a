package console

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestHeldValues checks that an operator sees whose a held value was, and can release it after a
// confirmation, whether its owner was renamed or deleted.
func TestHeldValues(t *testing.T) {
	sc := testSchema()
	name := sc.Types["user"].Fields["name"]
	name.Hold = schema.Period(24 * time.Hour)
	sc.Types["user"].Fields["name"] = name
	d := openSchema(t, "memory:", sc, true)
	d.createAccount("u1", "name", "Alice")
	d.createAccount("u2", "name", "Bob")
	_, err := d.users.Update(t.Context(), hintOf("u1"), func(e *userdb.Entry) error { e.Put("name", schema.Text("Alicia")); return nil })
	must(t, err)
	must(t, d.users.Delete(t.Context(), hintOf("u2")))

	d.wantText(d.do(http.StatusOK, "/console/types/user/u1"), "Former values", "alice, name, until")
	for _, tt := range []struct{ query, said, was string }{
		{"ALICE", "The account u1 has given up alice, its name.", "alice was the name of u1"},
		{"bob", "The deleted account u2 had given up bob, its name.", "bob was the name of the deleted account u2"},
	} {
		at := "/console/find?q=" + tt.query
		found := d.do(http.StatusOK, at)
		d.wantText(found, tt.said, "Let others take it")
		question := d.do(http.StatusOK, "/console/held", d.fillForm(found, "/console/held")...)
		d.wantText(question, tt.was, "the next owner may get what was meant for the former one", "Cancel")
		d.wantText(d.do(http.StatusOK, at), tt.said)
		form := d.fillForm(question, "/console/held")
		d.wantNoText(d.do(http.StatusOK, d.do(http.StatusSeeOther, "/console/held", form...)), "given up")
		d.do(http.StatusNotFound, "/console/held", form...)
	}
	d.wantNoText(d.do(http.StatusOK, "/console/types/user/u1"), "Former values")
	d.createAccount("u3", "name", "Alice")
	d.createAccount("u4", "name", "Bob")
}

// TestRetiredUIDs lists the UIDs of deleted accounts and frees one, with a confirmation.
func TestRetiredUIDs(t *testing.T) {
	sc := testSchema()
	user := sc.Types["user"]
	user.Retire = true
	sc.Types["user"] = user
	d := openSchema(t, "memory:", sc, true)
	d.createAccount("u1", "name", "Alice")
	d.createAccount("u2", "name", "Bob")
	must(t, d.users.Delete(t.Context(), hintOf("u1")))

	const at = "/console/retired?type=user"
	d.wantText(d.do(http.StatusOK, "/console/types/user"), "UIDs of deleted accounts")
	found := d.do(http.StatusOK, at)
	d.wantText(found, "u1 deleted", "Allow it to be reused")
	d.wantNoText(found, "u2")
	question := d.do(http.StatusOK, "/console/retired", "type", "user", "uid", "u1")
	d.wantText(question, "If the account u1 was deleted", "will mean the next account that gets it", "Cancel")
	d.wantText(d.do(http.StatusOK, at), "u1 deleted")
	form := d.fillForm(question, "/console/retired")
	d.wantText(d.do(http.StatusOK, d.do(http.StatusSeeOther, "/console/retired", form...)), "There are none.")
	for _, uid := range []string{"u1", "u2", "", strings.Repeat("u", 5000)} {
		body := d.do(http.StatusNotFound, "/console/retired", "type", "user", "uid", uid, confirmName, "true")
		d.wantText(body, "No deleted account holds this UID.", "There are none.")
		if got := inputValue(body, "uid"); got != uid {
			t.Errorf("the input has %q, want %q", got, uid)
		}
	}
	d.do(http.StatusNotFound, "/console/retired?type=none")
	d.createAccount("u1", "name", "Carl")
}
