package redistest

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

// MasterName is the name of the master that the Sentinels of this package watch.
const MasterName = "userdb"

// A Sentinel is a temporary master with one replica and three Sentinels. With FailsOver the replica
// becomes master about two seconds after the master was killed. Without it, the Sentinels' timeout
// is so long that no master counts as dead, and no failover that a test starts is aborted, just
// because the machine is busy. Use AppendOnly if a killed master must come back with its data.
type Sentinel struct {
	Master, Replica *Server // in their first roles
	Sentinels       []*Server
	t               testing.TB
}

// StartSentinel starts a master, a replica and three Sentinels for t. Master and replica have the
// given options.
func StartSentinel(t testing.TB, opts ...Option) *Sentinel {
	t.Helper()
	opts = append([]Option{Config("repl-diskless-sync-delay 0")}, opts...)
	s := &Sentinel{t: t, Master: Start(t, opts...)}
	port := s.Master.port
	s.Replica = Start(t, append(opts, Config(fmt.Sprintf("replicaof 127.0.0.1 %d", port)))...)
	var chosen config
	for _, opt := range opts {
		opt(&chosen)
	}
	downAfter, failoverTimeout := "60000", "60000"
	if chosen.failsOver {
		downAfter, failoverTimeout = "1000", "2000"
	}
	watch := Config(
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 2", MasterName, port),
		"sentinel down-after-milliseconds "+MasterName+" "+downAfter,
		"sentinel failover-timeout "+MasterName+" "+failoverTimeout,
	)
	for range 3 {
		s.Sentinels = append(s.Sentinels, Start(t, watch, func(c *config) { c.args = []string{"--sentinel"} }))
	}
	s.WaitReady()
	return s
}

// WaitReady waits until all running Sentinels see the same healthy master, one replica, and the
// other Sentinels, including those that have died.
func (s *Sentinel) WaitReady() {
	s.t.Helper()
	if err := eventually(s.ready); err != nil {
		s.t.Fatal(err)
	}
}

func (s *Sentinel) ready() error {
	ports := map[string]bool{}
	for _, server := range s.Sentinels {
		if server.proc == nil {
			continue
		}
		master, err := masterSeen(server)
		if err != nil {
			return err
		}
		ports[master["port"]] = true
		if master["flags"] != "master" || master["num-slaves"] != "1" || master["num-other-sentinels"] != "2" || len(ports) != 1 {
			return fmt.Errorf("the Sentinels are not ready: %v", master)
		}
	}
	return nil
}

// masterSeen returns a Sentinel's view of the master.
func masterSeen(server *Server) (map[string]string, error) {
	client := redis.NewSentinelClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	return client.Master(context.Background(), MasterName).Result()
}

// Addrs returns the HOST:PORT of all Sentinels.
func (s *Sentinel) Addrs() []string {
	var addrs []string
	for _, server := range s.Sentinels {
		addrs = append(addrs, server.Addr())
	}
	return addrs
}

// URL returns the redis+sentinel: URL of the master.
func (s *Sentinel) URL() string { return manyURL("redis+sentinel", s.Addrs(), MasterName) }

// Client returns a new client of the current master; it is closed with the test.
func (s *Sentinel) Client() *redis.Client {
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: MasterName, SentinelAddrs: s.Addrs()})
	s.t.Cleanup(func() { client.Close() })
	return client
}

// Current returns the server that the first running Sentinel calls master, or nil if that is
// neither s.Master nor s.Replica.
func (s *Sentinel) Current() *Server {
	s.t.Helper()
	for _, sentinel := range s.Sentinels {
		if sentinel.proc == nil {
			continue
		}
		master, err := masterSeen(sentinel)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, server := range []*Server{s.Master, s.Replica} {
			if strconv.Itoa(server.port) == master["port"] {
				return server
			}
		}
		return nil
	}
	return nil
}
