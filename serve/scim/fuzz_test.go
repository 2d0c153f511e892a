package scim

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"
)

// isBadRequest reports whether a directory receives err as a bad request.
func isBadRequest(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == http.StatusBadRequest && e.Type != ""
}

// FuzzFilter checks that a filter is either refused or has at least one term, and that its terms
// name only attributes that may be named.
func FuzzFilter(f *testing.F) {
	for _, text := range []string{
		`userName eq "a"`, `emails[type eq "work"].value eq "b"`, `emails[type eq "work" and value eq "b"]`, `members[value eq "x"]`, `a and b`, `(id eq "1") and externalId eq "\""`,
		`urn:ietf:params:scim:schemas:core:2.0:User:userName eq "é"`, `]. value eq "x"`, `not (id eq "x")`, `id eq 1`, ``, `"`, `[`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, urn := range []string{urnUser, urnGroup} {
			all, err := parseFilter(urn, text)
			if err != nil && !isBadRequest(err) || err == nil && len(all) == 0 {
				t.Fatalf("%q: got terms %v and error %v, want terms or a bad request", text, all, err)
			}
			for _, one := range all {
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
	} {
		f.Add(text)
	}
	known := []string{"username", "externalid", "displayname", "emails"}
	for _, part := range partsOfName {
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
			edit, group := newEdit(), groupEdit{}
			for _, s := range steps {
				if urn == urnGroup {
					err = errors.Join(err, group.set(s))
					continue
				}
				if s.op == "remove" {
					s.v = nil
				}
				err = errors.Join(err, edit.set(s.at, s.v))
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

// FuzzResource checks that a user is either refused or has a userName.
func FuzzResource(f *testing.F) {
	f.Add(`{"userName":"x","emails":[{"value":"y"}],"name":{"givenName":"z","x":{}},"active":"true"}`)
	f.Add(`{"USERNAME":"x","username":"y","emails":[null]}`)
	f.Fuzz(func(t *testing.T, text string) {
		var body map[string]any
		if json.Unmarshal([]byte(text), &body) != nil {
			return
		}
		e, err := parseUser(body)
		if err != nil && !isBadRequest(err) || err == nil && e.attributes["username"] == nil {
			t.Fatalf("%s: got %v, want a bad request or a userName", text, err)
		}
	})
}
