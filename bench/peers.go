package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"slices"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/om"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/userdb"
)

// rueidisClient returns a rueidis client that connects to the server as the other clients do.
func (b *bench) rueidisClient() rueidis.Client {
	at := mustGet(redis.ParseURL(b.server.url(1)))
	return mustGet(rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{at.Addr}, SelectDB: at.DB, DisableCache: true,
		DialCtxFn: func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, at.Network, at.Addr)
		},
	}))
}

// compareWithPeers compares the library with rueidis and with go-redis' AutoPipeline. It compares
// throughput and the 99th percentile, each with the better of the two, and throughput with rueidis
// alone. There is no row of processor time, because that depends on how many calls share a batch,
// which varies by a tenth from one sitting to the next.
func (b *bench) compareWithPeers(ctx context.Context, workers int, f func(*userdb.Type, rueidis.Client, *redis.AutoPipeliner) (ours, first, second variant)) outcome {
	db, users := b.server.open(ctx, userdb.Options{})
	defer db.Close()
	c := b.server.client(workers + 8)
	defer c.Close()
	other := b.rueidisClient()
	defer other.Close()
	ours, first, second := f(users, other, mustGet(c.AutoPipeline()))
	rs := b.interleave(ctx, workers, ours, first, second)
	least := func(of func(result) float64) result {
		return slices.MinFunc(rs[1:], func(x, y result) int { return cmp.Compare(of(x), of(y)) })
	}
	fastest := least(func(r result) float64 { return -r.Rate })
	steadiest := least(func(r result) float64 { return r.P99 })
	p99, rueidis := compareTails(rs[0], steadiest), compareBlocks(rs[0], rs[1], block.rate)
	return outcome{estimate: compareBlocks(rs[0], fastest, block.rate), p99: &p99, rueidis: &rueidis, variants: rs}
}

func peerGet(workers int) measure {
	return func(b *bench, ctx context.Context) outcome {
		return b.compareWithPeers(ctx, workers, func(users *userdb.Type, other rueidis.Client, auto *redis.AutoPipeliner) (ours, first, second variant) {
			return findVariant(users), rueidisGet(other), autoGet(auto)
		})
	}
}

func rueidisGet(c rueidis.Client) variant {
	return variant{name: "rueidis", op: func(ctx context.Context, w, i int) error {
		_, err := c.Do(ctx, c.B().Hgetall().Key(prk(pick(i))).Build()).AsStrMap()
		return err
	}}
}

func autoGet(auto *redis.AutoPipeliner) variant {
	return variant{name: "AutoPipeline", op: func(ctx context.Context, w, i int) error { return auto.HGetAll(ctx, prk(pick(i))).Err() }}
}

func peerLookup(workers int) measure {
	return func(b *bench, ctx context.Context) outcome {
		return b.compareWithPeers(ctx, workers, func(users *userdb.Type, other rueidis.Client, auto *redis.AutoPipeliner) (ours, first, second variant) {
			script := rueidis.NewLuaScript(lookupSource)
			ours = variant{name: "userdb", op: func(ctx context.Context, w, i int) error {
				_, err := users.Find(ctx, hints.Field("email", email(pick(i))))
				return err
			}}
			first = variant{name: "rueidis", op: func(ctx context.Context, w, i int) error {
				_, err := script.Exec(ctx, other, []string{srkMail(pick(i))}, nil).AsStrMap()
				return err
			}}
			return ours, first, variant{name: "AutoPipeline", op: func(ctx context.Context, w, i int) error {
				_, err := bareLookup.Run(ctx, auto, []string{srkMail(pick(i))}).Slice()
				return err
			}}
		})
	}
}

// An omUser is a user as rueidis/om stores it, without uniqueness.
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

// compareWithOM compares the library with a repository of om that holds the given number of users.
func (b *bench) compareWithOM(ctx context.Context, users int, f func(*userdb.Type, om.Repository[omUser]) (ours, theirs variant)) outcome {
	c := b.rueidisClient()
	defer c.Close()
	repo := om.NewHashRepository("om", omUser{}, c)
	for n := range users {
		must(saveOM(ctx, repo, n))
	}
	o := b.compareWithBare(ctx, 128, userdb.Options{}, func(users *userdb.Type, _ *redis.Client) (ours, theirs variant) { return f(users, repo) })
	o.cpu = nil // see compareWithPeers
	return o
}

func saveOM(ctx context.Context, repo om.Repository[omUser], k int) error {
	u := repo.NewEntity()
	u.ID, u.Email, u.Name, u.Job, u.City, u.Lang, u.Added = uid(k), email(k), name(k), "cook", "Berlin", "de", "2026-11-20T08:02:40.512Z"
	return repo.Save(ctx, u)
}

func (b *bench) uniquenessPrice(ctx context.Context) outcome {
	return b.compareWithOM(ctx, 0, func(users *userdb.Type, repo om.Repository[omUser]) (ours, theirs variant) {
		return createVariant(users), variant{name: "om", op: func(ctx context.Context, w, i int) error { return saveOM(ctx, repo, serial(i)) }}
	})
}

func (b *bench) omFetch(ctx context.Context) outcome {
	return b.compareWithOM(ctx, population, func(users *userdb.Type, repo om.Repository[omUser]) (ours, theirs variant) {
		return findVariant(users), variant{name: "om", op: func(ctx context.Context, w, i int) error {
			_, err := repo.Fetch(ctx, uid(pick(i)))
			return err
		}}
	})
}
