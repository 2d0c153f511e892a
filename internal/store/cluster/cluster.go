// Package cluster keeps records on a Redis Cluster, where those of one entry lie in many slots and no
// transaction spans them. It follows the protocol of cross-slot uniqueness step by step: claims,
// looks aside, one commit, releases; whoever finds an SRK occupied by an entry that does not hold the
// value fences that entry before it takes the SRK over.
//
//  1. Each attempt to commit has a token of its own. A claim on an SRK is its PRK, a space and the token,
//     set if the SRK is absent. A plain PRK, as one server writes it, may be found and replaced, but
//     is never written.
//  2. Occupied by Q: if Q holds the value, it is taken. Else begin again, and queue for the values one after the other
//     (turns.go). Whoever queues waits some round trips, and if the same is there still, fences Q (counts its ~fence
//     up, of an absent Q in a tombstone), and compares-and-sets the SRK from exactly what was seen.
//  3. All claims are made; then look at the values under all other secondary fields, likewise.
//  4. Commit: the entry's hash is written if its ~rev and ~fence are still as they were read.
//  5. SRKs that go are read before the commit, and go after it if they are exactly what was read.
//  6. A delete leaves a tombstone, ~dying until what belonged to the entry is gone. If the deleter dies, a create
//     finishes that for it (burial.go).
//  7. After a conflict the own claims go, each only after the own entry was fenced.
//
// No value of an SRK ever recurs: each is a PRK and the token of one attempt. So comparing with
// exactly what was seen is safe, and so is a command that arrives once more at any later time. No
// version of an entry recurs either: a tombstone lives a day from the last time that a change was
// prepared on it or that it was fenced, and a change takes an hour at most.
//
// Index members are brought in line with the entry after its commit (I5): what a crash leaves out of
// date is never shown where it is too much, and what is too little is found by a check. Whoever
// changes a membership looks again at what the entry holds, and goes on until both agree; so the last
// of several is right. Commands on index members and tertiary records know no versions: one that arrives once
// more, much later, may take out what is due or put in what is not, which no reader is shown for a dead
// entry and a check finds. Tertiary sets that are born with an entry are laid ready beside their place, in
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

// An Engine keeps records on the cluster behind a client. What needs but one key at a time, it does
// as on a single server.
type Engine struct {
	*onekey.Keys
	client  *redisx.Client
	close   func() error
	node    func(*redis.Client)
	trips   trips
	mu      sync.Mutex
	checked map[string]checkedSchema // by key and fingerprint
	now     func() time.Time
	sleep   func(context.Context, time.Duration) error
	token   func() string
	aside   func(context.Context, func(context.Context))

	completions completions
	reloading   reloading
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
		checked: map[string]checkedSchema{}, now: o.Now, sleep: o.Sleep, token: store.NewRev, aside: aside,
		reloading: reloading{turn: make(chan struct{}, 1)},
	}
	e.client = redisx.NewClient(client, redisx.Retry{
		Attempts: attempts, Passing: redisx.Passing, Sent: redisx.Sent, Pause: e.pause, Before: e.reload,
	}, false)
	e.Keys = onekey.New(e.client, onekey.Options{})
	return e
}

// Close implements [store.Engine]; further calls return the same.
func (e *Engine) Close() error { return e.close() }

// Verbs end within the hour that a tombstone's day is long enough for.
const (
	longestVerb   = time.Hour
	tombstoneLife = "86400" // seconds
)
