package browser

import (
	"regexp"
	"strings"
	"testing"
)

// TestConsoleGroups looks up which group of a directory gave an account a tag, and lists the
// accounts with that tag and all groups.
func TestConsoleGroups(t *testing.T) {
	t.Parallel()
	for i, w := range []window{{"console-390-light", 390, "light"}, {"console-1000-dark", 1000, "dark"}, {"console-1440-light-keyboard", 1440, "light"}} {
		t.Run(w.name, func(t *testing.T) {
			d := openConsole(t, w, i == 1, "--scim", "--scim-map", "Store admins=admin")
			d.createAccounts()
			d.setUp()
			d.keyboard = i == 2
			key := regexp.MustCompile(`udb_\w+`).FindString(d.userdb("", "apikey", "create", "okta", "--scope", "scim"))
			for _, name := range []string{"Store admins", "المبيعات والتسويق في الشرق الأوسط وأفريقيا", strings.Repeat("Unter", 20) + "abteilung"} {
				d.post(key, "/scim/v2/Groups", `{"displayName":"`+name+`","externalId":"11112222-3333-4444-5555-666677778888","members":[{"value":"9a4c88dbc084"}]}`)
			}
			d.visit("/console/find")
			d.submit("/console/find", "q", "alice")
			d.onPage("Alice", "admin from the group Store admins", "group المبيعات")
			d.follow("asking for the members", d.click(`.chips a[href$="tag=admin"]`))
			d.onPage("Accounts", "Everybody with the tag admin is in the group Store admins", "\n1 account")
			d.follow("asking for all groups", d.click(`main p a[href^="/console/groups"]`))
			d.onPage("Groups of directories: user", "Store admins", "المبيعات والتسويق")
			d.until("measuring the table", `String([...document.querySelectorAll(".wide")].every(w => w.scrollWidth <= w.clientWidth))`, "true")
			d.follow("asking for the members", d.click(`tbody a[href$="tag=admin"]`))
			d.onPage("Accounts", "\n1 account", "Alice")
		})
	}
}
