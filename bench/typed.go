package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// An account has all facets of a user.
type account struct {
	UID   string          `userdb:"uid"`
	Rev   userdb.Revision `userdb:"~rev"`
	Email string          `userdb:"email"`
	Name  string          `userdb:"name"`
	Job   string          `userdb:"job"`
	City  string          `userdb:"city"`
	Lang  *string         `userdb:"lang"`
	Added time.Time       `userdb:"added"`
}

// compareTyped compares a method of Typed with the same method of Type. Nothing reads the facets of
// the entries that Type returns.
func compareTyped(workers int, methods func(users *userdb.Type, accounts *userdb.Typed[account]) (typed, untyped variant)) measure {
	return func(b *bench, ctx context.Context) outcome {
		return b.compareWithBare(ctx, workers, userdb.Options{}, func(users *userdb.Type, _ *redis.Client) (ours, bare variant) {
			return methods(users, mustGet(userdb.Of[account](users)))
		})
	}
}

func typedFind(users *userdb.Type, accounts *userdb.Typed[account]) (typed, untyped variant) {
	untyped = findVariant(users)
	untyped.name = "Entry"
	return variant{name: "struct", op: func(ctx context.Context, w, i int) error {
		_, err := accounts.Find(ctx, hints.UID(uid(pick(i))))
		return err
	}}, untyped
}

func typedSave(users *userdb.Type, accounts *userdb.Typed[account]) (typed, untyped variant) {
	ctx := context.Background()
	mine, theirs := mustGet(accounts.Find(ctx, hints.UID(uid(1)))), mustGet(users.Find(ctx, hints.UID(uid(2))))
	typed = variant{name: "struct", op: func(ctx context.Context, w, i int) (err error) {
		mine.City, mine.Name = fmt.Sprint("city ", i), fmt.Sprint("mine ", i)
		mine, err = accounts.Save(ctx, mine)
		return err
	}}
	untyped = variant{name: "Entry", op: func(ctx context.Context, w, i int) (err error) {
		theirs.Put("city", schema.Text(fmt.Sprint("city ", i)))
		theirs.Put("name", schema.Text(fmt.Sprint("mine ", i)))
		theirs, err = users.Save(ctx, theirs)
		return err
	}}
	return typed, untyped
}

func typedCreate(users *userdb.Type, accounts *userdb.Typed[account]) (typed, untyped variant) {
	untyped = createVariant(users)
	untyped.name = "Entry"
	lang := "de"
	return variant{name: "struct", op: func(ctx context.Context, w, i int) error {
		k := serial(i)
		_, err := accounts.Create(ctx, account{UID: uid(k), Email: email(k), Name: name(k), Job: "cook", City: "Berlin", Lang: &lang})
		return err
	}}, untyped
}

// typedPage reads many entries at once, so that the round trip hides as little as possible.
func typedPage(users *userdb.Type, accounts *userdb.Typed[account]) (typed, untyped variant) {
	q := userdb.Query{Limit: 256}
	typed = variant{name: "struct", op: func(ctx context.Context, w, i int) error {
		_, err := accounts.Page(ctx, q)
		return err
	}}
	untyped = variant{name: "Entry", op: func(ctx context.Context, w, i int) error {
		_, err := users.Page(ctx, q)
		return err
	}}
	return typed, untyped
}
