package console

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// newGroup creates a group of a directory. If tag is "", its members have the tag of its id.
func (d *testConsole) newGroup(id, name, tag string, members ...string) {
	d.t.Helper()
	groups, err := admin.Groups(d.db, "user")
	must(d.t, err)
	if tag == "" {
		tag = admin.GroupTagPrefix + id
	}
	_, err = groups.Create(d.t.Context(), userdb.NewEntry{UID: id, Facets: schema.Texts(admin.GroupName, name, admin.GroupTag, tag, admin.GroupExternal, "g-"+id)})
	must(d.t, err)
	for _, uid := range members {
		_, err := d.users.Tags(hints.UID(uid)).Add(d.t.Context(), tag)
		must(d.t, err)
	}
}

// openDirectory returns a console for accounts that a directory can manage.
func openDirectory(t *testing.T, store string) *testConsole {
	t.Helper()
	sc := testSchema()
	sc.Types["user"].Fields[admin.GroupExternal] = schema.Field{Role: schema.RoleIndexed}
	return openSchema(t, store, sc, true)
}

// TestGroups checks that the page of an account says from which groups of a directory its tags
// come, that each leads to the list of the members, and that a page lists all groups.
func TestGroups(t *testing.T) {
	d := openDirectory(t, "memory:")
	d.createAccount("u1", "name", "Alice")
	d.createAccount("u2", "name", "Bob")
	const groups = "/console/groups?type=user"
	d.wantText(d.do(http.StatusOK, groups), "There are none.")
	d.newGroup("a1", "Store admins", "admin", "u1")
	d.newGroup("b2", "Sales & <b>", "", "u1", "u2")
	_, err := d.users.Tags(hints.UID("u1")).Add(t.Context(), "vip", "scim:gone", "scim:")
	must(t, err)

	account := d.do(http.StatusOK, "/console/types/user/u1")
	d.wantText(account, "admin from the group Store admins remove", "group Sales & <b> remove from the group Sales & <b>", "scim:gone remove", "vip remove")
	d.wantText(d.do(http.StatusOK, "/console/types/user"), "Groups of directories")
	for tag, want := range map[string][]string{
		"admin":   {"tag admin", "Everybody with the tag admin is in the group Store admins, which a directory maintains.", "1 account"},
		"scim:b2": {"group Sales & <b>", "Members of the group Sales & <b>, which a directory maintains.", "2 accounts"},
	} {
		d.wantText(d.do(http.StatusOK, "/console/types/user?"+url.Values{"tag": {tag}}.Encode()), want...)
	}
	d.wantNoText(d.do(http.StatusOK, "/console/types/user?tag=vip"), "which a directory maintains")
	d.wantText(d.do(http.StatusOK, groups), "Store admins", "admin", "g-a1", "Sales & <b>", "scim:b2", "g-b2")

	for i := range pageSize {
		d.newGroup(fmt.Sprint("c", i), fmt.Sprint("Group ", i), "")
	}
	first := d.do(http.StatusOK, groups)
	d.wantText(first, "Group 24", "Next page")
	d.wantNoText(first, "Store admins")
	next := regexp.MustCompile(`href="([^"]*after=[^"]*)"`).FindStringSubmatch(first)
	if next == nil {
		t.Fatal("the first page has no link to the next one")
	}
	d.wantText(d.do(http.StatusOK, html.UnescapeString(next[1])), "Store admins")
	d.do(http.StatusNotFound, "/console/groups?type=none")
}

// TestTagsReadFewGroups checks that the page of an account with many tags looks up only a few
// groups, and that a type that no directory manages needs no lookup.
func TestTagsReadFewGroups(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		d.createAccount("u1", "name", "Alice")
		_, err := d.users.Tags(hints.UID("u1")).Add(t.Context(), "vip", "scim:a1")
		must(t, err)
		d.do(http.StatusOK, "/console/types/user/u1") // the first page makes more calls
		d.calls.reset()
		d.do(http.StatusOK, "/console/types/user/u1")
		if got := d.calls.reset(); got["Page"]+got["FindAll"] > 0 {
			t.Errorf("without a directory, the page calls %v, want neither Page nor FindAll", got)
		}
	})
	d := openDirectory(t, "memory:")
	d.createAccount("u1", "name", "Alice")
	var tags []string
	for i := range 3 * maxGroupIDs {
		tags = append(tags, fmt.Sprint("tag", i), fmt.Sprint(admin.GroupTagPrefix, "a", i))
	}
	_, err := d.users.Tags(hints.UID("u1")).Add(t.Context(), tags...)
	must(t, err)
	d.calls.reset()
	d.do(http.StatusOK, "/console/types/user/u1")
	if got := d.calls.reset(); got["Page"] != maxOtherTags || got["FindAll"] != 1 {
		t.Errorf("the page of an account with %d tags calls %v, want Page %d times and FindAll once", len(tags), got, maxOtherTags)
	}
}

// TestTagsWithoutIndex checks that a tag is not a link if no list can select by it.
func TestTagsWithoutIndex(t *testing.T) {
	sc := testSchema()
	sc.Types["user"].Tertiary["tags"] = schema.Tertiary{Kind: "set"}
	d := openSchema(t, "memory:", sc, true)
	d.createAccount("u1", "name", "Alice")
	_, err := d.users.Tags(hints.UID("u1")).Add(t.Context(), "vip")
	must(t, err)
	account := d.do(http.StatusOK, "/console/types/user/u1")
	d.wantText(account, "vip remove")
	if strings.Contains(account, "tag=vip") {
		t.Error("the tag leads to a list that cannot be read")
	}
}
