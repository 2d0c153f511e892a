package admin

import (
	"strings"

	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// The facets of a group that a directory maintains.
const (
	GroupName     = "displayName"
	GroupExternal = "externalId"
	GroupTag      = "tag" // the tag that its members carry
	GroupAdded    = "added"
)

// GroupTagPrefix begins the tag of a group to which no other tag is mapped. The id of the group
// follows.
const GroupTagPrefix = "scim:"

const groupType = "group"

// groupSpaces contains, for each namespace of accounts, a namespace whose name is ofPrefix followed
// by the path of that namespace. Each type has a namespace in it for its groups.
var groupSpaces, _ = view.Reserved.Sub("groups")

const ofPrefix = "of "

// Groups returns the groups that directories maintain for a type of db. The groups of each
// namespace and type are entries in a namespace of their own.
func Groups(db *userdb.DB, typ string) (*userdb.Type, error) {
	ns := groupSpaces
	for _, name := range []string{ofPrefix + namespaceOf(db), typ} {
		var err error
		if ns, err = ns.Sub(name); err != nil {
			return nil, err
		}
	}
	group := schema.Type{Primary: "id", Fold: schema.FoldCasefold, Fields: map[string]schema.Field{
		GroupName:     {Role: schema.RoleSecondary, Required: true},
		GroupExternal: {Role: schema.RoleIndexed},
		GroupTag:      {Role: schema.RoleIndexed, Required: true},
		GroupAdded:    {Role: schema.RoleOrdered, Codec: schema.CodecDate},
	}}
	groupDB, err := view.Reconfigure(db, func(c *view.Config) {
		c.NS, c.OnSchema, c.Builtin = ns, view.Later, false
		c.Schema = schema.Schema{Types: map[string]schema.Type{groupType: group}}
	})
	if err != nil {
		return nil, err
	}
	return groupDB.Type(groupType)
}

// groupNamespace returns the namespace that the group at a raw key belongs to. It returns "", which
// is also the root namespace, if the key cannot be read.
func groupNamespace(raw string) string {
	escaped, _, _ := strings.Cut(strings.TrimPrefix(raw, groupSpaces.String()+"~"), "/")
	name, err := recordkey.Unescape(escaped)
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(name, ofPrefix)
}
