package main

import (
	"context"
	"errors"
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

// newFields are those that Create writes.
func newFields(n int) []any {
	return []any{
		"~isa", "user", "~prk", prk(n), "~rev", "abcdefghijkl", "uid", uid(n), "email", email(n), "name", name(n),
		"job", "cook", "city", "Berlin", "lang", "de", "added", "2026-11-20T08:02:40.512Z",
	}
}

// creates makes users with the library.
func creates(users *userdb.Type, number int) variant {
	return variant{"userdb", func(ctx context.Context, w, i int) error {
		_, err := users.Create(ctx, newUser(serial(number, w, i)))
		return err
	}}
}

// create compares creates with those of a bare client.
func create(workers int, bare func(*redis.Client) variant) measure {
	return func(b *bench, ctx context.Context) (outcome, error) {
		defer b.server.reset(ctx)
		return b.beside(ctx, workers, userdb.Options{}, func(users *userdb.Type, c *redis.Client) (ours, theirs variant) {
			return creates(users, 1), bare(c)
		})
	}
}

func bareScript(c *redis.Client) variant {
	return variant{"script", func(ctx context.Context, w, i int) error {
		k := serial(2, w, i)
		return bareCreate.Run(ctx, c, []string{prk(k), srkMail(k), srkName(k)}, newFields(k)...).Err()
	}}
}

func barePipeline(c *redis.Client) variant {
	return variant{"pipeline", func(ctx context.Context, w, i int) error {
		pipe := c.Pipeline()
		putNew(ctx, pipe, serial(3, w, i))
		_, err := pipe.Exec(ctx)
		return err
	}}
}

// putNew writes what Create does, without a check.
func putNew(ctx context.Context, p redis.Pipeliner, k int) {
	p.HSet(ctx, prk(k), newFields(k)...)
	p.Set(ctx, srkMail(k), prk(k), 0)
	p.Set(ctx, srkName(k), prk(k), 0)
}

var errTaken = errors.New("taken")

// handmade is what people write themselves: watch the keys, look, write in a transaction.
func handmade(c *redis.Client) variant {
	return variant{"WATCH/MULTI", func(ctx context.Context, w, i int) error {
		k := serial(6, w, i)
		return c.Watch(ctx, func(tx *redis.Tx) error {
			n, err := tx.Exists(ctx, prk(k), srkMail(k), srkName(k)).Result()
			if err != nil || n > 0 {
				return fmt.Errorf("%w %d: %w", errTaken, n, err)
			}
			_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { putNew(ctx, p, k); return nil })
			return err
		}, prk(k), srkMail(k), srkName(k))
	}}
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
