package validate

import (
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/coffeenode/userdb/schema"
)

// everyKind has a field of each kind except email-dots, which accepts the same values as email.
// Each pair of them is orthogonal except nickname and username.
var everyKind = map[string]schema.Field{
	"email":    ofKind("email"),
	"nickname": ofKind("nickname"),
	"url":      ofKind("url"),
	"username": ofKind("username"),
}

// FuzzKinds looks for panics, and for values that two kinds accept.
func FuzzKinds(f *testing.F) {
	for _, seed := range []string{
		"alice@example.org", `"a b"@[IPv6:::]`, "a@[", "a@b.", "http://[::1]:80/?#", "http://a:b@c", "josé", "ⅷ", "\xff@a",
		"a@xn--" + strings.Repeat("z", 99), "ـ\u200d", "＠", "1\u0660", strings.Repeat("中", 63) + "@" + strings.Repeat("中", 63), "\nA",
	} {
		f.Add(seed)
	}
	folded := mustCompile(f, fields(schema.FoldCasefold, everyKind))
	exact := mustCompile(f, fields(schema.FoldExact, everyKind))
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range []*Rules{folded, exact} {
			value := r.typ.Canonical(text)
			accepting := acceptedBy(r, value)
			if len(accepting) > 1 && strings.Join(accepting, " ") != "nickname username" {
				t.Errorf("%q is accepted by %q", value, accepting)
			}
			for _, field := range r.typed {
				asFacet, asValue := r.Facet(field, schema.Text(text)), r.Secondary(field, value)
				// Facet also checks the wire form, so it may refuse more.
				more := r == folded && strings.ContainsFunc(text, droppedFromCanonical)
				if (asFacet == nil) != (asValue == nil) && (asFacet == nil || !more) &&
					len(text) <= schema.MaxFacet && !strings.ContainsRune(text, '\ufffd') {
					t.Errorf("%s of %q: as a facet %v, as a value %v", field, text, asFacet, asValue)
				}
			}
		}
	})
}

// droppedFromCanonical reports whether the canonical form drops r and a facet must not contain it.
func droppedFromCanonical(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r == '\u2800' || schema.Invisible(string(r))
}

func acceptedBy(r *Rules, value string) []string {
	var accepting []string
	for _, field := range r.typed {
		if r.Secondary(field, value) == nil {
			accepting = append(accepting, field)
		}
	}
	return accepting
}

// FuzzProver looks for panics and wrong results. If the prover says that a and b are orthogonal,
// text must not satisfy both. If it says that they overlap, its witness must satisfy both.
func FuzzProver(f *testing.F) {
	for _, seed := range [][3]string{
		{`^https?://.+`, `@`, "http://@"},
		{`^[0-9]{7}$`, `^\d+$`, "0000000"},
		{`(?m)^a$`, `(?s)b.c\b`, "b\nc\na"},
		{`\pL\PL`, `[^\x00-\x{10ffff}]`, "a"},
		{`(?i)ſ`, `^[^\W_]\B`, "ks"},
		{`()|(x*)*`, `$^`, ""},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, a, b, text string) {
		if len(a)+len(b) > 100 || !isRE2(a) || !isRE2(b) {
			return
		}
		for _, fold := range []schema.Fold{schema.FoldExact, schema.FoldCasefold} {
			typ := fields(fold, map[string]schema.Field{"a": pattern(a), "b": pattern(b)})
			p := checkWithSmallLimit(t, typ)
			r := mustCompile(t, typ)
			if p.Verdict == Orthogonal && len(acceptedBy(r, typ.Canonical(text))) == 2 {
				t.Errorf("%q and %q are orthogonal, but both accept %q", a, b, text)
			}
			if p.Verdict == Overlap && len(acceptedBy(r, p.Witness)) != 2 {
				t.Errorf("%q is not a witness of %q and %q", p.Witness, a, b)
			}
		}
	})
}

func isRE2(expr string) bool {
	_, err := regexp.Compile(expr)
	return err == nil && expr != ""
}
