package store

import (
	"strings"
	"time"

	"github.com/coffeenode/userdb/recordkey"
)

// A RepairStep repairs one record, or changes what is stored about a schema. The steps are the
// types below. Every step first checks its conditions again, in the same script if the records that
// they concern are on one server. It may be repeated.
type RepairStep interface{ step() }

func (Align) step()         {}
func (ForgetUID) step()     {}
func (ForgetHeld) step()    {}
func (MoveHeld) step()      {}
func (Preserve) step()      {}
func (RestoreHeld) step()   {}
func (Remove) step()        {}
func (ReplaceSchema) step() {}
func (PlacePrepared) step() {}
func (Drain) step()         {}
func (FinishDelete) step()  {}
func (Publish) step()       {}
func (Copy) step()          {}
func (AwaitSchema) step()   {}

// Align puts an entry into an index or takes it out, depending on what the entry has now (I5).
// For an index set it reports whether the entry is in it afterwards. A live entry belongs in the
// index while it has the facet At.Facet or, with At.Unset, while it lacks that field. If Set is not
// the zero key, it belongs there while that tertiary set contains the facet's value. If the key of
// an index set holds a record of another Redis type, Align replaces that record.
//
// With Vacate, Align removes At from an ordered index, because an entry with At.Facet belongs in
// another place. It leaves At if the entry is live and its value has changed, because the entry may
// now belong there. The zero Entry means that there is no entry.
type Align struct {
	Entry  recordkey.Key
	At     Ranked // in an index set, the member that stands for the entry
	Set    recordkey.Key
	Vacate bool
}

// Ordered reports whether the step is about an ordered index.
func (a Align) Ordered() bool { return a.At.Key.Kind() == recordkey.KindOwn }

// Remove removes a raw record, or one member of a set, if the conditions in its fields still hold
// and the record belongs to no live entry. It reports whether it did (I1, I4).
type Remove struct {
	Key    string // raw; may not parse
	Kind   string // if not empty, remove the record only if it has another Redis type
	Seen   Text   // if set, the record must still be exactly this string
	Member string // if not empty, remove only this member of the set
	Owner  string // raw key of the entry that it may belong to; "" for a record without an owner
	// If Field is not empty, the record belongs to the owner only while the owner has this Value
	// under this secondary field. A record without an owner is removed only if it is a hash with
	// this Value in this Field.
	Field string
	Value string
	// If Schema has a key, the record is removed only while this schema is stored; otherwise the
	// step returns ErrConflict.
	Schema Guard
}

// ReplaceSchema replaces the stored schema if it still has the fingerprint Seen, which is "" if
// none is stored. It reports false if another schema is stored.
type ReplaceSchema struct {
	Guard  Guard
	Seen   string
	Fields []Facet
}

// Publish adds to the feed the lines of an entry's history that are missing there because a process
// died before it added them.
type Publish struct{ Entry recordkey.Key }

// PlacePrepared moves the records that an entry's ~fill field names into their places.
type PlacePrepared struct {
	Entry recordkey.Key
	Fill  string
}

// Drain deletes the rest of a record that a change replaced or dropped. It also takes the entry out
// of the index sets of its members, unless the entry is live and has them again.
type Drain struct{ Dropped }

// FinishDelete finishes a delete that a server refused halfway, or the fencing of an absent entry.
// It removes the facets of a deleted entry. It gives the tombstone a time to live that lasts at
// least until its last held value ends, or none if the UID is retired. It reports whether there is
// a tombstone.
type FinishDelete struct{ Entry recordkey.Key }

// ForgetUID makes the retired UID of a deleted entry free again. It reports whether the UID was
// retired.
type ForgetUID struct{ Entry recordkey.Key }

// RestoreHeld writes the SRK of a value that an entry, or a tombstone, holds, if the SRK is absent.
// If the SRK names the entry and would expire before Until, RestoreHeld extends its time to live to
// Until. It reports whether the SRK names the entry.
type RestoreHeld struct {
	Entry, SRK recordkey.Key
	Until      time.Time // when the value is free
}

// ForgetHeld removes a held value from the tombstone of a deleted entry. It reports whether the
// tombstone held the value.
type ForgetHeld struct {
	Entry        recordkey.Key
	Field, Value string
}

// MoveHeld makes an entry, or a tombstone, hold a value under another field or canonical form, or
// removes the held value if To is zero. It reports whether the entry held the value. Unless Seen is
// set, nobody else may write meanwhile.
type MoveHeld struct {
	Entry    recordkey.Key
	From, To HeldValue // their ends do not matter
	Seen     string    // if not empty, the text that the field must have
}

// Preserve copies a held value (FieldHeld) from another store to an entry or a tombstone, or
// retires the UID of an entry that does not exist (FieldRetired). It reports false if an entry has
// that UID, or if the entry has too many fields.
type Preserve struct {
	Entry recordkey.Key
	Facet
}

// Copy copies a record of any Redis type, with its time to live, over the record at To. It reports
// false if there is no record at From.
type Copy struct{ From, To string }

// AwaitSchema waits until no writer relies on a schema that has been replaced.
type AwaitSchema struct{}

// On a cluster, a change prepares the tertiary records that it writes or drops at keys that belong
// to one attempt: ~/fill/REV/{KEY}, whose braces put them into the slot of the record. The entry's
// field ~fill says that they belong to it until they are in place.

// A Fill holds the contents of a ~fill field: the records that a change prepared, and the rev that
// the change wrote.
type Fill struct {
	Rev   string
	Parts []FillPart
}

// A FillPart describes one prepared record.
type FillPart struct {
	Set     recordkey.Key
	Indexed bool
	How     string // FillJoin, FillReplace or FillDrop
}

// How a prepared record is put in place.
const (
	FillJoin    = "join"    // its members are added to the set
	FillReplace = "replace" // it replaces the existing record
	FillDrop    = "drop"    // the existing record and the prepared one, an empty text, are deleted
)

// fillMarks maps FillJoin, FillReplace and FillDrop to their marks in a ~fill field.
var fillMarks = map[string]string{FillJoin: "", FillReplace: "r", FillDrop: "d"}

// String returns the field: the rev, then the name of each record with its marks.
func (f Fill) String() string {
	text := f.Rev
	for _, p := range f.Parts {
		mark := " -"
		if p.Indexed {
			mark = " i"
		}
		text += mark + fillMarks[p.How] + ":" + recordkey.Escape(p.Set.Name())
	}
	return text
}

// ParseFill parses the ~fill field of an entry. It ignores names that no record can have.
func ParseFill(entry recordkey.Key, text string) Fill {
	rev, names, _ := strings.Cut(text, " ")
	f := Fill{Rev: rev}
	for item := range strings.FieldsSeq(names) {
		marks, escaped, _ := strings.Cut(item, ":")
		name, err := recordkey.Unescape(escaped)
		if err != nil {
			continue
		}
		how := FillJoin
		for h, mark := range fillMarks {
			if mark != "" && strings.HasSuffix(marks, mark) {
				how = h
			}
		}
		if set, err := entry.Tertiary(name); err == nil {
			f.Parts = append(f.Parts, FillPart{set, strings.HasPrefix(marks, "i"), how})
		}
	}
	return f
}

// PreparedLife is the time to live of a prepared record. It is long enough for a check to find the
// record before it expires. The time that remains shows when the record was prepared.
const PreparedLife = 10 * 365 * 24 * time.Hour

const preparedPrefix = "~/fill/"

// PreparedKey returns the key at which a record is prepared.
func PreparedKey(set recordkey.Key, rev string) string {
	return siblingKey(preparedPrefix, set, rev)
}

// CallsKey returns the key at which a cluster remembers, for some minutes, the calls that changed a
// tertiary record, and their replies. It is in the slot of that record.
func CallsKey(record recordkey.Key) string {
	return record.Namespace().String() + "~/did/{" + record.String() + "}"
}

// ParsePreparedKey parses a key made by PreparedKey.
func ParsePreparedKey(raw string) (set recordkey.Key, rev string, ok bool) {
	return parseSiblingKey(preparedPrefix, raw)
}
