package main

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/userdb"
)

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// withCluster opens the library on a new cluster, beside a bare client; dial nil: as ever.
func (b *bench) withCluster(ctx context.Context, dial dialer, f func(users *userdb.Type, c *redis.ClusterClient) outcome) outcome {
	var h host
	defer h.stop()
	addrs := redistest.StartCluster(&h).Addrs()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true, Dialer: dial})
	defer c.Close()
	db := got(userdb.New(ctx, c, userdb.Options{Schema: userSchema()}))
	defer db.Close()
	return f(got(db.Type("user")), c)
}

// clusterCreate compares with writes in one slot, which no account store on a cluster can do with every user.
func clusterCreate(workers int) measure {
	return func(b *bench, ctx context.Context) outcome {
		return b.withCluster(ctx, nil, func(users *userdb.Type, c *redis.ClusterClient) outcome {
			return b.compare(ctx, workers, creates(users), variant{name: "one slot", op: func(ctx context.Context, w, i int) error {
				k := serial(i)
				tag := "{" + uid(k) + "}"
				return bareCreate.Run(ctx, c, []string{tag + prk(k), tag + srkMail(k), tag + srkName(k)}, newFields(k)...).Err()
			}})
		})
	}
}

func clusterLookup(workers int) measure {
	return func(b *bench, ctx context.Context) outcome {
		return b.withCluster(ctx, nil, func(users *userdb.Type, c *redis.ClusterClient) outcome {
			const some = 1000
			for i := range some {
				got(users.Create(ctx, newUser(i)))
			}
			return b.compare(ctx, workers, variant{name: "userdb", op: func(ctx context.Context, w, i int) error {
				_, err := users.Find(ctx, hints.Field("email", email(i%some)))
				return err
			}}, variant{name: "GET, HGETALL", op: func(ctx context.Context, w, i int) error {
				srv, err := c.Get(ctx, srkMail(i%some)).Result()
				if err != nil {
					return err
				}
				prk, _, _ := strings.Cut(srv, " ")
				return c.HGetAll(ctx, prk).Err()
			}})
		})
	}
}

// clusterTrips puts a slow wire before every node, and divides.
func (b *bench) clusterTrips(ctx context.Context) outcome {
	return b.withCluster(ctx, slowDialer(2*time.Millisecond), func(users *userdb.Type, c *redis.ClusterClient) outcome {
		rs := b.lasting(4*b.per).interleave(ctx, 1, creates(users), variant{name: "EXISTS", op: func(ctx context.Context, w, i int) error { return c.Exists(ctx, "none").Err() }})
		return outcome{ratio: rs[0].P50 / rs[1].P50, variants: rs}
	})
}

// slowDialer connects so that what a server answers at once arrives d later: to a lone caller it is a wire of half of that
// each way.
func slowDialer(d time.Duration) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return slowConn{conn, d}, err
	}
}

type slowConn struct {
	net.Conn
	late time.Duration
}

func (c slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	time.Sleep(c.late)
	return n, err
}
