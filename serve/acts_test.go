package serve_test

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
)

// TestTransferEvents checks that imports and exports are events with the name of the API key and
// the address that it was used from. The entries that an import creates come from no visitor, so
// their events have no address.
func TestTransferEvents(t *testing.T) {
	eachService(t, func(t *testing.T, c *client) {
		const line = `{"facets":{"name":"u1","email":"u1@example.com"}}`
		c.do("200", "POST", "/v1/types/user/import?dry_run=true", line)
		c.do("400 usage", "POST", "/v1/types/user/import?on_duplicate=maybe", line)
		c.do("200", "POST", "/v1/types/user/import", line)
		path := c.create(alice)
		uid := path[strings.LastIndex(path, "/")+1:]
		c.do("200", "GET", "/v1/types/user/export", "")
		c.do("200", "GET", path+"/export", "")
		c.do("204", "DELETE", path+"/waits", "")
		list := func(query string) (all []string) {
			t.Helper()
			for _, e := range c.do("200", "GET", "/v1/events?"+query, "").value("events").([]any) {
				m := e.(map[string]any)
				all = append(all, fmt.Sprint(m["kind"], " ", m["who"], " ", m["purpose"], " ", m["uid"], " ", m["origin"]))
			}
			return all
		}
		c.equal("events", strings.Join(list("kind=import&kind=export&kind=repair&kind=waits"), "\n"), strings.Join([]string{
			"import key:all user <nil> 127.0.0.1",
			"export key:all user <nil> 127.0.0.1",
			"export key:all <nil> " + uid + " 127.0.0.1",
			"waits key:all <nil> " + uid + " 127.0.0.1",
		}, "\n"))
		for _, made := range list("kind=create") {
			if !strings.HasSuffix(made, "<nil>") {
				t.Errorf("got the event %s, want one without an address", made)
			}
		}
	})
}

// TestLongTexts checks that a request with a text too long for any identifier allocates little more
// memory if the text has a canonical form that is expensive to compute.
func TestLongTexts(t *testing.T) {
	eachService(t, func(t *testing.T, c *client) {
		c.create(alice)
		for path, form := range map[string]string{
			"login":       `{"identifier":"%s","password":"wrong password"}`,
			"tokens":      `{"identifier":"%s","purpose":"reset","field":"email","origin":"192.0.2.7"}`,
			"invitations": `{"field":"email","address":"%s"}`,
			"lookup":      `{"value":"%s"}`,
			"entries":     `{"facets":{"name":"%s"},"password":"x"}`,
		} {
			call := func(text string) (bytes uint64) {
				bytes = math.MaxUint64
				for range 3 { // the first call may fill caches, and others may allocate meanwhile
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					if r := c.send("POST", "/v1/types/user/"+path, fmt.Sprintf(form, text)); r.status < 400 {
						t.Errorf("%s: got %d, want an error: %.200s", path, r.status, r.text)
					}
					runtime.ReadMemStats(&after)
					bytes = min(bytes, after.TotalAlloc-before.TotalAlloc)
				}
				return bytes
			}
			// The routes for visitors accept 4,096 characters, here of three bytes each.
			short, long := strings.Repeat("a", 4096), strings.Repeat("\ufdfa", 4096)
			if path == "entries" {
				short, long = strings.Repeat("a", 60_000), strings.Repeat("\ufdfa", 20_000)
			}
			plain, hard := call(short), call(long)
			if hard > plain+600<<10 {
				t.Errorf("%s: allocated %d bytes, want at most 600 KiB more than the %d for plain text", path, hard, plain)
			}
		}
	})
}
