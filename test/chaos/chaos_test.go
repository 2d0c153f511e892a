//go:build linux

package chaos

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/redisdb"
)

const (
	clients         = 6
	epochLength     = 3 * time.Second
	pauseTimeout    = time.Minute      // for a client to finish its call, or for a service to start
	recheckInterval = 2 * time.Second  // between two reads of the raw records
	maxSilence      = 12 * time.Second // without a line of output
	minOpsPerMinute = 100              // operations that must succeed in each minute of the run
)

// A run holds the state of one run of TestChaos.
type run struct {
	t       *testing.T
	ctx     context.Context
	kind    string
	seed    uint64
	logs    string // the log folder
	started time.Time
	events  *os.File

	cluster   *redistest.Cluster  // set for KIND=cluster
	sentinel  *redistest.Sentinel // set for KIND=sentinel
	raw       map[*redistest.Server]*redis.Client
	shards    []shard
	client    redis.UniversalClient
	openSlots map[int64]bool // half-open slots: those that are moving to another shard
	db        *userdb.DB
	users     *userdb.Type
	members   *userdb.Type

	follower *follower

	services     [services]*process
	serviceAddrs []string // addresses of the services
	key          string   // API key that the services accept

	mu        sync.Mutex
	processes [clients]*process
	files     map[string]string // paths of the history files, by client
	lastPrint time.Time         // time of the last line of output
	lastLog   string            // last line of the log
	oldCuts   int               // connections cut by clients that have been replaced

	epoch       atomic.Int64   // epoch in progress; 0: clients pause
	lastEpoch   int            // last epoch begun
	judgedEpoch int            // last epoch judged
	ok, all     map[string]int // operations that succeeded, and all operations, by verb
	verdict     verdict
}

// TestChaos runs clients and a nemesis on one store and judges the answers, as the package comment
// describes. It is skipped unless USERDB_CHAOS_MINUTES is set.
func TestChaos(t *testing.T) {
	minutes, err := strconv.ParseFloat(os.Getenv("USERDB_CHAOS_MINUTES"), 64)
	if err != nil || minutes <= 0 {
		t.Skip("make chaos MINUTES=3 SEED=1 runs it")
	}
	seed, err := strconv.ParseUint(os.Getenv("USERDB_CHAOS_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64N(1_000_000)
	}
	kind := cmp.Or(os.Getenv("USERDB_CHAOS_KIND"), kindCluster)
	if !slices.Contains([]string{kindCluster, kindOne, kindSentinel}, kind) {
		t.Fatalf("no such kind of store: %s", kind)
	}
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	defer stop()
	r := newRun(t, ctx, kind, seed)
	r.print("seed %d, %v minutes; to repeat it: make chaos KIND=%s MINUTES=%v SEED=%d; logs: %s", seed, minutes, kind, minutes, seed, r.logs)
	go r.watch(ctx)
	r.start()
	n := &nemesis{r: r, done: map[string]int{}}
	end := r.started.Add(time.Duration(minutes * float64(time.Minute)))
	for cycle := 0; cycle < minCycles(kind) || time.Now().Before(end); cycle++ {
		r.cycle(cycle, n)
		if t.Failed() {
			return
		}
	}
	r.finish(n, minutes)
}

func newRun(t *testing.T, ctx context.Context, kind string, seed uint64) *run {
	logs, err := os.MkdirTemp("", "userdb-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	r := &run{
		t: t, ctx: ctx, kind: kind, seed: seed, logs: logs, started: time.Now(), raw: map[*redistest.Server]*redis.Client{},
		openSlots: map[int64]bool{}, files: map[string]string{}, ok: map[string]int{}, all: map[string]int{},
	}
	t.Setenv(runEnv, logs)
	t.Cleanup(r.end) // runs after the cleanups of the servers, which are registered later
	if r.events, err = os.Create(filepath.Join(logs, "events.log")); err != nil {
		t.Fatal(err)
	}
	return r
}

// end checks that no process is left, and removes the logs unless the run failed.
func (r *run) end() {
	checkLeftovers(r.t, r.logs)
	r.events.Close()
	if r.t.Failed() {
		r.print("FAILED with seed %d; to repeat it: make chaos KIND=%s SEED=%d; logs: %s", r.seed, r.kind, r.seed, r.logs)
		return
	}
	os.RemoveAll(r.logs)
}

// start starts the servers, the follower, the services and the clients.
func (r *run) start() {
	redis.SetLogger(quietLogger{})
	r.startServers()
	r.client = connect(r.kind, r.addrs(), nil)
	r.t.Cleanup(func() { r.client.Close() })
	db, err := redisdb.New(r.ctx, r.client, userdb.Options{Schema: chaosSchema(4), History: true})
	r.must(err)
	r.db = db
	r.users, err = db.Type("user")
	r.must(err)
	r.members, err = db.Type(testdb.ListType)
	r.must(err)
	r.follower = newFollower(db)
	r.t.Cleanup(func() {
		r.endServices()
		for i := range clients {
			r.process(i).kill()
		}
	})
	r.startServices()
	for i := range clients {
		r.startClient(i, 0)
	}
	r.print("%d servers, %d services and %d clients run", len(r.raw), services, clients)
}

// must fails the test if err is not nil.
func (r *run) must(err error) {
	r.t.Helper()
	if err != nil && r.ctx.Err() != nil {
		r.t.Fatal("interrupted")
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// print writes a line to the output and to the log.
func (r *run) print(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	fmt.Printf("chaos %4.0fs  %s\n", time.Since(r.started).Seconds(), text)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastPrint = time.Now()
	if r.events != nil {
		fmt.Fprintf(r.events, "%.4f %s\n", float64(now())/1e9, text)
	}
}

// log writes a line to events.log, for people who search for the cause of a failure.
func (r *run) log(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastLog = fmt.Sprintf(format, args...)
	fmt.Fprintf(r.events, "%.4f %s\n", float64(now())/1e9, r.lastLog)
}

func (r *run) process(i int) *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.processes[i]
}

// startClient starts client i. life is the number of processes that were client i before this one.
func (r *run) startClient(i, life int) {
	o := config{Number: i, Life: life, Seed: r.seed, Kind: r.kind, Addrs: r.addrs(), Services: r.serviceAddrs, Key: r.key, Epoch: int(r.epoch.Load())}
	o.History = filepath.Join(r.logs, "client-"+o.name()+".jsonl")
	p, err := startProcess(o, r.logs)
	r.must(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processes[i] = p
	r.files[o.name()] = o.History
	if e := int(r.epoch.Load()); e != o.Epoch {
		p.send("epoch %d", e)
	}
}

// replaceClient kills client i and starts another process in its place.
func (r *run) replaceClient(i int) {
	p := r.process(i)
	p.kill()
	r.oldCuts += p.cutCount()
	r.startClient(i, p.Life+1)
}

// pauseProcess stops a process for a while, even in the middle of a call.
func pauseProcess(p *process, duration time.Duration) {
	p.signal(syscall.SIGSTOP)
	time.Sleep(duration)
	p.signal(syscall.SIGCONT)
}

// setEpoch begins epoch e at all clients.
func (r *run) setEpoch(e int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch.Store(int64(e))
	for _, p := range r.processes {
		p.send("epoch %d", e)
	}
}

// sleep waits for d, or until ctx ends, and returns the error of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
