package transfer

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/strictjson"
	"github.com/coffeenode/userdb/maintain/internal/records"
)

// A lineValue is one of several values of a field. In a line it is a string, or an object if there
// is more to say:
//
//	"values": {"email": [
//	    "ada@example.com",
//	    {"value": "ada@work.example", "verified": "2026-11-27T09:00:00Z", "label": "work"}
//	]}
//
// The first value is also the facet. If that is verified, it is in the list "verified" of the line.
type lineValue struct {
	Text     string     `json:"value,omitempty"`
	Wire     []byte     `json:"wire,omitempty"` // in place of Text, if that is not UTF-8
	Verified *time.Time `json:"verified,omitempty"`
	Label    string     `json:"label,omitempty"`
}

// MarshalJSON writes a value without attributes as a string.
func (v lineValue) MarshalJSON() ([]byte, error) {
	if v.Wire == nil && v.Verified == nil && v.Label == "" {
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

// lineValues returns the values of the fields of an entry that have several.
func lineValues(fields map[string]string) map[string][]lineValue {
	var all map[string][]lineValue
	for _, f := range store.FurtherIn(fields, "") {
		if all == nil {
			all = map[string][]lineValue{}
		}
		if len(all[f.Field]) == 0 {
			all[f.Field] = []lineValue{newLineValue(fields[f.Field])}
		}
		v := newLineValue(f.Written)
		if v.Label = f.Label; f.Verified > 0 {
			v.Verified = new(time.Unix(f.Verified, 0).UTC())
		}
		all[f.Field] = append(all[f.Field], v)
	}
	return all
}

// fieldValues holds the values of one field in a line.
type fieldValues struct {
	field string
	all   []lineValue
}

// values reads the values of one field.
func (s *scanner) values(field string) (v fieldValues) {
	v.field = field
	s.array(func() {
		if s.nextIs('"') {
			v.all = append(v.all, lineValue{Text: s.string(field)})
			return
		}
		var one lineValue
		s.objectOf(field, func(name string) {
			switch name {
			case "value":
				one.Text = s.string(name)
			case "wire":
				text, err := base64.StdEncoding.DecodeString(s.string(name))
				if one.Text = string(text); err != nil {
					s.fail(fmt.Errorf("%s is not base64", records.Quoted(name)))
				}
			case "verified":
				at, err := time.Parse(time.RFC3339, s.string(name))
				if one.Verified = &at; err != nil {
					s.fail(fmt.Errorf("%s is not a date", records.Quoted(name)))
				}
			case "label":
				if one.Label = s.string(name); !store.IsLabel(one.Label) {
					s.fail(errors.New("a label of over 64 bytes"))
				}
			default:
				s.fail(unknownMember(name))
			}
		})
		v.all = append(v.all, one)
	})
	return v
}

// setValues makes the values of a line those of an entry, in place of the values that it has.
func (l *line) setValues(old store.Record, facets, own map[string]string, now time.Time) error {
	for _, v := range l.values {
		if len(v.all) == 0 {
			continue
		}
		var texts []string
		for _, one := range v.all {
			texts = append(texts, one.Text)
		}
		if first, given := l.draft.Facets[v.field]; given && first != texts[0] && first != strings.TrimSpace(texts[0]) {
			return change.Invalid(v.field, "many", "the facet differs from the first of the values")
		}
		if err := l.t.SetTexts(old, facets, own, v.field, texts, now); err != nil {
			return err
		}
		for _, one := range v.all[1:] {
			name := store.FieldAlso(v.field, l.t.Schema.Canonical(one.Text))
			f, _ := store.ParseFurther(name, own[name])
			if one.Label != "" {
				f.Label = one.Label
			}
			if one.Verified != nil {
				f.Verified = max(1, one.Verified.Unix())
			}
			own[name] = f.Text()
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
