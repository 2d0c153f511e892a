package scim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// newMapped returns a directory with a mapping, in which the field email of a user may have the
// given number of values; 0 means one.
func newMapped(t *testing.T, s *testdb.Site, many int, mapping Mapping) directory {
	t.Helper()
	sc := testdb.DefaultSchema()
	sc.Types[UserType].Fields["email"] = schema.Field{Role: schema.RoleSecondary, Kind: "email", Many: many}
	h, err := New(Options{Namespace: s.NS.Path(), Mapping: mapping})
	if err != nil {
		t.Fatal(err)
	}
	d := directory{t, s.Under(t, sc), h}
	d.prepare()
	return d
}

var mapsEmail = Mapping{"emails": "email"}

// userBody returns the body of a user whose userName is name@x.org. emails is JSON, or "" for none.
func userBody(name, emails string) string {
	if emails != "" {
		emails = `,"emails":` + emails
	}
	return expandAddresses(fmt.Sprintf(`{"userName":"%s@"%s}`, name, emails))
}

// expandAddresses replaces each @ that ends a text with @x.org.
func expandAddresses(body string) string { return strings.ReplaceAll(body, `@"`, `@x.org"`) }

// patchBody returns the body of a PATCH with some operations, in which each @ that ends a text
// stands for @x.org.
func patchBody(operations string) string {
	operations = strings.ReplaceAll(operations, `@\"`, `@x.org\"`)
	return expandAddresses(`{"Operations":[` + operations + `]}`)
}

// describeEmails returns the addresses of a user as "a/work* b/home": without their domain, with
// their types, and with an asterisk after a primary one. userName must be the first.
func (d directory) describeEmails(user map[string]any) string {
	d.t.Helper()
	var words []string
	all, _ := user["emails"].([]any)
	for i, one := range all {
		m := one.(map[string]any)
		word := strings.TrimSuffix(m["value"].(string), "@x.org")
		if i == 0 && m["value"] != user["userName"] {
			d.t.Errorf("userName is not the first address: %v", user)
		}
		if kind, has := m["type"]; has {
			word += "/" + kind.(string)
		}
		if m["primary"] == true {
			word += "*"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func (d directory) wantEmails(what, id, want string) {
	d.t.Helper()
	if got := d.describeEmails(d.must("GET", "/Users/"+id, "")); got != want {
		d.t.Errorf("%s: the user has %s, want %s", what, got, want)
	}
}

// find returns the number of users that a filter finds.
func (d directory) find(filter string) any {
	d.t.Helper()
	return d.must("GET", "/Users?filter="+url.QueryEscape(strings.ReplaceAll(filter, `@"`, `@x.org"`)), "")["totalResults"]
}

func (d directory) wantNoProblems() {
	d.t.Helper()
	problems := slices.DeleteFunc(d.Check(d.t, check.Options{}), func(problem string) bool {
		return strings.HasPrefix(problem, "field_missing ") // directories set no name
	})
	if len(problems) > 0 {
		d.t.Errorf("check found problems: %v", problems)
	}
}

// twoEmails are the addresses of a user before a change.
const twoEmails = `[{"value":"a@","type":"work","primary":true},{"value":"b@","type":"home"}]`

// TestEmailsOfResources checks the addresses of a user after a POST and a PUT.
func TestEmailsOfResources(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		d := newMapped(t, s, 4, mapsEmail)
		for _, test := range []struct{ emails, want string }{
			{"", "a/work*"},
			{"[]", "a/work*"},
			{"null", "a/work*"},
			{twoEmails, "a/work* b/home"},
			{`[{"value":"b@","type":"home"},{"value":"a@","type":"work"}]`, "a/work* b/home"},
			{`[{"value":"b@","type":"work","primary":true}]`, "a* b/work"},
			{`[{"value":"b@","type":"home","primary":"True"},{"value":"c@"}]`, "a/work* b/home c"},
			{`{"value":"b@"}`, "a/work* b"},
			{`[{"VALUE":"b@","Type":"Other","display":"x"}]`, "a/work* b/Other"},
			{`[{"value":"b@","type":"work","primary":true},{"value":"B@","type":"home","primary":false}]`, "a* b/work"},
			{`[{"value":" b@x.org ","type":null}]`, "a/work* b"},
			{`[{"value":"a@","type":"home"},{"value":"b@"},{"value":"c@"},{"value":"d@"}]`, "a/home* b c d"},
		} {
			user := d.must("POST", "/Users", userBody("a", test.emails))
			if got := d.describeEmails(user); got != test.want {
				t.Errorf("POST %s: got %s, want %s", test.emails, got, test.want)
			}
			id := user["id"].(string)
			d.wantEmails("POST "+test.emails, id, test.want)
			d.must("DELETE", "/Users/"+id, "")

			id = d.must("POST", "/Users", userBody("z", `[{"value":"y@","type":"work"},{"value":"b@","type":"other"}]`))["id"].(string)
			if got := d.describeEmails(d.must("PUT", "/Users/"+id, userBody("a", test.emails))); got != test.want {
				t.Errorf("PUT %s: got %s, want %s", test.emails, got, test.want)
			}
			d.wantEmails("PUT "+test.emails, id, test.want)
			d.must("DELETE", "/Users/"+id, "")
		}
		id := d.must("POST", "/Users", userBody("a", twoEmails))["id"].(string)
		d.must("POST", "/Users", userBody("taken", ""))
		for emails, want := range map[string]string{
			`[{"value":"c@","primary":true},{"value":"d@","primary":"True"}]`: "400 invalidValue",
			`[{"value":"c@"},{"value":"d@"},{"value":"e@"},{"value":"f@"}]`:   "400 invalidValue",
			`["c@"]`:                           "400 invalidValue",
			`[null]`:                           "400 invalidValue",
			`[{"value":""}]`:                   "400 invalidValue",
			`[{"value":5}]`:                    "400 invalidValue",
			`[{"type":"work"}]`:                "400 invalidValue",
			`[{"value":"c@","type":5}]`:        "400 invalidValue",
			`[{"value":"c@","type":"-"}]`:      "400 invalidValue",
			`[{"value":"c@","primary":"yes"}]`: "400 invalidValue",
			`[{"value":"no address"}]`:         "400 invalidValue",
			`[{"value":"c@","type":"` + strings.Repeat("x", 65) + `"}]`:           "400 invalidValue",
			`[` + strings.Repeat(`{"value":"c@"},`, maxNamed) + `{"value":"d@"}]`: "400 invalidValue",
			`[{"value":"taken@"}]`: "409 uniqueness",
		} {
			d.wantRefused(want, "POST", "/Users", userBody("new", emails))
			d.wantRefused(want, "PUT", "/Users/"+id, userBody("a", emails))
		}
		d.wantEmails("after refusals", id, "a/work* b/home")
		d.wantNoProblems()
	})
}

// wantRefused checks the status and the scimType of a response.
func (d directory) wantRefused(want, method, path, body string) {
	d.t.Helper()
	var status int
	var kind string
	if _, err := fmt.Sscanf(want, "%d %s", &status, &kind); err != nil {
		d.t.Fatal(err)
	}
	d.wantError(status, kind, method, path, body)
}

// TestEmailsOfPatches checks the addresses of a user after operations of a PATCH.
func TestEmailsOfPatches(t *testing.T) {
	const (
		home    = `emails[type eq \"home\"]`
		work    = `emails[type eq \"work\"]`
		userURN = urnUser + ":"
	)
	operation := func(op, path, value string) string {
		if value != "" {
			value = `,"value":` + value
		}
		if path != "" {
			path = `,"path":"` + path + `"`
		}
		return fmt.Sprintf(`{"op":%q%s%s}`, op, path, value)
	}
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		d := newMapped(t, s, 4, mapsEmail)
		for _, test := range []struct{ operations, want string }{
			// Lists.
			{operation("add", "emails", `[{"value":"c@","type":"other"}]`), "a/work* b/home c/other"},
			{operation("add", "emails", `{"value":"c@"}`), "a/work* b/home c"},
			{operation("add", "emails", `[{"value":"B@"},{"value":"a@"}]`), "a/work* b/home"},
			{operation("add", "emails", `[{"value":"b@","type":"other"}]`), "a/work* b/other"},
			{operation("add", "emails", `[{"value":"b@","primary":"True"}]`), "b/home* a/work"},
			{operation("add", "emails", `[{"value":"c@","primary":true},{"value":"d@","primary":false}]`), "c* a/work b/home d"},
			{operation("add", "", `{"emails":[{"value":"c@"}]}`), "a/work* b/home c"},
			{operation("add", "emails", `null`), "a/work* b/home"},
			{operation("replace", "emails", `[{"value":"b@"},{"value":"a@"}]`), "a/work* b"},
			{operation("replace", "emails", `[{"value":"b@"},{"value":"c@","type":"work"}]`), "c/work* b"},
			{operation("replace", "emails", `[{"value":"c@"}]`), "c/work*"},
			{operation("replace", "emails", `[{"value":"c@","type":"home"}]`), "a/work* c/home"},
			{operation("replace", "emails", `[{"value":"b@","type":"home","primary":true}]`), "b/home*"},
			{operation("replace", userURN+"emails", `[]`), "a/work*"},
			{operation("replace", "emails", `null`), "a/work*"},
			{operation("remove", "emails", ""), "a/work*"},
			{operation("Remove", "emails", `[{"value":"b@"}]`), "a/work*"},
			{operation("remove", "emails", `[]`), "a/work* b/home"},
			{operation("remove", "emails", "") + "," + operation("add", "emails", `[{"value":"c@"}]`), "a/work* c"},

			// Addresses of a type.
			{operation("Replace", home+".value", `"c@"`), "a/work* c/home"},
			{operation("Add", `emails[type eq \"other\"].value`, `"c@"`), "a/work* b/home c/other"},
			{operation("replace", "", `{"emails[type eq \"home\"].value":"c@","emails[type eq \"other\"].value":"d@"}`), "a/work* c/home d/other"},
			{operation("replace", userURN+home+".value", `"B@"`), "a/work* B/home"},
			{operation("replace", home+".value", `"A@"`), "a/home*"},
			{operation("replace", work+".value", `"c@"`), "c/work* b/home"},
			{operation("replace", work+".value", `"b@"`), "b/work*"},
			{operation("replace", work+".type", `"home"`) + "," + operation("replace", home+".value", `"c@"`), "c/home*"},
			{operation("remove", home, ""), "a/work*"},
			{operation("Remove", home+".value", ""), "a/work*"},
			{operation("replace", home+".value", `""`), "a/work*"},
			{operation("remove", work, ""), "a/work* b/home"},
			{operation("remove", `emails[type eq \"other\"]`, ""), "a/work* b/home"},
			{operation("remove", `emails[type eq \"other\"].type`, ""), "a/work* b/home"},
			{operation("add", home, `{"value":"c@","type":"other","primary":"true"}`), "c/other* a/work"},
			{operation("add", home, `[{"primary":true}]`), "b/home* a/work"},
			{operation("replace", home+".display", `"x"`), "a/work* b/home"},

			// Other filters.
			{operation("remove", `emails[value eq \"B@\"]`, ""), "a/work*"},
			{operation("remove", `emails[value eq \"b@\" and type eq \"home\"]`, ""), "a/work*"},
			{operation("remove", `emails[value eq \"b@\" and type eq \"work\"]`, ""), "a/work* b/home"},
			{operation("remove", `emails[primary eq false]`, ""), "a/work*"},
			{operation("replace", `emails[value eq \"b@\"].value`, `"c@"`), "a/work* c/home"},
			{operation("replace", `emails[value eq \"b@\"].type`, `"other"`), "a/work* b/other"},
			{operation("remove", `emails[value eq \"b@\"].type`, ""), "a/work* b"},
			{operation("replace", `emails[primary eq true].value`, `"c@"`), "c/work* b/home"},
			{operation("replace", `emails[primary eq \"True\"].type`, `"other"`), "a/other* b/home"},
			{operation("replace", "emails.value", `"c@"`), "c/work* b/home"},

			// Which one is primary.
			{operation("replace", home+".primary", `"True"`), "b/home* a/work"},
			{operation("replace", `emails[value eq \"b@\"].primary`, `true`), "b/home* a/work"},
			{operation("replace", work+".primary", `"False"`) + "," + operation("replace", home+".primary", `true`), "b/home* a/work"},
			{operation("replace", work+".primary", `false`), "a/work* b/home"},
			{operation("remove", `emails[value eq \"a@\"]`, "") + "," + operation("replace", home+".primary", `true`), "b/home*"},

			// Together with userName.
			{operation("replace", "userName", `"c@"`), "c/work* b/home"},
			{operation("replace", "userName", `"b@"`), "b/home*"},
			{operation("Replace", "userName", `"c@"`) + "," + operation("Replace", work+".value", `"c@"`), "c/work* b/home"},
			{operation("Replace", work+".value", `"d@"`) + "," + operation("Replace", "userName", `"c@"`), "c* b/home d/work"},
			{
				operation("replace", work+".value", `"d@"`) + "," + operation("replace", work+".primary", `true`) + "," +
					operation("replace", "", `{"userName":"c@","active":false}`), "c* b/home d/work",
			},
			{operation("replace", "", `{"userName":"c@","emails":[{"value":"d@","type":"work","primary":true}]}`), "c* d/work"},
			{operation("replace", "userName", `"c@"`) + "," + operation("remove", "emails", ""), "c/work*"},
		} {
			id := d.must("POST", "/Users", userBody("a", twoEmails))["id"].(string)
			if got := d.describeEmails(d.must("PATCH", "/Users/"+id, patchBody(test.operations))); got != test.want {
				t.Errorf("%s: got %s, want %s", test.operations, got, test.want)
			}
			d.wantEmails(test.operations, id, test.want)
			d.must("DELETE", "/Users/"+id, "")
		}

		id := d.must("POST", "/Users", userBody("a", twoEmails))["id"].(string)
		d.must("POST", "/Users", userBody("taken", `[{"value":"also-taken@"}]`))
		long := strings.Repeat("x", 65)
		for operations, want := range map[string]string{
			// Contradictions.
			operation("replace", home+".value", `"c@"`) + "," + operation("replace", home+".value", `"d@"`):                        "400 invalidValue",
			operation("add", "emails", `[{"value":"c@","primary":true},{"value":"d@","primary":true}]`):                            "400 invalidValue",
			operation("add", "emails", `[{"value":"c@","primary":true}]`) + "," + operation("replace", home+".primary", `true`):    "400 invalidValue",
			operation("replace", home+".primary", `true`) + "," + operation("replace", `emails[value eq \"b@\"].primary`, `false`): "400 invalidValue",
			operation("add", "emails", `[{"value":"c@"}]`) + "," + operation("remove", `emails[value eq \"c@\"]`, ""):              "400 invalidValue",
			operation("replace", home+".value", `"c@"`) + "," + operation("remove", "emails", ""):                                  "400 invalidValue",
			operation("replace", "userName", `"c@"`) + "," + operation("remove", `emails[value eq \"c@\"]`, ""):                    "400 invalidValue",
			operation("replace", "", `{"userName":"c@"}`) + "," + operation("replace", home, `{"value":"d@","primary":true}`) + "," +
				operation("add", "emails", `[{"value":"b@","primary":true}]`): "400 invalidValue",
			operation("replace", `emails[primary eq false].type`, `"work"`) + "," + operation("replace", work+".primary", `true`): "400 invalidValue",

			operation("remove", `emails[value eq \"a@\"]`, ""):                                                 "400 mutability",
			operation("remove", "emails", `[{"value":"a@"}]`):                                                  "400 mutability",
			operation("replace", `emails[value eq \"c@\"].value`, `"d@"`):                                      "400 noTarget",
			operation("replace", `emails[type eq \"other\"].primary`, `true`):                                  "400 noTarget",
			operation("replace", home+".primary", `"perhaps"`):                                                 "400 invalidValue",
			operation("replace", home+".primary", `1`):                                                         "400 invalidValue",
			operation("replace", home+".value", `5`):                                                           "400 invalidValue",
			operation("replace", home, `[{"value":"c@"},{"value":"d@"}]`):                                      "400 invalidValue",
			operation("replace", home, `"c@"`):                                                                 "400 invalidValue",
			operation("replace", home+".type", `"`+long+`"`):                                                   "400 invalidValue",
			operation("replace", `emails[type eq \"`+long+`\"].value`, `"c@"`):                                 "400 invalidValue",
			operation("replace", home+".value", `"no address"`):                                                "400 invalidValue",
			operation("replace", home+".nosuch", `"c@"`):                                                       "400 invalidPath",
			operation("replace", `emails[type eq \"home\" or type eq \"work\"].value`, `"c@"`):                 "400 invalidFilter",
			operation("replace", `emails[not (type eq \"home\")].value`, `"c@"`):                               "400 invalidFilter",
			operation("replace", `emails[type sw \"h\"].value`, `"c@"`):                                        "400 invalidFilter",
			operation("replace", `emails[display eq \"h\"].value`, `"c@"`):                                     "400 invalidFilter",
			operation("replace", `emails[primary eq \"perhaps\"].value`, `"c@"`):                               "400 invalidFilter",
			operation("replace", home+".value", `"taken@"`):                                                    "409 uniqueness",
			operation("add", "emails", `[{"value":"also-taken@"}]`):                                            "409 uniqueness",
			operation("add", "emails", `[{"value":"c@"},{"value":"d@"},{"value":"e@"}]`):                       "400 invalidValue",
			strings.TrimSuffix(strings.Repeat(operation("add", home+".value", `"c@"`)+",", maxNamed/2+1), ","): "400 invalidValue",
		} {
			disable := operation("replace", "active", "false") + ","
			d.wantRefused(want, "PATCH", "/Users/"+id, patchBody(disable+operations))
			user := d.must("GET", "/Users/"+id, "")
			if got := d.describeEmails(user); got != "a/work* b/home" || user["active"] != true {
				t.Fatalf("%s: afterwards the user has %s; active is %v", operations, got, user["active"])
			}
		}
		d.wantNoProblems()
	})
}

// TestEmailsFilter checks how many users a filter by an address finds, and which filters are
// refused, if users may have several addresses.
func TestEmailsFilter(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		d := newMapped(t, s, 4, mapsEmail)
		d.must("POST", "/Users", userBody("a", twoEmails))
		d.must("POST", "/Users", userBody("c", `[{"value":"d@"}]`))
		// The first address of the user c has the type work by default.
		for filter, want := range map[string]float64{
			`emails eq "b@"`:                                  1,
			`EMAILS EQ "B@"`:                                  1,
			`emails.value eq "b@"`:                            1,
			`emails[value eq "b@"]`:                           1,
			`emails[type eq "home" and value eq "b@"]`:        1,
			`emails[value eq "b@" and type eq "HOME"]`:        1,
			`emails[type eq "home"].value eq "b@"`:            1,
			`emails[type eq "work"].value eq "b@"`:            0,
			`emails[type eq "home"].value eq "a@"`:            0,
			`emails[type eq "work"].value eq "c@"`:            1,
			`emails[type eq "work"].value eq "d@"`:            0,
			`emails eq "nobody@"`:                             0,
			`emails eq "no address"`:                          0,
			`emails.type eq "home" and emails eq "a@"`:        1,
			`emails.type eq "other" and emails eq "a@"`:       0,
			`emails[type eq "home"] and userName eq "a@"`:     1,
			`userName eq "a@" and emails.value eq "b@"`:       1,
			`userName eq "c@" and emails.value eq "b@"`:       0,
			`userName eq "b@"`:                                0,
			urnUser + `:emails.value eq "d@"`:                 1,
			urnUser + `:emails[type eq "home"].value eq "b@"`: 1,
		} {
			if got := d.find(filter); got != want {
				t.Errorf("%s: found %v users, want %v", filter, got, want)
			}
		}
		for _, filter := range []string{
			`emails.type eq "home"`, `emails[type eq "home"]`, `emails.type eq "home" and emails[type eq "work"]`, `emails[primary eq true]`, `emails.primary eq true`,
			`emails co "b@"`, `emails pr`, `emails eq "a@" or emails eq "b@"`, `emails eq "a@" and emails.value eq "b@"`, `emails[type eq "home" and type eq "work"]`,
			`emails[value eq "a@" and value eq "b@"]`, `not (emails eq "a@")`, `emails.display eq "x"`, `emails[value eq "b@" and primary eq true]`,
		} {
			d.wantError(http.StatusBadRequest, invalidFilter, "GET", "/Users?filter="+url.QueryEscape(filter), "")
		}
		var listed []string
		for _, one := range d.must("GET", "/Users", "")["Resources"].([]any) {
			listed = append(listed, d.describeEmails(one.(map[string]any)))
		}
		if slices.Sort(listed); !slices.Equal(listed, []string{"a/work* b/home", "c/work* d"}) {
			t.Errorf("the list has %q, want the addresses of both users", listed)
		}
	})
}

// TestSingleEmail checks that users have only one address if their type allows only one, and that
// the schemas describe what a type allows.
func TestSingleEmail(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		d := newMapped(t, s, 0, mapsEmail)
		id := d.must("POST", "/Users", userBody("a", `[{"value":"b@","primary":true,"type":"home"},{"value":"c@","primary":true}]`))["id"].(string)
		d.wantEmails("POST", id, "a/work*")
		for operations, want := range map[string]string{
			`{"op":"add","path":"emails","value":[{"value":"b@","type":"home"}]}`:                                                             "a/work*",
			`{"op":"replace","path":"emails[type eq \"home\"].value","value":"b@"}`:                                                           "a/work*",
			`{"op":"replace","path":"emails[type eq \"work\"].value","value":"a@"},{"op":"remove","path":"emails"}`:                           "a/work*",
			`{"op":"replace","path":"emails[type eq \"work\"].value","value":"b@"},{"op":"replace","path":"emails","value":[{"value":"a@"}]}`: "a/work*",
		} {
			d.must("PATCH", "/Users/"+id, patchBody(operations))
			d.wantEmails(operations, id, want)
		}
		d.wantRefused("400 invalidFilter", "PATCH", "/Users/"+id, patchBody(`{"op":"remove","path":"emails[value eq \"a@\"]"}`))
		for _, filter := range []string{`emails eq "a@x.org"`, `emails.type eq "work" and userName eq "a@x.org"`, `emails[type eq "home"].value eq "a@x.org"`} {
			d.wantError(http.StatusBadRequest, invalidFilter, "GET", "/Users?filter="+url.QueryEscape(filter), "")
		}
		if got := d.find(`emails[type eq "work"].value eq "a@"`); got != 1.0 {
			t.Errorf("a filter by the work address a found %v users, want 1", got)
		}
		fields, err := d.Raw.HKeys(d.Ctx, d.Key("user/uid:"+id)).Result()
		if slices.Sort(fields); err != nil || slices.ContainsFunc(fields, func(f string) bool { return strings.HasPrefix(f, "~also") || strings.HasPrefix(f, "~label") }) {
			t.Errorf("the entry has the fields %v, %v; want none for further addresses", fields, err)
		}

		for many, want := range map[int]string{0: `["work"] none readWrite`, 4: `["work","home","other"] server readWrite`} {
			if got := emailsSchema(t, many, mapsEmail); got != want {
				t.Errorf("many %d: the schema says %s, want %s", many, got, want)
			}
		}
		if got, want := emailsSchema(t, 4, nil), `["work","home","other"] server readOnly`; got != want {
			t.Errorf("emails not mapped: the schema says %s, want %s", got, want)
		}
	})
}

// emailsSchema returns properties of emails from the schema of users: the types, the uniqueness of
// a value, and the mutability.
func emailsSchema(t *testing.T, many int, mapping Mapping) string {
	t.Helper()
	h, err := New(Options{Mapping: mapping})
	if err != nil {
		t.Fatal(err)
	}
	user := testdb.DefaultSchema().Types[UserType]
	user.Fields["email"] = schema.Field{Role: schema.RoleSecondary, Kind: "email", Many: many}
	fields, err := h.options.fields(user)
	if err != nil {
		t.Fatal(err)
	}
	c := &call{collection: &collection{h: h, schema: user, fields: fields}}
	for _, one := range c.schemas()[0]["attributes"].([]any) {
		a := one.(map[string]any)
		if a["name"] != "emails" {
			continue
		}
		parts := a["subAttributes"].([]any)
		kinds, err := json.Marshal(parts[1].(map[string]any)["canonicalValues"])
		if err != nil || a["multiValued"] != true {
			t.Fatal(a, err)
		}
		return fmt.Sprint(string(kinds), " ", parts[0].(map[string]any)["uniqueness"], " ", a["mutability"])
	}
	return ""
}

// TestEmailsNotMapped checks the attribute emails if the options do not map it. It must show all
// addresses in the field of userName, and a request that changes emails must leave the addresses as
// they are.
func TestEmailsNotMapped(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		d := newMapped(t, s, 4, nil)
		users := d.Type(t, UserType)
		e, err := users.Create(d.Ctx, userdb.NewEntry{
			Values: map[string][]string{"email": {"a@x.org", "b@x.org"}},
			Labels: map[string]map[string]string{"email": {"b@x.org": "home"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		d.wantEmails("before", e.UID(), "a/work* b/home")
		d.must("PATCH", "/Users/"+e.UID(), patchBody(`{"op":"replace","path":"emails[type eq \"home\"].value","value":"c@"},{"op":"remove","path":"emails"}`))
		d.must("PUT", "/Users/"+e.UID(), userBody("a", `[{"value":"c@"}]`))
		d.wantEmails("after", e.UID(), "a/work* b/home")
		if got := d.find(`emails eq "b@"`); got != 1.0 {
			t.Errorf("a filter by the address b found %v users, want 1", got)
		}
	})
}

// TestEmailsAreUnverified checks that an address from a directory is not verified, and that an
// address that the owner has verified stays verified if the directory changes others.
func TestEmailsAreUnverified(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		d := newMapped(t, s, 4, mapsEmail)
		users := d.Type(t, UserType)
		id := d.must("POST", "/Users", userBody("a", twoEmails))["id"].(string)
		d.must("PATCH", "/Users/"+id, patchBody(`{"op":"add","path":"emails","value":[{"value":"c@"}]}`))
		verified := func() (all []string) {
			e, err := users.Find(d.Ctx, hints.UID(id))
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range e.TextValues("email") {
				if v.Verified {
					all = append(all, v.Text)
				}
			}
			return all
		}
		if got := verified(); got != nil {
			t.Errorf("%q are verified, want none", got)
		}
		_, address, err := users.IssueForVisitor(d.Ctx, "email", "b@x.org", userdb.Token{Purpose: "reset"}, userdb.Attempt{})
		if err != nil || address != "a@x.org" {
			t.Errorf("a secret is sent to %s, %v; want the first address", address, err)
		}
		secret, err := users.Issue(d.Ctx, hints.UID(id), userdb.Token{Purpose: userdb.PurposeAdd + "email", Value: "b@x.org"})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := users.Redeem(d.Ctx, userdb.PurposeAdd+"email", secret); err != nil {
			t.Fatal(err)
		}
		d.must("PATCH", "/Users/"+id, patchBody(`{"op":"replace","path":"emails[type eq \"home\"].primary","value":true},{"op":"remove","path":"emails[value eq \"c@\"]"}`))
		d.must("PUT", "/Users/"+id, userBody("b", twoEmails))
		if got := verified(); !slices.Equal(got, []string{"b@x.org"}) {
			t.Errorf("%q are verified, want b@x.org", got)
		}
		d.wantEmails("after the changes", id, "b/home* a/work")
		d.wantNoProblems()
	})
}

// TestEmailsAtOnce checks that only one user gets an address if several requests give it to
// different users at the same time.
func TestEmailsAtOnce(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		d := newMapped(t, s, 4, mapsEmail)
		ids := make([]string, 6)
		for i := range ids {
			ids[i] = d.must("POST", "/Users", userBody(fmt.Sprint("u", i), ""))["id"].(string)
		}
		failed := make([]error, len(ids))
		var all sync.WaitGroup
		for i, id := range ids {
			all.Go(func() {
				_, failed[i] = d.send("PATCH", "/Users/"+id, patchBody(`{"op":"add","path":"emails[type eq \"work\"].value","value":"u`+fmt.Sprint(i)+`@"},{"op":"add","path":"emails","value":[{"value":"wanted@"}]}`))
			})
		}
		all.Wait()
		owners := 0
		for i, id := range ids {
			want := fmt.Sprintf("u%d/work*", i)
			if failed[i] == nil {
				owners, want = owners+1, want+" wanted"
			}
			d.wantEmails("at once", id, want)
		}
		if owners != 1 || d.find(`emails eq "wanted@"`) != 1.0 {
			t.Errorf("%d users have the address, want 1: %v", owners, failed)
		}
		d.wantNoProblems()
	})
}

// TestEmailsUsage checks that every value counts towards the size limit of a response.
func TestEmailsUsage(t *testing.T) {
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testdb.DefaultSchema())
	var texts []string
	for i := range 4 {
		texts = append(texts, fmt.Sprintf("%d%s@x.org", i, strings.Repeat("x", 50)))
	}
	e, err := s.Type(t, UserType).Create(s.Ctx, userdb.NewEntry{Values: map[string][]string{"email": texts}})
	if err != nil {
		t.Fatal(err)
	}
	var u usage
	u.add([]userdb.Entry{e})
	facets := 0
	for field, v := range e.Facets() {
		facets += len(field) + len(v.Wire())
	}
	if want := facets + 3*len("email"+texts[0]); u.bytes != want {
		t.Errorf("counted %d bytes, want %d", u.bytes, want)
	}
}
