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

// usersInNamespace opens the store in a namespace whose users may have the given number of
// addresses.
func (b *bench) usersInNamespace(ctx context.Context, namespace string, addresses int) (*userdb.DB, *userdb.Type) {
	s := userSchema()
	f := s.Types["user"].Fields["email"]
	f.Many = addresses
	s.Types["user"].Fields["email"] = f
	return b.server.open(ctx, userdb.Options{Schema: s, Namespace: mustGet(recordkey.ParseNamespace(namespace))})
}

// createOfMany compares creates under a schema that allows ten addresses with creates under one
// that allows one. Every entry has one address. The names of both namespaces have the same length.
func (b *bench) createOfMany(ctx context.Context) outcome {
	db, many := b.usersInNamespace(ctx, "many", 10)
	defer db.Close()
	db, lone := b.usersInNamespace(ctx, "lone", 0)
	defer db.Close()
	ours, theirs := createVariant(many), createVariant(lone)
	theirs.name = "without"
	return b.compare(ctx, 1, ours, theirs)
}

// address returns one of the addresses of a user with several. The first one is number 0.
func address(user, number int) string { return fmt.Sprintf("user%d-%d@example.com", user, number) }

func withTenAddresses(user int) userdb.NewEntry {
	n := newUser(user)
	delete(n.Facets, "email")
	n.Values = map[string][]string{}
	for number := range 10 {
		n.Values["email"] = append(n.Values["email"], address(user, number))
	}
	return n
}

// createTen compares one create of an entry with ten addresses to ten creates with one address
// each.
func (b *bench) createTen(ctx context.Context) outcome {
	db, many := b.usersInNamespace(ctx, "many", 10)
	defer db.Close()
	db, lone := b.usersInNamespace(ctx, "lone", 0)
	defer db.Close()
	return b.compare(ctx, 1, variant{name: "one entry", op: func(ctx context.Context, w, i int) error {
		_, err := many.Create(ctx, withTenAddresses(serial(i)))
		return err
	}}, variant{name: "ten entries", op: func(ctx context.Context, w, i int) error {
		for n := range 10 {
			if _, err := lone.Create(ctx, newUser(serial(10*i+n))); err != nil {
				return err
			}
		}
		return nil
	}})
}

// lookupFurther compares lookups by the last of ten addresses with lookups by the first.
func (b *bench) lookupFurther(ctx context.Context) outcome {
	const entries = 1000
	db, users := b.usersInNamespace(ctx, "many", 10)
	defer db.Close()
	for i := range entries {
		mustGet(users.Create(ctx, withTenAddresses(i)))
	}
	by := func(name string, number int) variant {
		return variant{name: name, op: func(ctx context.Context, w, i int) error {
			_, err := users.Find(ctx, hints.Field("email", address(pick(i)%entries, number)))
			return err
		}}
	}
	return b.compare(ctx, 1, by("last", 9), by("first", 0))
}

// createBesideHeld compares creates in a store in which a million deleted entries hold an address
// each with creates in one in which nothing is held. Both servers have the same number of keys.
func (b *bench) createBesideHeld(ctx context.Context) outcome {
	const n = 1_000_000
	var tb fakeTB
	defer tb.stop()
	s := userSchema()
	f := s.Types["user"].Fields["email"]
	f.Hold = 90 * schema.Day
	s.Types["user"].Fields["email"] = f
	create := func(name, script string) (v variant, admin *redis.Client, end func() error) {
		server := startServer(&tb)
		server.empty(ctx)
		for first := 0; first < n; first += 10_000 {
			must(server.admin.Eval(ctx, script, nil, first, first+9_999).Err())
		}
		db, users := server.open(ctx, userdb.Options{Schema: s})
		v = createVariant(users)
		v.name = name
		return v, server.admin, db.Close
	}
	holding, one, end := create("a million held", holdScript)
	defer end()
	other, two, end := create("none", plainScript)
	defer end()
	return b.withNodes(ctx, one, two).compare(ctx, 1, holding, other)
}

// holdScript makes deleted entries that hold an address, and plainScript makes as many keys that
// belong to no entry.
const (
	holdScript = `local ends = 8000000000 + redis.call('TIME')[1] * 1000
for i = ARGV[1], ARGV[2] do
  local address = string.format('held%d@example.com', i)
  local prk = string.format('user/uid:h%d', i)
  redis.call('HSET', prk, '~rev', 'abcdefghijkl', '~held:email:' .. address, string.format('%.0f', ends))
  redis.call('PEXPIRE', prk, 8000000000)
  redis.call('SET', 'user/email:' .. address .. '/~prk', prk, 'PX', 8000060000)
end
return 1`
	plainScript = `for i = ARGV[1], ARGV[2] do
  local address = string.format('held%d@example.com', i)
  redis.call('HSET', string.format('x/uid:h%d', i), '~rev', 'abcdefghijkl', '~held:email:' .. address, '1')
  redis.call('SET', 'x/email:' .. address .. '/~prk', string.format('x/uid:h%d', i))
end
return 1`
)
