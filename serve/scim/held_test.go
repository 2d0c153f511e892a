package scim

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// newHolding returns a directory whose users hold the addresses and external IDs that they give up,
// and whose UIDs are retired.
func newHolding(t *testing.T, s *testdb.Site) directory {
	t.Helper()
	sc, hour := testdb.DefaultSchema(), schema.Period(time.Hour)
	user := sc.Types[UserType]
	user.Retire = true
	user.Fields["email"] = schema.Field{Role: schema.RoleSecondary, Kind: "email", Many: 4, Hold: hour}
	user.Fields[externalField] = schema.Field{Role: schema.RoleSecondary, Typed: new(false), Hold: hour}
	sc.Types[UserType] = user
	h, err := New(Options{Namespace: s.NS.Path(), Mapping: mapsEmail})
	if err != nil {
		t.Fatal(err)
	}
	d := directory{t, s.Under(t, sc), h}
	d.prepare()
	return d
}

// verify marks the first address of a user as verified.
func (d directory) verify(id string) {
	d.t.Helper()
	users := d.Type(d.t, UserType)
	secret, _, err := users.IssueFor(d.Ctx, hints.UID(id), "email", userdb.Token{Purpose: "verify", Lifetime: time.Hour})
	if err == nil {
		_, _, err = users.Redeem(d.Ctx, "verify", secret)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// TestHeldValues checks that no request gives a user an address or an external ID that another user
// holds, and that the holder can get it back.
func TestHeldValues(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		d := newHolding(t, s)
		const external = `,"externalId":"E-1"`
		body := func(name, more string) string { return strings.Replace(userBody(name, ""), "}", more+"}", 1) }
		gone := d.must("POST", "/Users", body("gone", external))["id"].(string)
		moved := d.must("POST", "/Users", body("before", `,"externalId":"E-2"`))["id"].(string)
		other := d.must("POST", "/Users", userBody("other", twoEmails))["id"].(string)
		d.verify(gone)
		d.verify(moved)
		d.must("DELETE", "/Users/"+gone, "")
		d.must("PATCH", "/Users/"+moved, patchBody(`{"op":"replace","path":"userName","value":"after@"},{"op":"remove","path":"externalId"}`))

		before := d.must("GET", "/Users/"+other, "")
		for _, held := range []string{"gone", "before"} {
			d.wantError(409, uniqueness, "POST", "/Users", userBody(held, ""))
			d.wantError(409, uniqueness, "POST", "/Users", userBody("new", `[{"value":"`+held+`@","type":"home"}]`))
			d.wantError(409, uniqueness, "POST", "/Users", userBody("new", `[{"value":"`+held+`@","primary":true},{"value":"x@"}]`))
			d.wantError(409, uniqueness, "PUT", "/Users/"+other, userBody(held, ""))
			d.wantError(409, uniqueness, "PUT", "/Users/"+other, userBody("other", `[{"value":"`+held+`@"}]`))
			for _, operation := range []string{
				`{"op":"replace","path":"userName","value":"` + held + `@"}`,
				`{"op":"add","path":"emails","value":[{"value":"` + held + `@","primary":true}]}`,
				`{"op":"replace","path":"emails[type eq \"home\"].value","value":"` + held + `@"}`,
			} {
				d.wantError(409, uniqueness, "PATCH", "/Users/"+other, patchBody(operation))
			}
		}
		for _, held := range []string{"E-1", "E-2"} {
			d.wantError(409, uniqueness, "POST", "/Users", body("new", `,"externalId":"`+held+`"`))
			d.wantError(409, uniqueness, "PATCH", "/Users/"+other, patchBody(`{"op":"add","path":"externalId","value":"`+held+`"}`))
		}
		if after := d.must("GET", "/Users/"+other, ""); d.describeEmails(after) != d.describeEmails(before) || after["externalId"] != nil {
			t.Errorf("after the refusals the user is %v, want %v as before", after, before)
		}
		_, err := d.send("POST", "/Users", userBody("gone", ""))
		refused, is := errors.AsType[*Error](err)
		if want := "taken: userName or emails: a resource that had this value holds it for a time"; !is || refused.Detail != want {
			t.Errorf("the response says %v, want %s", err, want)
		}
		if n := d.find(`userName eq "before@"`); n != 0.0 {
			t.Errorf("%v users are found by an address that is held, want none", n)
		}
		d.must("PATCH", "/Users/"+moved, patchBody(`{"op":"replace","path":"userName","value":"before@"},{"op":"add","path":"externalId","value":"E-2"}`))
		if id := d.must("POST", "/Users", userBody("new", ""))["id"]; id == gone {
			t.Errorf("a new user has the id %s, which is retired", id)
		}
		d.wantError(404, "", "PUT", "/Users/"+gone, userBody("gone", ""))
		d.wantNoProblems()
	})
}

// TestUntypedExternalID checks an externalId that the schema makes an untyped identifier: no two
// users get the same one, even if they ask at the same time; it may be the userName of another
// user; and filters find users by it.
func TestUntypedExternalID(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		d := newHolding(t, s)
		if f := d.h.cached(d.NS.Path() + "\x00" + UserType).schema.Fields[externalField]; f.Role != schema.RoleSecondary {
			t.Errorf("externalId has the role %v, want only %v", f.Role, schema.RoleSecondary)
		}
		body := func(name, external string) string {
			return expandAddresses(`{"userName":"` + name + `@","externalId":"` + external + `"}`)
		}
		a := d.must("POST", "/Users", body("a", "b@x.org"))["id"].(string)
		b := d.must("POST", "/Users", body("b", "E-2"))["id"].(string)
		for filter, want := range map[string]float64{
			`externalId eq "b@x.org"`: 1, `externalId eq "E-2"`: 1, `externalId eq "e-2"`: 0, `externalId eq "E-3"`: 0, `externalId eq ""`: 0,
			`externalId eq "E-2" and userName eq "b@x.org"`: 1, `externalId eq "E-2" and userName eq "a@x.org"`: 0, `userName eq "E-2"`: 0,
		} {
			if got := d.find(filter); got != want {
				t.Errorf("%s finds %v users, want %v", filter, got, want)
			}
		}
		d.wantError(409, uniqueness, "POST", "/Users", body("c", "E-2"))
		d.wantError(409, uniqueness, "PUT", "/Users/"+a, body("a", "E-2"))
		d.must("PUT", "/Users/"+b, body("b", "E-2"))
		d.must("PATCH", "/Users/"+b, patchBody(`{"op":"replace","path":"externalId","value":"E-3"}`))
		if got := d.must("GET", "/Users/"+b, "")["externalId"]; got != "E-3" {
			t.Errorf("the externalId is %v, want E-3", got)
		}

		errs := make(chan error, 8)
		for i := range cap(errs) {
			go func() {
				_, err := d.send("POST", "/Users", body(string(rune('k'+i)), "same"))
				errs <- err
			}()
		}
		created := 0
		for range cap(errs) {
			if err := <-errs; err == nil {
				created++
			} else if refused, is := errors.AsType[*Error](err); !is || refused.Status != 409 || !strings.HasPrefix(refused.Detail, "taken: externalId: ") {
				t.Errorf("a create of a taken externalId: got %v, want status 409", err)
			}
		}
		if created != 1 {
			t.Errorf("%d creates with the same externalId succeeded, want 1", created)
		}
		d.wantNoProblems()
	})
}
