package store

import "context"

// Looking says what to read of a raw record.
type Looking uint8

// What to read of a record.
const (
	LookType  Looking = iota // only its Redis type
	LookText                 // a string
	LookField                // one field of a hash
	LookHash                 // a hash with all its fields
	LookSet                  // the beginning of a set
	LookAll                  // type, time to live and elements of a record of any type
)

// A LookAt asks for one record. Its key is raw and may not parse.
type LookAt struct {
	Key   string
	As    Looking
	Field string // for LookField
	// Count is for LookSet the approximate number of members, and for LookAll the maximum number of
	// elements. If it is 0, LookAll reads all of them.
	Count int
}

// A Raw is a record as Redis holds it, as far as it was read.
type Raw struct {
	Key    string
	Text                     // from LookText and LookField, and from LookAll for a string
	Other  bool              // the record is of another Redis type than expected
	Fields map[string]string // from LookHash; empty if there is no record
	Items  []string          // elements of a set, list or sorted set
	Next   string            // from LookSet: the cursor with which Scan continues, "" at the end

	// LookAll sets the following fields, and LookType sets only Type.
	//
	// Type is string, hash, set, list, zset, stream, or what the server answers, and KindNone if
	// there is no record.
	Type     string
	Pairs    []Facet
	Scores   []float64 // of a zset, parallel to Items
	Messages []Message // of a stream
	// Size is the number of elements, or of bytes in a string. It may be more than was read.
	Size    int64
	TTL     int64  // time to live in milliseconds; -1 for none
	Problem string // why the record could not be read
}

// A Text holds a string, or one field of a hash. Is reports whether it exists.
type Text struct {
	Wire string
	Is   bool
}

// KindNone is the Redis type of a record that does not exist.
const KindNone = "none"

// A Message is an entry of a stream.
type Message struct {
	ID    string
	Pairs []Facet
}

// readAll reads records, all in the same way.
func readAll(ctx context.Context, e Maintenance, keys []string, how LookAt) ([]Raw, error) {
	at := make([]LookAt, len(keys))
	for i, key := range keys {
		at[i], at[i].Key = how, key
	}
	return e.Look(ctx, at)
}

// Kinds returns the Redis types of records.
func Kinds(ctx context.Context, e Maintenance, keys []string) ([]string, error) {
	raws, err := readAll(ctx, e, keys, LookAt{As: LookType})
	kinds := make([]string, len(raws))
	for i := range raws {
		kinds[i] = raws[i].Type
	}
	return kinds, err
}

// Texts reads strings.
func Texts(ctx context.Context, e Maintenance, keys []string) ([]Raw, error) {
	return readAll(ctx, e, keys, LookAt{As: LookText})
}

// Hashes reads hashes with all their fields.
func Hashes(ctx context.Context, e Maintenance, keys []string) ([]Raw, error) {
	return readAll(ctx, e, keys, LookAt{As: LookHash})
}

// Sets reads the beginning of each set, about count members. Scan reads the rest.
func Sets(ctx context.Context, e Maintenance, keys []string, count int) ([]Raw, error) {
	return readAll(ctx, e, keys, LookAt{As: LookSet, Count: count})
}

// Inspect reads records of any Redis type, at most limit elements of each. If limit is 0, it reads
// all elements.
func Inspect(ctx context.Context, e Maintenance, keys []string, limit int) ([]Raw, error) {
	return readAll(ctx, e, keys, LookAt{As: LookAll, Count: limit})
}

// Alone returns a context whose caller knows that nobody else is writing, as a test does after it
// has stopped its writers.
func Alone(ctx context.Context) context.Context { return context.WithValue(ctx, aloneKey{}, true) }

type aloneKey struct{}

// IsAlone reports whether a context was made by [Alone].
func IsAlone(ctx context.Context) bool { return ctx.Value(aloneKey{}) != nil }
