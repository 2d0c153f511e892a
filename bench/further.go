package main

import (
	"context"
	"fmt"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// spacedUsers opens a namespace of its own, whose users may have the given number of addresses.
func (b *bench) spacedUsers(ctx context.Context, namespace string, addresses int) (*userdb.DB, *userdb.Type) {
	s := userSchema()
	f := s.Types["user"].Fields["email"]
	f.Many = addresses
	s.Types["user"].Fields["email"] = f
	return b.server.open(ctx, userdb.Options{Schema: s, Namespace: mustGet(recordkey.ParseNamespace(namespace))})
}

// createOfMany compares creates with one address under a schema that allows ten with creates under
// one that allows one. The names of both namespaces have the same length.
func (b *bench) createOfMany(ctx context.Context) outcome {
	db, many := b.spacedUsers(ctx, "many", 10)
	defer db.Close()
	db, lone := b.spacedUsers(ctx, "lone", 0)
	defer db.Close()
	ours, theirs := createVariant(many), createVariant(lone)
	theirs.name = "without"
	return b.compare(ctx, 1, ours, theirs)
}

// address returns one of the addresses of a user with several. The first one is number 0.
func address(user, number int) string { return fmt.Sprintf("user%d-%d@example.com", user, number) }

// addressed returns a user with ten addresses.
func addressed(user int) userdb.NewEntry {
	n := newUser(user)
	delete(n.Facets, "email")
	n.Values = map[string][]string{}
	for number := range 10 {
		n.Values["email"] = append(n.Values["email"], address(user, number))
	}
	return n
}

// createTen compares creates with ten addresses with ten creates with one each.
func (b *bench) createTen(ctx context.Context) outcome {
	db, many := b.spacedUsers(ctx, "many", 10)
	defer db.Close()
	db, lone := b.spacedUsers(ctx, "lone", 0)
	defer db.Close()
	return b.compare(ctx, 1, variant{name: "one entry", op: func(ctx context.Context, w, i int) error {
		_, err := many.Create(ctx, addressed(serial(i)))
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
	db, users := b.spacedUsers(ctx, "many", 10)
	defer db.Close()
	for i := range entries {
		mustGet(users.Create(ctx, addressed(i)))
	}
	by := func(name string, number int) variant {
		return variant{name: name, op: func(ctx context.Context, w, i int) error {
			_, err := users.Find(ctx, hints.Field("email", address(pick(i)%entries, number)))
			return err
		}}
	}
	return b.compare(ctx, 1, by("last", 9), by("first", 0))
}
