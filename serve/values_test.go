package serve_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/admin"
)

// valuesSchema returns a schema with two fields that may have several values: email, which holds
// addresses, and invoice, which does not.
func valuesSchema() schema.Schema {
	sc := testSchema()
	user := sc.Types["user"]
	user.Fields["invoice"] = schema.Field{Role: schema.RoleSecondary | schema.RoleIndexed, Kind: "pattern", Pattern: "^[0-9]{7}$", Many: 3}
	sc.Types["user"] = user
	return sc
}

// eachValuesService runs a test with a service on every kind of store, with valuesSchema. It checks
// that no address is in the log.
func eachValuesService(t *testing.T, test func(t *testing.T, c *client)) {
	t.Helper()
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		c := newClient(t, s.Under(t, valuesSchema()), serve.Options{})
		test(t, c)
		if strings.Contains(c.logs.String(), "example") {
			t.Errorf("the log has an address:\n%s", c.logs)
		}
	})
}

// values returns the values in a response as JSON.
func (r reply) values() string {
	text, _ := json.Marshal(r.body["values"]) // it was decoded from JSON
	return string(text)
}

// pointers returns the pointer and the rule of each error in a response.
func (r reply) pointers() (all []string) {
	errs, _ := r.body["errors"].([]any)
	for _, e := range errs {
		m := e.(map[string]any)
		all = append(all, fmt.Sprint(m["pointer"], " ", m["rule"]))
	}
	slices.Sort(all)
	return all
}

const ada = `{"uid":"ada","facets":{"name":"Ada"},"values":{"email":["ada@example.com","Ada@work.example"],"invoice":["0000001"]},"password":"battery staple 9"}`

func TestValues(t *testing.T) {
	eachValuesService(t, func(t *testing.T, c *client) {
		r := c.do("201", "POST", "/v1/types/user/entries", ada)
		path, both := r.header.Get("Location"), `{"email":["ada@example.com","Ada@work.example"],"invoice":["0000001"]}`
		c.equal("values", r.values(), both)
		c.equal("facets", r.str("facets.email")+" "+r.str("facets.invoice"), "ada@example.com 0000001")
		c.equal("entry read back", c.do("200", "GET", path, "").text, r.text)
		c.equal("entry by a further value", c.do("200", "POST", "/v1/types/user/lookup", `{"value":"ADA@WORK.example"}`).text, r.text)
		c.equal("by a further value of a field", c.do("200", "POST", "/v1/types/user/lookup", `{"value":"ada@work.example","field":"email"}`).str("uid"), "ada")
		for _, query := range []string{"where=email:ada@work.example", "where=invoice:0000001", "order=age"} {
			list := c.do("200", "GET", "/v1/types/user/entries?"+query, "")
			if n := len(list.body["entries"].([]any)); n != 1 || !strings.Contains(list.text, "Ada@work.example") {
				t.Errorf("%s: got %s, want the entry with its values", query, list.text)
			}
		}
		c.equal("count", c.do("200", "GET", "/v1/types/user/count?where=email:ADA@work.example", "").str("count"), "1")
		if many := c.do("200", "POST", "/v1/types/user/entries/get", `{"uids":["ada"]}`); !strings.Contains(many.text, "Ada@work.example") {
			t.Errorf("entries by UID lack the values: %s", many.text)
		}
		c.equal("values without any", c.do("201", "POST", "/v1/types/user/entries", `{"uid":"eve","facets":{"name":"Eve"},"values":{"email":[],"invoice":null}}`).values(), "null")
		r = c.do("409 duplicate", "POST", "/v1/types/user/entries", `{"values":{"email":["bob@example.com","ada@WORK.example"]},"facets":{"name":"ada"}}`)
		c.equal("taken", fmt.Sprint(r.pointers()), "[/facets/name taken /values/email taken]")

		// A facet replaces the first value and leaves the others unchanged.
		r = c.do("200", "PATCH", path, `{"facets":{"email":"ada@home.example"}}`)
		c.equal("values after a patch of the facet", r.values(), `{"email":["ada@home.example","Ada@work.example"],"invoice":["0000001"]}`)
		c.do("404 not_found", "POST", "/v1/types/user/lookup", `{"value":"ada@example.com"}`)
		r = c.do("200", "PATCH", path, `{"facets":{"email":"Ada@work.example"}}`)
		c.equal("values after a further one became the facet", r.values(), `{"email":[{"unverified":true,"value":"Ada@work.example"}],"invoice":["0000001"]}`)

		// Values replace all values of their field. That needs an If-Match.
		values := `{"values":{"email":["a@example.com","b@example.com","Ada@work.example"]}}`
		c.do("428 precondition", "PATCH", path, values)
		c.do("412 precondition", "PATCH", path, values, "If-Match", `"x"`)
		c.equal("values after a refused patch", c.do("200", "GET", path, "").values(), r.values())
		old := r.header.Get("ETag")
		r = c.do("200", "PATCH", path, values, "If-Match", old)
		c.equal("values after a patch", r.values(), `{"email":["a@example.com","b@example.com","Ada@work.example"],"invoice":["0000001"]}`)
		c.equal("facet after a patch", r.str("facets.email"), "a@example.com")
		c.do("412 precondition", "PATCH", path, `{"values":{"email":["a@example.com"]}}`, "If-Match", old)
		now := r.header.Get("ETag")

		// An entry may be sent back as it was read, and with a facet changed.
		c.equal("revision after the entry was sent back", c.do("200", "PATCH", path, r.text).header.Get("ETag"), now)
		r = c.do("200", "PATCH", path, strings.Replace(r.text, `"email":"a@example.com"`, `"email":"c@example.com"`, 1))
		c.equal("values after the entry was sent back with another facet", r.values(), `{"email":["c@example.com","b@example.com","Ada@work.example"],"invoice":["0000001"]}`)

		// If both are given, the facet is the first of the values.
		r = c.do("400 usage", "PATCH", path, `{"facets":{"email":"x@example.com"},"values":{"email":["y@example.com","x@example.com"]}}`, "If-Match", "*")
		c.equal("contradiction", fmt.Sprint(r.pointers()), "[/values/email many]")
		c.do("400 usage", "PATCH", path, `{"facets":{"email":null},"values":{"email":["y@example.com"]}}`, "If-Match", "*")
		c.do("400 usage", "PATCH", path, `{"facets":{"email":"x@example.com"},"values":{"email":[]}}`, "If-Match", "*")
		c.do("400 usage", "POST", "/v1/types/user/entries", `{"facets":{"email":"x@example.com"},"values":{"email":["y@example.com","x@example.com"]}}`)
		c.do("400 usage", "POST", "/v1/types/user/entries", `{"facets":{"email":"x@example.com"},"values":{"email":[]}}`)
		r = c.do("200", "PATCH", path, `{"facets":{"email":"y@example.com","job":"cook"},"values":{"email":["y@example.com",{"value":"x@example.com","label":5,"verified":true}]}}`, "If-Match", "*")
		c.equal("values after both", r.values()+r.str("facets.job"), `{"email":["y@example.com","x@example.com"],"invoice":["0000001"]}cook`)
		c.do("201", "POST", "/v1/types/user/entries", `{"uid":"bob","facets":{"email":"bob@example.com"},"values":{"email":["bob@example.com","bob@work.example"]}}`)

		// Without values, the field is unset.
		for _, none := range []string{"[]", "null"} {
			c.do("428 precondition", "PATCH", path, `{"values":{"invoice":`+none+`}}`)
			r = c.do("200", "PATCH", path, `{"values":{"invoice":`+none+`}}`, "If-Match", "*")
			c.equal("values without invoices", r.values()+r.str("facets.invoice"), `{"email":["y@example.com","x@example.com"]}`)
			r = c.do("200", "PATCH", path, `{"values":{"invoice":`+none+`}}`) // it has none already
			c.do("200", "PATCH", path, `{"values":{"invoice":["0000001","0000002"]}}`, "If-Match", r.header.Get("ETag"))
		}
		r = c.do("200", "PATCH", path, `{"facets":{"email":null}}`)
		c.equal("values after the facet was unset", r.values(), `{"invoice":["0000001","0000002"]}`)
		// Both addresses are free again.
		c.do("201", "POST", "/v1/types/user/entries", `{"values":{"email":["x@example.com","y@example.com"]}}`)
		c.do("200", "POST", "/v1/types/user/login", `{"identifier":"0000002","password":"battery staple 9"}`)
		c.do("204", "DELETE", path, "")
		c.do("404 not_found", "POST", "/v1/types/user/lookup", `{"value":"0000002"}`)
	})
}

// TestInvalidValues checks how requests with invalid values are refused, and that the response
// lists all problems.
func TestInvalidValues(t *testing.T) {
	eachValuesService(t, func(t *testing.T, c *client) {
		path := c.create(ada)
		c.create(`{"uid":"bob","facets":{"email":"bob@example.com"}}`)
		before := c.do("200", "GET", path, "").text
		long := func(n int) string { return strings.Repeat("x", n) }
		list := func(n int) string { return `["0000009"` + strings.Repeat(`,"0000009"`, n-1) + `]` }
		for values, want := range map[string]string{
			`{"email":["a@example.com","x"]}`:                                   "422 [/values/email email]",
			`{"email":["a@example.com","A@example.com"]}`:                       "422 [/values/email many]",
			`{"email":["a@example.com","bob@EXAMPLE.com"]}`:                     "409 [/values/email taken]",
			`{"email":["a@example.com","0000001@example.com"],"invoice":["1"]}`: "422 [/values/invoice pattern]",
			`{"invoice":["0000011","0000012","0000013","0000014"]}`:             "422 [/values/invoice many]",
			`{"invoice":` + list(4) + `}`:                                       "422 [/values/invoice many]",
			`{"invoice":` + list(101) + `}`:                                     "400 [/values/invoice usage]",
			`{"email":["` + long(4097) + `"]}`:                                  "400 [/values/email/0 usage]",
			`{"email":[{"value":"` + long(4097) + `"}]}`:                        "400 [/values/email/0 usage]",
			`{"email":[{"value":"a@example.com","nosuch":1}]}`:                  "400 [/values/email/0 usage]",
			`{"email":[{}]}`:                      "400 [/values/email/0 usage]",
			`{"email":[null]}`:                    "400 [/values/email/0 usage]",
			`{"email":[["a@example.com"]]}`:       "400 [/values/email/0 usage]",
			`{"email":[5]}`:                       "400 [/values/email/0 usage]",
			`{"email":"a@example.com"}`:           "400 [/values/email usage]",
			`["a@example.com"]`:                   "400 [/values usage]",
			`{"name":["Ann","Anne"]}`:             "422 [/values/name many]",
			`{"job":["cook","baker"]}`:            "422 [/values/job many]",
			`{"nosuch":["x"]}`:                    "422 [/values/nosuch undeclared]",
			`{"~also:email:x@example.com":["x"]}`: "422 [/values/~0also:email:x@example.com undeclared]",
			`{"uid":["x"]}`:                       "422 [/values/uid many]",
			`{"password":["x"]}`:                  "422 [/values/password undeclared]",
			`{"nosuch":["x"],"email":["x"],"invoice":["0000011","bob@example.com"]}`:         "422 [/values/email email /values/invoice pattern /values/nosuch undeclared]",
			`{"email":["a@example.com","a@example.com"],"email":["` + long(10) + `@x.org"]}`: "400 [<nil> usage]",
		} {
			for method, at := range map[string]string{"POST": "/v1/types/user/entries", "PATCH": path} {
				r := c.send(method, at, `{"values":`+values+`}`, "If-Match", "*")
				if got := fmt.Sprint(r.status, " ", r.pointers()); got != want {
					t.Errorf("%s with %.80s: got %s, want %s: %s", method, values, got, want, r.text)
				}
			}
		}
		var fields strings.Builder
		for i := range 201 {
			fmt.Fprintf(&fields, `,"f%d":["x"]`, i)
		}
		c.do("400 usage", "PATCH", path, `{"values":{`+fields.String()[1:]+`}}`, "If-Match", "*")
		c.do("413 usage", "PATCH", path, `{"values":{"email":["`+long(1<<20)+`"]}}`, "If-Match", "*")
		// What is wrong with facets is listed beside what is wrong with values.
		r := c.do("422 invalid", "PATCH", path, `{"facets":{"email":"x","age":"old"},"values":{"email":["x"],"invoice":["x"]}}`, "If-Match", "*")
		c.equal("everything wrong", fmt.Sprint(r.pointers()), "[/facets/age codec /values/email email /values/invoice pattern]")
		r = c.do("422 invalid", "PATCH", path, `{"facets":{"email":"x"},"values":{"email":["ada@example.com","Ada@work.example"]}}`)
		c.equal("a facet beside values as they were", fmt.Sprint(r.pointers()), "[/facets/email email]")
		for _, empty := range []string{`{}`, `{"facets":null}`, `{"values":null}`, `{"rev":"x"}`} {
			r := c.do("400 usage", "PATCH", path, empty)
			c.equal(empty, fmt.Sprint(r.pointers()), "[/facets usage]")
		}
		c.do("200", "PATCH", path, `{"values":{}}`)
		c.equal("entry afterwards", c.do("200", "GET", path, "").text, before)
		c.do("404 not_found", "PATCH", "/v1/types/user/entries/nobody", `{"values":{"email":["a@example.com"]}}`, "If-Match", "*")
		// An invitation gives an account one address, which is verified.
		secret := c.do("200", "POST", "/v1/types/user/invitations", `{"field":"email","address":"new@example.com"}`).str("secret")
		c.do("400 usage", "POST", "/v1/types/user/invitations/accept", `{"secret":"`+secret+`","values":{"email":["victim@example.com"]}}`)
	})
}

func TestValueRoutes(t *testing.T) {
	eachValuesService(t, func(t *testing.T, c *client) {
		path := c.create(ada)
		c.create(`{"uid":"bob","facets":{"email":"bob@example.com","name":"Bob"}}`)
		change := func(want, action, value string, headers ...string) reply {
			return c.do(want, "POST", path+"/values/email/"+action, `{"value":"`+value+`"}`, headers...)
		}
		email := func(r reply) string {
			// It was decoded from JSON.
			text, _ := json.Marshal(r.body["values"].(map[string]any)["email"])
			return string(text)
		}
		r := change("200", "add", " c@example.com ")
		c.equal("added", email(r), `["ada@example.com","Ada@work.example","c@example.com"]`)
		c.equal("read back", c.do("200", "GET", path, "").text, r.text)
		etag := r.header.Get("ETag")
		c.equal("ETag", etag, `"`+r.str("rev")+`"`)
		// A request that is repeated changes nothing.
		for _, again := range []string{"c@example.com", "C@EXAMPLE.com", " c@example.com"} {
			c.equal("revision after "+again, change("200", "add", again).header.Get("ETag"), etag)
		}
		c.equal("by the value", c.do("200", "POST", "/v1/types/user/lookup", `{"value":"c@example.com"}`).str("uid"), "ada")

		r = change("200", "first", "C@example.com", "If-Match", etag)
		c.equal("first", email(r)+r.str("facets.email"), `[{"unverified":true,"value":"c@example.com"},"ada@example.com","Ada@work.example"]c@example.com`)
		c.equal("first again", change("200", "first", "c@example.com").text, r.text)
		for _, action := range []string{"add", "remove", "first"} {
			change("412 precondition", action, "c@example.com", "If-Match", etag)
		}
		r = change("422 invalid", "first", "nobody@example.com")
		c.equal("first of an absent value", fmt.Sprint(r.pointers()), "[/value absent]")

		r = change("200", "remove", "ADA@work.example", "If-Match", `"x", `+c.do("200", "GET", path, "").header.Get("ETag"))
		c.equal("removed", email(r), `[{"unverified":true,"value":"c@example.com"},"ada@example.com"]`)
		c.equal("removed again", change("200", "remove", "ada@work.example").text, r.text)
		c.do("404 not_found", "POST", "/v1/types/user/lookup", `{"value":"ada@work.example"}`)
		r = change("200", "remove", "c@example.com")
		c.equal("facet after the first was removed", r.str("facets.email")+email(r), `ada@example.com[{"unverified":true,"value":"ada@example.com"}]`)
		r = change("200", "remove", "ada@example.com")
		c.equal("without any", r.str("facets.email")+r.values(), `{"invoice":["0000001"]}`)
		c.equal("the first one", change("200", "add", "d@example.com").str("facets.email"), "d@example.com")

		r = change("409 duplicate", "add", "BOB@example.com")
		c.equal("taken", fmt.Sprint(r.pointers(), r.rules()), "[/value taken] [email taken]")
		c.equal("not an address", fmt.Sprint(change("422 invalid", "add", "x").pointers()), "[/value email]")
		for _, one := range []string{"e", "f", "g"} {
			change("200", "add", one+"@example.com")
		}
		r = change("422 invalid", "add", "h@example.com")
		c.equal("too many", fmt.Sprint(r.pointers()), "[/value many]")
		change("200", "add", "G@example.com") // it has this one
		for field, want := range map[string]string{"nosuch": "[field undeclared]", "name": "[field many]", "job": "[field many]", "uid": "[field undeclared]", "password": "[field undeclared]", "~also:email:x": "[field undeclared]", "a%2Fb": "[field undeclared]"} {
			for _, action := range []string{"add", "remove", "first"} {
				r := c.do("422 invalid", "POST", path+"/values/"+field+"/"+action, `{"value":"x"}`)
				c.equal(field, fmt.Sprint(r.pointers()), want)
			}
		}
		for _, body := range []string{`{}`, `{"value":""}`, `{"value":null}`, `{"value":["x"]}`, `{"value":"` + strings.Repeat("x", 4097) + `"}`, `{"value":"x","field":"email"}`, "", `{"value":`} {
			c.do("400 usage", "POST", path+"/values/email/add", body)
		}
		c.do("404 not_found", "POST", path+"/values/email/nosuch", `{"value":"x"}`)
		c.do("405 usage", "GET", path+"/values/email/add", "")
		c.do("404 not_found", "POST", "/v1/types/user/entries/nobody/values/email/add", `{"value":"x@example.com"}`)
		c.do("404 not_found", "POST", "/v1/types/nosuch/entries/ada/values/email/add", `{"value":"x@example.com"}`)
		reader := c.withKey(c.makeKey(admin.Key{Name: "reader", Scopes: []string{admin.ScopeRead, admin.ScopeLogin}}))
		reader.do("403 scope", "POST", path+"/values/email/add", `{"value":"x@example.com"}`)
		firms := c.withKey(c.makeKey(admin.Key{Name: "firms", Scopes: []string{admin.ScopeWrite}, Types: []string{"firm"}}))
		firms.do("403 scope", "POST", path+"/values/email/add", `{"value":"x@example.com"}`)
	})
}

// TestValuesAtOnce checks that values that are added at the same time are all kept, and that of two
// lists for the same revision only one is written.
func TestValuesAtOnce(t *testing.T) {
	eachValuesService(t, func(t *testing.T, c *client) {
		path := c.create(`{"uid":"ada","facets":{"name":"Ada"}}`)
		other := newOtherService(t, c)
		var all sync.WaitGroup
		for i := range 4 {
			to := []*client{c, other}[i%2]
			all.Go(func() {
				body := fmt.Sprintf(`{"value":"a%d@example.com"}`, i)
				r := to.send("POST", path+"/values/email/add", body)
				for r.status == 409 && r.str("code") == "conflict" {
					r = to.send("POST", path+"/values/email/add", body)
				}
				if r.status != 200 {
					t.Errorf("adding a value: got %d, want 200: %s", r.status, r.text)
				}
			})
		}
		all.Wait()
		r := c.do("200", "GET", path, "")
		if n := strings.Count(r.values(), "@example.com"); n != 4 {
			t.Errorf("got %s, want four values", r.values())
		}
		var mu sync.Mutex
		statuses := map[int]int{}
		for i := range 2 {
			all.Go(func() {
				answer := c.send("PATCH", path, fmt.Sprintf(`{"values":{"email":["b%d@example.com"]}}`, i), "If-Match", r.header.Get("ETag"))
				mu.Lock()
				defer mu.Unlock()
				statuses[answer.status]++
			})
		}
		all.Wait()
		if statuses[200] != 1 || statuses[412] != 1 {
			t.Errorf("two lists for one revision: got the statuses %v, want 200 and 412", statuses)
		}
	})
}

// TestLostRepliesToValues checks that a value can be added and removed again after an answer that
// does not say what was done.
func TestLostRepliesToValues(t *testing.T) {
	t.Parallel() // it waits for retries
	raw := testdb.EmbeddedClient(t)
	c := newClient(t, testdb.Open(t, raw, testdb.Space(t, ""), valuesSchema()), serve.Options{})
	path := c.create(ada)
	store := &lossyStore{}
	store.left.Store(1 << 30)
	raw.AddHook(store)
	unknown := 0
	for _, action := range []string{"add", "remove"} {
		for n := int64(0); ; n++ {
			c.do("200", "GET", path, "") // caches the key
			store.left.Store(n)
			r := c.send("POST", path+"/values/email/"+action, `{"value":"c@example.com"}`)
			store.left.Store(1 << 30)
			if r.status == 200 {
				break
			}
			if strings.HasSuffix(r.str("detail"), "whether the change was made is not known") {
				unknown++
			}
			again := c.do("200", "POST", path+"/values/email/"+action, `{"value":"c@example.com"}`)
			if got := strings.Count(again.values(), "c@example.com"); got != map[string]int{"add": 1, "remove": 0}[action] {
				t.Errorf("%s repeated after %d replies: got %s, want it to have taken effect once", action, n, again.values())
			}
			undo := map[string]string{"add": "remove", "remove": "add"}[action]
			c.do("200", "POST", path+"/values/email/"+undo, `{"value":"c@example.com"}`)
		}
	}
	if unknown == 0 {
		t.Error("no answer said that the outcome is not known")
	}
}

// TestValuesWithIdempotencyKey checks that an idempotency key is refused for a request that differs
// only in values.
func TestValuesWithIdempotencyKey(t *testing.T) {
	eachValuesService(t, func(t *testing.T, c *client) {
		create := func(want, body string) reply {
			return c.do(want, "POST", "/v1/types/user/entries", body, "Idempotency-Key", "k")
		}
		first := create("201", ada)
		c.equal("repeated request", create("201", ada).text, first.text)
		create("422 idempotency", strings.Replace(ada, "Ada@work.example", "other@work.example", 1))
		create("422 idempotency", strings.Replace(ada, `,"Ada@work.example"`, "", 1))
	})
}

// TestMarkedValues checks that an entry shows the verification mark and the label of each further
// value, in the same form as an export.
func TestMarkedValues(t *testing.T) {
	eachValuesService(t, func(t *testing.T, c *client) {
		values := `{"email":["a@example.com",{"label":"work","value":"b@example.com","verified":"2026-11-27T09:00:00Z"},"c@example.com",{"label":"home","value":"d@example.com"}]}`
		line := `{"type":"user","facets":{"uid":"ada","name":"Ada","email":"a@example.com"},"verified":["email"],"values":` + values + `}`
		if r := c.send("POST", "/v1/types/user/import", line); !strings.Contains(r.text, `"created":1`) {
			t.Fatalf("the import failed: %s", r.text)
		}
		r := c.do("200", "GET", "/v1/types/user/entries/ada", "")
		c.equal("values", r.values(), values)
		c.equal("verified", r.str("verified"), "[email]")
		exported := struct{ Values map[string][]any }{}
		must(t, json.Unmarshal([]byte(c.do("200", "GET", "/v1/types/user/export", "").text), &exported))
		text, err := json.Marshal(exported.Values)
		must(t, err)
		c.equal("values of the export", string(text), values)

		// Values that are sent back keep their marks and labels, in any order.
		back := `{"email":["a@example.com","d@example.com",{"value":"b@example.com","label":"ignored"},"e@example.com"]}`
		r = c.do("200", "PATCH", "/v1/types/user/entries/ada", `{"values":`+back+`}`, "If-Match", r.header.Get("ETag"))
		want := `{"email":["a@example.com",{"label":"home","value":"d@example.com"},{"label":"work","value":"b@example.com","verified":"2026-11-27T09:00:00Z"},"e@example.com"]}`
		c.equal("values in another order", r.values(), want)
		// The mark moves with a value that becomes the first, and with one that no longer is.
		r = c.do("200", "POST", "/v1/types/user/entries/ada/values/email/first", `{"value":"d@example.com"}`)
		if c.equal("verified, with another first value", r.str("verified"), "[]"); !strings.Contains(r.values(), `,{"value":"a@example.com","verified":"`) {
			t.Errorf("the former first value is not verified: %s", r.values())
		}
		r = c.do("200", "POST", "/v1/types/user/entries/ada/values/email/first", `{"value":"b@example.com"}`)
		c.equal("verified, with a verified first value", r.str("verified"), "[email]")
	})
}

// TestTokensForValues checks tokens that add a value, and tokens of an entry with several values.
func TestTokensForValues(t *testing.T) {
	eachValuesService(t, func(t *testing.T, c *client) {
		path := c.create(ada)
		c.create(`{"uid":"bob","facets":{"email":"bob@example.com"},"password":"battery staple 9"}`)
		backend := c.withKey(c.makeKey(admin.Key{Name: "backend", Scopes: []string{admin.ScopeLogin}}))
		login := func(want, identifier string) {
			t.Helper()
			backend.do(want, "POST", "/v1/types/user/login", `{"identifier":"`+identifier+`","password":"battery staple 9"}`)
		}
		issue := func(value string) string {
			return backend.do("200", "POST", "/v1/types/user/tokens", `{"purpose":"add:email","uid":"ada","value":"`+value+`"}`).str("secret")
		}
		redeem := func(want, secret string) reply {
			return backend.do(want, "POST", "/v1/tokens/redeem", `{"purpose":"add:email","secret":"`+secret+`"}`)
		}
		secret := issue(" new@example.com ")
		// Not claimed yet.
		c.do("404 not_found", "POST", "/v1/types/user/lookup", `{"value":"new@example.com"}`)
		r := backend.do("200", "POST", "/v1/tokens/peek", `{"purpose":"add:email","secret":"`+secret+`"}`)
		c.equal("value when peeking", r.str("value"), "new@example.com")
		r = redeem("200", secret)
		entry := reply{body: r.body["entry"].(map[string]any)}
		if c.equal("value when redeeming", r.str("value"), "new@example.com"); !strings.Contains(entry.values(), `["ada@example.com","Ada@work.example",{"value":"new@example.com","verified":"`) {
			t.Errorf("the value is not added as verified: %s", r.text)
		}
		redeem("404 not_found", secret)
		login("200", "new@example.com")

		// A further address counts when it is verified, and not before.
		login("401 login", "Ada@work.example")
		redeem("200", issue("ada@work.example"))
		login("200", "Ada@work.example")
		r = backend.do("200", "POST", "/v1/types/user/tokens", `{"purpose":"reset","identifier":"ADA@work.example","field":"email"}`)
		c.equal("address", r.str("address"), "ada@work.example")
		reset := backend.do("200", "POST", "/v1/password-resets", `{"purpose":"reset","secret":"`+r.str("secret")+`","password":"battery staple 9"}`)
		c.equal("verified", reset.str("entry.verified"), "[]") // it names only facets

		// A token to the first address verifies it, and a change replaces it.
		r = backend.do("200", "POST", "/v1/types/user/tokens", `{"purpose":"verify","uid":"ada","field":"email"}`)
		c.equal("first address", r.str("address"), "ada@example.com")
		r = backend.do("200", "POST", "/v1/tokens/redeem", `{"purpose":"verify","secret":"`+r.str("secret")+`"}`)
		c.equal("verified facet", r.str("entry.verified"), "[email]")
		r = backend.do("200", "POST", "/v1/types/user/tokens", `{"purpose":"change:email","uid":"ada","value":"new@example.com"}`)
		backend.do("200", "POST", "/v1/tokens/redeem", `{"purpose":"change:email","secret":"`+r.str("secret")+`"}`)
		r = c.do("200", "GET", path, "")
		c.equal("facet after a change to a further value", r.str("facets.email")+r.str("verified"), "new@example.com[email]")
		if strings.Contains(r.values(), "ada@example.com") || !strings.Contains(r.values(), "ada@work.example") {
			t.Errorf("values after a change of the first one: got %s, want ada@work.example, but not ada@example.com", r.values())
		}

		// A value that somebody has taken meanwhile is refused, and the token stays.
		secret = issue("late@example.com")
		c.do("200", "POST", "/v1/types/user/entries/bob/values/email/add", `{"value":"late@example.com"}`)
		redeem("409 duplicate", secret)
		c.do("200", "POST", "/v1/types/user/entries/bob/values/email/remove", `{"value":"late@example.com"}`)
		redeem("200", secret)
		for _, field := range []string{"name", "nosuch", ""} {
			r = backend.do("422 invalid", "POST", "/v1/types/user/tokens", `{"purpose":"add:`+field+`","uid":"ada","value":"x"}`)
			c.equal(field, r.str("field")+" "+r.str("rule"), "purpose add")
		}
		backend.do("422 invalid", "POST", "/v1/types/user/tokens", `{"purpose":"add:email","uid":"ada","value":"x"}`)
		for _, one := range []string{"y@example.com", "z@example.com"} {
			secret = issue(one)
			r = backend.send("POST", "/v1/tokens/redeem", `{"purpose":"add:email","secret":"`+secret+`"}`)
		}
		c.equal("too many", fmt.Sprint(r.status, r.rules()), "422 [email many]")
		backend.do("422 invalid", "POST", "/v1/password-resets", `{"purpose":"add:email","secret":"`+secret+`","password":"battery staple 9"}`)
	})
}

// TestHistoryOfValues checks that the history and the feed record changes of further values, but
// not the values.
func TestHistoryOfValues(t *testing.T) {
	eachValuesService(t, func(t *testing.T, c *client) {
		path := c.create(ada)
		c.do("200", "POST", path+"/values/email/add", `{"value":"c@example.com"}`)
		// Changes nothing.
		c.do("200", "POST", path+"/values/email/add", `{"value":"c@example.com"}`)
		c.do("200", "POST", path+"/values/email/remove", `{"value":"c@example.com"}`)
		c.do("200", "PATCH", path, `{"values":{"invoice":["0000001","0000002"]}}`, "If-Match", "*")
		r := c.do("200", "GET", path+"/history", "")
		c.equal("history", strings.Join(r.eventKinds(), ","), "identifier ada,identifier ada,identifier ada,create ada")
		var fields []string
		for _, e := range r.body["events"].([]any) {
			fields = append(fields, fmt.Sprint(e.(map[string]any)["fields"]))
		}
		c.equal("fields", strings.Join(fields[:3], ""), "[invoice][email][email]")
		for _, text := range []string{r.text, c.waitForEvents(4, "").text} {
			if strings.Contains(text, "example") || strings.Contains(text, "0000001") || strings.Contains(text, "0000002") {
				t.Errorf("a value is among the events: %s", text)
			}
		}
	})
}

// TestClientsWithoutValues checks that a client that does not know values sees no difference: a
// field that may have several values gives the same answers as any other, except for the member
// values, which a type without such fields does not have.
func TestClientsWithoutValues(t *testing.T) {
	var answers [2][]string
	for i, many := range []int{0, 4} {
		sc := testSchema()
		f := sc.Types["user"].Fields["email"]
		f.Many = many
		sc.Types["user"].Fields["email"] = f
		c := newClient(t, testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), sc), serve.Options{})
		send := func(method, path, body string, headers ...string) reply {
			r := c.send(method, path, body, headers...)
			entry := r.body
			if nested, has := r.body["entry"].(map[string]any); has {
				entry = nested
			}
			if has := entry["values"] != nil; has != (many > 0 && strings.Contains(r.text, `"email":"`)) {
				t.Errorf("%s %s: the member values is present: %v, want %v: %s", method, path, has, !has, r.text)
			}
			delete(entry, "values")
			// These differ from answer to answer.
			for _, own := range []string{"rev", "created", "request_id"} {
				delete(entry, own)
			}
			if facets, has := entry["facets"].(map[string]any); has {
				delete(facets, "added")
			}
			text, err := json.Marshal(r.body)
			must(t, err)
			answers[i] = append(answers[i], fmt.Sprintf("%s %s: %d %s", method, path, r.status, text))
			return r
		}
		r := send("POST", "/v1/types/user/entries", alice)
		path := r.header.Get("Location")
		send("GET", path, "")
		send("POST", "/v1/types/user/entries", `{"uid":"eve","facets":{"name":"Eve"}}`)
		send("POST", "/v1/types/user/entries", `{"facets":{"email":"alice@EXAMPLE.com","age":"x"}}`)
		send("POST", "/v1/types/user/login", `{"identifier":"ALICE@example.com","password":"battery staple 9"}`)
		send("PATCH", path, `{"facets":{"email":"new@example.com","job":null}}`, "If-Match", r.header.Get("ETag"))
		send("PATCH", path, `{"facets":{"email":"x"}}`)
		send("PATCH", path, `{"facets":{"email":null}}`)
		send("PATCH", path, `{"facets":{"email":"back@example.com"}}`)
		read := c.do("200", "GET", path, "")
		send("PATCH", path, read.text) // as it was read
		send("PATCH", path, strings.Replace(read.text, `"email":"back@example.com"`, `"email":"other@example.com"`, 1))
		send("PATCH", path, `{}`)
		send("PATCH", path, `{"facets":[]}`)
		send("POST", "/v1/types/user/lookup", `{"value":"other@example.com"}`)
		send("POST", "/v1/types/user/lookup", `{"value":"back@example.com"}`)

		r = c.do("201", "POST", "/v1/types/firm/entries", `{"uid":"f","facets":{"name":"<Firm> & Söhne"}}`)
		want := `{"uid":"f","type":"firm","rev":"` + r.str("rev") + `","disabled":false,"verified":[],"facets":{"name":"<Firm> & Söhne"}}` + "\n"
		c.equal("an entry of a type without such fields", r.text, want)
		c.equal("the entry read", c.do("200", "GET", r.header.Get("Location"), "").text, want)
	}
	for i, want := range answers[0] {
		if got := answers[1][i]; got != want {
			t.Errorf("with several values: got %s, want %s", got, want)
		}
	}
}
