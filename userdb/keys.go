package userdb

import (
	"context"
	"iter"

	"github.com/coffeenode/userdb/internal/core"
)

// Keys yields the record keys of the view that match a Redis glob, relative to its namespace, as SCAN
// finds them: in no order, one perhaps twice, and those of namespaces inside it too. The store's own
// records are left out. The pattern is an operator's: never pass on what a visitor typed.
func (db *DB) Keys(ctx context.Context, pattern string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for batch, err := range db.core.Keys(ctx, pattern) {
			if err != nil {
				yield("", err)
				return
			}
			for _, key := range batch {
				if !yield(key, nil) {
					return
				}
			}
		}
	}
}

// RemoveKeys removes the records that match a Redis glob, and says how many fewer of them there are.
// It keeps I1 to I5: an entry goes with all that belongs to it, a tertiary record with its index
// members; the SRK or the index set of an entry that stays, stays too. The store's own records stay,
// and so does what belongs to a type that the schema does not declare.
func (db *DB) RemoveKeys(ctx context.Context, pattern string) (int, error) {
	before, err := db.countKeys(ctx, pattern)
	if err != nil {
		return 0, err
	}
	failed := db.removeKeys(ctx, pattern)
	after, err := db.countKeys(ctx, pattern)
	if failed != nil {
		err = failed
	}
	return max(before-after, 0), err
}

func (db *DB) removeKeys(ctx context.Context, pattern string) error {
	for batch, err := range db.core.Keys(ctx, pattern) {
		if err != nil {
			return err
		}
		for _, key := range batch {
			if _, err := db.core.Remove(ctx, key); err != nil && !core.IsEntryError(err) {
				return err
			}
		}
	}
	return nil
}

func (db *DB) countKeys(ctx context.Context, pattern string) (int, error) {
	n := 0
	for batch, err := range db.core.Keys(ctx, pattern) {
		if err != nil {
			return n, err
		}
		n += len(batch)
	}
	return n, nil
}
