package redistest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// clusterSlots is the number of slots of every Redis Cluster.
const clusterSlots = 16_384

// A Cluster is a temporary Redis Cluster of three masters with one replica each. With FailsOver, a
// replica replaces its master about two seconds after the master was killed. Without it, the
// cluster's timeout is so long that no node counts as dead just because the machine is busy.
type Cluster struct {
	Nodes   []*Server // the first three began as masters
	t       testing.TB
	opts    []Option
	masters int
}

// StartCluster starts a cluster for t. Its nodes have the given options.
func StartCluster(t testing.TB, opts ...Option) *Cluster {
	t.Helper()
	opts = append([]Option{clusterNode}, opts...)
	c := &Cluster{t: t, opts: opts, masters: 3}
	for range 6 {
		c.Nodes = append(c.Nodes, Start(t, opts...))
	}
	c.form()
	var chosen config
	for _, opt := range opts {
		opt(&chosen)
	}
	if !chosen.failsOver {
		for _, node := range c.Nodes {
			c.must(node.Client().ConfigSet(context.Background(), "cluster-node-timeout", "60000").Err())
		}
	}
	return c
}

// FailsOver makes a cluster, or Sentinels, notice after about a second that a node has died.
func FailsOver(c *config) { c.failsOver = true }

func clusterNode(c *config) {
	c.bus = true
	c.lines = append(c.lines, "cluster-enabled yes", "cluster-config-file nodes.conf", "cluster-node-timeout 1000",
		"cluster-replica-validity-factor 0", "cluster-allow-replica-migration no", "repl-diskless-sync-delay 0")
}

// form makes one cluster of six nodes that do not know each other.
func (c *Cluster) form() {
	c.t.Helper()
	ctx := context.Background()
	ids := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		client := node.Client()
		c.must(client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		if i < 3 {
			c.must(client.ClusterAddSlotsRange(ctx, clusterSlots*i/3, clusterSlots*(i+1)/3-1).Err())
		}
		for _, other := range c.Nodes[:i] {
			host, port, _ := net.SplitHostPort(other.Addr())
			c.must(client.ClusterMeet(ctx, host, port).Err())
		}
		id, err := client.ClusterMyID(ctx).Result()
		c.must(err)
		ids[i] = id
	}
	for i, node := range c.Nodes[3:] {
		client := node.Client()
		c.until(func() error { return client.ClusterReplicate(ctx, ids[i]).Err() })
	}
	c.WaitReady()
}

// AddShard starts one more master, which joins the cluster without slots.
func (c *Cluster) AddShard() *Server {
	c.t.Helper()
	node := Start(c.t, c.opts...)
	host, port, _ := net.SplitHostPort(c.Nodes[0].Addr())
	c.must(node.Client().ClusterMeet(context.Background(), host, port).Err())
	c.Nodes = append(c.Nodes, node)
	c.masters++
	c.WaitReady()
	return node
}

func (c *Cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// until calls f until it succeeds, and fails the test if that takes too long.
func (c *Cluster) until(f func() error) {
	c.t.Helper()
	c.must(eventually(f))
}

func eventually(f func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// WaitReady waits until all running nodes agree that all slots are served and all running replicas
// follow their masters.
func (c *Cluster) WaitReady() {
	c.t.Helper()
	running := 0
	for _, node := range c.Nodes {
		if node.proc != nil {
			running++
		}
	}
	for _, node := range c.Nodes {
		if node.proc != nil {
			client := node.Client()
			c.until(func() error { return nodeReady(client, running, c.masters) })
			c.must(client.Close())
		}
	}
}

// nodeReady returns an error unless the node knows as many healthy nodes as are running, of which
// all but masters are replicas, all slots are served, and the node, if it is a replica, follows its
// master.
func nodeReady(client *redis.Client, running, masters int) error {
	ctx := context.Background()
	info, err := client.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	nodes, err := client.ClusterNodes(ctx).Result()
	if err != nil {
		return err
	}
	replication, err := client.Info(ctx, "replication").Result()
	if err != nil {
		return err
	}
	healthy, replicas := 0, 0
	for line := range strings.Lines(nodes) {
		flags := strings.Split(strings.Fields(line)[2], ",") // "nofailover" is not "fail"
		if slices.Contains(flags, "fail") || slices.Contains(flags, "fail?") || slices.Contains(flags, "handshake") {
			continue
		}
		healthy++
		if slices.Contains(flags, "slave") {
			replicas++
		}
	}
	ok := strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_ok:16384") &&
		healthy == running && replicas == running-masters && !strings.Contains(replication, "master_link_status:down")
	if !ok {
		return fmt.Errorf("the cluster is not ready:\n%s\n%s\n%s", info, nodes, replication)
	}
	return nil
}

// Addrs returns the HOST:PORT of all nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		addrs[i] = node.Addr()
	}
	return addrs
}

// URL returns the cluster's redis+cluster: URL.
func (c *Cluster) URL() string { return manyURL("redis+cluster", c.Addrs(), "") }

// manyURL returns a URL of the first address that lists the others, and the master's name if there
// is one, as parameters.
func manyURL(scheme string, addrs []string, master string) string {
	query := ""
	if master != "" {
		query = "&master_name=" + master
	}
	for _, addr := range addrs[1:] {
		query += "&addr=" + addr
	}
	return scheme + "://" + addrs[0] + "?" + strings.TrimPrefix(query, "&")
}

// Client returns a new client that is closed with the test. It learns within half a second which
// nodes are masters.
func (c *Cluster) Client() *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ClusterStateReloadInterval: 500 * time.Millisecond})
	c.t.Cleanup(func() { client.Close() })
	return client
}

// Master returns the running node that serves the slot of a key.
func (c *Cluster) Master(key string) *Server {
	c.t.Helper()
	client := c.Client()
	defer client.Close()
	master, err := client.MasterForKey(context.Background(), key)
	c.must(err)
	return c.at(master.Options().Addr)
}

// ReplicaOf returns the replica that one of the first three masters began with.
func (c *Cluster) ReplicaOf(master *Server) *Server {
	c.t.Helper()
	i := slices.Index(c.Nodes[:3], master)
	if i < 0 {
		c.t.Fatalf("%s is none of the first three masters", master.Addr())
	}
	return c.Nodes[3+i]
}

func (c *Cluster) at(addr string) *Server {
	for _, node := range c.Nodes {
		if node.Addr() == addr {
			return node
		}
	}
	c.t.Fatalf("no node has the address %s", addr)
	return nil
}
