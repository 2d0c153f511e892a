// Package store is the only one that issues Redis commands. It says what is done to the records, in
// values that know nothing of scripts or slots; an engine (single, cluster) does it.
//
// A verb reads entries with a [Lookup] and changes one with a [Change]; nothing else writes entries,
// SRKs or index members. Values inside records (SRVs, ~prk, index members) are PRKs relative to the
// namespace of the record that holds them, so that a namespace can be copied record by record.
package store

import (
	"context"
	"slices"

	"github.com/coffeenode/userdb/recordkey"
)

// An Engine keeps records. All methods are safe for concurrent use and end with their context.
type Engine interface {
	Throttler
	Tokener
	// Ping asks the server for an answer; ErrUnavailable keeps the cause.
	Ping(ctx context.Context) error
	// Find answers each lookup, in order. An error that concerns one of them stands in its Found.
	Find(ctx context.Context, lookups []Lookup) ([]Found, error)
	// Apply makes one change, all of it or nothing, and returns the entry's new version.
	Apply(ctx context.Context, c Change) (Version, error)
	// Tertiary runs one command on a tertiary record of a live entry.
	Tertiary(ctx context.Context, op Op) (Reply, error)
	// Scan returns the next batch of record keys that match a Redis glob. The empty cursor begins,
	// and the empty next cursor says that it was the last batch. A key that is there all the time
	// is returned at least once; others may be, and any may be returned twice.
	Scan(ctx context.Context, pattern, cursor string, count int) (keys []string, next string, err error)
	// ScanIndex is Scan over the PRKs in one index set.
	ScanIndex(ctx context.Context, index recordkey.Key, cursor string, count int) (prks []string, next string, err error)
	// Sizes returns how many members each index set has.
	Sizes(ctx context.Context, indexes []recordkey.Key) ([]int64, error)
	// Holds says for each tertiary set whether it has the member. It does not ask whether the entry is live.
	Holds(ctx context.Context, members []Member) ([]bool, error)
	// HoldsAtOnce is Holds with all answers from one moment, as far as one server has the sets.
	HoldsAtOnce(ctx context.Context, members []Member) ([]bool, error)
	// Look reads records as they are, many at a time, for those who judge them. Nothing is believed: a record of
	// another Redis type is an answer, not an error. Answers come in the order of what was asked.
	Look(ctx context.Context, at []LookAt) ([]Raw, error)
	// Size returns about how many records the server holds.
	Size(ctx context.Context) (int64, error)
	// InSteps reports whether changes are made in several steps, between which records look damaged.
	InSteps() bool
	// Linger waits before the nth look, from 0, at what may be damage or such a change, and reports whether to
	// look: when it says false, every writer whose change was seen has ended it or died. Under [Alone] it does not wait.
	Linger(ctx context.Context, n int) (bool, error)
	// Mend makes one step that mends a record, and reports what the step says.
	Mend(ctx context.Context, s Step) (bool, error)
	// Settle returns when no writer goes on by what was stored of a schema before it was called.
	Settle(ctx context.Context) error
	Orderer
	Mover
	// Close releases what the engine itself opened.
	Close() error
}

// A Lookup says where an entry is sought: at its PRK or, where that is the zero key, behind SRKs.
type Lookup struct {
	PRK  recordkey.Key
	SRKs []recordkey.Key
	All  bool // every SRK must name the entry; otherwise one is enough
}

// Found is the answer to a Lookup. Err is ErrNotFound, or ErrCorrupt for an entry that cannot be read.
type Found struct {
	Record Record
	Err    error
}

// A Version is what an entry was when it was read. The zero Version is that of an entry that was
// never there.
type Version struct{ Rev, Fence string }

// A Facet is one field of an entry with its value on the wire.
type Facet struct{ Field, Wire string }

// A Change is all that one verb does to one entry. Every key in it lies in the namespace of Key.
type Change struct {
	Key     recordkey.Key // the PRK
	Create  bool          // the entry must not be live; otherwise it must be, at Version
	Delete  bool          // leaves a tombstone; only Release, Unindex and Drop go with it
	Mend    bool          // the entry may lack ~isa, if it has facets
	Version Version
	Set     []Facet
	Unset   []string
	Claim   []recordkey.Key // SRKs that shall name the entry
	Aside   []recordkey.Key // SRKs of the claimed values under the other secondary fields
	Release []recordkey.Key // SRKs of values that go
	Index   []recordkey.Key // index sets to be in
	Unindex []recordkey.Key // index sets to leave
	Rank    []Ranked        // places in ordered indexes to take
	Unrank  []Ranked        // and to leave
	Add     []Members       // tertiary records that are born with the entry
	Drop    []Container     // tertiary records that go with it, or before Add
	Tokens  Ending
	Schema  Guard
}

// A Ranked is a member of the ordered index Key, a sorted set of texts.
type Ranked struct {
	Key    recordkey.Key
	Member string
	Facet  Facet // the facet that gives the place
}

// Members are put into the tertiary record Key; Index holds, for an indexed set, one index key a member.
type Members struct {
	Key    recordkey.Key
	Kind   string // set (or ""), list, zset, hash or string
	Values []string
	Index  []recordkey.Key
}

// Command is the Redis command that puts the values into the record.
func (m Members) Command() string {
	switch m.Kind {
	case "list":
		return "RPUSH"
	case "zset":
		return "ZADD"
	case "hash":
		return "HSET"
	case "string":
		return "SET"
	}
	return "SADD"
}

// Replaces says whether the change puts members in place of what is there: always, but in the case of a
// set that is not dropped in the same change.
func (c Change) Replaces(m Members) bool {
	return m.Kind != "" && m.Kind != "set" ||
		slices.ContainsFunc(c.Drop, func(d Container) bool { return d.Key == m.Key })
}

// A Container is a tertiary record; Indexed says that its members stand in index sets.
type Container struct {
	Key     recordkey.Key
	Indexed bool
}

// A Guard is compared with what ~/schema/TYPE says, in every change.
type Guard struct {
	Key         recordkey.Key
	Types       recordkey.Key // the set of types that have a schema stored
	Fingerprint string
	JSON        string          // the schema itself, stored beside the fingerprint by the first change
	Tertiary    map[string]bool // names of the tertiary records that the schema declares; true for indexed ones
	Exact       bool            // may be stored where entries exist that no fingerprint describes
	Entries     string          // the SCAN pattern of such entries
}

// A Member is asked for by Holds.
type Member struct {
	Set   recordkey.Key
	Value string
}

// An Op is one command on a tertiary record: its name and what follows the key.
type Op struct {
	PRK     recordkey.Key
	Key     recordkey.Key
	Command string
	Args    []string
	Write   bool            // changes the record
	Once    bool            // must not be sent again when the reply is lost
	Index   []recordkey.Key // index sets that the entry joins
	Unindex []recordkey.Key // index sets that it leaves
	Schema  Guard           // for writes
}

// A Reply is what one command on a tertiary record answered. Nil is set where there was nothing.
type Reply struct {
	Nil   bool
	Int   int64
	Text  string
	Items []string
}

// Empty reports whether there was nothing: no element, no such member.
func (r Reply) Empty() bool { return r.Int == 0 && r.Text == "" && len(r.Items) == 0 }
