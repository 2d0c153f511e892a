// Package cluster keeps records on a Redis Cluster, where the records of one entry lie in many
// slots and no transaction spans them. It follows a protocol that keeps values unique across slots:
// claim the values, check the other fields, commit the entry in one script, release the old values.
// The steps are listed at the top of apply.go.
//
// The terms of the protocol:
//
//	attempt    one try at making a change, under a rev of its own
//	claim      an SRK that an attempt writes before it commits: "PRK REV"
//	fence      adding one to ~fence of another entry, so that no attempt prepared on it can commit
//	tombstone  a hash that a deleted entry leaves at its key for a day; fencing can also make one
//	~dying     the marks of the deletes of an entry that are not finished, each a random token
//	staged     of members of a tertiary set: written beside its key, to be moved there later
//
// No SRK ever has the same value twice, because each value is a PRK and the rev of one attempt.
// Comparing with exactly the value that was read is therefore safe, and so is a command that
// arrives a second time, however late. No rev of an entry recurs either: a tombstone lives for a
// day after it was last fenced or a change was last prepared on it, and a change takes at most an
// hour.
//
// Index members are brought in line with the entry after its commit (I5). A process that changes a
// membership reads the entry again afterwards and repeats until both agree, so the last of several
// processes is right. A crash, or a command that arrives again much later, may leave an index
// wrong. Readers ignore superfluous members, and a check finds both these and missing ones.
//
// Tertiary sets that are created with an entry are staged beside their keys, in the same slots. The
// entry lists them in ~fill until they are in place.
package cluster

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/internal/store/throttle"
	"github.com/coffeenode/userdb/recordkey"
)

// Options configures an [Engine]. The zero value is ready to use.
type Options struct {
	// Close releases the resources that were opened for the engine. If it is nil, the client stays
	// open.
	Close func() error
	// OnNode, if it is not nil, is called for every node that the client knows or discovers later.
	OnNode func(*redis.Client)
	// MemberBatch overrides [store.MemberBatch] if it is not 0. Tests use smaller batches.
	MemberBatch int
	// Now and Sleep replace the system's clock in tests. nil means the system's.
	Now   func() time.Time
	Sleep func(context.Context, time.Duration) error
}

// An Engine keeps records on a cluster. The embedded OneSlot does everything that needs only one
// slot at a time, which works as on a single server.
type Engine struct {
	*onekey.OneSlot
	client       *redisx.Client
	cc           *redis.ClusterClient // the same client; nil for a single server
	node         func(*redis.Client)
	latency      latency
	batch        int      // members handled at a time, normally store.MemberBatch
	schemaChecks sync.Map // schemaCheck by the key of the schema
	now          func() time.Time
	sleep        func(context.Context, time.Duration) error
	newRev       func() string
	detached     detached
	// goDetached is detached.start, except in tests.
	goDetached func(context.Context, time.Duration, func(context.Context))
	feedQueues [history.FeedParts]*feedQueue
	lineQueues map[string]*[history.FeedParts]*lineQueue // by feed
	// completers limits how many entries readers complete at once.
	completers chan struct{}
	// finishers limits how many changes are finished at once after their callers gave up.
	finishers chan struct{}
	// reloaded holds the time of the last reload; the one that receives it may reload.
	reloaded chan time.Time
	known    atomic.Pointer[knownMasters] // see scanMasters
}

var _ store.Engine = (*Engine)(nil)

// New returns an engine that uses client, a client of a cluster. A single server works as a cluster
// of one.
func New(client redis.UniversalClient, o Options) *Engine {
	cc, _ := client.(*redis.ClusterClient)
	if cc != nil {
		if o.OnNode != nil { // before loadLater connects to the node
			cc.OnNewNode(o.OnNode)
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
		cc:    cc, node: o.OnNode, now: o.Now, sleep: o.Sleep, newRev: store.NewRev,
		completers: make(chan struct{}, maxCompleters), finishers: make(chan struct{}, maxFinishers), reloaded: make(chan time.Time, 1),
	}
	e.goDetached = e.detached.start
	e.lineQueues = map[string]*[history.FeedParts]*lineQueue{history.FeedLogins: {}, history.FeedFailures: {}}
	for part := range e.feedQueues {
		e.feedQueues[part] = newFeedQueue()
		for _, queues := range e.lineQueues {
			queues[part] = newLineQueue()
		}
	}
	e.reloaded <- time.Time{}
	e.client = redisx.NewClient(client, redisx.Retry{
		Attempts: maxAttempts, Retryable: redisx.Retryable, Sent: redisx.Sent, Pause: e.pause, Before: e.reload,
	}, false)
	e.OneSlot = onekey.New(e.client, onekey.Options{
		MemberBatch: e.batch, TombstoneLife: tombstoneLife, Notes: history.InRecord, PartitionedFeed: true, NewRev: func() string { return e.newRev() }, AfterNote: e.feedLater, Close: func() error {
			e.awaitDetached()
			return closeIfSet(o.Close)
		},
	})
	return e
}

// awaitDetached waits for what goes on after callers have left, but no longer than finishTime.
func (e *Engine) awaitDetached() {
	ctx, cancel := context.WithTimeout(context.Background(), finishTime)
	defer cancel()
	e.detached.wait(ctx)
}

// A change ends within maxApplyTime, long before a tombstone that it relies on expires.
const (
	maxApplyTime  = time.Hour
	tombstoneLife = "86400" // seconds
)

// Survey implements [store.Engine]. It surveys every master and loads the scripts there.
func (e *Engine) Survey(ctx context.Context, closely bool) (store.Survey, error) {
	s := store.Survey{Store: store.OnCluster, MultiStep: true, SerialBulks: true}
	if e.cc != nil && e.node != nil { // OnNewNode did not report nodes that the client already knew
		err := e.cc.ForEachShard(ctx, func(_ context.Context, node *redis.Client) error {
			e.node(node)
			return nil
		})
		if err != nil {
			return s, redisx.Fail(err)
		}
	}
	if err := redisx.VerifyTransparent(ctx, e.client); err != nil {
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

// loadLater loads the scripts, in the background, on a node that joins the cluster or is promoted.
func loadLater(node *redis.Client) {
	goDetached(context.Background(), 2*time.Second, func(ctx context.Context) { _ = redisx.Load(ctx, node, allScripts) })
}

// Each wait of Settle is half as long again as the one before. All of them together are longer than
// dyingTime, after which every writer has finished what it began, or has died.
const (
	maxSettleWaits  = 11
	firstSettleWait = 100 * time.Millisecond
)

// Settle implements [store.Engine].
func (e *Engine) Settle(ctx context.Context, n int) (bool, error) {
	if n >= maxSettleWaits || store.HasNoOtherWriters(ctx) {
		return false, nil
	}
	wait := firstSettleWait
	for range n {
		wait += wait / 2
	}
	if err := e.sleep(ctx, wait); err != nil {
		return false, redisx.Fail(err)
	}
	return true, nil
}

// confirmAll waits until the entry and its claims are on as many replicas as the change asks for.
func (e *Engine) confirmAll(ctx context.Context, c store.Change, rev string) error {
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

// confirm waits until replicas of the master that serves key have the change. It tries again if the
// slot has just moved.
func (e *Engine) confirm(ctx context.Context, c store.Change, key recordkey.Key, seen string) (err error) {
	retry := e.client.Retry
	retry.Retryable = redisx.Moved
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

// Admit implements [store.Engine]. It runs one script for the account's counters and one for the
// origin's, both at the same time. If one of them refuses the attempt, Admit withdraws it from the
// other. A refusal by the origin is ignored if the account has a budget for that origin. An attempt
// that cannot be withdrawn stays counted.
func (e *Engine) Admit(ctx context.Context, a throttle.Counters) (throttle.Admission, error) {
	if !a.Origin.IsValid() {
		return e.OneSlot.Admit(ctx, a)
	}
	parts, account, origin, err := askBoth(ctx, a, e.OneSlot.Admit)
	if err != nil {
		return throttle.Admission{}, err
	}
	switch {
	case admitted(account, origin):
		return throttle.Admission{OwnBudget: account.OwnBudget, AtOrigin: origin.AtOrigin}, nil
	case account.Wait == 0:
		_ = e.OneSlot.Withdraw(ctx, parts[0], account)
	case origin.Wait == 0:
		_ = e.OneSlot.Withdraw(ctx, parts[1], origin)
	}
	return throttle.Admission{Wait: max(account.Wait, origin.Wait)}, nil
}

// LoginWait implements [store.Engine].
func (e *Engine) LoginWait(ctx context.Context, a throttle.Counters) (time.Duration, error) {
	if !a.Origin.IsValid() {
		return e.OneSlot.LoginWait(ctx, a)
	}
	_, account, origin, err := askBoth(ctx, a, e.OneSlot.WouldAdmit)
	if err != nil || admitted(account, origin) {
		return 0, err
	}
	return max(account.Wait, origin.Wait), nil
}

// askBoth calls ask for the account's counters and for the origin's at the same time.
func askBoth(
	ctx context.Context, a throttle.Counters, ask func(context.Context, throttle.Counters) (throttle.Admission, error),
) (parts [2]throttle.Counters, account, origin throttle.Admission, err error) {
	parts = a.Split()
	answers := [2]*throttle.Admission{&account, &origin}
	err = parallel(2, func(i int) (err error) {
		*answers[i], err = ask(ctx, parts[i])
		return err
	})
	return parts, account, origin, err
}

// admitted reports whether the answers for the account and the origin together admit an attempt.
// The account's own budget for the origin overrides a refusal by the origin.
func admitted(account, origin throttle.Admission) bool {
	return account.Wait == 0 && (origin.Wait == 0 || account.OwnBudget)
}

// Undo implements [store.Engine]. It updates the counters of the account and the origin at the same
// time. It does not change those of an origin that did not count the attempt.
func (e *Engine) Undo(ctx context.Context, a throttle.Counters, admission throttle.Admission) error {
	parts := a.Split()
	return parallel(2, func(i int) error { return e.OneSlot.Undo(ctx, parts[i], admission) })
}
