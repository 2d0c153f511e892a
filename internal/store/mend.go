package store

import (
	"strings"
	"time"

	"github.com/coffeenode/userdb/recordkey"
)

// A Step mends one record, or changes what is kept of a schema: it is an Align, a Remove, a
// Complete, a Drain, a Bury, a Publish, a Copy, a Restate or an AwaitSchema. Every step looks
// again at what it depends on, in the same script where that lies on one server, and may be
// repeated.
type Step interface{ step() }

func (Align) step()       {}
func (Remove) step()      {}
func (Restate) step()     {}
func (Complete) step()    {}
func (Drain) step()       {}
func (Bury) step()        {}
func (Publish) step()     {}
func (Copy) step()        {}
func (AwaitSchema) step() {}

// Align puts an entry into an index, or takes it out, whichever is due to what the entry holds now, and reports of an index
// set whether it is in it (I5). It is due while the entry is live and holds the facet of its place or, where Set is a key, the
// tertiary set has the facet's value. A record of another Redis type in the place of an index set that is due is replaced.
//
// With Free it frees a place in an ordered index, unless the entry is live and has by now another value than the facet
// given, which does not lead there; the zero Entry is one that is not there.
type Align struct {
	Entry recordkey.Key
	At    Ranked // in an index set: the member that stands for the entry
	Set   recordkey.Key
	Free  bool
}

// Ordered reports whether it is about an ordered index.
func (a Align) Ordered() bool { return a.At.Key.Kind() == recordkey.KindOwn }

// Remove removes a raw record, or one member of a set, while all that it says still holds and no live entry holds the
// record, and reports whether it did (I1, I4).
type Remove struct {
	Key    string // raw: it may not parse
	Kind   string // where not empty, the record goes only if it is of another Redis type than this
	Seen   Text   // where there is one, the record must still be exactly this string
	Member string // where not empty, only this member of the set goes
	Owner  string // raw key of the entry that may hold it; "" for a record that belongs to none
	Field  string // where not empty, the entry holds it only with this Value under this secondary field; a record that
	Value  string // belongs to none goes only if it is a hash with this Value in this Field
	Schema Guard  // where it has a key, the record goes only while this schema is stored; else ErrConflict
}

// Restate replaces what is stored of a schema, if it still has the fingerprint seen ("": none is stored). False: another
// is stored.
type Restate struct {
	Guard Guard
	Seen  string
	State []Facet
}

// Publish puts into the feed what it lacks of an entry's history, where a process died before it did.
type Publish struct{ Entry recordkey.Key }

// Complete puts in place what an entry's ~fill field says.
type Complete struct {
	Entry recordkey.Key
	Fill  string
}

// Drain drops what is left of a record that a change replaced or dropped, with the index members
// that no live entry's record has.
type Drain struct{ Dropped }

// Bury ends what a delete or a fence was refused in the middle: of an entry that was deleted the
// facets go, and its tombstone gets a time to live. It reports whether there is a tombstone.
type Bury struct{ Entry recordkey.Key }

// Copy copies a record, whatever its Redis type, with its time to live, over what is at To. A record that is not there
// is not copied: false.
type Copy struct{ From, To string }

// AwaitSchema returns when no writer goes on by what was stored of a schema before.
type AwaitSchema struct{}

// On a cluster, tertiary records that are born with an entry are laid ready in a place of the attempt's own,
// ~/fill/REV/{KEY}, whose braces put it into the slot of the record; the entry's field ~fill says that they belong to it,
// until they are in place.

// A Fill is what a ~fill field says: records that were laid ready by a change that writes a rev.
type Fill struct {
	Rev   string
	Parts []FillPart
}

// A FillPart is one of them.
type FillPart struct {
	Set     recordkey.Key
	Indexed bool
	How     string // FillJoin, FillReplace or FillDrop
}

// How a record that was laid ready is put in place.
const (
	FillJoin    = "join"    // its members join those of the set
	FillReplace = "replace" // it takes the place of what is there
	FillDrop    = "drop"    // what is there goes, and so does what was laid ready, an empty string
)

// fillMarks stand for them in a ~fill field.
var fillMarks = map[string]string{FillJoin: "", FillReplace: "r", FillDrop: "d"}

// String is the field: the rev, then each record's name with marks.
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

// ParseFill reads the field of an entry. What no record can be called is left out.
func ParseFill(entry recordkey.Key, text string) Fill {
	rev, names, _ := strings.Cut(text, " ")
	f := Fill{Rev: rev}
	for mark := range strings.FieldsSeq(names) {
		marks, escaped, _ := strings.Cut(mark, ":")
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

// StageLife is how long a record lies ready: until a check has looked what became of its attempt. Redis counts
// it down, which tells when it was laid.
const StageLife = 10 * 365 * 24 * time.Hour

const stagePrefix = "~/fill/"

// StageKey is where a record lies ready.
func StageKey(set recordkey.Key, rev string) string {
	return besideKey(stagePrefix, set, rev)
}

// CallsKey is where a cluster keeps for some minutes what calls have done to a tertiary record, in
// its slot.
func CallsKey(record recordkey.Key) string {
	return record.Namespace().String() + "~/did/{" + record.String() + "}"
}

// ParseStage reads such a key.
func ParseStage(raw string) (set recordkey.Key, rev string, ok bool) {
	return parseBeside(stagePrefix, raw)
}
