package console

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// filterForm submits the filter form of a page, and returns the path to which the response
// redirects. more holds further names and values.
func (d *testConsole) filterForm(body, by, value string, more ...string) string {
	d.t.Helper()
	_, form, found := strings.Cut(body, `<form class="filters"`)
	form, _, _ = strings.Cut(form, "</form>")
	if !found || !strings.Contains(form, `<option value="`+by+`"`) {
		d.t.Fatalf("the form offers no filter %s: %s", by, form)
	}
	sent := url.Values{"by": {by}, "value": {value}}
	for _, m := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`).FindAllStringSubmatch(form, -1) {
		sent.Add(html.UnescapeString(m[1]), html.UnescapeString(m[2]))
	}
	for i := 0; i+1 < len(more); i += 2 {
		sent.Add(more[i], more[i+1])
	}
	return d.do(http.StatusSeeOther, "/console/types/user?"+sent.Encode())
}

// TestFilterUsesIndex checks that a filter that an index answers finds an account even if there are
// more accounts than a page may read, and that it drops the order of the list.
func TestFilterUsesIndex(t *testing.T) {
	skipUnderRace(t)
	d := open(t, "memory:")
	for i := range 1200 {
		job := "baker"
		if i == 3 {
			job = "cook"
		}
		d.createAccount(fmt.Sprint("u", i), "name", fmt.Sprint("Name ", i), "email", fmt.Sprintf("n%d@example.com", i), "job", job, "added", fmt.Sprintf("2026-02-10T12:%02d:%02dZ", i/60, i%60))
	}
	_, err := d.users.Tags(hintOf("u3")).Add(t.Context(), "vip")
	must(t, err)
	const at = "/console/types/user"
	sorted := d.do(http.StatusOK, at+"?order=name")
	for _, list := range []string{d.do(http.StatusOK, at), sorted} {
		for _, to := range []string{
			d.filterForm(list, "uid", "u3"), d.filterForm(list, "email", "n3@example.com"),
			d.filterForm(list, "job", "cook"), d.filterForm(list, "name", "", "tag", "vip"),
		} {
			if strings.Contains(to, "order") || strings.Contains(to, "reverse") {
				t.Errorf("the filter leads to %s, which has an order", to)
			}
			body := d.do(http.StatusOK, to)
			d.wantText(body, "Name 3", "1 account.")
			d.wantNoText(body, "Continue")
		}
	}
	body := d.do(http.StatusOK, at+"?done=delete&order=name")
	d.wantText(body, "The account has been deleted.")
	if strings.Contains(body, "done=delete") {
		t.Error("the message is in a link of the page")
	}
}

// TestRanges checks that a list has the range that was chosen last, and that only ordered fields
// with texts can be filtered by the beginning of a text.
func TestRanges(t *testing.T) {
	d := open(t, "memory:")
	for i := range 3 {
		d.createAccount(fmt.Sprint("u", i), "name", fmt.Sprint("Name ", i), "job", "cook", "added", fmt.Sprintf("2026-02-%02dT12:00:00Z", 10+i))
	}
	list := d.do(http.StatusOK, "/console/types/user")
	for _, field := range []string{"job", "age", "added", "uid"} {
		if strings.Contains(list, `value="`+beginsWith+field+`"`) {
			t.Errorf("the list offers to filter by the beginning of %s, which is not an ordered text", field)
		}
	}
	dated := d.do(http.StatusOK, d.filterForm(list, "name", "", "from", "2026-02-11", "to", ""))
	d.wantText(dated, "added from 2026-02-11 remove", "2 accounts.")
	begun := d.do(http.StatusOK, d.filterForm(dated, beginsWith+"name", "name 0"))
	d.wantText(begun, "name begins with name 0 remove", "1 account.")
	d.wantNoText(begun, "2026-02-11 remove")
	again := d.do(http.StatusOK, d.filterForm(begun, "name", "", "from", "2026-02-12", "to", "2026-02-12"))
	d.wantText(again, "added from 2026-02-12 remove", "added until 2026-02-12 remove", "1 account.")
	d.wantNoText(again, "begins with name 0")
	d.wantText(d.do(http.StatusOK, d.filterForm(dated, "job", "cook")), "added from 2026-02-11 remove", "job is cook remove", "Name 2")
	d.wantText(d.do(http.StatusUnprocessableEntity, "/console/types/user?by="+beginsWith+"name&value=n&from=2026-02-12"), "Leave one of them out.")
}

// TestListWhileOrderIsBuilt checks that a list is shown although the index of its usual order is
// not complete.
func TestListWhileOrderIsBuilt(t *testing.T) {
	server := redistest.Start(t)
	before, next := testSchema(), testSchema()
	added := before.Types["user"].Fields["added"]
	added.Role &^= schema.RoleOrdered
	before.Types["user"].Fields["added"] = added
	raw := server.Client()
	db, err := userdb.Open(t.Context(), server.URL(), userdb.Options{Schema: before, Keys: [][]byte{make([]byte, 32)}})
	must(t, err)
	defer db.Close()
	users, err := db.Type("user")
	must(t, err)
	_, err = users.Create(t.Context(), userdb.NewEntry{UID: "u1", Facets: schema.Texts("name", "Alice")})
	must(t, err)
	later, err := db.With(next)
	must(t, err)
	const stored = "~/schema/user"
	was := raw.HGet(t.Context(), stored, "fingerprint").Val()
	must(t, raw.HSet(t.Context(), stored, "fingerprint", "~"+was+">", "next", view.Of(later).ByName["user"].Guard.JSON).Err())
	d := newTestConsole(t, later)
	_, err = newOperator(t, d, operatorName)
	must(t, err)
	d.signIn(operatorName, goodPassword)
	d.wantText(d.do(http.StatusOK, "/console/types/user"), "Alice", "1 account.")
	d.wantText(d.do(http.StatusServiceUnavailable, "/console/types/user?order=added"), "This cannot be listed yet", "Try again")
	server.Stop()
	d.wantText(d.do(http.StatusServiceUnavailable, "/console/history"), "The store is not responding", "Try again")
}

// TestMoreThanSuggestions checks that a search for the beginning of an identifier links to lists of
// all accounts that match, if it cannot show them all.
func TestMoreThanSuggestions(t *testing.T) {
	d := open(t, "memory:")
	for i := range maxSuggestions + 1 {
		d.createAccount(fmt.Sprint("u", i), "name", fmt.Sprint("Smith ", i), "email", fmt.Sprintf("smith.%d@example.com", i))
	}
	body := d.do(http.StatusOK, "/console/find?q=smit")
	links := regexp.MustCompile(`All that begin with this, by <a href="([^"]*)">email</a>, <a href="([^"]*)">name</a>`).FindStringSubmatch(body)
	if links == nil {
		t.Fatalf("no link leads to all accounts:\n%s", body)
	}
	for _, link := range links[1:] {
		d.wantText(d.do(http.StatusOK, html.UnescapeString(link)), "Smith 0", "Smith 8")
	}
	d.wantNoText(d.do(http.StatusOK, "/console/find?q=smith+8"), "All that begin")
}

// TestColumnsThatFit checks that a narrow window hides the last of the usual columns, but neither
// the column by which the list is sorted nor any that was chosen.
func TestColumnsThatFit(t *testing.T) {
	d := open(t, "memory:")
	d.createAccount("u1", "name", "Alice", "email", "alice@example.com", "job", "cook", "bio", "tall")
	cells := regexp.MustCompile(`<td data-label="([^"]*)"(?: class="([^"]*)")?`)
	for query, want := range map[string]string{
		"":                            "email:typed job:from-900 added: bio:from-900",
		"?order=name":                 "email:typed job:from-900 added:from-900 bio:from-1200",
		"?order=name&col=job&col=bio": "job: bio:",
	} {
		var got []string
		for _, m := range cells.FindAllStringSubmatch(d.do(http.StatusOK, "/console/types/user"+query), -1) {
			got = append(got, m[1]+":"+m[2])
		}
		if joined := strings.Join(got, " "); joined != want {
			t.Errorf("%q: the columns are %s, want %s", query, joined, want)
		}
	}
}
