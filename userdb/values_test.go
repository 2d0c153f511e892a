package userdb

import (
	"fmt"
	"testing"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// TestReceivingAddressFoldsNothing checks that finding the address for a visitor's secret takes
// about the same work whether the entry has a hundred values or does not exist.
func TestReceivingAddressFoldsNothing(t *testing.T) {
	types, err := change.Compile(schema.Schema{Types: map[string]schema.Type{"user": {Primary: "uid", Fields: map[string]schema.Field{
		"email": {Role: schema.RoleSecondary, Kind: "email", Many: 100},
	}}}}, recordkey.Namespace{})
	if err != nil {
		t.Fatal(err)
	}
	users := &Type{declared: types.ByName["user"]}
	many := map[string]string{"email": "a@x.org"}
	for i := range 99 {
		f := store.Further{Field: "email", Canonical: fmt.Sprintf("b%d@x.org", i), Written: fmt.Sprintf("B%d@x.org", i), Position: i, Verified: 7}
		many[f.Name()] = f.Text()
	}
	work := func(fields map[string]string, canonical, want string) float64 {
		r := store.Record{Fields: fields}
		if got := users.addressFor(r, "email", canonical); got != want {
			t.Errorf("%s leads to %q, want %q", canonical, got, want)
		}
		return testing.AllocsPerRun(10, func() { users.addressFor(r, "email", canonical) })
	}
	unknown := work(nil, "a@x.org", "")
	for entered, want := range map[string]string{"a@x.org": "a@x.org", "alice": "a@x.org", "b98@x.org": "B98@x.org"} {
		if got := work(many, entered, want); got > unknown+8 {
			t.Errorf("%s: %v allocations for an entry with 100 values, %v without an entry; want at most 8 more", entered, got, unknown)
		}
	}
}
