//go:build linux

package chaos

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
)

// Kinds of store for a run.
const (
	kindCluster  = "cluster"
	kindOne      = "one"
	kindSentinel = "sentinel"
)

// startServers starts the servers of the run's kind. All of them sync their files with every write,
// so that a killed server loses none.
func (r *run) startServers() {
	persistent := redistest.AppendOnly("always")
	switch r.kind {
	case kindCluster:
		r.cluster = redistest.StartCluster(r.t, redistest.FailsOver, persistent,
			redistest.Config("cluster-replica-no-failover yes", "cluster-require-full-coverage no"))
		r.addClusterShards()
	case kindOne:
		r.addShard(redistest.Start(r.t, persistent))
	case kindSentinel:
		r.sentinel = redistest.StartSentinel(r.t, persistent)
		r.addShard(r.sentinel.Master, r.sentinel.Replica)
	}
}

// addShard adds a shard that consists of nodes.
func (r *run) addShard(nodes ...*redistest.Server) {
	for _, node := range nodes {
		r.raw[node] = node.Client()
	}
	r.shards = append(r.shards, shard{nodes})
}

// addClusterShards adds the shards of the cluster.
func (r *run) addClusterShards() {
	for i := range len(r.cluster.Nodes) / 2 {
		r.addShard(r.cluster.Nodes[i], r.cluster.Nodes[i+len(r.cluster.Nodes)/2])
	}
}

// addrs returns the addresses that clients connect to.
func (r *run) addrs() []string {
	switch r.kind {
	case kindCluster:
		return r.cluster.Addrs()
	case kindSentinel:
		return r.sentinel.Addrs()
	}
	return []string{r.shards[0].nodes[0].Addr()}
}

// waitReady waits until all servers run and know each other.
func (r *run) waitReady() {
	switch r.kind {
	case kindCluster:
		r.cluster.WaitReady()
	case kindSentinel:
		r.sentinel.WaitReady()
	}
}

// connect returns a Redis client for a store. It dials with dial, or with the client's own dialer
// if dial is nil.
func connect(kind string, addrs []string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) redis.UniversalClient {
	switch kind {
	case kindCluster:
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: addrs, Dialer: dial, ContextTimeoutEnabled: true, ReadTimeout: time.Second,
			ClusterStateReloadInterval: 2 * time.Second,
		})
	case kindSentinel:
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: redistest.MasterName, SentinelAddrs: addrs, Dialer: dial, ContextTimeoutEnabled: true, ReadTimeout: time.Second,
		})
	}
	return redis.NewClient(&redis.Options{
		Addr: addrs[0], Dialer: dial, ContextTimeoutEnabled: true, ReadTimeout: time.Second,
	})
}

// onMasters calls f for each master.
func onMasters(ctx context.Context, c redis.UniversalClient, f func(context.Context, redis.UniversalClient) error) error {
	if cluster, ok := c.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return f(ctx, node) })
	}
	return f(ctx, c)
}

// switchOver makes the Sentinels promote the replica. No write is lost: switchOver pauses writes at
// the old master, waits until the replica has all of them, and ends the pause only when the old
// master is a replica itself.
func (r *run) switchOver() {
	r.waitReady()
	old, next := r.raw[r.master(0)], r.raw[r.replica(0)]
	r.must(old.Do(r.ctx, "CLIENT", "PAUSE", 60_000, "WRITE").Err())
	r.waitUntil("the replica has all writes", func() bool { return offset(replicationInfo(old, r)) == offset(replicationInfo(next, r)) })
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: r.sentinel.Sentinels[0].Addr()})
	defer sentinel.Close()
	r.must(sentinel.Failover(r.ctx, redistest.MasterName).Err())
	r.waitUntil("the replica is the master", func() bool { return strings.Contains(replicationInfo(next, r), "role:master") })
	host, port, err := net.SplitHostPort(next.Options().Addr)
	r.must(err)
	// The Sentinels do the same, but only when the pause has ended.
	r.must(old.ReplicaOf(r.ctx, host, port).Err())
	r.must(old.Do(r.ctx, "CLIENT", "UNPAUSE").Err())
	r.waitReady()
}

// offset returns the position of a node in the replication stream, from the text of INFO.
func offset(info string) string {
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		// A replica prints both, its own offset first.
		if name == "slave_repl_offset" || name == "master_repl_offset" {
			return value
		}
	}
	return ""
}

// waitUntil waits until condition returns true. The servers must reach that state without help.
func (r *run) waitUntil(what string, condition func() bool) {
	for begin := time.Now(); !condition(); time.Sleep(20 * time.Millisecond) {
		if r.ctx.Err() != nil {
			r.t.Fatal("interrupted")
		}
		if time.Since(begin) > time.Minute {
			r.t.Fatalf("fault of the test, not a violation: after a minute still waiting until %s", what)
		}
	}
}
