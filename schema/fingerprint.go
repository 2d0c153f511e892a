package schema

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/bidi"
	"golang.org/x/text/unicode/norm"
	"golang.org/x/text/width"
)

// placement is what decides where the records of a type lie. Its JSON is what a fingerprint is made of: neither names
// nor order may change.
type placement struct {
	Primary   string   `json:"primary"`
	Fold      Fold     `json:"fold"`
	Form      string   `json:"canonical,omitempty"` // left out of the first, which had no versions
	Secondary []string `json:"secondary,omitempty"`
	Indexed   []string `json:"indexed,omitempty"`
	Ordered   []string `json:"ordered,omitempty"`
	Tertiary  []string `json:"tertiary,omitempty"`
}

func (t Type) placement() placement {
	fold := cmp.Or(t.Fold, FoldCasefold)
	form := t.form()
	if form == firstForm {
		form = ""
	}
	return placement{t.Primary, fold, form, t.Secondary(), t.Indexed(), t.Ordered(), t.IndexedTertiary()}
}

// Fingerprint returns 16 hex digits that are the same for types whose records have the same keys: of one primary field,
// fold, version of the canonical form, secondary, indexed and ordered fields, and indexed tertiary records. Nothing
// else counts: neither fields without a role nor codecs, kinds, patterns, reserved values or passwords.
func (t Type) Fingerprint() string {
	text, _ := json.Marshal(t.placement()) // of texts: it cannot fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Difference says what makes the fingerprints of t and of stored, a declaration of the same type that is in force
// elsewhere, differ: "secondary fields: stored email, name; here email". It is empty where they do not.
func (t Type) Difference(stored Type) string {
	here, there := t.placement(), stored.placement()
	var said []string
	compare := func(what string, there, here []string) {
		if !slices.Equal(there, here) {
			said = append(said, what+": stored "+list(there)+"; here "+list(here))
		}
	}
	compare("primary field", []string{there.Primary}, []string{here.Primary})
	compare("fold", []string{string(there.Fold)}, []string{string(here.Fold)})
	if there.Fold == here.Fold {
		compare("canonical form", []string{stored.form()}, []string{t.form()})
	}
	compare("secondary fields", there.Secondary, here.Secondary)
	compare("indexed fields", there.Indexed, here.Indexed)
	compare("ordered fields", there.Ordered, here.Ordered)
	compare("indexed tertiary records", there.Tertiary, here.Tertiary)
	return strings.Join(said, ", and ")
}

// list names things for people.
func list[T ~string](names []T) string {
	if len(names) == 0 {
		return "none"
	}
	shown := make([]string, len(names))
	for i, name := range names {
		shown[i] = quoteIfUnclear(string(name))
	}
	return strings.Join(shown, ", ")
}

// The canonical form of FoldCasefold has versions: records that were written by one cannot be found by another. A
// change of what Canonical gives for any value, or of what indexes make of it, raises formRules.
const (
	formRules = "3"
	firstForm = "1" // of types that are stored without a version
)

// FormVersion is the version of the canonical form that Canonical gives under FoldCasefold: that of its rules, and that
// of the Unicode and IDNA tables that the program was built with ("3/15.0.0").
func FormVersion() string { return formVersion }

var formVersion = formRules + "/" + joinVersions(
	unicode.Version, norm.Version, cases.UnicodeVersion, width.UnicodeVersion, idna.UnicodeVersion, bidi.UnicodeVersion,
)

// joinVersions names all versions of tables that a program contains. There is one, unless it was built with libraries of
// different years.
func joinVersions(versions ...string) string {
	slices.Sort(versions)
	return strings.Join(slices.Compact(versions), "+")
}

// form is the version of the canonical form that t is declared for; "" where it has none.
func (t Type) form() string {
	if t.Fold == FoldExact {
		return ""
	}
	return cmp.Or(t.Form, formVersion)
}

// InForm returns t as this program writes it, whichever version of the canonical form it names.
func (t Type) InForm() Type {
	t.Form = ""
	t.Form = t.form()
	return t
}

// FromStore returns t, read from a database, as a program has it: where it names no version, the first is meant, and
// this program's need not be named.
func (t Type) FromStore() Type {
	switch {
	case t.Fold == FoldExact, t.Form == formVersion:
		t.Form = ""
	case t.Form == "":
		t.Form = firstForm
	}
	return t
}

// OtherForm reports whether the records of stored, a declaration that is in force elsewhere, differ from those of t
// only in that their canonical values are of another version.
func (t Type) OtherForm(stored Type) bool {
	if t.form() == stored.form() || t.form() == "" || stored.form() == "" {
		return false
	}
	stored.Form = t.form()
	return t.Fingerprint() == stored.Fingerprint()
}
