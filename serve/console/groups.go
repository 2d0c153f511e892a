package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// Limits on the tags whose groups a page looks up. Those that contain the id of a group are looked
// up together, and the others one at a time.
const (
	maxGroupIDs  = 100
	maxOtherTags = 10
)

// mayHaveGroups reports whether the accounts of a type can be in groups of directories: "serve
// --scim" gives the type the field externalId, and indexes its tags.
func mayHaveGroups(t schema.Type) bool {
	_, external := t.Fields[admin.GroupExternal]
	return external && slices.Contains(t.IndexedTertiary(), "tags")
}

// A shownTag is a tag, with the name of the directory's group whose members have it, if there is
// one. Path is that of the list of all accounts with the tag, or "" if the tags have no index.
type shownTag struct{ Name, Group, Path string }

// tagPath returns the path of the list of the accounts with a tag.
func tagPath(typ, tag string) string { return typePath(typ) + "?" + url.Values{"tag": {tag}}.Encode() }

// IsOfGroup reports whether the tag means only that an account is in the group.
func (t shownTag) IsOfGroup() bool {
	return t.Group != "" && strings.HasPrefix(t.Name, admin.GroupTagPrefix)
}

// showTags returns the tags of accounts of a type with the groups that they come from.
func showTags(ctx context.Context, db *userdb.DB, typ string, tags []string) (all []shownTag, err error) {
	groups, declared := map[string]string{}, db.Schema().Types[typ]
	if mayHaveGroups(declared) {
		if groups, err = groupsByTag(ctx, db, typ, tags); err != nil {
			return nil, err
		}
	}
	indexed := slices.Contains(declared.IndexedTertiary(), "tags")
	for _, tag := range tags {
		shown := shownTag{Name: tag, Group: groups[tag]}
		if indexed {
			shown.Path = tagPath(typ, tag)
		}
		all = append(all, shown)
	}
	return all, nil
}

// groupsByTag returns the names of the groups that directories maintain, by tag.
func groupsByTag(ctx context.Context, db *userdb.DB, typ string, tags []string) (map[string]string, error) {
	groups, err := admin.Groups(db, typ)
	if err != nil {
		return nil, err
	}
	var ids []hints.Hint
	names, lookups := map[string]string{}, 0
	for _, tag := range tags {
		if id, ok := strings.CutPrefix(tag, admin.GroupTagPrefix); ok {
			ids = append(ids, hints.UID(id))
			continue
		}
		if lookups++; lookups > maxOtherTags {
			continue
		}
		found, err := groups.Page(ctx, userdb.Query{Where: schema.Texts(admin.GroupTag, tag), Limit: 1})
		if err != nil && !isNoGroup(err) {
			return nil, err
		}
		for _, e := range found.Entries {
			names[tag] = e.Text(admin.GroupName)
		}
	}
	for e, err := range groups.FindAll(ctx, ids[:min(len(ids), maxGroupIDs)]...) {
		if err != nil && !isNoGroup(err) {
			return nil, err
		}
		if err == nil {
			names[admin.GroupTagPrefix+e.UID()] = e.Text(admin.GroupName)
		}
	}
	return names, nil
}

// isNoGroup reports whether an error means that no readable group has a tag.
func isNoGroup(err error) bool {
	return userdb.CodeOf(err) == userdb.CodeHint || isAny(err, userdb.ErrNotFound, userdb.ErrCorrupt, userdb.ErrInvalid)
}

// A groupList holds one page of the groups that directories maintain for a type.
type groupList struct {
	Groups []directoryGroup
	Next   string // path of the next page, or ""
}

// A directoryGroup describes a group. Tag is the one that its members have.
type directoryGroup struct {
	Name, External string
	Tag            shownTag
	Added          time.Time
}

// groupsPath returns the path of the page that lists the groups of directories.
func groupsPath(typ, after string) string {
	values := url.Values{"type": {typ}}
	if after != "" {
		values.Set("after", after)
	}
	return "/console/groups?" + values.Encode()
}

// listGroups lists the groups that directories maintain for a type, the newest first.
func (c *Console) listGroups(w http.ResponseWriter, r *http.Request) {
	t, err := c.formType(r)
	var db *userdb.DB
	if err == nil {
		db, err = c.view(r.Context())
	}
	var groups *userdb.Type
	if err == nil {
		groups, err = admin.Groups(db, t.Name())
	}
	var found userdb.Page
	if err == nil {
		found, err = groups.Page(r.Context(), userdb.Query{Order: admin.GroupAdded, Reverse: true, Limit: pageSize, After: r.FormValue("after")})
	}
	if err != nil && !isAny(err, userdb.ErrCorrupt) { // ErrCorrupt: show the others
		c.fail(w, r, err)
		return
	}
	l := groupList{}
	for _, e := range found.Entries {
		name, tag := e.Text(admin.GroupName), e.Text(admin.GroupTag)
		g := directoryGroup{Name: name, External: e.Text(admin.GroupExternal), Tag: shownTag{tag, name, tagPath(t.Name(), tag)}}
		if added, ok := e.Get(admin.GroupAdded); ok {
			g.Added, _ = added.Time()
		}
		l.Groups = append(l.Groups, g)
	}
	if found.Next != "" {
		l.Next = groupsPath(t.Name(), found.Next)
	}
	c.show(w, r, http.StatusOK, page{Name: "groups", Title: "Groups of directories: " + t.Name(), RailPath: "/console/types/" + t.Name(), Data: l})
}
