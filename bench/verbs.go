package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// population is the number of users that rows of single operations work on.
const population = 10_000

// bareLookup is the smallest script that finds an entry by another key in one round trip.
var bareLookup = redis.NewScript(lookupSource)

const lookupSource = `local p = redis.call('GET', KEYS[1]) if not p then return nil end return redis.call('HGETALL', p)`

// pick spreads operations over the population.
func pick(i int) int { return i * 31 % population }

// get compares reads by PRK, with a cache of the given number of entries.
func get(workers, cache int) measure {
	return func(b *bench, ctx context.Context) outcome {
		return b.compareWithBare(ctx, workers, userdb.Options{CacheSize: cache}, func(users *userdb.Type, c *redis.Client) (ours, bare variant) {
			for i := range min(cache, population) { // fill the cache
				must(findVariant(users).op(ctx, 0, i))
			}
			return findVariant(users), bareGet(c)
		})
	}
}

func bareGet(c *redis.Client) variant {
	return variant{name: "HGETALL", op: func(ctx context.Context, w, i int) error { return c.HGetAll(ctx, prk(pick(i))).Err() }}
}

// findVariant returns a variant that finds entries by UID.
func findVariant(users *userdb.Type) variant {
	return variant{name: "userdb", op: func(ctx context.Context, w, i int) error {
		_, err := users.Find(ctx, hints.UID(uid(pick(i))))
		return err
	}}
}

func lookup(workers int) measure {
	return func(b *bench, ctx context.Context) outcome {
		return b.compareWithBare(ctx, workers, userdb.Options{}, func(users *userdb.Type, c *redis.Client) (ours, bare variant) {
			ours = variant{name: "userdb", op: func(ctx context.Context, w, i int) error {
				h := hints.Field("email", email(pick(i)))
				if i%2 == 1 {
					h = hints.Any(email(pick(i)))
				}
				_, err := users.Find(ctx, h)
				return err
			}}
			return ours, variant{name: "script", op: func(ctx context.Context, w, i int) error {
				_, err := bareLookup.Run(ctx, c, []string{srkMail(pick(i))}).Slice()
				return err
			}}
		})
	}
}

// bareCreate checks three keys and writes three.
var bareCreate = redis.NewScript(`
if redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3]) > 0 then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV))
redis.call('SET', KEYS[2], KEYS[1])
redis.call('SET', KEYS[3], KEYS[1])
return 1`)

// bareUpdate sends the commands that changing a plain and a secondary facet requires. It reads the
// revision and the schema's fingerprint, and checks that the new value is free in both fields and
// that the old one belongs to the entry. Then it writes the entry, writes one SRK and deletes
// another.
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

// serial returns the number of a user that no other operation creates and that is not in the
// population.
func serial(i int) int { return 1_000_000 + i }

// createVariant returns a variant that creates users with the library.
func createVariant(users *userdb.Type) variant {
	return variant{name: "userdb", op: func(ctx context.Context, w, i int) error {
		_, err := users.Create(ctx, newUser(serial(i)))
		return err
	}}
}

// create compares creates with those of a bare client.
func create(workers int, bare func(*redis.Client) variant) measure {
	return func(b *bench, ctx context.Context) outcome {
		return b.compareWithBare(ctx, workers, userdb.Options{}, func(users *userdb.Type, c *redis.Client) (ours, theirs variant) {
			return createVariant(users), bare(c)
		})
	}
}

func bareScript(c *redis.Client) variant {
	return variant{name: "script", op: func(ctx context.Context, w, i int) error {
		k := serial(i)
		return bareCreate.Run(ctx, c, []string{prk(k), srkMail(k), srkName(k)}, newFields(k)...).Err()
	}}
}

// sameCreate checks and writes what Create does in an empty store: the schema's fingerprint, the
// entry, two values in both fields, and the revision.
var sameCreate = redis.NewScript(`
if redis.call('HGET', KEYS[6], 'fingerprint') ~= ARGV[1] then return 0 end
if redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]) > 0 then return 0 end
redis.call('SET', KEYS[2], KEYS[1])
redis.call('SET', KEYS[3], KEYS[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
return 1`)

// createSame compares Create with a handwritten script that does the same. The arguments of both
// are prepared before the clock starts.
func createSame(workers int) measure {
	return func(b *bench, ctx context.Context) outcome {
		fingerprint := mustGet(b.server.admin.HGet(ctx, schemaKey, "fingerprint").Result())
		return b.compareWithBare(ctx, workers, userdb.Options{}, func(users *userdb.Type, c *redis.Client) (ours, theirs variant) {
			return prepared("userdb", newUser, func(ctx context.Context, u userdb.NewEntry) error {
				_, err := users.Create(ctx, u)
				return err
			}), sameScript(c, fingerprint)
		})
	}
}

const schemaKey = "~/schema/user"

func sameScript(c *redis.Client, fingerprint string) variant {
	type call struct {
		keys []string
		args []any
	}
	prepare := func(k int) call {
		keys := []string{prk(k), srkMail(k), srkName(k), srk("email", name(k)), srk("name", email(k)), schemaKey}
		return call{keys, append([]any{fingerprint}, newFields(k)...)}
	}
	return prepared("script", prepare, func(ctx context.Context, one call) error {
		n, err := sameCreate.Run(ctx, c, one.keys, one.args...).Int()
		if err == nil && n != 1 {
			err = errTaken
		}
		return err
	})
}

// prepared returns a variant whose operations get arguments that were made before the block, each
// for another user.
func prepared[T any](name string, make func(k int) T, do func(context.Context, T) error) variant {
	var all []T
	var next atomic.Int64
	v := variant{name: name, op: func(ctx context.Context, w, i int) error {
		at := int(next.Add(1)) - 1
		if at >= len(all) {
			return errPrepared
		}
		return do(ctx, all[at])
	}}
	v.prepare = func(n int) {
		all = slices.Grow(all[:0], n)
		next.Store(0)
		for range n {
			all = append(all, make(serial(int(operations.Add(1)))))
		}
	}
	return v
}

func barePipeline(c *redis.Client) variant {
	return variant{name: "pipeline", op: func(ctx context.Context, w, i int) error {
		pipe := c.Pipeline()
		k := serial(i)
		put(ctx, pipe, k, newFields(k))
		_, err := pipe.Exec(ctx)
		return err
	}}
}

var errTaken = errors.New("taken")

// watchMulti returns a variant that does what people write themselves: watch the keys, check them,
// and write in a transaction.
func watchMulti(c *redis.Client) variant {
	return variant{name: "WATCH/MULTI", op: func(ctx context.Context, w, i int) error {
		k := serial(i)
		return c.Watch(ctx, func(tx *redis.Tx) error {
			n, err := tx.Exists(ctx, prk(k), srkMail(k), srkName(k)).Result()
			if err != nil || n > 0 {
				return cmp.Or(err, errTaken)
			}
			_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { put(ctx, p, k, newFields(k)); return nil })
			return err
		}, prk(k), srkMail(k), srkName(k))
	}}
}

func (b *bench) update(ctx context.Context) outcome {
	return b.compareWithBare(ctx, 1, userdb.Options{}, func(users *userdb.Type, c *redis.Client) (ours, bare variant) {
		mine := mustGet(users.Find(ctx, hints.UID(uid(1))))
		last := "user number 2"
		ours = variant{name: "userdb", op: func(ctx context.Context, w, i int) (err error) {
			mine.Put("city", schema.Text(fmt.Sprint("city ", i)))
			mine.Put("name", schema.Text(fmt.Sprint("mine ", i)))
			mine, err = users.Save(ctx, mine)
			return err
		}}
		return ours, variant{name: "script", op: func(ctx context.Context, w, i int) error {
			was, is := last, fmt.Sprint("bare ", i)
			last = is
			return bareUpdate.Run(ctx, c, []string{prk(2), schemaKey, srk("name", was), srk("name", is), srk("email", is)},
				"city", fmt.Sprint("city ", i), "name", is, "~rev", "abcdefghijkl").Err()
		}}
	})
}

// keys counts allocations, which do not depend on the machine.
func (*bench) keys(context.Context) outcome {
	text := srkMail(1)
	parse := testing.AllocsPerRun(1000, func() {
		mustGet(recordkey.Parse(text))
	})
	build := testing.AllocsPerRun(1000, func() {
		k, _ := recordkey.SRK("user", "email", "user1@example.com")
		_ = k.String()
	})
	return outcome{estimate: exactly(parse + build), note: fmt.Sprintf("parse %.0f, build %.0f", parse, build)}
}
