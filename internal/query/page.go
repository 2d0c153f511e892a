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
	"time"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// scanBatch is the number of keys that a listing requests at a time, and readBatch is the number of
// entries that it reads at a time. A page of a single index requests only indexBatch members at a
// time, because most of them are selected, unless only disabled entries are. These numbers do not
// depend on the size of a page: a continuation says which keys of a batch were returned, and the
// next page must request the same batch.
const (
	scanBatch  = 1000
	readBatch  = 256
	indexBatch = 100
)

// Page returns up to want selected entries after a continuation, or from the start of the selection
// if after is "". next is the continuation for the rest, or "" at the end.
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
	var rest bookmark // where the listing continues, unless the walk reaches its end
	more := true
	size := func() int { return s.batch(want - len(found)) }
	count := scanBatch // most keys may belong to other types, or have other values
	if len(s.indexes) == 1 && !s.onlyDisabled() {
		count = indexBatch
	}
	err = rd.walk(ctx, s, after, count, size, func(some []store.Found, at bookmark) bool {
		found, rest = append(found, some...), at
		more = len(found) < want && s.MayRead()
		return more
	})
	if !more {
		next = rest.String()
	}
	return found, next, err
}

// Batches yields all selected entries in batches, without the limits on what a page may read. It
// ends after an error.
func (rd *Reader) Batches(ctx context.Context, s Selection) iter.Seq2[[]store.Found, error] {
	s.left, s.bytes = nil, nil
	return func(yield func([]store.Found, error) bool) {
		if s.Backwards() { // only Page supports this
			yield(nil, store.ErrCursor)
			return
		}
		if s.field == "" && s.one == nil {
			each := func(found []store.Found, _ bookmark) bool { return yield(found, nil) }
			if err := rd.walkAll(ctx, s, func() int { return readBatch }, each); err != nil {
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

// walk scans about count keys at a time and reads up to size() entries at a time. It yields the
// selected entries, together with the bookmark of the position after them.
func (rd *Reader) walk(ctx context.Context, s Selection, after string, count int, size func() int, yield func([]store.Found, bookmark) bool) error {
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
		if more, err := rd.walkKeys(ctx, s, prks, at, cursor, size, yield); !more || err != nil {
			return err
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

// walkAll works like walk, but reads the keys by ScanAll, which misses none while slots of a
// cluster move. A selection that continues from a position is walked as usual, because ScanAll
// cannot.
func (rd *Reader) walkAll(ctx context.Context, s Selection, size func() int, yield func([]store.Found, bookmark) bool) error {
	if s.from != "" {
		return rd.walk(ctx, s, s.from, scanBatch, size, yield)
	}
	from, err := rd.source(ctx, s)
	if err != nil {
		return err
	}
	from.Count = scanBatch
	for keys, err := range rd.Engine.ScanAll(ctx, from) {
		if err != nil {
			return err
		}
		if more, err := rd.walkKeys(ctx, s, rd.scanned(s, from, keys), bookmark{}, "", size, yield); !more || err != nil {
			return err
		}
	}
	return nil
}

// walkKeys reads and yields the selected entries among the keys of one scan, as walk does. at is
// where the scan began, and cursor is where the next one begins. It reports whether to continue.
func (rd *Reader) walkKeys(
	ctx context.Context, s Selection, prks []recordkey.Key, at bookmark, cursor string, size func() int, yield func([]store.Found, bookmark) bool,
) (more bool, err error) {
	complete := at.cursor == "" && cursor == ""
	for rest := at.notReturned(prks); len(rest) > 0; {
		some := rest[:min(s.checks(), len(rest))]
		var enabled enabledSet
		if s.onlyDisabled() {
			if enabled, err = rd.findEnabled(ctx, s, some); err != nil {
				return false, err
			}
		}
		for len(some) > 0 {
			batch := cut(some, size(), enabled.has)
			found, err := rd.filter(ctx, s, lookups(slices.DeleteFunc(slices.Clone(batch), enabled.has))...)
			if err != nil {
				return false, err
			}
			at.add(batch, complete)
			some = some[len(batch):]
			if rest = rest[len(batch):]; len(rest) == 0 {
				at = bookmark{cursor: cursor}
			}
			if !yield(found, at) {
				return false, nil
			}
		}
	}
	return true, nil
}

// countBatch is the number of keys that Count requests at a time. A server needs a few milliseconds
// for them.
const countBatch = 5000

// Count returns the number of selected entries, and calls unreadable for each entry that cannot be
// read. If all entries are selected, it reads only records that are not live entries. It then
// counts damaged ones as well, and does not call unreadable.
func (rd *Reader) Count(ctx context.Context, s Selection, unreadable func(error)) (n int64, err error) {
	count := func(found []store.Found) {
		for _, f := range found {
			if f.Err == nil {
				n++
			} else {
				unreadable(f.Err)
			}
		}
	}
	if !s.SelectsAll() {
		for found, err := range rd.Batches(ctx, s) {
			if err != nil {
				return 0, err
			}
			count(found)
		}
		return n, nil
	}
	for batch, err := range rd.tally(ctx, s.Type) {
		if err != nil {
			return 0, err
		}
		var unknown []store.Lookup
		for _, r := range batch.others {
			if r.Fields[store.FieldRetired] == "" {
				unknown = append(unknown, store.Lookup{PRK: r.Key})
			}
		}
		found, err := rd.filter(ctx, s, unknown...)
		if err != nil {
			return 0, err
		}
		n += batch.live + int64(len(found))
	}
	return n, nil
}

// Retired yields a record for each retired UID of a type, with its key and only the field
// FieldRetired. It may yield one twice, for the reasons for which userdb.Type.All may yield an
// entry twice.
func (rd *Reader) Retired(ctx context.Context, t *change.Type) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		for batch, err := range rd.tally(ctx, t) {
			if err != nil {
				yield(store.Record{}, err)
				return
			}
			for _, r := range batch.others {
				if r.Fields[store.FieldRetired] != "" && !yield(r, nil) {
					return
				}
			}
		}
	}
}

// Limits on what RetiredPage scans: the number of keys at a time, and about how many for a page and
// for how long.
const (
	retiredScan     = 1000
	maxRetiredScan  = 100_000
	maxRetiredSpent = 80 * time.Millisecond
)

// RetiredPage returns up to want of the records that Retired yields, after a continuation, or from
// the start if after is "". next is the continuation for the rest, or "" at the end. A page may
// have fewer records, or none, if only a few of many keys belong to retired UIDs.
func (rd *Reader) RetiredPage(ctx context.Context, t *change.Type, after string, want int) (found []store.Record, next string, err error) {
	at, err := parseBookmark(after, false)
	if err != nil {
		return nil, "", err
	}
	from, err := tallyScan(t, retiredScan)
	started := time.Now()
	for scanned := 0; err == nil; scanned += retiredScan {
		from.Cursor = at.cursor
		keys, cursor, err := rd.Engine.Scan(ctx, from)
		if err != nil {
			return nil, "", err
		}
		batch, err := rd.readTally(ctx, t, keys)
		if err != nil {
			return nil, "", err
		}
		retired := map[recordkey.Key]store.Record{}
		var prks []recordkey.Key
		for _, r := range batch.others {
			if r.Fields[store.FieldRetired] != "" {
				retired[r.Key] = r
				prks = append(prks, r.Key)
			}
		}
		complete := at.cursor == "" && cursor == ""
		rest := at.notReturned(prks)
		some := rest[:min(want-len(found), len(rest))]
		for _, prk := range some {
			found = append(found, retired[prk])
		}
		if len(some) < len(rest) {
			if len(some) > 0 {
				at.add(some, complete)
			}
			return found, at.String(), nil
		}
		at = bookmark{cursor: cursor}
		if at.atEnd() || len(found) == want || scanned >= maxRetiredScan || time.Since(started) >= maxRetiredSpent {
			return found, at.String(), nil
		}
	}
	return nil, "", err
}

// tallyScan returns a scan of the PRKs of a type in which live entries are only counted.
func tallyScan(t *change.Type, count int) (store.Scan, error) {
	prefix, err := t.PRK("x")
	return store.Scan{Pattern: t.Guard.Entries, Tally: strings.TrimSuffix(prefix.String(), "x"), Count: count}, err
}

// A talliedBatch holds the result of tallying a batch of PRKs.
type talliedBatch struct {
	live   int64          // the number of live entries
	others []store.Record // tombstones and damaged records, with only the field FieldRetired
}

// tally scans the PRKs of a type in batches. It ends after an error.
func (rd *Reader) tally(ctx context.Context, t *change.Type) iter.Seq2[talliedBatch, error] {
	return func(yield func(talliedBatch, error) bool) {
		at, err := tallyScan(t, countBatch)
		if err != nil {
			yield(talliedBatch{}, err)
			return
		}
		for keys, err := range rd.Engine.ScanAll(ctx, at) {
			var batch talliedBatch
			if err == nil {
				batch, err = rd.readTally(ctx, t, keys)
			}
			if !yield(batch, err) || err != nil {
				return
			}
		}
	}
}

// readTally parses the result of a scan with a Tally, and reads the records that it lists.
func (rd *Reader) readTally(ctx context.Context, t *change.Type, keys []string) (batch talliedBatch, err error) {
	if len(keys) == 0 {
		return batch, fmt.Errorf("%w: %w: no number of entries", store.ErrUnavailable, store.ErrReply)
	}
	if batch.live, err = strconv.ParseInt(keys[0], 10, 64); err != nil {
		return batch, fmt.Errorf("%w: %w: not a number of entries", store.ErrUnavailable, store.ErrReply)
	}
	prks := rd.PRKs(t, keys[1:])
	reads := make([]store.RawRead, len(prks))
	for i, prk := range prks {
		reads[i] = store.RawRead{Key: prk.String(), As: store.RawField, Field: store.FieldRetired}
	}
	raws, err := rd.Engine.ReadRaw(ctx, reads)
	for i, raw := range raws {
		batch.others = append(batch.others, store.Record{Key: prks[i], Fields: map[string]string{store.FieldRetired: raw.Wire}})
	}
	return batch, err
}

// PRKs returns the PRKs of type t in the result of a SCAN, sorted by their text and without
// duplicates.
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

// owns reports whether a key is a PRK of type t in the reader's view.
func (rd *Reader) owns(t *change.Type, key recordkey.Key) bool {
	return key.Kind() == recordkey.KindPRK && key.Type() == t.Name && key.Field() == t.Schema.Primary && key.Namespace() == rd.NS
}

// A bookmark is a position in a listing: a cursor of the server, and the keys of the current batch
// that were already returned. If the batch was the complete keyspace, its keys are returned in
// order, and last is the last one returned. Otherwise the server may divide the keys differently
// next time, so the bookmark remembers a hash of each returned key, and no key is missed. In an
// ordered listing, last is the last member, and taken holds the digest of the order.
type bookmark struct {
	cursor   string
	last     string
	taken    []uint64
	unhashed []recordkey.Key // also returned, not yet hashed
}

// The cursors of ordered listings. A server uses none of them as its own cursor. They say to read
// forward or backward from a position; the suffix includes the entry at the position.
const (
	inOrder   = "o"
	backward  = "b"
	inclusive = "="
)

func (b bookmark) atEnd() bool {
	return b.cursor == "" && b.last == "" && len(b.taken)+len(b.unhashed) == 0
}

// notReturned returns the keys of a batch that were not yet returned.
func (b bookmark) notReturned(prks []recordkey.Key) []recordkey.Key {
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

// String returns the text of the bookmark, or "" at the end of a listing.
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

// maxBookmark is the maximum length of a continuation from a caller.
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
