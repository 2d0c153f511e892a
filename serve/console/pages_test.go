package console

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

func hintOf(uid string) hints.Hint { return hints.UID(uid) }

// TestSetup checks that the set-up link creates one operator and is void after that.
func TestSetup(t *testing.T) {
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{Schema: testSchema()})
	must(t, err)
	defer db.Close()
	token, err := admin.BeginSetup(t.Context(), db)
	must(t, err)
	d := newTestConsole(t, db)
	if to := d.do(http.StatusSeeOther, "/console/find"); !strings.HasPrefix(to, "/console/signin?") {
		t.Errorf("before there is an operator, the console redirects to %q, want the sign-in page", to)
	}
	d.do(http.StatusGone, "/console/setup")
	if body := d.do(http.StatusGone, "/console/setup?token=made-up"); strings.Contains(body, "<form method=\"post\" action=\"/console/setup") {
		t.Error("an invalid link shows a form")
	}
	form := d.do(http.StatusOK, "/console/setup?token="+token)
	d.wantText(form, "Create the first operator")
	// The form sends the token in its body, because proxies log URLs.
	filled := func(body, name, password string) []string {
		return d.fillForm(body, "/console/setup", "name", name, "password", password)
	}
	form = d.do(http.StatusUnprocessableEntity, "/console/setup", filled(form, "", "short")...)
	d.wantText(form, "This field is required.", "At least ")
	if to := d.do(http.StatusSeeOther, "/console/setup", filled(form, "root", goodPassword)...); to != "/console" {
		t.Errorf("the setup redirects to %q, want /console", to)
	}
	d.wantText(d.do(http.StatusOK, "/console/find"), "root", "Sign out")
	d.do(http.StatusGone, "/console/setup?token="+token)
	d.do(http.StatusGone, "/console/setup", "token", token, "name", "mallory", "password", goodPassword)
	d.post(http.StatusSeeOther, "/console/signout")
	d.do(http.StatusSeeOther, "/console/find")
	d.wantText(d.do(http.StatusUnauthorized, "/console/signin", "name", "root", "password", "wrong"), "Wrong name or password.")
	d.signIn("ＲＯＯＴ", goodPassword)
}

// TestFind checks that an account is found by each of its identifiers, and what is suggested
// otherwise.
func TestFind(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		d.createAccount("u1", "name", "Alice", "email", "alice@example.com")
		d.createAccount("u2", "name", "Alicia", "email", "alicia@example.com")
		d.wantText(d.do(http.StatusOK, "/console/find?q=%EF%BC%A1%EF%BC%AC%EF%BC%A9%EF%BC%A3%EF%BC%A5"), "ＡＬＩＣＥ is read as alice and belongs to this account.", "Alice", "They can sign in")
		for _, q := range []string{"alice@EXAMPLE.com", "u1", "user/uid:u1", "+alice", " Alice "} {
			body := d.do(http.StatusOK, "/console/find?q="+strings.ReplaceAll(q, " ", "%20"))
			if q == "+alice" {
				continue // only its status is checked
			}
			if !strings.Contains(body, `<h2><a href="/console/types/user/u1">Alice</a>`) {
				t.Errorf("%q does not find Alice:\n%s", q, pageText(body))
			}
		}
		d.wantText(d.do(http.StatusOK, "/console/find?q=alice"), "user/name:alice/~prk points to user/uid:u1")
		d.wantText(d.do(http.StatusOK, "/console/find?q=alcie"), "Nobody has alcie. One letter away:", "Alice")
		d.wantText(d.do(http.StatusOK, "/console/find?q=ali"), "Nobody has ali.", "Others that begin with this", "Alicia alicia@example.com", "alicia@example.com of Alicia")
		d.wantText(d.do(http.StatusOK, "/console/find?q=somebody+else+altogether"), "Nobody has somebody else altogether.")
		if body := d.do(http.StatusOK, "/console/suggest?q=ALI"); strings.TrimSpace(body) != `["Alice","alice@example.com","Alicia","alicia@example.com"]` {
			t.Errorf("the suggestions are %s, want names and addresses of Alice and Alicia", body)
		}
	})
}

// TestList checks the pages of a list with the columns of the schema, filters, orders and counts.
func TestList(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		for i := range 60 {
			job := "baker"
			if i%20 == 0 {
				job = "cook"
			}
			d.createAccount(fmt.Sprintf("u%02d", i), "name", fmt.Sprintf("Name %02d", i), "email", fmt.Sprintf("n%02d@example.com", i), "job", job, "age", fmt.Sprint(i))
		}
		must(t, d.users.Disable(t.Context(), hintOf("u03")))
		_, err := d.users.Tags(hintOf("u20")).Add(t.Context(), "vip")
		must(t, err)
		const at = "/console/types/user"
		var pages []string
		for query := "?order=name"; query != ""; {
			body := d.do(http.StatusOK, at+query)
			pages = append(pages, strings.Join(regexp.MustCompile(`>(Name \d\d)<`).FindAllString(body, -1), ""))
			next := regexp.MustCompile(`href="/console/types/user(\?[^"]*)">Next page`).FindStringSubmatch(body)
			if query = ""; next != nil {
				query = html.UnescapeString(next[1])
			}
			d.wantText(body, "60 accounts.")
		}
		if all := strings.Count(strings.Join(pages, ""), "Name"); len(pages) != 3 || all != 60 || !strings.HasPrefix(pages[1], ">Name 25<") {
			t.Errorf("got %d pages with %d accounts, want 3 with 60: %q", len(pages), all, pages)
		}
		d.wantText(d.do(http.StatusOK, at+"?order=age&reverse=true"), "Name 59")
		cooks := d.do(http.StatusOK, d.do(http.StatusSeeOther, at+"?by=job&value=cook&order=age&disabled="))
		d.wantText(cooks, "3 accounts.", "Name 00", "Name 40", "job is cook remove")
		d.wantNoText(cooks, "Name 01")
		d.wantText(d.do(http.StatusOK, at+"?where=job:cook&tag=vip"), "1 account.", "Name 20")
		d.wantText(d.do(http.StatusOK, at+"?disabled=true"), "1 account.", "Name 03", "disabled")
		d.wantText(d.do(http.StatusOK, at+"?where=job:nobody"), "0 accounts.", "There are none.")
		unindexed := d.do(http.StatusUnprocessableEntity, at+"?where=bio:x")
		d.wantText(unindexed, "bio")
		d.wantNoText(unindexed, "There are none.")
		d.wantText(d.do(http.StatusUnprocessableEntity, at+"?order=bio"), "bio")
		d.do(http.StatusBadRequest, at+"?order=name&after=n.junk")
	})
}

// TestListOfLargeAccounts checks that a page of a list ends after 8 MiB of accounts, whether or not
// it shows them.
func TestListOfLargeAccounts(t *testing.T) {
	d := open(t, "memory:")
	for i := range 160 {
		uid := fmt.Sprintf("u%03d", i)
		d.createAccount(uid, "name", "Name "+uid, "bio", strings.Repeat("x", 60_000))
		if i%80 != 0 {
			must(t, d.users.Disable(t.Context(), hintOf(uid)))
		}
	}
	for _, query := range []string{"?disabled=false", "?disabled=false&order=name"} {
		d.wantText(d.do(http.StatusOK, "/console/types/user"+query), "Continue")
	}
}

// TestHistory checks that the history lists all events under the names of their accounts, the
// newest first, and that scripts receive new ones.
func TestHistory(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		for i := range 60 {
			d.createAccount(fmt.Sprintf("u%02d", i), "name", fmt.Sprintf("Name %02d", i), "email", fmt.Sprintf("n%02d@example.com", i))
		}
		body := d.do(http.StatusOK, "/console/history")
		d.wantText(body, "Name 59: The application created the account with added, email, name")
		d.wantNoText(body, "Name 05:", "u59")
		older := regexp.MustCompile(`href="(/console/history\?[^"]*)">Older`).FindStringSubmatch(body)
		if older == nil {
			t.Fatal("there is no link to older events")
		}
		d.wantText(d.do(http.StatusOK, html.UnescapeString(older[1])), "Name 05:")
		since := regexp.MustCompile(`data-since="([^"]*)"`).FindStringSubmatch(body)
		if since == nil {
			t.Fatal("there is no position to poll from")
		}
		d.post(http.StatusSeeOther, "/console/types/user/u07/disable")
		_, err := d.users.Login(t.Context(), "Name 08", "wrong", userdb.Attempt{Origin: "192.0.2.9"})
		if !isAny(err, userdb.ErrLogin) {
			t.Fatal(err)
		}
		news := d.do(http.StatusOK, "/console/history?since="+since[1])
		d.wantText(news, "Name 07: Operator Olga disabled the account", "Name 08: A visitor failed to sign in from 192.0.2.9")
		d.wantNoText(news, "Name 59")
		if !strings.HasPrefix(strings.TrimSpace(news), "<ol") {
			t.Errorf("the response contains more than the events: %s", news)
		}
		only := d.do(http.StatusOK, "/console/history?kind=disable")
		d.wantText(only, "Name 07")
		d.wantNoText(only, "Name 08:", "Name 59")
		must(t, d.users.Delete(t.Context(), hintOf("u09")))
		d.wantText(d.do(http.StatusOK, "/console/history"), "u09: The application deleted the account")
	})
}

// TestKeys checks that a secret is shown once and that a revoked key is gone.
func TestKeys(t *testing.T) {
	d := open(t, "memory:")
	body := d.do(http.StatusOK, "/console/keys", "name", "webshop", "scope", "read", "scope", "login", "expires", "30d")
	secret := regexp.MustCompile(`udb_[a-z2-7]{32}`).FindString(body)
	keys, err := admin.OpenKeys(d.db)
	must(t, err)
	k, err := keys.Find(t.Context(), admin.Hash(secret))
	if err != nil || !k.HasScope(admin.ScopeLogin) || k.HasScope(admin.ScopeWrite) || k.Expires.IsZero() {
		t.Errorf("the key is %+v, %v; want the scopes read and login and an expiry", k, err)
	}
	body = d.do(http.StatusOK, "/console/keys")
	d.wantText(body, "webshop", "read, login")
	d.wantNoText(body, secret)
	d.wantText(d.do(http.StatusConflict, "/console/keys", "name", "WEBSHOP", "scope", "read"), "There is a key with this name.")
	d.wantText(d.do(http.StatusBadRequest, "/console/keys", "name", "other"), "Choose at least one.")
	d.wantText(d.do(http.StatusBadRequest, "/console/keys", "name", ""), "Choose at least one.", "A name consists of")
	d.wantText(d.do(http.StatusBadRequest, "/console/keys", "name", "other", "scope", "read", "expires", "1d"), "Choose how long the key is valid.")
	d.wantNoText(d.do(http.StatusOK, "/console/keys"), "other")
	body = d.do(http.StatusUnprocessableEntity, "/console/keys", "name", "a b", "scope", "read", "expires", "90d")
	d.wantText(body, "A name consists of")
	if !strings.Contains(body, `value="a b"`) || !strings.Contains(body, `value="read" checked>`) || !strings.Contains(body, `value="90d" selected>`) || strings.Count(body, " checked>") != 1 {
		t.Errorf("the form has lost what was chosen:\n%s", body)
	}
	d.wantText(d.do(http.StatusOK, d.do(http.StatusSeeOther, "/console/keys/revoke", "name", "webshop")), "The key has been revoked.", "There are no keys yet.")
	d.do(http.StatusNotFound, "/console/keys/revoke", "name", "webshop")
}

func TestSchemaPage(t *testing.T) {
	d := open(t, "memory:")
	d.wantText(d.do(http.StatusOK, "/console/schema"), "The primary field is uid", "at most 3 values", "email and name: no value fits both (proved)", "An account with short values takes about", "Passwords must have at least 8 characters")
}

// TestStatusPage checks that the page has no picture until somebody has signed in, and then a bar
// for each outcome.
func TestStatusPage(t *testing.T) {
	eachStillStore(t, func(t *testing.T, d *testConsole) {
		body := d.status()
		if d.wantText(body, "Nobody has signed in, or tried to, in the last seven days."); strings.Contains(body, "<svg") {
			t.Error("the page has a picture of nothing")
		}
		d = newTestConsole(t, d.db) // which has not counted anything yet
		d.signIn(operatorName, goodPassword)
		d.createAccount("u1", "name", "Alice", "email", "alice@example.com")
		for _, password := range []string{goodPassword, "wrong", "wrong too"} {
			_, _ = d.users.Login(t.Context(), "alice", password, userdb.Attempt{})
		}
		body = d.status()
		d.wantText(body, "1 successful, 2 failed", "user1")
		if strings.Count(body, "<rect") != 2 {
			t.Errorf("the plot has %d bars, want 2", strings.Count(body, "<rect"))
		}
	})
}

// status returns the page Status after everything has been counted.
func (d *testConsole) status() (body string) {
	d.t.Helper()
	for n := 0; n < 100 && (n == 0 || strings.Contains(body, "being counted") || strings.Contains(body, "being read")); n++ {
		body = d.do(http.StatusOK, "/console/status")
	}
	return body
}

// TestFoldedFilters checks that the filters of the history are folded unless one of them is wrong.
func TestFoldedFilters(t *testing.T) {
	d := open(t, "memory:")
	d.createAccount("u1", "name", "Alice", "email", "alice@example.com")
	filters := regexp.MustCompile(`<details[^>]*><summary[^>]*>Filter …`)
	for query, open := range map[string]bool{
		"": false, "?kind=disable": false, "?account=alice": false, "?account=nobody": true, "?by=Olga": false, "?from=2026-01-01": false, "?until=x": true,
	} {
		want := http.StatusOK
		switch query {
		case "?account=nobody":
			want = http.StatusNotFound
		case "?until=x":
			want = http.StatusUnprocessableEntity
		}
		body := d.do(want, "/console/history"+query)
		if found := filters.FindString(body); found == "" || strings.Contains(found, " open") != open {
			t.Errorf("%q: the filters are %q, want them open: %v", query, found, open)
		}
	}
}

// TestTypeToChoose checks that imports and exports let operators choose a type, and that the titles
// of lists name the type, only if there are several.
func TestTypeToChoose(t *testing.T) {
	sc := testSchema()
	one, several := openSchema(t, "memory:", schema.Schema{Types: map[string]schema.Type{"user": sc.Types["user"]}}, true), openSchema(t, "memory:", schema.Schema{Types: map[string]schema.Type{"staff": sc.Types["user"], "user": sc.Types["user"]}}, true)
	for d, title := range map[*testConsole]string{one: "Accounts", several: "Accounts: user"} {
		if body := d.do(http.StatusOK, "/console/types/user"); !strings.Contains(body, "<h1>"+title+"</h1>") {
			t.Errorf("the title of the list is not %q:\n%s", title, body)
		}
	}
	for _, path := range []string{"/console/import", "/console/export"} {
		body := one.do(http.StatusOK, path)
		one.wantText(body, "The accounts are of the type user.")
		if strings.Contains(body, `<select id="type"`) {
			t.Errorf("%s lets operators choose a type although there is only one:\n%s", path, body)
		}
		if body := several.do(http.StatusOK, path); !strings.Contains(body, `<select id="type"`) {
			t.Errorf("%s lets nobody choose one of two types:\n%s", path, body)
		}
	}
	one.wantText(one.do(http.StatusOK, one.do(http.StatusSeeOther, "/console/export", jobInput, inputValue(one.do(http.StatusOK, "/console/export"), jobInput))), "Export")
}

// TestNoTags checks that the page says that an account has no tags, and does not show this as a
// tag.
func TestNoTags(t *testing.T) {
	d := open(t, "memory:")
	d.createAccount("u1", "name", "Alice")
	const at = "/console/types/user/u1"
	body := d.do(http.StatusOK, at)
	d.wantText(body, "The account has no tags.")
	if strings.Contains(body, `class="chips"`) {
		t.Errorf("the page shows a tag:\n%s", body)
	}
	d.do(http.StatusSeeOther, at+"/tags", "add", "vip")
	d.wantNoText(d.do(http.StatusOK, at), "The account has no tags.")
}
