package console

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestSearchBox checks that the search box of every page opens the one account that has what was
// entered, and otherwise explains what was found.
func TestSearchBox(t *testing.T) {
	d := open(t, "memory:")
	d.createAccount("u1", "name", "Alice", "email", "alice@example.com")
	for _, path := range []string{"/console", "/console/find", "/console/types/user", "/console/types/user/u1", "/console/new", "/console/history", "/console/import", "/console/export", "/console/check", "/console/jobs", "/console/schema", "/console/keys", "/console/operators", "/console/status", "/console/security"} {
		body := d.do(http.StatusOK, path)
		if !strings.Contains(body, `<input id="q" name="q" type="search"`) {
			t.Errorf("%s has no search box", path)
		}
		if path != "/console/find" && path != "/console/security" && strings.Count(body, "aria-current") < 1 {
			t.Errorf("%s does not mark the current place", path)
		}
		if path != "/console" && !strings.Contains(body, `aria-label="Breadcrumbs"`) {
			t.Errorf("%s does not say where it is", path)
		}
	}
	if to := d.do(http.StatusSeeOther, "/console/find?open=true&q=alice@example.com"); to != "/console/types/user/u1" {
		t.Errorf("an exact match leads to %q, want the account", to)
	}
	to := d.do(http.StatusSeeOther, "/console/find?open=true&q=ALICE")
	d.wantText(d.do(http.StatusOK, to), "ALICE is read as alice. Why it leads here", "They can sign in")
	d.wantText(d.do(http.StatusOK, "/console/find?open=true&q=alcie"), "Nobody has alcie. One letter away:")
	d.wantText(d.do(http.StatusOK, "/console"), "Opened by you", "Alice")
}

// TestHome checks that the home page of an empty store says how to begin, and that of a store with
// an account shows who failed to sign in.
func TestHome(t *testing.T) {
	eachStillStore(t, func(t *testing.T, d *testConsole) {
		home := func(d *testConsole) (body string) {
			for n := 0; n < 100 && (n == 0 || strings.Contains(body, "being counted")); n++ {
				body = d.do(http.StatusOK, "/console")
			}
			return body
		}
		d.wantText(home(d), "There are no accounts yet", "Create an account", "Import a file", "curl "+d.base+"/v1/types/user/entries", "Nobody has signed in")
		// Behind a proxy the command does not name the console's host, which may not serve the API.
		proxied, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.base+"/console", nil)
		must(t, err)
		proxied.Header.Set("X-Forwarded-Proto", "https")
		body := d.send(http.StatusOK, proxied)
		d.wantText(body, "$URL is where your proxy serves the API", "curl $URL/v1/types/user/entries")
		d.wantNoText(body, "https://"+proxied.URL.Host)
		d.createAccount("u1", "name", "Alice")
		for range 3 {
			_, _ = d.users.Login(t.Context(), "alice", "wrong", userdb.Attempt{Origin: "192.0.2.7"})
		}
		_, _ = d.users.Login(t.Context(), "alice", "wrong", userdb.Attempt{Origin: "192.0.2.8"})
		other := newTestConsole(t, d.db) // which has not counted anything yet
		other.signIn(operatorName, goodPassword)
		body = home(other)
		d.wantNoText(body, "There are no accounts yet")
		d.wantText(body, "Failed sign-ins in 24 hours 4 usually 0", "Alice: A visitor failed to sign in 3 times from 192.0.2.7", "A visitor failed to sign in from 192.0.2.8")
		if !strings.Contains(body, "Busiest hour: 4.") {
			t.Error("the picture is not described in words")
		}
	})
}

// TestAccountTabs checks what the tabs of an account show: who signed in, who failed to, and what
// was changed.
func TestAccountTabs(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		const at = "/console/types/user/u1"
		d.createAccount("u1", "name", "Alice")
		d.createAccount("u2", "name", "Bob")
		d.createAccount("u3", "name", "Carol")
		_, err := d.users.Login(t.Context(), "alice", goodPassword, userdb.Attempt{Origin: "192.0.2.1"})
		must(t, err)
		for range 3 {
			_, _ = d.users.Login(t.Context(), "alice", "wrong", userdb.Attempt{Origin: "192.0.2.7"})
			_, _ = d.users.Login(t.Context(), "bob", "wrong", userdb.Attempt{Origin: "192.0.2.9"})
		}
		body := d.do(http.StatusOK, at)
		d.wantText(body, "Three wrong guesses lately, from one address: 192.0.2.7.", "email, age, bio, job, news")
		body = d.do(http.StatusOK, at+"?tab=signins")
		d.wantText(body, "A visitor failed to sign in 3 times from 192.0.2.7", "A visitor signed in from 192.0.2.1")
		d.wantNoText(body, "192.0.2.9", "created the account")
		d.wantText(d.do(http.StatusOK, at+"?tab=history"), "The application created the account")
		d.wantText(d.do(http.StatusOK, at+"?tab=signins&after=junk"), "There are no older ones.")
		d.wantText(d.do(http.StatusOK, "/console/types/user/u3?tab=signins"), "There is no record of a sign-in")
		d.wantText(d.do(http.StatusOK, at+"?tab=nothing"), "Details")
	})
}

// TestUndo checks that one form takes back each action that can be undone.
func TestUndo(t *testing.T) {
	d := open(t, "memory:")
	const at = "/console/types/user/u1"
	d.createAccount("u1", "name", "Alice")
	state := func() string {
		e, err := d.users.Find(t.Context(), hintOf("u1"))
		must(t, err)
		tags, err := d.users.Tags(hintOf("u1")).Members(t.Context())
		must(t, err)
		return fmt.Sprint(e.Disabled(), " ", tags)
	}
	do := func(path, undo, want string, form ...string) {
		t.Helper()
		before := state()
		body := d.do(http.StatusOK, d.do(http.StatusSeeOther, at+path, append(form, "", "")...))
		if got := state(); got != want {
			t.Errorf("%s: the account is %s, want %s", path, got, want)
		}
		_, done, _ := strings.Cut(body, `class="done"`)
		done, _, _ = strings.Cut(done, "</div>")
		if !strings.Contains(done, `action="`+at+undo+`"`) {
			t.Errorf("%s cannot be undone: %s", path, done)
		}
		d.do(http.StatusSeeOther, at+undo, append(d.fillForm(done, at+undo), "", "")...)
		if got := state(); got != before {
			t.Errorf("%s undone: the account is %s, want %s", path, got, before)
		}
		d.do(http.StatusSeeOther, at+path, append(form, "", "")...)
	}
	do("/disable", "/enable", "true []")
	do("/enable", "/disable", "false []")
	do("/tags", "/tags", "false [a&b]", "add", " a&b ")
	do("/tags", "/tags", "false []", "remove", "a&b")
	d.wantNoText(d.do(http.StatusOK, d.post(http.StatusSeeOther, at+"/sessions/end")), "Undo")
}

// TestCreateAndDelete creates accounts and deletes one, and checks that problems of a form are
// shown beside its inputs.
func TestCreateAndDelete(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		d.createAccount("u1", "name", "Alice", "email", "alice@example.com")
		form := d.do(http.StatusOK, "/console/new")
		body := d.do(http.StatusConflict, "/console/new", d.fillForm(form, "/console/new", "email", "ALICE@example.com", "job", "cook")...)
		d.wantText(body, "Somebody has this already.", "alice@example.com is the email of Alice")
		if inputValue(body, "job") != "cook" {
			t.Error("the form lost what was entered")
		}
		d.wantText(d.do(http.StatusUnprocessableEntity, "/console/new", d.fillForm(form, "/console/new", "email", "no address", "age", "old")...), "This is not an e-mail address.")
		at := d.do(http.StatusSeeOther, "/console/new", d.fillForm(body, "/console/new", "email", "bob@straße.example", "name", "Bob", "age", "42")...)
		d.wantText(d.do(http.StatusOK, at), "The account has been created.", "Bob", "bob@straße.example", "the account has no password")
		e, err := d.users.Find(t.Context(), hints.Any("bob"))
		must(t, err)
		if age, _ := e.Get("age"); age != schema.Number(42) || e.Text("job") != "cook" || e.Text("email") != "bob@straße.example" {
			t.Errorf("created %v, want what the form has", e.Facets())
		}
		d.do(http.StatusNotFound, "/console/new?type=nothing")
		d.do(http.StatusNotFound, "/console/new", typeName, "nothing")
		path, _, _ := strings.Cut(at, "?")
		d.wantText(d.do(http.StatusOK, path), "This cannot be undone.")
		to := d.post(http.StatusSeeOther, path+"/delete")
		d.wantText(d.do(http.StatusOK, to), "The account has been deleted.", "Alice")
		d.do(http.StatusNotFound, path)
		d.wantText(d.do(http.StatusOK, "/console"), e.UID()+" deleted")
		d.wantText(d.do(http.StatusOK, "/console/history"), "Operator Olga created the account", "Operator Olga deleted the account")
	})
}

// TestLinkedAccounts checks that identities at other providers are shown by their labels and can be
// removed, but not entered, and that a list leaves them out.
func TestLinkedAccounts(t *testing.T) {
	sc := testSchema()
	sc.Types["user"].Fields["links"] = schema.Field{Role: schema.RoleSecondary, Many: 5, Typed: new(false)}
	d := openSchema(t, "memory:", sc, true)
	e := d.createAccount("u1", "name", "Alice")
	_, secret, err := d.users.StartSession(t.Context(), e, userdb.SessionOptions{})
	must(t, err)
	_, _, err = d.users.VerifySession(t.Context(), secret, goodPassword, userdb.Attempt{})
	must(t, err)
	_, err = d.users.LinkIdentity(t.Context(), secret, userdb.Link{Field: "links", Identity: strings.Repeat("ab", 32), Label: "Example ID"})
	must(t, err)
	const at = "/console/types/user/u1"
	body := d.do(http.StatusOK, at)
	d.wantText(body, "Linked accounts Example ID")
	d.wantNoText(d.do(http.StatusOK, "/console/types/user"), "abab")
	if strings.Contains(body, `name="links"`) {
		t.Error("an identity can be entered")
	}
	question := d.values(http.StatusOK, at, "field", "links", "do", "remove", "index", "0")
	d.do(http.StatusSeeOther, at+"/values", d.fillForm(question, at+"/values")...)
	d.wantNoText(d.do(http.StatusOK, at), "Linked accounts")
}

// TestBulk disables, enables, tags and exports accounts that were selected in a list, each as one
// job after a question.
func TestBulk(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		for i := range 3 {
			d.createAccount(fmt.Sprint("u", i), "name", fmt.Sprint("Name ", i))
		}
		do := func(do, add, question string) (body string) {
			t.Helper()
			asked := d.do(http.StatusOK, "/console/bulk", "type", "user", "do", do, "add", add, "uid", "u0", "uid", "u2", "uid", "gone", "uid", "u2")
			d.wantText(asked, question, "Cancel")
			body = d.waitForJob(d.do(http.StatusSeeOther, "/console/bulk", d.fillForm(asked, "/console/bulk")...))
			d.wantText(body, "done. "+bulkTexts[do]+"2 accounts. 1 account no longer exist")
			return body
		}
		state := func() (all string) {
			for i := range 3 {
				e, err := d.users.Find(t.Context(), hintOf(fmt.Sprint("u", i)))
				must(t, err)
				tags, err := d.users.Tags(hintOf(e.UID())).Members(t.Context())
				must(t, err)
				all += fmt.Sprint(e.Disabled(), tags, " ")
			}
			return all
		}
		do("disable", "", "Nobody can sign in to 3 accounts until they are enabled again.")
		do("tag", "vip", "The tag “vip” is added to 3 accounts.")
		if got, want := state(), "true [vip] false [] true [vip] "; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		do("enable", "", "The owners of 3 accounts can sign in again")
		if got, want := state(), "false [vip] false [] false [vip] "; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if past := d.history("u2"); past[0] != "enable operator:"+operatorName {
			t.Errorf("the history begins with %q, want enable", past[0])
		}
		d.wantText(do("export", "", "A file with all that is stored about 3 accounts"), "Download accounts.jsonl")
		for _, form := range [][]string{{"do", "disable"}, {"do", "tag", "uid", "u0"}, {"do", "nothing", "uid", "u0"}} {
			d.wantText(d.do(http.StatusUnprocessableEntity, "/console/bulk", form...), "Nothing was done")
		}
	})
}

// TestListTool checks that a list begins with the newest accounts, is sorted by its headers, shows
// the columns that are not empty or that were chosen, and keeps its filters in the URL.
func TestListTool(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		for i := range 3 {
			d.createAccount(fmt.Sprint("u", i), "name", fmt.Sprint("Name ", i), "added", fmt.Sprintf("2026-02-%02dT12:00:00Z", 10+i), "age", fmt.Sprint(40-i))
		}
		const at = "/console/types/user"
		order := func(body string) (names string) {
			for _, part := range strings.Split(body, `title="Name `)[1:] {
				names += part[:1]
			}
			return names
		}
		body := d.do(http.StatusOK, at)
		if got := order(body); got != "210" {
			t.Errorf("the list begins with the accounts %s, want the newest first", got)
		}
		d.wantText(body, "10 Feb 2026")
		if strings.Contains(body, `data-label="job"`) || !strings.Contains(body, `aria-sort="descending"`) || !strings.Contains(body, `title="10 Feb 2026 12:00:00 UTC"`) {
			t.Error("the list shows an empty column, no order or no exact times")
		}
		for query, want := range map[string]string{
			"?order=name": "012", "?order=name&reverse=true": "210", "?order=age": "210", "?order=added&gte=2026-02-11": "12", "?order=added&reverse=true&gte=2026-02-11&lte=2026-02-11": "1",
			"?order=name&prefix=NAME+1": "1", "?order=name&prefix=other": "",
		} {
			if got := order(d.do(http.StatusOK, at+query)); got != want {
				t.Errorf("%s: got the accounts %s, want %s", query, got, want)
			}
		}
		for query, chip := range map[string]string{
			"?by=~prefix:name&value=name&from=&to=": "name begins with name remove", "?by=name&value=&from=2026-02-11&to=2026-02-12": "added from 2026-02-11 remove", "?by=name&value=&disabled=false": "not disabled remove",
		} {
			d.wantText(d.do(http.StatusOK, d.do(http.StatusSeeOther, at+query)), chip)
		}
		chosen := d.do(http.StatusOK, at+"?col=job&col=bio&order=name")
		if !strings.Contains(chosen, `data-label="job"`) || strings.Contains(chosen, `data-label="age"`) || !strings.Contains(chosen, "col=job&amp;col=bio") {
			t.Error("the chosen columns are not shown, or not kept")
		}
		d.do(http.StatusUnprocessableEntity, at+"?order=age&gte=old")
	})
}

// TestHistoryFilters checks that the history is filtered by account, operator, address and time,
// and that equal events in a row are one line.
func TestHistoryFilters(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		d.createAccount("u1", "name", "Alice")
		d.createAccount("u2", "name", "Bob")
		d.post(http.StatusSeeOther, "/console/types/user/u1/disable")
		for range 6 {
			_, _ = d.users.Login(t.Context(), "bob", "wrong", userdb.Attempt{Origin: "192.0.2.7"})
		}
		_, _ = d.users.Login(t.Context(), "nobody", "wrong", userdb.Attempt{Origin: "192.0.2.8"})
		const at = "/console/history"
		d.wantText(d.do(http.StatusOK, at), "Bob: A visitor failed to sign in 6 times from 192.0.2.7", "Unknown name: A visitor failed to sign in from 192.0.2.8")
		body := d.do(http.StatusOK, at+"?account=ALICE")
		d.wantText(body, "Alice: Operator Olga disabled the account", "Alice: The application created")
		d.wantNoText(body, "Bob:")
		body = d.do(http.StatusOK, at+"?account=bob")
		d.wantText(body, "Bob: A visitor failed to sign in 6 times from 192.0.2.7", "Bob: The application created")
		d.wantNoText(body, "Alice:", "nobody")
		body = d.do(http.StatusOK, at+"?account=bob&kind=login_failed")
		d.wantText(body, "failed to sign in 6 times")
		d.wantNoText(body, "The application created")
		body = d.do(http.StatusOK, at+"?account=alice&by=olga")
		d.wantText(body, "Operator Olga disabled the account")
		d.wantNoText(body, "The application created")
		body = d.do(http.StatusOK, at+"?by=olga")
		d.wantText(body, "Alice: Operator Olga disabled the account")
		d.wantNoText(body, "The application created")
		body = d.do(http.StatusOK, at+"?origin=192.0.2.8")
		d.wantText(body, "192.0.2.8")
		d.wantNoText(body, "192.0.2.7", "Alice:")
		spaced := d.do(http.StatusOK, at+"?account=+ALICE+&by=+olga+&until=+2099-01-01+")
		d.wantText(spaced, "Operator Olga disabled the account")
		for name, entered := range map[string]string{"account": " ALICE ", "by": " olga ", "until": " 2099-01-01 "} {
			if got := inputValue(spaced, name); got != entered {
				t.Errorf("the input %s has %q, want %q", name, got, entered)
			}
		}
		d.wantText(d.do(http.StatusOK, at+"?until=2020-01-01"), "There are no events")
		d.wantText(d.do(http.StatusOK, at+"?until=2099-01-01"), "Bob: The application created")
		for _, name := range []string{"from", "until"} {
			d.wantText(d.do(http.StatusUnprocessableEntity, at+"?"+name+"=yesterday"), "Not a date: write 2026-11-20")
		}
		now := time.Now().UTC()
		ago, soon := now.Add(-time.Hour).Format("2006-01-02 15:04"), now.Add(2*time.Minute).Format("2006-01-02T15:04")
		between := d.do(http.StatusOK, at+"?"+url.Values{"from": {ago}, "until": {soon}}.Encode())
		d.wantText(between, "Bob: The application created")
		if got := inputValue(between, "from"); got != ago {
			t.Errorf("the form has %q, want %q", got, ago)
		}
		for _, none := range []string{"?from=" + soon, "?until=" + url.QueryEscape(ago)} {
			d.wantText(d.do(http.StatusOK, at+none), "There are no events")
		}
		d.wantText(d.do(http.StatusNotFound, at+"?account=carol"), "Nobody has “carol”.")
		wrong := d.do(http.StatusUnprocessableEntity, at+"?account=bob&from=x&until=y")
		if n := strings.Count(wrong, `aria-invalid="true"`); n != 2 {
			t.Errorf("%d dates are marked as wrong, want two", n)
		}
		d.wantNoText(wrong, "There are no events", "remove the filter")
		many := d.do(http.StatusOK, at+"?account=bob&kind=create&by=x&origin=192.0.2.7&from=2026-01-01&until=2099-01-01")
		d.wantText(many, "accounts created remove the filter accounts created", "account bob remove", "by x remove", "address 192.0.2.7 remove", "from 2026-01-01 remove", "until 2099-01-01 remove", "Show all")
		without := regexp.MustCompile(`<bdi>bob</bdi> <a href="([^"]*)"`).FindStringSubmatch(many)
		if want := at + "?by=x&amp;from=2026-01-01&amp;kind=create&amp;origin=192.0.2.7&amp;until=2099-01-01"; without == nil || without[1] != want {
			t.Errorf("the history without the account is at %q, want %s", without, want)
		}
		alone := d.do(http.StatusOK, at+"?account=bob")
		if !strings.Contains(alone, `<a href="/console/history">remove`) || strings.Contains(alone, `<details class="ask" open>`) {
			t.Error("a filter cannot be removed, or the form is unfolded")
		}
	})
}
