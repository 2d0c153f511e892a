package core

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// Keys yields the record keys of the view that match a glob, relative to its namespace, in batches. The
// empty glob matches none: go-redis would leave it out, and SCAN would find every record.
func (c *Core) Keys(ctx context.Context, pattern string) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		if pattern == "" {
			return
		}
		prefix := c.NS.String()
		for cursor := ""; ; {
			keys, next, err := c.Engine.Scan(ctx, recordkey.Glob(prefix)+pattern, cursor, scanBatch)
			if err != nil {
				yield(nil, err)
				return
			}
			batch, err := c.visible(ctx, keys)
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
func (c *Core) visible(ctx context.Context, keys []string) ([]string, error) {
	var shown []string
	var prks []store.Lookup
	prefix := c.NS.String()
	for _, k := range keys {
		switch key, err := recordkey.Parse(k); {
		case own(strings.TrimPrefix(k, prefix)):
		case err == nil && key.Kind() == recordkey.KindPRK:
			prks = append(prks, store.Lookup{PRK: key})
		default:
			shown = append(shown, strings.TrimPrefix(k, prefix))
		}
	}
	found, err := c.Engine.Find(ctx, prks)
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

// own says whether a key is one of the store's own records, in whatever namespace: ~/… behind any
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

// Remove removes the record at a key that is relative to the view, and what cannot stay without it;
// it says how many of the records that were named are gone.
func (c *Core) Remove(ctx context.Context, relative string) (int, error) {
	raw := c.NS.String() + relative
	key, err := recordkey.Parse(raw)
	if err != nil {
		return c.discard(ctx, store.Leftover{Key: raw})
	}
	t, err := c.typeIn(key)
	if err != nil {
		return 0, nil
	}
	switch key.Kind() {
	case recordkey.KindPRK:
		return c.removeEntry(ctx, t, key)
	case recordkey.KindSRK:
		return c.removeSRK(ctx, key)
	case recordkey.KindTertiary:
		return c.removeTertiary(ctx, t, key)
	case recordkey.KindIndex:
		return c.removeIndex(ctx, t, key)
	}
	return 0, nil
}

// typeIn is the declared type of a key, in the namespace of the key.
func (c *Core) typeIn(key recordkey.Key) (*Type, error) {
	t, err := c.Type(key.Type())
	if err != nil || key.Namespace() == c.NS {
		return t, err
	}
	return newType(t.Name, t.Schema, key.Namespace())
}

func (c *Core) discard(ctx context.Context, l store.Leftover) (int, error) {
	gone, err := c.Engine.Discard(ctx, l)
	if gone {
		return 1, err
	}
	return 0, err
}

// removeEntry ends an entry with all that belongs to it; an entry that cannot be read is no entry.
func (c *Core) removeEntry(ctx context.Context, t *Type, key recordkey.Key) (int, error) {
	for range 20 {
		r, err := c.Read(ctx, store.Lookup{PRK: key})
		switch {
		case errors.Is(err, store.ErrNotFound):
			return 0, nil // a tombstone guards the key
		case errors.Is(err, store.ErrCorrupt):
			return c.discard(ctx, store.Leftover{Key: key.String()})
		case err != nil:
			return 0, err
		}
		if _, err = c.Apply(ctx, t, t.Delete(r)); err == nil {
			return 1, nil
		}
		if !errors.Is(err, store.ErrConflict) {
			return 0, err
		}
	}
	return 0, store.ErrConflict
}

// removeSRK removes an SRK unless its entry holds the value (I1).
func (c *Core) removeSRK(ctx context.Context, key recordkey.Key) (int, error) {
	raws, err := store.Inspect(ctx, c.Engine, []string{key.String()}, 0)
	if err != nil {
		return 0, err
	}
	l := store.Leftover{Key: key.String()}
	if raw := raws[0]; raw.Type == "string" && raw.Text != "" {
		l.Seen = raw.Text
		l.Owner = key.Namespace().String() + store.Owner(raw.Text)
		l.Field, l.Value = key.Field(), key.Value()
	}
	return c.discard(ctx, l)
}

// removeTertiary empties a tertiary record of a live entry through its own verb, so that its index
// members go with it (I5), and unlinks it where there is no entry.
func (c *Core) removeTertiary(ctx context.Context, t *Type, key recordkey.Key) (int, error) {
	l := store.Leftover{Key: key.String()}
	declared := t.Schema.Tertiary[key.Name()]
	if !declared.Indexed {
		return c.discard(ctx, l)
	}
	raws, err := store.Inspect(ctx, c.Engine, []string{key.String()}, 0)
	if err != nil || raws[0].Type != "set" {
		return c.discard(ctx, l)
	}
	op := store.Op{PRK: key.PRK(), Key: key, Command: "SREM", Args: raws[0].Items, Write: true}
	for _, member := range raws[0].Items {
		if index, ok := t.index(key.Name(), member); ok {
			op.Unindex = append(op.Unindex, index)
		}
	}
	_, err = c.Tertiary(ctx, t, op)
	if errors.Is(err, store.ErrNotFound) {
		l.Owner = key.PRK().String()
		return c.discard(ctx, l)
	}
	if err != nil {
		return 0, err
	}
	return 1, nil
}

// removeIndex takes out of an index set the members whose entries are not live; the others stay (I5).
func (c *Core) removeIndex(ctx context.Context, t *Type, key recordkey.Key) (int, error) {
	raws, err := store.Inspect(ctx, c.Engine, []string{key.String()}, 0)
	if err != nil {
		return 0, err
	}
	if raws[0].Type != "set" || !t.keepsIndex(key.Field()) {
		return c.discard(ctx, store.Leftover{Key: key.String()})
	}
	gone := 0
	for _, member := range raws[0].Items {
		l := store.Leftover{Key: key.String(), Member: member, Owner: key.Namespace().String() + member}
		n, err := c.discard(ctx, l)
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
func (t *Type) keepsIndex(name string) bool {
	return t.Schema.Fields[name].Role == "indexed" || t.Schema.Tertiary[name].Indexed
}
