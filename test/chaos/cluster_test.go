//go:build linux

package chaos

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
)

// A shard holds a master, and its replica if it has one.
type shard struct{ nodes []*redistest.Server }

// replicationInfo returns the replication section of a node's INFO, or the text of the error.
func replicationInfo(node *redis.Client, r *run) string {
	text, err := node.Info(r.ctx, "replication").Result()
	if err != nil {
		return err.Error()
	}
	return text
}

// master returns the node of shard i that is the master now. Only the nemesis changes the master.
// master waits, because a node that has just started may not answer yet.
func (r *run) master(i int) (found *redistest.Server) {
	r.waitUntil(fmt.Sprintf("shard %d has a master", i), func() bool {
		for _, node := range r.shards[i].nodes {
			if found == nil && strings.Contains(replicationInfo(r.raw[node], r), "role:master") {
				found = node
			}
		}
		return found != nil
	})
	return found
}

// replica returns the node of shard i that is not the master, or nil if there is only one.
func (r *run) replica(i int) *redistest.Server {
	master := r.master(i)
	for _, node := range r.shards[i].nodes {
		if node != master {
			return node
		}
	}
	return nil
}

var processID = regexp.MustCompile(`process_id:(\d+)`)

func (r *run) pidOf(node *redis.Client) int {
	info, err := node.Info(r.ctx, "server").Result()
	r.must(err)
	pid, err := strconv.Atoi(processID.FindStringSubmatch(info)[1])
	r.must(err)
	return pid
}

// stopMaster stops a master for a while. It continues the master even if the test is interrupted
// meanwhile.
func (r *run) stopMaster(i int, duration time.Duration) {
	pid := r.pidOf(r.raw[r.master(i)])
	r.must(syscall.Kill(pid, syscall.SIGSTOP))
	time.Sleep(duration)
	r.must(syscall.Kill(pid, syscall.SIGCONT))
}

// failover makes the replica of a shard its master, once the replica has all writes.
func (r *run) failover(i int) {
	if r.kind == kindSentinel {
		r.switchOver()
		return
	}
	r.cluster.WaitReady()
	old, replica := r.raw[r.master(i)], r.raw[r.replica(i)]
	r.must(replica.ClusterFailover(r.ctx).Err())
	leads := func(node *redis.Client) bool { return strings.Contains(replicationInfo(node, r), "role:master") }
	// For a moment both may report that they are the master.
	for begin := time.Now(); !leads(replica) || leads(old); time.Sleep(20 * time.Millisecond) {
		// After twice its time-out for failovers, Redis has certainly given up.
		if time.Since(begin) > 11*time.Second {
			r.log("a failover of shard %d was given up", i)
			break
		}
	}
	r.adoptOrphans(i)
	r.cluster.WaitReady()
}

// adoptOrphans gives the master of shard i the slots that a failover left without a master. We saw
// Redis 7.0 leave a slot that the old master had received shortly before: the new master did not
// take the slot over, but counted it as the old master's until that node announced that it was a
// replica. The records of the slot are at the new master, because they were replicated.
func (r *run) adoptOrphans(i int) {
	master := r.raw[r.master(i)]
	var orphans []int
	for range 100 {
		served := map[int64]bool{}
		shards, err := master.ClusterShards(r.ctx).Result()
		r.must(err)
		for _, s := range shards {
			for _, slots := range s.Slots {
				for slot := slots.Start; slot <= slots.End; slot++ {
					served[slot] = true
				}
			}
		}
		orphans = nil
		for slot := range 16384 {
			if !served[int64(slot)] {
				orphans = append(orphans, slot)
			}
		}
		if len(orphans) == 0 && r.replicas(master) == len(r.shards) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	if len(orphans) == 0 {
		return
	}
	r.log("a failover of shard %d left slots without a master: %d", i, orphans)
	r.must(master.ClusterAddSlots(r.ctx, orphans...).Err())
}

// replicas returns how many replicas a node knows.
func (r *run) replicas(node *redis.Client) (n int) {
	for _, line := range r.nodes(node) {
		if strings.Contains(line[2], "slave") {
			n++
		}
	}
	return n
}

// A move describes a slot that moves from one shard to another.
type move struct {
	slot     int64
	from, to int // shards
}

// openSlot begins to move the slot of a key to another shard, which leaves the slot half open. It
// returns nil if the slot is already moving.
func (r *run) openSlot(key string) *move {
	slot, err := r.raw[r.cluster.Nodes[0]].ClusterKeySlot(r.ctx, key).Result()
	r.must(err)
	m := &move{slot: slot, from: r.shardOf(slot)}
	m.to = (m.from + 1 + int(slot)%(len(r.shards)-1)) % len(r.shards)
	if r.openSlots[slot] {
		return nil
	}
	r.openSlots[slot] = true
	from, to := r.raw[r.master(m.from)], r.raw[r.master(m.to)]
	r.must(to.Do(r.ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", r.id(from)).Err())
	r.must(from.Do(r.ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", r.id(to)).Err())
	r.log("slot %d is half open, from %d to %d, for %s", slot, m.from, m.to, key)
	return m
}

func (r *run) id(node *redis.Client) string {
	id, err := node.ClusterMyID(r.ctx).Result()
	r.must(err)
	return id
}

// shardOf returns the shard whose master reports that it serves a slot.
func (r *run) shardOf(slot int64) int {
	for i := range r.shards {
		for _, line := range r.nodes(r.raw[r.master(i)]) {
			if !strings.Contains(line[2], "myself") {
				continue
			}
			for _, part := range line[8:] {
				first, last, isRange := strings.Cut(part, "-")
				low, err := strconv.ParseInt(first, 10, 64)
				high := low
				if isRange && err == nil {
					high, err = strconv.ParseInt(last, 10, 64)
				}
				if err == nil && low <= slot && slot <= high {
					return i
				}
			}
		}
	}
	r.t.Fatalf("no master serves slot %d", slot)
	return 0
}

// nodes returns the lines of CLUSTER NODES, each split into words. The slots of a node, half-open
// ones included, are the words from the ninth.
func (r *run) nodes(node *redis.Client) (lines [][]string) {
	text, err := node.ClusterNodes(r.ctx).Result()
	r.must(err)
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Fields(line))
	}
	return lines
}

// migrateSlot moves the records of a slot.
func (r *run) migrateSlot(m *move) {
	from, to := r.master(m.from), r.master(m.to)
	host, port, err := net.SplitHostPort(to.Addr())
	r.must(err)
	for {
		keys, err := r.raw[from].ClusterGetKeysInSlot(r.ctx, int(m.slot), 100).Result()
		r.must(err)
		if len(keys) == 0 {
			return
		}
		for _, key := range keys {
			if err := r.raw[from].Do(r.ctx, "MIGRATE", host, port, key, 0, 60_000).Err(); err != nil {
				r.t.Fatalf("fault of the test, not a violation: MIGRATE failed and may have left a copy: %v", err)
			}
		}
	}
}

// closeSlot ends a move: the target shard serves the slot from now on.
func (r *run) closeSlot(m *move) {
	from, to := r.raw[r.master(m.from)], r.raw[r.master(m.to)]
	id := r.id(to)
	r.must(to.Do(r.ctx, "CLUSTER", "SETSLOT", m.slot, "NODE", id).Err())
	r.must(from.Do(r.ctx, "CLUSTER", "SETSLOT", m.slot, "NODE", id).Err())
	delete(r.openSlots, m.slot)
}

// waitForAgreement waits until all nodes agree on the master of each slot.
func (r *run) waitForAgreement() {
	r.waitReady()
	if r.kind != kindCluster {
		return
	}
	var err error
	for range 500 {
		r.cluster.WaitReady()
		if err = r.checkAgreement(); err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	r.t.Fatal(err)
}

// checkAgreement returns an error that shows how two nodes disagree about the masters of slots, or
// nil if all agree.
func (r *run) checkAgreement() error {
	var first string
	for _, node := range r.cluster.Nodes {
		var owners []string
		for _, line := range r.nodes(r.raw[node]) {
			if strings.Contains(line[2], "master") {
				owners = append(owners, line[0]+" "+strings.Join(line[8:], " "))
			}
		}
		if text := sorted(owners); first == "" {
			first = text
		} else if text != first {
			return fmt.Errorf("nodes disagree about which master serves which slots:\n%s\n%s", first, text)
		}
	}
	return nil
}

// TestAdoptOrphans removes a slot from its master, as a failover may, and checks that adoptOrphans
// returns it with its records.
func TestAdoptOrphans(t *testing.T) {
	r := newRun(t, t.Context(), kindCluster, 1)
	r.cluster = redistest.StartCluster(t, redistest.FailsOver, redistest.Config("cluster-require-full-coverage no"))
	r.addClusterShards()
	slot, err := r.raw[r.cluster.Nodes[0]].ClusterKeySlot(r.ctx, "k").Result()
	r.must(err)
	r.must(r.cluster.Client().Set(r.ctx, "k", "v", 0).Err())
	i := r.shardOf(slot)
	// The master must forget the slot first. Otherwise it would tell the other nodes that it still
	// serves the slot.
	for _, node := range slices.Concat([]*redistest.Server{r.master(i)}, r.cluster.Nodes) {
		_ = r.raw[node].ClusterDelSlots(r.ctx, int(slot)).Err() // the node may have forgotten it
	}
	r.adoptOrphans(i)
	r.waitForAgreement()
	if got, err := r.raw[r.master(i)].Get(r.ctx, "k").Result(); got != "v" || r.shardOf(slot) != i {
		t.Errorf("got %q, %v at shard %d; want v at shard %d", got, err, r.shardOf(slot), i)
	}
}
