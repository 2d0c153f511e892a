package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/maintain/check"
)

// checking compares whole checks with whole bare passes, in turn, over the same records.
func (b *bench) checking(ctx context.Context) (outcome, error) {
	defer b.server.reset(ctx)
	n := b.size(1_000_000, 50_000)
	b.server.empty(ctx)
	if err := load(ctx, b.server.admin, 0, n); err != nil {
		return outcome{}, err
	}
	results := []result{{}, {}}
	grown := 0.0
	for range 3 {
		watch := watchMemory()
		ours, err := b.passed(ctx, n, b.check)
		if grown = max(grown, watch()); err != nil {
			return outcome{}, err
		}
		bare, err := b.passed(ctx, n, func(ctx context.Context) error { return barePass(ctx, b.server.admin) })
		if err != nil {
			return outcome{}, err
		}
		results[0].rounds, results[1].rounds = append(results[0].rounds, ours), append(results[1].rounds, bare)
	}
	results[0].sum("check")
	results[1].sum("bare pass")
	note := fmt.Sprintf("%d entries; the process grew by %.0f MiB", n, grown/(1<<20))
	return outcome{ratio: ratio(results[1], results[0]), note: note, variants: results}, nil
}

func (b *bench) passed(ctx context.Context, n int, pass func(context.Context) error) (round, error) {
	cpu, begin := b.server.cpu(ctx), time.Now()
	err := pass(ctx)
	return b.rounded(ctx, n, time.Since(begin), cpu), err
}

func (b *bench) check(ctx context.Context) error {
	db, _, err := b.server.users(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	for p, err := range check.Run(ctx, db, check.Options{}) {
		if err != nil {
			return err
		}
		return fmt.Errorf("the check found %v", p)
	}
	return nil
}

// barePass reads all records and looks at none.
func barePass(ctx context.Context, c *redis.Client) error {
	for cursor := uint64(0); ; {
		keys, next, err := c.Scan(ctx, cursor, "*", 1000).Result()
		if err != nil {
			return err
		}
		pipe := c.Pipeline()
		var srks []string
		for _, k := range keys {
			if strings.HasSuffix(k, "/~prk") {
				srks = append(srks, k)
			} else if strings.HasPrefix(k, "user/") {
				pipe.HGetAll(ctx, k)
			}
		}
		if len(srks) > 0 {
			pipe.MGet(ctx, srks...)
		}
		if _, err := pipe.Exec(ctx); err != nil && pipe.Len() > 0 {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}
