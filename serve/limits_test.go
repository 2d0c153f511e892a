package serve_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/serve"
)

// TestFacetsTwice: how many facets a request has is judged by what is read of it, also where the member stands there twice.
func TestFacetsTwice(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		sc := house()
		user := sc.Types["user"]
		user.Open = true
		sc.Types["user"] = user
		c := newClient(t, s.Under(t, sc), serve.Options{})
		path := c.create(alice)
		var many strings.Builder
		for i := range 1001 {
			fmt.Fprintf(&many, `,"f%d":"x"`, i)
		}
		body := `{"facets":{` + many.String()[1:] + `},"facets":{}}`
		c.do("400 usage", "PATCH", path, body)
		c.do("400 usage", "POST", "/v1/types/user/entries", body)
	})
}
