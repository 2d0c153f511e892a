package change

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// manyType returns a type whose field email may have three values and has an index.
func manyType(t *testing.T) *Type {
	t.Helper()
	c, err := Compile(schema.Schema{Types: map[string]schema.Type{"user": {Primary: "uid", Fields: map[string]schema.Field{
		"email": {Role: schema.RoleSecondary | schema.RoleIndexed, Many: 3},
		"name":  {Role: schema.RoleSecondary},
	}}}}, recordkey.Namespace{})
	if err != nil {
		t.Fatal(err)
	}
	return c.ByName["user"]
}

// TestSetTexts checks the change of an entry whose field email gets other values.
func TestSetTexts(t *testing.T) {
	one := record("email", "a")
	two := record("email", "a", "~also:email:b", "1 7 work B")
	for _, tt := range []struct {
		what string
		old  store.Record
		to   []string
		want string
	}{
		{"no change", two, []string{"a", "B"}, ""},
		{"a value is added", one, []string{"a", "B"}, "~also:email:b=1 - - B; claim user/email:b/~prk; elsewhere user/name:b/~prk; index user/email:B/~prks"},
		{"a further value goes", two, []string{"a"}, "-~also:email:b; release user/email:b/~prk; unindex user/email:B/~prks"},
		{"another is put first", two, []string{"B", "a"}, "email=B; ~also:email:a=1 - -; ~skv:email=b; ~verified:email=" + store.Verified("B") + "; -~also:email:b"},
		{"the first goes", two, []string{"B"}, "email=B; ~skv:email=b; ~verified:email=" + store.Verified("B") + "; -~also:email:b; release user/email:a/~prk; unindex user/email:a/~prks"},
		{
			"the first is replaced", two,
			[]string{"c", "B"},
			"email=c; claim user/email:c/~prk; elsewhere user/name:c/~prk; release user/email:a/~prk; index user/email:c/~prks; unindex user/email:a/~prks",
		},
		{"another spelling is not verified", two, []string{"a", "b"}, "~also:email:b=1 - work; index user/email:b/~prks; unindex user/email:B/~prks"},
		{
			"all go", two, nil,
			"-email; -~also:email:b; release user/email:a/~prk; release user/email:b/~prk; unindex user/email:a/~prks; unindex user/email:B/~prks",
		},
		{
			"the order changes", record("email", "a", "~also:email:b", "1 - -", "~also:email:c", "2 - -"),
			[]string{"a", "c", "b"},
			"~also:email:c=0 - -",
		},
	} {
		typ := manyType(t)
		facets, own := Facets(tt.old), map[string]string{}
		err := typ.SetTexts(tt.old, facets, own, "email", tt.to, time.Unix(9, 0))
		var c store.Change
		if err == nil {
			c, _, err = typ.Update(tt.old, facets, own)
		}
		if got := describe(c); err != nil || got != tt.want {
			t.Errorf("%s:\n got %s, %v\nwant %s", tt.what, got, err, tt.want)
		}
		after := Apply(c, "r", tt.old.Fields)
		var texts []string
		for _, f := range typ.Values(after.Fields, "email") {
			texts = append(texts, f.Written)
		}
		if !slices.Equal(texts, tt.to) {
			t.Errorf("%s: the entry has %q, want %q", tt.what, texts, tt.to)
		}
	}
}

// TestSetTextsRefuses checks that values that an entry cannot have are refused.
func TestSetTextsRefuses(t *testing.T) {
	for _, tt := range []struct {
		field string
		texts []string
		rule  string
	}{
		{"email", []string{"a", "b", "c", "d"}, "many"},
		{"email", []string{"a", "b", "A"}, "many"},
		{"email", []string{"a", "b", "B"}, "many"},
		{"name", []string{"a", "b"}, "many"},
		{"other", []string{"a"}, "many"},
		{"email", []string{"a", ""}, "non-empty"},
		{"email", []string{"a", strings.Repeat("x", 1025)}, "size"},
	} {
		typ := manyType(t)
		facets, own := facets(), map[string]string{}
		err := typ.SetTexts(record(), facets, own, tt.field, tt.texts, time.Unix(9, 0))
		if err == nil {
			_, _, err = typ.Update(record(), facets, own)
		}
		var wrong *store.FieldError
		if !errors.As(err, &wrong) || wrong.Rule != tt.rule || wrong.Field != tt.field {
			t.Errorf("%s %.20q: got %v, want the rule %s", tt.field, tt.texts, err, tt.rule)
		}
	}
}

// TestFacetsAndFurtherValues checks changes of the facet alone.
func TestFacetsAndFurtherValues(t *testing.T) {
	old := record("email", "a", "~also:email:b", "1 7 -")
	for _, tt := range []struct {
		what string
		to   map[string]string
		want string
	}{
		{"the facet is replaced", facets("email", "c"), "email=c; claim user/email:c/~prk; elsewhere user/name:c/~prk; release user/email:a/~prk; index user/email:c/~prks; unindex user/email:a/~prks"},
		{"a further value becomes the facet", facets("email", "b"), "email=b; ~verified:email=" + store.Verified("b") + "; -~also:email:b; release user/email:a/~prk; unindex user/email:a/~prks"},
		{"the facet goes", facets(), "-email; -~also:email:b; release user/email:a/~prk; release user/email:b/~prk; unindex user/email:a/~prks; unindex user/email:b/~prks"},
		{"another field gets a further value", facets("email", "a", "name", "b"), "name=b; claim user/name:b/~prk"},
	} {
		c, _, err := manyType(t).Update(old, tt.to, nil)
		if got := describe(c); tt.want != got && !strings.HasPrefix(got, tt.want+"; elsewhere") || err != nil {
			t.Errorf("%s:\n got %s, %v\nwant %s", tt.what, got, err, tt.want)
		}
	}
	if got, want := describe(manyType(t).Delete(old)), "release user/email:a/~prk; release user/email:b/~prk; unindex user/email:a/~prks; unindex user/email:b/~prks"; got != want {
		t.Errorf("a delete:\n got %s\nwant %s", got, want)
	}
}

// TestOverTheLimit checks that an entry that has more values than the schema allows can be changed,
// but not get more.
func TestOverTheLimit(t *testing.T) {
	old := record("name", "a", "~also:name:b", "1 - -", "~also:name:c", "2 - -")
	typ := manyType(t)
	for _, tt := range []struct {
		texts []string
		ok    bool
	}{
		{[]string{"a", "b", "x"}, true}, {[]string{"a", "c"}, true}, {[]string{"a", "b", "c", "d"}, false},
	} {
		facets, own := Facets(old), map[string]string{}
		err := typ.SetTexts(old, facets, own, "name", tt.texts, time.Unix(9, 0))
		if err == nil {
			_, _, err = typ.Update(old, facets, own)
		}
		if (err == nil) != tt.ok {
			t.Errorf("%q: %v", tt.texts, err)
		}
	}
}

// TestRepairOfFirst checks that an entry whose first value belongs to another one gets its next
// value as the first, with its canonical form.
func TestRepairOfFirst(t *testing.T) {
	old := record("email", "Bob@x", "~skv:email", "bob@x", "~also:email:work@x", "1 - - Work@x", "~also:email:also@x", "2 - -")
	c, _ := manyType(t).Repair(old, RepairLimits{Lose: "bob@x"})
	want := "email=Work@x; ~lost:email=Bob@x; ~skv:email=work@x; -~also:email:work@x; release user/email:bob@x/~prk"
	if got := describe(c); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
