package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/userdb"
)

// A nodes is a cluster of six servers of our own.
type nodes struct {
	cmds  []*exec.Cmd
	dir   string
	addrs []string
}

func startCluster(ctx context.Context) (*nodes, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	n := &nodes{dir: dir}
	for i := range 6 {
		port, err := nodePort()
		if err != nil {
			return n, err
		}
		home := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(home, 0o700); err != nil {
			return n, err
		}
		cmd := exec.Command("redis-server", "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes",
			"--cluster-node-timeout", "5000", "--save", "", "--appendonly", "no", "--dir", home, "--logfile", filepath.Join(home, "log"))
		if err := cmd.Start(); err != nil {
			return n, err
		}
		n.cmds, n.addrs = append(n.cmds, cmd), append(n.addrs, fmt.Sprintf("127.0.0.1:%d", port))
	}
	return n, n.join(ctx)
}

// nodePort is a free port whose bus port, 10,000 higher, is free too.
func nodePort() (int, error) {
	for range 100 {
		port, err := freePort()
		if err != nil || port > 55_000 {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+10_000))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port")
}

func (n *nodes) join(ctx context.Context) error {
	time.Sleep(300 * time.Millisecond)
	args := append([]string{"--cluster", "create"}, n.addrs...)
	args = append(args, "--cluster-replicas", "1", "--cluster-yes")
	if out, err := exec.CommandContext(ctx, "redis-cli", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("making a cluster: %w: %s", err, out)
	}
	c := n.client()
	defer c.Close()
	for range 100 {
		if c.Set(ctx, "ready", "1", 0).Err() == nil && c.ClusterInfo(ctx).Err() == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("the cluster is not ready")
}

func (n *nodes) stop() {
	for _, cmd := range n.cmds {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	_ = os.RemoveAll(n.dir)
}

func (n *nodes) client() *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: n.addrs, ContextTimeoutEnabled: true})
}

// withCluster opens the library on a new cluster, beside a bare client.
func (b *bench) withCluster(ctx context.Context, f func(users *userdb.Type, c *redis.ClusterClient, n *nodes) (outcome, error)) (outcome, error) {
	n, err := startCluster(ctx)
	if n != nil {
		defer n.stop()
	}
	if err != nil {
		return outcome{}, err
	}
	c := n.client()
	defer c.Close()
	db, err := userdb.New(ctx, c, userdb.Options{})
	if err != nil {
		return outcome{}, err
	}
	defer db.Close()
	users, err := db.Type("user")
	if err != nil {
		return outcome{}, err
	}
	return f(users, c, n)
}

// bareOneSlot writes a user in one slot, which no account store on a cluster can do with every user.
func bareOneSlot(ctx context.Context, c *redis.ClusterClient, k int) error {
	tag := "{" + uid(k) + "}"
	return bareCreate.Run(ctx, c, []string{tag + prk(k), tag + srkMail(k), tag + srkName(k)}, newFields(k)...).Err()
}

func (b *bench) clusterCreate(ctx context.Context) (outcome, error) {
	return b.withCluster(ctx, func(users *userdb.Type, c *redis.ClusterClient, _ *nodes) (outcome, error) {
		return b.compare(ctx, 1, creates(users, 7), variant{"one slot", func(ctx context.Context, w, i int) error { return bareOneSlot(ctx, c, serial(8, w, i)) }})
	})
}

func (b *bench) clusterLookup(ctx context.Context) (outcome, error) {
	return b.withCluster(ctx, func(users *userdb.Type, c *redis.ClusterClient, _ *nodes) (outcome, error) {
		const some = 1000
		for i := range some {
			if _, err := users.Create(ctx, newUser(i)); err != nil {
				return outcome{}, err
			}
		}
		return b.compare(ctx, 1, variant{"userdb", func(ctx context.Context, w, i int) error {
			_, err := users.Find(ctx, hints.Field("email", email(i%some)))
			return err
		}}, variant{"GET, HGETALL", func(ctx context.Context, w, i int) error {
			owner, err := c.Get(ctx, srkMail(i%some)).Result()
			if err != nil {
				return err
			}
			return c.HGetAll(ctx, prkOf(owner)).Err()
		}})
	})
}

// prkOf is the PRK in an SRV, which has a token after it.
func prkOf(srv string) string {
	prk, _, _ := strings.Cut(srv, " ")
	return prk
}

// clusterTrips puts a slow wire before every node, and divides.
func (b *bench) clusterTrips(ctx context.Context) (outcome, error) {
	return b.withCluster(ctx, func(_ *userdb.Type, _ *redis.ClusterClient, n *nodes) (outcome, error) {
		slow := redis.NewClusterClient(&redis.ClusterOptions{Addrs: n.addrs, ContextTimeoutEnabled: true, Dialer: slowDialer(time.Millisecond)})
		defer slow.Close()
		db, err := userdb.New(ctx, slow, userdb.Options{})
		if err != nil {
			return outcome{}, err
		}
		defer db.Close()
		users, err := db.Type("user")
		if err != nil {
			return outcome{}, err
		}
		rs, err := interleave(ctx, b.server, 1, b.rounds, 4*b.per, creates(users, 9), variant{"PING", func(ctx context.Context, w, i int) error { return slow.Get(ctx, "ready").Err() }})
		if err != nil {
			return outcome{}, err
		}
		return outcome{ratio: rs[0].P50 / rs[1].P50, variants: rs}, nil
	})
}

// slowDialer connects through a pipe that holds everything back for d, each way.
func slowDialer(d time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		far, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		near, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
		if err != nil {
			return nil, err
		}
		middle, err := l.Accept()
		if err != nil {
			return nil, err
		}
		go delay(far, middle, d)
		go delay(middle, far, d)
		return near, nil
	}
}

// delay copies with every piece held back for d behind its arrival.
func delay(dst, src net.Conn, d time.Duration) {
	type piece struct {
		at   time.Time
		data []byte
	}
	pieces := make(chan piece, 1024)
	go func() {
		defer close(pieces)
		in := bufio.NewReaderSize(src, 64<<10)
		for {
			buf := make([]byte, 32<<10)
			n, err := in.Read(buf)
			if n > 0 {
				pieces <- piece{time.Now().Add(d), buf[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range pieces {
		time.Sleep(time.Until(p.at))
		if _, err := dst.Write(p.data); err != nil {
			break
		}
	}
	_ = dst.Close()
	_, _ = io.Copy(io.Discard, src)
}
