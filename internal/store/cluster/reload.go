package cluster

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store/redisx"
)

// How long one node is asked who serves which slots, and how many are asked: the client takes any of them, and the one
// that is stopped answers nothing.
const (
	reloadTime = 500 * time.Millisecond
	reloads    = 4
)

// A reloading is what is known of the last time that the client read the cluster's state.
type reloading struct {
	turn  chan struct{} // has room for the one whose turn it is
	begun time.Time
}

// reload has the client read anew who serves which slots, before a command is sent again: a dead master does not tell. Where
// a node answered, it does so by itself, and nobody waits.
func (e *Engine) reload(ctx context.Context, err error) {
	cc, ok := e.client.UniversalClient.(*redis.ClusterClient)
	if !ok {
		return
	}
	if redisx.IsAnswer(err) {
		cc.ReloadState(ctx)
		return
	}
	failed := time.Now()
	select {
	case <-ctx.Done():
		return
	case e.reloading.turn <- struct{}{}:
	}
	defer func() { <-e.reloading.turn }()
	if e.reloading.begun.After(failed) {
		return
	}
	for range reloads {
		begun := time.Now()
		limited, cancel := context.WithTimeout(ctx, reloadTime)
		_ = cc.ForEachMaster(limited, func(context.Context, *redis.Client) error { return nil }) // which reads it first
		over := limited.Err() != nil
		cancel()
		if !over {
			e.reloading.begun = begun
			return
		}
	}
}
