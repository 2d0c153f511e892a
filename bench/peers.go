package main

import (
	"context"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/om"

	"github.com/coffeenode/userdb/userdb"
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

// besideOM compares the library, over TCP as rueidis is, with a repository of om that has so many users.
func (b *bench) besideOM(ctx context.Context, users int, f func(*userdb.Type, om.Repository[omUser]) (ours, theirs variant)) outcome {
	c := got(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{b.server.Addr()}, DisableCache: true}))
	defer c.Close()
	repo := om.NewHashRepository("om", omUser{}, c)
	defer b.server.reset(ctx)
	for n := range users {
		must(saveOM(ctx, repo, n))
	}
	return b.overTCP().beside(ctx, 128, userdb.Options{}, func(users *userdb.Type, _ *redis.Client) (ours, theirs variant) { return f(users, repo) })
}

func saveOM(ctx context.Context, repo om.Repository[omUser], k int) error {
	u := repo.NewEntity()
	u.ID, u.Email, u.Name, u.Job, u.City, u.Lang, u.Added = uid(k), email(k), name(k), "cook", "Berlin", "de", "2026-11-20T08:02:40.512Z"
	return repo.Save(ctx, u)
}

func (b *bench) omSave(ctx context.Context) outcome {
	return b.besideOM(ctx, 0, func(users *userdb.Type, repo om.Repository[omUser]) (ours, theirs variant) {
		return creates(users), variant{"om", func(ctx context.Context, w, i int) error { return saveOM(ctx, repo, serial(i)) }}
	})
}

func (b *bench) omFetch(ctx context.Context) outcome {
	return b.besideOM(ctx, population, func(users *userdb.Type, repo om.Repository[omUser]) (ours, theirs variant) {
		return finds(users), variant{"om", func(ctx context.Context, w, i int) error {
			_, err := repo.Fetch(ctx, uid(pick(i)))
			return err
		}}
	})
}
