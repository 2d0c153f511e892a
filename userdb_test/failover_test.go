package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A load is a group of writers that run until they are stopped. It records acknowledged writes.
type load struct {
	writers    int
	mu         sync.Mutex
	created    map[string]time.Time // start of each acknowledged create, by name
	failed     map[string]bool      // names whose create was not acknowledged
	last       map[int]time.Time    // when each writer last succeeded
	unexpected []error
	stop       context.CancelFunc
	ended      sync.WaitGroup
}

// startLoad starts writers that create entries, and returns when each has succeeded once.
func startLoad(t *testing.T, users *userdb.Type, writers int) *load {
	ctx, stop := context.WithCancel(t.Context())
	l := &load{writers: writers, created: map[string]time.Time{}, failed: map[string]bool{}, last: map[int]time.Time{}, stop: stop}
	begin := time.Now()
	for w := range writers {
		l.ended.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				l.write(ctx, users, w, i)
			}
		})
	}
	l.waitRecovered(t, begin)
	return l
}

const createTimeout = 4 * time.Second

func (l *load) write(ctx context.Context, users *userdb.Type, w, i int) {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	name := fmt.Sprintf("w%d-%d", w, i)
	begin := time.Now()
	_, err := users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", name, "email", name+"@x.org")})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed[name] = err != nil
	switch {
	case err == nil:
		l.created[name], l.last[w] = begin, time.Now()
	case errors.Is(err, userdb.ErrUnavailable), errors.Is(err, userdb.ErrOutcomeUnknown), errors.Is(err, context.Canceled):
	default:
		l.unexpected = append(l.unexpected, err)
	}
}

// waitRecovered waits until every writer has succeeded after since.
func (l *load) waitRecovered(t *testing.T, since time.Time) {
	t.Helper()
	eventually(t, "every writer succeeds", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		recovered := 0
		for _, last := range l.last {
			if last.After(since) {
				recovered++
			}
		}
		return recovered == l.writers
	})
	t.Logf("every writer succeeded within %v", time.Since(since).Round(10*time.Millisecond))
}

// end stops the writers and returns the acknowledged names that cannot be found.
func (l *load) end(t *testing.T, users *userdb.Type) (lost []string) {
	t.Helper()
	l.stop()
	l.ended.Wait()
	for _, err := range l.unexpected {
		t.Errorf("under load: %v", err)
	}
	names := slices.Sorted(maps.Keys(l.created))
	wanted := make([]hints.Hint, len(names))
	for i, name := range names {
		wanted[i] = hints.Any(name)
	}
	i := 0
	for _, err := range users.FindAll(t.Context(), wanted...) {
		if errors.Is(err, userdb.ErrNotFound) {
			lost = append(lost, names[i])
		} else if err != nil {
			t.Errorf("finding %s: %v", names[i], err)
		}
		i++
	}
	if i < len(names) {
		t.Errorf("%d of %d names were looked up, want all", i, len(names))
	}
	t.Logf("%d creates were acknowledged, %d of them cannot be found", len(l.created), len(lost))
	return lost
}

// TestClusterMasterDies kills a master under load. Until its replica takes over, calls must end in
// time and return ErrUnavailable or ErrOutcomeUnknown. Only acknowledged writes that Redis lost may
// leave damage.
func TestClusterMasterDies(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.FailsOver)
	// On a busy machine, masters that are not killed may also seem dead. A replica that took over
	// from one of them would lose writes that the test does not excuse.
	for _, replica := range c.Nodes[3:] {
		must(t, replica.Client().ConfigSet(t.Context(), "cluster-replica-no-failover", "yes").Err())
	}
	db, err := userdb.Open(t.Context(), c.URL(), userdb.Options{})
	must(t, err)
	defer db.Close()
	users := typeOf(t, db, "user")
	addReplicated(t, c.URL(), "u", "name", "you")
	l := startLoad(t, users, 8)
	killed := c.Master("user/uid:u")
	onKilled := servedBy(t, c, killed)
	if !onKilled("user/uid:u") {
		t.Fatal("the master of an entry does not serve its slot")
	}
	killed.Kill()
	killedAt := time.Now()
	if err := rewrite(t, users, "while the master is dead"); !isUnavailable(err) {
		t.Errorf("while the master is dead: %v, want ErrUnavailable or ErrOutcomeUnknown", err)
	}
	must(t, c.ReplicaOf(killed).Client().ConfigSet(t.Context(), "cluster-replica-no-failover", "no").Err())
	waitWritable(t, users)
	l.waitRecovered(t, time.Now())
	excused := l.excuse(t, users, l.end(t, users))
	wantRepairable(t, db, func(p check.Problem) bool {
		begin, acknowledged := l.created[loadName(users, p)]
		if acknowledged && begin.Before(killedAt) && onKilled(p.Key) {
			t.Logf("excused, because the master died before its replica had this record: %v", p)
			return true
		}
		return excused(p)
	})
}

// servedBy returns a function that reports whether a master of a cluster served the slot of a key
// when servedBy was called.
func servedBy(t *testing.T, c *redistest.Cluster, master *redistest.Server) func(key string) bool {
	t.Helper()
	id, err := master.Client().ClusterMyID(t.Context()).Result()
	must(t, err)
	shards, err := master.Client().ClusterShards(t.Context()).Result()
	must(t, err)
	return func(key string) bool {
		slot, err := c.Client().ClusterKeySlot(t.Context(), key).Result()
		must(t, err)
		return slices.ContainsFunc(shards, func(s redis.ClusterShard) bool {
			return slices.ContainsFunc(s.Nodes, func(n redis.Node) bool { return n.ID == id }) &&
				slices.ContainsFunc(s.Slots, func(r redis.SlotRange) bool { return r.Start <= slot && slot <= r.End })
		})
	}
}

// addReplicated creates an entry, and returns when a replica has it as well.
func addReplicated(t *testing.T, url, uid string, pairs ...string) {
	t.Helper()
	db, err := userdb.Open(t.Context(), url, userdb.Options{Replicas: 1, ReplicaTimeout: patience})
	must(t, err)
	add(t, typeOf(t, db, "user"), uid, pairs...)
	must(t, db.Close())
}

// rewrite changes the entry u, and gives up after a second.
func rewrite(t *testing.T, users *userdb.Type, job string) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := users.Update(ctx, hints.UID("u"), putText("job", job))
	return err
}

func isUnavailable(err error) bool {
	return errors.Is(err, userdb.ErrUnavailable) || errors.Is(err, userdb.ErrOutcomeUnknown)
}

// waitWritable keeps writing to the entry u until a replica has replaced the dead master.
func waitWritable(t *testing.T, users *userdb.Type) {
	t.Helper()
	begin, calls := time.Now(), 0
	eventually(t, "the entry can be written again", func() bool {
		err := rewrite(t, users, fmt.Sprint(calls))
		if err != nil && !isUnavailable(err) {
			t.Errorf("before a replica took over: %v", err)
		}
		calls++
		return err == nil
	})
	after := time.Since(begin).Round(10 * time.Millisecond)
	t.Logf("the entry could be written again after %v; %d calls were refused", after, calls-1)
}

// TestClusterReshards moves slots under load. Calls may fail only with ErrUnavailable or
// ErrOutcomeUnknown, and no acknowledged write may be lost.
func TestClusterReshards(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	db, err := userdb.Open(t.Context(), c.URL(), userdb.Options{})
	must(t, err)
	defer db.Close()
	users := typeOf(t, db, "user")
	l := startLoad(t, users, 6)
	slots := int64(200)
	if testing.Short() {
		slots = 50
	}
	reshard(t, c, slots, "user/name:w0-0/~prk", "user/name:w1-1/~prk", "user/name:w2-2/~prk", "user/email:w0-3@x.org/~prk")
	l.waitRecovered(t, time.Now())
	if lost := l.end(t, users); len(lost) > 0 {
		t.Errorf("acknowledged but not found: %v", lost)
	}
	wantRepairable(t, db, l.excuse(t, users, nil))
}

// reshard moves slots to another master. For each key, it moves the given number of slots, starting
// with the slot of the key.
func reshard(t *testing.T, c *redistest.Cluster, slots int64, keys ...string) {
	t.Helper()
	ctx := t.Context()
	for _, key := range keys {
		from := c.Master(key)
		var to *redistest.Server
		for _, n := range c.Nodes {
			info, err := n.Client().Info(ctx, "replication").Result()
			if err == nil && strings.Contains(info, "role:master") && n != from {
				to = n
			}
		}
		first, err := from.Client().ClusterKeySlot(ctx, key).Result()
		must(t, err)
		for slot := first; slot < first+slots && slot < 16384; slot++ {
			moveSlot(t, from.Client(), to.Client(), to.Addr(), slot)
		}
	}
}

func moveSlot(t *testing.T, from, to *redis.Client, addr string, slot int64) {
	t.Helper()
	ctx := t.Context()
	fromID, err := from.ClusterMyID(ctx).Result()
	must(t, err)
	toID, err := to.ClusterMyID(ctx).Result()
	must(t, err)
	if to.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID).Err() != nil {
		return // to already owns the slot
	}
	if err := from.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID).Err(); err != nil {
		must(t, to.Do(ctx, "CLUSTER", "SETSLOT", slot, "STABLE").Err())
		return // from does not own the slot
	}
	host, port, _ := strings.Cut(addr, ":")
	for {
		keys, err := from.ClusterGetKeysInSlot(ctx, int(slot), 100).Result()
		must(t, err)
		if len(keys) == 0 {
			break
		}
		args := []any{"MIGRATE", host, port, "", 0, 5000, "KEYS"}
		for _, k := range keys {
			args = append(args, k)
		}
		must(t, from.Do(ctx, args...).Err())
	}
	must(t, to.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", toID).Err())
	must(t, from.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", toID).Err())
}

// TestSentinelFailover kills a master under load. Sentinels watch it and replace it. The client
// must continue with the new master, even after the old one has come back as a replica.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	st := redistest.StartSentinel(t, redistest.FailsOver, redistest.AppendOnly("always"))
	db, err := userdb.Open(t.Context(), st.URL(), userdb.Options{})
	must(t, err)
	defer db.Close()
	users := typeOf(t, db, "user")
	l := startLoad(t, users, 4)
	killed := time.Now()
	st.Master.Kill()
	l.waitRecovered(t, killed)
	st.Master.Restart()
	st.WaitReady()
	l.waitRecovered(t, time.Now())
	wantRepairable(t, db, l.excuse(t, users, l.end(t, users)))
}

// TestReplicas checks that a write waits for replicas, and returns ErrUnconfirmed if they do not
// confirm it.
func TestReplicas(t *testing.T) {
	for _, tt := range []struct {
		name  string
		start func(t *testing.T) (url string, kill func())
	}{
		{"sentinel", func(t *testing.T) (string, func()) {
			st := redistest.StartSentinel(t)
			return st.URL(), st.Replica.Kill
		}},
		{"cluster", func(t *testing.T) (string, func()) {
			c := redistest.StartCluster(t)
			return c.URL(), func() {
				for _, node := range c.Nodes[3:] {
					node.Kill()
				}
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			url, kill := tt.start(t)
			addReplicated(t, url, "u", "name", "you", "email", "you@example.com")
			db, err := userdb.Open(t.Context(), url, userdb.Options{Replicas: 1, ReplicaTimeout: 2 * time.Second})
			must(t, err)
			defer db.Close()
			users := typeOf(t, db, "user")
			kill()
			e, err := users.Update(t.Context(), hints.UID("u"), putText("name", "me"))
			wantErr(t, "without replicas", err, userdb.ErrUnconfirmed, "committed, not confirmed", "0 of 1 replicas")
			if e.Text("name") != "me" {
				t.Errorf("the update returned the name %q, want me", e.Text("name"))
			}
			if found, err := users.Find(t.Context(), hints.Any("me")); err != nil || found.UID() != "u" {
				t.Errorf("finding the committed name: got %q, %v; want u", found.UID(), err)
			}
			wantRepairable(t, db, noExcuse)
		})
	}
}

// wantRepairable checks the records after faults. A problem fails the test unless it is excused:
// calls that were cut off may leave behind leftovers (I4) and outdated index members (I5). A repair
// must remove all problems.
func wantRepairable(t *testing.T, db *userdb.DB, excused func(p check.Problem) bool) {
	t.Helper()
	found := runCheck(t, db, check.Options{})
	for _, p := range found {
		if !excused(p) {
			t.Errorf("check found: I%d %v", p.Invariant, p)
		}
	}
	left := found
	for begin := time.Now(); len(left) > 0; left = runCheck(t, db, check.Options{}) {
		runCheck(t, db, check.Options{Repair: true})
		if time.Since(begin) > time.Minute { // calls that were cut off clean up for ten seconds
			t.Errorf("problems remain after repairs: %v", left)
			return
		}
	}
	t.Logf("a check found %d problems left by calls that were cut off; repairs removed them", len(found))
}

// runCheck returns the errors that a check finds. The writers of the test must have ended.
func runCheck(t *testing.T, db *userdb.DB, o check.Options) (found []check.Problem) {
	t.Helper()
	for p, err := range check.Run(store.WithoutOtherWriters(t.Context()), db, o) {
		must(t, err)
		if p.Severity == check.SeverityError {
			found = append(found, p)
		}
	}
	return found
}

func noExcuse(check.Problem) bool { return false }

// isLeftover reports whether p is a problem that a call that was cut off may leave behind.
func isLeftover(p check.Problem) bool { return p.Invariant == 4 || p.Invariant == 5 }

var loadNamePattern = regexp.MustCompile(`w[0-9]+-[0-9]+`)

// loadName returns the name of the entry that a problem concerns, or "" if that is unknown. The key
// of an ordered index says nothing about the entry; the text of the problem does.
func loadName(users *userdb.Type, p check.Problem) string {
	if uid := uidPattern.FindStringSubmatch(p.Text); strings.HasPrefix(p.Key, "~/order/") && uid != nil {
		e, _ := users.Find(context.Background(), hints.UID(uid[1]))
		return e.Text("name")
	}
	return loadNamePattern.FindString(p.Key)
}

var uidPattern = regexp.MustCompile(`^user/uid:([^ ]+) `)

// excuse returns a function that reports whether a problem may remain after the load: a leftover of
// a create that failed or has an unknown outcome, or any problem of an acknowledged entry that the
// failover lost. If entries were lost, problems of unknown entries may also remain.
func (l *load) excuse(t *testing.T, users *userdb.Type, lost []string) func(p check.Problem) bool {
	gone := map[string]bool{}
	for _, name := range lost {
		gone[name] = true
	}
	return func(p check.Problem) bool {
		name := loadName(users, p)
		if gone[name] || name == "" && len(lost) > 0 {
			t.Logf("excused, because the failover lost acknowledged writes: %v", p)
			return true
		}
		return isLeftover(p) && l.failed[name]
	}
}
