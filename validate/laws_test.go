package validate

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/schema"
)

// drawType generates a type with up to four secondary fields.
func drawType(t *rapid.T) schema.Type {
	fs := make(map[string]schema.Field)
	for _, name := range []string{"a", "b", "c", "d"}[:rapid.IntRange(0, 4).Draw(t, "fields")] {
		fs[name] = schema.Field{
			Kind:     rapid.SampledFrom([]string{"", "email", "username", "nickname", "url"}).Draw(t, "kind"),
			Pattern:  rapid.SampledFrom([]string{"", "^[a-z]+$", "^[0-9]+$", "@", "a", `\.org$`}).Draw(t, "pattern"),
			Reserved: rapid.SliceOfN(rapid.SampledFrom(lawValues), 0, 2).Draw(t, "reserved"),
		}
	}
	return fields(rapid.SampledFrom([]schema.Fold{schema.FoldExact, schema.FoldCasefold}).Draw(t, "fold"), fs)
}

var lawValues = []string{
	"a", "alice", "Alice", "1234567", "alice@example.org", "ALICE@example.org", "http://example.org", "alice smith", "ａlice", "\xff",
	"a@straße.org", "a@xn--strae-oqa.org", `"a"@example.org`, "a@example.org.", "http://straße.org", "a\u034fb@example.org",
}

// TestCandidatesIncludeEveryAcceptingField checks that Candidates returns every field that accepts
// the value, and all fields if none does. It also checks that Candidates leaves out fields whose
// kinds exclude the value.
func TestCandidatesIncludeEveryAcceptingField(t *testing.T) {
	narrow := mustCompile(t, fields(schema.FoldExact, map[string]schema.Field{"a": {Kind: "email"}, "b": {Kind: "username"}}))
	if got := narrow.Candidates("alice@example.org"); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("the candidates for an address are %q, want only a", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		r := mustCompileRapid(t, drawType(t))
		for _, text := range lawValues {
			value := r.typ.Canonical(text)
			candidates, accepting := r.Candidates(value), acceptedBy(r, value)
			for _, field := range accepting {
				if !slices.Contains(candidates, field) {
					t.Fatalf("%s accepts %q, but the candidates are %q", field, value, candidates)
				}
			}
			if len(accepting) == 0 && len(candidates) != len(r.typed) {
				t.Fatalf("no field accepts %q, but the candidates are %q", value, candidates)
			}
		}
	})
}

// TestReserved checks that a reserved value is refused in each of its forms, and that nothing else
// is. A text of spaces cannot be reserved, because it is not a value.
func TestReserved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.StringMatching(`[aAéÉ.+*\\ ]{1,3}`), 1, 5).Draw(t, "reserved")
		typ := fields(schema.FoldCasefold, map[string]schema.Field{"f": {Reserved: values}})
		r := mustCompileRapid(t, typ)
		forms := make(map[string]bool)
		for _, value := range values {
			forms[typ.Canonical(value)] = true
		}
		text := rapid.OneOf(rapid.SampledFrom(values), rapid.StringMatching(`[aAéÉ.+*\\ ]{1,3}`)).Draw(t, "text")
		value := typ.Canonical(text)
		if got, want := r.fields["f"].check(typ, value) != nil, forms[value] && value != ""; got != want {
			t.Fatalf("%q is refused: got %v, want %v", value, got, want)
		}
	})
}

// TestReservedExpression checks that the expression that describes reserved values to the prover
// matches exactly these values.
func TestReservedExpression(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		forms := make(map[string]bool)
		for _, form := range rapid.SliceOfN(rapid.StringMatching(`[ab.+*]{1,3}`), 1, 5).Draw(t, "reserved") {
			forms[form] = true
		}
		re := regexp.MustCompile(reservedExpr(forms))
		for _, text := range texts([]rune("ab.+*"), 3) {
			if got := re.MatchString(text); got != forms[text] {
				t.Fatalf("%q: the pattern matches: %v, but the value is reserved: %v", text, got, forms[text])
			}
		}
	})
}

// TestFacetAndSecondaryAgree checks that Facet returns the same for a value of a secondary field as
// Secondary for its canonical form. It leaves out the last of lawValues: only Facet sees its
// invisible character.
func TestFacetAndSecondaryAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := mustCompileRapid(t, drawType(t))
		for _, value := range lawValues[:len(lawValues)-1] {
			for _, field := range r.typed {
				asFacet, asValue := text(r.Facet(field, schema.Text(value))), text(r.Secondary(field, r.typ.Canonical(value)))
				if asFacet != asValue {
					t.Fatalf("%s of %q: as a facet %q, as a value %q", field, value, asFacet, asValue)
				}
			}
		}
	})
}

// TestPhrasesAreRE2 checks that regexp/syntax, which the prover uses, also parses the expressions
// of the kinds.
func TestPhrasesAreRE2(t *testing.T) {
	for _, name := range []string{"", "pattern", "email", "username", "nickname", "url"} {
		k, known := kindOf(name, schema.Type{})
		if !known || k.refuse == nil || k.max == 0 {
			t.Errorf("%q is not a known kind", name)
		}
		for _, ph := range k.phrases {
			if _, err := syntax.Parse(ph.expr, syntax.Perl); err != nil || ph.reason == "" {
				t.Errorf("%s: %q (%s): %v", name, ph.expr, ph.reason, err)
			}
		}
	}
	if _, known := kindOf("mail", schema.Type{}); known {
		t.Error("kindOf knows a kind mail, want an unknown kind")
	}
}
