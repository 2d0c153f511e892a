package transfer

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/csvtext"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/strictjson"
	"github.com/coffeenode/userdb/maintain/internal/records"
)

// A lineValue is one of several values of a field. In a line it is a string, or an object if it has
// attributes:
//
//	"values": {"email": [
//	    "ada@example.com",
//	    {"value": "ada@work.example", "verified": "2026-11-27T09:00:00Z", "label": "work"}
//	]}
//
// The first value is also the facet. If it is verified, an export names its field in the list
// "verified" of the line. If it was a further value before, and nobody has verified it, it has
// "unverified":true.
type lineValue struct {
	Text     string     `json:"value,omitempty"`
	Wire     []byte     `json:"wire,omitempty"` // in place of Text, if that is not UTF-8
	Verified *time.Time `json:"verified,omitempty"`
	Label    string     `json:"label,omitempty"`

	Unverified bool `json:"unverified,omitempty"`
}

// MarshalJSON writes a value without attributes as a string.
func (v lineValue) MarshalJSON() ([]byte, error) {
	if v.Wire == nil && v.Verified == nil && v.Label == "" && !v.Unverified {
		return strictjson.Marshal(v.Text)
	}
	type attributes lineValue
	return strictjson.Marshal(attributes(v))
}

// newLineValue returns the value that is written as text.
func newLineValue(text string) lineValue {
	if !utf8.ValidString(text) {
		return lineValue{Wire: []byte(text)}
	}
	return lineValue{Text: text}
}

// maxTime is the latest time that JSON can express, in seconds since 1970.
const maxTime = 253402300799

// lineValues returns the values of the fields of an entry that have several values, or whose first
// value has attributes. It leaves out values that repeat an earlier one, which no import would
// accept. If a field has lost its first value, the next one takes its place, as in a repair.
func lineValues(t *change.Type, fields map[string]string) map[string][]lineValue {
	all := map[string][]lineValue{}
	listed := map[string]map[string]bool{} // canonical values, by field
	add := func(field, written string, v lineValue) {
		if listed[field] == nil {
			listed[field] = map[string]bool{}
		}
		if canonical := t.Schema.Canonical(written); !listed[field][canonical] {
			listed[field][canonical] = true
			all[field] = append(all[field], v)
		}
	}
	first := func(field string) (v lineValue, has bool) {
		facet, has := fields[field]
		r, v := store.Record{Fields: fields}, newLineValue(facet)
		v.Label, v.Unverified = r.Label(field), r.FacetUnverified(field)
		return v, has
	}
	for name := range fields {
		field := cmp.Or(store.FieldOfVerified(name), store.FieldOfLabel(name))
		if field == "" || len(all[field]) > 0 {
			continue
		}
		if v, has := first(field); has && (v.Label != "" || v.Unverified) {
			add(field, fields[field], v)
		}
	}
	for _, f := range store.FurtherIn(fields, "") {
		if len(all[f.Field]) == 0 {
			if v, has := first(f.Field); has {
				add(f.Field, fields[f.Field], v)
			}
		}
		v := newLineValue(f.Written)
		if v.Label = f.Label; f.Verified > 0 {
			v.Verified = new(time.Unix(min(f.Verified, maxTime), 0).UTC())
		}
		v.Unverified = len(all[f.Field]) == 0 && f.Verified == 0 && t.Schema.Fields[f.Field].HasAddresses()
		add(f.Field, f.Written, v)
	}
	return all
}

// fieldValues holds the values of one field in a line.
type fieldValues struct {
	name  string // in the input
	field string
	all   []change.Value
}

// values reads the values of one field.
func (s *scanner) values(field string) fieldValues {
	v := fieldValues{name: field, field: field}
	s.array(func() {
		switch s.peek() {
		case '"':
			v.all = append(v.all, change.Value{Text: s.string(field)})
		case '{':
			v.all = append(v.all, s.fieldValue())
		default:
			s.fail(fmt.Errorf("%s: a value that is neither a text nor an object", records.Quoted(field)))
		}
	})
	return v
}

// fieldValue reads a value with its attributes.
func (s *scanner) fieldValue() (v change.Value) {
	hasText := false
	s.object(func(name string) {
		switch name {
		case "value", "wire":
			if hasText {
				s.fail(errors.New("both value and wire"))
			}
			hasText, v.Text = true, s.string(name)
			if name == "wire" {
				text, err := base64.StdEncoding.DecodeString(v.Text)
				if v.Text = string(text); err != nil {
					s.fail(fmt.Errorf("%s is not base64", records.Quoted(name)))
				}
			}
		case "verified":
			at, err := time.Parse(time.RFC3339, s.string(name))
			if v.Verified = max(1, at.Unix()); err != nil {
				s.fail(fmt.Errorf("%s is not a date", records.Quoted(name)))
			}
		case "label":
			if v.Label = s.string(name); !store.IsLabel(v.Label) {
				s.fail(errors.New("a label that is over 64 bytes, or a dash"))
			}
		case "unverified":
			v.Unverified = decodeAs[bool](s, name, s.value())
		default:
			s.fail(unknownMember(name))
		}
	})
	return v
}

// setValues replaces the values of an entry with those of a line.
func (l *line) setValues(old store.Record, facets, own map[string]string, now time.Time) error {
	for _, v := range l.values {
		if len(v.all) == 0 {
			continue
		}
		for i := range v.all {
			v.all[i].Verified = min(v.all[i].Verified, now.Unix())
		}
		first, given := l.draft.Facets[v.field]
		if err := l.t.SetValues(old, facets, own, v.field, v.all, now); err != nil {
			return err
		}
		if given && first != facets[v.field] {
			return change.Invalid(v.field, "many", "the facet differs from the first of the values")
		}
	}
	return nil
}

// addValues adds the values of a line to its draft.
func (l *line) addValues(now time.Time) error {
	if len(l.values) == 0 {
		return nil
	}
	if l.draft.Own == nil {
		l.draft.Own = map[string]string{}
	}
	for name := range l.draft.Own {
		if store.IsFurther(name) {
			delete(l.draft.Own, name)
		}
	}
	return l.setValues(store.Record{}, l.draft.Facets, l.draft.Own, now)
}

// maxSeparators limits the separators in a cell, which may be in quotes.
const maxSeparators = 1000

// splitCell returns the values in a cell of CSV that are separated by a character. It trims them,
// unless they are in quotes, and leaves out empty ones.
func splitCell(cell string, separator rune) (values []change.Value, err error) {
	if strings.Count(cell, string(separator)) > maxSeparators {
		return nil, fmt.Errorf("over %d separators", maxSeparators)
	}
	parts, err := csvtext.Split(cell, separator, true)
	if err != nil {
		return nil, errors.New("a quote in one of its values: put that value in quotes, and double the quote inside")
	}
	for _, part := range parts {
		if !part.Quoted {
			part.Text = strings.TrimSpace(part.Text)
		}
		if part.Text != "" {
			values = append(values, change.Value{Text: part.Text})
		}
	}
	return values, nil
}

// validSeparator reports whether a character can separate the values in a cell.
func validSeparator(r rune) bool { return r == '\n' || validDelimiter(r) }

// checkSplit returns an error if the options split cells of a column that the header does not have,
// or whose field takes one value in every type.
func (im *importer) checkSplit(names []string) error {
	for _, field := range slices.Sorted(maps.Keys(im.o.Split)) {
		several := false
		for _, t := range im.Types.ByName {
			several = several || slices.Contains(t.Many, field)
		}
		switch {
		case !slices.Contains(names, field):
			return fmt.Errorf("%w: no column %s to split", ErrInput, records.Quoted(field))
		case !several:
			return fmt.Errorf("%w: the cells of %s cannot be split: it takes one value, unless the schema says \"many\"", ErrInput, records.Quoted(field))
		}
	}
	return nil
}
