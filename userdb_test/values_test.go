package userdb_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// naughty returns the Big List of Naughty Strings, or a twelfth of it to save time, and strings
// with a special meaning in record keys, globs and fields.
func naughty(t *testing.T, s *site) []string {
	t.Helper()
	raw, err := os.ReadFile("../test/testdata/blns.json")
	must(t, err)
	var list []string
	must(t, json.Unmarshal(raw, &list))
	if !s.has(cheapWrites) || testing.Short() {
		some := list[:0]
		for i := 0; i < len(list); i += 12 {
			some = append(some, list[i])
		}
		list = some
	}
	return append(list,
		"~", "~/schema/user", "~isa", "~rev", "user/uid:x", "user/name:x/~prk", "a/~prks", "{x}", "+x41", "+", "\x00", "\xff\xfe",
		"[a-", "[^", "\\", "*", "?", "[*]", "\u2028", "a\u0300", " ", "\t", "password", "%s%d%v")
}

// isRefusal reports whether err refuses a value because it breaks a rule or is not a valid hint.
func isRefusal(err error) bool {
	return slices.ContainsFunc([]error{userdb.ErrInvalid, hints.ErrHint, password.ErrPolicy, recordkey.ErrSyntax},
		func(kind error) bool { return errors.Is(err, kind) })
}

// TestNaughtyStrings uses naughty strings as UIDs, tags, field names and values. Each must be
// refused by a rule, or be returned unchanged.
func TestNaughtyStrings(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := s.wide()
		for i, text := range naughty(t, s) {
			naughtyEntry(t, users, userdb.NewEntry{UID: text, Tags: []string{text, text + "2"}}, text)
			naughtyEntry(t, users, userdb.NewEntry{UID: itoa(i) + "n", Facets: schema.Texts("name", text)}, text)
			naughtyEntry(t, users, userdb.NewEntry{UID: itoa(i) + "f", Facets: schema.Texts(text, text, "job", text)}, text)
		}
	})
}

// naughtyEntry creates an entry that contains a text, reads the entry in every way, and deletes it.
func naughtyEntry(t *testing.T, users *userdb.Type, n userdb.NewEntry, text string) {
	t.Helper()
	ctx := t.Context()
	e, err := users.Create(ctx, n)
	if err != nil {
		if !isRefusal(err) && n.UID != "" {
			t.Errorf("creating with %q: %v", text, err)
		}
		return
	}
	got, err := users.Find(ctx, hints.UID(e.UID()))
	if err != nil || n.UID != "" && got.UID() != n.UID {
		t.Errorf("%q by UID: got %q, %v; want %q", text, got.UID(), err, e.UID())
	}
	for f, v := range n.Facets {
		if got.Text(f) != v.Text() {
			t.Errorf("%q: facet %q was read as %q, want %q", text, f, got.Text(f), v.Text())
		}
	}
	if v, named := n.Facets["name"]; named {
		if byName, err := users.Find(ctx, hints.Any(v.Text())); err != nil || byName.UID() != got.UID() {
			t.Errorf("%q by any field: got %v, %v; want %s", text, byName, err, got.UID())
		}
		if _, err := users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("email", v.Text())}); !errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("creating another entry with %q: got %v, want ErrDuplicate", text, err)
		}
	}
	if len(n.Tags) > 0 {
		naughtyTags(t, users, got, n.Tags)
	}
	if v, has := n.Facets["job"]; has {
		for found, err := range users.All(ctx, userdb.Query{Where: schema.Facets{"job": v}}) {
			if err != nil || found.UID() != got.UID() {
				t.Errorf("%q by index: got %v, %v; want %s", text, found, err, got.UID())
			}
		}
	}
	if err := users.Delete(ctx, hints.Key(e.Key())); err != nil {
		t.Errorf("%q: deleting: %v", text, err)
	}
}

func naughtyTags(t *testing.T, users *userdb.Type, e userdb.Entry, want []string) {
	t.Helper()
	got, err := users.Tags(hints.UID(e.UID())).Members(t.Context())
	want = slices.Compact(slices.Sorted(slices.Values(want)))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("tags %q, %v; want %q", got, err, want)
	}
	n := 0
	for _, err := range users.All(t.Context(), userdb.Query{Tags: want}) {
		must(t, err)
		n++
	}
	if n != 1 {
		t.Errorf("%d entries have the tags %q, want one", n, want)
	}
}

// TestNaughtyHints uses naughty strings as hints and patterns in a store with one innocent entry.
// None may match that entry.
func TestNaughtyHints(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		db := s.open(userdb.Options{Schema: wideSchema(schema.FoldCasefold)})
		users, ctx := typeOf(t, db, "user"), t.Context()
		add(t, users, "innocent", "name", "innocent")
		for _, text := range naughty(t, s) {
			hs := []hints.Hint{hints.Any(text), hints.UID(text), hints.Field("name", text), hints.Field(text, "x"), hints.UID("x").Of(text)}
			if h, err := hints.Parse(text); err == nil {
				hs = append(hs, h)
			} else if !isRefusal(err) {
				t.Errorf("parsing %q: %v", text, err)
			}
			if h, err := hints.ParseJSON([]byte(text)); err == nil {
				hs = append(hs, h)
			} else if !isRefusal(err) {
				t.Errorf("parsing %q as JSON: %v", text, err)
			}
			for _, h := range hs {
				if e, err := users.Find(ctx, h); err == nil || !errors.Is(err, userdb.ErrNotFound) && !isRefusal(err) {
					t.Errorf("%q: hint %v: got %v, %v; want no entry", text, h, e, err)
				}
			}
			naughtyPattern(t, db, text)
		}
	})
}

// naughtyPattern uses a text as a glob, and as quoted text in a glob, which must match no key.
func naughtyPattern(t *testing.T, db *userdb.DB, text string) {
	t.Helper()
	for _, err := range inspect.Keys(t.Context(), db, text) {
		if err != nil && !isRefusal(err) {
			t.Errorf("pattern %q: %v", text, err)
		}
	}
	for key, err := range inspect.Keys(t.Context(), db, "user/name:"+recordkey.Glob(recordkey.Escape(text))+"/~prk") {
		t.Errorf("pattern with quoted %q: got %q, %v; want nothing", text, key, err)
	}
}

// TestNaughtyPasswords sets naughty strings as passwords. Each must be refused by a rule, or be
// right at a login.
func TestNaughtyPasswords(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.wide(), t.Context()
		for i, text := range naughty(t, s) {
			name := "n" + itoa(i)
			_, err := users.Create(ctx, userdb.NewEntry{UID: name, Facets: schema.Texts("name", name), Password: text})
			if err != nil {
				if !isRefusal(err) {
					t.Errorf("password %q: %v", text, err)
				}
				continue
			}
			if text == "" {
				continue
			}
			if _, err := users.Login(ctx, name, text, userdb.Attempt{}); err != nil {
				t.Errorf("login with %q: %v", text, err)
			}
		}
	})
}

// TestCreateKeepsArgument checks that Create does not change its argument, so that concurrent calls
// can share it.
func TestCreateKeepsArgument(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := s.wide()
		given := userdb.NewEntry{Facets: schema.Texts("job", "cook"), Tags: []string{"b", "a", "b"}, Password: "a good long password"}
		for i, err := range runConcurrently(4, func(i int) error {
			n := given
			if i > 0 {
				n.UID = itoa(i)
			}
			e, err := users.Create(t.Context(), n)
			if err == nil && e.Text("job") != "cook" {
				err = fmt.Errorf("got %s, want job cook", e)
			}
			return err
		}) {
			if err != nil {
				t.Errorf("create %d: %v", i, err)
			}
		}
		if !maps.Equal(given.Facets, schema.Texts("job", "cook")) || !slices.Equal(given.Tags, []string{"b", "a", "b"}) {
			t.Errorf("the argument is now %v, %v; want it unchanged", given.Facets, given.Tags)
		}
	})
}

// TestGeneratedUIDs creates entries with UIDs from a generator that also returns taken and empty
// ones. Taken ones must be skipped, and empty ones refused.
func TestGeneratedUIDs(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		given := []string{"taken", "taken", "", "free"}
		next := func() (string, error) {
			if len(given) == 0 {
				return "taken", nil
			}
			uid := given[0]
			given = given[1:]
			return uid, nil
		}
		users := typeOf(t, s.open(userdb.Options{Schema: wideSchema(schema.FoldCasefold), NewUID: next}), "user")
		ctx := t.Context()
		first := add(t, users, "taken", "name", "first")
		_, err := users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", "second")})
		wantField(t, "an empty UID", err, userdb.ErrInvalid, "uid")
		e, err := users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", "second")})
		if err != nil || e.UID() != "free" {
			t.Errorf("after an empty UID: got %v, %v; want UID free", e, err)
		}
		_, err = users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", "third")})
		if err == nil || errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("a generator that always returns the same UID: got error %v, want one other than ErrDuplicate", err)
		}
		got, err := users.Find(ctx, hints.UID("taken"))
		if err != nil || got.Rev() != first.Rev() || got.Text("name") != "first" {
			t.Errorf("the first entry is now %v, %v; want it unchanged", got, err)
		}
		_, err = users.Create(ctx, userdb.NewEntry{UID: "taken"})
		wantField(t, "a taken UID", err, userdb.ErrDuplicate, "uid")
		given = []string{"other"}
		_, err = users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", "First")})
		wantField(t, "a taken name", err, userdb.ErrDuplicate, "name")
	})
}

// TestRandomUIDs checks the length of random UIDs, and that they hardly ever repeat.
func TestRandomUIDs(t *testing.T) {
	for _, n := range []int{8, 9, 12, 64} {
		seen := map[string]bool{}
		for range 1000 {
			uid, err := userdb.RandomUID(n)()
			if err != nil || len(uid) != n || !regexp.MustCompile(`^[0-9a-f]+$`).MatchString(uid) {
				t.Fatalf("got the UID %q, %v; want %d hexadecimal digits", uid, err, n)
			}
			seen[uid] = true
		}
		if len(seen) < 999 {
			t.Errorf("UIDs of %d digits: %d of 1000 differ, want at least 999", n, len(seen))
		}
	}
	for _, n := range []int{-1, 0, 7, 65} {
		if uid, err := userdb.RandomUID(n)(); err == nil {
			t.Errorf("a UID of %d digits: got %q, want an error", n, uid)
		}
	}
}

// TestRulesOfThePrimaryField checks that UIDs, including generated ones, must follow the rules of
// the primary field.
func TestRulesOfThePrimaryField(t *testing.T) {
	sc := wideSchema(schema.FoldCasefold)
	typ := sc.Types["user"]
	typ.Fields["uid"] = schema.Field{Pattern: `^[0-9]{3}$`, Reserved: []string{"000"}}
	sc.Types["user"] = typ
	eachStore(t, func(t *testing.T, s *site) {
		users := typeOf(t, s.open(userdb.Options{Schema: sc, NewUID: func() (string, error) { return "abc", nil }}), "user")
		add(t, users, "123")
		// The empty UID stands for a generated one.
		for _, uid := range []string{"12", "abc", "1234", "000", "\xff\xfe", ""} {
			_, err := users.Create(t.Context(), userdb.NewEntry{UID: uid})
			wantField(t, fmt.Sprintf("UID %q", uid), err, userdb.ErrInvalid, "uid")
		}
	})
}

// TestDomainsStayApart gives people addresses at pairs of domains that had the same canonical form
// in earlier versions. Every spelling must find its owner, and nobody else may take it.
func TestDomainsStayApart(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := s.users()
		spellings := map[string][]string{
			"sharp":  {"bob@straße.de", "BOB@STRAẞE.DE", "bob@xn--strae-oqa.de", "Bob＠Straße．de", `"bob"@straße.de.`, "bo\u00adb@straße.de"},
			"double": {"bob@strasse.de", "BOB@STRASSE.DE", `"b\ob"@strasse。de`, "bo\u034fb@strasse.de.", "bob\u3164@stra\u200dsse.de"},
			"final":  {"a@σίσυφος.gr", "a@xn--kxa6ajbbmh.gr"},
			"middle": {"a@σίσυφοσ.gr", "A@ΣΊΣΥΦΟΣ.GR"},
			"joined": {"a@نامه\u200cای.com", "a@xn--mgba3gch31f060k.com"},
			"apart":  {"a@نامهای.com"},
		}
		for who, emails := range spellings {
			entry := userdb.NewEntry{UID: who, Facets: schema.Texts("email", emails[0], "name", who)}
			if _, err := users.Create(t.Context(), entry); err != nil {
				t.Fatalf("%s: %v", who, err)
			}
		}
		n := 0
		for who, emails := range spellings {
			for _, email := range emails {
				for _, h := range []hints.Hint{hints.Any(email), hints.Field("email", email)} {
					if e, err := users.Find(t.Context(), h); err != nil || e.UID() != who {
						t.Errorf("%+q: got %q, want %s; error %v", email, e.UID(), who, err)
					}
				}
				n++
				other := userdb.NewEntry{UID: fmt.Sprint(n), Facets: schema.Texts("email", email, "name", fmt.Sprint("n", n))}
				if _, err := users.Create(t.Context(), other); !errors.Is(err, userdb.ErrDuplicate) && !errors.Is(err, userdb.ErrInvalid) {
					t.Errorf("creating another entry with %+q: got %v, want ErrDuplicate or ErrInvalid", email, err)
				}
			}
		}
	})
}

// TestFacets checks that Facets returns a copy of the facets, without the store's own fields and
// with all changes by Put and Drop.
func TestFacets(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		e := add(t, s.wide(), "u1", "name", "Alice", "job", "cook")
		want := func(pairs ...string) {
			t.Helper()
			if got := e.Facets(); !maps.Equal(got, schema.Texts(pairs...)) {
				t.Errorf("got the facets %v, want %v", got, pairs)
			}
		}
		want("uid", "u1", "name", "Alice", "job", "cook")
		delete(e.Facets(), "job")
		want("uid", "u1", "name", "Alice", "job", "cook")
		e.SetDisabled(true)
		e.Put("name", schema.Text("Bob"))
		e.Drop("job")
		want("uid", "u1", "name", "Bob")
		if n := len(userdb.Entry{}.Facets()); n != 0 {
			t.Errorf("the zero Entry has %d facets, want none", n)
		}
	})
}
