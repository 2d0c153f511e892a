package change

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/validate"
)

// Readable checks that the codecs of a record's facets can read them. An ErrCorrupt names the facet that none can.
func (t *Type) Readable(r store.Record) error {
	for field, codec := range t.cast {
		if wire, has := r.Fields[field]; has {
			if _, err := schema.Decode(codec, wire); err != nil {
				return unreadable(r, field, err)
			}
		}
	}
	return nil
}

// unreadable names a facet that its codec cannot read.
func unreadable(r store.Record, field string, err error) error {
	if len(field) > 64 || !utf8.ValidString(field) {
		field = "of a long or binary name"
	}
	return &store.CorruptError{Key: r.Key.String(), Reason: "facet " + field + ": " + err.Error()}
}

// Bare is a record's facets on the wire, with the password and without the store's own fields.
func Bare(r store.Record) map[string]string {
	facets := make(map[string]string, len(r.Fields))
	for field, wire := range r.Fields {
		if !store.OwnField(field) {
			facets[field] = wire
		}
	}
	return facets
}

// Identifiers are the values of facets by which an entry is found, as written: no password may be one of them.
func (t *Type) Identifiers(facets map[string]string) (ids []string) {
	for field, wire := range facets {
		if field == t.Schema.Primary || slices.Contains(t.Secondary, field) {
			ids = append(ids, wire)
		}
	}
	return ids
}

// After is the record that a change of a record with these fields has left.
func After(c store.Change, rev string, fields map[string]string) store.Record {
	after := make(map[string]string, len(fields)+len(c.Set)+1)
	maps.Copy(after, fields)
	return Into(after, c, rev)
}

// Into is After where the fields themselves become the record's.
func Into(after map[string]string, c store.Change, rev string) store.Record {
	for _, f := range c.Unset {
		delete(after, f)
	}
	for _, f := range c.Set {
		after[f.Field] = f.Wire
	}
	after[store.FieldRev] = rev
	delete(after, store.FieldFence)
	if c.Tokens.All {
		delete(after, store.FieldTokens)
	}
	return store.Record{Key: c.Key, Fields: after}
}

// SetPassword adds to the facets and the own fields that a record shall have what another hash brings with it:
// the time, which is after that of the last one, and the end of its single-use tokens and sessions. A hash that was only
// renewed is not another one.
func SetPassword(now store.Record, at time.Time, hash string, facets, own map[string]string) {
	if last := ChangedAt(now); !at.Truncate(time.Millisecond).After(last) {
		at = last.Add(time.Millisecond)
	}
	facets[store.FieldPassword] = hash
	own[store.FieldChanged] = schema.Date(at).Wire()
	own[store.FieldTokens] = ""
	EndSessions(own)
}

// Disable adds to the own fields that a record shall have what keeps its entry from logging in, and ends its tokens and
// sessions.
func Disable(now store.Record, at time.Time, own map[string]string) {
	own[store.FieldTokens] = ""
	if now.Fields[store.FieldDisabled] == "" {
		own[store.FieldDisabled] = schema.Date(at).Wire()
		EndSessions(own)
	}
}

// Enable adds what lets it log in again. Sessions that began before stay ended, whichever program disabled it.
func Enable(now store.Record, own map[string]string) {
	own[store.FieldDisabled] = ""
	if now.Fields[store.FieldDisabled] != "" {
		EndSessions(own)
	}
}

// Verify adds to the own fields that a record shall have the mark that the value of a facet is one whose owner reads what is
// sent there. It goes in the change that sets or unsets the facet.
func Verify(field, wire string, own map[string]string) {
	own[store.FieldVerified(field)] = store.Verified(wire)
}

// EndSessions adds a new epoch.
func EndSessions(own map[string]string) { own[store.FieldEpoch] = store.NewRev() }

// ChangedAt is when the password of a record was last set; the zero time where that is not known.
func ChangedAt(r store.Record) time.Time {
	v, err := schema.Decode(schema.CodecDate, r.Fields[store.FieldChanged])
	if err != nil {
		return time.Time{}
	}
	at, _ := v.Time()
	return at
}

// ErrInvalid is a value that a rule refuses.
var ErrInvalid = errors.New("invalid value")

// Invalid makes an ErrInvalid.
func Invalid(field, rule, reason string) error {
	return &store.FieldError{Err: ErrInvalid, Field: field, Rule: rule, Reason: reason}
}

// refused turns the answer of a rule into an ErrInvalid.
func refused(err error) error {
	if rule, is := errors.AsType[*validate.Error](err); is {
		return Invalid(rule.Field, rule.Rule, rule.Reason)
	}
	return err
}

// Refuses is Undeclared for a facet that is to be written, and says of one that only the stored schema has that the program does
// not know it.
func (t *Type) Refuses(field string) string {
	reason := ""
	if !t.Schema.Open {
		reason = t.Undeclared(field)
	}
	if _, known := t.claim.Fields[field]; reason == "" && !known && !t.claim.Open && field != t.claim.Primary {
		reason = fmt.Sprintf("the program's schema of type %q has no such field", t.Name)
	}
	return reason
}

// Undeclared says that a field is not declared, and which one was meant where one is near: a field of the type, or one of
// the other names that a caller takes. It is "" for a field that is declared.
func (t *Type) Undeclared(field string, others ...string) string {
	if _, declared := t.Schema.Fields[field]; declared || field == t.Schema.Primary {
		return ""
	}
	if _, tertiary := t.Schema.Tertiary[field]; tertiary {
		return fmt.Sprintf("type %q has a tertiary record of that name, and no such field", t.Name)
	}
	names := slices.Sorted(maps.Keys(t.Schema.Fields))
	return fmt.Sprintf("type %q has no such field%s", t.Name, Meant(field, slices.Concat(names, []string{t.Schema.Primary}, others)))
}

// Meant asks for the name that a misspelled one is most like: at most two characters are others, missing or too many, and
// not all of them. Upper and lower case are alike. "" where there is none.
func Meant(misspelled string, names []string) string {
	var near string
	word := []rune(strings.ToLower(misspelled))
	if len(word) > 100 {
		return ""
	}
	least := min(3, len(word))
	for _, name := range names {
		if d := distance(word, []rune(strings.ToLower(name))); d < least {
			near, least = name, d
		}
	}
	if near == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", near)
}

// distance is how many characters must be put in, left out or replaced to make b of a.
func distance(a, b []rune) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j := range b {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal, row[j+1] = row[j+1], min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
