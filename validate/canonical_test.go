package validate

import (
	"strings"
	"testing"

	"github.com/coffeenode/userdb/schema"
)

// TestFacetInOtherForms checks values with Facet, which applies the rules to their canonical form,
// but refuses characters that nobody sees.
func TestFacetInOtherForms(t *testing.T) {
	r := mustCompile(t, fields(schema.FoldCasefold, map[string]schema.Field{
		"email": {Role: schema.RoleSecondary, Kind: "email"},
		"home":  {Role: schema.RoleSecondary, Kind: "url"},
		"name":  {Role: schema.RoleSecondary, Kind: "nickname"},
		"user":  {Role: schema.RoleSecondary, Kind: "username"},
		"other": {Role: schema.RoleSecondary},
		"plain": {Kind: "email"},
	}))
	for _, c := range []struct{ field, value, want string }{
		{"email", "bob@straße.de", ""},
		{"email", "bob@XN--STRAE-OQA.de", ""},
		{"email", `"bob"@x.org`, ""},
		{"email", "bob@x.org.", ""},
		{"email", "bo\u200db@x.org", ""},
		{"email", "a@نامه\u200cای.com", ""},
		{"email", "a@[IPv6:1:2:3:4:5:6:7::]", ""},
		{"email", "\"x\r\nBcc: eve\"@x.org", "email: control: a line break or control character (U+000D)"},
		{"email", "\nbob@x.org", "email: control: a line break or control character (U+000A)"},
		{"email", "bob@x.org\u2028", "email: control: a line break or control character (U+2028)"},
		{"name", "bob\ncarol", "name: control: a line break or control character (U+000A)"},
		{"plain", "bob\x00", "plain: control: a line break or control character (U+0000)"},
		{"name", "bob\u2800", "name: invisible: an invisible character (U+2800)"},
		{"email", "bo\u034fb@x.org", "email: invisible: an invisible character (U+034F)"},
		{"email", "bo\u3164b@x.org", "email: invisible: an invisible character (U+3164)"},
		{"email", "bo\u00adb@x.org", "email: invisible: an invisible character (U+00AD)"},
		{"email", "bob\ufe0f@x.org", "email: invisible: an invisible character (U+FE0F)"},
		{"email", "bob@x\u202e.org", "email: invisible: an invisible character (U+202E)"},
		{"email", "bo\u0378b@x.org", "email: unassigned: a character that is not in Unicode 15.0.0"},
		{"email", "bob@\u0378.org", "email: unassigned: a character that is not in Unicode 15.0.0"},
		{"email", "bob@i❤.ws", "email: a part of the domain that IDNA does not allow"},
		{"email", "bob@xn--i-7iq.ws", "email: a part of the domain that IDNA does not allow"},
		{"email", "bob@ab--ß.de", "email: a part of the domain that IDNA does not allow"},
		{"email", "bob@x.org..", "email: a dot without text on both sides in the domain"},
		{"email", "\u200d@x.org", "email: nothing before the @"},
		{"home", "http://straße.de/", ""},
		{"home", "http://x.org/\u00ad", "home: invisible: an invisible character (U+00AD)"},
		{"name", "می\u200cخواهم", ""},
		{"name", "bo\ufeffb", "name: invisible: an invisible character (U+FEFF)"},
		{"name", "Anna ❤\ufe0f", ""},
		{"name", "🏳\ufe0f\u200d🌈", ""},
		{"name", "Anna\ufe0f", "name: invisible: an invisible character (U+FE0F)"},
		{"name", "❤\ufe0f\ufe0f", "name: invisible: an invisible character (U+FE0F)"},
		{"name", "\u0378", "name: unassigned: a character that is not in Unicode 15.0.0"},
		{"user", "می\u200cخواهم", ""},
		{"user", "bo\u00adb", "user: invisible: an invisible character (U+00AD)"},
		{"other", "bo\u034fb", ""}, // no kind, but the same value as "bob"
		{"other", "\u034f", "other: non-empty: empty"},
		{"other", "\ufdd0", "other: unassigned: a character that is not in Unicode 15.0.0"},
		{"other", "bo\U000e0fffb", "other: unassigned: a character that is not in Unicode 15.0.0"},
		{"plain", "bob@straße.de", ""},
	} {
		if got := text(r.Facet(c.field, schema.Text(c.value))); got != c.want {
			t.Errorf("%s %+q: got %q, want %q", c.field, c.value, got, c.want)
		}
	}
}

// TestExactAcceptsAnyForm checks that types with FoldExact, which compare only bytes, accept every
// form of a value.
func TestExactAcceptsAnyForm(t *testing.T) {
	r := mustCompile(t, fields(schema.FoldExact, map[string]schema.Field{
		"name": {Role: schema.RoleSecondary}, "email": {Role: schema.RoleSecondary, Kind: "email"},
	}))
	for field, values := range map[string][]string{
		"name":  {"bo\u034fb", "\u0378", "\ufdd0", "bob@straße.de", `"bob"@x.org`},
		"email": {"bo\u034fb@x.org", "bob@straße.de", "bob@STRASSE.de", `"bob"@x.org`},
	} {
		for _, value := range values {
			if err := r.Facet(field, schema.Text(value)); err != nil {
				t.Errorf("%s %+q: %v", field, value, err)
			}
		}
	}
}

// TestCanonicalAddressesMatchExpression checks that every address that refuseEmail accepts in
// canonical form also matches emailExpr.
func TestCanonicalAddressesMatchExpression(t *testing.T) {
	typ := fields(schema.FoldCasefold, map[string]schema.Field{"email": {Role: schema.RoleSecondary, Kind: "email"}})
	r, accepted := mustCompile(t, typ), 0
	for _, c := range isemailCases(t) {
		form := typ.Canonical(restoreControls(c.Address))
		if form == "" || strings.ContainsRune(c.Address, '\u2400') {
			continue
		}
		if refuseEmail(form) == "" {
			accepted++
			if err := r.Secondary("email", form); err != nil {
				t.Errorf("%q: %v", form, err)
			}
		}
	}
	if accepted < 50 {
		t.Errorf("got %d accepted addresses, want at least 50", accepted)
	}
}
