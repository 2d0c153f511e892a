package scim

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strings"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// groupResource returns an entry as a resource, with its members if the request wants them.
func (c *call) groupResource(s listParams, e userdb.Entry) (resource, error) {
	out := resource{"schemas": []string{urnGroup}, "id": e.UID(), "displayName": e.Text(admin.GroupName), "meta": c.meta("Group", e)}
	if external := e.Text(admin.GroupExternal); external != "" {
		out["externalId"] = external
	}
	if !s.wants(urnGroup, "members") {
		return out, nil
	}
	if err := c.meter.Reserve(c.ctx); err != nil {
		return out, err
	}
	members, err := c.membersOf(e)
	if err != nil {
		return out, err
	}
	out["members"] = members
	return out, nil
}

// A groupEdit holds the changes that a request makes to a group.
type groupEdit struct {
	name, external *string // nil leaves the value unchanged; "" removes external
	members        memberSet
}

// set adds one step of a request to the edit.
func (g *groupEdit) set(s step) (err error) {
	switch {
	case s.at.name == "members":
		return g.members.apply(s)
	case has(readOnly, s.at.name) && s.at.name != "groups":
		return badRequest(mutability, "%s is read-only", s.at.name)
	case s.at.sub != "" || s.at.which != nil || s.at.name != "displayname" && s.at.name != "externalid":
		return pathError(s.at.path)
	case s.op == "remove":
		s.v = nil
	}
	text, ok := s.v.(string)
	switch {
	case s.v != nil && !ok:
		return badRequest(invalidValue, "%s must be a string", s.at.name)
	case s.at.name == "externalid":
		g.external = &text
	case text == "":
		return badRequest(mutability, "displayName cannot be removed")
	default:
		g.name = &text
	}
	return nil
}

// readGroup reads a complete group from the body of a request.
func (c *call) readGroup() (g groupEdit, err error) {
	var body map[string]any
	if err := c.decodeBody(&body); err != nil {
		return g, err
	}
	for _, name := range []string{"displayName", "externalId", "members"} {
		v := lookupFold(body, name)
		if v == nil {
			continue
		}
		if err := g.set(step{op: "replace", at: target{name: strings.ToLower(name)}, v: v}); err != nil {
			return g, err
		}
	}
	if g.name == nil {
		return g, badRequest(invalidValue, "displayName is required")
	}
	return g, c.checkMembers(g.members)
}

// reserveMembers waits until there is room for the members of the group in the response, if the
// request wants them. Requests that change the group call it before the change, because they cannot
// be refused afterwards.
func (c *call) reserveMembers() error {
	var s listParams
	if s.readAttributes(c); !s.wants(urnGroup, "members") {
		return nil
	}
	return c.meter.Reserve(c.ctx)
}

func createGroup(c *call) (answer, error) {
	g, err := c.readGroup()
	if err == nil {
		err = c.reserveMembers()
	}
	if err != nil {
		return answer{}, err
	}
	id := strings.ToLower(rand.Text())
	facets := schema.Texts(admin.GroupName, *g.name, admin.GroupTag, tagPrefix+id)
	if g.external != nil && *g.external != "" {
		facets[admin.GroupExternal] = schema.Text(*g.external)
	}
	// Without the index of tags, nothing is created that would then stay without its members.
	_, err = c.users.Count(c.ctx, userdb.Query{Tags: []string{tagPrefix + id}})
	if err != nil {
		return answer{}, err
	}
	e, err := c.groups.Create(c.ctx, userdb.NewEntry{UID: id, Facets: facets})
	if err == nil {
		e, err = c.changeMembers(e.UID(), g.members)
		err = markPartial("the group was created, and some of its members may have been added", err)
	}
	if err != nil {
		return answer{}, err
	}
	return c.respond(http.StatusCreated, "Group", e, c.groupResource)
}

func getGroup(c *call) (answer, error) {
	e, err := c.groups.Find(c.ctx, hints.UID(c.id))
	if err != nil {
		return answer{}, idError(err)
	}
	return c.respond(http.StatusOK, "Group", e, c.groupResource)
}

// replaceGroup handles PUT. It leaves the members unchanged if the request lacks the attribute
// members.
func replaceGroup(c *call) (answer, error) {
	g, err := c.readGroup()
	if err == nil {
		err = c.reserveMembers()
	}
	if err != nil {
		return answer{}, err
	}
	if g.external == nil {
		g.external = new(string)
	}
	e, err := c.changeGroup(g)
	if err != nil {
		return answer{}, err
	}
	return c.respond(http.StatusOK, "Group", e, c.groupResource)
}

func patchGroup(c *call) (answer, error) {
	steps, err := c.steps(urnGroup)
	if err != nil {
		return answer{}, err
	}
	var g groupEdit
	for _, s := range steps {
		if err := g.set(s); err != nil {
			return answer{}, err
		}
	}
	if err := c.checkMembers(g.members); err != nil {
		return answer{}, err
	}
	// A request that names attributes expects the resource (RFC 7644, section 3.5.2).
	responds := len(c.query["attributes"]) > 0
	if responds {
		if err := c.reserveMembers(); err != nil {
			return answer{}, err
		}
	}
	e, err := c.changeGroup(g)
	if err != nil || !responds {
		return answer{status: http.StatusNoContent}, err
	}
	return c.respond(http.StatusOK, "Group", e, c.groupResource)
}

// changeGroup changes the group itself, and then the tags of its members.
func (c *call) changeGroup(g groupEdit) (userdb.Entry, error) {
	e, err := c.groups.Update(c.ctx, hints.UID(c.id), func(e *userdb.Entry) error {
		if g.name != nil {
			e.Put(admin.GroupName, schema.Text(*g.name))
		}
		if g.external != nil && *g.external != "" {
			e.Put(admin.GroupExternal, schema.Text(*g.external))
		} else if g.external != nil {
			e.Drop(admin.GroupExternal)
		}
		return nil
	})
	if err != nil {
		return e, idError(err)
	}
	e, err = c.changeMembers(e.UID(), g.members)
	return e, idError(markPartial("the group was changed, and some of its members may have changed", err))
}

// changeMembers gives a new or changed group its tag, and then changes its members.
func (c *call) changeMembers(id string, w memberSet) (userdb.Entry, error) {
	return c.withTag(c.ctx, id, func(ctx context.Context, tag string) error {
		return c.applyMembers(ctx, id, tag, w)
	})
}

// deleteGroup removes the tag from all members, and then deletes the group. If it is interrupted,
// the next request continues.
func deleteGroup(c *call) (answer, error) {
	e, err := c.groups.Find(c.ctx, hints.UID(c.id))
	if err == nil {
		_, err = c.withTag(c.ctx, e.UID(), func(ctx context.Context, tag string) error {
			if err := c.applyMembers(ctx, e.UID(), tag, memberSet{replace: true}); err != nil {
				return err
			}
			return c.groups.Delete(ctx, hints.UID(e.UID()))
		})
		err = markPartial("some members of the group may have been removed", err)
	}
	return answer{status: http.StatusNoContent}, idError(err)
}

func listGroups(c *call) (answer, error) {
	s, err := c.listParams()
	if err != nil {
		return answer{}, err
	}
	return c.list(urnGroup, c.groups, s, c.findGroups, c.groupResource)
}

// findGroups returns the groups that match all terms. It looks up the candidates with the first
// term.
func (c *call) findGroups(all []term) (found []userdb.Entry, err error) {
	switch first := all[0]; first.attribute {
	case "id":
		found, err = asSlice(c.groups.Find(c.ctx, hints.UID(first.value)))
	case "displayname":
		found, err = asSlice(c.groups.Find(c.ctx, hints.Field(admin.GroupName, first.value)))
	case "externalid":
		found, err = c.collect(c.groups, userdb.Query{Where: schema.Texts(admin.GroupExternal, first.value)})
	default:
		found, err = c.groupsOf(first.value)
	}
	var selected []userdb.Entry
	for _, e := range found {
		matches, err := c.groupMatches(e, all)
		if err != nil {
			return nil, err
		}
		if matches {
			selected = append(selected, e)
		}
	}
	return dedupe(selected), err
}

// groupsOf returns the groups that have the user as a member.
func (c *call) groupsOf(uid string) (all []userdb.Entry, err error) {
	tags, err := c.users.Tags(hints.UID(uid)).Members(c.ctx)
	switch {
	case isAbsent(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	var ids []hints.Hint
	for _, tag := range tags {
		if id, ok := strings.CutPrefix(tag, tagPrefix); ok {
			ids = append(ids, hints.UID(id))
			continue
		}
		if !c.isMapped(tag) {
			continue
		}
		some, err := c.collect(c.groups, userdb.Query{Where: schema.Texts(admin.GroupTag, tag)})
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	for e, err := range c.groups.FindAll(c.ctx, ids...) {
		switch {
		case err == nil:
			if all, err = c.keep(all, e); err != nil {
				return nil, err
			}
		case !isAbsent(err) && !errors.Is(err, userdb.ErrCorrupt):
			return nil, err
		}
	}
	return all, nil
}

// groupMatches reports whether a group matches all terms.
func (c *call) groupMatches(e userdb.Entry, all []term) (matches bool, err error) {
	fold := schema.Type{Fold: schema.FoldCasefold}
	for _, t := range all {
		switch t.attribute {
		case "id":
			matches = e.UID() == t.value
		case "displayname":
			matches = fold.Canonical(e.Text(admin.GroupName)) == fold.Canonical(t.value)
		case "externalid":
			matches = e.Text(admin.GroupExternal) == t.value
		default:
			matches, err = c.isMember(t.value, e)
		}
		if err != nil || !matches {
			return false, err
		}
	}
	return true, nil
}

var errNested = badRequest(invalidValue, "members: groups cannot contain groups")
