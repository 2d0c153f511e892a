package inspect

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// Keys yields the record keys of the view that match a Redis glob, relative to its namespace, as SCAN
// finds them: in no order, one perhaps twice, and those of namespaces inside it too. The store's own
// records are left out. The pattern is an operator's: never pass on what a visitor typed.
func Keys(ctx context.Context, db *userdb.DB, pattern string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for batch, err := range keys(ctx, view.Of(db), pattern) {
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

// RemoveKeys removes the records that match a Redis glob, and returns how many fewer of them there are.
// It keeps I1 to I5: an entry goes with all that belongs to it, a tertiary record with its index
// members; the SRK or the index set of an entry that stays, stays too. The store's own records stay,
// and so does what belongs to a type that the schema does not declare.
func RemoveKeys(ctx context.Context, db *userdb.DB, pattern string) (int, error) {
	before, err := countKeys(ctx, db, pattern)
	if err != nil {
		return 0, err
	}
	failed := removeKeys(ctx, db, pattern)
	after, err := countKeys(ctx, db, pattern)
	if failed != nil {
		err = failed
	}
	return max(before-after, 0), err
}

func removeKeys(ctx context.Context, db *userdb.DB, pattern string) error {
	r := remover{view.Of(db), db}
	for key, err := range Keys(ctx, db, pattern) {
		if err == nil {
			_, err = r.removeKey(ctx, key)
		}
		if err != nil && !store.IsEntryError(err) {
			return err
		}
	}
	return nil
}

func countKeys(ctx context.Context, db *userdb.DB, pattern string) (n int, err error) {
	for _, err := range Keys(ctx, db, pattern) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// scanBatch is how many keys are asked for at a time.
const scanBatch = 1000

// keys are what Keys yields, in batches. The
// empty glob matches none: go-redis would leave it out, and SCAN would find every record.
func keys(ctx context.Context, v *view.View, pattern string) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		if pattern == "" {
			return
		}
		prefix := v.NS.String()
		for cursor := ""; ; {
			keys, next, err := v.Engine.Scan(ctx, store.Scan{Pattern: recordkey.Glob(prefix) + pattern, Cursor: cursor, Count: scanBatch})
			if err != nil {
				yield(nil, err)
				return
			}
			batch, err := visible(ctx, v, keys)
			if !yield(batch, err) || err != nil {
				return
			}
			if cursor = next; cursor == "" {
				return
			}
		}
	}
}

// visible makes keys relative, and leaves out the store's own records and tombstones.
func visible(ctx context.Context, v *view.View, keys []string) ([]string, error) {
	var shown []string
	var prks []store.Lookup
	prefix := v.NS.String()
	for _, k := range keys {
		switch key, err := recordkey.Parse(k); {
		case own(strings.TrimPrefix(k, prefix)):
		case err == nil && key.Kind() == recordkey.KindPRK:
			prks = append(prks, store.Lookup{PRK: key})
		default:
			shown = append(shown, strings.TrimPrefix(k, prefix))
		}
	}
	found, err := v.Engine.Find(ctx, prks)
	if err != nil {
		return nil, err
	}
	for i, f := range found {
		if !errors.Is(f.Err, store.ErrNotFound) {
			shown = append(shown, strings.TrimPrefix(prks[i].PRK.String(), prefix))
		}
	}
	return shown, nil
}

// own reports whether a key is one of the store's own records, in whatever namespace: ~/… after any
// number of ~NAME/.
func own(key string) bool {
	for strings.HasPrefix(key, "~") {
		name, rest, ok := strings.Cut(key, "/")
		if !ok {
			return false
		}
		if name == "~" {
			return true
		}
		key = rest
	}
	return false
}

// A remover removes records of a view, of db.
type remover struct {
	*view.View
	db *userdb.DB
}

// removeKey removes the record at a key that is relative to the view, and what cannot stay without it;
// it returns how many of the records that were named are gone.
func (r remover) removeKey(ctx context.Context, relative string) (int, error) {
	raw := r.NS.String() + relative
	key, err := recordkey.Parse(raw)
	if err != nil {
		return r.discard(ctx, store.Remove{Key: raw})
	}
	t, err := r.Of(key)
	if err != nil {
		return 0, nil
	}
	switch key.Kind() {
	case recordkey.KindPRK:
		return r.removeEntry(ctx, key)
	case recordkey.KindSRK:
		return r.removeSRK(ctx, key)
	case recordkey.KindTertiary:
		return r.removeTertiary(ctx, t, key)
	case recordkey.KindIndex:
		return r.removeIndex(ctx, t, key)
	}
	return 0, nil
}

func (r remover) discard(ctx context.Context, l store.Remove) (int, error) {
	gone, err := r.Engine.Mend(ctx, l)
	if gone {
		return 1, err
	}
	return 0, err
}

// removeEntry ends an entry with all that belongs to it. What cannot be read is not an entry, and a tombstone guards
// the key.
func (r remover) removeEntry(ctx context.Context, key recordkey.Key) (int, error) {
	_, err := r.Read(ctx, store.Lookup{PRK: key})
	if errors.Is(err, store.ErrCorrupt) {
		return r.discard(ctx, store.Remove{Key: key.String()})
	}
	if err == nil {
		err = r.delete(ctx, key)
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return 1, nil
}

func (r remover) delete(ctx context.Context, key recordkey.Key) error {
	db, err := r.db.In(key.Namespace())
	if err != nil {
		return err
	}
	t, err := db.Type(key.Type())
	if err != nil {
		return err
	}
	return t.Delete(ctx, hints.Key(key.In(recordkey.Namespace{})))
}

// removeSRK removes an SRK unless its entry holds the value (I1).
func (r remover) removeSRK(ctx context.Context, key recordkey.Key) (int, error) {
	raws, err := store.Inspect(ctx, r.Engine, []string{key.String()}, 0)
	if err != nil {
		return 0, err
	}
	l := store.Remove{Key: key.String()}
	if raw := raws[0]; raw.Type == "string" && raw.Wire != "" {
		l.Seen = raw.Text
		l.Owner = key.Namespace().String() + store.Owner(raw.Wire)
		l.Field, l.Value = key.Field(), key.Value()
	}
	return r.discard(ctx, l)
}

// removeTertiary empties a tertiary record of a live entry through its own verb, so that its index
// members go with it (I5), and unlinks it where there is no entry.
func (r remover) removeTertiary(ctx context.Context, t *change.Type, key recordkey.Key) (int, error) {
	l := store.Remove{Key: key.String()}
	declared := t.Schema.Tertiary[key.Name()]
	if !declared.Indexed {
		return r.discard(ctx, l)
	}
	raws, err := store.Inspect(ctx, r.Engine, []string{key.String()}, 0)
	if err != nil || raws[0].Type != "set" {
		return r.discard(ctx, l)
	}
	op := store.Op{PRK: key.PRK(), Key: key, Command: "SREM", Args: raws[0].Items, Write: true}
	for _, member := range raws[0].Items {
		if index, ok := t.Index(key.Name(), member); ok {
			op.Unindex = append(op.Unindex, index)
		}
	}
	_, err = r.Tertiary(ctx, t, op)
	if errors.Is(err, store.ErrNotFound) {
		l.Owner = key.PRK().String()
		return r.discard(ctx, l)
	}
	if err != nil {
		return 0, err
	}
	return 1, nil
}

// removeIndex takes out of an index set the members whose entries are not live; the others stay (I5).
func (r remover) removeIndex(ctx context.Context, t *change.Type, key recordkey.Key) (int, error) {
	raws, err := store.Inspect(ctx, r.Engine, []string{key.String()}, 0)
	if err != nil {
		return 0, err
	}
	if raws[0].Type != "set" || !keepsIndex(t, key.Field()) {
		return r.discard(ctx, store.Remove{Key: key.String()})
	}
	gone := 0
	for _, member := range raws[0].Items {
		l := store.Remove{Key: key.String(), Member: member, Owner: key.Namespace().String() + member}
		n, err := r.discard(ctx, l)
		if gone += n; err != nil {
			return 0, err
		}
	}
	if gone == len(raws[0].Items) {
		return 1, nil
	}
	return 0, nil
}

// keepsIndex reports whether the schema indexes a field or a tertiary set of that name.
func keepsIndex(t *change.Type, name string) bool {
	return t.Schema.Fields[name].Role == "indexed" || t.Schema.Tertiary[name].Indexed
}
