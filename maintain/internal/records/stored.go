package records

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
)

const (
	ScanBatch = 1000 // number of keys that SCAN is asked for at a time
	LookBatch = 250  // number of records read at a time
)

// Gone reports whether the fields of a PRK's hash show that no entry exists: there are no fields,
// or only those of a tombstone.
func Gone(fields map[string]string) bool { return len(fields) == 0 || store.Tombstone(fields) }

var seed = maphash.MakeSeed()

// Digest returns a hash of a type's name and a text, such as a UniqueText of change.Type. It is
// valid in this process only.
func Digest(typ, text string) uint64 { return maphash.String(seed, typ+"\x00"+text) }

// A Contest describes a secondary value that several entries have.
type Contest struct {
	Type   *change.Type
	SRK    recordkey.Key   // of the value, in a field in which an owner has it
	Owners []recordkey.Key // relative PRKs, sorted
}

// maxRewrites limits how often Rewrite retries on an entry that others are changing.
const maxRewrites = 20

// Rewrite makes the change that how returns for the current state of an entry, sound or damaged. It
// writes nothing if how returns false. It returns the fields of the entry afterwards, or nil if the
// entry does not exist.
func Rewrite(
	ctx context.Context, v *view.View, t *change.Type, prk recordkey.Key, how func(store.Record) (c store.Change, due bool, err error),
) (map[string]string, error) {
	for range maxRewrites {
		hashes, err := store.Hashes(ctx, v.Engine, []string{prk.String()})
		if err != nil || hashes[0].WrongType || Gone(hashes[0].Fields) {
			return nil, err
		}
		r := store.Record{Key: prk, Fields: hashes[0].Fields}
		c, due, err := how(r)
		if err != nil || !due {
			return r.Fields, err
		}
		rev, err := v.Apply(ctx, t, c)
		if err == nil {
			return change.Apply(c, rev, r.Fields).Fields, nil
		}
		if !errors.Is(err, store.ErrConflict) {
			return nil, err
		}
	}
	return nil, store.ErrConflict
}

// Contests reads all entries of a type and returns the values that several of them share, sorted.
// It considers only values whose digest is in wanted, and only the facets that facetsOf returns for
// an entry.
func Contests(
	ctx context.Context, v *view.View, t *change.Type, wanted map[uint64]bool,
	facetsOf func(store.Record) map[string]string, progress func(done, about int64),
) (shared []*Contest, err error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	found := map[string]*Contest{}
	err = EachEntry(ctx, v, t, progress, func(r store.Record) {
		prk := r.Key.In(recordkey.Namespace{})
		for _, srk := range t.SRKs(facetsOf(r)) {
			unique := t.UniqueText(srk)
			if found[unique] == nil && wanted[Digest(t.Name, unique)] {
				found[unique] = &Contest{Type: t, SRK: srk}
			}
			if k := found[unique]; k != nil && !slices.Contains(k.Owners, prk) {
				k.Owners = append(k.Owners, prk)
			}
		}
	})
	for _, k := range found {
		if slices.SortFunc(k.Owners, recordkey.Key.Compare); len(k.Owners) > 1 {
			shared = append(shared, k)
		}
	}
	slices.SortFunc(shared, func(a, b *Contest) int {
		return strings.Compare(t.UniqueText(a.SRK), t.UniqueText(b.SRK))
	})
	return shared, err
}

// A Walk describes a walk over the keys that match a pattern, in batches of SCAN.
type Walk struct {
	Pattern string
	Size    int // maximum number of keys for a call
	AtOnce  int // maximum number of concurrent calls
	// Progress, if not nil, is called with the approximate number of keys scanned and of all keys.
	Progress func(done, about int64)
}

// Each calls f with batches of the keys until a call fails. Within a batch, keys are sorted and
// distinct, but SCAN may return a key again later.
func (w Walk) Each(ctx context.Context, v *view.View, f func(ctx context.Context, keys []string) error) (err error) {
	var done, about int64
	if w.Progress != nil {
		sizes, err := v.Engine.Cardinalities(ctx, []recordkey.Key{{}})
		if err != nil {
			return err
		}
		about = sizes[0]
	}
	group, calls := errgroup.WithContext(ctx)
	group.SetLimit(w.AtOnce)
	for keys, failed := range v.Engine.ScanAll(calls, store.Scan{Pattern: w.Pattern, Count: ScanBatch}) {
		if err = failed; err != nil {
			break
		}
		slices.Sort(keys)
		for batch := range slices.Chunk(slices.Compact(keys), w.Size) {
			group.Go(func() error { return f(calls, batch) })
		}
		if done = min(done+ScanBatch, about); w.Progress != nil {
			w.Progress(done, about)
		}
	}
	if err = cmp.Or(group.Wait(), err); err == nil && w.Progress != nil {
		w.Progress(about, about)
	}
	return err
}

// EachEntry calls f for all entries of a type, sound or damaged, one after the other. It may call f
// for an entry twice.
func EachEntry(ctx context.Context, v *view.View, t *change.Type, progress func(done, about int64), f func(store.Record)) error {
	w := Walk{Pattern: t.Guard.Entries, Size: LookBatch, AtOnce: 1, Progress: progress}
	return w.Each(ctx, v, func(ctx context.Context, keys []string) error {
		prks := v.PRKs(t, keys)
		hashes, err := store.Hashes(ctx, v.Engine, Map(prks, recordkey.Key.String))
		for i, h := range hashes {
			if !h.WrongType && !Gone(h.Fields) {
				f(store.Record{Key: prks[i], Fields: h.Fields})
			}
		}
		return err
	})
}

// Corrupt returns the error for a damaged record.
func Corrupt(key recordkey.Key, reason string) error {
	return &store.CorruptError{Key: key.String(), Reason: reason}
}

// CopyMark names the store's own record ~/copying. It exists in a namespace that is the target of
// an unfinished copy, and holds the path of the source.
const CopyMark = "copying"
