package browser

import (
	"regexp"
	"testing"
)

// TestConsoleGroups looks up which group of a directory gave an account a tag, and lists the
// accounts with that tag and all groups.
func TestConsoleGroups(t *testing.T) {
	for _, w := range []window{{"console-390-light", 390, "light"}, {"console-1000-dark", 1000, "dark"}} {
		t.Run(w.name, func(t *testing.T) {
			d := openConsole(t, w, false, "--scim", "--scim-map", "Store admins=admin")
			d.createAccounts()
			d.setUp()
			key := regexp.MustCompile(`udb_\w+`).FindString(d.userdb("", "apikey", "create", "okta", "--scope", "scim"))
			for _, name := range []string{"Store admins", "المبيعات والتسويق في الشرق الأوسط وأفريقيا"} {
				d.post(key, "/scim/v2/Groups", `{"displayName":"`+name+`","members":[{"value":"9a4c88dbc084"}]}`)
			}
			d.visit("/console/find")
			d.submit("/console/find", "q", "alice")
			d.onPage("Alice", "admin from the group Store admins", "group المبيعات")
			d.follow("asking for the members", click(`.chips a[href$="tag=admin"]`))
			d.onPage("Accounts", "Everybody with the tag admin is in the group Store admins", "\n1 account")
			d.follow("asking for all groups", click(`main p a[href^="/console/groups"]`))
			d.onPage("Groups of directories: user", "Store admins", "المبيعات والتسويق")
		})
	}
}
