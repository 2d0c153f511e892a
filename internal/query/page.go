package query

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"iter"
	"slices"
	"strconv"
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

// Page reads at most want of the entries that a selection means, after a continuation ("": where the selection begins),
// and the continuation for the rest, "" at the end.
func (rd *Reader) Page(ctx context.Context, s Selection, after string, want int) (found []store.Found, next string, err error) {
	switch after = cmp.Or(after, s.from); {
	case s.field != "":
		return rd.pageInOrder(ctx, s, after, want)
	case s.one != nil && after != "":
		return nil, "", store.ErrCursor // there is never a second page
	case s.one != nil:
		found, err = rd.filter(ctx, s, *s.one)
		return found, "", err
	}
	// Most of what is scanned may belong to others.
	err = rd.walk(ctx, s, after, max(want, scanBatch), want, func(some []store.Found, at bookmark) bool {
		found, next = some, ""
		if len(found) > 0 || !s.MayRead() {
			next = at.String()
		}
		return len(found) == 0 && s.MayRead()
	})
	return found, next, err
}

// Batches yields all entries that a selection means, some at a time. An error ends it.
func (rd *Reader) Batches(ctx context.Context, s Selection) iter.Seq2[[]store.Found, error] {
	return func(yield func([]store.Found, error) bool) {
		if s.Backwards() { // for pages alone
			yield(nil, store.ErrCursor)
			return
		}
		if s.field == "" && s.one == nil {
			each := func(found []store.Found, _ bookmark) bool { return yield(found, nil) }
			if err := rd.walk(ctx, s, s.from, scanBatch, readBatch, each); err != nil {
				yield(nil, err)
			}
			return
		}
		after := ""
		for more := true; more; more = after != "" {
			var found []store.Found
			var err error
			found, after, err = rd.Page(ctx, s, after, readBatch)
			if !yield(found, err) || err != nil {
				return
			}
		}
	}
}

// walk scans for about count keys at a time, reads at most size of the entries at a time, and yields those that are
// selected with the bookmark after them.
func (rd *Reader) walk(ctx context.Context, s Selection, after string, count, size int, yield func([]store.Found, bookmark) bool) error {
	at, err := parseBookmark(after, false)
	if err != nil {
		return err
	}
	from, err := rd.source(ctx, s)
	if err != nil {
		return err
	}
	for {
		from.Cursor, from.Count = at.cursor, count
		prks, cursor, err := rd.candidates(ctx, s, from)
		if err != nil {
			return err
		}
		s.countScanned(count)
		complete := at.cursor == "" && cursor == ""
		rest := at.rest(prks)
		for some := range slices.Chunk(rest, size) {
			found, err := rd.filter(ctx, s, lookups(some)...)
			if err != nil {
				return err
			}
			at.add(some, complete)
			if rest = rest[len(some):]; len(rest) == 0 {
				at = bookmark{cursor: cursor}
			}
			if !yield(found, at) {
				return nil
			}
		}
		if at = (bookmark{cursor: cursor}); at.atEnd() {
			return nil
		}
		if !s.MayRead() {
			yield(nil, at)
			return nil
		}
	}
}

// countBatch is how many keys Count asks for at a time: a server takes a few milliseconds for them.
const countBatch = 5000

// Count counts the entries that a selection means, and tells of those that cannot be read. Where all are meant, only what may be a
// tombstone is read, and damage is counted, too.
func (rd *Reader) Count(ctx context.Context, s Selection, unreadable func(error)) (n int64, err error) {
	judge := func(found []store.Found) {
		for _, f := range found {
			if f.Err == nil {
				n++
			} else {
				unreadable(f.Err)
			}
		}
	}
	if !s.selectsAll() {
		for found, err := range rd.Batches(ctx, s) {
			if err != nil {
				return 0, err
			}
			judge(found)
		}
		return n, nil
	}
	prefix, err := s.Type.PRK("x")
	if err != nil {
		return 0, err
	}
	at := store.Scan{Pattern: s.Type.Guard.Entries, Tally: strings.TrimSuffix(prefix.String(), "x"), Count: countBatch}
	for keys, err := range store.ScanAll(ctx, rd.Engine, at) {
		if err != nil {
			return 0, err
		}
		counted, err := strconv.ParseInt(keys[0], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%w: %w: no number of entries", store.ErrUnavailable, store.ErrReply)
		}
		n += counted
		found, err := rd.filter(ctx, s, lookups(rd.PRKs(s.Type, keys[1:]))...)
		if err != nil {
			return 0, err
		}
		judge(found)
	}
	return n, nil
}

// PRKs keeps of what SCAN found the type's own PRKs, in the order of their text, each once.
func (rd *Reader) PRKs(t *change.Type, keys []string) []recordkey.Key {
	prks := make([]recordkey.Key, 0, len(keys))
	slices.Sort(keys)
	for _, k := range slices.Compact(keys) {
		key, err := recordkey.Parse(k)
		if err == nil && rd.owns(t, key) {
			prks = append(prks, key)
		}
	}
	return prks
}

// owns reports whether a key is a PRK of the type in the view.
func (rd *Reader) owns(t *change.Type, key recordkey.Key) bool {
	return key.Kind() == recordkey.KindPRK && key.Type() == t.Name && key.Field() == t.Schema.Primary && key.Namespace() == rd.NS
}

// A bookmark is a position in a listing: a cursor of the server's and, inside the batch that it gives, what was taken
// of it. A batch that was the complete keyspace is taken in order, up to a key. Of another batch, which the server may
// cut in another way when asked again, the keys taken are remembered one by one, as hashes, so that none that is still
// to come is missed. In an ordered listing it is the last place.
type bookmark struct {
	cursor   string
	last     string
	taken    []uint64
	unhashed []recordkey.Key // taken besides
}

// The cursors of ordered listings, and none of a server's: on from a place, and back from it; with its entry.
const (
	inOrder   = "o"
	backward  = "b"
	inclusive = "="
)

func (b bookmark) atEnd() bool {
	return b.cursor == "" && b.last == "" && len(b.taken)+len(b.unhashed) == 0
}

// rest is what is left of a batch.
func (b bookmark) rest(prks []recordkey.Key) []recordkey.Key {
	return slices.DeleteFunc(prks, func(k recordkey.Key) bool {
		return b.last != "" && k.String() <= b.last || slices.Contains(b.taken, digest(k))
	})
}

func (b *bookmark) add(prks []recordkey.Key, complete bool) {
	if complete {
		b.last = prks[len(prks)-1].String()
		return
	}
	b.unhashed = append(b.unhashed, prks...)
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
	for _, k := range b.unhashed {
		b.taken = append(b.taken, digest(k))
	}
	raw, _ := binary.Append(nil, binary.BigEndian, b.taken)
	encode := base64.RawURLEncoding.EncodeToString
	return strings.Join([]string{b.cursor, encode([]byte(b.last)), encode(raw)}, ".")
}

// maxBookmark bounds the continuation that a caller may hand in.
const maxBookmark = 1 << 20

func parseBookmark(text string, ordered bool) (bookmark, error) {
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
	b := bookmark{cursor: parts[0], last: string(last), taken: make([]uint64, len(raw)/8)}
	_, err := binary.Decode(raw, binary.BigEndian, b.taken)
	isOrdered := slices.Contains([]string{inOrder, backward}, strings.TrimSuffix(b.cursor, inclusive))
	if err != nil || b.atEnd() || ordered != isOrdered || ordered && (b.last == "" || len(b.taken) != 1) {
		return bookmark{}, store.ErrCursor
	}
	return b, nil
}
