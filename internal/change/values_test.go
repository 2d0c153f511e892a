package change

import (
	"errors"
	"testing"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/schema"
)

// TestUndeclared checks that a type that is not open refuses undeclared facets, and that the
// message suggests the field that was probably meant.
func TestUndeclared(t *testing.T) {
	typ := testType(t, schema.FoldCasefold)
	const others = "; it has uid, age, email, job, name, and 'userdb schema add' adds others"
	for field, want := range map[string]string{
		"emial":     `type "user" has no such field; did you mean "email"?`,
		"Email":     `type "user" has no such field; did you mean "email"?`,
		"E-MAIL":    `type "user" has no such field; did you mean "email"?`,
		"UID":       `type "user" has no such field; did you mean "uid"?`,
		"shoe size": `type "user" has no such field` + others,
		"x":         `type "user" has no such field` + others,
		"foo":       `type "user" has no such field` + others,
		"ui":        `type "user" has no such field; did you mean "uid"?`,
		"uib":       `type "user" has no such field; did you mean "uid"?`,
		"émail":     `type "user" has no such field; did you mean "email"?`,
		"pasword":   `type "user" has no such field; did you mean "password"?`,
		"tags":      `type "user" has a tertiary record of that name, and no such field`,
		"email":     "", "age": "", "uid": "",
	} {
		if got := typ.UndeclaredReason(field, "password"); got != want {
			t.Errorf("%s: got %q, want %q", field, got, want)
		}
	}
	facets, old := map[string]string{}, map[string]string{"city": "Bonn"}
	err := typ.EncodeFacet(facets, "city", schema.Text("Köln"), old)
	refused, ok := errors.AsType[*store.FieldError](err)
	if !ok || !errors.Is(err, ErrInvalid) || refused.Rule != "undeclared" || refused.Field != "city" || len(facets) > 0 {
		t.Errorf("an undeclared facet: got %v and the facets %v, want an ErrInvalid with the rule undeclared and no facets", err, facets)
	}
	if err := typ.EncodeFacet(facets, "city", schema.Text("Bonn"), old); err != nil || facets["city"] != "Bonn" {
		t.Errorf("an undeclared facet that the entry already has: got %v and the facets %v, want the facet unchanged", err, facets)
	}
	typ.Schema.Open, typ.declared.Open = true, true
	if err := typ.EncodeFacet(facets, "emial", schema.Text("x"), nil); err != nil || facets["emial"] != "x" {
		t.Errorf("an undeclared facet of an open type: got %v and the facets %v, want the facet to be set", err, facets)
	}
}

func TestEditDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"abc", "abc", 0}, {"ab", "ba", 2}} {
		if got := editDistance([]rune(tt.a), []rune(tt.b)); got != tt.want {
			t.Errorf("from %q to %q: got %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
