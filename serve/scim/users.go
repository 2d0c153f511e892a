package scim

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// nameParts lists the sub-attributes of name in the order of lowerNameParts, as they are spelled in
// responses.
var nameParts = []string{"formatted", "familyName", "givenName", "middleName", "honorificPrefix", "honorificSuffix"}

// userResource returns an entry as a resource. It leaves out the facets of a user who registered
// without verifying an address: a directory must not take that user for the owner of the address.
// The attribute userName, which every user has, is then the id.
func (c *call) userResource(_ listParams, e userdb.Entry) (resource, error) {
	out := resource{"schemas": []string{urnUser}, "id": e.UID(), "active": !e.Disabled(), "meta": c.meta("User", e)}
	if e.Unproven() {
		out["userName"] = e.UID()
		return out, nil
	}
	put := func(to map[string]any, name, attribute string) {
		if field, has := c.fields[attribute]; has && e.Text(field) != "" {
			to[name] = e.Text(field)
		}
	}
	put(out, "userName", "username")
	put(out, "externalId", "externalid")
	put(out, "displayName", "displayname")
	name := map[string]any{}
	for i, part := range lowerNameParts {
		put(name, nameParts[i], "name."+part)
	}
	if len(name) > 0 {
		out["name"] = name
	}
	if c.showsSeveral() {
		if all := c.addresses(e); len(all) > 0 {
			out["emails"] = emailsResource(all)
		}
	} else if address := e.Text(c.fields["emails"]); address != "" {
		out["emails"] = []any{map[string]any{"value": address, "type": workKind, "primary": true}}
	}
	return out, nil
}

// facets returns the facets that an edit sets, by field; nil removes the facet. If userName and
// emails share a field, userName takes precedence, and emails cannot change the field unless the
// mapping names a field for emails. If the field of emails may have several values, editAddresses
// sets it.
func (c *call) facets(e *edit) map[string]*string {
	all := map[string]*string{}
	for attribute, text := range e.attributes {
		field, kept := c.fields[attribute]
		if e.addresses != nil && field == c.fields["emails"] {
			continue
		}
		shared := attribute == "emails" && field == c.fields["username"]
		if !kept || shared && (!c.h.options.mapsEmails() || text == nil || e.attributes["username"] != nil) {
			continue
		}
		all[field] = text
	}
	return all
}

// withExternalID calls write, which stores the externalId of an edit in the user with the given id,
// or in a new user if id is "". Unless the user already has that externalId, it returns an error if
// another user has it. It holds a lock meanwhile, so that no two requests give one externalId to
// different users. If the schema makes externalId an identifier, the store ensures that instead.
func (c *call) withExternalID(id string, e *edit, write func(context.Context) error) error {
	external := e.attributes["externalid"]
	if external == nil || c.identifiesBy(externalField) {
		return write(c.ctx)
	}
	if id != "" { // a user keeps its externalId, even if others also have it
		current, err := c.users.Find(c.ctx, hints.UID(id))
		if err != nil {
			return err
		}
		if current.Text(externalField) == *external {
			return write(c.ctx)
		}
	}
	return c.withLock(c.ctx, lockExternal, *external, func(ctx context.Context) error {
		p, err := c.users.Page(ctx, userdb.Query{Where: schema.Texts(externalField, *external), Limit: 2})
		if err != nil && !errors.Is(err, userdb.ErrCorrupt) {
			return err
		}
		if slices.ContainsFunc(p.Entries, func(other userdb.Entry) bool { return other.UID() != id }) {
			return &Error{http.StatusConflict, uniqueness, "externalId: another user has this value"}
		}
		return write(ctx)
	})
}

// identifiesBy reports whether a field of the users is an identifier.
func (c *collection) identifiesBy(field string) bool {
	return c.schema.Fields[field].Role.Has(schema.RoleSecondary)
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
	n := userdb.NewEntry{Facets: facets, Disabled: edit.active != nil && !*edit.active}
	if edit.addresses != nil {
		all, err := c.editAddresses(nil, edit)
		if err != nil {
			return answer{}, err
		}
		texts, labels := valuesOf(all)
		field := c.fields["emails"]
		n.Values, n.Labels = map[string][]string{field: texts}, map[string]map[string]string{field: labels}
	}
	var e userdb.Entry
	err = c.withExternalID("", edit, func(ctx context.Context) (err error) {
		e, err = c.users.Create(ctx, n)
		return err
	})
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
	return parseUser(body, c.writesSeveral())
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
	if a := edit.addresses; a != nil && len(a.steps) == 0 {
		a.steps = []addressStep{{op: "remove"}}
	}
	return c.applyEdit(edit)
}

func patchUser(c *call) (answer, error) {
	steps, err := c.steps(urnUser)
	if err != nil {
		return answer{}, err
	}
	edit := newEdit(c.writesSeveral())
	for _, s := range steps {
		if err := edit.set(s); err != nil {
			return answer{}, err
		}
	}
	return c.applyEdit(edit)
}

// applyEdit applies an edit to the user in the path, as one change of the entry. It returns
// ErrUnproven for a user who registered without verifying an address.
func (c *call) applyEdit(edit *edit) (answer, error) {
	facets := c.facets(edit)
	change := func(e *userdb.Entry) error {
		if e.Unproven() {
			return userdb.ErrUnproven
		}
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
		if edit.addresses != nil {
			return c.changeAddresses(e, edit)
		}
		return nil
	}
	var e userdb.Entry
	err := c.withExternalID(c.id, edit, func(ctx context.Context) (err error) {
		e, err = c.users.Update(ctx, hints.UID(c.id), change)
		return err
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
	s, err := c.listParams()
	if err != nil {
		return answer{}, err
	}
	return c.list(urnUser, c.users, s, c.findUsers, c.userResource)
}

// findUsers returns the users that match all terms, except those who registered without verifying
// an address. It looks up candidates with the first term that has an index.
func (c *call) findUsers(all []term) (found []userdb.Entry, err error) {
	first := all[slices.IndexFunc(all, term.hasIndex)]
	field, v := c.fields[first.attribute], schema.Text(first.value)
	switch {
	case first.attribute == "id":
		found, err = asSlice(c.users.Find(c.ctx, hints.UID(first.value)))
	case field == "":
		return nil, nil
	case field == c.fields["username"], first.attribute == "externalid" && c.identifiesBy(field):
		found, err = asSlice(c.users.Find(c.ctx, hints.Field(field, first.value)))
	case first.attribute == "externalid":
		found, err = c.collectUsers(userdb.Query{Where: schema.Facets{field: v}})
	default: // an address in a field that is not an identifier: compared without regard to case
		found, err = c.collectUsers(userdb.Query{Order: field, GTE: &v, LTE: &v})
	}
	var selected []userdb.Entry
	for _, e := range found {
		if !e.Unproven() && c.matches(e, all) {
			selected = append(selected, e)
		}
	}
	return dedupe(selected), err
}

// matches reports whether a user matches all terms.
func (c *call) matches(e userdb.Entry, all []term) bool {
	for _, t := range all {
		if t.isAddress() && c.showsSeveral() {
			if !c.matchesAddress(e, t) {
				return false
			}
			continue
		}
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

// matchesAddress reports whether a user has an address that matches a term.
func (c *call) matchesAddress(e userdb.Entry, t term) bool {
	all, canonical := c.addresses(e), c.schema.Canonical(t.value)
	for i, a := range all {
		if (t.attribute == addressType || a.canonical == canonical) && (t.kind == nil || strings.EqualFold(kindOf(all, i), *t.kind)) {
			return true
		}
	}
	return false
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
