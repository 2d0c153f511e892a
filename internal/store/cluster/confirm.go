package cluster

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// confirmed waits for the replicas that a change asks for, on the nodes of the entry and of its claims.
func (e *Engine) confirmed(ctx context.Context, c store.Change, rev string) error {
	if c.Replicas == 0 {
		return nil
	}
	srv := c.Key.In(recordkey.Namespace{}).String() + " " + rev
	return together(1+len(c.Claim), func(i int) error {
		if i == 0 {
			return e.confirm(ctx, c.Key, func(node redis.Cmdable, key string) error {
				return redisx.ConfirmEntry(ctx, node, key, rev, c.Replicas, c.ReplicaTime)
			})
		}
		return e.confirm(ctx, c.Claim[i-1], func(node redis.Cmdable, key string) error {
			return redisx.ConfirmSRK(ctx, node, key, srv, c.Replicas, c.ReplicaTime)
		})
	})
}

// confirm asks the master that serves a key, and another one where the slot has just moved.
func (e *Engine) confirm(ctx context.Context, k recordkey.Key, ask func(node redis.Cmdable, key string) error) (err error) {
	cc, ok := e.client.UniversalClient.(*redis.ClusterClient)
	if !ok {
		return ask(e.client, k.String())
	}
	for attempt := range attempts / 2 {
		var node *redis.Client
		if node, err = cc.MasterForKey(ctx, k.String()); err == nil {
			err = ask(node, k.String())
		}
		if err == nil || !redisx.Moved(err) {
			return err
		}
		cc.ReloadState(ctx)
		if e.pause(ctx, 20*time.Millisecond<<attempt) != nil {
			break
		}
	}
	return err
}
