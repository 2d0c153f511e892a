package store

import "github.com/coffeenode/userdb/recordkey"

// A Step mends one record, or changes what is kept of a schema: it is an Align, a Remove, a Restate, a Rank, a Complete or
// a Copy. Every step looks again at what it depends on, in the same script where that lies on one server, and may be
// repeated.
type Step interface{ step() }

func (Align) step()    {}
func (Remove) step()   {}
func (Restate) step()  {}
func (Rank) step()     {}
func (Complete) step() {}
func (Copy) step()     {}

// Align puts an entry into an index, or takes it out, whichever is due to what the entry holds now, and reports whether
// it is in it (I5). It is due while the entry is live and holds the Facet or, where Set is a key, the tertiary set has the
// Value. A record of another Redis type in the place of an index that is due is replaced.
type Align struct {
	Index  recordkey.Key
	Member string // what stands for the entry there
	Entry  recordkey.Key
	Facet  Facet
	Set    recordkey.Key
	Value  string
}

// Remove removes a raw record, or one member of a set, while all that it says still holds and no live entry holds the
// record, and reports whether it did (I1, I4).
type Remove struct {
	Key    string // raw: it may not parse
	Kind   string // where not empty, the record goes only if it is of another Redis type than this
	Seen   Text   // where there is one, the record must still be exactly this string
	Member string // where not empty, only this member of the set goes
	Owner  string // raw key of the entry that may hold it; "" for a record that belongs to none
	Field  string // where not empty, the entry holds it only with this Value under this secondary field
	Value  string
}

// Restate replaces what is stored of a schema, if it still has the fingerprint seen ("": none is stored). False: another
// is stored.
type Restate struct {
	Guard Guard
	Seen  string
	State []Facet
}

// Rank takes the place of an entry in an ordered index if the entry is live and holds the place's facet, and frees it
// otherwise. With Free it frees the place, unless the entry is live and has by now another value than the facet given,
// which does not lead there; the zero Entry is one that is not there.
type Rank struct {
	Entry recordkey.Key
	At    Ranked
	Free  bool
}

// Complete puts in place what an entry's ~fill field says.
type Complete struct {
	Entry recordkey.Key
	Fill  string
}

// Copy copies a record, whatever its Redis type, with its time to live, over what is at To. A record that is not there
// is not copied: false.
type Copy struct{ From, To string }

// Fields of the record that keeps a schema, ~/schema/TYPE.
const (
	FieldFingerprint = "fingerprint"
	FieldSchema      = "schema"
)
