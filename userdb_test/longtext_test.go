package userdb_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// allocated returns how many bytes a call allocates.
func allocated(call func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// TestLongTexts gives each method texts longer than any identifier. A text whose canonical form
// takes much work must not allocate much more than a plain one.
func TestLongTexts(t *testing.T) {
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{Schema: orderedNames()})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	users := typeOf(t, db, "user")
	must(t, errOf(users.Create(t.Context(), userdb.NewEntry{UID: "ann", Facets: schema.Texts("name", "Ann", "email", "ann@example.com")})))
	value := func(text string) schema.Facets { return schema.Facets{"name": schema.Text(text)} }
	for name, method := range map[string]func(text string) error{
		"Login": func(text string) error {
			return errOf(users.Login(t.Context(), text, "wrong password", userdb.Attempt{}))
		},
		"IssueForVisitor": func(text string) error {
			_, _, err := users.IssueForVisitor(t.Context(), "email", text, userdb.Token{Purpose: "reset"}, userdb.Attempt{Origin: "192.0.2.7"})
			return err
		},
		"Invite": func(text string) error {
			return errOf(users.Invite(t.Context(), "email", text, userdb.Token{}, userdb.Attempt{}))
		},
		"Find":           func(text string) error { return errOf(users.Find(t.Context(), hints.Any(text))) },
		"Find by field":  func(text string) error { return errOf(users.Find(t.Context(), hints.Field("name", text))) },
		"Find by facets": func(text string) error { return errOf(users.Find(t.Context(), hints.Facets(value(text)))) },
		"Query by value": func(text string) error { return errOf(users.Page(t.Context(), userdb.Query{Where: value(text)})) },
		"Query prefix": func(text string) error {
			return errOf(users.Page(t.Context(), userdb.Query{Order: "name", Prefix: text}))
		},
		"Query bound": func(text string) error {
			v := schema.Text(text)
			return errOf(users.Page(t.Context(), userdb.Query{Order: "name", GTE: &v}))
		},
		"Create": func(text string) error { return errOf(users.Create(t.Context(), userdb.NewEntry{Facets: value(text)})) },
		"Create, password required": func(text string) error {
			return errOf(users.Create(t.Context(), userdb.NewEntry{Facets: value(text), Password: "x", RequirePassword: true}))
		},
		"Create, reserved values": func(text string) error {
			return errOf(users.Create(t.Context(), userdb.NewEntry{Facets: schema.Facets{"title": schema.Text(text)}}))
		},
		"Issue, change of address": func(text string) error {
			return errOf(users.Issue(t.Context(), hints.UID("ann"), userdb.Token{Purpose: "change:email", Value: text}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			call := func(text string) (bytes int64) {
				for range 3 { // the first call may fill caches
					bytes = allocated(func() {
						if method(text) == nil {
							t.Errorf("a text of %d bytes was accepted", len(text))
						}
					})
				}
				return bytes
			}
			plain := call(strings.Repeat("a", 63<<10))
			for what, unit := range map[string]string{"ligatures": "\ufdfa", "domains": "ß@ß.", "marks": "e\u0301", "invalid UTF-8": "é\xff"} {
				if n := call(strings.Repeat(unit, 63<<10/len(unit))); n > plain+100<<10 {
					t.Errorf("%s: allocated %d bytes, want at most 100 KiB more than the %d for a plain text", what, n, plain)
				}
			}
		})
	}
}

// orderedNames returns a schema in which names are ordered and titles have reserved values.
func orderedNames() schema.Schema {
	sc := schema.User()
	user := sc.Types["user"]
	user.Fields["name"] = schema.Field{Role: schema.RoleSecondary | schema.RoleOrdered, Kind: "nickname"}
	user.Fields["title"] = schema.Field{Reserved: []string{"admin"}}
	return sc
}

// TestLongTextsAreThrottled checks that identifiers that are too long are counted by their
// beginning, so that guesses with them are throttled like any others.
func TestLongTextsAreThrottled(t *testing.T) {
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	users := typeOf(t, db, "user")
	delay := time.Duration(0)
	for n := range 12 {
		_, err := users.Login(t.Context(), strings.Repeat("a", 5<<10)+itoa(n), "wrong password", userdb.Attempt{})
		if wait, ok := errors.AsType[*userdb.WaitError](err); ok {
			delay = wait.Wait
		}
	}
	if delay == 0 {
		t.Error("twelve attempts with long texts did not have to wait")
	}
}
