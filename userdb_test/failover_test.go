package userdb_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/coffeenode/userdb/maintain"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A load is many writers that go on until they are stopped, and know what was acknowledged.
type load struct {
	mu     sync.Mutex
	made   map[string]bool   // names of entries that were acknowledged
	failed map[string]bool   // of those that were not
	last   map[int]time.Time // when each writer last succeeded
	odd    []error           // answers that must not come
	stop   context.CancelFunc
	ended  sync.WaitGroup
}

// startLoad has writers create, find and delete entries.
func startLoad(t *testing.T, users *userdb.Type, writers int) *load {
	ctx, stop := context.WithCancel(t.Context())
	l := &load{made: map[string]bool{}, failed: map[string]bool{}, last: map[int]time.Time{}, stop: stop}
	for w := range writers {
		l.ended.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				l.write(ctx, users, w, i)
			}
		})
	}
	return l
}

const mostWait = 4 * time.Second

func (l *load) write(ctx context.Context, users *userdb.Type, w, i int) {
	ctx, cancel := context.WithTimeout(ctx, mostWait)
	defer cancel()
	begin := time.Now()
	name := fmt.Sprintf("w%d-%d", w, i)
	_, err := users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", name, "email", name+"@x.org")})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed[name] = err != nil
	switch {
	case err == nil:
		l.made[name], l.last[w] = true, time.Now()
	case errors.Is(err, userdb.ErrUnavailable), errors.Is(err, userdb.ErrOutcomeUnknown), errors.Is(err, context.Canceled):
	default:
		l.odd = append(l.odd, err)
	}
	if took := time.Since(begin); took > mostWait+time.Second {
		l.odd = append(l.odd, fmt.Errorf("a create took %v with %v of time", took, mostWait))
	}
}

// recovered waits until every writer has succeeded since a moment.
func (l *load) recovered(t *testing.T, since time.Time, most time.Duration) {
	t.Helper()
	for {
		l.mu.Lock()
		behind := 0
		for _, last := range l.last {
			if last.Before(since) {
				behind++
			}
		}
		l.mu.Unlock()
		took := time.Since(since)
		if behind == 0 {
			t.Logf("every writer succeeded again within %v", took.Round(10*time.Millisecond))
			return
		}
		if took > most {
			t.Errorf("%d writers have not recovered after %v", behind, took)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// end stops the writers, and returns the names that were acknowledged and are not found.
func (l *load) end(t *testing.T, users *userdb.Type) (lost []string) {
	t.Helper()
	l.stop()
	l.ended.Wait()
	for _, err := range l.odd {
		t.Errorf("under load: %v", err)
	}
	for name := range l.made {
		_, err := users.Find(t.Context(), hints.Any(name))
		if errors.Is(err, userdb.ErrNotFound) {
			lost = append(lost, name)
		} else if err != nil {
			t.Errorf("finding %s: %v", name, err)
		}
	}
	slices.Sort(lost)
	t.Logf("%d creates were acknowledged, %d of them are not found", len(l.made), len(lost))
	return lost
}

// TestClusterMasterDies kills a master under load. Its replica takes over; until then calls end in
// time and say that the store is unavailable. Nothing is damaged but by acknowledged writes that Redis lost.
func TestClusterMasterDies(t *testing.T) {
	c := redistest.StartCluster(t, redistest.FailsOver)
	db, err := userdb.Open(t.Context(), c.URL(), userdb.Options{})
	must(t, err)
	defer db.Close()
	users := typeOf(t, db, "user")
	add(t, users, "u", "name", "you")
	time.Sleep(100 * time.Millisecond) // for the replica
	l := startLoad(t, users, 8)
	time.Sleep(time.Second)
	killed := time.Now()
	c.Master("user/uid:u").Kill()
	refused := comesBack(t, users, killed)
	if refused == 0 {
		t.Error("no call was refused while the master was dead")
	}
	l.recovered(t, time.Now(), mostWait)
	mended(t, db, l.excused(t, l.end(t, users)))
}

// comesBack writes to an entry of the dead master until that succeeds: within the node time-out of a second, three
// seconds, and what a busy machine adds. It says how many calls were refused.
func comesBack(t *testing.T, users *userdb.Type, killed time.Time) (refused int) {
	t.Helper()
	const most = time.Second + 3*time.Second + 3*time.Second
	for i := 0; ; i++ {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := users.Update(ctx, hints.UID("u"), func(e *userdb.Entry) error { e.Put("job", schema.Text(fmt.Sprint(i))); return nil })
		cancel()
		took := time.Since(killed)
		switch {
		case err == nil:
			t.Logf("the entry could be written again after %v; %d calls were refused", took.Round(10*time.Millisecond), refused)
			return refused
		case took > most:
			t.Fatalf("not written after %v: %v", took, err)
		case !errors.Is(err, userdb.ErrUnavailable) && !errors.Is(err, userdb.ErrOutcomeUnknown):
			t.Errorf("while the master was dead: %v", err)
		}
		refused++
	}
}

// TestClusterReshards moves slots under load: no call fails but for want of time, and nothing is lost.
func TestClusterReshards(t *testing.T) {
	c := redistest.StartCluster(t)
	db, err := userdb.Open(t.Context(), c.URL(), userdb.Options{})
	must(t, err)
	defer db.Close()
	users := typeOf(t, db, "user")
	l := startLoad(t, users, 6)
	time.Sleep(300 * time.Millisecond)
	reshard(t, c, 200, "user/name:w0-0/~prk", "user/name:w1-1/~prk", "user/name:w2-2/~prk", "user/email:w0-3@x.org/~prk")
	time.Sleep(300 * time.Millisecond)
	if lost := l.end(t, users); len(lost) > 0 {
		t.Errorf("lost: %v", lost)
	}
	mended(t, db, l.excused(t, nil))
}

// reshard moves the slots of keys, and those behind them, to another master.
func reshard(t *testing.T, c *redistest.Cluster, slots int64, keys ...string) {
	t.Helper()
	ctx := t.Context()
	for _, key := range keys {
		from := c.Master(key)
		var to *redistest.Server
		for _, n := range c.Nodes {
			if role, err := n.Client().Info(ctx, "replication").Result(); err == nil && strings.Contains(role, "role:master") && n != from {
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
		return // it was not from's
	}
	if err := from.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID).Err(); err != nil {
		must(t, to.Do(ctx, "CLUSTER", "SETSLOT", slot, "STABLE").Err())
		return
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

// TestSentinelFailover kills the master that Sentinels watch, under load; and the client goes on with the
// new one, also when the old one comes back as a replica.
func TestSentinelFailover(t *testing.T) {
	st := redistest.StartSentinel(t, redistest.AppendOnly("always"))
	db, err := userdb.Open(t.Context(), st.URL(), userdb.Options{})
	must(t, err)
	defer db.Close()
	users := typeOf(t, db, "user")
	l := startLoad(t, users, 4)
	time.Sleep(500 * time.Millisecond)
	killed := time.Now()
	st.Master.Kill()
	l.recovered(t, killed, 15*time.Second)
	st.Master.Restart()
	time.Sleep(time.Second)
	l.recovered(t, time.Now(), 5*time.Second)
	mended(t, db, l.excused(t, l.end(t, users)))
}

// TestReplicas waits for replicas, and says so where they do not come.
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
			url, kill := tt.start(t)
			db, err := userdb.Open(t.Context(), url, userdb.Options{Replicas: 1, ReplicaTimeout: 2 * time.Second})
			must(t, err)
			defer db.Close()
			users := typeOf(t, db, "user")
			e := add(t, users, "u", "name", "you", "email", "you@example.com")
			kill()
			e, err = users.Update(t.Context(), hints.Key(e.Key()), func(e *userdb.Entry) error { e.Put("name", schema.Text("me")); return nil })
			wantErr(t, "without replicas", err, userdb.ErrUnconfirmed, "committed, not confirmed", "0 of 1 replicas")
			if e.Text("name") != "me" {
				t.Errorf("the verb returned %q, want what it made", e.Text("name"))
			}
			if found, err := users.Find(t.Context(), hints.Any("me")); err != nil || found.UID() != "u" {
				t.Errorf("what was committed: %v, %v", found.UID(), err)
			}
			mended(t, db, never)
		})
	}
}

// mended judges the records behind faults. What a check finds is a defect, unless it is excused: of
// verbs that were cut off, leftovers (I4) and memberships that they left out of date (I5). A repair removes
// all of it.
func mended(t *testing.T, db *userdb.DB, excused func(p maintain.Problem) bool) {
	t.Helper()
	found := checked(t, db, maintain.CheckOptions{})
	for _, p := range found {
		if !excused(p) {
			t.Errorf("check found: I%d %v", p.Invariant, p)
		}
	}
	left := found
	for begin := time.Now(); len(left) > 0; left = checked(t, db, maintain.CheckOptions{}) {
		checked(t, db, maintain.CheckOptions{Repair: true})
		if time.Since(begin) > time.Minute { // verbs that were cut off clean up for ten seconds
			t.Errorf("a repair leaves: %v", left)
			return
		}
	}
	t.Logf("check found %d leftovers of verbs that were cut off; a repair removed them", len(found))
}

// checked is what a check finds when the writers of a test have ended.
func checked(t *testing.T, db *userdb.DB, o maintain.CheckOptions) (found []maintain.Problem) {
	t.Helper()
	for p, err := range maintain.Check(store.Alone(t.Context()), db, o) {
		must(t, err)
		if !p.Warning {
			found = append(found, p)
		}
	}
	return found
}

func never(maintain.Problem) bool { return false }

// isLeftover says whether a problem is one that a verb may leave that was cut off.
func isLeftover(p maintain.Problem) bool { return p.Invariant == 4 || p.Invariant == 5 }

var loadName = regexp.MustCompile(`w[0-9]+-[0-9]+`)

// excused says of a load whether a problem is about an entry whose create failed, or whose outcome is
// unknown, or about one that was acknowledged and that the failover lost.
func (l *load) excused(t *testing.T, lost []string) func(p maintain.Problem) bool {
	gone := map[string]bool{}
	for _, name := range lost {
		gone[name] = true
	}
	return func(p maintain.Problem) bool {
		name := loadName.FindString(p.Key)
		if gone[name] || name == "" && len(lost) > 0 {
			t.Logf("reported apart, from acknowledged writes that the failover lost: %v", p)
			return true
		}
		return isLeftover(p) && l.failed[name]
	}
}
