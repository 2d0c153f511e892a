package serve_test

import (
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve"
)

// TestHeld finds and releases held values and frees a retired UID. A refused create says only that
// the value is taken.
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
		for _, body := range []string{`{"facets":{"name":"ADA"}}`, `{"uid":"u1","facets":{"name":"Bob"}}`} {
			r := c.do("409 duplicate", "POST", entries, body)
			if r.str("rule") != "taken" || strings.Contains(r.text, "held") {
				t.Errorf("%s: %s, want only that the value is taken", body, r.text)
			}
		}
		r := c.do("200", "POST", held+"lookup", `{"field":"name","value":"ADA"}`)
		c.equal("held", r.str("uid")+" "+r.str("field")+" "+r.str("value"), "u1 name ada")
		until, err := time.Parse(time.RFC3339Nano, r.str("until"))
		if err != nil || time.Until(until) < 50*time.Minute {
			t.Errorf("until is %q (%v)", r.str("until"), err)
		}
		c.do("404 not_found", "POST", held+"lookup", `{"field":"no such field","value":"Ada"}`)
		c.do("204", "POST", held+"release", `{"field":"name","value":"Ada"}`)
		c.do("404 not_found", "POST", held+"release", `{"field":"name","value":"Ada"}`)
		c.do("204", "POST", retired, `{"uid":"u1"}`)
		c.do("201", "POST", entries, `{"uid":"u1","facets":{"name":"Ada"}}`)
	})
}
