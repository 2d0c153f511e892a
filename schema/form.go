package schema

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/bidi"
	"golang.org/x/text/unicode/norm"
	"golang.org/x/text/width"
)

// The canonical form of FoldCasefold has versions: records that were written by one cannot be found by
// another. Whoever changes what Canonical gives for any value, raises formRules.
const (
	formRules = "2"
	firstForm = "1" // of types that are stored without a version
)

// FormVersion is the version of the canonical form that Canonical gives under FoldCasefold: that of its
// rules, and that of the Unicode and IDNA tables that the program was built with ("2/15.0.0").
func FormVersion() string { return formVersion }

var formVersion = formRules + "/" + tables(unicode.Version, norm.Version, cases.UnicodeVersion, width.UnicodeVersion, idna.UnicodeVersion, bidi.UnicodeVersion)

// tables names all versions of tables that a program is made of. There is one, unless somebody builds with
// libraries of different years.
func tables(versions ...string) string {
	slices.Sort(versions)
	return strings.Join(slices.Compact(versions), "+")
}

// form is the version of the canonical form that t is declared for; "" where it has none.
func (t Type) form() string {
	switch {
	case t.Fold == FoldExact:
		return ""
	case t.Form == "":
		return formVersion
	}
	return t.Form
}

// InForm returns t as this program writes it, whichever version of the canonical form it names.
func (t Type) InForm() Type {
	t.Form = ""
	t.Form = t.form()
	return t
}

// FromStore returns t, read from a database, as a program has it: where it names no version, the first is
// meant, and this program's need not be named.
func (t Type) FromStore() Type {
	switch {
	case t.Fold == FoldExact, t.Form == formVersion:
		t.Form = ""
	case t.Form == "":
		t.Form = firstForm
	}
	return t
}

// OtherForm reports whether the records of stored, a declaration that is in force elsewhere, differ from
// those of t only in that their canonical values are of another version.
func (t Type) OtherForm(stored Type) bool {
	if t.form() == stored.form() || t.form() == "" || stored.form() == "" {
		return false
	}
	stored.Form = t.form()
	return t.Fingerprint() == stored.Fingerprint()
}
