package change

import (
	"testing"

	"github.com/coffeenode/userdb/schema"
)

// TestAddressWithoutSpace checks that a mail address is stored without white space around it,
// because mail is sent to the stored text. Other facets are stored as they are.
func TestAddressWithoutSpace(t *testing.T) {
	typ := testType(t, schema.FoldCasefold)
	email := typ.Schema.Fields["email"]
	email.Kind = "email"
	typ.Schema.Fields["email"] = email
	for text, want := range map[string]string{" anna@example.com ": "anna@example.com", "bert@example.com\u00a0": "bert@example.com", "\tcleo@example.com\t": "cleo@example.com"} {
		facets := map[string]string{}
		if err := typ.EncodeFacet(facets, "email", schema.Text(text), nil); err != nil || facets["email"] != want {
			t.Errorf("%q: stored %q, %v; want %q", text, facets["email"], err, want)
		}
	}
	facets, stored := map[string]string{}, map[string]string{"job": " cook "}
	if err := typ.EncodeFacet(facets, "job", schema.Text(" cook "), stored); err != nil || facets["job"] != " cook " {
		t.Errorf("another facet: stored %q, %v; want it unchanged", facets["job"], err)
	}
}
