package check

import (
	"context"
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestCodes checks that doc.go and docs/check.md describe exactly the codes that exist.
func TestCodes(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for line := range strings.Lines(string(doc)) {
		words := strings.Fields(line)
		if len(words) < 3 {
			continue
		}
		c, ok := codes[words[1]]
		if !ok {
			continue
		}
		documented = append(documented, words[1])
		remedy, ok := map[string]remedy{"w": warning, "o": fixFirst, "i": fixRecord, "r": fixRecord, "e": fixEntry, "k": fixEntry}[words[3]]
		if !ok {
			remedy = needsDecision
		}
		if words[2] != string(rune('0'+c.invariant)) || remedy != c.remedy {
			t.Errorf("doc.go has the line %q, but the code has the invariant and the remedy %+v", line, c)
		}
	}
	if !slices.Equal(documented, slices.Sorted(maps.Keys(codes))) {
		t.Errorf("doc.go documents %q, want %q", documented, slices.Sorted(maps.Keys(codes)))
	}
	page, err := os.ReadFile("../../docs/check.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllSubmatch(page, -1) {
		rows = append(rows, string(row[1]))
	}
	if !slices.Equal(rows, documented) {
		t.Errorf("docs/check.md documents %q, want %q", rows, documented)
	}
}

func TestConfirm(t *testing.T) {
	problem := func(at int, key, seen string) finding {
		return finding{Problem: Problem{Key: key, Code: "x"}, at: at, seen: seen}
	}
	for _, tt := range []struct {
		name   string
		rounds []findings // the findings of each check; the last one repeats
		want   string
		count  int
	}{
		{"no finding", []findings{nil}, "", 1},
		{"the same finding twice", []findings{{problem(1, "b", "1")}, {problem(0, "b", "1")}}, "b", 2},
		{"a finding that disappears", []findings{{problem(1, "b", "1")}, nil}, "", 2},
		{"a finding that changes and disappears", []findings{{problem(1, "b", "1")}, {problem(0, "b", "2")}, nil}, "", 3},
		{"a finding that changes once", []findings{{problem(1, "b", "1")}, {problem(0, "b", "2")}, {problem(0, "b", "2")}}, "b", 3},
		{"one of two findings disappears", []findings{{problem(0, "a", ""), problem(2, "c", "")}, {problem(1, "c", "")}}, "c", 2},
		{"one of two findings keeps changing", []findings{{problem(0, "a", "1"), problem(2, "c", "")}, {problem(0, "a", "2"), problem(1, "c", "")}, {problem(0, "a", "3"), problem(1, "c", "")}, {problem(0, "a", "4"), problem(1, "c", "")}, {problem(0, "a", "5"), problem(1, "c", "")}}, "c", 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			count, items := 0, []item{{raw: "a"}, {raw: "b"}, {raw: "c"}}
			got, err := confirm(t.Context(), func(_ context.Context, r *report, items []item) {
				found := tt.rounds[min(count, len(tt.rounds)-1)]
				for _, f := range found {
					if items[f.at].raw != f.Key {
						t.Errorf("check %d got the items %v, want %s at index %d", count, items, f.Key, f.at)
					}
				}
				count++
				r.found = found
			}, items)
			var keys []string
			for _, p := range got.found {
				keys = append(keys, p.Key)
			}
			if err != nil || strings.Join(keys, " ") != tt.want || count != tt.count {
				t.Errorf("got %q, %v after %d checks, want %q after %d", keys, err, count, tt.want, tt.count)
			}
		})
	}
}

func TestConfirmFails(t *testing.T) {
	lost := errors.New("lost")
	for fails := range 3 {
		count := 0
		got, err := confirm(t.Context(), func(_ context.Context, r *report, _ []item) {
			r.found = findings{{seen: string(rune(count))}}
			if count++; count > fails {
				r.err = lost
			}
		}, []item{{raw: "a"}})
		if err != lost || got.found != nil {
			t.Errorf("failing at check %d: got %v, %v; want only the error", fails, got.found, err)
		}
	}
}

func TestLooksLikeOurs(t *testing.T) {
	s := schema.Schema{Types: map[string]schema.Type{"user": {}, "odd type{}": {}}}
	for key, want := range map[string]bool{
		"user/uid:\t":           true,
		"user/:":                true,
		"odd type{}/id:1":       true, // raw
		"odd+_type{}/id:1":      true, // as the original escapes it
		"odd+_type+(+)/id:1/~x": true, // as this program escapes it
		"odd+_type+(}/id:1":     false,
		"users/uid:\t":          false,
		"user/uid":              false,
		"user:uid/\t":           false,
		"x/user/uid:1/\t":       false,
		"":                      false,
	} {
		if got := looksLikeOurs(key, s); got != want {
			t.Errorf("looksLikeOurs(%q) = %v, want %v", key, got, want)
		}
	}
}

// TestContestEnded checks that dropFormerOwners drops an entry that no longer has the contested
// value.
func TestContestEnded(t *testing.T) {
	ctx := t.Context()
	db, err := userdb.Open(ctx, "memory:", userdb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	users, err := db.Type("user")
	if err != nil {
		t.Fatal(err)
	}
	for uid, name := range map[string]string{"a": "Other", "b": "Bob"} {
		if _, err := users.Create(ctx, userdb.NewEntry{UID: uid, Facets: schema.Texts("name", name)}); err != nil {
			t.Fatal(err)
		}
	}
	c := &checker{View: view.Of(db)}
	typ, err := c.Type("user")
	if err != nil {
		t.Fatal(err)
	}
	var owners []recordkey.Key
	for _, uid := range []string{"a", "b"} {
		prk, err := typ.PRK(uid)
		if err != nil {
			t.Fatal(err)
		}
		owners = append(owners, prk)
	}
	srk, _ := typ.SRK("name", "bob")
	k := &records.Contest{Type: typ, SRK: srk, Owners: owners}
	if err := c.dropFormerOwners(ctx, k); err != nil || len(k.Owners) != 1 || k.Owners[0].String() != "user/uid:b" {
		t.Errorf("got the owners %v, %v; want only b", k.Owners, err)
	}
}

func TestRepairs(t *testing.T) {
	for name, want := range map[string]bool{"srk_orphan": true, "srk_missing": true, "own_types": true, "value_shared": false, "field_missing": false, "type_mismatch": true, "prk_kind": false, "nosuch": false} {
		if Repairs(name) != want {
			t.Errorf("Repairs(%q) = %v, want %v", name, !want, want)
		}
	}
}
