package cluster

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// Survey implements [store.Engine], for every master, and loads the scripts there.
func (e *Engine) Survey(ctx context.Context) (store.Survey, error) {
	s := store.Survey{Steps: true, Bulks: true}
	if err := e.eachNode(ctx); err != nil {
		return s, err
	}
	if err := redisx.Faithful(ctx, e.client); err != nil {
		return s, err
	}
	masters, err := e.masters(ctx)
	if err != nil {
		return s, err
	}
	if err := together(len(masters), func(i int) error { return redisx.Load(ctx, masters[i].client, allScripts) }); err != nil {
		return s, redisx.Fail(err)
	}
	for _, m := range masters {
		s.Warnings = append(s.Warnings, redisx.Evicts(ctx, m.client, "the node "+m.addr)...)
	}
	s.Records, err = e.Records(ctx)
	return s, err
}

// eachNode tells of the nodes that the client knew before it was handed over.
func (e *Engine) eachNode(ctx context.Context) error {
	cc, ok := e.client.UniversalClient.(*redis.ClusterClient)
	if !ok || e.node == nil {
		return nil
	}
	return redisx.Fail(cc.ForEachShard(ctx, func(_ context.Context, node *redis.Client) error {
		e.node(node)
		return nil
	}))
}

// loadNew gives the scripts to nodes that join the cluster later, or are promoted.
func loadNew(cc *redis.ClusterClient) {
	cc.OnNewNode(func(node *redis.Client) {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			_ = redisx.Load(ctx, node, allScripts)
		}()
	})
}
