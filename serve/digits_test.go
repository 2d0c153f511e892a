package serve_test

import (
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve"
)

// TestDigits checks that whole numbers keep all their digits over HTTP, whatever the codec, in new
// entries, in changed ones and inside objects. If the type has the fold of the original UserDB, a
// number that UserDB would change is refused.
func TestDigits(t *testing.T) {
	const large, larger = "175928847299117063", "12345678901234567890"
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		sc := testdb.DefaultSchema()
		user := sc.Types["user"]
		user.Fields["n"], user.Fields["j"] = schema.Field{Codec: schema.CodecNumber}, schema.Field{Codec: schema.CodecJSON}
		sc.Types["user"] = user
		user.Fold = schema.FoldExact
		sc.Types["original"] = user
		c := newClient(t, s.Under(t, sc), serve.Options{})

		facets := func(number string) string {
			return `{"facets":{"job":` + number + `,"n":` + number + `,"j":{"b":` + number + `}}}`
		}
		check := func(r reply, number string) {
			t.Helper()
			for _, want := range []string{`"job":"` + number + `"`, `"n":` + number, `"j":{"b":` + number + `}`} {
				if !strings.Contains(r.text, want) {
					t.Errorf("got %s, want it to have %s", r.text, want)
				}
			}
		}
		r := c.do("201", "POST", "/v1/types/user/entries", facets(large))
		path := r.header.Get("Location")
		check(r, large)
		check(c.do("200", "GET", path, ""), large)
		check(c.do("200", "PATCH", path, facets(larger)), larger)
		check(c.do("200", "GET", path, ""), larger)
		c.equal("an object in text", c.do("200", "PATCH", path, `{"facets":{"job":{"b":`+large+`}}}`).str("facets.job"), `{"b":`+large+`}`)
		c.equal("a fraction", c.do("200", "PATCH", path, `{"facets":{"job":1.0}}`).str("facets.job"), "1")

		c.do("422 invalid", "POST", "/v1/types/original/entries", facets(large))
		path = c.do("201", "POST", "/v1/types/original/entries", facets("9007199254740992")).header.Get("Location")
		r = c.do("422 invalid", "PATCH", path, facets(large))
		c.equal("refused", strings.Join(r.rules(), ", "), "j codec, job codec, n codec")
	})
}
