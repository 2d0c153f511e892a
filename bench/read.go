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

// readTarget is what a read must reach: batching pays where many wait.
func readTarget(n int, one, many float64) float64 {
	if n == 128 {
		return many
	}
	return one
}

func readRows(n int) []row {
	rows := []row{
		{
			name: named("get", n), what: "entry by PRK, cast, against HGETALL into a map", quick: n != 16, tcp: true, target: readTarget(n, 0.95, 3),
			run: func(ctx context.Context, b *bench) (outcome, error) { return b.get(ctx, n, 0) },
		},
		{
			name: named("lookup", n), what: "by a secondary key and by *, against one bare script GET, HGETALL", quick: n != 16, tcp: true, target: readTarget(n, 0.92, 1.5),
			run: func(ctx context.Context, b *bench) (outcome, error) { return b.lookup(ctx, n) },
		},
	}
	if n != 128 {
		return rows
	}
	return append(rows, row{
		name: "get-128-cached", what: "the same with Options.Cache, all entries hot", tcp: true, target: 3,
		run: func(ctx context.Context, b *bench) (outcome, error) { return b.get(ctx, n, 2*population) },
	})
}

// pick spreads operations over the population.
func pick(worker, i int) int { return (worker*7919 + i*31) % population }

// get compares reads by PRK, with a cache of so many entries.
func (b *bench) get(ctx context.Context, workers, cache int) (outcome, error) {
	db, users, err := b.server.open(ctx, userdb.Options{Cache: cache})
	if err != nil {
		return outcome{}, err
	}
	defer db.Close()
	c := b.server.client(workers + 8)
	defer c.Close()
	return b.compare(ctx, workers, variant{"userdb", func(ctx context.Context, w, i int) error {
		_, err := users.Find(ctx, hints.UID(uid(pick(w, i))))
		return err
	}}, variant{"HGETALL", func(ctx context.Context, w, i int) error {
		_, err := c.HGetAll(ctx, prk(pick(w, i))).Result()
		return err
	}})
}

func (b *bench) lookup(ctx context.Context, workers int) (outcome, error) {
	db, users, err := b.server.users(ctx)
	if err != nil {
		return outcome{}, err
	}
	defer db.Close()
	c := b.server.client(workers + 8)
	defer c.Close()
	return b.compare(ctx, workers, variant{"userdb", func(ctx context.Context, w, i int) error {
		h := hints.Field("email", email(pick(w, i)))
		if i%2 == 1 {
			h = hints.Any(email(pick(w, i)))
		}
		_, err := users.Find(ctx, h)
		return err
	}}, variant{"script", func(ctx context.Context, w, i int) error {
		_, err := bareLookup.Run(ctx, c, []string{srkMail(pick(w, i))}).Slice()
		return err
	}})
}
