package change

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// selfRegisteredType returns a type of entries with several addresses, links and tags.
func selfRegisteredType(t *testing.T) *Type {
	t.Helper()
	c, err := Compile(schema.Schema{Types: map[string]schema.Type{"user": {
		Primary: "uid", Factors: true,
		Fields: map[string]schema.Field{
			"email": {Role: schema.RoleSecondary, Kind: "email", Many: 3},
			"links": {Role: schema.RoleSecondary, Typed: new(false), Many: 3},
			"name":  {Role: schema.RoleSecondary, Kind: "nickname"},
			"phone": {Role: schema.RoleSecondary, Many: 2},
		},
		Tertiary: map[string]schema.Tertiary{TagsName: {Kind: "set"}},
	}}}, recordkey.Namespace{})
	if err != nil {
		t.Fatal(err)
	}
	return c.ByName["user"]
}

// TestEndUnproven checks that an unproven entry loses everything that could lead to the person who
// registered it, even what only an import or another program can have added.
func TestEndUnproven(t *testing.T) {
	typ := selfRegisteredType(t)
	old := record(
		"name", "mallory", "email", "a@x.org", "~also:email:b@x.org", "1 7 - b@x.org", "links", "l", "~also:links:m", "2 - -", "phone", "1",
		"~also:phone:2", "1 - -", "~unproven", "1", factor.FieldMark, "totp/x", store.FieldPassword, factor.HashMarker, factor.FieldHash, "hash",
	)
	for _, proved := range []string{"a@x.org", "b@x.org"} {
		facets, own := Facets(old), map[string]string{}
		typ.EndUnproven(old, facets, own, Proved{"email", proved}, time.Now(), false)
		c, _, err := typ.Update(old, facets, own)
		if err != nil {
			t.Fatal(err)
		}
		after := Apply(c, "", old.Fields)
		kept := slices.Sorted(maps.Keys(after.Fields))
		for _, name := range []string{store.FieldChanged, store.FieldRev, "~epoch", "~isa", "~prk", "uid"} {
			kept = slices.DeleteFunc(kept, func(field string) bool { return field == name })
		}
		want := []string{"email", "name", "~verified:email"}
		slices.Sort(want)
		if !slices.Equal(kept, want) || after.Fields["email"] != proved || after.Fields["~verified:email"] != store.Verified(proved) {
			t.Errorf("%s: got the fields %q and the address %s; want %q and the proved address, verified", proved, kept, after.Fields["email"], want)
		}
	}
}

// TestGivesUpAddress checks that all addresses of an unproven entry count, not only the first.
func TestGivesUpAddress(t *testing.T) {
	typ := selfRegisteredType(t)
	old := record("email", "a@x.org", "~also:email:b@x.org", "1 - - b@x.org", "~unproven", "1")
	for _, tt := range []struct {
		to   []string
		want bool
	}{
		{[]string{"b@x.org", "a@x.org"}, false},
		{[]string{"A@x.org", "b@x.org"}, false},
		{[]string{"a@x.org"}, true},
		{[]string{"b@x.org"}, true},
	} {
		facets, own := Facets(old), map[string]string{}
		if err := typ.SetTexts(old, facets, own, "email", tt.to, time.Now()); err != nil {
			t.Fatal(err)
		}
		if got := typ.givesUpAddress(old, facets, typ.completeFurther(old, facets, own)); got != tt.want {
			t.Errorf("%q: got %v, want %v", tt.to, got, tt.want)
		}
	}
}

// TestUnverifiedInAnotherSpelling checks that a value that receives no secrets after a takeover
// receives none in another spelling either.
func TestUnverifiedInAnotherSpelling(t *testing.T) {
	typ := selfRegisteredType(t)
	old := record("email", "a@x.org", "phone", "a1", store.FieldVerified("phone"), store.Unverified("a1"))
	facets, own := Facets(old), map[string]string{}
	facets["phone"] = "A1"
	c, _, err := typ.Update(old, facets, typ.completeFurther(old, facets, own))
	if err != nil {
		t.Fatal(err)
	}
	if after := (store.Record{Fields: Apply(c, "", old.Fields).Fields}); after.Fields["phone"] != "A1" || !after.FacetUnverified("phone") {
		t.Errorf("got the value %q, unverified %v; want A1, true", after.Fields["phone"], after.FacetUnverified("phone"))
	}
}
