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

// reset empties the server and loads the population.
func (s *server) reset(ctx context.Context) {
	s.empty(ctx)
	load(ctx, s.admin, 0, population)
}

// empty deletes everything, and then makes a first write, which stores the schema.
func (s *server) empty(ctx context.Context) {
	s.admin.FlushAll(ctx)
	db, users := s.open(ctx, userdb.Options{})
	defer db.Close()
	e := mustGet(users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", "first of all")}))
	must(users.Delete(ctx, hints.Key(e.Key())))
}

// anyScale compares a lookup in a large database with one in a small one. Each database is on a
// server of its own.
func (b *bench) anyScale(ctx context.Context) outcome {
	var tb fakeTB
	defer tb.stop()
	large, n := startServer(&tb), 1_000_000
	large.empty(ctx)
	load(ctx, large.admin, 0, n)
	find := func(s *server, n int) (v variant, end func() error) {
		db, users := s.open(ctx, userdb.Options{})
		return variant{name: fmt.Sprint(n, " entries"), op: func(ctx context.Context, w, i int) error {
			_, err := users.Find(ctx, hints.Any(email((i*31)%n)))
			return err
		}}, db.Close
	}
	inLarge, end := find(large, n)
	defer end()
	inSmall, end := find(b.server, population)
	defer end()
	o := b.withNodes(ctx, b.server.admin, large.admin).withBlocks(300, b.blockTime).compare(ctx, 1, inLarge, inSmall)
	o.estimate = o.inverse() // a ratio of times, not of rates
	begin := time.Now()
	large.admin.Keys(ctx, "user/*:"+recordkey.Glob(email(1))+"/~prk")
	o.note = "KEYS for the same value: " + time.Since(begin).Round(time.Microsecond).String()
	return o
}

// memory compares the memory that Redis uses for the same users in the records of this library and
// in those of the original, CoffeeNode UserDB.
func (b *bench) memory(ctx context.Context) outcome {
	n := b.size(20_000, 5_000)
	db, users := b.server.open(ctx, userdb.Options{})
	defer db.Close()
	c := b.server.admin
	ours := b.memoryGrowth(ctx, func() {
		for i := range n {
			mustGet(users.Create(ctx, newUser(i)))
			// This stores a password hash like Create's, without the time it takes to compute one.
			must(c.HSet(ctx, prk(i), "password", hash, "~passwd", "2026-11-20T08:02:40.512Z").Err())
		}
	}) / float64(n)
	theirs := b.memoryGrowth(ctx, func() {
		pipe := c.Pipeline()
		for i := range n {
			put(ctx, pipe, i, []any{
				"name", name(i), "password", hash, "email", email(i), "job", "cook", "city", "Berlin", "lang", "de",
				"~isa", "user", "uid", uid(i), "added", "2026-11-20T08:02:40.512Z", "~prk", prk(i),
			})
		}
		mustGet(pipe.Exec(ctx))
	}) / float64(n)
	return outcome{entries: n, estimate: about(ours/theirs, 0.03), note: fmt.Sprintf("%.0f bytes an entry with its SRKs, against %.0f", ours, theirs)}
}

// memoryGrowth returns by how many bytes f makes the server's data grow.
func (b *bench) memoryGrowth(ctx context.Context, f func()) float64 {
	b.server.empty(ctx)
	before := info(ctx, b.server.admin, "memory")["used_memory_dataset"]
	f()
	return info(ctx, b.server.admin, "memory")["used_memory_dataset"] - before
}
