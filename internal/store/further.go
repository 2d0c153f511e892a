package store

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/recordkey"
)

// A secondary field may have several values. The first one is the facet. Each further value has a
// field of its own in the entry, which makes the entry own the value:
//
//	~also:FIELD:CANONICAL   POSITION VERIFIED LABEL [WRITTEN]
//
// CANONICAL is the canonical form, under which the value has its SRK. Scripts read exactly that
// field to find out whether an entry has a value, so the form is never computed again. POSITION is
// an integer; further values are listed in ascending order of it. VERIFIED is the time in seconds
// since 1970 at which the value was marked as verified, or "-". LABEL is an escaped text, or "-".
// WRITTEN is the value as it was written, and is missing if that is CANONICAL.
//
// FIELD has no colon. A field that repeats the first value has no meaning.
const alsoPrefix = "~also:"

// MaxFurther is the maximum number of further values of an entry, over all its fields.
const MaxFurther = 200

// maxLabel is the maximum length in bytes of a label.
const maxLabel = 64

// maxPosition limits the absolute value of a position.
const maxPosition = 1 << 30

// A Further is a value of a secondary field other than the first.
type Further struct {
	Field     string
	Canonical string
	Written   string
	Position  int
	Verified  int64  // seconds since 1970; 0 if the value is not verified
	Label     string // the owner's name for the kind of value, such as "work", or ""
}

// FieldAlso returns the name of the field that holds a further value of a secondary field.
func FieldAlso(field, canonical string) string { return alsoPrefix + field + ":" + canonical }

// Name returns the name of the field that holds f.
func (f Further) Name() string { return FieldAlso(f.Field, f.Canonical) }

// Text returns the text of the field that holds f.
func (f Further) Text() string {
	verified, label := "-", "-"
	if f.Verified > 0 {
		verified = strconv.FormatInt(f.Verified, 10)
	}
	if f.Label != "" {
		label = recordkey.Escape(f.Label)
	}
	text := strconv.Itoa(f.Position) + " " + verified + " " + label
	if f.Written != f.Canonical {
		text += " " + f.Written
	}
	return text
}

// IsFurther reports whether a field holds a further value.
func IsFurther(own string) bool { return strings.HasPrefix(own, alsoPrefix) }

// ParseFurther parses a field that holds a further value, for which [IsFurther] must be true. It
// reports false for a text that [Further.Text] never returns. The value then counts as unverified
// and written in its canonical form, and comes last. A field whose name lacks CANONICAL has no
// value: the result is then false, and Canonical is "".
func ParseFurther(name, text string) (f Further, ok bool) {
	f.Field, f.Canonical, _ = strings.Cut(name[len(alsoPrefix):], ":")
	if f.Canonical == "" {
		return Further{Field: f.Field, Position: math.MaxInt32}, false
	}
	words := strings.SplitN(text, " ", 4)
	if len(words) > 3 {
		f.Written = words[3]
	} else {
		f.Written = f.Canonical
		words = append(words, "")
	}
	if len(words) == 4 {
		position, badPosition := strconv.Atoi(words[0])
		verified, badTime := int64(0), error(nil)
		if words[1] != "-" {
			verified, badTime = strconv.ParseInt(words[1], 10, 64)
		}
		label, badLabel := "", error(nil)
		if words[2] != "-" {
			label, badLabel = recordkey.Unescape(words[2])
		}
		f.Position, f.Verified, f.Label = position, verified, label
		ok = cmp.Or(badPosition, badTime, badLabel) == nil && position >= -maxPosition && position <= maxPosition && f.Text() == text && IsLabel(label)
	}
	if !ok {
		f = Further{Field: f.Field, Canonical: f.Canonical, Written: f.Canonical, Position: math.MaxInt32}
	}
	return f, ok
}

// IsLabel reports whether text can be the label of a value.
func IsLabel(text string) bool { return len(text) <= maxLabel && text != "-" }

// The label of the first value is in a field of its own:
//
//	~label:FIELD   DIGEST LABEL
//
// DIGEST is the result of [Verified] for the facet. If it differs, another program has replaced the
// facet, which then has no label.
const labelPrefix = "~label:"

// FieldLabel returns the name of the field that holds the label of a facet.
func FieldLabel(field string) string { return labelPrefix + field }

// FieldOfLabel returns the name of the facet whose label a field holds, or "" for other fields.
func FieldOfLabel(own string) string {
	field, ok := strings.CutPrefix(own, labelPrefix)
	if !ok {
		return ""
	}
	return field
}

// LabelText returns the text of the field that holds the label of a facet.
func LabelText(wire, label string) string { return Verified(wire) + " " + recordkey.Escape(label) }

// Label returns the label of a facet, or "" if it has none.
func (r Record) Label(field string) string {
	text, has := r.Fields[FieldLabel(field)]
	if !has {
		return ""
	}
	escaped, is := strings.CutPrefix(text, Verified(r.Fields[field])+" ")
	label, err := recordkey.Unescape(escaped)
	if !is || err != nil || !IsLabel(label) {
		return ""
	}
	return label
}

// FurtherIn returns the further values in the fields of an entry, sorted by field and position. If
// field is not "", it returns only the values of that field.
func FurtherIn(fields map[string]string, field string) (all []Further) {
	for name, text := range fields {
		if !IsFurther(name) {
			continue
		}
		if f, _ := ParseFurther(name, text); f.Canonical != "" && (field == "" || f.Field == field) {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b Further) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Position, b.Position), cmp.Compare(a.Canonical, b.Canonical))
	})
	return all
}

// FurtherValue returns the further value of a field whose canonical form is canonical.
func (r Record) FurtherValue(field, canonical string) (f Further, has bool) {
	name := FieldAlso(field, canonical)
	text, has := r.Fields[name]
	if has {
		f, _ = ParseFurther(name, text)
	}
	return f, has
}

// SetPositions gives ascending positions to the values of one field. isNew reports whether the
// value at an index has no position yet. SetPositions goes from the last value to the first, and
// keeps each position that is below the next one. New values at the end get the positions that
// follow. If a position is then beyond maxPosition or -maxPosition, SetPositions numbers all values
// from 1.
func SetPositions(all []Further, isNew func(i int) bool) {
	last := len(all) // values from last on are new and follow all others
	for last > 0 && isNew(last-1) {
		last--
	}
	for i := last - 1; i >= 0; i-- {
		if i+1 < last && (isNew(i) || all[i].Position >= all[i+1].Position) {
			all[i].Position = all[i+1].Position - 1
		}
	}
	for i := last; i < len(all); i++ {
		if all[i].Position = 1; i > 0 {
			all[i].Position = all[i-1].Position + 1
		}
	}
	if n := len(all); n > 0 && (all[0].Position < -maxPosition || all[n-1].Position > maxPosition) {
		for i := range all {
			all[i].Position = i + 1
		}
	}
}

// HasWritten reports whether one of the values of a field is written as wire.
func (r Record) HasWritten(field, wire string) bool {
	if first, has := r.Fields[field]; has && first == wire {
		return true
	}
	return slices.ContainsFunc(FurtherIn(r.Fields, field), func(f Further) bool { return f.Written == wire })
}

// ParseBond parses a result of [token.Value.Bond]. For the name of a facet it returns that name and
// "".
func ParseBond(bond string) (field, digest string) {
	rest, is := strings.CutPrefix(bond, token.BondPrefix)
	at := strings.LastIndexByte(rest, ':')
	if !is || at < 0 {
		return bond, ""
	}
	return rest[:at], rest[at+1:]
}

// BoundValue returns the value that the bond of a token names: the facet, or the value of the field
// with that digest. It returns false if the record has no such value.
func (r Record) BoundValue(bond string) (written string, ok bool) {
	field, digest := ParseBond(bond)
	first, has := r.Fields[field]
	if digest == "" || has && Verified(first) == digest {
		return first, has
	}
	for _, f := range FurtherIn(r.Fields, field) {
		if Verified(f.Written) == digest {
			return f.Written, true
		}
	}
	return "", false
}
