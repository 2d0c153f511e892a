package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/om"

	"github.com/coffeenode/userdb/hints"
)

// omUser is a user as rueidis/om keeps it: without uniqueness.
type omUser struct {
	ID    string `redis:",key"`
	Ver   int64  `redis:",ver"`
	Email string
	Name  string
	Job   string
	City  string
	Lang  string
	Added string
}

func peerRows() []row {
	return []row{
		{name: "om-save-128", what: "Create, against Save of rueidis/om, which knows no uniqueness", quick: true, target: 1, run: func(ctx context.Context, b *bench) (outcome, error) { return b.omSave(ctx) }},
		{name: "om-fetch-128", what: "Find, against Fetch of rueidis/om", quick: true, target: 1, run: func(ctx context.Context, b *bench) (outcome, error) { return b.omFetch(ctx) }},
		{name: "handmade-128", what: "Create, against go-redis by hand with WATCH and MULTI", quick: true, target: 1, run: func(ctx context.Context, b *bench) (outcome, error) { return b.handmade(ctx) }},
	}
}

func (b *bench) omRepo() (om.Repository[omUser], rueidis.Client, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{b.server.addr}, DisableCache: true})
	if err != nil {
		return nil, nil, err
	}
	return om.NewHashRepository("om", omUser{}, c), c, nil
}

func (b *bench) omSave(ctx context.Context) (outcome, error) {
	repo, c, err := b.omRepo()
	if err != nil {
		return outcome{}, err
	}
	defer c.Close()
	db, users, err := b.server.overTCP().users(ctx) // as rueidis
	if err != nil {
		return outcome{}, err
	}
	defer db.Close()
	defer b.server.reset(ctx)
	return b.compare(ctx, 128, variant{"userdb", func(ctx context.Context, w, i int) error {
		_, err := users.Create(ctx, newUser(serial(4, w, i)))
		return err
	}}, variant{"om", func(ctx context.Context, w, i int) error {
		k := serial(5, w, i)
		u := repo.NewEntity()
		u.ID, u.Email, u.Name, u.Job, u.City, u.Lang, u.Added = uid(k), email(k), name(k), "cook", "Berlin", "de", "2026-11-20T08:02:40.512Z"
		return repo.Save(ctx, u)
	}})
}

func (b *bench) omFetch(ctx context.Context) (outcome, error) {
	repo, c, err := b.omRepo()
	if err != nil {
		return outcome{}, err
	}
	defer c.Close()
	db, users, err := b.server.overTCP().users(ctx) // as rueidis
	if err != nil {
		return outcome{}, err
	}
	defer db.Close()
	defer b.server.reset(ctx)
	for n := range population {
		u := repo.NewEntity()
		u.ID, u.Email, u.Name, u.Job, u.City, u.Lang, u.Added = uid(n), email(n), name(n), "cook", "Berlin", "de", "2026-11-20T08:02:40.512Z"
		if err := repo.Save(ctx, u); err != nil {
			return outcome{}, err
		}
	}
	return b.compare(ctx, 128, variant{"userdb", func(ctx context.Context, w, i int) error {
		_, err := users.Find(ctx, hints.UID(uid(pick(w, i))))
		return err
	}}, variant{"om", func(ctx context.Context, w, i int) error {
		_, err := repo.Fetch(ctx, uid(pick(w, i)))
		return err
	}})
}

var errTaken = errors.New("taken")

// handmade is what people write themselves: watch the keys, look, write in a transaction.
func (b *bench) handmade(ctx context.Context) (outcome, error) {
	return b.create(ctx, 128, func(c *redis.Client) variant {
		return variant{"WATCH/MULTI", func(ctx context.Context, w, i int) error {
			k := serial(6, w, i)
			return c.Watch(ctx, func(tx *redis.Tx) error {
				n, err := tx.Exists(ctx, prk(k), srkMail(k), srkName(k)).Result()
				if err != nil || n > 0 {
					return fmt.Errorf("%w %d: %w", errTaken, n, err)
				}
				_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
					p.HSet(ctx, prk(k), newFields(k)...)
					p.Set(ctx, srkMail(k), prk(k), 0)
					p.Set(ctx, srkName(k), prk(k), 0)
					return nil
				})
				return err
			}, prk(k), srkMail(k), srkName(k))
		}}
	})
}
