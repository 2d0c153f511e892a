package scim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/coffeenode/userdb/schema"
)

// isBadRequest reports whether a directory receives err as a bad request.
func isBadRequest(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == http.StatusBadRequest && e.Type != ""
}

// FuzzFilter checks that a filter is either refused or has a term with an index, and that its terms
// name only attributes that filters may name.
func FuzzFilter(f *testing.F) {
	for _, text := range []string{
		`userName eq "a"`, `emails[type eq "work"].value eq "b"`, `emails[type eq "work" and value eq "b"]`, `members[value eq "x"]`, `a and b`, `(id eq "1") and externalId eq "\""`,
		`urn:ietf:params:scim:schemas:core:2.0:User:userName eq "é"`, `]. value eq "x"`, `not (id eq "x")`, `id eq 1`, ``, `"`, `[`,
		`emails eq "a"`, `emails.type eq "work" and emails eq "a"`, `emails[type eq "home"] and id eq "1"`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, kind := range []struct {
			urn     string
			several bool
		}{{urnUser, false}, {urnUser, true}, {urnGroup, false}} {
			urn := kind.urn
			all, err := parseFilter(urn, text, kind.several)
			if err != nil && !isBadRequest(err) || err == nil && len(all) == 0 {
				t.Fatalf("%q: got terms %v and error %v, want terms or a bad request", text, all, err)
			}
			if err == nil && !slices.ContainsFunc(all, term.hasIndex) {
				t.Fatalf("%q: no term has an index: %v", text, all)
			}
			for _, one := range all {
				if kind.several && one.attribute == addressType {
					continue
				}
				if !has(filterable[urn], one.attribute) && !has(filterable[urn], one.attribute+".value") {
					t.Fatalf("%q: a term names %q, which a filter may not name", text, one.attribute)
				}
			}
		}
	})
}

// FuzzPatch checks that a PATCH is either refused or sets only known attributes.
func FuzzPatch(f *testing.F) {
	for _, text := range []string{
		`{"Operations":[{"op":"Replace","path":"emails[type eq \"work\"].value","value":"x"}]}`, `{"Operations":[{"op":"add","value":{"name.givenName":"x","active":"False"}}]}`,
		`{"operations":[{"op":"remove","path":"members[value eq \"1\"]"}]}`, `{"Operations":[{"op":"replace","path":"members","value":[{"value":"1"}]}]}`, `{"Operations":[null]}`,
		`{"Operations":[{"op":"replace","path":"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:manager","value":{}}]}`, `{"Operations":[{"op":"remove","path":"name"}]}`,
		`{"Operations":[{"op":"add","path":"emails","value":[{"value":"b","primary":"True"},{"value":"d","type":"home"}]},{"op":"remove","path":"emails[value eq \"c\"]"}]}`,
		`{"Operations":[{"op":"replace","path":"emails[type eq \"work\" and primary eq true].value","value":"b"},{"op":"replace","path":"emails","value":[{"value":"c"}]}]}`,
		`{"Operations":[{"op":"add","path":"emails[value eq \"b\"].type","value":"home"},{"op":"replace","path":"emails[type eq \"home\"].primary","value":true}]}`,
		`{"Operations":[{"op":"replace","path":"emails[primary eq false]","value":{"value":"A","type":"x","primary":false}},{"op":"remove","path":"emails","value":[{"value":"b"}]}]}`,
	} {
		f.Add(text)
	}
	known := []string{"username", "externalid", "displayname", "emails"}
	for _, part := range lowerNameParts {
		known = append(known, "name."+part)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var body patch
		if json.Unmarshal([]byte(text), &body) != nil {
			return
		}
		for _, urn := range []string{urnUser, urnGroup} {
			r := patchReader{urn: urn}
			steps, err := r.steps(body)
			edit, group := newEdit(false), groupEdit{}
			var addresses addressEdit
			for _, s := range steps {
				if urn == urnGroup {
					err = errors.Join(err, group.set(s))
					continue
				}
				err = errors.Join(err, edit.set(s))
				if s.at.name == "emails" {
					err = errors.Join(err, addresses.add(s))
				}
			}
			if urn == urnUser && err == nil {
				err = checkAddresses(addresses)
			}
			if err != nil && !isBadRequest(err) {
				t.Fatalf("%s: got %v, want a bad request or no error", text, err)
			}
			for name := range edit.attributes {
				if !has(known, name) {
					t.Fatalf("%s: sets %q, which is not stored", text, name)
				}
			}
		}
	})
}

// checkAddresses applies an edit to several lists of addresses, one of them empty. It returns the
// error with which the edit is refused, or another one if a result has duplicates or does not begin
// with the user name.
func checkAddresses(edit addressEdit) error {
	if edit.count > maxNamed {
		return fmt.Errorf("names %d addresses", edit.count)
	}
	for _, before := range [][]string{nil, {"a"}, {"a", "b", "c"}} {
		for _, name := range []string{"", "a", "B", "x"} {
			e := newEdit(true)
			if e.addresses = &edit; name != "" {
				e.attributes["username"] = &name
			}
			var all []address
			c := severalCall()
			for _, text := range before {
				all = append(all, address{text: text, canonical: c.schema.Canonical(text)})
			}
			after, err := c.editAddresses(all, e)
			if err != nil {
				return err
			}
			for i, a := range after {
				if a.canonical != c.schema.Canonical(a.text) || slices.ContainsFunc(after[:i], func(b address) bool { return b.canonical == a.canonical }) {
					return fmt.Errorf("%v became %v, which has an address twice or in a wrong form", before, after)
				}
			}
			if len(after) == 0 && (len(before) > 0 || name != "") {
				return fmt.Errorf("%v became an empty list", before)
			}
			if name != "" && after[0].canonical != c.schema.Canonical(name) {
				return fmt.Errorf("%v became %v, which does not begin with userName %s", before, after, name)
			}
		}
	}
	return nil
}

// severalCall returns a call for users who may have several addresses, in a field of text.
func severalCall() *call {
	h, _ := New(Options{Mapping: Mapping{"emails": "email"}})
	t := schema.Type{Fields: map[string]schema.Field{"email": {Role: schema.RoleSecondary, Many: 5}}}
	return &call{collection: &collection{h: h, schema: t, fields: Mapping{"username": "email", "emails": "email"}}}
}

// FuzzResource checks that a user is either refused or has a userName.
func FuzzResource(f *testing.F) {
	f.Add(`{"userName":"x","emails":[{"value":"y"}],"name":{"givenName":"z","x":{}},"active":"true"}`)
	f.Add(`{"USERNAME":"x","username":"y","emails":[null]}`)
	f.Fuzz(func(t *testing.T, text string) {
		var body map[string]any
		if json.Unmarshal([]byte(text), &body) != nil {
			return
		}
		if e, err := parseUser(body, true); err == nil {
			if err := checkAddresses(*e.addresses); err != nil && !isBadRequest(err) {
				t.Fatalf("%s: %v", text, err)
			}
		}
		e, err := parseUser(body, false)
		if err != nil && !isBadRequest(err) || err == nil && e.attributes["username"] == nil {
			t.Fatalf("%s: got %v, want a bad request or a userName", text, err)
		}
	})
}
