package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/userdb"
)

// population is how many users the rows of single operations work on.
const population = 10_000

// bareLookup is the least that finds an entry by another key in one round trip.
var bareLookup = redis.NewScript(`local p = redis.call('GET', KEYS[1]) if not p then return nil end return redis.call('HGETALL', p)`)

// pick spreads operations over the population.
func pick(worker, i int) int { return (worker*7919 + i*31) % population }

// get compares reads by PRK, with a cache of so many entries.
func get(workers, cache int) measure {
	return func(b *bench, ctx context.Context) (outcome, error) {
		return b.beside(ctx, workers, userdb.Options{Cache: cache}, func(users *userdb.Type, c *redis.Client) (ours, bare variant) {
			return finds(users), variant{"HGETALL", func(ctx context.Context, w, i int) error {
				_, err := c.HGetAll(ctx, prk(pick(w, i))).Result()
				return err
			}}
		})
	}
}

// finds finds entries by UID.
func finds(users *userdb.Type) variant {
	return variant{"userdb", func(ctx context.Context, w, i int) error {
		_, err := users.Find(ctx, hints.UID(uid(pick(w, i))))
		return err
	}}
}

func lookup(workers int) measure {
	return func(b *bench, ctx context.Context) (outcome, error) {
		return b.beside(ctx, workers, userdb.Options{}, func(users *userdb.Type, c *redis.Client) (ours, bare variant) {
			return variant{"userdb", func(ctx context.Context, w, i int) error {
				h := hints.Field("email", email(pick(w, i)))
				if i%2 == 1 {
					h = hints.Any(email(pick(w, i)))
				}
				_, err := users.Find(ctx, h)
				return err
			}}, variant{"script", func(ctx context.Context, w, i int) error {
				_, err := bareLookup.Run(ctx, c, []string{srkMail(pick(w, i))}).Slice()
				return err
			}}
		})
	}
}
