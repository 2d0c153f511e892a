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
	"github.com/coffeenode/userdb/userdb/redisdb"
)

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// withCluster opens the library on a new cluster. The library and f use the same client, which
// connects with dial unless it is nil.
func (b *bench) withCluster(ctx context.Context, dial dialer, f func(b *bench, users *userdb.Type, c *redis.ClusterClient) outcome) outcome {
	var tb fakeTB
	defer tb.stop()
	servers := redistest.StartCluster(&tb)
	var nodes []*redis.Client
	for _, node := range servers.Nodes {
		nodes = append(nodes, node.Client())
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: servers.Addrs(), ContextTimeoutEnabled: true, Dialer: dial})
	defer c.Close()
	db := mustGet(redisdb.New(ctx, c, userdb.Options{Schema: userSchema()}))
	defer db.Close()
	o := f(b.withNodes(ctx, nodes...).withBlocks(100, b.blockTime), mustGet(db.Type("user")), c)
	o.cpu = nil // a tenth or more of the processor time is the six nodes' own work
	return o
}

// clusterCreate compares creates with a script that writes all keys of a user to one slot. An
// account store cannot do that, because it finds a user by a value alone.
func clusterCreate(workers int) measure {
	return func(b *bench, ctx context.Context) outcome {
		return b.withCluster(ctx, nil, func(b *bench, users *userdb.Type, c *redis.ClusterClient) outcome {
			return b.compare(ctx, workers, createVariant(users), variant{name: "one slot", op: func(ctx context.Context, w, i int) error {
				k := serial(i)
				tag := "{" + uid(k) + "}"
				return bareCreate.Run(ctx, c, []string{tag + prk(k), tag + srkMail(k), tag + srkName(k)}, newFields(k)...).Err()
			}})
		})
	}
}

func clusterLookup(workers int) measure {
	return func(b *bench, ctx context.Context) outcome {
		return b.withCluster(ctx, nil, func(b *bench, users *userdb.Type, c *redis.ClusterClient) outcome {
			const some = 1000
			for i := range some {
				mustGet(users.Create(ctx, newUser(i)))
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

// clusterTrips delays the replies of every node, and divides the time of a create by that of one
// command.
func (b *bench) clusterTrips(ctx context.Context) outcome {
	return b.withCluster(ctx, slowDialer(2*time.Millisecond), func(b *bench, users *userdb.Type, c *redis.ClusterClient) outcome {
		exists := variant{name: "EXISTS", op: func(ctx context.Context, w, i int) error { return c.Exists(ctx, "none").Err() }}
		o := b.withBlocks(20, 100*time.Millisecond).compare(ctx, 1, createVariant(users), exists)
		o.estimate = o.inverse() // a ratio of times, not of rates
		return o
	})
}

// slowDialer connects so that every reply arrives d later. To a single caller this is like a
// network with a delay of d/2 in each direction.
func slowDialer(d time.Duration) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return slowConn{conn, d}, err
	}
}

type slowConn struct {
	net.Conn
	delay time.Duration
}

func (c slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	time.Sleep(c.delay)
	return n, err
}
