package userdb

import (
	"context"
	"errors"
	"iter"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// Keys yields the record keys of the view that match a Redis glob, relative to its namespace, as SCAN
// finds them: in no order, one perhaps twice, and those of namespaces inside it too. The store's own
// records are left out. The pattern is an operator's: never pass on what a visitor typed.
func (db *DB) Keys(ctx context.Context, pattern string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for batch, err := range db.view.Keys(ctx, pattern) {
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
	for batch, err := range db.view.Keys(ctx, pattern) {
		if err != nil {
			return err
		}
		for _, key := range batch {
			if _, err := db.removeKey(ctx, key); err != nil && !store.IsEntryError(err) {
				return err
			}
		}
	}
	return nil
}

func (db *DB) countKeys(ctx context.Context, pattern string) (int, error) {
	n := 0
	for batch, err := range db.view.Keys(ctx, pattern) {
		if err != nil {
			return n, err
		}
		n += len(batch)
	}
	return n, nil
}

// removeKey removes the record at a key that is relative to the view, and what cannot stay without it;
// it says how many of the records that were named are gone.
func (db *DB) removeKey(ctx context.Context, relative string) (int, error) {
	raw := db.view.NS.String() + relative
	key, err := recordkey.Parse(raw)
	if err != nil {
		return db.discard(ctx, store.Remove{Key: raw})
	}
	t, err := db.view.Of(key)
	if err != nil {
		return 0, nil
	}
	switch key.Kind() {
	case recordkey.KindPRK:
		return db.removeEntry(ctx, t, key)
	case recordkey.KindSRK:
		return db.removeSRK(ctx, key)
	case recordkey.KindTertiary:
		return db.removeTertiary(ctx, t, key)
	case recordkey.KindIndex:
		return db.removeIndex(ctx, t, key)
	}
	return 0, nil
}

func (db *DB) discard(ctx context.Context, l store.Remove) (int, error) {
	gone, err := db.view.Engine.Mend(ctx, l)
	if gone {
		return 1, err
	}
	return 0, err
}

// removeEntry ends an entry with all that belongs to it. What cannot be read is not an entry, and a tombstone guards
// the key.
func (db *DB) removeEntry(ctx context.Context, t *change.Type, key recordkey.Key) (int, error) {
	unreadable := false
	err := (&Type{db: db, t: t}).delete(ctx, func(ctx context.Context) (store.Record, error) {
		r, err := db.view.Read(ctx, store.Lookup{PRK: key})
		unreadable = errors.Is(err, ErrCorrupt)
		return r, err
	})
	switch {
	case err == nil:
		return 1, nil
	case errors.Is(err, ErrNotFound):
		return 0, nil
	case unreadable:
		return db.discard(ctx, store.Remove{Key: key.String()})
	}
	return 0, err
}

// removeSRK removes an SRK unless its entry holds the value (I1).
func (db *DB) removeSRK(ctx context.Context, key recordkey.Key) (int, error) {
	raws, err := store.Inspect(ctx, db.view.Engine, []string{key.String()}, 0)
	if err != nil {
		return 0, err
	}
	l := store.Remove{Key: key.String()}
	if raw := raws[0]; raw.Type == "string" && raw.Text != "" {
		l.Seen = store.Text{Wire: raw.Text, Is: true}
		l.Owner = key.Namespace().String() + store.Owner(raw.Text)
		l.Field, l.Value = key.Field(), key.Value()
	}
	return db.discard(ctx, l)
}

// removeTertiary empties a tertiary record of a live entry through its own verb, so that its index
// members go with it (I5), and unlinks it where there is no entry.
func (db *DB) removeTertiary(ctx context.Context, t *change.Type, key recordkey.Key) (int, error) {
	l := store.Remove{Key: key.String()}
	declared := t.Schema.Tertiary[key.Name()]
	if !declared.Indexed {
		return db.discard(ctx, l)
	}
	raws, err := store.Inspect(ctx, db.view.Engine, []string{key.String()}, 0)
	if err != nil || raws[0].Type != "set" {
		return db.discard(ctx, l)
	}
	op := store.Op{PRK: key.PRK(), Key: key, Command: "SREM", Args: raws[0].Items, Write: true}
	for _, member := range raws[0].Items {
		if index, ok := t.Index(key.Name(), member); ok {
			op.Unindex = append(op.Unindex, index)
		}
	}
	_, err = db.view.Tertiary(ctx, t, op)
	if errors.Is(err, store.ErrNotFound) {
		l.Owner = key.PRK().String()
		return db.discard(ctx, l)
	}
	if err != nil {
		return 0, err
	}
	return 1, nil
}

// removeIndex takes out of an index set the members whose entries are not live; the others stay (I5).
func (db *DB) removeIndex(ctx context.Context, t *change.Type, key recordkey.Key) (int, error) {
	raws, err := store.Inspect(ctx, db.view.Engine, []string{key.String()}, 0)
	if err != nil {
		return 0, err
	}
	if raws[0].Type != "set" || !keepsIndex(t, key.Field()) {
		return db.discard(ctx, store.Remove{Key: key.String()})
	}
	gone := 0
	for _, member := range raws[0].Items {
		l := store.Remove{Key: key.String(), Member: member, Owner: key.Namespace().String() + member}
		n, err := db.discard(ctx, l)
		if gone += n; err != nil {
			return 0, err
		}
	}
	if gone == len(raws[0].Items) {
		return 1, nil
	}
	return 0, nil
}

// keepsIndex says whether the schema indexes a field or a tertiary set of that name.
func keepsIndex(t *change.Type, name string) bool {
	return t.Schema.Fields[name].Role == "indexed" || t.Schema.Tertiary[name].Indexed
}
