package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// Find implements [store.Engine]: one round of SRKs in parallel, one of entries.
func (e *Engine) Find(ctx context.Context, lookups []store.Lookup) ([]store.Found, error) {
	var found []store.Found
	_, err := e.again(ctx, func() (_ any, err error) {
		found, err = e.FindByCommands(ctx, lookups)
		return nil, err
	})
	if err != nil {
		return nil, redisx.Harmless(err)
	}
	for _, f := range found {
		e.completeLater(ctx, f.Record.Key, f.Record.Fields)
	}
	return found, nil
}

// Look implements [store.Engine]: strings of one command would have to lie in one slot.
func (e *Engine) Look(ctx context.Context, at []store.LookAt) (raws []store.Raw, err error) {
	_, err = e.again(ctx, func() (_ any, err error) {
		raws, err = e.Keys.Look(ctx, at)
		return nil, err
	})
	return raws, redisx.Harmless(err)
}

// readLooks is how often an entry is read that changes all the time.
const readLooks = 8

// Read implements [store.Engine]: entries and their records in one round, and once more those whose
// entry was another by then.
func (e *Engine) Read(ctx context.Context, reads []store.EntryRead) ([]store.Entry, error) {
	entries := make([]store.Entry, len(reads))
	todo := make([]int, len(reads))
	for i := range todo {
		todo[i] = i
	}
	for range readLooks {
		if len(todo) == 0 {
			break
		}
		changed, err := e.readEntries(ctx, reads, entries, todo)
		if err != nil {
			return nil, err
		}
		todo = changed
	}
	for _, i := range todo {
		entries[i] = store.Entry{Found: store.Found{Err: store.ErrConflict}}
	}
	return entries, nil
}

// readEntries reads some of the entries, and returns which of them were others by the time their records were read.
func (e *Engine) readEntries(ctx context.Context, reads []store.EntryRead, entries []store.Entry, todo []int) (changed []int, err error) {
	looks := make([]*entryLook, len(todo))
	err = e.judged(ctx, len(todo), func(p redis.Pipeliner, j int) {
		looks[j] = queueEntry(ctx, p, reads[todo[j]])
	})
	if err != nil {
		return nil, err
	}
	again := make([]*redis.StringCmd, len(todo))
	err = e.judged(ctx, len(todo), func(p redis.Pipeliner, j int) {
		again[j] = p.HGet(ctx, reads[todo[j]].PRK.String(), store.FieldRev)
	})
	if err != nil {
		return nil, err
	}
	for j, i := range todo {
		if entries[i], err = looks[j].entryOf(reads[i]); err != nil {
			return nil, err
		}
		fill := entries[i].Record.Fields[store.FieldFill]
		if fill != "" {
			if err := e.complete(ctx, reads[i].PRK, fill); err != nil {
				return nil, err
			}
		}
		if fill != "" || entries[i].Err == nil && again[j].Val() != entries[i].Record.Fields[store.FieldRev] {
			changed = append(changed, i)
		}
	}
	return changed, nil
}

// judged sends reads whose answers are judged one by one.
func (e *Engine) judged(ctx context.Context, n int, queue func(p redis.Pipeliner, i int)) error {
	_, err := e.again(ctx, func() (any, error) {
		pipe := e.client.Pipeline()
		for i := range n {
			queue(pipe, i)
		}
		if _, err := pipe.Exec(ctx); err != nil && (!redisx.IsAnswer(err) || redisx.Passing(err)) {
			return nil, err
		}
		return nil, nil
	})
	return redisx.Harmless(err)
}

// An entryLook is the answers about one entry.
type entryLook struct {
	entry *redis.MapStringStringCmd
	kinds []*redis.StatusCmd
	parts []func() ([]string, error)
}

func queueEntry(ctx context.Context, p redis.Pipeliner, r store.EntryRead) *entryLook {
	l := &entryLook{entry: p.HGetAll(ctx, r.PRK.String())}
	for i, k := range r.Keys {
		l.kinds = append(l.kinds, p.Type(ctx, k.String()))
		l.parts = append(l.parts, queuePart(ctx, p, k.String(), r.Kind[i]))
	}
	return l
}

func queuePart(ctx context.Context, p redis.Pipeliner, key, kind string) func() ([]string, error) {
	switch kind {
	case "list":
		return p.LRange(ctx, key, 0, -1).Result
	case "zset":
		cmd := p.ZRangeWithScores(ctx, key, 0, -1)
		return func() ([]string, error) { return scored(cmd.Val()), cmd.Err() }
	case "hash":
		cmd := p.HGetAll(ctx, key)
		return func() ([]string, error) { return flatten(cmd.Val()), cmd.Err() }
	case "string":
		cmd := p.Get(ctx, key)
		return func() ([]string, error) { return []string{cmd.Val()}, cmd.Err() }
	}
	return p.SMembers(ctx, key).Result
}

func (l *entryLook) entryOf(r store.EntryRead) (store.Entry, error) {
	w := store.Entry{Found: redisx.FoundAt(r.PRK, l.entry.Val(), l.entry.Err())}
	if w.Err != nil && !store.IsEntryError(w.Err) {
		return w, w.Err
	}
	for i, kind := range l.kinds {
		values, err := l.parts[i]()
		if redisx.WrongType(err) || errors.Is(err, redis.Nil) {
			err = nil
		}
		if err = cmp.Or(kind.Err(), err); err != nil {
			return w, redisx.Fail(err)
		}
		part := store.Part{Kind: kind.Val()}
		if part.Kind == r.Kind[i] {
			part.Values = values
		}
		w.Parts = append(w.Parts, part)
	}
	return w, nil
}

func scored(zs []redis.Z) []string {
	all := make([]string, 0, 2*len(zs))
	for _, z := range zs {
		member, _ := z.Member.(string)
		all = append(all, strconv.FormatFloat(z.Score, 'g', 17, 64), member)
	}
	return all
}

func flatten(fields map[string]string) []string {
	all := make([]string, 0, 2*len(fields))
	for name, value := range fields {
		all = append(all, name, value)
	}
	return all
}

// Scan implements [store.Engine], one master after the other. While slots move between masters, keys
// in them may be missed or found twice.
//
// A cursor is the mark of a shard, the name of its master and the master's own cursor. A master that is gone when a
// listing goes on has been replaced, and its successor numbers its table in another way: then the listing
// goes on with that shard from its beginning.
func (e *Engine) Scan(ctx context.Context, s store.Scan) ([]string, string, error) {
	if s.Index.IsValid() {
		return e.ScanIndex(ctx, s)
	}
	masters, err := e.inOrder(ctx)
	if err != nil {
		return nil, "", err
	}
	i, at, err := locate(masters, s.Cursor)
	if err != nil {
		return nil, "", err
	}
	keys, next, err := redisx.Scan(ctx, masters[i].client, at, func(pipe redis.Pipeliner, at uint64) *redis.ScanCmd {
		return pipe.Scan(ctx, at, s.Pattern, int64(s.Count))
	})
	if err != nil {
		return nil, "", redisx.Fail(err)
	}
	if next.At == 0 {
		if i++; i == len(masters) {
			return keys, "", nil
		}
	}
	return keys, masters[i].cursor(next), nil
}

// A master is one of the servers that own slots. Its mark is its shard's: the least number that is a key of the shard.
// A replica that has replaced its master has the mark of that.
type master struct {
	addr   string
	client redis.UniversalClient
	mark   int
}

func (m master) cursor(at redisx.Cursor) string {
	own := at.String()
	if own == "" {
		own = "0"
	}
	return fmt.Sprintf("%d-%s-%s", m.mark, m.name(), own)
}

func (m master) name() string { return strings.NewReplacer(".", "_", "-", "_").Replace(m.addr) }

// mostMarks are looked through: a master with one slot alone has a number among them.
const mostMarks = 1 << 18

// inOrder lists the masters in the order of their marks, which stays when replicas replace them. In the order of
// addresses, the replica of one that was still to come would be passed over.
func (e *Engine) inOrder(ctx context.Context) ([]master, error) {
	all, err := e.masters(ctx)
	cc, ok := e.client.UniversalClient.(*redis.ClusterClient)
	if err != nil || !ok {
		return all, err
	}
	at := make(map[string]int, len(all))
	for i := range all {
		at[all[i].addr], all[i].mark = i, mostMarks
	}
	for n, left := 0, len(all); left > 0 && n < mostMarks; n++ {
		node, err := cc.MasterForKey(ctx, strconv.Itoa(n))
		if err != nil {
			return nil, redisx.Fail(err)
		}
		if i, is := at[node.Options().Addr]; is && all[i].mark == mostMarks {
			all[i].mark = n
			left--
		}
	}
	slices.SortStableFunc(all, func(a, b master) int { return cmp.Compare(a.mark, b.mark) })
	return all, nil
}

// masters lists the masters, by address.
func (e *Engine) masters(ctx context.Context) ([]master, error) {
	cc, ok := e.client.UniversalClient.(*redis.ClusterClient)
	if !ok {
		return []master{{addr: "one", client: e.client}}, nil
	}
	var mu sync.Mutex
	var all []master
	err := cc.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, master{addr: c.Options().Addr, client: c})
		return nil
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("the cluster has no masters")
	}
	slices.SortFunc(all, func(a, b master) int { return strings.Compare(a.addr, b.addr) })
	return all, redisx.Fail(err)
}

// locate finds where a listing goes on.
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
	for i, m := range masters {
		if m.name() == parts[1] {
			return i, at, nil
		}
	}
	for i, m := range masters {
		if m.mark >= mark {
			return i, redisx.Cursor{}, nil
		}
	}
	return len(masters) - 1, redisx.Cursor{}, nil
}
