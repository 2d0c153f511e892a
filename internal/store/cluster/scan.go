package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
)

// Scan implements [store.Engine], one master after the other. While slots move between masters, keys
// in them may be missed or found twice.
//
// A cursor is the name of a master and the master's own cursor. A master that is gone when a listing
// goes on has been replaced, and its successor numbers its table in another way: then the listing
// goes on with that shard from its beginning.
func (e *Engine) Scan(ctx context.Context, pattern, cursor string, count int) ([]string, string, error) {
	masters, err := e.masters(ctx)
	if err != nil {
		return nil, "", err
	}
	i, at, err := locate(masters, cursor)
	if err != nil {
		return nil, "", err
	}
	keys, next, err := masters[i].client.Scan(ctx, at, pattern, int64(count)).Result()
	if err != nil {
		return nil, "", store.Fail(err)
	}
	if next == 0 {
		if i++; i == len(masters) {
			return keys, "", nil
		}
	}
	return keys, masters[i].cursor(i, next), nil
}

// HoldsAtOnce implements [store.Engine] by Holds: no transaction spans servers.
func (e *Engine) HoldsAtOnce(ctx context.Context, members []store.Member) ([]bool, error) {
	return e.Holds(ctx, members)
}

// A master is one of the servers that own slots.
type master struct {
	addr   string
	client redis.UniversalClient
}

func (m master) cursor(i int, at uint64) string {
	name := strings.NewReplacer(".", "_", "-", "_").Replace(m.addr)
	return fmt.Sprintf("%d-%s-%d", i, name, at)
}

// masters lists the masters in an order that stays.
func (e *Engine) masters(ctx context.Context) ([]master, error) {
	cc, ok := e.client.(*redis.ClusterClient)
	if !ok {
		return []master{{"one", e.client}}, nil
	}
	var mu sync.Mutex
	var all []master
	err := cc.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, master{c.Options().Addr, c})
		return nil
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("the cluster has no masters")
	}
	slices.SortFunc(all, func(a, b master) int { return strings.Compare(a.addr, b.addr) })
	return all, store.Fail(err)
}

// locate finds where a listing goes on.
func locate(masters []master, cursor string) (int, uint64, error) {
	if cursor == "" {
		return 0, 0, nil
	}
	parts := strings.SplitN(cursor, "-", 3)
	if len(parts) != 3 {
		return 0, 0, store.ErrCursor
	}
	i, err1 := strconv.Atoi(parts[0])
	at, err2 := strconv.ParseUint(parts[2], 10, 64)
	if err1 != nil || err2 != nil || i < 0 {
		return 0, 0, store.ErrCursor
	}
	for j, m := range masters {
		if m.cursor(i, at) == cursor {
			return j, at, nil
		}
	}
	return min(i, len(masters)-1), 0, nil
}
