package admin_test

import (
	"errors"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// TestLinksOfOperator checks that the links of an operator are listed by account while they may be
// valid, that they can be ended, and that an operator who is disabled meanwhile makes none.
func TestLinksOfOperator(t *testing.T) {
	eachStore(t, func(t *testing.T, db *userdb.DB) {
		ctx := t.Context()
		_, err := admin.AddOperator(ctx, db, "Olga", goodPassword)
		must(t, err)
		operators, err := admin.Operators(db)
		must(t, err)
		ns, err := recordkey.ParseNamespace("shop")
		must(t, err)
		shop, err := db.In(ns)
		must(t, err)
		root, err := admin.OpenLinks(db)
		must(t, err)
		inShop, err := admin.OpenLinks(shop)
		must(t, err)
		users, err := shop.Type("user")
		must(t, err)
		e, err := users.Create(ctx, userdb.NewEntry{UID: "u1"})
		must(t, err)
		issue := func(by string, life time.Duration, meanwhile func()) (secret string, err error) {
			err = inShop.Issue(ctx, by, e.Key(), life, func() (err error) {
				secret, err = users.Issue(ctx, hints.UID("u1"), userdb.Token{Purpose: "reset"})
				meanwhile()
				return err
			})
			return secret, err
		}
		nothing := func() {}
		first, err := issue("Olga", time.Hour, nothing)
		must(t, err)
		_, err = issue("Paul", time.Hour, nothing)
		must(t, err)
		second, err := issue("Olga", 24*time.Hour, nothing)
		must(t, err)
		_, err = issue("Olga", -2*time.Hour, nothing) // it is no longer valid
		must(t, err)

		made, err := root.MadeBy(ctx, "Olga")
		must(t, err)
		if len(made) != 1 || made[0].Namespace != "shop" || made[0].Type != "user" || made[0].UID != "u1" || time.Until(made[0].Expires) < 24*time.Hour {
			t.Fatalf("got the links %+v, want one for u1 that is valid for a day", made)
		}
		wantValid := func(secret string, want bool) {
			t.Helper()
			_, _, err := users.Peek(ctx, "reset", secret)
			if want && err != nil || !want && !errors.Is(err, userdb.ErrNotFound) {
				t.Errorf("a link: got %v, want it to be valid: %v", err, want)
			}
		}
		wantValid(first, true)
		must(t, root.End(ctx, made[0]))
		wantValid(first, false)
		wantValid(second, false)
		must(t, root.End(ctx, made[0]))

		secret, err := issue("Olga", time.Hour, func() { must(t, operators.Disable(ctx, hints.Any("olga"))) })
		if !errors.Is(err, admin.ErrOperatorDisabled) {
			t.Errorf("disabled meanwhile: got %v, want ErrOperatorDisabled", err)
		}
		wantValid(secret, false)
		must(t, users.Delete(ctx, hints.UID("u1")))
		must(t, root.End(ctx, made[0]))
	})
}
