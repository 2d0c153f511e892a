package change

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// untypedType returns a type with two typed and two untyped fields.
func untypedType(t *testing.T) *Type {
	t.Helper()
	c, err := Compile(schema.Schema{Types: map[string]schema.Type{"user": {Primary: "uid", Fields: map[string]schema.Field{
		"email": {Role: schema.RoleSecondary},
		"name":  {Role: schema.RoleSecondary, Many: 3},
		"ext":   {Role: schema.RoleSecondary, Typed: new(false), Many: 3},
		"key":   {Role: schema.RoleSecondary, Typed: new(false)},
	}}}}, recordkey.Namespace{})
	if err != nil {
		t.Fatal(err)
	}
	return c.ByName["user"]
}

// TestClaimsOfUntyped checks that a value of a typed field is claimed against all typed fields, and
// a value of an untyped field against no other field.
func TestClaimsOfUntyped(t *testing.T) {
	typ := untypedType(t)
	for _, tt := range []struct{ facets, want string }{
		{"ext", "claim user/ext:v/~prk"},
		{"email", "claim user/email:v/~prk; elsewhere user/name:v/~prk"},
		{"email ext key", "claim user/email:v/~prk; claim user/ext:v/~prk; claim user/key:v/~prk; elsewhere user/name:v/~prk"},
	} {
		var after []string
		for _, field := range strings.Fields(tt.facets) {
			after = append(after, field, "v")
		}
		c, _, err := typ.Update(record(), facets(after...), nil)
		c.Set = nil
		if got := describe(c); err != nil || got != tt.want {
			t.Errorf("%s: got %s, %v\nwant %s", tt.facets, got, err, tt.want)
		}
	}
	old := record("ext", "a", "email", "b")
	c, _, err := typ.Update(old, facets("ext", "b", "email", "a"), nil)
	c.Set = nil
	want := "claim user/email:a/~prk; claim user/ext:b/~prk; elsewhere user/name:a/~prk; release user/email:b/~prk; release user/ext:a/~prk"
	if got := describe(c); err != nil || got != want {
		t.Errorf("exchanged: got %s, %v\nwant %s", got, err, want)
	}
}

// TestClaimsWhileBecomingTyped checks that writers claim the values of a field that is becoming
// typed against all typed fields, although a search in any field does not find them yet.
func TestClaimsWhileBecomingTyped(t *testing.T) {
	typ := untypedType(t)
	st := typ.Schema
	st.Fields = map[string]schema.Field{"email": st.Fields["email"], "ext": {Role: schema.RoleSecondary}}
	st.Building = &schema.Building{ID: "x", What: map[string][]string{"ext": {schema.TypedRule}}}
	building, err := typ.WithSchema(st, "g", "t")
	if err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]string{
		"ext":   "claim user/ext:v/~prk; elsewhere user/email:v/~prk",
		"email": "claim user/email:v/~prk; elsewhere user/ext:v/~prk",
	} {
		c, _, err := building.Update(record(), facets(field, "v"), nil)
		c.Set = nil
		if got := describe(c); err != nil || got != want {
			t.Errorf("%s: got %s, %v\nwant %s", field, got, err, want)
		}
	}
	if got := fmt.Sprint(building.Typed, building.SettledRivals("ext"), building.SettledRivals("email")); got != "[email] [ext] [email]" {
		t.Errorf("the typed fields, and the settled rivals of ext and of email: got %s, want [email] [ext] [email]", got)
	}
}

// TestUniqueTexts checks the texts of values. Two entries may not have values with the same text.
func TestUniqueTexts(t *testing.T) {
	typ := untypedType(t)
	texts := func(pairs ...string) []string { return typ.UniqueTexts(record(pairs...).Fields) }
	if got := texts("email", "v", "name", "V", "~also:name:w", "1 - -"); !slices.Equal(got, []string{":v", ":w"}) {
		t.Errorf("typed values: got %q, want :v and :w", got)
	}
	if got := texts("ext", "v", "key", "v", "~also:ext:w", "1 - -"); !slices.Equal(got, []string{"ext:v", "ext:w", "key:v"}) {
		t.Errorf("untyped values: got %q, want ext:v, ext:w and key:v", got)
	}
}

// TestRepairOfUntyped checks that an entry that loses a value keeps it in the fields that the loss
// does not affect.
func TestRepairOfUntyped(t *testing.T) {
	typ := untypedType(t)
	old := record("email", "v", "ext", "v", "~also:name:v", "1 - -", "name", "n")
	for field, want := range map[string]string{
		"ext":   "~lost:ext=v; -ext; release user/ext:v/~prk",
		"email": "~lost:email=v; ~lost:name=v; -email; -~also:name:v; release user/email:v/~prk; release user/name:v/~prk",
	} {
		c, _ := typ.Repair(old, RepairLimits{Lose: "v", From: typ.SettledRivals(field)})
		if got := describe(c); got != want {
			t.Errorf("%s: got %s\nwant %s", field, got, want)
		}
	}
}

// TestFurtherWithoutValue checks an entry with fields such as ~also:name, which name no further
// value: it can be updated and deleted, and a repair keeps the texts of these fields.
func TestFurtherWithoutValue(t *testing.T) {
	typ := untypedType(t)
	old := record("email", "a", "name", "n", "~also:name", "1 - - x", "~also:name:", "1 - -", "~also:", "")
	if got := typ.Values(old.Fields, "name"); len(got) != 1 {
		t.Errorf("the values are %+v, want only n", got)
	}
	c, _, err := typ.Update(old, facets("email", "a", "name", "m"), nil)
	if got, want := describe(c), "name=m; claim user/name:m/~prk; elsewhere user/email:m/~prk; release user/name:n/~prk"; err != nil || got != want {
		t.Errorf("an update: got %s, %v\nwant %s", got, err, want)
	}
	_ = typ.Delete(old, time.Now()) // must not panic
	c, due := typ.Repair(old, RepairLimits{})
	want := "~lost:=; ~lost:name=1 - - x; ~lost:name:2=1 - -; -~also:; -~also:name; -~also:name:"
	if got := describe(c); !due || got != want {
		t.Errorf("a repair: got %s, %v\nwant %s", got, due, want)
	}
	if err := c.CheckFields(); err != nil {
		t.Error(err)
	}
	after := Apply(c, store.NewRev(), old.Fields)
	if _, due := typ.Repair(after, RepairLimits{}); due {
		t.Error("a repair finds more to do afterwards")
	}
}
