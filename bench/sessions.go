package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/userdb"
)

// session compares Session with HGET of a record of its size and HGETALL of the entry, in one pipeline.
func session(workers int) measure {
	return func(b *bench, ctx context.Context) outcome {
		defer b.server.reset(ctx)
		const some = 1000
		return b.beside(ctx, workers, userdb.Options{}, func(users *userdb.Type, c *redis.Client) (ours, bare variant) {
			secrets := make([]string, some)
			for i := range some {
				e := got(users.Find(ctx, hints.UID(uid(i))))
				_, secret, err := users.StartSession(ctx, e, userdb.SessionOptions{Origin: "192.0.2.7", Agent: "Firefox on Linux"})
				must(err)
				secrets[i] = secret
				must(c.HSet(ctx, "sessions:"+uid(i), "0123456789abcdef", "1795000000000 1795000000000 1795000000000 1797592000000 604800000 192.0.2.7 Firefox").Err())
			}
			ours = variant{name: "userdb", op: func(ctx context.Context, w, i int) error {
				_, _, err := users.Session(ctx, secrets[i%some])
				return err
			}}
			return ours, variant{name: "HGET, HGETALL", op: func(ctx context.Context, w, i int) error {
				pipe := c.Pipeline()
				pipe.HGet(ctx, "sessions:"+uid(i%some), "0123456789abcdef")
				pipe.HGetAll(ctx, prk(i%some))
				_, err := pipe.Exec(ctx)
				return err
			}}
		})
	}
}
