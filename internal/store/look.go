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
	Found  bool   // LookText, LookField: there is such a string, or field
	Other  bool   // LookHash, LookSet: it is a record of another Redis type
	Text   string // of a string, or the field
	Fields map[string]string
	Items  []string // of a set, a list or a sorted set
	Next   string   // LookSet: the cursor for the rest, "" at the end

	// LookAll, and of LookType the first one.
	Type     string // string, hash, set, list, zset, stream, or what the server says; KindNone: absent
	Pairs    []Facet
	Scores   []float64 // of a zset, beside Items
	Messages []Message // of a stream
	Size     int64     // elements, or bytes of a string; there may be more than were read
	TTL      int64     // milliseconds; -1 for none
	Problem  string    // why it could not be read
}

// KindNone is the Redis type of a record that is not there.
const KindNone = "none"

// A Message is one of a stream.
type Message struct {
	ID    string
	Pairs []Facet
}

// lookEach looks at one record for each item of a list.
func lookEach[Q, A any](ctx context.Context, e Engine, list []Q, ask func(Q) LookAt, take func(Raw) A) ([]A, error) {
	at := make([]LookAt, len(list))
	for i, item := range list {
		at[i] = ask(item)
	}
	raws, err := e.Look(ctx, at)
	if err != nil {
		return nil, err
	}
	answers := make([]A, len(raws))
	for i, r := range raws {
		answers[i] = take(r)
	}
	return answers, nil
}

// Kinds returns the Redis types of records, KindNone where there is none.
func Kinds(ctx context.Context, e Engine, keys []string) ([]string, error) {
	return lookEach(ctx, e, keys,
		func(key string) LookAt { return LookAt{Key: key, As: LookType} },
		func(r Raw) string { return r.Type })
}

// A Text is a string, or one field of a hash; Is is false where it does not exist.
type Text struct {
	Wire string
	Is   bool
}

func textOf(r Raw) Text { return Text{Wire: r.Text, Is: r.Found} }

// Texts reads strings.
func Texts(ctx context.Context, e Engine, keys []string) ([]Text, error) {
	return lookEach(ctx, e, keys, func(key string) LookAt { return LookAt{Key: key, As: LookText} }, textOf)
}

// A FacetRead asks for one field of a hash.
type FacetRead struct{ Key, Field string }

// Facets reads one field each of hashes.
func Facets(ctx context.Context, e Engine, reads []FacetRead) ([]Text, error) {
	return lookEach(ctx, e, reads,
		func(f FacetRead) LookAt { return LookAt{Key: f.Key, As: LookField, Field: f.Field} }, textOf)
}

// A Hash is a whole hash: no fields where there is no record, and Other where it is of another Redis type.
type Hash struct {
	Fields map[string]string
	Other  bool
}

// Hashes reads whole hashes.
func Hashes(ctx context.Context, e Engine, keys []string) ([]Hash, error) {
	return lookEach(ctx, e, keys,
		func(key string) LookAt { return LookAt{Key: key, As: LookHash} },
		func(r Raw) Hash { return Hash{r.Fields, r.Other} })
}

// A SetPage is the beginning of a set: no members where there is no record, and Other where it is of another
// Redis type. Next is the cursor for the rest, "" at the end.
type SetPage struct {
	Members []string
	Next    string
	Other   bool
}

// Sets reads the beginning of each set, about count members; Scan reads on.
func Sets(ctx context.Context, e Engine, keys []string, count int) ([]SetPage, error) {
	return lookEach(ctx, e, keys,
		func(key string) LookAt { return LookAt{Key: key, As: LookSet, Count: count} },
		func(r Raw) SetPage { return SetPage{r.Items, r.Next, r.Other} })
}

// Inspect reads records whatever they are, at most limit elements of each; 0: all.
func Inspect(ctx context.Context, e Engine, keys []string, limit int) ([]Raw, error) {
	return lookEach(ctx, e, keys,
		func(key string) LookAt { return LookAt{Key: key, As: LookAll, Count: limit} },
		func(r Raw) Raw { return r })
}

// Alone makes a context whose caller knows that nobody writes meanwhile, as a test does that has ended its writers.
func Alone(ctx context.Context) context.Context { return context.WithValue(ctx, aloneKey{}, true) }

type aloneKey struct{}

// IsAlone reports whether a context is of [Alone].
func IsAlone(ctx context.Context) bool { return ctx.Value(aloneKey{}) != nil }
