package userdb_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestRoundTripsOfPages checks that an ordered page takes at most two round trips, wherever it
// begins and however many entries there are. The environment variable USERDB_ENTRIES sets the
// number of entries.
func TestRoundTripsOfPages(t *testing.T) {
	entries := 2_000
	if n, err := strconv.Atoi(os.Getenv("USERDB_ENTRIES")); err == nil {
		entries = n
	}
	ordered := wideSchemaWith(func(t *schema.Type) { t.Fields["city"] = schema.Field{Role: schema.RoleOrdered} })
	eachStoreAndRights(t, func(t *testing.T, s *site) {
		db := s.open(userdb.Options{Schema: ordered})
		users := typeOf(t, db, "user")
		var lines strings.Builder
		for i := range entries {
			fmt.Fprintf(&lines, `{"facets":{"uid":"u%d","city":"City %07d"}}`+"\n", i, i)
		}
		r, err := transfer.Import(t.Context(), db, strings.NewReader(lines.String()), transfer.ImportOptions{})
		if err != nil || r.Created != int64(entries) {
			t.Fatalf("importing: got %+v, %v; want %d created", r, err, entries)
		}
		page := func(q userdb.Query) (p userdb.Page) {
			t.Helper()
			q.Order, q.Limit = "city", 50
			got := s.tap.count(func() { p, err = users.Page(t.Context(), q) })
			if err != nil || len(p.Entries) != 50 || got > 2 {
				t.Errorf("%+v: %d entries in %d round trips, %v; want 50 in at most 2", q, len(p.Entries), got, err)
			}
			return p
		}
		at := schema.Text(fmt.Sprintf("City %07d", entries/2))
		for range 2 { // the server gets the scripts in the first round
			first := page(userdb.Query{})
			next := page(userdb.Query{After: first.Next})
			page(userdb.Query{Before: next.Prev})
			page(userdb.Query{Prefix: "cITY 00000"})
			middle := page(userdb.Query{GTE: &at})
			page(userdb.Query{After: middle.Next})
			page(userdb.Query{Reverse: true})
			if got := first.Entries[0].Text("city") + next.Entries[0].Text("city"); got != "City 0000000City 0000050" {
				t.Errorf("the first two pages begin with %s, want City 0000000 and City 0000050", got)
			}
		}
	})
}

// TestPagesOfIndex checks that the pages of an index, of whatever sizes, hold each entry once, and
// that a continuation stays short: it has a hash of each entry that the server already listed in
// the same step.
func TestPagesOfIndex(t *testing.T) {
	const entries, longest = 2_500, 4_000
	eachStoreAndRights(t, func(t *testing.T, s *site) {
		db := s.open(userdb.Options{Schema: wideSchema(schema.FoldCasefold)})
		users := typeOf(t, db, "user")
		var lines strings.Builder
		for i := range entries {
			fmt.Fprintf(&lines, `{"facets":{"uid":"u%d","job":"cook"}}`+"\n", i)
		}
		if r, err := transfer.Import(t.Context(), db, strings.NewReader(lines.String()), transfer.ImportOptions{}); err != nil || r.Created != entries {
			t.Fatalf("importing: got %+v, %v; want %d created", r, err, entries)
		}
		seen := map[string]bool{}
		q := userdb.Query{Where: schema.Texts("job", "cook")}
		for page := 0; page == 0 || q.After != ""; page++ {
			q.Limit = []int{130, 7, 25, 60, 3}[page%5]
			p, err := users.Page(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range p.Entries {
				if seen[e.UID()] {
					t.Errorf("%s is on two pages", e.UID())
				}
				seen[e.UID()] = true
			}
			if q.After = p.Next; len(q.After) > longest {
				t.Errorf("a continuation of %d bytes, want at most %d", len(q.After), longest)
			}
		}
		if len(seen) != entries {
			t.Errorf("the pages have %d entries, want %d", len(seen), entries)
		}
	})
}
