package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// bareCreate checks three keys and writes three.
var bareCreate = redis.NewScript(`
if redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3]) > 0 then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV))
redis.call('SET', KEYS[2], KEYS[1])
redis.call('SET', KEYS[3], KEYS[1])
return 1`)

// bareUpdate sends the commands that a change of a plain and a secondary facet takes: it reads the version,
// the schema's fingerprint, whether the new value is free in both fields and whose the old one is; then it
// writes the entry, one SRK more and one less.
var bareUpdate = redis.NewScript(`
local head = redis.call('HMGET', KEYS[1], '~isa', '~rev', '~fence')
if not head[1] then return 0 end
if redis.call('HGET', KEYS[2], 'fingerprint') == '' then return 0 end
if redis.call('EXISTS', KEYS[4], KEYS[5]) > 0 then return 0 end
if redis.call('GET', KEYS[3]) ~= KEYS[1] then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV))
redis.call('SET', KEYS[4], KEYS[1])
redis.call('UNLINK', KEYS[3])
return 1`)

// serial numbers users that no other variant makes.
func serial(variant, worker, i int) int { return (variant*1000+worker)*10_000_000 + i + 1_000_000 }

func createRow(n int) row {
	return row{
		name: named("create", n), what: "with uniqueness over 2 fields, against one bare script that checks 3 keys", quick: n != 16, tcp: true, target: 0.92,
		run: func(ctx context.Context, b *bench) (outcome, error) {
			return b.create(ctx, n, func(c *redis.Client) variant {
				return variant{"script", func(ctx context.Context, w, i int) error {
					k := serial(2, w, i)
					return bareCreate.Run(ctx, c, []string{prk(k), srkMail(k), srkName(k)}, newFields(k)...).Err()
				}}
			})
		},
	}
}

// newFields are those that Create writes.
func newFields(n int) []any {
	return []any{
		"~isa", "user", "~prk", prk(n), "~rev", "abcdefghijkl", "uid", uid(n), "email", email(n), "name", name(n),
		"job", "cook", "city", "Berlin", "lang", "de", "added", "2026-11-20T08:02:40.512Z",
	}
}

func (b *bench) create(ctx context.Context, workers int, bare func(*redis.Client) variant) (outcome, error) {
	db, users, err := b.server.users(ctx)
	if err != nil {
		return outcome{}, err
	}
	defer db.Close()
	c := b.server.client(workers + 8)
	defer c.Close()
	defer b.server.reset(ctx)
	return b.compare(ctx, workers, variant{"userdb", func(ctx context.Context, w, i int) error {
		k := serial(1, w, i)
		_, err := users.Create(ctx, userdb.NewEntry{UID: uid(k), Facets: facets(k)})
		return err
	}}, bare(c))
}

func writeRows() []row {
	return []row{
		{
			name: "create-unchecked-1", what: "the same against a pipeline of HSET and 2 SET without checks", quick: true, tcp: true, target: 0.75,
			run: func(ctx context.Context, b *bench) (outcome, error) {
				return b.create(ctx, 1, func(c *redis.Client) variant {
					return variant{"pipeline", func(ctx context.Context, w, i int) error {
						k := serial(3, w, i)
						pipe := c.Pipeline()
						pipe.HSet(ctx, prk(k), newFields(k)...)
						pipe.Set(ctx, srkMail(k), prk(k), 0)
						pipe.Set(ctx, srkName(k), prk(k), 0)
						_, err := pipe.Exec(ctx)
						return err
					}}
				})
			},
		},
		{name: "update-1", what: "one plain and one secondary facet of an entry in hand, against a bare script of the same commands", quick: true, tcp: true, target: 0.9, run: func(ctx context.Context, b *bench) (outcome, error) { return b.update(ctx) }},
	}
}

func (b *bench) update(ctx context.Context) (outcome, error) {
	db, users, err := b.server.users(ctx)
	if err != nil {
		return outcome{}, err
	}
	defer db.Close()
	defer b.server.reset(ctx)
	c := b.server.client(8)
	defer c.Close()
	mine, err := users.Find(ctx, hints.UID(uid(1)))
	if err != nil {
		return outcome{}, err
	}
	last := "user number 2"
	return b.compare(ctx, 1, variant{"userdb", func(ctx context.Context, w, i int) (err error) {
		mine.Put("city", schema.Text(fmt.Sprint("city ", i)))
		mine.Put("name", schema.Text(fmt.Sprint("mine ", i)))
		mine, err = users.Save(ctx, mine)
		return err
	}}, variant{"script", func(ctx context.Context, w, i int) error {
		was, is := last, fmt.Sprint("bare ", i)
		last = is
		return bareUpdate.Run(ctx, c, []string{prk(2), "~/schema/user", srkOf(was), srkOf(is), "user/email:" + recordkey.Escape(is) + "/~prk"}, "city", fmt.Sprint("city ", i), "name", is, "~rev", "abcdefghijkl").Err()
	}})
}
