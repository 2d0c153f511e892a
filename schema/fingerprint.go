package schema

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
)

// placement is what decides where the records of a type lie. Its JSON is what a
// fingerprint is made of: neither names nor order may change.
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
	fold := t.Fold
	if fold == "" {
		fold = FoldCasefold
	}
	form := t.form()
	if form == firstForm {
		form = ""
	}
	return placement{t.Primary, fold, form, t.Secondary(), t.Indexed(), t.Ordered(), t.IndexedTertiary()}
}

// Fingerprint returns 16 hex digits that are the same for types whose records
// lie at the same places: of one primary field, fold, version of the canonical form, secondary, indexed and
// ordered fields, and indexed tertiary records. Nothing else counts: neither
// plain fields nor codecs, kinds, patterns, reserved values or passwords.
func (t Type) Fingerprint() string {
	text, _ := json.Marshal(t.placement()) // of texts: it cannot fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Difference says what makes the fingerprints of t and of stored, a declaration
// of the same type that is in force elsewhere, differ: "secondary fields: stored
// email, name; here email". It is empty where they do not.
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
func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	shown := make([]string, len(names))
	for i, name := range names {
		shown[i] = bare(name)
	}
	return strings.Join(shown, ", ")
}
