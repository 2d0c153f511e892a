package userdb_test

import (
	"net"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestTokensInOpenSlot spends tokens while the slot of their entry is being migrated: on the node where both lie or,
// while they are apart, not at all, and then they are good behind that. Entries without tokens know nothing of it.
func TestTokensInOpenSlot(t *testing.T) {
	ctx, c := t.Context(), redistest.StartCluster(t)
	db, err := userdb.Open(ctx, c.URL(), userdb.Options{})
	must(t, err)
	defer db.Close()
	users := typeOf(t, db, "user")
	_, err = users.Create(ctx, userdb.NewEntry{UID: "alice", Facets: schema.Texts("email", "alice@example.com"), Password: alicePassword})
	must(t, err)
	alice := hints.UID("alice")
	issue := func(purpose string) string {
		t.Helper()
		secret, _, err := users.IssueFor(ctx, alice, "email", userdb.Token{Purpose: purpose, Value: "Al"})
		must(t, err)
		return secret
	}
	login, reset, change := issue("login"), issue("reset"), issue("change:name")
	slot := c.OpenSlot("user/uid:alice")
	_, _, err = users.Redeem(ctx, "login", login)
	must(t, err)

	host, port, _ := net.SplitHostPort(slot.To.Addr())
	must(t, slot.From.Client().Do(ctx, "MIGRATE", host, port, "user/uid:alice", 0, 5000).Err())
	_, _, err = users.Peek(ctx, "reset", reset)
	must(t, err)
	_, err = users.ResetPassword(ctx, "reset", reset, resetPassword)
	wantErr(t, "apart", err, userdb.ErrUnavailable)
	_, err = users.Issue(ctx, alice, userdb.Token{Purpose: "reset"})
	wantErr(t, "apart", err, userdb.ErrUnavailable)
	must(t, slot.From.Client().Do(ctx, "MIGRATE", host, port, aliceTokens, 0, 5000).Err())
	_, err = users.ResetPassword(ctx, "reset", reset, resetPassword)
	must(t, err)
	_, _, err = users.Redeem(ctx, "change:name", change)
	wantErr(t, "behind a reset", err, userdb.ErrNotFound)
	_, err = users.Update(ctx, alice, func(e *userdb.Entry) error { // without tokens
		e.Put("email", schema.Text("new@example.com"))
		return nil
	})
	must(t, err)
	slot.Finish()
	login = issue("login")
	_, _, err = users.Redeem(ctx, "login", login)
	must(t, err)
	mended(t, db, never)
}
