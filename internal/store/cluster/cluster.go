// Package cluster keeps records on a Redis Cluster, where those of one entry lie in many slots and no
// transaction spans them. It follows the protocol of cross-slot uniqueness step by step: claims,
// looks, one commit, releases. An SRK may be occupied by an entry that does not hold the
// value: that entry is fenced before the SRK is taken over.
//
//  1. Each attempt to commit has a token of its own. A claim on an SRK is its PRK, a space and the token,
//     set if the SRK is absent. A PRK without a token, as one server writes it, may be found and replaced, but
//     is never written.
//  2. Occupied by Q: if Q holds the value, it is taken. Else begin again, and queue for the values one after the other
//     (holders.go). An attempt that queues waits some round trips, and if the same is there still, fences Q (counts its
//     ~fence up, of an absent Q in a tombstone), and compares-and-sets the SRK from exactly what was seen.
//  3. After all claims, look at the values under all other secondary fields, likewise.
//  4. Commit: the entry's hash is written if its ~rev and ~fence are still as they were read.
//  5. SRKs that go are read before the commit, and go after it if they are exactly what was read.
//  6. A delete leaves a tombstone, ~dying until what belonged to the entry is gone. If the deleter dies, a create
//     finishes that for it (dead.go).
//  7. After a conflict the own claims go, each only after the own entry was fenced.
//
// No value of an SRK ever recurs: each is a PRK and the token of one attempt. So comparing with
// exactly what was seen is safe, and so is a command that arrives once more at any later time. No
// rev of an entry recurs either: a tombstone lives a day from the last time that a change was
// prepared on it or that it was fenced, and a change takes an hour at most.
//
// Index members are brought in line with the entry after its commit (I5). What a crash leaves out of
// date is never shown where it is too much, and what is too little is found by a check. A process that
// changes a membership looks again at what the entry holds, and goes on until both agree; so the last
// of several is right. Commands on index members and tertiary records know no revs: one that arrives once
// more, much later, may take out what is due or put in what is not. No reader is shown that for a dead
// entry, and a check finds it. Tertiary sets that are born with an entry are laid ready beside their key, in
// the same slot, and the entry says so in ~fill, until they are there.
package cluster

import (
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
	// Now and Sleep are the clock of tests; nil: the system's.
	Now   func() time.Time
	Sleep func(context.Context, time.Duration) error
}

// An Engine keeps records on the cluster that a client speaks to. What needs one slot at a time is the same as on one
// server: Keys.
type Engine struct {
	*onekey.Keys
	client     *redisx.Client
	close      func() error
	node       func(*redis.Client)
	latency    latency
	mu         sync.Mutex
	checked    map[string]checkedSchema // by key and fingerprint
	now        func() time.Time
	sleep      func(context.Context, time.Duration) error
	token      func() string
	background func(context.Context, func(context.Context))
	completing sync.Map      // by ~fill, what readers complete just now
	completers chan struct{} // has room for as many of them as may
	reloading  reloading
}

var _ store.Engine = (*Engine)(nil)

// New returns an engine over a client of a cluster. One server is a cluster of one, too.
func New(client redis.UniversalClient, o Options) *Engine {
	if cc, ok := client.(*redis.ClusterClient); ok {
		loadNew(cc)
		if o.Node != nil {
			cc.OnNewNode(o.Node)
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sleep == nil {
		o.Sleep = redisx.Sleep
	}
	if o.Close == nil {
		o.Close = func() error { return nil }
	}
	e := &Engine{
		close: sync.OnceValue(o.Close), node: o.Node,
		checked: map[string]checkedSchema{}, now: o.Now, sleep: o.Sleep, token: store.NewRev, background: background,
		completers: make(chan struct{}, mostCompleters), reloading: reloading{turn: make(chan struct{}, 1)},
	}
	e.client = redisx.NewClient(client, redisx.Retry{
		Attempts: attempts, Passing: redisx.Passing, Sent: redisx.Sent, Pause: e.pause, Before: e.reload,
	}, false)
	e.Keys = onekey.New(e.client, onekey.Options{})
	return e
}

// Close implements [store.Engine]; further calls return the same.
func (e *Engine) Close() error { return e.close() }

// Bulk implements [store.Engine]: every change is kept at once.
func (e *Engine) Bulk(ctx context.Context) (context.Context, func(context.Context) error) {
	return ctx, func(context.Context) error { return nil }
}

// Verbs end within the hour that a tombstone's day is long enough for.
const (
	longestVerb   = time.Hour
	tombstoneLife = "86400" // seconds
)

// allScripts are loaded on every node.
var allScripts = []redisx.Script{
	claimScript, swapScript, fenceScript, prepareScript, commitScript, dyingScript,
	readyScript, promoteScript, filledScript, schemaScript, onekey.IssueScript, onekey.PeekScript,
}

// Survey implements [store.Engine], for every master, and loads the scripts there.
func (e *Engine) Survey(ctx context.Context) (store.Survey, error) {
	s := store.Survey{Steps: true, Bulks: true}
	if err := e.eachNode(ctx); err != nil {
		return s, err
	}
	if err := redisx.Faithful(ctx, e.client); err != nil {
		return s, err
	}
	masters, err := e.masters(ctx)
	if err != nil {
		return s, err
	}
	if err := parallel(len(masters), func(i int) error { return redisx.Load(ctx, masters[i].client, allScripts) }); err != nil {
		return s, redisx.Fail(err)
	}
	for _, m := range masters {
		s.Warnings = append(s.Warnings, redisx.Evicts(ctx, m.client, "the node "+m.addr)...)
	}
	return s, nil
}

// eachNode tells of the nodes that the client knew before it was handed over.
func (e *Engine) eachNode(ctx context.Context) error {
	cc, ok := e.client.UniversalClient.(*redis.ClusterClient)
	if !ok || e.node == nil {
		return nil
	}
	return redisx.Fail(cc.ForEachShard(ctx, func(_ context.Context, node *redis.Client) error {
		e.node(node)
		return nil
	}))
}

// loadNew gives the scripts to nodes that join the cluster later, or are promoted.
func loadNew(cc *redis.ClusterClient) {
	cc.OnNewNode(func(node *redis.Client) {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			_ = redisx.Load(ctx, node, allScripts)
		}()
	})
}

// lingers is how often, and firstLinger how long before the first time, something is looked at that may be a
// change that is under way. Each wait is half as long again as the one before. Their sum is over
// dyingTime, by when a writer has ended what it began, or died.
const (
	lingers     = 11
	firstLinger = 100 * time.Millisecond
)

// InSteps implements [store.Peeker]: the records of one entry lie in many slots.
func (e *Engine) InSteps() bool { return true }

// Linger implements [store.Peeker].
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
		key, seen := c.Key, rev
		if i > 0 {
			key, seen = c.Claim[i-1], srv
		}
		return e.confirm(ctx, key, func(node redis.Cmdable) error {
			return redisx.Confirm(ctx, node, key, seen, c.Replicas, c.ReplicaTime)
		})
	})
}

// confirm asks the master that serves a key, and another one where the slot has just moved.
func (e *Engine) confirm(ctx context.Context, k recordkey.Key, ask func(node redis.Cmdable) error) (err error) {
	cc, ok := e.client.UniversalClient.(*redis.ClusterClient)
	if !ok {
		return ask(e.client)
	}
	for attempt := range attempts / 2 {
		var node *redis.Client
		if node, err = cc.MasterForKey(ctx, k.String()); err == nil {
			err = ask(node)
		}
		if err == nil || !redisx.Moved(err) {
			return err
		}
		cc.ReloadState(ctx)
		if e.pause(ctx, 20*time.Millisecond<<attempt) != nil {
			break
		}
	}
	return err
}
