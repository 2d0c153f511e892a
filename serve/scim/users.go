package scim

import (
	"net/http"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// nameParts lists the sub-attributes of name in the order of partsOfName, as they are spelled in
// responses.
var nameParts = []string{"formatted", "familyName", "givenName", "middleName", "honorificPrefix", "honorificSuffix"}

// userResource returns an entry as a resource.
func (c *call) userResource(_ search, e userdb.Entry) (resource, error) {
	out := resource{"schemas": []string{urnUser}, "id": e.UID(), "active": !e.Disabled(), "meta": c.meta("User", e)}
	put := func(to map[string]any, name, attribute string) {
		if field, has := c.fields[attribute]; has && e.Text(field) != "" {
			to[name] = e.Text(field)
		}
	}
	put(out, "userName", "username")
	put(out, "externalId", "externalid")
	put(out, "displayName", "displayname")
	name := map[string]any{}
	for i, part := range partsOfName {
		put(name, nameParts[i], "name."+part)
	}
	if len(name) > 0 {
		out["name"] = name
	}
	if address := e.Text(c.fields["emails"]); address != "" {
		out["emails"] = []any{map[string]any{"value": address, "type": "work", "primary": true}}
	}
	return out, nil
}

// facets returns the facets that an edit sets, by field; nil removes the facet. If userName and
// emails share a field, userName takes precedence.
func (c *call) facets(e *edit) map[string]*string {
	all := map[string]*string{}
	for attribute, text := range e.attributes {
		field, kept := c.fields[attribute]
		if !kept || attribute == "emails" && field == c.fields["username"] && (text == nil || e.attributes["username"] != nil) {
			continue
		}
		all[field] = text
	}
	return all
}

func createUser(c *call) (answer, error) {
	edit, err := c.readUser()
	if err != nil {
		return answer{}, err
	}
	facets := schema.Facets{}
	for field, text := range c.facets(edit) {
		if text != nil {
			facets[field] = schema.Text(*text)
		}
	}
	e, err := c.users.Create(c.ctx, userdb.NewEntry{Facets: facets, Disabled: edit.active != nil && !*edit.active})
	if err != nil {
		return answer{}, err
	}
	return c.respond(http.StatusCreated, "User", e, c.userResource)
}

// readUser reads a user from the body of a request.
func (c *call) readUser() (*edit, error) {
	var body map[string]any
	if err := c.decodeBody(&body); err != nil {
		return nil, err
	}
	return parseUser(body)
}

func getUser(c *call) (answer, error) {
	e, err := c.users.Find(c.ctx, hints.UID(c.id))
	if err != nil {
		return answer{}, idError(err)
	}
	return c.respond(http.StatusOK, "User", e, c.userResource)
}

func replaceUser(c *call) (answer, error) {
	edit, err := c.readUser()
	if err != nil {
		return answer{}, err
	}
	for attribute := range c.fields {
		if _, given := edit.attributes[attribute]; !given {
			edit.attributes[attribute] = nil
		}
	}
	return c.applyEdit(edit)
}

func patchUser(c *call) (answer, error) {
	steps, err := c.steps(urnUser)
	if err != nil {
		return answer{}, err
	}
	edit := newEdit()
	for _, s := range steps {
		if s.op == "remove" {
			s.v = nil
		}
		if err := edit.set(s.at, s.v); err != nil {
			return answer{}, err
		}
	}
	return c.applyEdit(edit)
}

// applyEdit applies an edit to the user in the path, as one change of the entry.
func (c *call) applyEdit(edit *edit) (answer, error) {
	facets := c.facets(edit)
	e, err := c.users.Update(c.ctx, hints.UID(c.id), func(e *userdb.Entry) error {
		for field, text := range facets {
			if text == nil {
				e.Drop(field)
			} else {
				e.Put(field, schema.Text(*text))
			}
		}
		if edit.active != nil {
			e.SetDisabled(!*edit.active)
		}
		return nil
	})
	if err != nil {
		return answer{}, idError(err)
	}
	return c.respond(http.StatusOK, "User", e, c.userResource)
}

func deleteUser(c *call) (answer, error) {
	return answer{status: http.StatusNoContent}, idError(c.users.Delete(c.ctx, hints.UID(c.id)))
}

func listUsers(c *call) (answer, error) {
	s, err := c.search()
	if err != nil {
		return answer{}, err
	}
	return c.list(urnUser, c.users, s, c.findUsers, c.userResource)
}

// findUsers returns the users that match all terms. It looks up the candidates with the first term.
func (c *call) findUsers(all []term) (found []userdb.Entry, err error) {
	first := all[0]
	field, v := c.fields[first.attribute], schema.Text(first.value)
	switch {
	case first.attribute == "id":
		found, err = asSlice(c.users.Find(c.ctx, hints.UID(first.value)))
	case field == "":
		return nil, nil
	case field == c.fields["username"]:
		found, err = asSlice(c.users.Find(c.ctx, hints.Field(field, first.value)))
	case first.attribute == "externalid":
		found, err = c.collect(c.users, userdb.Query{Where: schema.Facets{field: v}})
	default: // an address in a field that is not identifying: compared without regard to case
		found, err = c.collect(c.users, userdb.Query{Order: field, GTE: &v, LTE: &v})
	}
	var selected []userdb.Entry
	for _, e := range found {
		if c.matches(e, all) {
			selected = append(selected, e)
		}
	}
	return dedupe(selected), err
}

// matches reports whether a user matches all terms.
func (c *call) matches(e userdb.Entry, all []term) bool {
	for _, t := range all {
		field := c.fields[t.attribute]
		value := e.Text(field)
		switch {
		case t.attribute == "id" && e.UID() == t.value:
		case field == "" || value == "":
			return false
		case t.attribute == "externalid" && value != t.value:
			return false
		case c.schema.Canonical(value) != c.schema.Canonical(t.value):
			return false
		}
	}
	return true
}

// asSlice returns the result of a lookup as a slice, which is empty if no entry was found.
func asSlice(e userdb.Entry, err error) ([]userdb.Entry, error) {
	switch {
	case err == nil:
		return []userdb.Entry{e}, nil
	case isAbsent(err):
		return nil, nil
	}
	return nil, err
}
