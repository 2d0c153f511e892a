package store

import "context"

// A Peeker reads records as they are, many at a time, for those who judge them. Nothing is believed:
// a record of another Redis type is an answer, not an error. Keys are raw and may parse or not;
// answers come in the order of what was asked.
type Peeker interface {
	// Size says how many records the server holds, about.
	Size(ctx context.Context) (int64, error)
	// Kinds says of which Redis type records are; KindNone where there is none.
	Kinds(ctx context.Context, keys []string) ([]string, error)
	// Texts reads strings.
	Texts(ctx context.Context, keys []string) ([]Text, error)
	// Facets reads one field each of hashes.
	Facets(ctx context.Context, reads []FacetRead) ([]Text, error)
	// Hashes reads whole hashes.
	Hashes(ctx context.Context, keys []string) ([]Hash, error)
	// Sets reads the beginning of each set, about count members; ScanIndex reads on.
	Sets(ctx context.Context, keys []string, count int) ([]SetPage, error)
	// InSteps reports whether changes are made in several steps, between which records look damaged.
	InSteps() bool
	// Linger waits before the nth look, from 0, at what may be damage or such a change, and reports whether to
	// look: when it says false, every writer whose change was seen has ended it or died. Under [Alone] it does not wait.
	Linger(ctx context.Context, n int) (bool, error)
	// Messages reads the first messages of a stream, at most limit.
	Messages(ctx context.Context, key string, limit int) ([]Message, error)
}

// Alone makes a context whose caller knows that nobody writes meanwhile, as a test does that has ended its writers.
func Alone(ctx context.Context) context.Context { return context.WithValue(ctx, aloneKey{}, true) }

type aloneKey struct{}

// IsAlone reports whether a context is of [Alone].
func IsAlone(ctx context.Context) bool { return ctx.Value(aloneKey{}) != nil }

// KindNone is the Redis type of a record that is not there.
const KindNone = "none"

// A Text is a string, or one field of a hash; Is is false where there is none.
type Text struct {
	Wire string
	Is   bool
}

// A FacetRead asks for one field of a hash.
type FacetRead struct{ Key, Field string }

// A Hash is a whole hash: no fields where there is no record, and Other where it is no hash.
type Hash struct {
	Fields map[string]string
	Other  bool
}

// A SetPage is the beginning of a set: no members where there is no record, and Other where it is no
// set. Next is the cursor for the rest, "" at the end.
type SetPage struct {
	Members []string
	Next    string
	Other   bool
}

// A Message is one of a stream.
type Message struct {
	ID    string
	Pairs []Facet
}
