package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

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
// A replica in the place of its master has the mark of that.
type master struct {
	addr   string
	client redis.UniversalClient
	mark   int
}

func (m master) cursor(at redisx.Cursor) string {
	place := at.String()
	if place == "" {
		place = "0"
	}
	return fmt.Sprintf("%d-%s-%s", m.mark, m.name(), place)
}

func (m master) name() string { return strings.NewReplacer(".", "_", "-", "_").Replace(m.addr) }

// mostMarks are looked through: a master with one slot alone has a number among them.
const mostMarks = 1 << 18

// inOrder lists the masters in the order of their marks, which stays when replicas take their places. In the order of
// addresses the replica of one that was still to come would be passed over.
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
