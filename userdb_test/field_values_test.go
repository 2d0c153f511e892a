package userdb_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/coffeenode/userdb/userdb"
)

// TestFieldValues adds addresses to an entry and changes their order. FieldValues must say which of
// them are verified, before and after the entry is saved.
func TestFieldValues(t *testing.T) {
	eachLoginSite(t, manyLogins(), func(t *testing.T, g *loginSite) {
		ctx, start := t.Context(), time.Now().Add(-time.Hour)
		secret, err := g.users.Issue(ctx, uid("alice"), userdb.Token{Purpose: userdb.PurposeAdd + "email", Value: "b@example.com"})
		must(t, err)
		e, _, err := g.users.Redeem(ctx, userdb.PurposeAdd+"email", secret)
		must(t, err)
		e.AddText("email", "c@example.com")
		describe := func() (text string) {
			for _, v := range e.FieldValues()["email"] {
				text += fmt.Sprint(" ", v.Text, " ", v.Label, !v.Verified.IsZero())
				if !v.Verified.IsZero() && (v.Verified.Before(start) || v.Verified.After(time.Now())) {
					t.Errorf("%s was verified at %v, want a time after %v", v.Text, v.Verified, start)
				}
			}
			return text
		}
		want := " alice@example.com false b@example.com true c@example.com false"
		if got := describe(); got != want {
			t.Errorf("before saving: got%s, want%s", got, want)
		}
		e, err = g.users.Save(ctx, e)
		must(t, err)
		if got := describe(); got != want {
			t.Errorf("after saving: got%s, want%s", got, want)
		}
		e.PutFirst("email", "b@example.com")
		if got, want := describe(), " b@example.com false alice@example.com false c@example.com false"; got != want || !e.Verified("email") {
			t.Errorf("with another first value: got%s, verified: %v; want%s, true", got, e.Verified("email"), want)
		}
		e.PutFirst("email", "c@example.com")
		if first := e.FieldValues()["email"][0]; first.Unverified {
			t.Errorf("before saving, %s is unverified: true, want false", first.Text)
		}
		e, err = g.users.Save(ctx, e)
		must(t, err)
		for i, v := range e.FieldValues()["email"] {
			if v.Unverified != (i == 0) {
				t.Errorf("%s is unverified: %v, want true for the first value only", v.Text, v.Unverified)
			}
		}
		if all := (userdb.Entry{}).FieldValues(); len(all) > 0 {
			t.Errorf("the zero entry has %v, want no values", all)
		}
		if all := e.FieldValues(); len(all) != 1 {
			t.Errorf("got the values %v, want those of email", all)
		}
	})
}
