package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// Find implements [store.Engine]. It reads all SRKs in one round, and the entries in another.
func (e *Engine) Find(ctx context.Context, lookups []store.Lookup) ([]store.Found, error) {
	found, _, err := sendUntilAnswered(ctx, e, func() ([]store.Found, error) { return e.FindWithoutScript(ctx, lookups) })
	if err != nil {
		return nil, redisx.IgnoreUnknownOutcome(err)
	}
	for _, f := range found {
		e.completeLater(ctx, f.Record.Key, f.Record.Fields)
	}
	return found, nil
}

// ReadRaw implements [store.Engine]. It calls OneSlot.ReadRaw until the servers answer.
func (e *Engine) ReadRaw(ctx context.Context, at []store.RawRead) ([]store.Raw, error) {
	raws, _, err := sendUntilAnswered(ctx, e, func() ([]store.Raw, error) { return e.OneSlot.ReadRaw(ctx, at) })
	return raws, redisx.IgnoreUnknownOutcome(err)
}

// maxReads limits how often Read reads an entry that keeps changing.
const maxReads = 8

// Read implements [store.Engine]. It reads entries and their tertiary records in one round, and
// repeats that for entries that changed meanwhile.
func (e *Engine) Read(ctx context.Context, reads []store.EntryRead) ([]store.Entry, error) {
	entries := make([]store.Entry, len(reads))
	for i := range entries {
		entries[i].Err = store.ErrConflict
	}
	for range maxReads {
		var todo []int
		for i := range entries {
			if errors.Is(entries[i].Err, store.ErrConflict) {
				todo = append(todo, i)
			}
		}
		if len(todo) == 0 {
			break
		}
		if err := e.readEntries(ctx, reads, entries, todo); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// readEntries reads the entries whose indexes are in todo. If an entry changed while its tertiary
// records were read, its Err is ErrConflict.
func (e *Engine) readEntries(ctx context.Context, reads []store.EntryRead, entries []store.Entry, todo []int) error {
	results := make([]func() (store.Entry, error), len(todo))
	revs := make([]store.RawRead, len(todo))
	_, _, err := sendUntilAnswered(ctx, e, func() (any, error) {
		pipe := e.client.Pipeline()
		for j, i := range todo {
			results[j] = e.queueEntry(ctx, pipe, reads[i])
			revs[j] = store.RawRead{Key: reads[i].PRK.String(), As: store.RawField, Field: store.FieldRev}
		}
		return nil, redisx.Exec(ctx, pipe)
	})
	if err != nil {
		return redisx.IgnoreUnknownOutcome(err)
	}
	after, err := e.ReadRaw(ctx, revs)
	if err != nil {
		return err
	}
	for j, i := range todo {
		if entries[i], err = results[j](); err != nil {
			return err
		}
		fields := entries[i].Record.Fields
		if fill := fields[store.FieldFill]; fill != "" {
			if err := e.complete(ctx, reads[i].PRK, fill); err != nil {
				return err
			}
			entries[i].Err = store.ErrConflict
		} else if entries[i].Err == nil && after[j].Wire != fields[store.FieldRev] {
			entries[i].Err = store.ErrConflict
		}
	}
	return nil
}

// queueEntry queues the commands that read an entry. The function it returns makes the entry from
// their replies, and reads the rest of large records.
func (e *Engine) queueEntry(ctx context.Context, p redis.Pipeliner, r store.EntryRead) func() (store.Entry, error) {
	entry := p.HGetAll(ctx, r.PRK.String())
	kinds, parts := make([]*redis.StatusCmd, len(r.Keys)), make([]*redis.Cmd, len(r.Keys))
	for i, k := range r.Keys {
		command := e.PageCommand(r.Kinds[i], "")
		kinds[i] = p.Type(ctx, k.String())
		parts[i] = p.Do(ctx, redisx.AppendWords([]any{command[0], k.String()}, command[1:])...)
	}
	return func() (store.Entry, error) {
		w := store.Entry{Found: redisx.FoundAt(r.PRK, entry.Val(), entry.Err())}
		if err := store.StoreError(w.Err); err != nil {
			return w, err
		}
		for i, kind := range kinds {
			if err := kind.Err(); err != nil {
				return w, redisx.Fail(err)
			}
			part, err := store.Part{Kind: kind.Val()}, error(nil)
			if part.Kind == r.Kinds[i] {
				part.Values, err = e.readValues(ctx, r.Keys[i], part.Kind, parts[i])
			}
			if err != nil && !redisx.WrongType(err) && !errors.Is(err, redis.Nil) {
				return w, redisx.Fail(err)
			}
			w.Parts = append(w.Parts, part)
		}
		return w, nil
	}
}

// readValues returns the values of a record whose first page is the reply to cmd.
func (e *Engine) readValues(ctx context.Context, key recordkey.Key, kind string, cmd *redis.Cmd) ([]string, error) {
	reply, err := redisx.ParseReply(e.PageCommand(kind, "")[0], cmd.Val())
	if err = cmp.Or(cmd.Err(), err); err != nil || kind == "string" {
		return []string{reply.Text}, err
	}
	values, next, err := e.ParsePage(kind, "", reply)
	if err == nil && next != "" {
		values, err = e.ReadRest(ctx, key, kind, next, values)
	}
	for i := 0; kind == "zset" && i+1 < len(values); i += 2 {
		values[i], values[i+1] = values[i+1], values[i] // scores come before members
	}
	return values, err
}

// Scan implements [store.Engine]. It scans one master after the other. While slots move between
// masters, it may miss their keys or return them twice. A cursor holds the mark of a shard, the
// name of its master and the master's own cursor. If that master is gone when a scan continues,
// another node has replaced it, whose cursors mean something else: the scan repeats that shard from
// its beginning.
func (e *Engine) Scan(ctx context.Context, s store.Scan) ([]string, string, error) {
	if s.Index.IsValid() {
		return e.ScanIndex(ctx, s)
	}
	masters, known, err := e.scanMasters(ctx, s.Cursor == "")
	if err != nil {
		return nil, "", err
	}
	keys, i, next, err := scanNext(ctx, masters, s)
	if err != nil && known { // a master may have left
		if masters, _, err = e.scanMasters(ctx, true); err == nil {
			keys, i, next, err = scanNext(ctx, masters, s)
		}
	}
	if err != nil {
		return nil, "", err
	}
	if next.At == 0 {
		if i++; i == len(masters) {
			return keys, "", nil
		}
	}
	return keys, masters[i].cursor(next), nil
}

// scanNext scans the master at which a scan continues. It also returns the master's index.
func scanNext(ctx context.Context, masters []master, s store.Scan) (keys []string, i int, next redisx.Cursor, err error) {
	i, at, err := locate(masters, s.Cursor)
	if err == nil {
		keys, next, err = redisx.Scan(ctx, masters[i].client, at, s)
		err = redisx.Fail(err)
	}
	return keys, i, next, err
}

// A master is a server that owns slots. Its mark identifies its shard: the smallest number whose
// decimal text, used as a key, belongs to that shard. A replica that replaces its master gets the
// same mark.
type master struct {
	addr   string
	client redis.UniversalClient
	mark   int
}

func (m master) cursor(at redisx.Cursor) string {
	return fmt.Sprintf("%d-%s-%s", m.mark, m.name(), cmp.Or(at.String(), "0"))
}

func (m master) name() string { return strings.NewReplacer(".", "_", "-", "_").Replace(m.addr) }

// maxMarks limits the numbers that masters tries. Even a master with a single slot serves a number
// below it.
const maxMarks = 1 << 18

// masters returns the masters in the order of their marks, which stays the same when replicas
// replace masters. In the order of addresses, a scan could miss a shard whose replica takes over.
func (e *Engine) masters(ctx context.Context) (all []master, err error) {
	if e.cc == nil {
		return []master{{addr: "one", client: e.client}}, nil
	}
	var mu sync.Mutex
	left := map[string]*redis.Client{} // masters whose mark is not known yet, by address
	err = e.cc.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		left[c.Options().Addr] = c
		return nil
	})
	if err == nil && len(left) == 0 {
		err = errors.New("the cluster has no masters")
	}
	for mark := 0; err == nil && len(left) > 0 && mark < maxMarks; mark++ {
		var node *redis.Client
		node, err = e.cc.MasterForKey(ctx, strconv.Itoa(mark))
		if err != nil {
			break
		}
		// For a slot that no master serves, the client returns any node, even a replica.
		if addr := node.Options().Addr; left[addr] != nil {
			all = append(all, master{addr, node, mark})
			delete(left, addr)
		}
	}
	for _, addr := range slices.Sorted(maps.Keys(left)) {
		all = append(all, master{addr, left[addr], maxMarks})
	}
	return all, redisx.Fail(err)
}

// knownMastersAge is how long scans use the same masters. The client keeps each reply that lists
// them for a minute, and a reply may hold many ranges of slots.
const knownMastersAge = time.Second

// A knownMasters holds the masters that were read at a time.
type knownMasters struct {
	all []master
	at  time.Time
}

// scanMasters returns the masters for one step of a scan, and whether they may have changed. It
// reads them anew for the first step. A later step finds its master by the address or, if that is
// not among those known, by the mark.
func (e *Engine) scanMasters(ctx context.Context, first bool) (all []master, known bool, err error) {
	now := e.now()
	if last := e.known.Load(); !first && last != nil && now.Sub(last.at).Abs() < knownMastersAge {
		return last.all, true, nil
	}
	all, err = e.masters(ctx)
	if err == nil {
		e.known.Store(&knownMasters{all, now})
	}
	return all, false, err
}

// locate returns the index of the master at which a scan continues, and the master's own cursor.
func locate(masters []master, cursor string) (int, redisx.Cursor, error) {
	if cursor == "" {
		return 0, redisx.Cursor{}, nil
	}
	parts := strings.SplitN(cursor, "-", 3)
	if len(parts) != 3 {
		return 0, redisx.Cursor{}, store.ErrCursor
	}
	mark, err := strconv.Atoi(parts[0])
	at, bad := redisx.ParseCursor(parts[2])
	if err != nil || bad != nil || mark < 0 {
		return 0, redisx.Cursor{}, store.ErrCursor
	}
	if i := slices.IndexFunc(masters, func(m master) bool { return m.name() == parts[1] }); i >= 0 {
		return i, at, nil
	}
	if i := slices.IndexFunc(masters, func(m master) bool { return m.mark >= mark }); i >= 0 {
		return i, redisx.Cursor{}, nil
	}
	return len(masters) - 1, redisx.Cursor{}, nil
}
