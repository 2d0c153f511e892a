package query

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
func (c *Reader) Keys(ctx context.Context, pattern string) iter.Seq2[[]string, error] {
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
func (c *Reader) visible(ctx context.Context, keys []string) ([]string, error) {
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
