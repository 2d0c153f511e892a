package userdb_test

import (
	"context"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
)

// lasting is a test whose end ends nothing: what it starts lives as long as the process.
type lasting struct{ testing.TB }

func (lasting) Cleanup(func()) {}

var six struct {
	sync.Mutex
	cluster *redistest.Cluster
}

// clusterSite is the six-node cluster that all tests share, one after the other, emptied.
func clusterSite(t *testing.T) *site {
	t.Helper()
	six.Lock()
	defer six.Unlock()
	if six.cluster == nil {
		six.cluster = redistest.StartCluster(lasting{t})
	}
	s := newSite(t, six.cluster.URL(), map[trait]string{
		ownProcess: "the tests that stop and kill the nodes of a cluster are those in cluster_fault_test.go",
	})
	s.empty()
	return s
}

// empty removes all records of a cluster.
func (s *site) empty() {
	s.t.Helper()
	o, err := redis.ParseClusterURL("redis" + s.url[len("redis+cluster"):])
	must(s.t, err)
	c := redis.NewClusterClient(o)
	defer c.Close()
	must(s.t, c.ForEachMaster(context.Background(), func(ctx context.Context, node *redis.Client) error {
		return node.FlushAll(ctx).Err()
	}))
}
