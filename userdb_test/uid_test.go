package userdb_test

import (
	"errors"
	"fmt"
	"regexp"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestUIDs makes UIDs in every way.
func TestUIDs(t *testing.T) {
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
			t.Errorf("got %v, %v", e, err)
		}
		_, err = users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", "third")})
		if err == nil || errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("a generator that gives one UID for ever: %v", err)
		}
		got, err := users.Find(ctx, hints.UID("taken"))
		if err != nil || got.Rev() != first.Rev() || got.Text("name") != "first" {
			t.Errorf("the first entry: %v, %v", got, err)
		}
		_, err = users.Create(ctx, userdb.NewEntry{UID: "taken"})
		wantField(t, "a taken UID", err, userdb.ErrDuplicate, "uid")
		given = []string{"other"}
		_, err = users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", "First")})
		wantField(t, "a taken name", err, userdb.ErrDuplicate, "name")
	})
}

// TestRandomUIDs wants UIDs of their length that do not come again.
func TestRandomUIDs(t *testing.T) {
	for _, n := range []int{8, 9, 12, 64} {
		seen := map[string]bool{}
		for range 1000 {
			uid, err := userdb.RandomUID(n)()
			if err != nil || len(uid) != n || !regexp.MustCompile(`^[0-9a-f]+$`).MatchString(uid) {
				t.Fatalf("of %d digits: %q, %v", n, uid, err)
			}
			seen[uid] = true
		}
		if len(seen) < 999 {
			t.Errorf("of %d digits: only %d of 1000 differ", n, len(seen))
		}
	}
	for _, n := range []int{-1, 0, 7, 65} {
		if uid, err := userdb.RandomUID(n)(); err == nil {
			t.Errorf("of %d digits: %q", n, uid)
		}
	}
}

// TestRulesOfThePrimaryField holds UIDs to the rules that the schema has for them.
func TestRulesOfThePrimaryField(t *testing.T) {
	sc := wideSchema(schema.FoldCasefold)
	typ := sc.Types["user"]
	typ.Fields["uid"] = schema.Field{Pattern: `^[0-9]{3}$`, Reserved: []string{"000"}}
	sc.Types["user"] = typ
	eachStore(t, func(t *testing.T, s *site) {
		users := typeOf(t, s.open(userdb.Options{Schema: sc, NewUID: func() (string, error) { return "abc", nil }}), "user")
		add(t, users, "123")
		for _, uid := range []string{"12", "abc", "1234", "000", "\xff\xfe", ""} { // "" is the generator's
			_, err := users.Create(t.Context(), userdb.NewEntry{UID: uid})
			wantField(t, fmt.Sprintf("UID %q", uid), err, userdb.ErrInvalid, "uid")
		}
	})
}
