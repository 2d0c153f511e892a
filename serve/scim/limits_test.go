package scim

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// setLimit sets a limit until the test ends.
func setLimit(t *testing.T, limit *int, to int) {
	before := *limit
	*limit = to
	t.Cleanup(func() { *limit = before })
}

// resources returns the ids on a page, and the total.
func (d directory) resources(path string) (ids []string, total int) {
	d.t.Helper()
	page := d.must("GET", path, "")
	for _, r := range page["Resources"].([]any) {
		ids = append(ids, r.(map[string]any)["id"].(string))
	}
	return ids, int(page["totalResults"].(float64))
}

// TestMembersWithoutUsers checks that members are listed and added without reading the users, and
// that the number and the bytes of members in a response are limited: a page ends before the limit,
// and a request for a larger group is refused.
func TestMembersWithoutUsers(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		s = s.Under(t, schema.User())
		d := newDirectory(t, s, map[string]string{"Heads": "head"})
		var uids []string
		for i := range 12 {
			uids = append(uids, fmt.Sprintf("u%02d", i))
		}
		d.createUsers(uids...)
		n := &reads{}
		s.AddHook(n)
		for _, name := range []string{"Cooks", "Heads"} {
			n.Store(0)
			id := d.createGroup(name, uids...)
			if read := n.Load(); read > 6 {
				t.Errorf("%s: creating a group of 12 read %d entries, want at most 6", name, read)
			}
			d.checkMembers(id, uids...)
			n.Store(0)
			if d.must("GET", "/Groups", ""); n.Load() > 2 {
				t.Errorf("%s: listing one group read %d entries, want at most 2", name, n.Load())
			}
			d.must("DELETE", "/Groups/"+id, "")
		}

		for i, name := range []string{"A", "B", "C"} {
			d.createGroup(name, uids[3*i:3*i+3]...)
		}
		clear(d.h.positions)
		all, _ := d.resources("/Groups")
		setLimit(t, &maxMembers, 5)
		for i, id := range all {
			if ids, total := d.resources(fmt.Sprint("/Groups?startIndex=", i+1)); !slices.Equal(ids, []string{id}) || total != 3 {
				t.Errorf("page from %d: got %q of %d, want %s of 3", i+1, ids, total, id)
			}
		}
		setLimit(t, &maxMembers, 2)
		d.wantError(400, "tooMany", "GET", "/Groups", "")
		d.wantError(400, "tooMany", "GET", "/Groups/"+all[0], "")
		d.wantError(400, "tooMany", "GET", "/Groups?filter="+url.QueryEscape(`displayName eq "C"`), "")
		if ids, _ := d.resources("/Groups?excludedAttributes=members"); !slices.Equal(ids, all) {
			t.Errorf("without members: got %q, want %q", ids, all)
		}
		if v := d.must("PUT", "/Groups/"+all[0], `{"displayName":"Many"}`); v["displayName"] != "Many" || v["members"] != nil {
			t.Errorf("after a change: got %v, want the name Many and no members", v)
		}
		if v := d.must("GET", "/Groups/"+all[0]+"?excludedAttributes=members", ""); v["displayName"] != "Many" {
			t.Errorf("without members: got %v, want the name Many", v)
		}

		maxMembers = 100
		size := memberOverhead + len(uids[0]) + len("http://example.com"+Prefix+"/Users/"+uids[0])
		setLimit(t, &maxBytes, 3*size-1)
		d.wantError(400, "tooMany", "GET", "/Groups/"+all[0], "")
		setLimit(t, &maxBytes, 3*size)
		if v := d.must("GET", "/Groups/"+all[0], ""); len(memberValues(v)) != 3 {
			t.Errorf("members of as many bytes as fit: got %v, want 3", v)
		}
	})
}

// TestFiltersAreBounded checks that a filter that selects more entries or bytes than a request may
// keep is refused, whatever the count.
func TestFiltersAreBounded(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		sc := schema.User()
		sc.Types["user"].Fields["motto"] = schema.Field{}
		s = s.Under(t, sc)
		d := newDirectory(t, s, nil)
		r, err := d.h.collection(d.Ctx, d.DB, d.NS.Path(), UserType)
		if err != nil {
			t.Fatal(err)
		}
		users := r.users
		var uids []string
		for i := range 6 {
			v := d.must("POST", "/Users", fmt.Sprintf(`{"userName":"u%d@x.org"}`, i))
			uids = append(uids, v["id"].(string))
			// A directory cannot give an externalId to two users, but other programs can.
			_, err := users.Update(d.Ctx, hints.UID(uids[i]), func(e *userdb.Entry) error {
				e.Put(externalField, schema.Text(fmt.Sprint("E-", i/4)))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		groups := []string{d.createGroup("A", uids[0]), d.createGroup("B", uids[0], uids[1]), d.createGroup("C", uids[0])}
		setLimit(t, &maxFound, 2)
		for _, count := range []string{"0", "1", "200"} {
			few, many := url.QueryEscape(`externalId eq "E-1"`), url.QueryEscape(`externalId eq "E-0"`)
			if _, total := d.resources("/Users?count=" + count + "&filter=" + few); total != 2 {
				t.Errorf("count=%s: got %d users, want 2", count, total)
			}
			d.wantError(400, "tooMany", "GET", "/Users?count="+count+"&filter="+many, "")
			d.wantError(400, "tooMany", "GET", "/Groups?count="+count+"&filter="+url.QueryEscape(`members eq "`+uids[0]+`"`), "")
			if _, total := d.resources("/Groups?count=" + count + "&filter=" + url.QueryEscape(`members eq "`+uids[1]+`"`)); total != 1 {
				t.Errorf("count=%s: got %d groups, want 1", count, total)
			}
		}
		setLimit(t, &maxFound, len(groups)+len(uids))

		large := schema.Texts("motto", strings.Repeat("x", 50_000))
		for _, uid := range uids {
			_, err := d.Type(t, UserType).Update(d.Ctx, hints.UID(uid), func(e *userdb.Entry) error { e.Put("motto", large["motto"]); return nil })
			if err != nil {
				t.Fatal(err)
			}
		}
		setLimit(t, &maxBytes, 120_000)
		d.wantError(400, "tooMany", "GET", "/Users?count=0&filter="+url.QueryEscape(`externalId eq "E-0"`), "")
		if _, total := d.resources("/Users?filter=" + url.QueryEscape(`externalId eq "E-1"`)); total != 2 {
			t.Errorf("a filter that finds two large users: got %d users, want 2", total)
		}
	})
}

// TestFilterGroups checks that a filter with too many parentheses is refused before it is parsed,
// and that parentheses in quoted text do not count.
func TestFilterGroups(t *testing.T) {
	nested := func(n int, text string) string {
		return strings.Repeat("(", n) + `displayName eq "` + text + `"` + strings.Repeat(")", n)
	}
	for _, text := range []string{nested(maxBrackets, "x"), nested(0, strings.Repeat(`\"([`, 500))} {
		if _, err := parseFilter(urnGroup, text, false); err != nil {
			t.Errorf("%.40s: got %v, want no error", text, err)
		}
	}
	for _, text := range []string{nested(maxBrackets+1, "x"), strings.Repeat("(", 4000), strings.Repeat("a[", 2000)} {
		_, err := parseFilter(urnGroup, text, false)
		if err == nil || !strings.Contains(err.Error(), "parentheses") {
			t.Errorf("%.40s: got %v, want an error that names the parentheses", text, err)
		}
	}
}

// TestLargeUsers checks that a page of large users ends early, and that the pages together have all
// users.
func TestLargeUsers(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		sc := schema.User()
		sc.Types["user"].Fields["motto"] = schema.Field{}
		s = s.Under(t, sc)
		d := newDirectory(t, s, nil)
		const users = 40
		for i := range users {
			facets := schema.Texts("email", fmt.Sprintf("u%d@x.org", i), "motto", strings.Repeat("x", 60_000))
			if _, err := d.Type(t, UserType).Create(d.Ctx, userdb.NewEntry{Facets: facets}); err != nil {
				t.Fatal(err)
			}
		}
		setLimit(t, &maxBytes, 300_000)
		setLimit(t, &stepBytes, 300_000)
		n := &reads{}
		s.AddHook(n)
		seen := map[string]bool{}
		for start := 1; start <= users; {
			n.Store(0)
			ids, total := d.resources(fmt.Sprint("/Users?count=200&startIndex=", start))
			if len(ids) == 0 || len(ids) > 16 || n.Load() > 32 || total != users {
				t.Fatalf("page from %d: got %d of %d users, having read %d; want 1 to 16 of %d, and at most 32 read", start, len(ids), total, n.Load(), users)
			}
			for _, id := range ids {
				seen[id] = true
			}
			start += len(ids)
		}
		if len(seen) != users {
			t.Errorf("the pages have %d users, want %d", len(seen), users)
		}
	})
}

// TestMemoryOfBodies checks that a body is refused as invalid syntax if decoding it would take very
// much memory. The longest list of members that fits into a body must be decoded: it is refused
// only because there are no such users.
func TestMemoryOfBodies(t *testing.T) {
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), schema.User())
	d := newDirectory(t, s, nil)
	for _, value := range []string{`{"":0}`, `{}`, `{"a":{"":0}}`} {
		many := strings.Repeat(value+`,`, (1<<20-100)/(len(value)+1))
		d.wantError(400, invalidSyntax, "POST", "/Users", `{"userName":"a@example.com","x":[`+many+`0]}`)
	}
	members := strings.Repeat(`{"value":"u0000"},`, (1<<20-100)/18)
	d.wantError(400, invalidValue, "POST", "/Groups", `{"displayName":"All","members":[`+members+`{"value":"u0001"}]}`)
}
