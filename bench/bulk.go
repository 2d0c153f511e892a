package main

import (
	"context"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

func srkOf(name string) string { return "user/name:" + recordkey.Escape(name) + "/~prk" }

// reset brings the server back to the population.
func (s *server) reset(ctx context.Context) {
	s.empty(ctx)
	_ = load(ctx, s.admin, 0, population)
}

// empty leaves nothing but the schema, which the first write of a database stores.
func (s *server) empty(ctx context.Context) {
	s.admin.FlushAll(ctx)
	db, users, err := s.users(ctx)
	if err != nil {
		return
	}
	defer db.Close()
	if e, err := users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", "first of all")}); err == nil {
		_ = users.Delete(ctx, hints.Key(e.Key()))
	}
}

// anyScale compares the time of a lookup in a small and in a large database, one after the other.
func (b *bench) anyScale(ctx context.Context) (outcome, error) {
	defer b.server.reset(ctx)
	db, users, err := b.server.users(ctx)
	if err != nil {
		return outcome{}, err
	}
	defer db.Close()
	small, large := 10_000, b.size(1_000_000, 100_000)
	find := func(n int) variant {
		return variant{"any", func(ctx context.Context, w, i int) error {
			_, err := users.Find(ctx, hints.Any(email((i*31)%n)))
			return err
		}}
	}
	b.server.empty(ctx)
	if err := load(ctx, b.server.admin, 0, small); err != nil {
		return outcome{}, err
	}
	before, err := interleave(ctx, b.server, 1, b.rounds, b.per, find(small))
	if err != nil {
		return outcome{}, err
	}
	if err := load(ctx, b.server.admin, small, large); err != nil {
		return outcome{}, err
	}
	after, err := interleave(ctx, b.server, 1, b.rounds, b.per, find(large))
	if err != nil {
		return outcome{}, err
	}
	begin := time.Now()
	b.server.admin.Keys(ctx, "user/*:"+recordkey.Glob(email(1))+"/~prk")
	keys := time.Since(begin)
	return outcome{
		ratio: before[0].Rate / after[0].Rate, variants: append(before, after...),
		note: "KEYS for the same value: " + keys.Round(time.Microsecond).String(),
	}, nil
}

// memory compares what the server uses for the same users.
func (b *bench) memory(ctx context.Context) (outcome, error) {
	defer b.server.reset(ctx)
	n := b.size(20_000, 5_000)
	db, users, err := b.server.users(ctx)
	if err != nil {
		return outcome{}, err
	}
	defer db.Close()
	c := b.server.admin
	ours, err := b.grown(ctx, func() error {
		for i := range n {
			if _, err := users.Create(ctx, newUser(i)); err != nil {
				return err
			}
			// A password hash as Create would store it, without the time that it takes to make.
			pipe := c.Pipeline()
			pipe.HSet(ctx, prk(i), "password", hash, "~passwd", "2026-11-20T08:02:40.512Z")
			if _, err := pipe.Exec(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return outcome{}, err
	}
	theirs, err := b.grown(ctx, func() error {
		pipe := c.Pipeline()
		for i := range n {
			pipe.HSet(ctx, prk(i), "name", name(i), "password", hash, "email", email(i), "job", "cook", "city", "Berlin", "lang", "de",
				"~isa", "user", "uid", uid(i), "added", "2026-11-20T08:02:40.512Z", "~prk", prk(i))
			pipe.Set(ctx, srkMail(i), prk(i), 0)
			pipe.Set(ctx, srkName(i), prk(i), 0)
		}
		_, err := pipe.Exec(ctx)
		return err
	})
	return outcome{ratio: ours / theirs, note: bytesNote(ours/float64(n), theirs/float64(n))}, err
}

// grown says by how much the server's memory grows.
func (b *bench) grown(ctx context.Context, f func() error) (float64, error) {
	b.server.empty(ctx)
	before := b.server.info(ctx, "memory", "used_memory_dataset")
	err := f()
	return b.server.info(ctx, "memory", "used_memory_dataset") - before, err
}
