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

// placement holds everything that determines the keys of a type's records. Fingerprints are hashes
// of its JSON, so its names and their order must never change.
type placement struct {
	Primary string `json:"primary"`
	Fold    Fold   `json:"fold"`
	// Form is empty for the first version, which was stored without a number.
	Form      string   `json:"canonical,omitempty"`
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

// Fingerprint returns 16 hex digits that are equal for types whose records have the same keys. It
// covers the primary field, the fold, the version of the canonical form, the secondary, indexed and
// ordered fields, and the indexed tertiary records. It ignores everything else: fields without a
// role, codecs, kinds, patterns, reserved values and passwords.
func (t Type) Fingerprint() string {
	text, _ := json.Marshal(t.placement()) // strings can always be marshaled
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Difference explains why the fingerprints of t and stored differ, as in "secondary fields: stored
// email, name; here email". stored is the stored declaration of the same type. Difference returns
// "" if the fingerprints are equal.
func (t Type) Difference(stored Type) string {
	here, there := t.placement(), stored.placement()
	var differences []string
	compare := func(what string, there, here []string) {
		if !slices.Equal(there, here) {
			differences = append(differences, what+": stored "+list(there)+"; here "+list(here))
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
	return strings.Join(differences, ", and ")
}

// list joins names for people.
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

// formRules is the version of the rules of FoldCasefold. Canonical forms are part of keys, so a
// program cannot find records that were written under other rules. Raise the version with any
// change to the result of Canonical or to how indexes use it.
const (
	formRules = "3"
	firstForm = "1" // the version of types stored without one
)

// FormVersion returns the version of the canonical form under FoldCasefold, such as "3/15.0.0". It
// consists of the version of the rules and that of the Unicode and IDNA tables in the program.
func FormVersion() string { return formVersion }

var formVersion = formRules + "/" + joinVersions(
	unicode.Version, norm.Version, cases.UnicodeVersion, width.UnicodeVersion, idna.UnicodeVersion, bidi.UnicodeVersion,
)

// joinVersions joins the distinct versions of the tables. There is only one, unless the program was
// built with libraries of different years.
func joinVersions(versions ...string) string {
	slices.Sort(versions)
	return strings.Join(slices.Compact(versions), "+")
}

// form returns the version of the canonical form that t declares, or "" if t has no canonical form.
func (t Type) form() string {
	if t.Fold == FoldExact {
		return ""
	}
	return cmp.Or(t.Form, formVersion)
}

// The versions of ordered indexes. Types without ordered fields are stored without a version, and
// so are types of the first version.
const (
	firstOrders   = "1" // entries without a value are not in the index
	currentOrders = "2"
)

// ListsUnset reports whether the ordered indexes of a stored type also hold the entries without a
// value. If they do not, 'userdb schema apply' adds those entries.
func (t Type) ListsUnset() bool { return t.Orders != firstOrders }

// WithCurrentForm returns t with the program's own version of the canonical form and, if t has
// ordered fields, with a version of their indexes: the current one, unless t has the first one.
func (t Type) WithCurrentForm() Type {
	t.Form = ""
	t.Form = t.form()
	if t.Orders = cmp.Or(t.Orders, currentOrders); len(t.Ordered()) == 0 {
		t.Orders = ""
	}
	return t
}

// FromStore converts t from a stored declaration to the form in which a program declares it. If t
// has no version of the canonical form or of its ordered indexes, FromStore sets the first one. If
// t has the program's own version, FromStore removes it.
func (t Type) FromStore() Type {
	if t.Orders = cmp.Or(t.Orders, firstOrders); t.Orders == currentOrders || len(t.Ordered()) == 0 {
		t.Orders = ""
	}
	switch {
	case t.Fold == FoldExact, t.Form == formVersion:
		t.Form = ""
	case t.Form == "":
		t.Form = firstForm
	}
	return t
}

// HasOtherForm reports whether only the version of the canonical form distinguishes the keys of t
// from those of stored.
func (t Type) HasOtherForm(stored Type) bool {
	if t.form() == stored.form() || t.form() == "" || stored.form() == "" {
		return false
	}
	stored.Form = t.form()
	return t.Fingerprint() == stored.Fingerprint()
}
