package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/redisdb"
)

// createWithHistory compares creates that write a history with creates that do not.
func createWithHistory(workers int) measure {
	return func(b *bench, ctx context.Context) outcome {
		db, users := b.server.open(ctx, userdb.Options{History: true})
		defer db.Close()
		return b.compareWithBare(ctx, workers, userdb.Options{}, func(without *userdb.Type, _ *redis.Client) (ours, bare variant) {
			ours, bare = createVariant(users), createVariant(without)
			bare.name = "without"
			return ours, bare
		})
	}
}

// clusterCreateWithHistory makes the comparison of createWithHistory on a cluster of six nodes.
func (b *bench) clusterCreateWithHistory(ctx context.Context) outcome {
	return b.withCluster(ctx, nil, func(b *bench, without *userdb.Type, c *redis.ClusterClient) outcome {
		db := mustGet(redisdb.New(ctx, c, userdb.Options{Schema: userSchema(), History: true}))
		defer db.Close()
		ours, bare := createVariant(mustGet(db.Type("user"))), createVariant(without)
		bare.name = "without"
		return b.compare(ctx, 16, ours, bare)
	})
}
