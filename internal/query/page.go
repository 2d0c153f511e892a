package query

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"iter"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// scanBatch is how many keys a listing asks for at a time, readBatch how many entries it reads at a time.
const (
	scanBatch = 1000
	readBatch = 256
)

// Page reads at most want of the entries that a selection means, after a continuation, and the
// continuation for the rest, "" at the end.
func (c *Reader) Page(ctx context.Context, s Selection, after string, want int) ([]store.Found, string, error) {
	switch {
	case s.field != "":
		return c.pageInOrder(ctx, s, after, want)
	case s.one != nil:
		return c.pageOfOne(ctx, s, after)
	}
	at, err := parseBookmark(after)
	if err != nil {
		return nil, "", err
	}
	from, err := c.source(ctx, s)
	if err != nil {
		return nil, "", err
	}
	for {
		from.Cursor, from.Count = at.cursor, want
		prks, cursor, err := c.candidates(ctx, s, from)
		if err != nil {
			return nil, "", err
		}
		complete := at.cursor == "" && cursor == ""
		prks = at.rest(prks)
		n := min(want, len(prks))
		found, err := c.filter(ctx, s, prks[:n])
		if err != nil {
			return nil, "", err
		}
		if n < len(prks) {
			at.mark(prks[:n], complete)
		} else {
			at = bookmark{cursor: cursor}
		}
		if len(found) > 0 || at.atEnd() {
			return found, at.String(), nil
		}
	}
}

func (c *Reader) pageOfOne(ctx context.Context, s Selection, after string) ([]store.Found, string, error) {
	if after != "" {
		return nil, "", store.ErrCursor // there is never a second page
	}
	r, err := c.Read(ctx, *s.one)
	switch {
	case err == store.ErrNotFound:
		return nil, "", nil
	case err != nil:
		return []store.Found{{Err: err}}, "", nil
	}
	found, err := c.filter(ctx, s, []recordkey.Key{r.Key})
	return found, "", err
}

// Batches yields all entries that a selection means, after a continuation, some at a time. An error ends it.
func (c *Reader) Batches(ctx context.Context, s Selection, after string) iter.Seq2[[]store.Found, error] {
	return func(yield func([]store.Found, error) bool) {
		if s.field == "" && s.one == nil {
			if err := c.eachScanned(ctx, s, after, func(fs []store.Found) bool { return yield(fs, nil) }); err != nil {
				yield(nil, err)
			}
			return
		}
		for more := true; more; more = after != "" {
			var found []store.Found
			var err error
			found, after, err = c.Page(ctx, s, after, readBatch)
			if !yield(found, err) || err != nil {
				return
			}
		}
	}
}

// eachScanned reads what one scan gives, whatever its size, without a page's bookmarks.
func (c *Reader) eachScanned(ctx context.Context, s Selection, after string, yield func([]store.Found) bool) error {
	at, err := parseBookmark(after)
	if err != nil {
		return err
	}
	from, err := c.source(ctx, s)
	if err != nil {
		return err
	}
	for {
		from.Cursor, from.Count = at.cursor, scanBatch
		prks, cursor, err := c.candidates(ctx, s, from)
		if err != nil {
			return err
		}
		for prks := range slices.Chunk(at.rest(prks), readBatch) {
			found, err := c.filter(ctx, s, prks)
			if err != nil || !yield(found) {
				return err
			}
		}
		if at = (bookmark{cursor: cursor}); cursor == "" {
			return nil
		}
	}
}

// PRKs keeps of what SCAN found the type's own PRKs, in the order of their text, each once.
func (c *Reader) PRKs(t *change.Type, keys []string) []recordkey.Key {
	prks := make([]recordkey.Key, 0, len(keys))
	slices.Sort(keys)
	for _, k := range slices.Compact(keys) {
		key, err := recordkey.Parse(k)
		if err == nil && c.owns(t, key) {
			prks = append(prks, key)
		}
	}
	return prks
}

// owns reports whether a key is a PRK of the type in the view.
func (c *Reader) owns(t *change.Type, key recordkey.Key) bool {
	return key.Kind() == recordkey.KindPRK && key.Type() == t.Name && key.Field() == t.Schema.Primary && key.Namespace() == c.NS
}

// A bookmark is a position in a listing: a cursor of the server's and, inside the batch that it gives,
// what was taken of it. A batch that was the complete keyspace is taken in order, up to a key. Of
// another batch, which the server may cut in another way when asked again, the keys taken are
// remembered one by one, as hashes, so that none that is still to come is missed.
type bookmark struct {
	cursor string
	last   string
	taken  []uint64
}

func (b bookmark) atEnd() bool { return b.cursor == "" && b.last == "" && len(b.taken) == 0 }

// rest is what is left of a batch.
func (b bookmark) rest(prks []recordkey.Key) []recordkey.Key {
	return slices.DeleteFunc(prks, func(k recordkey.Key) bool {
		return b.last != "" && k.String() <= b.last || slices.Contains(b.taken, digest(k))
	})
}

func (b *bookmark) mark(prks []recordkey.Key, complete bool) {
	if complete {
		b.last = prks[len(prks)-1].String()
		return
	}
	for _, k := range prks {
		b.taken = append(b.taken, digest(k))
	}
}

func digest(k recordkey.Key) uint64 {
	h := fnv.New64a()
	h.Write([]byte(k.String()))
	return h.Sum64()
}

// String is the bookmark as callers keep it: "" at the end of a listing.
func (b bookmark) String() string {
	if b.atEnd() {
		return ""
	}
	raw := make([]byte, 0, 8*len(b.taken))
	for _, t := range b.taken {
		raw = binary.BigEndian.AppendUint64(raw, t)
	}
	encode := base64.RawURLEncoding.EncodeToString
	return strings.Join([]string{b.cursor, encode([]byte(b.last)), encode(raw)}, ".")
}

// maxBookmark bounds the continuation that a caller may hand in.
const maxBookmark = 1 << 20

func parseBookmark(text string) (bookmark, error) {
	if text == "" {
		return bookmark{}, nil
	}
	parts := strings.Split(text, ".")
	if len(parts) != 3 || len(text) > maxBookmark {
		return bookmark{}, store.ErrCursor
	}
	last, badLast := base64.RawURLEncoding.DecodeString(parts[1])
	raw, badTaken := base64.RawURLEncoding.DecodeString(parts[2])
	if badLast != nil || badTaken != nil || len(raw)%8 != 0 {
		return bookmark{}, store.ErrCursor
	}
	b := bookmark{cursor: parts[0], last: string(last)}
	for ; len(raw) > 0; raw = raw[8:] {
		b.taken = append(b.taken, binary.BigEndian.Uint64(raw))
	}
	if b.atEnd() {
		return bookmark{}, store.ErrCursor
	}
	return b, nil
}
