package change

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/validate"
)

// CheckReadable checks that the codecs of a record's facets can read them. Its error is an
// ErrCorrupt that names a facet that is not readable.
func (t *Type) CheckReadable(r store.Record) error {
	for field, codec := range t.codecs {
		if wire, has := r.Fields[field]; has {
			if _, err := schema.Decode(codec, wire); err != nil {
				return unreadableError(r, field, err)
			}
		}
	}
	return nil
}

// unreadableError returns the error for a facet that its codec cannot read.
func unreadableError(r store.Record, field string, err error) error {
	if len(field) > 64 || !utf8.ValidString(field) {
		field = "with a long or binary name"
	}
	return &store.CorruptError{Key: r.Key.String(), Reason: "facet " + field + ": " + err.Error()}
}

// Facets returns a record's facets in wire form, with the password but without the store's own
// fields.
func Facets(r store.Record) map[string]string {
	facets := make(map[string]string, len(r.Fields))
	for field, wire := range r.Fields {
		if !store.OwnField(field) {
			facets[field] = wire
		}
	}
	return facets
}

// Identifiers returns the values in the fields of an entry by which it is found, as they are
// written. None of them may be the password.
func (t *Type) Identifiers(facets map[string]string) (ids []string) {
	for field, wire := range facets {
		if field == t.Schema.Primary || slices.Contains(t.Secondary, field) {
			ids = append(ids, wire)
		}
		if store.IsFurther(field) {
			if f, _ := store.ParseFurther(field, wire); f.Canonical != "" {
				ids = append(ids, f.Written)
			}
		}
	}
	return ids
}

// Apply returns the record that results from applying a change to a record with the given fields.
func Apply(c store.Change, rev string, fields map[string]string) store.Record {
	after := make(map[string]string, len(fields)+len(c.Set)+1)
	maps.Copy(after, fields)
	return ApplyInPlace(after, c, rev)
}

// ApplyInPlace does the same as Apply, but changes the given map. The returned record keeps that
// map.
func ApplyInPlace(after map[string]string, c store.Change, rev string) store.Record {
	for _, f := range c.Unset {
		delete(after, f)
	}
	for _, f := range c.Set {
		after[f.Field] = f.Wire
	}
	after[store.FieldRev] = rev
	delete(after, store.FieldFence)
	if c.Tokens.All {
		delete(after, token.FieldTokens)
	}
	return store.Record{Key: c.Key, Fields: after}
}

// SetPassword adds to facets and own everything that a new password changes: it sets the hash and
// the time of the change, which is later than that of the previous password, and ends the entry's
// single-use tokens and sessions. It removes the mark of an imported password. It is not for an
// unchanged password that was only hashed again.
func SetPassword(current store.Record, at time.Time, hash string, facets, own map[string]string) {
	if last := PasswordChangedAt(current); !at.Truncate(time.Millisecond).After(last) {
		at = last.Add(time.Millisecond)
	}
	facets[store.FieldPassword] = hash
	own[store.FieldChanged] = schema.Date(at).Wire()
	own[store.FieldImported] = ""
	own[token.FieldTokens] = ""
	EndSessions(own)
}

// hideHash moves the password hash of an entry to its place after the change: a field of the
// store's own if the entry then has a second factor, or else the facet. It does not modify its
// arguments, but returns changed copies of them if the hash has to move.
func hideHash(old store.Record, facets, own map[string]string) (map[string]string, map[string]string) {
	mark, changes := own[factor.FieldMark]
	if !changes {
		mark = string(old.Factors())
	}
	wire := facets[store.FieldPassword]
	if (mark == "") == (wire != factor.HashMarker) {
		return facets, own // it is where it belongs
	}
	facets, own = maps.Clone(facets), maps.Clone(own)
	if own == nil {
		own = map[string]string{}
	}
	if mark != "" {
		own[factor.FieldHash] = wire
		if wire != "" {
			facets[store.FieldPassword] = factor.HashMarker
		}
		return facets, own
	}
	own[factor.FieldHash] = ""
	if facets[store.FieldPassword] = old.Fields[factor.FieldHash]; facets[store.FieldPassword] == "" {
		delete(facets, store.FieldPassword)
	}
	return facets, own
}

// Disable adds to own the fields that keep an entry from logging in, and ends its tokens and
// sessions.
func Disable(current store.Record, at time.Time, own map[string]string) {
	own[token.FieldTokens] = ""
	if current.Fields[store.FieldDisabled] == "" {
		own[store.FieldDisabled] = schema.Date(at).Wire()
		EndSessions(own)
	}
}

// Enable adds to own the fields that let an entry log in again. Earlier sessions stay ended,
// whichever program disabled the entry.
func Enable(current store.Record, own map[string]string) {
	own[store.FieldDisabled] = ""
	if current.Fields[store.FieldDisabled] != "" {
		EndSessions(own)
	}
}

// Verify adds to own the mark of a verified facet, which means that the owner reads messages sent
// to the value. The mark belongs in the change that sets or unsets the facet.
func Verify(field, wire string, own map[string]string) {
	own[store.FieldVerified(field)] = store.Verified(wire)
}

// EndSessions adds to own a new epoch, which ends all sessions.
func EndSessions(own map[string]string) { own[session.FieldEpoch] = store.NewRev() }

// PasswordChangedAt returns the time at which the password of a record was last set, or the zero
// time if that is unknown.
func PasswordChangedAt(r store.Record) time.Time {
	v, err := schema.Decode(schema.CodecDate, r.Fields[store.FieldChanged])
	if err != nil {
		return time.Time{}
	}
	at, _ := v.Time()
	return at
}

// ErrInvalid reports a value that a rule refuses.
var ErrInvalid = errors.New("invalid value")

// Invalid returns an ErrInvalid.
func Invalid(field, rule, reason string) error {
	return &store.FieldError{Err: ErrInvalid, Field: field, Rule: rule, Reason: reason}
}

// ruleError returns an ErrInvalid for the error of a rule, and any other error unchanged.
func ruleError(err error) error {
	if rule, ok := errors.AsType[*validate.Error](err); ok {
		return Invalid(rule.Field, rule.Rule, rule.Reason)
	}
	return err
}

// RefusalReason returns the reason why a facet must not be written, or "" if it may be written. A
// facet is refused if the type is not open and UndeclaredReason returns a reason. It is also
// refused if the type in the program's own schema is not open and does not have the field.
func (t *Type) RefusalReason(field string) string {
	reason := ""
	if !t.Schema.Open {
		reason = t.UndeclaredReason(field)
	}
	if _, known := t.declared.Fields[field]; reason == "" && !known && !t.declared.Open && field != t.declared.Primary {
		reason = fmt.Sprintf("the program's schema of type %q has no such field", t.Name)
	}
	return reason
}

// UndeclaredReason returns a message that a field is not declared, or "" if it is declared. If a
// tertiary record has the name, the message says so. Otherwise it suggests a similar name among the
// declared fields and the further names that the caller accepts or, if none is similar, lists the
// declared fields.
func (t *Type) UndeclaredReason(field string, accepted ...string) string {
	if _, declared := t.Schema.Fields[field]; declared || field == t.Schema.Primary {
		return ""
	}
	if _, tertiary := t.Schema.Tertiary[field]; tertiary {
		return fmt.Sprintf("type %q has a tertiary record of that name, and no such field", t.Name)
	}
	names := slices.Sorted(maps.Keys(t.Schema.Fields))
	near := Suggest(field, slices.Concat(names, []string{t.Schema.Primary}, accepted))
	if near == "" {
		near = "; it has " + listFields(append([]string{t.Schema.Primary}, names...)) + ", and 'userdb schema add' adds others"
	}
	return fmt.Sprintf("type %q has no such field%s", t.Name, near)
}

// maxListed limits the names that a message lists.
const maxListed = 12

// listFields joins names for a message. It leaves out those beyond maxListed.
func listFields(names []string) string {
	more := ""
	if len(names) > maxListed {
		names, more = names[:maxListed], " and "+strconv.Itoa(len(names)-maxListed)+" more"
	}
	return strings.Join(names, ", ") + more
}

// Suggest returns a question that suggests the name most similar to a misspelled one, or "" if none
// is similar. Names are similar if at most two characters are changed, missing or added, or at most
// one in a word of two or three. Case does not matter.
func Suggest(misspelled string, names []string) string {
	var near string
	word := []rune(strings.ToLower(misspelled))
	if len(word) > 100 {
		return ""
	}
	least := 3
	if len(word) < 4 {
		least = min(2, len(word))
	}
	for _, name := range names {
		if d := editDistance(word, []rune(strings.ToLower(name))); d < least {
			near, least = name, d
		}
	}
	if near == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", near)
}

// editDistance returns how many characters must be added, removed or replaced to turn a into b.
func editDistance(a, b []rune) int {
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
