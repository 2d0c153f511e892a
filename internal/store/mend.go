package store

import (
	"context"

	"github.com/coffeenode/userdb/recordkey"
)

// A Mender mends records one by one, and changes what is kept of a schema. Every step looks again at
// what it depends on, in the same script where that lies on one server, and may be repeated.
type Mender interface {
	// Align puts an entry into an index, or takes it out, whichever is due to what the entry holds
	// now, and says whether it is in it. A record of another Redis type in the place of an index that
	// is due is replaced.
	Align(ctx context.Context, m Membership) (bool, error)
	// Sweep removes a record that is not what it must be, and says whether it did.
	Sweep(ctx context.Context, w Waste) (bool, error)
	// Restate replaces what is stored of a schema, if it still has the fingerprint seen ("": none is
	// stored). False: another is stored.
	Restate(ctx context.Context, g Guard, seen string, state []Facet) (bool, error)
	// Settle returns when no writer goes on by what was stored of a schema before it was called.
	Settle(ctx context.Context) error
	// Copy copies a record, whatever its Redis type, with its time to live, over what is at to. A
	// record that is not there is not copied: false.
	Copy(ctx context.Context, from, to string) (bool, error)
}

// A Membership is an entry's place in an index (I5): due is it while the entry is live and holds the
// Facet or, where Set is a key, the tertiary set has the Value.
type Membership struct {
	Index  recordkey.Key
	Member string // what stands for the entry there
	Entry  recordkey.Key
	Facet  Facet
	Set    recordkey.Key
	Value  string
}

// Waste is a raw record that goes if it is of another Redis type than Kind, or, where Kind is "", if it
// is exactly the string Text.
type Waste struct{ Key, Kind, Text string }

// Fields of the record that keeps a schema, ~/schema/TYPE.
const (
	FieldFingerprint = "fingerprint"
	FieldSchema      = "schema"
)
