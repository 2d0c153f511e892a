package main

import (
	"context"
	"fmt"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// reset brings the server back to the population.
func (s *server) reset(ctx context.Context) {
	s.empty(ctx)
	load(ctx, s.admin, 0, population)
}

// empty leaves nothing but the schema, which the first write of a database stores.
func (s *server) empty(ctx context.Context) {
	s.admin.FlushAll(ctx)
	db, users := s.open(ctx, userdb.Options{})
	defer db.Close()
	e := got(users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", "first of all")}))
	must(users.Delete(ctx, hints.Key(e.Key())))
}

// anyScale compares the time of a lookup in a small and in a large database, one after the other.
func (b *bench) anyScale(ctx context.Context) outcome {
	defer b.server.reset(ctx)
	db, users := b.server.open(ctx, userdb.Options{})
	defer db.Close()
	small, large := 10_000, b.size(1_000_000, 100_000)
	find := func(n int) variant {
		return variant{name: "any", op: func(ctx context.Context, w, i int) error {
			_, err := users.Find(ctx, hints.Any(email((i*31)%n)))
			return err
		}}
	}
	b.server.empty(ctx)
	load(ctx, b.server.admin, 0, small)
	before := b.interleave(ctx, 1, find(small))
	load(ctx, b.server.admin, small, large)
	after := b.interleave(ctx, 1, find(large))
	begin := time.Now()
	b.server.admin.Keys(ctx, "user/*:"+recordkey.Glob(email(1))+"/~prk")
	keys := time.Since(begin)
	return outcome{
		ratio: before[0].Rate / after[0].Rate, variants: append(before, after...),
		note: "KEYS for the same value: " + keys.Round(time.Microsecond).String(),
	}
}

// memory compares what the server uses for the same users.
func (b *bench) memory(ctx context.Context) outcome {
	defer b.server.reset(ctx)
	n := b.size(20_000, 5_000)
	db, users := b.server.open(ctx, userdb.Options{})
	defer db.Close()
	c := b.server.admin
	ours := b.grown(ctx, func() {
		for i := range n {
			got(users.Create(ctx, newUser(i)))
			// A password hash as Create would store it, without the time that it takes to make.
			must(c.HSet(ctx, prk(i), "password", hash, "~passwd", "2026-11-20T08:02:40.512Z").Err())
		}
	}) / float64(n)
	theirs := b.grown(ctx, func() {
		pipe := c.Pipeline()
		for i := range n {
			put(ctx, pipe, i, []any{
				"name", name(i), "password", hash, "email", email(i), "job", "cook", "city", "Berlin", "lang", "de",
				"~isa", "user", "uid", uid(i), "added", "2026-11-20T08:02:40.512Z", "~prk", prk(i),
			})
		}
		got(pipe.Exec(ctx))
	}) / float64(n)
	return outcome{ratio: ours / theirs, note: fmt.Sprintf("%.0f bytes an entry with its SRKs, against %.0f", ours, theirs)}
}

// grown returns by how much the server's memory grows.
func (b *bench) grown(ctx context.Context, f func()) float64 {
	b.server.empty(ctx)
	before := b.server.info(ctx, "memory")["used_memory_dataset"]
	f()
	return b.server.info(ctx, "memory")["used_memory_dataset"] - before
}
