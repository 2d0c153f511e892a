package serve_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/serve/scim"
	"github.com/coffeenode/userdb/userdb"
)

const (
	patchURN = `"schemas":["urn:ietf:params:scim:api:messages:2.0:PatchOp"],`
	userURN  = `"schemas":["urn:ietf:params:scim:schemas:core:2.0:User"],`
	groupURN = `"schemas":["urn:ietf:params:scim:schemas:core:2.0:Group"],`
)

// directorySchema returns a schema for a directory and the options that map its attributes.
func directorySchema() (schema.Schema, scim.Options) {
	sc, o := testSchema(), scim.Options{Mapping: scim.Mapping{"displayname": "display", "emails": "email"}}
	fields := sc.Types["user"].Fields
	fields["display"] = schema.Field{}
	for _, part := range []string{"formatted", "givenname", "familyname", "middlename"} {
		o.Mapping["name."+part], fields[part] = part, schema.Field{}
	}
	return sc, o
}

// eachDirectory runs a test with a service for directories on every kind of store, and with a key
// that has only the scope for them.
func eachDirectory(t *testing.T, test func(t *testing.T, c *client)) {
	t.Helper()
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		sc, o := directorySchema()
		test(t, newDirectory(t, s.Under(t, sc), o))
	})
}

func newDirectory(t *testing.T, s *testdb.Site, o scim.Options) *client {
	t.Helper()
	c := newClient(t, s, serve.Options{SCIM: &o})
	return c.withKey(c.makeKey(admin.Key{Name: "directory", Scopes: []string{admin.ScopeSCIM}}))
}

// scim sends a request and checks the status and, of errors, the scimType.
func (c *client) scim(want, method, path, body string) reply {
	c.t.Helper()
	r := c.send(method, "/scim/v2"+path, body, "Content-Type", "application/scim+json; charset=utf-8")
	got := fmt.Sprint(r.status)
	if kind := r.str("scimType"); kind != "" {
		got += " " + kind
	}
	if got != want {
		c.t.Fatalf("%s %s %s: got %s %s, want %s", method, path, body, got, r.text, want)
	}
	if r.text != "" && r.header.Get("Content-Type") != "application/scim+json" {
		c.t.Errorf("%s %s: got the Content-Type %q, want application/scim+json", method, path, r.header.Get("Content-Type"))
	}
	if r.status >= 400 && (r.value("schemas.0") != "urn:ietf:params:scim:api:messages:2.0:Error" || r.str("status") != fmt.Sprint(r.status)) {
		c.t.Errorf("%s %s: malformed error: %s", method, path, r.text)
	}
	return r
}

// value returns the value at a path of names and numbers in the body, or nil.
func (r reply) value(path string) any {
	var v any = r.body
	for name := range strings.SplitSeq(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[name]
		case []any:
			if i, err := strconv.Atoi(name); err == nil && i < len(in) {
				v = in[i]
			} else {
				v = nil
			}
		default:
			return nil
		}
	}
	return v
}

// TestDirectories creates, changes and deletes a user and a group with requests as Okta and Entra
// ID send them.
func TestDirectories(t *testing.T) {
	for _, name := range []string{"okta", "entra"} {
		text, err := os.ReadFile("scim/testdata/" + name + ".json")
		must(t, err)
		// A step sends a request. The response has the values in Has, by path. Keep gives names to
		// values of the response, which later steps use.
		var steps []struct {
			What, Send string
			Body       json.RawMessage
			Status     int
			Has        map[string]any
			Keep       map[string]string
		}
		must(t, json.Unmarshal(text, &steps))
		t.Run(name, func(t *testing.T) {
			eachDirectory(t, func(t *testing.T, c *client) {
				kept := map[string]string{}
				with := func(text string) string {
					for name, value := range kept {
						text = strings.ReplaceAll(text, "{"+name+"}", value)
					}
					return text
				}
				for _, s := range steps {
					method, path, _ := strings.Cut(with(s.Send), " ")
					r := c.send(method, "/scim/v2"+path, with(string(s.Body)), "Content-Type", "application/scim+json")
					if r.status != s.Status {
						t.Fatalf("%s: %s: got %d %s, want %d", s.What, s.Send, r.status, r.text, s.Status)
					}
					for at, want := range s.Has {
						if text, ok := want.(string); ok {
							want = with(text)
						}
						if got := r.value(at); got != want {
							t.Errorf("%s: %s: %s is %v, want %v: %s", s.What, s.Send, at, got, want, r.text)
						}
					}
					for name, at := range s.Keep {
						kept[name] = fmt.Sprint(r.value(at))
					}
				}
				if problems := c.Check(t, check.Options{}); len(problems) > 0 {
					t.Errorf("check found problems: %v", problems)
				}
				for _, secret := range []string{"okta.example", "entra.example", "1mz050nq", "00ujl29u0le5T6Aj10h7", "Patricia"} {
					if strings.Contains(c.logs.String(), secret) {
						t.Errorf("the log has %q:\n%s", secret, c.logs)
					}
				}
			})
		})
	}
}

// createUser creates a user and returns its id.
func (c *client) createUser(name string) string {
	c.t.Helper()
	return c.scim("201", "POST", "/Users", fmt.Sprintf(`{%s"userName":"%s@x.org","externalId":"X-%s"}`, userURN, name, name)).str("id")
}

// createGroup creates a group with members and returns its id.
func (c *client) createGroup(name string, members ...string) string {
	c.t.Helper()
	for i, uid := range members {
		members[i] = fmt.Sprintf(`{"value":%q}`, uid)
	}
	return c.scim("201", "POST", "/Groups", fmt.Sprintf(`{%s"displayName":%q,"members":[%s]}`, groupURN, name, strings.Join(members, ","))).str("id")
}

// TestFilters checks which users and groups a filter selects, and which filters are refused.
func TestFilters(t *testing.T) {
	eachDirectory(t, func(t *testing.T, c *client) {
		a, b := c.createUser("a"), c.createUser("b")
		g := c.createGroup("Cooks & co", a)
		for filter, want := range map[string]string{
			`userName eq "a@x.org"`:                         "1",
			`USERNAME EQ "A@X.ORG"`:                         "1",
			`userName eq "nobody@x.org"`:                    "0",
			`userName eq "not an address"`:                  "0",
			`userName eq ""`:                                "0",
			`externalId eq "X-a"`:                           "1",
			`externalId eq "x-a"`:                           "0",
			`id eq "` + a + `"`:                             "1",
			`id eq "no such"`:                               "0",
			`id eq "../~rev"`:                               "0",
			`emails.value eq "b@x.org"`:                     "1",
			`emails[type eq "work"].value eq "b@x.org"`:     "1",
			`emails[type eq "work" and value eq "b@x.org"]`: "1",
			`emails[value eq "b@x.org"]`:                    "1",
			`emails[type eq "home"].value eq "b@x.org"`:     "0",
			`urn:ietf:params:scim:schemas:core:2.0:User:userName eq "b@x.org"`:    "1",
			`urn:IETF:params:scim:schemas:core:2.0:user:externalId eq "X-b"`:      "1",
			`userName eq "a@x.org" and externalId eq "X-a" and id eq "` + a + `"`: "1",
			`userName eq "a@x.org" and externalId eq "X-b"`:                       "0",
			`(userName eq "a@x.org") and (externalId eq "X-a")`:                   "1",
			`externalId eq "X-a" AND userName eq "a@x.org"`:                       "1",
			`userName eq "] .value eq \"x\""`:                                     "0",
			`externalId eq "*"`:                                                   "0",
			`externalId eq "[c-a]"`:                                               "0",
		} {
			r := c.scim("200", "GET", "/Users?filter="+url.QueryEscape(filter), "")
			c.equal(filter, r.str("totalResults"), want)
			search := c.scim("200", "POST", "/Users/.search", fmt.Sprintf(`{"schemas":["urn:ietf:params:scim:api:messages:2.0:SearchRequest"],"filter":%s}`, testdb.Must(json.Marshal(filter))))
			c.equal(filter+" by POST", search.str("totalResults"), want)
		}
		for filter, want := range map[string]string{
			`displayName eq "Cooks & co"`:                  "1",
			`displayname eq "cooks & CO"`:                  "1",
			`displayName eq "Cooks"`:                       "0",
			`id eq "` + g + `"`:                            "1",
			`members eq "` + a + `"`:                       "1",
			`members.value eq "` + a + `"`:                 "1",
			`members[value eq "` + a + `"]`:                "1",
			`members eq "` + b + `"`:                       "0",
			`members eq "nobody"`:                          "0",
			`id eq "` + g + `" and members eq "` + a + `"`: "1",
			`id eq "` + g + `" and members eq "` + b + `"`: "0",
			`externalId eq "none"`:                         "0",
		} {
			c.equal(filter, c.scim("200", "GET", "/Groups?filter="+url.QueryEscape(filter), "").str("totalResults"), want)
		}
		for _, filter := range []string{
			"", " ", "x", `userName`, `userName pr`, `userName sw "a"`, `userName co "a"`, `userName ne "a@x.org"`, `userName gt "a"`, `not (userName eq "a@x.org")`,
			`userName eq "a@x.org" or userName eq "b@x.org"`, `displayName eq "x"`, `password eq "x"`, `active eq true`, `meta.created gt "2020-01-01T00:00:00Z"`,
			`userName eq "a@x.org" and username eq "a@x.org"`, `emails.type eq "work"`, `emails[type eq "work"]`, `userName eq a@x.org`, `userName eq 5`, `userName eq null`,
			`urn:ietf:params:scim:schemas:core:2.0:Group:id eq "x"`, `urn:x:userName eq "a@x.org"`, `userName eq "a@x.org" and`, `userName eq "a@x.org`, `~isa eq "user"`,
			`userName eq "` + strings.Repeat("a", 5000) + `"`, strings.Repeat("(", 3000) + `userName eq "a"` + strings.Repeat(")", 3000), `userName.x eq "a@x.org"`, "userName eq \"a\x00\"",
		} {
			if r := c.scim("400 invalidFilter", "GET", "/Users?filter="+url.QueryEscape(filter), ""); r.body["Resources"] != nil {
				t.Errorf("filter %s: the response has resources: %s", filter, r.text)
			}
		}
		for i := range 3 {
			c.createWithExternalID(fmt.Sprintf("s%d@x.org", i), "shared")
		}
		for page, want := range map[string]int{"": 3, "&count=2": 2, "&count=0": 0, "&startIndex=3": 1, "&startIndex=2&count=1": 1, "&startIndex=4": 0} {
			r := c.scim("200", "GET", "/Users?filter=externalId+eq+%22shared%22"+page, "")
			if found, _ := r.body["Resources"].([]any); r.str("totalResults") != "3" || len(found) != want {
				t.Errorf("page %s: got %s, want %d resources of 3", page, r.text, want)
			}
		}
		c.scim("400 invalidFilter", "GET", "/Groups?filter="+url.QueryEscape(`userName eq "a@x.org"`), "")
		c.scim("400 invalidFilter", "GET", "/Groups?filter="+url.QueryEscape(`members eq "`+a+`" and members.value eq "`+b+`"`), "")
		c.scim("400 invalidFilter", "GET", "/Users?filter=id+eq+%22a%22&filter=id+eq+%22b%22", "")
		c.scim("403 invalidFilter", "GET", "/Schemas?filter="+url.QueryEscape(`id eq "x"`), "")
	})
}

// TestPatches checks how a PATCH changes a user, and that it makes either all of its changes or
// none.
func TestPatches(t *testing.T) {
	eachDirectory(t, func(t *testing.T, c *client) {
		id := c.createUser("a")
		c.createUser("b")
		patch := func(want, operations string) reply {
			c.t.Helper()
			return c.scim(want, "PATCH", "/Users/"+id, "{"+patchURN+`"Operations":[`+operations+"]}")
		}
		for _, s := range []struct{ operations, at, want string }{
			{`{"op":"add","path":"displayName","value":"A"}`, "displayName", "A"},
			{`{"op":"ADD","path":"DISPLAYNAME","value":"B"}`, "displayName", "B"},
			{`{"op":"remove","path":"displayName"}`, "displayName", ""},
			{`{"op":"remove","path":"displayName"}`, "displayName", ""},
			{`{"op":"add","value":{"displayName":"C"}}`, "displayName", "C"},
			{`{"op":"Replace","path":"urn:ietf:params:scim:schemas:core:2.0:User:displayName","value":"D"}`, "displayName", "D"},
			{`{"op":"replace","path":"urn:ietf:params:scim:schemas:core:2.0:User","value":{"displayName":"E"}}`, "displayName", "E"},
			{`{"op":"replace","value":{"urn:ietf:params:scim:schemas:core:2.0:User":{"displayName":"F"}}}`, "displayName", "F"},
			{`{"op":"add","path":"name","value":{"givenName":"G","familyName":"H"}}`, "name.givenName", "G"},
			{`{"op":"replace","path":"name.givenName","value":"I"}`, "name.familyName", "H"},
			{`{"op":"remove","path":"name.familyName"}`, "name.familyName", ""},
			{`{"op":"add","path":"emails[type eq \"work\"].value","value":"c@x.org"}`, "userName", "c@x.org"},
			{`{"op":"replace","path":"emails[primary eq true].value","value":"d@x.org"}`, "userName", "d@x.org"},
			{`{"op":"replace","path":"emails","value":[{"value":"home@x.org","type":"home"},{"value":"e@x.org","type":"work"}]}`, "userName", "e@x.org"},
			{`{"op":"replace","path":"emails[type eq \"home\"].value","value":"home@x.org"}`, "userName", "e@x.org"},
			{`{"op":"add","path":"emails","value":[{"value":"f@x.org","primary":"True"},{"value":"g@x.org"}]}`, "userName", "f@x.org"},
			{`{"op":"replace","path":"active","value":"false"}`, "active", "false"},
			{`{"op":"replace","path":"active","value":"TRUE"}`, "active", "true"},
			{`{"op":"replace","value":{"active":"False","displayName":"J"}},{"op":"replace","path":"active","value":true}`, "active", "true"},
			{`{"op":"add","path":"externalId","value":"y"}`, "externalId", "y"},
			{`{"op":"remove","path":"externalId"}`, "externalId", ""},
			{`{"op":"add","path":"phoneNumbers[type eq \"work\"].value","value":"1"},{"op":"remove","path":"title"},{"op":"add","path":"addresses[type eq \"work\"].country","value":"x"}`, "displayName", "J"},
			{`{"op":"add","path":"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:manager","value":{"value":"1"}}`, "displayName", "J"},
			{`{"op":"add","path":"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User","value":{"department":"x"}}`, "displayName", "J"},
			{`{"op":"replace","path":"urn:x:y","value":"x"}`, "displayName", "J"},
			{`{"op":"replace","value":{"id":"` + id + `","schemas":[],"meta":{},"groups":[],"displayName":"K"}}`, "displayName", "K"},
		} {
			c.equal(s.operations, patch("200", s.operations).str(s.at), s.want)
			if got := c.scim("200", "GET", "/Users/"+id, ""); got.str(s.at) != s.want {
				t.Errorf("%s: afterwards the user is %s, want %s with the value %s", s.operations, got.text, s.at, s.want)
			}
		}
		before := c.scim("200", "GET", "/Users/"+id, "").text
		good := `{"op":"replace","path":"displayName","value":"never"},{"op":"replace","path":"active","value":false},`
		for operation, want := range map[string]string{
			`{"op":"replace","path":"nosuch","value":"x"}`:                                           "400 invalidPath",
			`{"op":"replace","path":"name.nosuch","value":"x"}`:                                      "400 invalidPath",
			`{"op":"replace","path":"displayName.x","value":"x"}`:                                    "400 invalidPath",
			`{"op":"replace","path":"","value":"x"}`:                                                 "400 invalidPath",
			`{"op":"replace","path":"emails[","value":"x"}`:                                          "400 invalidPath",
			`{"op":"replace","path":"~rev","value":"x"}`:                                             "400 invalidPath",
			`{"op":"replace","path":"email","value":"x@x.org"}`:                                      "400 invalidPath",
			`{"op":"replace","path":"job","value":"admin"}`:                                          "400 invalidPath",
			`{"op":"replace","value":{"nosuch":"x"}}`:                                                "400 invalidPath",
			`{"op":"replace","path":"emails[type sw \"w\"].value","value":"x@x.org"}`:                "400 invalidFilter",
			`{"op":"replace","path":"id","value":"x"}`:                                               "400 mutability",
			`{"op":"replace","path":"groups","value":[]}`:                                            "400 mutability",
			`{"op":"remove","path":"userName"}`:                                                      "400 mutability",
			`{"op":"remove","path":"active"}`:                                                        "400 mutability",
			`{"op":"remove"}`:                                                                        "400 noTarget",
			`{"op":"move","path":"displayName","value":"x"}`:                                         "400 invalidSyntax",
			`{"path":"displayName","value":"x"}`:                                                     "400 invalidSyntax",
			`{"op":"replace","path":"displayName"}`:                                                  "400 invalidValue",
			`{"op":"replace","path":"displayName","value":5}`:                                        "400 invalidValue",
			`{"op":"replace","path":"active","value":"perhaps"}`:                                     "400 invalidValue",
			`{"op":"replace","path":"active","value":1}`:                                             "400 invalidValue",
			`{"op":"replace","value":"x"}`:                                                           "400 invalidValue",
			`{"op":"replace","path":"userName","value":"no address"}`:                                "400 invalidValue",
			`{"op":"replace","path":"userName","value":"b@x.org"}`:                                   "409 uniqueness",
			`{"op":"replace","path":"userName","value":"` + strings.Repeat("x", 99_999) + `@x.org"}`: "400 invalidValue",
		} {
			patch(want, good+operation)
			if now := c.scim("200", "GET", "/Users/"+id, "").text; now != before {
				t.Errorf("%s: afterwards the user is %s, want %s as before", operation, now, before)
			}
		}
		c.scim("400 invalidSyntax", "PATCH", "/Users/"+id, "{"+patchURN+`"Operations":[]}`)
		c.scim("400 invalidSyntax", "PATCH", "/Users/"+id, "{"+patchURN+`"Operations":[`+strings.Repeat(`{"op":"remove","path":"title"},`, 2000)+`{"op":"remove","path":"title"}]}`)
		c.scim("400 invalidSyntax", "PATCH", "/Users/"+id, `[]`)
		c.scim("400 invalidSyntax", "PATCH", "/Users/"+id, ``)
		c.scim("413", "PATCH", "/Users/"+id, `{"x":"`+strings.Repeat("x", 1<<20)+`"}`)
		c.scim("404", "PATCH", "/Users/nobody", "{"+patchURN+`"Operations":[{"op":"replace","path":"active","value":true}]}`)
	})
}

// TestDisabledByDirectory checks that active: false disables a user and ends the session, even if
// the user is active again later, and that the history has both changes.
func TestDisabledByDirectory(t *testing.T) {
	eachDirectory(t, func(t *testing.T, c *client) {
		id := c.createUser("a")
		users := c.Type(t, "user")
		e, err := users.Find(c.Ctx, hints.UID(id))
		must(t, err)
		_, secret, err := users.StartSession(c.Ctx, e, userdb.SessionOptions{})
		must(t, err)
		c.scim("200", "PATCH", "/Users/"+id, "{"+patchURN+`"Operations":[{"op":"replace","value":{"active":false}}]}`)
		if _, _, err := users.Session(c.Ctx, secret); err == nil {
			t.Error("the session is still active")
		}
		c.scim("200", "PATCH", "/Users/"+id, "{"+patchURN+`"Operations":[{"op":"replace","value":{"active":true}}]}`)
		if _, _, err := users.Session(c.Ctx, secret); err == nil {
			t.Error("the session is active again")
		}
		history, err := users.History(c.Ctx, hints.UID(id))
		must(t, err)
		var kinds []string
		for _, e := range history {
			kinds = append(kinds, string(e.Kind)+" "+e.Actor)
		}
		c.equal("history", strings.Join(kinds, ", "), "enable key:directory, disable key:directory, session_start library, create key:directory")
		off := c.scim("201", "POST", "/Users", `{`+userURN+`"userName":"off@x.org","active":false}`)
		c.equal("active of an inactive user", off.str("active"), "false")
		e, err = users.Find(c.Ctx, hints.UID(off.str("id")))
		must(t, err)
		if !e.Disabled() {
			t.Error("the entry is not disabled")
		}
	})
}

// TestPagesOfUsers checks that every user is on exactly one page, whatever the size of pages,
// including disabled users.
func TestPagesOfUsers(t *testing.T) {
	eachDirectory(t, func(t *testing.T, c *client) {
		const n = 230
		var all []userdb.NewEntry
		for i := range n {
			all = append(all, userdb.NewEntry{Facets: schema.Texts("email", fmt.Sprintf("u%d@x.org", i)), Disabled: i%3 == 0})
		}
		users := c.Type(t, "user")
		for _, e := range all {
			_, err := users.Create(c.Ctx, e)
			must(t, err)
		}
		c.equal("count", c.scim("200", "GET", "/Users?count=0", "").str("totalResults"), fmt.Sprint(n))
		if r := c.scim("200", "GET", "/Users?count=0", ""); r.value("Resources.0") != nil || r.str("itemsPerPage") != "0" {
			t.Errorf("count=0: got a resource, or no itemsPerPage of 0: %s", r.text)
		}
		for _, size := range []int{7, 100, 1000} {
			seen := map[string]bool{}
			for start := 1; start <= n; {
				r := c.scim("200", "GET", fmt.Sprintf("/Users?startIndex=%d&count=%d", start, size), "")
				page, _ := r.body["Resources"].([]any)
				if len(page) == 0 || r.str("totalResults") != fmt.Sprint(n) || r.str("startIndex") != fmt.Sprint(start) || r.str("itemsPerPage") != fmt.Sprint(len(page)) {
					t.Fatalf("from %d: no resources, or wrong numbers: %.300s", start, r.text)
				}
				for i := range page {
					seen[fmt.Sprint(r.value(fmt.Sprintf("Resources.%d.id", i)))] = true
				}
				start += len(page)
			}
			if len(seen) != n {
				t.Errorf("pages of %d have %d users, want %d", size, len(seen), n)
			}
		}
		for query, want := range map[string]string{"startIndex=0&count=1": "1", "startIndex=-5&count=1": "1", "startIndex=9999": "0", "count=-3": "0", "startIndex=230&count=10": "1", "startIndex=9223372036854775807&count=10": "0"} {
			c.equal(query, c.scim("200", "GET", "/Users?"+query, "").str("itemsPerPage"), want)
		}
		c.scim("400 invalidValue", "GET", "/Users?count=x", "")
		c.scim("400 invalidValue", "GET", "/Users?startIndex=99999999999999999999", "")
		r := c.scim("200", "GET", "/Users?count=1&attributes=userName", "")
		if r.value("Resources.0.userName") == nil || r.value("Resources.0.id") == nil || r.value("Resources.0.active") != nil || r.value("Resources.0.meta") != nil {
			t.Errorf("attributes=userName: got %s, want only id and userName", r.text)
		}
	})
}

// TestGroups checks that the members of a group have a tag that does not depend on the name of the
// group, and that they lose it when the group is deleted.
func TestGroups(t *testing.T) {
	eachDirectory(t, func(t *testing.T, c *client) {
		a, b := c.createUser("a"), c.createUser("b")
		users := c.Type(t, "user")
		_, err := users.Tags(hints.UID(a)).Add(c.Ctx, "admin")
		must(t, err)
		tags := func(uid string) string {
			all, err := users.Tags(hints.UID(uid)).Members(c.Ctx)
			must(t, err)
			return strings.Join(all, " ")
		}
		g := c.createGroup("admin", a, b)
		c.equal("tags of a, a member", tags(a), "admin scim:"+g)
		c.equal("tags of b, a member", tags(b), "scim:"+g)
		patch := func(want, operations string) {
			c.t.Helper()
			c.scim(want, "PATCH", "/Groups/"+g, "{"+patchURN+`"Operations":[`+operations+"]}")
		}
		patch("204", `{"op":"remove","path":"members"}`)
		c.equal("tags of b after all members were removed", tags(b), "")
		patch("204", `{"op":"add","value":{"members":[{"value":"`+b+`"},{"value":"`+b+`"}]}}`)
		patch("204", `{"op":"replace","path":"members","value":[{"value":"`+a+`"}]},{"op":"add","path":"members","value":[{"value":"`+b+`"}]},{"op":"remove","path":"members[value eq \"`+a+`\"]"}`)
		c.equal("tags of a, who was removed", tags(a), "admin")
		c.equal("tags of b, who was added", tags(b), "scim:"+g)
		patch("400 invalidValue", `{"op":"replace","path":"displayName","value":"x"},{"op":"add","path":"members","value":[{"value":"nobody"}]}`)
		patch("400 invalidValue", `{"op":"add","path":"members","value":[{"value":"`+g+`","type":"Group"}]}`)
		patch("400 invalidValue", `{"op":"add","path":"members","value":"`+b+`"}`)
		patch("400 invalidPath", `{"op":"add","path":"nosuch","value":"x"}`)
		patch("400 mutability", `{"op":"remove","path":"displayName"}`)
		patch("400 mutability", `{"op":"replace","path":"id","value":"x"}`)
		c.equal("name", c.scim("200", "GET", "/Groups/"+g, "").str("displayName"), "admin")
		c.createGroup("Other")
		patch("409 uniqueness", `{"op":"replace","path":"displayName","value":"OTHER"}`)
		c.scim("400 invalidValue", "POST", "/Groups", `{`+groupURN+`"members":[]}`)
		c.scim("400 invalidValue", "POST", "/Groups", `{`+groupURN+`"displayName":"x","members":[{"value":"nobody"}]}`)
		r := c.scim("200", "PATCH", "/Groups/"+g+"?attributes=displayName", "{"+patchURN+`"Operations":[{"op":"replace","path":"displayName","value":"admins"}]}`)
		c.equal("requested attributes", r.str("displayName")+r.str("members"), "admins")
		if r := c.send("GET", "/scim/v2", ""); r.status != http.StatusNotFound || !strings.HasPrefix(r.header.Get("Content-Type"), "application/scim+json") {
			t.Errorf("without a resource: got %d %v, want 404 with a SCIM type", r.status, r.header)
		}
		c.scim("204", "DELETE", "/Groups/"+g, "")
		c.equal("tags of b after the group was deleted", tags(b), "")
		c.scim("404", "DELETE", "/Groups/"+g, "")
		c.scim("404", "PATCH", "/Groups/"+g, "{"+patchURN+`"Operations":[{"op":"replace","path":"displayName","value":"x"}]}`)
		for _, p := range c.Check(t, check.Options{}) {
			if !strings.HasPrefix(p, "field_missing") {
				t.Errorf("check found problems: %v", p)
			}
		}
	})
}

// TestMappedGroup checks that a mapping by name gives the members of a group another tag, including
// the members that the group already has, and that invalid mappings are refused.
func TestMappedGroup(t *testing.T) {
	sc, o := directorySchema()
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), sc)
	c := newDirectory(t, s, o)
	a := c.createUser("a")
	g := c.createGroup("Cooks", a)
	o.Tags = map[string]string{"cooks": "cook"}
	service, err := serve.New(s.DB, serve.Options{Namespace: s.NS, SCIM: &o})
	must(t, err)
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	other := *c
	other.url = server.URL
	c.equal("name of the group", other.scim("200", "GET", "/Groups/"+g, "").str("displayName"), "Cooks")
	tags, err := c.Type(t, "user").Tags(hints.UID(a)).Members(c.Ctx)
	must(t, err)
	c.equal("tags", fmt.Sprint(tags), "[cook]")
	for _, bad := range []map[string]string{{"@user": "t"}, {"@:x": "t"}, {"@a//user:x": "t"}, {"x": ""}, {"": "x"}, {"a": "t", "b": "t"}, {"a": "scim:b"}, {"Cooks": "t", "COOKS": "u"}} {
		if _, err := scim.New(scim.Options{Tags: bad}); err == nil {
			t.Errorf("scim.New accepts the tags %v", bad)
		}
	}
}

// TestMappedElsewhere checks that a mapping applies only to the groups of one type in one
// namespace, and that an id never matches a name. Otherwise another directory could make
// administrators by giving a group the name of one that is mapped.
func TestMappedElsewhere(t *testing.T) {
	sc, o := directorySchema()
	sc.Types["staff"] = sc.Types["user"]
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), sc)
	first := newDirectory(t, s, o)
	id := first.createGroup("Cooks", first.createUser("a"))
	o.Tags = map[string]string{"Store admins": "admin", id: "cook", "@staff:Heads": "head", "@acme/user:Chiefs": "chief"}
	must(t, storeSchema(t, s, "acme", sc))
	service, err := serve.New(s.DB, serve.Options{Namespace: s.NS, SCIM: &o})
	must(t, err)
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	c := *first
	c.url = server.URL
	directories := map[string]*client{
		"user":      c.withKey(c.makeKey(admin.Key{Name: "users", Scopes: []string{admin.ScopeSCIM}, Types: []string{"user"}})),
		"staff":     c.withKey(c.makeKey(admin.Key{Name: "staff", Scopes: []string{admin.ScopeSCIM}, Types: []string{"staff"}})),
		"acme user": c.withKey(c.makeKey(admin.Key{Name: "acme", Scopes: []string{admin.ScopeSCIM}, Namespace: "acme"})),
	}
	for where, want := range map[string]string{"user": "Store admins", "staff": "Heads", "acme user": "Chiefs"} {
		d := directories[where]
		for _, name := range []string{"Store admins", "Heads", "Chiefs", id} {
			r := d.scim("201", "POST", "/Groups", fmt.Sprintf(`{%s"displayName":%q}`, groupURN, name))
			ns, err := s.NS.Sub("acme")
			must(t, err)
			db := s.DB
			if strings.HasPrefix(where, "acme") {
				db, err = db.In(ns)
				must(t, err)
			}
			groups, err := admin.Groups(db, strings.TrimPrefix(where, "acme "))
			must(t, err)
			e, err := groups.Find(c.Ctx, hints.UID(r.str("id")))
			must(t, err)
			if tag := e.Text(admin.GroupTag); (tag != "scim:"+r.str("id")) != (name == want) {
				t.Errorf("%s: the members of %s have the tag %s, want one from the mapping: %v", where, name, tag, name == want)
			}
		}
	}
}

// TestOwnGroups checks that types and namespaces do not share groups, that a key sees only its own,
// and which scopes, paths and methods are refused.
func TestOwnGroups(t *testing.T) {
	sc, o := directorySchema()
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), sc)
	c := newDirectory(t, s, o)
	g := c.createGroup("Cooks", c.createUser("a"))
	elsewhere := c.withKey(c.makeKey(admin.Key{Name: "elsewhere", Scopes: []string{admin.ScopeSCIM}, Namespace: "acme"}))
	must(t, storeSchema(t, s, "acme", sc))
	elsewhere.scim("404", "GET", "/Groups/"+g, "")
	c.equal("groups in another namespace", elsewhere.scim("200", "GET", "/Groups", "").str("totalResults"), "0")
	c.equal("users in another namespace", elsewhere.scim("200", "GET", "/Users", "").str("totalResults"), "0")
	elsewhere.createGroup("Cooks", elsewhere.createUser("a"))

	for scope, want := range map[string]string{admin.ScopeRead: "403", admin.ScopeWrite: "403", admin.ScopeLogin: "403", admin.ScopeAdmin: "200", admin.ScopeSCIM: "200"} {
		key := c.withKey(c.makeKey(admin.Key{Name: "k-" + scope, Scopes: []string{scope}}))
		key.scim(want, "GET", "/Users", "")
	}
	c.withKey("").scim("401", "GET", "/Users", "")
	c.withKey("udb_x").scim("401", "GET", "/Groups/"+g, "")
	c.do("403 scope", "GET", "/v1/types/user/entries", "")
	firm := c.withKey(c.makeKey(admin.Key{Name: "firm", Scopes: []string{admin.ScopeSCIM}, Types: []string{"firm"}}))
	if r := firm.send("GET", "/scim/v2/Users", ""); r.status == 200 {
		t.Errorf("a type without a field for userName is accepted: %s", r.text)
	}
	for _, s := range [][3]string{
		{"404", "GET", "/"},
		{"404", "GET", "/Nosuch"},
		{"404", "GET", "/Users/a/b"},
		{"404", "GET", "/Users/%2e%2e"},
		{"404", "POST", "/Bulk"},
		{"404", "GET", "/Me"},
		{"405", "DELETE", "/Users"},
		{"405", "POST", "/Users/x"},
		{"405", "PUT", "/ServiceProviderConfig"},
		{"404", "GET", "/Users/%00"},
		{"404", "GET", "/Users/" + strings.Repeat("x", 3000)},
	} {
		c.scim(s[0], s[1], s[2], "")
	}
	r := c.send("POST", "/scim/v2/Users", "userName=x", "Content-Type", "application/x-www-form-urlencoded")
	c.equal("response to a form", fmt.Sprint(r.status, " ", r.value("schemas.0")), "415 urn:ietf:params:scim:api:messages:2.0:Error")
}

// storeSchema stores the schema of a namespace inside that of a site.
func storeSchema(t *testing.T, s *testdb.Site, name string, sc schema.Schema) error {
	t.Helper()
	ns, err := s.NS.Sub(name)
	if err != nil {
		return err
	}
	db, err := s.DB.In(ns)
	if err != nil {
		return err
	}
	if db, err = db.With(sc); err != nil {
		return err
	}
	users, err := db.Type("user")
	if err != nil {
		return err
	}
	e, err := users.Create(s.Ctx, userdb.NewEntry{})
	if err != nil {
		return err
	}
	return users.Delete(s.Ctx, hints.UID(e.UID()))
}

// TestServiceDiscovery checks that the service describes itself correctly.
func TestServiceDiscovery(t *testing.T) {
	eachDirectory(t, func(t *testing.T, c *client) {
		r := c.scim("200", "GET", "/ServiceProviderConfig", "")
		for at, want := range map[string]any{"patch.supported": true, "filter.supported": true, "bulk.supported": false, "sort.supported": false, "etag.supported": false, "changePassword.supported": false, "authenticationSchemes.0.type": "oauthbearertoken"} {
			if got := r.value(at); got != want {
				t.Errorf("%s is %v, want %v", at, got, want)
			}
		}
		for _, name := range []string{"User", "Group"} {
			kind := c.scim("200", "GET", "/ResourceTypes/"+name, "")
			c.equal("schema", c.scim("200", "GET", "/Schemas/"+kind.str("schema"), "").str("name"), name)
			if res, err := http.Get(kind.str("meta.location")); err != nil || res.StatusCode != http.StatusOK {
				t.Errorf("location %s: got %v, %v; want 200", kind.str("meta.location"), res, err)
			}
		}
		base := strings.TrimSuffix(r.str("meta.location"), "/ServiceProviderConfig")
		withoutKey := func(method, path string) (int, string) {
			t.Helper()
			req, err := http.NewRequestWithContext(c.Ctx, method, base+path, strings.NewReader("{}"))
			must(t, err)
			res, err := http.DefaultClient.Do(req)
			must(t, err)
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			must(t, err)
			return res.StatusCode, string(text)
		}
		for _, path := range []string{"/ServiceProviderConfig", "/Schemas", "/Schemas/urn:ietf:params:scim:schemas:core:2.0:User", "/ResourceTypes", "/ResourceTypes/Group"} {
			want := c.scim("200", "GET", path, "").text
			if status, got := withoutKey("GET", path); status != 200 || strings.TrimSpace(got) != strings.TrimSpace(want) {
				t.Errorf("%s without a key: got %d %s, want 200 %s", path, status, got, want)
			}
			c.withKey("wrong").scim("401", "GET", path, "")
		}
		for request, want := range map[string]int{
			"GET /Schemas/nosuch": 404, "GET /Schemas?filter=id%20eq%20%22x%22": 403, "POST /Schemas": 401, "GET /Users": 401, "GET /Groups": 401, "GET /nosuch": 401, "GET ": 401,
		} {
			method, path, _ := strings.Cut(request, " ")
			if status, text := withoutKey(method, path); status != want || !strings.Contains(text, "messages:2.0:Error") {
				t.Errorf("%s without a key: got %d %s, want %d", request, status, text, want)
			}
		}
		c.equal("schemas", c.scim("200", "GET", "/Schemas", "").str("totalResults"), "2")
		c.equal("types", c.scim("200", "GET", "/ResourceTypes", "").str("totalResults"), "2")
		c.scim("404", "GET", "/Schemas/nosuch", "")
	})
}

// TestSchemaForDirectories checks that several services at the same time can add to the stored
// schema what SCIM needs, and that existing entries are listed.
func TestSchemaForDirectories(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		sc, o := directorySchema()
		user := sc.Types["user"]
		delete(user.Fields, "added") // as in a schema without it
		s = s.Under(t, sc)
		users := s.Type(t, "user")
		for i := range 3 {
			_, err := users.Create(s.Ctx, userdb.NewEntry{Facets: schema.Texts("email", fmt.Sprintf("old%d@x.org", i))})
			must(t, err)
		}
		var all sync.WaitGroup
		for range 4 {
			service, err := serve.New(s.DB, serve.Options{Namespace: s.NS, SCIM: &o})
			must(t, err)
			all.Go(func() {
				if err := service.PrepareSCIM(s.Ctx); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		c := newDirectory(t, s, o)
		c.createUser("new")
		r := c.scim("200", "GET", "/Users", "")
		page, _ := r.body["Resources"].([]any)
		if r.str("totalResults") != "4" || len(page) != 4 {
			t.Errorf("got %s, want four users", r.text)
		}
	})
}

// TestUnsuitableType checks that if a type has no field for userName, the response says so.
func TestUnsuitableType(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		sc, o := directorySchema()
		sc.Types["robot"] = schema.Type{Primary: "uid", Fields: map[string]schema.Field{"name": {Role: schema.RoleSecondary}}}
		c := newDirectory(t, s.Under(t, sc), o)
		c = c.withKey(c.makeKey(admin.Key{Name: "robots", Types: []string{"robot"}, Scopes: []string{admin.ScopeSCIM}}))
		for range 2 {
			if r := c.scim("500", "GET", "/Users", ""); !strings.Contains(r.str("detail"), `userName cannot be "email"`) {
				t.Errorf("the detail does not name the field of userName: %s", r.text)
			}
		}
	})
}

// TestMappings checks that no attribute can be kept in a field that identifies accounts or that the
// store owns, except userName, and emails in the field of userName. It also checks which mappings
// cannot be read.
func TestMappings(t *testing.T) {
	sc, _ := directorySchema()
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), sc)
	for field, good := range map[string]bool{"display": true, "name": false, "email": false, "uid": false, "added": false, "externalId": false, "nosuch": false, "age": false} {
		for _, attribute := range []string{"displayname", "name.givenname", "emails"} {
			service, err := serve.New(s.DB, serve.Options{Namespace: s.NS, SCIM: &scim.Options{Mapping: scim.Mapping{attribute: field}}})
			must(t, err)
			want := good || field == "email" && attribute == "emails"
			err = service.PrepareSCIM(s.Ctx)
			if (err == nil) != want || err != nil && !errors.Is(err, scim.ErrOptions) {
				t.Errorf("%s in %s: got %v, want success: %v", attribute, field, err, want)
			}
			if err != nil && (strings.Contains(err.Error(), "displayname") || strings.Contains(err.Error(), "givenname")) {
				t.Errorf("%s in %s: got %v, want the attribute as it is written in a mapping", attribute, field, err)
			}
		}
	}
	for _, text := range []string{"", "[]", `{"emails": 1}`, `{"userName": "name"}`, `{"name": "x"}`, `{"emails": "x", "displayName": "x"}`, `{} {}`} {
		if _, err := scim.ReadMapping(strings.NewReader(text)); !errors.Is(err, scim.ErrOptions) {
			t.Errorf("mapping %s: got %v, want ErrOptions", text, err)
		}
	}
}

// TestFarPages checks that a page beyond the largest number is empty, and that a path that is too
// long is refused.
func TestFarPages(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		sc, o := directorySchema()
		c := newDirectory(t, s.Under(t, sc), o)
		id := c.createUser("pat")
		for _, query := range []string{"", "&filter=id%20eq%20%22" + id + "%22"} {
			r := c.scim("200", "GET", "/Users?startIndex=9223372036854775807"+query, "")
			c.equal("users on the page"+query, fmt.Sprint(len(r.body["Resources"].([]any)), r.body["totalResults"]), "0 1")
		}
		c.scim("400 invalidPath", "PATCH", "/Users/"+id, `{"Operations":[{"op":"add","path":"`+strings.Repeat("a", 5000)+`","value":"x"}]}`)
		many := strings.Repeat(`{"op":"remove","path":"members[value  eq \"\\\\`+strings.Repeat("a", 4000)+`\"]"},`, 40)
		c.scim("400 invalidPath", "PATCH", "/Groups/"+c.createGroup("Cooks"), `{"Operations":[`+strings.TrimSuffix(many, ",")+`]}`)
	})
}

// TestOtherAddresses checks that an address that is neither a work address nor the primary one does
// not change the user's identifier.
func TestOtherAddresses(t *testing.T) {
	eachDirectory(t, func(t *testing.T, c *client) {
		id := c.createUser("a")
		for _, op := range []string{"add", "replace"} {
			r := c.scim("200", "PATCH", "/Users/"+id, "{"+patchURN+`"Operations":[{"op":"`+op+`","path":"emails","value":[{"type":"home","value":"home@x.org"}]}]}`)
			c.equal(op, r.str("userName"), "a@x.org")
		}
		r := c.scim("200", "PATCH", "/Users/"+id, "{"+patchURN+`"Operations":[{"op":"add","value":{"emails":{"type":"other","value":"home@x.org"}}}]}`)
		c.equal("userName after a PATCH without a path", r.str("userName"), "a@x.org")
		r = c.scim("200", "PATCH", "/Users/"+id, "{"+patchURN+`"Operations":[{"op":"add","path":"emails","value":[{"type":"home","primary":true,"value":"main@x.org"}]}]}`)
		c.equal("userName after a new primary address", r.str("userName"), "main@x.org")
	})
}

// TestSCIMDetails checks details of RFC 7644 that no other test covers.
func TestSCIMDetails(t *testing.T) {
	eachDirectory(t, func(t *testing.T, c *client) {
		id := c.createUser("a")
		if r := c.scim("405", "PUT", "/Users", "{}"); r.header.Get("Allow") != "GET, POST" {
			t.Errorf("got %v, want the header Allow: GET, POST", r.header)
		}
		b := c.createUser("b")
		full := `{` + userURN + `"userName":%q}`
		c.scim("409 uniqueness", "PUT", "/Users/"+b, fmt.Sprintf(full, "A@x.org"))
		c.scim("409 uniqueness", "POST", "/Users", fmt.Sprintf(full, "A@x.org"))
		c.scim("404", "PUT", "/Users/nobody", fmt.Sprintf(full, "new@x.org"))
		c.scim("200", "PUT", "/Users/"+b, `{`+userURN+`"id":"`+id+`","userName":"b@x.org","active":"False","meta":{"location":"x"}}`)
		r := c.scim("200", "PUT", "/Users/"+b, `{`+userURN+`"USERNAME":"b@x.org","active":null}`)
		c.equal("id", r.str("id"), b)
		c.equal("active", r.str("active"), "false")
		c.equal("externalId", r.str("externalId"), "")
		g := c.createGroup("Cooks", id, b)
		c.scim("204", "DELETE", "/Users/"+b, "")
		r = c.scim("200", "GET", "/Groups/"+g, "")
		if members := r.value("members").([]any); len(members) != 1 || r.value("members.0.value") != id {
			t.Errorf("the group is %s, want the one member that still exists", r.text)
		}
		c.equal("kind", r.str("meta.resourceType"), "Group")
		again := c.scim("201", "POST", "/Users", fmt.Sprintf(full, "b@x.org"))
		c.equal("groups of a new user with an old name", c.scim("200", "GET", "/Groups?filter="+url.QueryEscape(`members eq "`+again.str("id")+`"`), "").str("totalResults"), "0")
		c.equal("location", again.header.Get("Location"), again.str("meta.location"))
		r = c.scim("200", "GET", "/Users/"+id+"?excludedAttributes=urn:ietf:params:scim:schemas:core:2.0:User:userName,id,META", "")
		if r.value("userName") != nil || r.value("id") != id || r.value("meta") != nil || r.value("schemas.0") == nil {
			t.Errorf("excludedAttributes: got %s, want the id and the schemas, but neither userName nor meta", r.text)
		}
		for _, path := range []string{"/Users/" + id, "/Users"} {
			if r := c.scim("200", "GET", path+"?attributes=USERNAME,emails.value", ""); strings.Contains(r.text, "externalId") || !strings.Contains(r.text, "userName") || !strings.Contains(r.text, "emails") {
				t.Errorf("attributes=USERNAME,emails.value: got %s, want userName and emails, but not externalId", r.text)
			}
		}
		r = c.scim("200", "POST", "/Users/.search", `{"startIndex":0,"count":-1,"attributes":["userName"]}`)
		c.equal("counts", fmt.Sprintf("%v %v %v %v", r.value("totalResults"), r.value("startIndex"), r.value("itemsPerPage"), r.value("Resources")), "2 1 0 []")
		c.equal("resources if none match", fmt.Sprint(c.scim("200", "GET", "/Users?filter="+url.QueryEscape(`userName eq "nobody@x.org"`), "").value("Resources")), "[]")
		c.scim("200", "PATCH", "/Users/"+id, "{"+patchURN+`"Operations":[{"op":"Remove","path":"emails[type eq \"work\"]"},{"op":"remove","path":"externalId"}]}`)
	})
}

// TestDuplicateMembersOfDirectories checks that a body is refused if an object in it has two
// members whose names differ only in case, and that nothing is changed.
func TestDuplicateMembersOfDirectories(t *testing.T) {
	eachDirectory(t, func(t *testing.T, c *client) {
		id := c.createUser("a")
		g := c.createGroup("Cooks", id)
		before := c.scim("200", "GET", "/Users/"+id, "").text + c.scim("200", "GET", "/Groups/"+g, "").text
		for _, s := range [][3]string{
			{"POST", "/Users", `{"userName":"b@x.org","USERNAME":"c@x.org"}`},
			{"POST", "/Users", `{"userName":"b@x.org","userName":"c@x.org"}`},
			{"POST", "/Users", `{"userName":"b@x.org","name":{"givenName":"B","GIVENNAME":"C"}}`},
			{"PUT", "/Users/" + id, `{"userName":"a@x.org","active":true,"Active":false}`},
			{"PUT", "/Users/" + id, `{"userName":"a@x.org","emails":[{"value":"b@x.org","Value":"c@x.org"}]}`},
			{"PATCH", "/Users/" + id, `{"Operations":[{"op":"add","path":"displayName","value":"B","Value":"C"}]}`},
			{"PATCH", "/Users/" + id, `{"Operations":[{"op":"add","value":{"displayName":"B","displayname":"C"}}]}`},
			{"PATCH", "/Users/" + id, `{"Operations":[{"op":"remove","path":"title"}],"operations":[{"op":"remove","path":"externalId"}]}`},
			{"POST", "/Groups", `{"displayName":"Chefs","DisplayName":"Cooks"}`},
			{"PATCH", "/Groups/" + g, `{"Operations":[{"op":"remove","path":"members","value":[{"value":"x","VALUE":"` + id + `"}]}]}`},
			{"POST", "/Users/.search", `{"count":1,"Count":2}`},
		} {
			c.scim("400 invalidSyntax", s[0], s[1], s[2])
		}
		if now := c.scim("200", "GET", "/Users/"+id, "").text + c.scim("200", "GET", "/Groups/"+g, "").text; now != before {
			t.Errorf("afterwards the user and the group are %s, want %s as before", now, before)
		}
		c.equal("users", c.scim("200", "GET", "/Users", "").str("totalResults"), "1")
	})
}

// TestReservedFacets checks that a key with only the scope login sets none of the facets that the
// server and directories rely on, whether by an invitation or by a token.
func TestReservedFacets(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		sc, o := directorySchema()
		user := sc.Types["user"]
		user.Fields["externalId"] = schema.Field{Role: schema.RoleSecondary}
		c := newClient(t, s.Under(t, sc), serve.Options{SCIM: &o})
		full := c.withKey(c.makeKey(admin.Key{Name: "full", Scopes: []string{admin.ScopeLogin, admin.ScopeWrite}}))
		login := c.withKey(c.makeKey(admin.Key{Name: "login", Scopes: []string{admin.ScopeLogin}}))
		for i, facets := range []string{`{"externalId":"E-7"}`, `{"added":"2020-01-01T00:00:00Z"}`, `{"display":"D"}`, `{"job":"cook","givenname":"G"}`} {
			invited := login.do("200", "POST", "/v1/types/user/invitations", fmt.Sprintf(`{"field":"email","address":"a%d@example.com"}`, i)).str("secret")
			accept := `{"secret":"` + invited + `","facets":` + facets + `}`
			login.do("403 scope", "POST", "/v1/types/user/invitations/accept", accept)
			full.do("201", "POST", "/v1/types/user/invitations/accept", accept)
		}
		invited := login.do("200", "POST", "/v1/types/user/invitations", `{"field":"email","address":"b@example.com"}`).str("secret")
		uid := login.do("201", "POST", "/v1/types/user/invitations/accept", `{"secret":"`+invited+`","facets":{"name":"bob","job":"cook"}}`).str("entry.uid")
		change := `{"purpose":"change:externalId","uid":"` + uid + `","value":"E-8"}`
		login.do("403 scope", "POST", "/v1/types/user/tokens", change)
		full.do("200", "POST", "/v1/types/user/tokens", change)
		login.do("403 scope", "POST", "/v1/types/user/invitations", `{"field":"externalId","address":"E-9"}`)
		full.do("200", "POST", "/v1/types/user/invitations", `{"field":"externalId","address":"E-9"}`)
		login.do("200", "POST", "/v1/types/user/tokens", strings.NewReplacer("externalId", "email", "E-8", "c@example.com").Replace(change))
	})
}
