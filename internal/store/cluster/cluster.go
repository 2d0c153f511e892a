// Package cluster keeps records on a Redis Cluster, where those of one entry lie in many slots and no transaction spans
// them. It follows the protocol of cross-slot uniqueness step by step: claims, looks, one commit, releases. The steps
// stand at the head of apply.go.
//
// No value of an SRK ever recurs: each is a PRK and the rev of one attempt. So comparing with exactly what was seen is
// safe, and so is a command that arrives once more at any later time. No rev of an entry recurs either: a tombstone lives
// a day from the last time that a change was prepared on it or that it was fenced, and a change takes an hour at most.
//
// Index members are brought in line with the entry after its commit (I5). A process that changes a membership looks again
// at what the entry holds, and goes on until both agree; so the last of several is right. What a crash leaves, or a command
// that arrives once more, much later, is never shown to a reader where it is too much, and is found by a check.
// Tertiary sets that are born with an entry are laid ready beside their key, in the same slot, and the entry says so
// in ~fill, until they are there.
package cluster

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// Options of an engine.
type Options struct {
	// Close releases what was opened for the engine; nil leaves the client open.
	Close func() error
	// Node is called for every node that the client knows, and comes to know; nil: it is not.
	Node func(*redis.Client)
	// MemberBatch is store.MemberBatch; tests have less. 0: that.
	MemberBatch int
	// Now and Sleep are the clock of tests; nil: the system's.
	Now   func() time.Time
	Sleep func(context.Context, time.Duration) error
}

// An Engine keeps records on the cluster that a client speaks to. What needs one slot at a time is the same as on one
// server: Keys.
type Engine struct {
	*onekey.Keys
	client     *redisx.Client
	cc         *redis.ClusterClient // the same; nil over one server
	node       func(*redis.Client)
	latency    latency
	batch      int      // store.MemberBatch
	checked    sync.Map // a checkedSchema by the key of the schema
	now        func() time.Time
	sleep      func(context.Context, time.Duration) error
	newRev     func() string
	background func(context.Context, time.Duration, func(context.Context))
	unfed      [store.FeedParts]*feedQueue
	completers chan struct{}  // has room for as many readers as may complete an entry
	reloaded   chan time.Time // when the cluster's state was last read, for the one caller that may read it now
}

var _ store.Engine = (*Engine)(nil)

// New returns an engine over a client of a cluster. One server is a cluster of one, too.
func New(client redis.UniversalClient, o Options) *Engine {
	cc, _ := client.(*redis.ClusterClient)
	if cc != nil {
		if o.Node != nil { // before anything connects to it
			cc.OnNewNode(o.Node)
		}
		cc.OnNewNode(loadLater)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sleep == nil {
		o.Sleep = redisx.Sleep
	}
	e := &Engine{
		batch: cmp.Or(o.MemberBatch, store.MemberBatch),
		cc:    cc, node: o.Node, now: o.Now, sleep: o.Sleep, newRev: store.NewRev, background: background,
		completers: make(chan struct{}, mostCompleters), reloaded: make(chan time.Time, 1),
	}
	for part := range e.unfed {
		e.unfed[part] = newFeedQueue()
	}
	e.reloaded <- time.Time{}
	e.client = redisx.NewClient(client, redisx.Retry{
		Attempts: attempts, Passing: redisx.Passing, Sent: redisx.Sent, Pause: e.pause, Before: e.reload,
	}, false)
	e.Keys = onekey.New(e.client, onekey.Options{
		MemberBatch: e.batch, TombstoneLife: tombstoneLife, Notes: onekey.NotesRecord, Parts: true, NewRev: func() string { return e.newRev() }, Noted: e.feedLater, Close: func() error {
			e.awaitFeeders()
			return closeOf(o.Close)
		},
	})
	return e
}

// Verbs end within the hour that a tombstone's day is long enough for.
const (
	longestVerb   = time.Hour
	tombstoneLife = "86400" // seconds
)

// Survey implements [store.Engine], for every master, and loads the scripts there.
func (e *Engine) Survey(ctx context.Context, closely bool) (store.Survey, error) {
	s := store.Survey{Store: store.OnCluster, Steps: true, Bulks: true}
	if e.cc != nil && e.node != nil { // which was told of no node that the client knew before it was handed over
		err := e.cc.ForEachShard(ctx, func(_ context.Context, node *redis.Client) error {
			e.node(node)
			return nil
		})
		if err != nil {
			return s, redisx.Fail(err)
		}
	}
	if err := redisx.Faithful(ctx, e.client); err != nil {
		return s, err
	}
	masters, err := e.masters(ctx)
	if err != nil {
		return s, err
	}
	s.Servers = make([]store.Server, len(masters))
	return s, parallel(len(masters), func(i int) error {
		m := masters[i]
		if err := redisx.Load(ctx, m.client, allScripts); err != nil {
			return err
		}
		var err error
		s.Servers[i], err = redisx.Survey(ctx, m.client, m.addr, closely)
		return err
	})
}

// loadLater gives the scripts to a node that joins the cluster later, or is promoted.
func loadLater(node *redis.Client) {
	background(context.Background(), 2*time.Second, func(ctx context.Context) { _ = redisx.Load(ctx, node, allScripts) })
}

// Each wait of Linger is half as long again as the one before. Their sum is over dyingTime, by when a writer has ended
// what it began, or died.
const (
	lingers     = 11
	firstLinger = 100 * time.Millisecond
)

// Linger implements [store.Engine].
func (e *Engine) Linger(ctx context.Context, n int) (bool, error) {
	if n >= lingers || store.IsAlone(ctx) {
		return false, nil
	}
	wait := firstLinger
	for range n {
		wait += wait / 2
	}
	if err := e.sleep(ctx, wait); err != nil {
		return false, redisx.Fail(err)
	}
	return true, nil
}

// confirmed waits for the replicas that a change asks for, on the nodes of the entry and of its claims.
func (e *Engine) confirmed(ctx context.Context, c store.Change, rev string) error {
	if c.Replicas == 0 {
		return nil
	}
	srv := c.Key.In(recordkey.Namespace{}).String() + " " + rev
	return parallel(1+len(c.Claim), func(i int) error {
		if i == 0 {
			return e.confirm(ctx, c, c.Key, rev)
		}
		return e.confirm(ctx, c, c.Claim[i-1], srv)
	})
}

// confirm asks the master that serves a key, and another one where the slot has just moved.
func (e *Engine) confirm(ctx context.Context, c store.Change, key recordkey.Key, seen string) (err error) {
	retry := e.client.Retry
	retry.Passing = redisx.Moved
	_, _, _ = retry.Do(ctx, func(bool) (any, error) {
		var node redis.Cmdable = e.client
		if e.cc != nil {
			node, err = e.cc.MasterForKey(ctx, key.String())
		}
		if err == nil {
			err = redisx.Confirm(ctx, node, key, seen, c.Replicas, c.ReplicaTime)
		}
		return nil, err
	})
	return err
}

// Admit implements [store.Engine]: a script for each counter, at the same time. Where one refuses, the other takes back
// what it counted, unless the account has a budget of its own for the origin. What cannot be taken back stays counted.
func (e *Engine) Admit(ctx context.Context, a store.Counters) (store.Admission, error) {
	if !a.Origin.IsValid() {
		return e.Keys.Admit(ctx, a)
	}
	parts, of, at, err := bothParts(ctx, a, e.Keys.Admit)
	if err != nil {
		return store.Admission{}, err
	}
	switch {
	case admitted(of, at):
		return store.Admission{Own: of.Own, At: at.At}, nil
	case of.Wait == 0:
		_ = e.Keys.Withdraw(ctx, parts[0], of)
	case at.Wait == 0:
		_ = e.Keys.Withdraw(ctx, parts[1], at)
	}
	return store.Admission{Wait: max(of.Wait, at.Wait)}, nil
}

// LoginWait implements [store.Engine].
func (e *Engine) LoginWait(ctx context.Context, a store.Counters) (time.Duration, error) {
	if !a.Origin.IsValid() {
		return e.Keys.LoginWait(ctx, a)
	}
	_, of, at, err := bothParts(ctx, a, e.Keys.Ask)
	if err != nil || admitted(of, at) {
		return 0, err
	}
	return max(of.Wait, at.Wait), nil
}

// bothParts asks the counters of the account and those of the origin, at the same time.
func bothParts(
	ctx context.Context, a store.Counters, ask func(context.Context, store.Counters) (store.Admission, error),
) (parts [2]store.Counters, of, at store.Admission, err error) {
	parts = a.Parts()
	as := [2]*store.Admission{&of, &at}
	err = parallel(2, func(i int) (err error) {
		*as[i], err = ask(ctx, parts[i])
		return err
	})
	return parts, of, at, err
}

// admitted reports whether the counters of the account and those of the origin together admit an
// attempt: a budget of its own at the account counts for more than the origin.
func admitted(of, at store.Admission) bool { return of.Wait == 0 && (at.Wait == 0 || of.Own) }

// Forgive implements [store.Engine], for both counters at the same time; that of an origin which did not count needs nothing.
func (e *Engine) Forgive(ctx context.Context, a store.Counters, as store.Admission) error {
	parts := a.Parts()
	return parallel(2, func(i int) error { return e.Keys.Forgive(ctx, parts[i], as) })
}
