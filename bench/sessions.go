package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/userdb"
)

// bareSession is the id of the sessions that the bare client reads.
const bareSession = "0123456789abcdef"

// startSessions starts sessions of some users, and writes records of the same size for the bare
// client.
func startSessions(ctx context.Context, users *userdb.Type, c *redis.Client) (secrets []string) {
	const record = "1795000000000 1795000000000 1795000000000 1797592000000 604800000 192.0.2.7 Firefox"
	for i := range 1000 {
		e := mustGet(users.Find(ctx, hints.UID(uid(i))))
		_, secret, err := users.StartSession(ctx, e, userdb.SessionOptions{Origin: "192.0.2.7", Agent: "Firefox on Linux"})
		must(err)
		secrets = append(secrets, secret)
		must(c.HSet(ctx, "sessions:"+uid(i), bareSession, record).Err())
	}
	return secrets
}

// session compares Session with one pipeline of HGET, of a record of the same size, and HGETALL of
// the entry.
func session(workers int) measure {
	return func(b *bench, ctx context.Context) outcome {
		return b.compareWithBare(ctx, workers, userdb.Options{}, func(users *userdb.Type, c *redis.Client) (ours, bare variant) {
			secrets := startSessions(ctx, users, c)
			ours = variant{name: "userdb", op: func(ctx context.Context, w, i int) error {
				_, _, err := users.Session(ctx, secrets[i%len(secrets)])
				return err
			}}
			return ours, variant{name: "HGET, HGETALL", op: func(ctx context.Context, w, i int) error {
				at := i % len(secrets)
				pipe := c.Pipeline()
				pipe.HGet(ctx, "sessions:"+uid(at), bareSession)
				pipe.HGetAll(ctx, prk(at))
				_, err := pipe.Exec(ctx)
				return err
			}}
		})
	}
}
