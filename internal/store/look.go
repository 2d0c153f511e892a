package store

import "context"

// Looking says what of a raw record is asked for.
type Looking uint8

// What a look asks for.
const (
	LookType  Looking = iota // only of which Redis type it is
	LookText                 // a string
	LookField                // one field of a hash
	LookHash                 // a hash with all its fields
	LookSet                  // the beginning of a set
	LookAll                  // type, time to live and elements, whatever it is
)

// A LookAt asks for one record. Its key is raw, and may parse or not.
type LookAt struct {
	Key   string
	As    Looking
	Field string // of LookField
	Count int    // of LookSet, about how many members; of LookAll, how many elements at most, 0: all
}

// A Raw is a record as Redis holds it, as far as a look asked for it.
type Raw struct {
	Key    string
	Text                     // LookText, LookField, LookAll of a string
	Other  bool              // it is a record of another Redis type than the look wants
	Fields map[string]string // LookHash; empty where there is no record
	Items  []string          // of a set, a list or a sorted set
	Next   string            // LookSet: the cursor with which Scan reads on, "" at the end

	// LookAll, and of LookType the first one.
	Type     string // string, hash, set, list, zset, stream, or what the server says; KindNone: absent
	Pairs    []Facet
	Scores   []float64 // of a zset, beside Items
	Messages []Message // of a stream
	Size     int64     // elements, or bytes of a string; there may be more than were read
	TTL      int64     // milliseconds; -1 for none
	Problem  string    // why it could not be read
}

// A Text is a string, or one field of a hash; Is is false where it does not exist.
type Text struct {
	Wire string
	Is   bool
}

// KindNone is the Redis type of a record that does not exist.
const KindNone = "none"

// A Message is one of a stream.
type Message struct {
	ID    string
	Pairs []Facet
}

// lookAt looks at records, all in the same way.
func lookAt(ctx context.Context, e Engine, keys []string, how LookAt) ([]Raw, error) {
	at := make([]LookAt, len(keys))
	for i, key := range keys {
		at[i], at[i].Key = how, key
	}
	return e.Look(ctx, at)
}

// Kinds returns the Redis types of records.
func Kinds(ctx context.Context, e Engine, keys []string) ([]string, error) {
	raws, err := lookAt(ctx, e, keys, LookAt{As: LookType})
	kinds := make([]string, len(raws))
	for i := range raws {
		kinds[i] = raws[i].Type
	}
	return kinds, err
}

// Texts reads strings.
func Texts(ctx context.Context, e Engine, keys []string) ([]Raw, error) {
	return lookAt(ctx, e, keys, LookAt{As: LookText})
}

// Hashes reads hashes with all their fields.
func Hashes(ctx context.Context, e Engine, keys []string) ([]Raw, error) {
	return lookAt(ctx, e, keys, LookAt{As: LookHash})
}

// Sets reads the beginning of each set, about count members; Scan reads on.
func Sets(ctx context.Context, e Engine, keys []string, count int) ([]Raw, error) {
	return lookAt(ctx, e, keys, LookAt{As: LookSet, Count: count})
}

// Inspect reads records whatever they are, at most limit elements of each; 0: all.
func Inspect(ctx context.Context, e Engine, keys []string, limit int) ([]Raw, error) {
	return lookAt(ctx, e, keys, LookAt{As: LookAll, Count: limit})
}

// Alone makes a context whose caller knows that nobody writes meanwhile, as a test does that has ended its writers.
func Alone(ctx context.Context) context.Context { return context.WithValue(ctx, aloneKey{}, true) }

type aloneKey struct{}

// IsAlone reports whether a context is of [Alone].
func IsAlone(ctx context.Context) bool { return ctx.Value(aloneKey{}) != nil }
