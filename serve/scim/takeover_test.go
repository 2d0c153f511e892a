package scim

import (
	"errors"
	"fmt"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestTakeOver checks that somebody who registered a user with an address that they had not
// verified loses access before a directory changes the user or gives it a tag.
func TestTakeOver(t *testing.T) {
	const address, replace = "ann@x.org", `{"Operations":[{"op":"replace","value":%s}]}`
	patch := func(value string) func(d directory) {
		return func(d directory) { d.must("PATCH", "/Users/ann", fmt.Sprintf(replace, value)) }
	}
	cases := []struct {
		name    string
		address string
		act     func(d directory)
		keeps   bool // the visitor keeps access
	}{
		{"PATCH", address, patch(`{"externalId":"7"}`), false},
		{"PUT", address, func(d directory) { d.must("PUT", "/Users/ann", `{"userName":"ann@x.org","externalId":"7"}`) }, false},
		{"a group", address, func(d directory) { d.createGroup("Heads", "ann") }, false},
		{"enabled again", address, func(d directory) {
			if err := d.Type(d.t, UserType).Disable(d.Ctx, hints.UID("ann")); err != nil {
				d.t.Fatal(err)
			}
			patch(`{"active":true}`)(d)
		}, false},
		{"another address", "other@x.org", patch(`{"userName":"ann@x.org"}`), false},
		{"read", address, func(d directory) { d.must("GET", "/Users/ann", "") }, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
				d := newDirectory(t, s.Under(t, schema.User()), map[string]string{"Heads": "head"})
				users := d.Type(t, UserType)
				e, err := users.Create(d.Ctx, userdb.NewEntry{UID: "ann", Facets: schema.Texts("email", c.address), SelfRegistered: true})
				if err != nil {
					t.Fatal(err)
				}
				_, session, err := users.StartSession(d.Ctx, e, userdb.SessionOptions{})
				if err != nil {
					t.Fatal(err)
				}
				token, err := users.Issue(d.Ctx, hints.UID("ann"), userdb.Token{Purpose: "reset"})
				if err != nil {
					t.Fatal(err)
				}
				c.act(d)
				_, _, sessionErr := users.Session(d.Ctx, session)
				_, _, tokenErr := users.Peek(d.Ctx, "reset", token)
				if errors.Is(sessionErr, userdb.ErrNotFound) == c.keeps || errors.Is(tokenErr, userdb.ErrNotFound) == c.keeps {
					t.Errorf("the session: %v, the token: %v; want that the visitor keeps access: %v", sessionErr, tokenErr, c.keeps)
				}
				if e, err = users.Find(d.Ctx, hints.UID("ann")); err != nil || e.Unproven() != c.keeps {
					t.Errorf("the user is unproven: %v, error %v", e.Unproven(), err)
				}
			})
		})
	}
}
