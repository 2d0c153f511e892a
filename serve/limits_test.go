package serve_test

import (
	"fmt"
	"net/http"
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

// TestNoOtherPath: a path with an empty part is none, and leads to no other one: who leaves a UID empty would end the entry of somebody.
func TestNoOtherPath(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, house()), serve.Options{})
		c.create(`{"uid":"sessions"}`)
		for _, path := range []string{"/v1/types/user/entries//sessions", "/v1/types/user/entries/./sessions", "/v1/types/user/entries/x/../sessions", "//v1/types/user/entries/sessions"} {
			c.do("404 not_found", "DELETE", path, "")
			req, err := http.NewRequestWithContext(c.Ctx, "DELETE", c.url+path, nil)
			must(t, err)
			req.Header.Set("Authorization", "Bearer "+c.key)
			res, err := http.DefaultClient.Do(req)
			must(t, err)
			must(t, res.Body.Close())
		}
		c.do("200", "GET", "/v1/types/user/entries/sessions", "")
	})
}
