package userdb_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

const (
	maxCrumb  = 1 << 10  // bytes of a crumb, which is one part of a record key
	maxFacet  = 64 << 10 // bytes
	maxEntry  = 1 << 20  // bytes
	maxMember = 10_000   // members of a tertiary record
)

func xs(n int) string { return strings.Repeat("x", n) }

// TestLimits creates entries with values that are just small enough, too large by one, or never
// allowed.
func TestLimits(t *testing.T) {
	cases := []struct {
		name  string
		entry userdb.NewEntry
		// field is the field that the error names, "" if it names none, or "no error".
		field string
	}{
		{"a facet of 64 KiB", userdb.NewEntry{Facets: schema.Texts("plain", xs(maxFacet))}, "no error"},
		{"a facet of 64 KiB and a byte", userdb.NewEntry{Facets: schema.Texts("plain", xs(maxFacet+1))}, "plain"},
		{"a field's name of 1 KiB", userdb.NewEntry{Facets: schema.Texts(xs(maxCrumb), "v")}, "no error"},
		{"a field's name of 1 KiB and a byte", userdb.NewEntry{Facets: schema.Texts(xs(maxCrumb+1), "v")}, xs(maxCrumb + 1)},
		{"a name of 1 KiB", userdb.NewEntry{Facets: schema.Texts("name", xs(maxCrumb))}, "no error"},
		{"a name of 1 KiB and a byte", userdb.NewEntry{Facets: schema.Texts("name", xs(maxCrumb+1))}, "name"},
		{"a name of 1 KiB that needs escapes", userdb.NewEntry{Facets: schema.Texts("name", strings.Repeat("{", maxCrumb))}, "no error"},
		{"a name whose canonical form is longer", userdb.NewEntry{Facets: schema.Texts("name", strings.Repeat("\ufdfa", 300))}, "name"},
		{"a name whose canonical form is empty", userdb.NewEntry{Facets: schema.Texts("name", " \t\u3000")}, "name"},
		{"a job of 1 KiB", userdb.NewEntry{Facets: schema.Texts("job", xs(maxCrumb))}, "no error"},
		{"a job of 1 KiB and a byte", userdb.NewEntry{Facets: schema.Texts("job", xs(maxCrumb+1))}, "job"},
		{"an empty job", userdb.NewEntry{Facets: schema.Texts("job", "")}, "job"},
		{"an empty plain facet", userdb.NewEntry{Facets: schema.Texts("plain", "")}, "no error"},
		{"a UID of 1 KiB", userdb.NewEntry{UID: xs(maxCrumb)}, "no error"},
		{"a UID of 1 KiB and a byte", userdb.NewEntry{UID: xs(maxCrumb + 1)}, "uid"},
		{"an entry of 1 MiB", entryOfSize(maxEntry), "no error"},
		{"an entry of 1 MiB and a byte", entryOfSize(maxEntry + 1), ""},
		{"a tag of 1 KiB", userdb.NewEntry{Tags: []string{xs(maxCrumb)}}, "no error"},
		{"a tag of 1 KiB and a byte", userdb.NewEntry{Tags: []string{xs(maxCrumb + 1)}}, "tags"},
		{"an empty tag", userdb.NewEntry{Tags: []string{"a", ""}}, "tags"},
		{"too many tags", userdb.NewEntry{Tags: numbered("t", maxMember+1)}, "tags"},
		{"the UID as a facet", userdb.NewEntry{Facets: schema.Texts("uid", "u")}, "uid"},
		{"a field of the store", userdb.NewEntry{Facets: schema.Texts("~rev", "u")}, "~rev"},
		{"a password as a facet", userdb.NewEntry{Facets: schema.Texts("password", "u")}, "password"},
	}
	eachStore(t, func(t *testing.T, s *site) {
		users := s.wide()
		for _, c := range cases {
			e, err := users.Create(t.Context(), c.entry)
			if c.field != "no error" {
				wantField(t, c.name, err, userdb.ErrInvalid, c.field)
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			got, err := users.Find(t.Context(), hints.UID(e.UID()))
			must(t, err)
			for f, v := range c.entry.Facets {
				if got.Text(f) != v.Text() {
					t.Errorf("%s: read a value of %d bytes, want %d", c.name, len(got.Text(f)), len(v.Text()))
				}
			}
			if name := got.Text("name"); name != "" {
				if by, err := users.Find(t.Context(), hints.Any(name)); err != nil || by.UID() != e.UID() {
					t.Errorf("%s: find by name: got %v, %v; want %s", c.name, by, err, e.UID())
				}
			}
			must(t, users.Delete(t.Context(), hints.UID(e.UID())))
		}
	})
}

// entryOfSize returns an entry of n bytes, including the names of its fields.
func entryOfSize(n int) userdb.NewEntry {
	f := schema.Facets{}
	n -= len("uid") + len("big")
	for i := 0; n > 0; i++ {
		name := fmt.Sprintf("f%02d", i)
		size := min(maxFacet, n-len(name))
		f[name] = schema.Text(xs(size))
		n -= size + len(name)
	}
	return userdb.NewEntry{UID: "big", Facets: f}
}

func numbered(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s%05d", prefix, i)
	}
	return all
}

// TestUpdateBeyondLimit checks that an update that would make an entry exceed 1 MiB is refused.
func TestUpdateBeyondLimit(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := s.wide()
		_, err := users.Create(t.Context(), entryOfSize(maxEntry))
		must(t, err)
		_, err = users.Update(t.Context(), hints.UID("big"), putText("z", ""))
		wantErr(t, "update", err, userdb.ErrInvalid, "1 MiB")
	})
}

// TestManyFacets writes more facets than one Redis command in a script can take. All must be
// stored.
func TestManyFacets(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.wide(), t.Context()
		f := schema.Texts("name", "n")
		for _, name := range numbered("f", 2300) {
			f[name] = schema.Text(name)
		}
		_, err := users.Create(ctx, userdb.NewEntry{UID: "u", Facets: f})
		must(t, err)
		e, err := users.Update(ctx, hints.Any("n"), func(e *userdb.Entry) error {
			for _, name := range numbered("f", 2200) {
				e.Drop(name)
			}
			for _, name := range numbered("g", 2200) {
				e.Put(name, schema.Text(name))
			}
			return nil
		})
		must(t, err)
		got, err := users.Find(ctx, hints.UID("u"))
		must(t, err)
		n, first, last := len(slices.Collect(got.Fields())), got.Text("g02199"), got.Text("f02200")
		if n != 2302 || first != "g02199" || last != "f02200" || got.Rev() != e.Rev() {
			t.Errorf("read %d facets, g02199 %q, f02200 %q at revision %s; want 2302 at %s", n, first, last, got.Rev(), e.Rev())
		}
	})
}

// TestManyMembers adds more members to tertiary records than one command in a script can take, and
// deletes an entry with thousands of indexed tags.
func TestManyMembers(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx, u := s.wide(), t.Context(), hints.UID("u")
		many := numbered("t", 5000)
		_, err := users.Create(ctx, userdb.NewEntry{UID: "u", Tags: many})
		must(t, err)
		all := numbered("x", maxMember)
		if n, err := users.Set(u, "friends").Add(ctx, all...); n != maxMember || err != nil {
			t.Errorf("added %d friends, %v; want %d", n, err, maxMember)
		}
		if n, err := users.Set(u, "friends").Remove(ctx, all[:9000]...); n != 9000 || err != nil {
			t.Errorf("removed %d friends, %v; want 9000", n, err)
		}
		if n, err := users.List(u, "notes").Append(ctx, all...); n != maxMember || err != nil {
			t.Errorf("the list has %d notes, %v; want %d", n, err, maxMember)
		}
		items, err := users.List(u, "notes").Items(ctx, 0, -1)
		if err != nil || !slices.Equal(items, all) {
			t.Errorf("read %d notes, %v; want the %d that were appended", len(items), err, maxMember)
		}
		tooMany := append(all, "more")
		_, err = users.Set(u, "friends").Add(ctx, tooMany...)
		wantField(t, "too many friends", err, userdb.ErrInvalid, "friends")
		_, err = users.List(u, "notes").Append(ctx, tooMany...)
		wantField(t, "too many notes", err, userdb.ErrInvalid, "notes")
		wantField(t, "a long setting", users.Hash(u, "settings").Put(ctx, "k", xs(maxFacet+1)), userdb.ErrInvalid, "settings")
		found := 0
		for _, err := range users.All(ctx, userdb.Query{Tags: []string{many[0], many[4999]}}) {
			must(t, err)
			found++
		}
		if n, err := users.Tags(u).Len(ctx); n != 5000 || err != nil || found != 1 {
			t.Errorf("the entry has %d tags, %v, and a query found it %d times; want 5000 and once", n, err, found)
		}
		must(t, users.Delete(ctx, u))
		for key := range s.dump(ctx) {
			if strings.Contains(key, "tags") || strings.Contains(key, "u/") && !strings.HasPrefix(key, "~/") {
				t.Errorf("after the delete, this record is still there: %s", key)
			}
		}
	})
}

// TestLongHints looks for an entry, and logs in, with hints of any length. Each call must fail as
// if no entry had the value, or refuse the hint.
func TestLongHints(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := s.wide()
		for _, n := range []int{maxCrumb, maxCrumb + 1, 5000, 1 << 20, 4 << 20} {
			for what, h := range map[string]hints.Hint{"*": hints.Any(xs(n)), "UID": hints.UID(xs(n)), "field": hints.Field("name", xs(n))} {
				_, err := users.Find(t.Context(), h)
				if !errors.Is(err, userdb.ErrNotFound) && !errors.Is(err, hints.ErrHint) {
					t.Errorf("%s of %d bytes: got %v, want ErrNotFound or ErrHint", what, n, err)
				}
			}
			_, err := users.Login(t.Context(), xs(n), "x", userdb.Attempt{Origin: xs(n)})
			wantErr(t, "login", err, userdb.ErrLogin)
		}
	})
}
