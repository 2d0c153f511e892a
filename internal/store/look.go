package store

import "context"

// RawKind says what to read of a raw record.
type RawKind uint8

// Kinds of reads.
const (
	RawType  RawKind = iota // only its Redis type
	RawText                 // a string
	RawField                // one field of a hash
	RawHash                 // a hash with all its fields
	RawSet                  // the beginning of a set
	RawAll                  // type, time to live and elements of a record of any type
)

// A RawRead asks for one record. Its key is raw and may not parse.
type RawRead struct {
	Key   string
	As    RawKind
	Field string // for RawField
	// Count is for RawSet the approximate number of members, and for RawAll the maximum number of
	// elements. If it is 0, RawAll reads all of them.
	Count int
}

// A Raw holds a record as stored in Redis, as far as it was read.
type Raw struct {
	Key       string
	Text                        // from RawText and RawField, and from RawAll for a string
	WrongType bool              // the record does not have the expected Redis type
	Fields    map[string]string // from RawHash; empty if there is no record
	Items     []string          // elements of a set, list or sorted set
	Next      string            // from RawSet: the cursor with which Scan continues, "" at the end

	// RawAll sets the following fields, and RawType sets only Type.
	//
	// Type is string, hash, set, list, zset, stream or another type that the server names, and
	// KindNone if there is no record.
	Type     string
	Pairs    []Facet   // of a hash
	Scores   []float64 // of a zset, parallel to Items
	Messages []Message // of a stream
	// Size is the number of elements, or of bytes in a string. It may be more than was read.
	Size    int64
	TTL     int64  // time to live in milliseconds; -1 for none, -2 if there is no record
	Problem string // why the record could not be read
}

// A Text holds a string, or one field of a hash. Exists reports whether it exists.
type Text struct {
	Wire   string
	Exists bool
}

// KindNone is the Redis type of a record that does not exist.
const KindNone = "none"

// A Message is an entry of a stream.
type Message struct {
	ID    string
	Pairs []Facet
}

// readAll reads records, all in the same way.
func readAll(ctx context.Context, e Maintenance, keys []string, how RawRead) ([]Raw, error) {
	at := make([]RawRead, len(keys))
	for i, key := range keys {
		at[i], at[i].Key = how, key
	}
	return e.ReadRaw(ctx, at)
}

// Kinds returns the Redis types of records.
func Kinds(ctx context.Context, e Maintenance, keys []string) ([]string, error) {
	raws, err := readAll(ctx, e, keys, RawRead{As: RawType})
	kinds := make([]string, len(raws))
	for i := range raws {
		kinds[i] = raws[i].Type
	}
	return kinds, err
}

// Texts reads strings.
func Texts(ctx context.Context, e Maintenance, keys []string) ([]Raw, error) {
	return readAll(ctx, e, keys, RawRead{As: RawText})
}

// Hashes reads hashes with all their fields.
func Hashes(ctx context.Context, e Maintenance, keys []string) ([]Raw, error) {
	return readAll(ctx, e, keys, RawRead{As: RawHash})
}

// Sets reads the beginning of each set, about count members. Scan reads the rest.
func Sets(ctx context.Context, e Maintenance, keys []string, count int) ([]Raw, error) {
	return readAll(ctx, e, keys, RawRead{As: RawSet, Count: count})
}

// Inspect reads records of any Redis type, at most limit elements of each. If limit is 0, it reads
// all elements.
func Inspect(ctx context.Context, e Maintenance, keys []string, limit int) ([]Raw, error) {
	return readAll(ctx, e, keys, RawRead{As: RawAll, Count: limit})
}

// WithoutOtherWriters returns a context under which Settle does not wait, because the caller knows
// that nobody else is writing. Tests use it after they have stopped their writers.
func WithoutOtherWriters(ctx context.Context) context.Context {
	return context.WithValue(ctx, aloneKey{}, true)
}

type aloneKey struct{}

// HasNoOtherWriters reports whether a context was made by [WithoutOtherWriters].
func HasNoOtherWriters(ctx context.Context) bool { return ctx.Value(aloneKey{}) != nil }
