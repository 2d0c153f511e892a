package serve_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/admin"
)

// TestHeld finds and releases held values and frees a retired UID. A refusal says why the value is
// taken, but only to a key that may look that up. A delete with release holds no values, but still
// retires the UID.
func TestHeld(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		sc := testSchema()
		user := sc.Types["user"]
		name := user.Fields["name"]
		name.Hold = schema.Period(time.Hour)
		user.Fields["name"], user.Retire = name, true
		sc.Types["user"] = user
		c := newClient(t, s.Under(t, sc), serve.Options{})
		const entries, held, retired = "/v1/types/user/entries", "/v1/types/user/held/", "/v1/types/user/retired/forget"
		path := c.create(`{"uid":"u1","facets":{"name":"Ada"}}`)
		c.do("404 not_found", "POST", held+"lookup", `{"field":"name","value":"Ada"}`)
		c.do("404 not_found", "POST", held+"release", `{"field":"name","value":"Ada"}`)
		c.do("404 not_found", "POST", retired, `{"uid":"u1"}`)
		c.do("204", "DELETE", path, "")
		for body, want := range map[string]string{
			`{"facets":{"name":"ADA"}}`:            "held: another entry gave it up and holds it",
			`{"uid":"u1","facets":{"name":"Bob"}}`: "retired: it belonged to an entry that was deleted",
		} {
			r := c.do("409 duplicate", "POST", entries, body)
			c.equal(body, r.str("rule")+" "+fmt.Sprint(r.value("errors.0.reason"), ": ", r.value("errors.0.detail")), "taken "+want)
		}
		backend := c.withKey(c.makeKey(admin.Key{Name: "backend", Scopes: []string{admin.ScopeLogin}}))
		c.create(`{"uid":"u2","facets":{"name":"Bob"}}`)
		secret := backend.do("200", "POST", "/v1/types/user/tokens", `{"purpose":"change:name","uid":"u2","value":"ada"}`).str("secret")
		r := backend.do("409 duplicate", "POST", "/v1/tokens/redeem", fmt.Sprintf(`{"purpose":"change:name","secret":%q}`, secret))
		if r.str("rule") != "taken" || strings.Contains(r.text, "held") || strings.Contains(r.text, "gave") {
			t.Errorf("a key that only logs in: %s, want only that the value is taken", r.text)
		}
		r = c.do("200", "POST", held+"lookup", `{"field":"name","value":"ADA"}`)
		c.equal("held", r.str("uid")+" "+r.str("field")+" "+r.str("value"), "u1 name ada")
		until, err := time.Parse(time.RFC3339Nano, r.str("until"))
		if err != nil || time.Until(until) < 50*time.Minute {
			t.Errorf("until: got %q (%v), want a time in an hour", r.str("until"), err)
		}
		c.do("404 not_found", "POST", held+"lookup", `{"field":"no such field","value":"Ada"}`)
		c.do("204", "POST", held+"release", `{"field":"name","value":"Ada"}`)
		c.do("404 not_found", "POST", held+"release", `{"field":"name","value":"Ada"}`)
		c.equal("retired", fmt.Sprint(c.do("200", "GET", "/v1/types/user/retired", "").value("retired.0.uid")), "u1")
		c.do("400 usage", "GET", "/v1/types/user/retired?after=x", "")
		c.do("204", "POST", retired, `{"uid":"u1"}`)
		if r := c.do("200", "GET", "/v1/types/user/retired", ""); !strings.Contains(r.text, `"retired":[],"next":null`) {
			t.Errorf("after it was forgotten, the retired UIDs are %s, want none", r.text)
		}
		c.do("201", "POST", entries, `{"uid":"u1","facets":{"name":"Ada"}}`)
		path = c.create(`{"uid":"u3","facets":{"name":"Cy"}}`)
		c.do("200", "PATCH", path, `{"facets":{"name":"Di"}}`)
		c.do("409 duplicate", "POST", entries, `{"facets":{"name":"Cy"}}`)
		c.do("400 usage", "DELETE", path+"?release=perhaps", "")
		c.do("204", "DELETE", path+"?release=true", "")
		c.do("201", "POST", entries, `{"facets":{"name":"Cy"}}`)
		c.do("201", "POST", entries, `{"facets":{"name":"Di"}}`)
		c.do("409 duplicate", "POST", entries, `{"uid":"u3","facets":{"name":"Ed"}}`)
		path = c.create(`{"uid":"u4","facets":{"name":"Flo"}}`)
		c.do("204", "DELETE", path+"?release=false", "")
		c.do("409 duplicate", "POST", entries, `{"facets":{"name":"Flo"}}`)
	})
}

// TestHeldInvitation invites an address that an account has given up and holds. The response says
// that somebody has the address, as for an address in use, and that no mail may be sent.
func TestHeldInvitation(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		sc := testSchema()
		user := sc.Types["user"]
		email := user.Fields["email"]
		email.Hold = schema.Period(time.Hour)
		user.Fields["email"] = email
		sc.Types["user"] = user
		c := newClient(t, s.Under(t, sc), serve.Options{})
		path := c.create(`{"uid":"u1","facets":{"email":"old@example.com"}}`)
		secret := c.do("200", "POST", "/v1/types/user/tokens", `{"purpose":"verify","uid":"u1","field":"email"}`).str("secret")
		c.do("200", "POST", "/v1/tokens/redeem", fmt.Sprintf(`{"purpose":"verify","secret":%q}`, secret))
		c.do("200", "PATCH", path, `{"facets":{"email":"new@example.com"}}`)
		backend := c.withKey(c.makeKey(admin.Key{Name: "backend", Scopes: []string{admin.ScopeLogin}}))
		for address, want := range map[string]string{
			"old@example.com":  "known true, held true, secret false",
			"new@example.com":  "known true, held <nil>, secret false",
			"free@example.com": "known false, held <nil>, secret true",
		} {
			r := backend.do("200", "POST", "/v1/types/user/invitations", fmt.Sprintf(`{"field":"email","address":%q}`, address))
			c.equal(address, fmt.Sprintf("known %v, held %v, secret %v", r.value("known"), r.value("held"), r.value("secret") != nil), want)
		}
	})
}
