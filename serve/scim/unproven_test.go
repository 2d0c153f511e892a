package scim

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestUnprovenUser checks that a directory does not take somebody who registered with an address,
// without verifying it, for the owner of the address: it cannot read the address, find the user
// with a filter, change the user, or put them into a group.
func TestUnprovenUser(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		d := newDirectory(t, s.Under(t, schema.User()), map[string]string{"Heads": "head"})
		users := d.Type(t, UserType)
		_, err := users.Create(d.Ctx, userdb.NewEntry{UID: "ann", Facets: schema.Texts("email", "ann@x.org", "name", "Ann"), SelfRegistered: true})
		if err != nil {
			t.Fatal(err)
		}
		heads := d.createGroup("Heads")
		const add = `{"Operations":[{"op":"add","path":"members","value":[{"value":"ann"}]}]}`
		requests := []struct {
			method, path, body string
			refused            error // while the address is not verified
		}{
			{"PATCH", "/Users/ann", `{"Operations":[{"op":"replace","value":{"externalId":"7"}}]}`, userdb.ErrUnproven},
			{"PUT", "/Users/ann", `{"userName":"ann@x.org"}`, userdb.ErrUnproven},
			{"PATCH", "/Groups/" + heads, add, errUnprovenMember},
		}
		filters := []string{`userName eq "ann@x.org"`, `emails.value eq "ann@x.org"`, `id eq "ann"`}
		check := func(when string, isVerified bool) {
			t.Helper()
			for _, filter := range filters {
				found := d.must("GET", "/Users?filter="+url.QueryEscape(filter), "")["totalResults"]
				if (found == 1.0) != isVerified {
					t.Errorf("%s: %s finds %v users, want the user to be found: %v", when, filter, found, isVerified)
				}
			}
			for _, path := range []string{"/Users/ann", "/Users"} {
				body, err := json.Marshal(d.must("GET", path, ""))
				if err != nil {
					t.Fatal(err)
				}
				if text := string(body); strings.Contains(text, "ann@x.org") != isVerified || !strings.Contains(text, `"id":"ann"`) || !strings.Contains(text, `"userName"`) {
					t.Errorf("%s: GET %s returns %s, want the id, and the address: %v", when, path, text, isVerified)
				}
			}
			d.wantError(http.StatusConflict, uniqueness, "POST", "/Users", `{"userName":"ann@x.org"}`)
			for _, r := range requests {
				want := r.refused
				if isVerified {
					want = nil
				}
				if _, err := d.send(r.method, r.path, r.body); !errors.Is(err, want) {
					t.Errorf("%s: %s %s %s: got %v, want %v", when, r.method, r.path, r.body, err, want)
				}
			}
			if has, err := users.Tags(hints.UID("ann")).Has(d.Ctx, "head"); err != nil || has != isVerified {
				t.Errorf("%s: the user has the tag of the group: %v, %v; want %v", when, has, err, isVerified)
			}
		}
		check("before", false)
		secret, _, err := users.IssueFor(d.Ctx, hints.UID("ann"), "email", userdb.Token{Purpose: "verify"})
		if err == nil {
			_, _, err = users.Redeem(d.Ctx, "verify", secret)
		}
		if err != nil {
			t.Fatal(err)
		}
		check("after", true)
	})
}
