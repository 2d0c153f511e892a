package userdb_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

const resetPassword = "brand new horse"

// TestResetPassword checks that a reset spends the token and sets the password, and that a refused
// reset leaves the token valid.
func TestResetPassword(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		g.failLogins(freeFailures, "alice", "")
		first, secret := g.issue(userdb.Token{Purpose: "login"}), g.issue(userdb.Token{Purpose: "reset", Value: "v"})
		before, err := g.users.Find(ctx, uid("alice"))
		must(t, err)
		for range 2 {
			e, tk, err := g.users.Peek(ctx, "reset", secret)
			if err != nil || e.UID() != "alice" || e.Rev() != before.Rev() || tk != (userdb.Token{Purpose: "reset", Value: "v"}) {
				t.Errorf("Peek returned %v, %+v, %v; want alice, unchanged, and the token", e, tk, err)
			}
		}
		_, _, err = g.users.Peek(ctx, "login", secret)
		wantErr(t, "peek for another purpose", err, userdb.ErrNotFound)
		var refused *password.PolicyError
		if _, err := g.users.ResetPassword(ctx, "reset", secret, "short"); !errors.As(err, &refused) {
			t.Errorf("a short password: got %v, want a PolicyError", err)
		}
		_, err = g.users.ResetPassword(ctx, "login", secret, resetPassword)
		wantErr(t, "for another purpose", err, userdb.ErrNotFound)
		_, err = g.users.ResetPassword(ctx, "change:email", secret, resetPassword)
		wantField(t, "for a change of address", err, userdb.ErrInvalid, "purpose")
		e, err := g.users.ResetPassword(ctx, "reset", secret, resetPassword)
		if err != nil || e.UID() != "alice" || !e.PasswordChanged().After(before.PasswordChanged()) || e.Rev() == before.Rev() {
			t.Errorf("ResetPassword returned %v, %v; want alice at a new revision, with a new password", e, err)
		}
		must(t, g.logIn("alice", resetPassword, ""))
		_, err = g.users.ResetPassword(ctx, "reset", secret, "another new horse")
		wantErr(t, "a second time", err, userdb.ErrNotFound)
		g.wantVoid("a token of another purpose", "login", first)
		if left := g.keysUnder("~/token/"); len(left) > 0 {
			t.Errorf("records of tokens are still there: %q", left)
		}
	})
}

// TestParallelResets makes many resets at once. Exactly one must set its password.
func TestParallelResets(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		secrets := []string{g.issue(userdb.Token{Purpose: "reset"}), g.issue(userdb.Token{Purpose: "reset"})}
		errs := make([]error, 8)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				_, errs[i] = g.users.ResetPassword(t.Context(), "reset", secrets[i%2], fmt.Sprint(resetPassword, i))
			})
		}
		wg.Wait()
		won := slices.Index(errs, nil)
		for i, err := range errs {
			if i != won && !errors.Is(err, userdb.ErrNotFound) {
				t.Errorf("call %d: got error %v, want ErrNotFound, since call %d succeeded", i, err, won)
			}
		}
		must(t, g.logIn("alice", fmt.Sprint(resetPassword, won), ""))
	})
}

// TestIssueFor checks that IssueFor returns the stored address, and that the token is void after
// the address changes.
func TestIssueFor(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		reset := userdb.Token{Purpose: "reset"}
		secret, address, err := g.users.IssueFor(ctx, hints.Field("email", "ALICE@Example.COM"), "email", reset)
		if err != nil || address != "alice@example.com" {
			t.Errorf("IssueFor returned address %q, %v; want alice@example.com", address, err)
		}
		other := g.issue(userdb.Token{Purpose: "login"})
		_, tk, err := g.users.Peek(ctx, "reset", secret)
		if err != nil || tk.Field != "email" {
			t.Errorf("Peek returned token %+v, %v; want field email", tk, err)
		}
		put := func(field, value string) {
			_, err := g.users.Update(ctx, uid("alice"), putText(field, value))
			must(t, err)
		}
		put("name", "Alicia")
		_, _, err = g.users.Peek(ctx, "reset", secret)
		must(t, err)
		put("email", "new@example.com")
		put("email", "alice@example.com")
		g.wantVoid("an address that was changed and changed back", "reset", secret)
		g.wantRedeem("login", other, "")

		_, _, err = g.users.IssueFor(ctx, uid("alice"), "job", reset)
		wantField(t, "without the facet", err, userdb.ErrInvalid, "job")
		for _, field := range []string{"", "password", "~isa"} {
			_, _, err = g.users.IssueFor(ctx, uid("alice"), field, reset)
			wantField(t, field, err, userdb.ErrInvalid, "field")
		}
		_, _, err = g.users.IssueFor(ctx, uid("alice"), "email", userdb.Token{Purpose: "reset", Field: "name"})
		wantField(t, "another field", err, userdb.ErrInvalid, "field")
		_, _, err = g.users.IssueFor(ctx, hints.Field("email", "nobody@example.com"), "email", reset)
		wantErr(t, "an unknown address", err, userdb.ErrNotFound)
	})
}

// TestOlderChange checks that a token for a change of address is void if the address changed after
// it was issued, or if a newer token was spent.
func TestOlderChange(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		change := func(address string) string {
			return g.issue(userdb.Token{Purpose: "change:email", Value: address})
		}
		older, newer, name := change("older@example.com"), change("newer@example.com"), g.issue(userdb.Token{Purpose: "change:name", Value: "Al"})
		g.wantRedeem("change:email", newer, "newer@example.com")
		g.wantVoid("a token older than the one that was redeemed", "change:email", older)
		older = change("older@example.com")
		_, err := g.users.Update(t.Context(), uid("alice"), putText("email", "by.hand@example.com"))
		must(t, err)
		g.wantVoid("a token older than the change", "change:email", older)
		g.wantRedeem("change:name", name, "Al")
		if e, err := g.users.Find(t.Context(), uid("alice")); err != nil || e.Text("email") != "by.hand@example.com" {
			t.Errorf("got entry %v, %v; want the address by.hand@example.com", e, err)
		}
	})
}

// TestTokensOfDisabled checks that no token is issued for a disabled entry, and that Enable does
// not make older tokens valid again.
func TestTokensOfDisabled(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		before := g.issue(userdb.Token{Purpose: "reset"})
		must(t, g.users.Disable(ctx, uid("alice")))
		for _, tk := range []userdb.Token{{Purpose: "sign in"}, {Purpose: "change:email", Value: "new@example.com"}} {
			secret, err := g.users.Issue(ctx, uid("alice"), tk)
			if !errors.Is(err, userdb.ErrNotFound) || secret != "" {
				t.Errorf("Issue for a disabled entry returned %q, %v; want ErrNotFound", secret, err)
			}
		}
		must(t, g.users.Enable(ctx, uid("alice")))
		g.wantVoid("a token from before the disable", "reset", before)
	})
}

// TestTokenLimit checks that an entry has at most 16 valid tokens, and that a new one replaces the
// oldest.
func TestTokenLimit(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.issue(userdb.Token{Purpose: "short", Lifetime: time.Second})
		g.advance(time.Second)
		var secrets []string
		for i := range 19 {
			secrets = append(secrets, g.issue(userdb.Token{Purpose: fmt.Sprint("p", i)}))
		}
		if n := g.raw.HLen(t.Context(), aliceTokens).Val(); n != 16 {
			t.Errorf("%d tokens, want 16", n)
		}
		for i, secret := range secrets {
			if i < 3 {
				g.wantVoid("the oldest", fmt.Sprint("p", i), secret)
			} else {
				g.wantRedeem(fmt.Sprint("p", i), secret, "")
			}
		}
	})
}

// TestIssueKeepsRevision checks that an entry that was read before a token was issued can be saved
// afterward.
func TestIssueKeepsRevision(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		e, err := g.users.Find(t.Context(), uid("alice"))
		must(t, err)
		secret := g.issue(userdb.Token{Purpose: "reset"})
		again, err := g.users.Find(t.Context(), uid("alice"))
		if err != nil || again.Rev() != e.Rev() {
			t.Errorf("got revision %q, %v; want %q, as before the token was issued", again.Rev(), err, e.Rev())
		}
		e.Put("job", schema.Text("cook"))
		_, err = g.users.Save(t.Context(), e)
		must(t, err)
		g.wantRedeem("reset", secret, "")
	})
}
