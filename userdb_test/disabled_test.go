package userdb_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestSetDisabled disables an entry in the change that saves a facet, and enables it in a later
// save. Both must have the effects of Disable and Enable.
func TestSetDisabled(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		secret, err := g.users.Issue(ctx, uid("alice"), userdb.Token{Purpose: "login"})
		must(t, err)
		e, err := g.users.Find(ctx, uid("alice"))
		must(t, err)
		_, session, err := g.users.StartSession(ctx, e, userdb.SessionOptions{})
		must(t, err)

		e, err = g.users.Update(ctx, uid("alice"), func(e *userdb.Entry) error {
			e.SetDisabled(true)
			e.Put("email", schema.Text("away@example.com"))
			return nil
		})
		must(t, err)
		since := g.storedField("alice", "~disabled")
		if !e.Disabled() || since == "" || e.Text("email") != "away@example.com" {
			t.Errorf("disabled: %v, since %q: %v; want disabled, with the new address", e.Disabled(), since, e)
		}
		wantErr(t, "login", g.logIn("alice", alicePassword, ""), userdb.ErrLogin)
		if _, _, err := g.users.Session(ctx, session); err == nil {
			t.Error("a session has not ended")
		}
		if n := g.raw.Exists(ctx, aliceSessions).Val(); n != 0 {
			t.Error("the records of ended sessions remain")
		}
		e.SetDisabled(true)
		e.Put("email", schema.Text("home@example.com"))
		_, err = g.users.Save(ctx, e)
		must(t, err)
		if got := g.storedField("alice", "~disabled"); got != since {
			t.Errorf("after another save the entry is disabled since %q, want %q as before", got, since)
		}
		e, err = g.users.Find(ctx, uid("alice"))
		must(t, err)
		e.SetDisabled(false)
		if e.Disabled() {
			t.Error("the entry is disabled after SetDisabled(false)")
		}
		e, err = g.users.Save(ctx, e) // nothing else changed
		must(t, err)
		if e.Disabled() || g.storedField("alice", "~disabled") != "" {
			t.Error("the saved entry is still disabled")
		}
		must(t, g.logIn("alice", alicePassword, ""))
		if _, _, err := g.users.Redeem(ctx, "login", secret); !errors.Is(err, userdb.ErrNotFound) {
			t.Errorf("redeeming a token issued before the disable: got %v, want ErrNotFound", err)
		}
	})
}

// TestSetDisabledRefused checks that a change that is refused does not disable the entry.
func TestSetDisabledRefused(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.add("bare", "")
		_, err := g.users.Update(t.Context(), uid("bare"), func(e *userdb.Entry) error {
			e.SetDisabled(true)
			e.Put("name", schema.Text("alice"))
			return nil
		})
		wantErr(t, "taking a name that another entry has", err, userdb.ErrDuplicate)
		if e, err := g.users.Find(t.Context(), uid("bare")); err != nil || e.Disabled() {
			t.Errorf("disabled: %v, %v; want false", e.Disabled(), err)
		}
	})
}

// TestCreateDisabled creates an entry that cannot log in. Its history must have an event for the
// create and one for the disable.
func TestCreateDisabled(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := typeOf(t, s.open(userdb.Options{History: true}), "user")
		e, err := users.Create(t.Context(), userdb.NewEntry{
			UID: "ann", Facets: schema.Texts("name", "Ann"), Password: "battery staple 9", Disabled: true,
		})
		must(t, err)
		if !e.Disabled() {
			t.Error("the new entry is not disabled")
		}
		_, err = users.Login(t.Context(), "ann", "battery staple 9", userdb.Attempt{})
		wantErr(t, "login", err, userdb.ErrLogin)
		must(t, errOf(users.Update(t.Context(), uid("ann"), func(e *userdb.Entry) error { e.SetDisabled(false); return nil })))
		must(t, errOf(users.Login(t.Context(), "ann", "battery staple 9", userdb.Attempt{})))
		must(t, errOf(users.Update(t.Context(), uid("ann"), func(e *userdb.Entry) error { e.SetDisabled(true); return nil })))
		history, err := users.History(t.Context(), uid("ann"))
		must(t, err)
		var kinds []string
		for _, e := range history {
			kinds = append(kinds, string(e.Kind))
		}
		slices.Reverse(kinds)
		if got := strings.Join(kinds, " "); got != "create disable enable disable" {
			t.Errorf("the history is %q, want create disable enable disable", got)
		}
	})
}
