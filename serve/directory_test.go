package serve_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// These tests check that a directory and the store mean the same person.

// newUser returns the body of a request that creates or replaces a user.
func newUser(userName, externalID string) string {
	return fmt.Sprintf(`{%s"userName":%q,"externalId":%q,"active":true}`, userURN, userName, externalID)
}

// patch changes a user with the operations of a PATCH.
func (c *client) patch(want, id, operations string) reply {
	c.t.Helper()
	return c.scim(want, "PATCH", "/Users/"+id, "{"+patchURN+`"Operations":[`+operations+"]}")
}

// findUsers returns the ids of the users that a filter finds.
func (c *client) findUsers(filter string) string {
	c.t.Helper()
	r := c.scim("200", "GET", "/Users?filter="+url.QueryEscape(filter), "")
	var ids []string
	for _, one := range r.value("Resources").([]any) {
		ids = append(ids, one.(map[string]any)["id"].(string))
	}
	return strings.Join(ids, " ")
}

// createWithExternalID creates a user directly in the store, which does not check whether others
// have the externalId.
func (c *client) createWithExternalID(userName, externalID string) string {
	c.t.Helper()
	stored, err := migrate.StoredSchema(c.Ctx, c.DB)
	must(c.t, err)
	db, err := c.DB.With(stored)
	must(c.t, err)
	users, err := db.Type("user")
	must(c.t, err)
	e, err := users.Create(c.Ctx, userdb.NewEntry{Facets: schema.Texts("email", userName, "externalId", externalID)})
	must(c.t, err)
	return e.UID()
}

const (
	deactivate = `{"op":"Replace","path":"active","value":"False"}`
	newAddress = `{"op":"Replace","path":"emails[type eq \"work\"].value","value":"john.newname@corp.example"}`
)

// TestAddressIsNotUserName checks that a change of the address does not rename a user if emails are
// not mapped, so that the directory still finds the user whom it deactivates.
func TestAddressIsNotUserName(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		sc, o := directorySchema()
		delete(o.Mapping, "emails")
		c := newDirectory(t, s.Under(t, sc), o)
		id := c.scim("201", "POST", "/Users", `{`+userURN+`"externalId":"o1","userName":"jdoe@corp.example","active":true,"emails":[{"type":"work","value":"john.doe@corp.example","primary":true}]}`).str("id")
		for _, operation := range []string{
			newAddress,
			`{"op":"add","path":"emails","value":[{"value":"john.newname@corp.example","primary":true}]}`,
			`{"op":"replace","value":{"emails":[{"value":"john.newname@corp.example","type":"work"}]}}`,
			`{"op":"replace","value":{"emails[type eq \"work\"].value":"john.newname@corp.example"}}`,
			`{"op":"remove","path":"emails"}`,
		} {
			c.equal(operation, c.patch("200", id, operation).str("userName"), "jdoe@corp.example")
			c.equal("by userName", c.findUsers(`userName eq "JDoe@corp.example"`), id)
		}
		r := c.scim("200", "GET", "/Schemas/urn:ietf:params:scim:schemas:core:2.0:User", "")
		if !strings.Contains(r.text, `"mutability":"readOnly","name":"emails"`) {
			t.Errorf("the schema does not say that emails cannot be changed: %s", r.text)
		}
		c.scim("409 uniqueness", "POST", "/Users", newUser("john.newname@corp.example", "o1"))
		c.patch("200", id, newAddress+","+deactivate)
		c.equal("active", c.scim("200", "GET", "/Users/"+id, "").str("active"), "false")

		// Somebody who was hired again is found, and is the same user.
		c.equal("by externalId", c.findUsers(`externalId eq "o1"`), id)
		c.equal("by userName", c.findUsers(`userName eq "jdoe@corp.example"`), id)
		c.equal("hired again", c.patch("200", id, `{"op":"replace","path":"active","value":true}`).str("active"), "true")
	})
}

// TestExternalIDIsUnique checks that two users of a directory never get the same externalId, one
// after the other or at once, and that users who share one already can still be changed.
func TestExternalIDIsUnique(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		sc, o := directorySchema()
		sc.Types["staff"] = sc.Types["user"]
		c := newDirectory(t, s.Under(t, sc), o)
		a := c.scim("201", "POST", "/Users", newUser("a@x.org", "o1")).str("id")
		b := c.scim("201", "POST", "/Users", newUser("b@x.org", "o2")).str("id")
		other := c.withKey(c.makeKey(admin.Key{Name: "other", Scopes: []string{admin.ScopeSCIM}}))
		for _, c := range []*client{c, other} {
			r := c.scim("409 uniqueness", "POST", "/Users", newUser("c@x.org", "o1"))
			if !strings.Contains(r.str("detail"), "externalId") {
				t.Errorf("the error does not name the attribute: %s", r.text)
			}
			c.scim("409 uniqueness", "PUT", "/Users/"+b, newUser("b@x.org", "o1"))
			c.patch("409 uniqueness", b, `{"op":"replace","path":"externalId","value":"o1"},`+deactivate)
		}
		c.equal("after refusals", c.scim("200", "GET", "/Users/"+b, "").str("active"), "true")
		c.equal("c", c.findUsers(`userName eq "c@x.org"`), "")
		c.scim("200", "PUT", "/Users/"+a, newUser("a@x.org", "o1"))
		c.patch("200", a, `{"op":"replace","path":"externalId","value":"o1"}`)
		c.scim("201", "POST", "/Users", newUser("upper@x.org", "O1")) // compared exactly
		staff := c.withKey(c.makeKey(admin.Key{Name: "staff", Scopes: []string{admin.ScopeSCIM}, Types: []string{"staff"}}))
		staff.scim("201", "POST", "/Users", newUser("a@x.org", "o1"))
		c.patch("200", a, `{"op":"remove","path":"externalId"}`)
		c.scim("200", "PUT", "/Users/"+b, newUser("b@x.org", "o1"))

		var at sync.WaitGroup
		statuses := make([]int, 8)
		for i := range statuses {
			at.Go(func() {
				r := c.send("POST", "/scim/v2/Users", newUser(fmt.Sprintf("at-once-%d@x.org", i), "o9"), "Content-Type", "application/scim+json")
				statuses[i] = r.status
			})
		}
		at.Wait()
		created := 0
		for _, status := range statuses {
			if status == http.StatusCreated {
				created++
			} else if status != http.StatusConflict {
				t.Errorf("at once: got %d, want 201 or 409", status)
			}
		}
		if found := c.findUsers(`externalId eq "o9"`); created != 1 || len(strings.Fields(found)) != 1 {
			t.Errorf("at once: %d users were created, and %q have the externalId, want one: %v", created, found, statuses)
		}

		same := []string{c.createWithExternalID("d@x.org", "twice"), c.createWithExternalID("e@x.org", "twice")}
		c.patch("200", same[0], deactivate+`,{"op":"replace","path":"externalId","value":"twice"}`)
		c.scim("200", "PUT", "/Users/"+same[1], newUser("e@x.org", "twice"))
	})
}

// TestUnknownExtensions checks that attributes of extensions that are not stored do not stop a
// PATCH, and that errors name the attribute.
func TestUnknownExtensions(t *testing.T) {
	eachDirectory(t, func(t *testing.T, c *client) {
		const corp = "urn:ietf:params:scim:schemas:extension:Corp:2.0:User"
		id := c.createUser("a")
		for _, operation := range []string{
			`{"op":"Add","path":"` + corp + `:costCode","value":"7"}`,
			`{"op":"remove","path":"` + corp + `:costCode"}`,
			`{"op":"replace","path":"` + corp + `","value":{"costCode":"7"}}`,
			`{"op":"replace","value":{"` + corp + `":{"costCode":"7"},"` + corp + `:desk":"3"}}`,
			`{"op":"add","path":"` + corp + `:badges[type eq \"door\"].value","value":"1"}`,
			`{"op":"add","path":"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:nosuch","value":"1"}`,
		} {
			c.equal(operation, c.patch("200", id, deactivate+","+operation).str("active"), "false")
			c.patch("200", id, `{"op":"replace","path":"active","value":true}`)
		}
		group := c.createGroup("Cooks")
		c.scim("204", "PATCH", "/Groups/"+group, "{"+patchURN+`"Operations":[{"op":"add","path":"urn:ietf:params:scim:schemas:extension:Corp:2.0:Group:floor","value":"2"},{"op":"replace","path":"displayName","value":"Chefs"}]}`)
		c.equal("group", c.scim("200", "GET", "/Groups/"+group, "").str("displayName"), "Chefs")

		c.createUser("taken")
		for operation, name := range map[string]string{
			`{"op":"replace","path":"favouriteColour","value":"x"}`:                            "favouriteColour",
			`{"op":"replace","value":{"nosuch":"x"}}`:                                          "nosuch",
			`{"op":"replace","path":"name.nickname","value":"x"}`:                              "name.nickname",
			`{"op":"replace","path":"name","value":{"nick":"x"}}`:                              "name.nick",
			`{"op":"replace","path":"displayName.x","value":"x"}`:                              "displayName.x",
			`{"op":"replace","path":"emails[type eq \"work\"].nosuch","value":1}`:              "].nosuch",
			`{"op":"replace","path":"emails[","value":"x"}`:                                    "emails[",
			`{"op":"replace","path":"displayName"}`:                                            "displayName",
			`{"op":"move","path":"displayName","value":"x"}`:                                   "displayName",
			`{"op":"replace","path":"userName","value":"no address"}`:                          "userName",
			`{"op":"replace","path":"userName","value":"taken@x.org"}`:                         "userName",
			`{"op":"replace","path":"externalId","value":"` + strings.Repeat("x", 2000) + `"}`: "externalId",
		} {
			r := c.send("PATCH", "/scim/v2/Users/"+id, "{"+patchURN+`"Operations":[`+operation+"]}", "Content-Type", "application/scim+json")
			if r.status < 400 || !strings.Contains(r.str("detail"), name) || len(r.str("detail")) > 400 {
				t.Errorf("%.100s: got %d %s, want an error that names %s", operation, r.status, r.text, name)
			}
		}
	})
}
