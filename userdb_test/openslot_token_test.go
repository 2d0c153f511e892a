package userdb_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// runInOpenSlot calls during with an entry ann whose slot is being migrated. It then ends the
// migration and calls after with the secret that during returned. It does so with and without a
// history.
func runInOpenSlot(
	t *testing.T, during func(ctx context.Context, t *testing.T, users *userdb.Type) string,
	after func(ctx context.Context, t *testing.T, users *userdb.Type, secret string),
) {
	t.Helper()
	for _, history := range []bool{false, true} {
		t.Run(fmt.Sprintf("history %v", history), func(t *testing.T) {
			t.Parallel()
			ctx, c := t.Context(), redistest.StartCluster(t)
			db, err := userdb.Open(ctx, c.URL(), userdb.Options{History: history})
			must(t, err)
			defer db.Close()
			users := typeOf(t, db, "user")
			add(t, users, "first", "name", "first")
			slot := c.OpenSlot("user/uid:ann")
			_, err = users.Create(ctx, userdb.NewEntry{
				UID: "ann", Facets: schema.Texts("name", "ann", "email", "ann@example.com"), Password: clearPassword,
			})
			must(t, err)
			secret := during(ctx, t, users)
			if n := c.Client().Exists(ctx, "~/token/{user/uid:ann}").Val(); n != 0 {
				t.Error("there is a record of tokens: the slot is not open")
			}
			slot.Finish()
			after(ctx, t, users, secret)
			wantRepairable(t, db, noExcuse)
		})
	}
}

// issueToAnn issues a token for ann and returns its secret.
func issueToAnn(t *testing.T, users *userdb.Type, purpose, field string) string {
	t.Helper()
	secret, err := users.Issue(t.Context(), uid("ann"), userdb.Token{Purpose: purpose, Field: field})
	must(t, err)
	return secret
}

// TestTokensOfMovedEntry issues, peeks at, spends and ends tokens while the slot of their entry is
// being migrated. The tokens that are left must be valid afterward.
func TestTokensOfMovedEntry(t *testing.T) {
	runInOpenSlot(t, func(ctx context.Context, t *testing.T, users *userdb.Type) string {
		spent, second := issueToAnn(t, users, "reset", ""), issueToAnn(t, users, "reset", "")
		kept, bound := issueToAnn(t, users, "login", ""), issueToAnn(t, users, "verify", "email")
		e, _, err := users.Peek(ctx, "reset", second)
		if must(t, err); e.UID() != "ann" {
			t.Errorf("Peek returned %v, want ann", e)
		}
		_, _, err = users.Redeem(ctx, "login", spent)
		wantErr(t, "another purpose", err, userdb.ErrNotFound)
		_, _, err = users.Redeem(ctx, "reset", spent)
		must(t, err)
		for name, secret := range map[string]string{"a spent token": spent, "another token for the purpose": second} {
			_, _, err = users.Redeem(ctx, "reset", secret)
			wantErr(t, name, err, userdb.ErrNotFound)
		}
		must(t, errOf(users.Update(ctx, uid("ann"), putText("job", "cook"))))
		s, err := users.LoginStatus(ctx, uid("ann"))
		if must(t, err); len(s.Tokens) != 2 {
			t.Errorf("got valid tokens %v, want two", s.Tokens)
		}
		must(t, errOf(users.Update(ctx, uid("ann"), putText("email", "a@example.com"))))
		_, _, err = users.Peek(ctx, "verify", bound)
		wantErr(t, "bound to a facet that was changed", err, userdb.ErrNotFound)
		return kept
	}, func(ctx context.Context, t *testing.T, users *userdb.Type, secret string) {
		fresh := issueToAnn(t, users, "reset", "")
		_, _, err := users.Redeem(ctx, "login", secret)
		must(t, err)
		_, _, err = users.Redeem(ctx, "reset", fresh)
		must(t, err)
	})
}

// TestDisableOfMovedEntry checks that methods that end all tokens also end those that are kept in
// the entry during a migration.
func TestDisableOfMovedEntry(t *testing.T) {
	runInOpenSlot(t, func(ctx context.Context, t *testing.T, users *userdb.Type) string {
		secret := issueToAnn(t, users, "reset", "")
		must(t, users.Disable(ctx, uid("ann")))
		must(t, users.Enable(ctx, uid("ann")))
		_, _, err := users.Redeem(ctx, "reset", secret)
		wantErr(t, "a token from before the disable", err, userdb.ErrNotFound)
		issueToAnn(t, users, "reset", "")
		must(t, users.Delete(ctx, uid("ann")))
		return secret
	}, func(ctx context.Context, t *testing.T, users *userdb.Type, secret string) {
		add(t, users, "ann")
		issueToAnn(t, users, "login", "")
		_, _, err := users.Redeem(ctx, "reset", secret)
		wantErr(t, "a token of an earlier entry", err, userdb.ErrNotFound)
	})
}

// TestExpiredTokensOfMovedEntry changes an entry in a migrated slot after all its tokens have
// expired, so that the record of its tokens is missing. New tokens must be valid.
func TestExpiredTokensOfMovedEntry(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), redistest.StartCluster(t)
	db, err := userdb.Open(ctx, c.URL(), userdb.Options{})
	must(t, err)
	defer db.Close()
	users := typeOf(t, db, "user")
	add(t, users, "ann", "name", "ann")
	issueToAnn(t, users, "reset", "")
	must(t, c.Client().Unlink(ctx, "~/token/{user/uid:ann}").Err())
	slot := c.OpenSlot("user/uid:ann")
	secret := issueToAnn(t, users, "login", "")
	must(t, errOf(users.Update(ctx, uid("ann"), putText("job", "cook"))))
	if mark := c.Client().HGet(ctx, "user/uid:ann", "~tokens").Val(); !strings.Contains(mark, "\n") {
		t.Errorf("got ~tokens %q, want a token after a newline in it", mark)
	}
	_, _, err = users.Redeem(ctx, "login", secret)
	must(t, err)
	must(t, errOf(users.SetPassword(ctx, uid("ann"), clearPassword)))
	slot.Finish()
	secret = issueToAnn(t, users, "login", "")
	_, _, err = users.Redeem(ctx, "login", secret)
	must(t, err)
	wantRepairable(t, db, noExcuse)
}
