package change

import (
	"errors"
	"maps"
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
		{"a further value is removed", two, []string{"a"}, "-~also:email:b; release user/email:b/~prk; unindex user/email:B/~prks"},
		{"a further value is put first", two, []string{"B", "a"}, "email=B; ~also:email:a=1 - -; ~label:email=" + store.LabelText("B", "work") + "; ~skv:email=b; ~verified:email=" + store.Verified("B") + "; -~also:email:b"},
		{"the first is removed", two, []string{"B"}, "email=B; ~label:email=" + store.LabelText("B", "work") + "; ~skv:email=b; ~verified:email=" + store.Verified("B") + "; -~also:email:b; release user/email:a/~prk; unindex user/email:a/~prks"},
		{
			"the first is replaced", two,
			[]string{"c", "B"},
			"email=c; claim user/email:c/~prk; elsewhere user/name:c/~prk; release user/email:a/~prk; index user/email:c/~prks; unindex user/email:a/~prks",
		},
		{"another spelling is not verified", two, []string{"a", "b"}, "~also:email:b=1 - work; index user/email:b/~prks; unindex user/email:B/~prks"},
		{
			"all are removed", two, nil,
			"-email; -~also:email:b; release user/email:a/~prk; release user/email:b/~prk; unindex user/email:a/~prks; unindex user/email:B/~prks",
		},
		{
			"the first, which has a label, becomes a further value", record("email", "a", "~label:email", store.LabelText("a", "home"), "~also:email:b", "1 - -"),
			[]string{"b", "a"},
			"email=b; ~also:email:a=1 - home; -~also:email:b; -~label:email",
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

// TestSetTextsRefuses checks that texts that an entry cannot have are refused, and which rule the
// error names.
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
		{"uid", []string{"a"}, "many"},
		{"other", []string{"a"}, "undeclared"},
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

// TestFacetsAndFurtherValues checks what happens to a further value of an entry if a change sets
// only facets, and if the entry is deleted.
func TestFacetsAndFurtherValues(t *testing.T) {
	old := record("email", "a", "~also:email:b", "1 7 -")
	for _, tt := range []struct {
		what string
		to   map[string]string
		want string
	}{
		{"the facet is replaced", facets("email", "c"), "email=c; claim user/email:c/~prk; elsewhere user/name:c/~prk; release user/email:a/~prk; index user/email:c/~prks; unindex user/email:a/~prks"},
		{"a further value becomes the facet", facets("email", "b"), "email=b; ~verified:email=" + store.Verified("b") + "; -~also:email:b; release user/email:a/~prk; unindex user/email:a/~prks"},
		{"the facet is removed", facets(), "-email; -~also:email:b; release user/email:a/~prk; release user/email:b/~prk; unindex user/email:a/~prks; unindex user/email:b/~prks"},
		{"another field gets the text of the further value", facets("email", "a", "name", "b"), "name=b; claim user/name:b/~prk"},
	} {
		c, _, err := manyType(t).Update(old, tt.to, nil)
		if got := describe(c); tt.want != got && !strings.HasPrefix(got, tt.want+"; elsewhere") || err != nil {
			t.Errorf("%s:\n got %s, %v\nwant %s", tt.what, got, err, tt.want)
		}
	}
	if got, want := describe(manyType(t).Delete(old, time.Now())), "release user/email:a/~prk; release user/email:b/~prk; unindex user/email:a/~prks; unindex user/email:b/~prks"; got != want {
		t.Errorf("a delete:\n got %s\nwant %s", got, want)
	}
}

// TestUnverifiedFirst checks which mark of verification a facet gets from the values that the entry
// had before.
func TestUnverifiedFirst(t *testing.T) {
	typ := manyType(t)
	typ.Schema.Fields["email"] = schema.Field{Role: schema.RoleSecondary, Kind: "email", Many: 3}
	mark, a := "~verified:email", "a@x.org"
	for _, tt := range []struct {
		what string
		old  store.Record
		to   string
		want string
	}{
		{"a verified further value", record("email", a, "~also:email:b@x.org", "1 7 -"), "b@x.org", store.Verified("b@x.org")},
		{"an unverified further value", record("email", a, "~also:email:b@x.org", "1 - -"), "b@x.org", store.Unverified("b@x.org")},
		{"a verified further value in another spelling", record("email", a, "~also:email:b@x.org", "1 7 -"), "B@x.org", store.Unverified("B@x.org")},
		{"a new value after a verified one", record("email", a, mark, store.Verified(a), "~also:email:b@x.org", "1 - -"), "c@x.org", ""},
		{"the unverified first value in another spelling", record("email", a, mark, store.Unverified(a)), "A@x.org", store.Unverified("A@x.org")},
		{"a first value without a mark in another spelling", record("email", a), "A@x.org", ""},
		{"the verified first value in another spelling", record("email", a, mark, store.Verified(a)), "A@x.org", ""},
		{"a new value after an unverified one", record("email", a, mark, store.Unverified(a)), "c@x.org", ""},
		{"the same unverified value", record("email", a, mark, store.Unverified(a)), a, store.Unverified(a)},
		{"a further value of an entry without the facet", record("~also:email:b@x.org", "1 - -"), "b@x.org", store.Unverified("b@x.org")},
		{"a first value that a further value repeats, in another spelling", record("email", a, "~also:email:a@x.org", "1 - -"), "A@x.org", ""},
	} {
		c, _, err := typ.Update(tt.old, facets("email", tt.to), nil)
		if err != nil {
			t.Fatal(err)
		}
		after := Apply(c, "r", tt.old.Fields)
		if after.Fields[mark] != tt.want {
			t.Errorf("%s: the mark is %q, want %q", tt.what, after.Fields[mark], tt.want)
		}
		if got := after.FacetUnverified("email"); got != strings.HasPrefix(tt.want, "-") {
			t.Errorf("%s: FacetUnverified = %v, want %v", tt.what, got, !got)
		}
	}
}

// TestLabelOfNewFirst checks that a further value that becomes the facet has the label that the
// same change gives it.
func TestLabelOfNewFirst(t *testing.T) {
	typ := manyType(t)
	old := record("email", "a", "~also:email:b", "1 - work")
	for _, label := range []string{"home", ""} {
		facets, own := Facets(old), map[string]string{}
		err := typ.SetTexts(old, facets, own, "email", []string{"B", "a"}, time.Unix(9, 0))
		if err == nil {
			err = typ.SetLabels(old, facets, own, "email", map[string]string{"b": label, "c": "x"})
		}
		if err != nil {
			t.Fatal(err)
		}
		c, _, err := typ.Update(old, facets, own)
		if after := Apply(c, "r", old.Fields); err != nil || after.Label("email") != label {
			t.Errorf("the first has the label %q, %v; want %q", after.Label("email"), err, label)
		}
	}
}

// TestOverTheLimit checks that an entry with more values than the schema allows can replace and
// lose values, but not gain any.
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
			t.Errorf("%q: got %v, want success: %v", tt.texts, err, tt.ok)
		}
	}
}

// TestRepairOfFirst checks that, if the first value of an entry belongs to another entry, its next
// value becomes the first, with its canonical form, its mark and its label.
func TestRepairOfFirst(t *testing.T) {
	bob := []string{"email", "Bob@x", "~skv:email", "bob@x", "~verified:email", store.Verified("Bob@x")}
	for _, tt := range []struct {
		what  string
		kind  string
		pairs []string
		want  string
	}{
		{
			"none is verified", "",
			[]string{"~also:email:work@x", "1 - - Work@x", "~also:email:also@x", "2 - -"},
			"email=Work@x; ~lost:email=Bob@x; ~skv:email=work@x; -~also:email:work@x; -~verified:email; release user/email:bob@x/~prk",
		},
		{
			"no address is verified", "email",
			[]string{"~also:email:work@x", "1 - work", "~label:email", store.LabelText("Bob@x", "home")},
			"email=work@x; ~label:email=" + store.LabelText("work@x", "work") + "; ~lost:email=Bob@x; ~verified:email=" + store.Unverified("work@x") +
				"; -~also:email:work@x; -~skv:email; release user/email:bob@x/~prk",
		},
		{
			"the second is verified", "email",
			[]string{"~also:email:work@x", "1 - -", "~also:email:also@x", "2 7 -"},
			"email=also@x; ~lost:email=Bob@x; ~verified:email=" + store.Verified("also@x") + "; -~also:email:also@x; -~skv:email; release user/email:bob@x/~prk",
		},
	} {
		typ := manyType(t)
		typ.Schema.Fields["email"] = schema.Field{Role: schema.RoleSecondary, Kind: tt.kind, Many: 3}
		c, _ := typ.Repair(record(slices.Concat(bob, tt.pairs)...), RepairLimits{Lose: "bob@x", From: []string{"email", "name"}})
		if got := describe(c); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.what, got, tt.want)
		}
	}
}

// TestRenameKeepsAttributes checks that a facet that gets another name keeps its mark of
// verification and its label.
func TestRenameKeepsAttributes(t *testing.T) {
	for _, mark := range []string{store.Verified("a@x.org"), store.Unverified("a@x.org")} {
		label := store.LabelText("a@x.org", "work")
		old := record("mail", "a@x.org", "~verified:mail", mark, "~label:mail", label)
		c, _ := manyType(t).Reshape(old, map[string]string{"mail": "email"}, func(recordkey.Key) bool { return true })
		after := Apply(c, "r", old.Fields).Fields
		for field, want := range map[string]string{"~verified:email": mark, "~label:email": label, "~verified:mail": "", "~label:mail": ""} {
			if after[field] != want {
				t.Errorf("%s is %q, want %q", field, after[field], want)
			}
		}
	}
}

// TestSetValues checks that SetValues writes what its caller knows about each value, and keeps the
// values that only another schema knows.
func TestSetValues(t *testing.T) {
	typ := manyType(t)
	old := record("email", "a", "~also:email:b", "1 7 work B", "~also:email:OLD", "2 5 fax Old")
	for _, tt := range []struct {
		what string
		to   []Value
		want string
	}{
		{"nothing else is known", []Value{{Text: "a"}, {Text: "B"}}, ""},
		{"a further value is removed, but not one of another schema", []Value{{Text: "a"}}, "-~also:email:b; release user/email:b/~prk; unindex user/email:B/~prks"},
		{"a label and a time", []Value{{Text: "a"}, {Text: "B", Label: "home", Verified: 8}}, "~also:email:b=1 8 home B"},
		{
			"a label and a time of the first",
			[]Value{{Text: "a", Label: "home", Verified: 8}, {Text: "B"}},
			"~label:email=" + store.LabelText("a", "home") + "; ~verified:email=" + store.Verified("a"),
		},
		{
			"a label of a further value that becomes the first",
			[]Value{{Text: "B", Label: "home"}},
			"email=B; ~label:email=" + store.LabelText("B", "home") + "; ~skv:email=b; ~verified:email=" + store.Verified("B") +
				"; -~also:email:b; release user/email:a/~prk; unindex user/email:a/~prks",
		},
		{"the first stays as verified as it is", []Value{{Text: "a", Unverified: true}, {Text: "B"}}, ""},
		{
			"an unverified new first value",
			[]Value{{Text: "c", Unverified: true}, {Text: "B"}},
			"email=c; ~verified:email=" + store.Unverified("c") + "; claim user/email:c/~prk; elsewhere user/name:c/~prk; " +
				"release user/email:a/~prk; index user/email:c/~prks; unindex user/email:a/~prks",
		},
	} {
		facets, own := Facets(old), map[string]string{}
		err := typ.SetValues(old, facets, own, "email", tt.to, time.Unix(9, 0))
		var c store.Change
		if err == nil {
			c, _, err = typ.Update(old, facets, own)
		}
		if got := describe(c); err != nil || got != tt.want {
			t.Errorf("%s:\n got %s, %v\nwant %s", tt.what, got, err, tt.want)
		}
	}
}

// TestManyWhileBuilding checks that an entry gets no second value while the rule that allows it is
// still being built.
func TestManyWhileBuilding(t *testing.T) {
	typ := manyType(t)
	st := typ.Schema
	st.Building = &schema.Building{ID: "x", What: map[string][]string{"email": {schema.ManyRule}}}
	building, err := typ.WithSchema(st, "g", "t")
	if err != nil || len(building.Many) > 0 || building.MaxValues("email") != 1 {
		t.Fatalf("fields with several values: got %q, %v; want none", building.Many, err)
	}
	old, own := record("email", "a"), map[string]string{}
	facets := Facets(old)
	if err := building.SetTexts(old, facets, own, "email", []string{"a", "b"}, time.Unix(9, 0)); err != nil {
		t.Fatal(err)
	}
	var wrong *store.FieldError
	if _, _, err = building.Update(old, facets, own); !errors.As(err, &wrong) || wrong.Rule != "many" || !strings.Contains(wrong.Reason, "userdb schema apply") {
		t.Errorf("a second value: got %v, want the rule many", err)
	}
	finished, err := building.WithSchema(typ.Schema, "h", "u")
	if err != nil || !slices.Equal(finished.Many, []string{"email"}) || finished.MaxValues("email") != 3 {
		t.Errorf("fields with several values afterwards: got %q, %v; want email", finished.Many, err)
	}
}

// TestRemoveOldForms checks which further values RemoveOldForms removes, and that a value that the
// entry would lose is kept as ~lost:FIELD.
func TestRemoveOldForms(t *testing.T) {
	renames := map[string]string{"mail": "email", "old": "gone"}
	for _, tt := range []struct {
		what string
		old  store.Record
		want string
	}{
		{"nothing to remove", record("email", "a", "~also:email:b", "1 - - B"), ""},
		{"the new form is there", record("email", "a", "~also:email:b", "1 7 - B", "~also:mail:B", "1 7 -"), "-~also:mail:B"},
		{"the new form is missing", record("email", "a", "~also:mail:B", "1 7 -"), "~lost:email=B; -~also:mail:B"},
		{"a field that is not secondary", record("job", "a", "~also:job:b", "1 - - B", "~also:job:c", "2 - -"), "~lost:job=B; ~lost:job:2=c; -~also:job:b; -~also:job:c"},
		{"another name that is not secondary", record("gone", "a", "~also:old:b", "1 - -"), "~lost:gone=b; -~also:old:b"},
		{"a further value repeats the first", record("email", "a", "~also:email:a", "1 - -"), "-~also:email:a"},
		{"a further value repeats the first in another spelling", record("email", "A", "~also:email:a", "1 - -"), "~lost:email=a; -~also:email:a; unindex user/email:a/~prks"},
		{"two spellings of a further value", record("email", "a", "~also:email:b", "2 7 -", "~also:email:B", "1 7 -"), "~lost:email=B; -~also:email:B; unindex user/email:B/~prks"},
		{
			"two spellings of a further value, of which the old form is verified", record("email", "a", "~also:email:b", "2 - -", "~also:email:B", "1 7 work"),
			"~also:email:b=2 7 work B; ~lost:email=b; -~also:email:B; unindex user/email:b/~prks",
		},
		{
			"an earlier value is lost already", record("email", "a", "~lost:email", "x", "~also:job:b", "1 - -", "~also:mail:c", "2 - -", "~was:email", "y"),
			"~lost:email:2=c; ~lost:job=b; -~also:job:b; -~also:mail:c; -~was:email",
		},
	} {
		c, due := manyType(t).RemoveOldForms(tt.old, renames)
		if got := describe(c); got != tt.want || due != (tt.want != "") {
			t.Errorf("%s:\n got %s, %v\nwant %s", tt.what, got, due, tt.want)
		}
		if _, again := manyType(t).RemoveOldForms(Apply(c, "r", tt.old.Fields), renames); again {
			t.Errorf("%s: there is more to remove afterwards", tt.what)
		}
	}
}

// TestSetTextsErrors checks the errors of SetTexts, which say which of several values is wrong.
func TestSetTextsErrors(t *testing.T) {
	for _, tt := range []struct {
		field string
		texts []string
		want  string
	}{
		{"email", []string{"a", ""}, "invalid value: email: value 2: "},
		{"email", []string{""}, "invalid value: email: empty"},
		{"email", []string{"a", "b", "A"}, "invalid value: email: values 1 and 3 are the same"},
		{"email", []string{"a", "b", "c", "d"}, "invalid value: email: over 3 values"},
		{"name", []string{"a", "b"}, `invalid value: name: more than one value; the schema has no "many" for the field`},
		{"uid", []string{"a"}, "invalid value: uid: only a secondary field can have several values"},
		{"emial", []string{"a"}, `invalid value: emial: type "user" has no such field; did you mean "email"?`},
	} {
		err := manyType(t).SetTexts(record(), facets(), map[string]string{}, tt.field, tt.texts, time.Unix(9, 0))
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s %q: got %v, want %s", tt.field, tt.texts, err, tt.want)
		}
	}
}

// TestRepairLosesTwo checks that a repair keeps both spellings of a value that it takes from an
// entry.
func TestRepairLosesTwo(t *testing.T) {
	c, _ := manyType(t).Repair(record("email", "A", "~skv:email", "a", "~also:email:a", "1 - -"), RepairLimits{Lose: "a", From: []string{"email"}})
	if after := Apply(c, "r", nil).Fields; after["~lost:email"] != "A" || after["~lost:email:2"] != "a" {
		t.Errorf("the entry keeps %q, want both spellings", after)
	}
}

// TestWithFurtherIgnoresOwnFields checks that a further value which a change removes does not
// remain because it is among the fields that the caller passes.
func TestWithFurtherIgnoresOwnFields(t *testing.T) {
	fields := map[string]string{"name": "ann", "~isa": "user", "~also:email:a@x.org": "1 - -", "~also:email:b@x.org": "2 - -"}
	after := WithFurther(store.Record{Fields: fields}, fields, map[string]string{"~also:email:a@x.org": ""})
	want := map[string]string{"name": "ann", "~also:email:b@x.org": "2 - -"}
	if !maps.Equal(after, want) {
		t.Errorf("got %v, want %v", after, want)
	}
	if len(fields) != 4 {
		t.Errorf("the fields of the caller became %v", fields)
	}
}
