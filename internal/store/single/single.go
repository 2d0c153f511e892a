// Package single implements [store.Engine] for one Redis server: standalone, found through
// Sentinel, or embedded. A change or a lookup takes one Lua script and one round trip, except that
// lookups of many callers share two round trips of plain commands.
package single

import (
	"cmp"
	"context"
	"embed"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

//go:embed scripts
var scripts embed.FS

func source(name string) string { return redisx.Source(scripts, name) }

// Options configures an Engine.
type Options struct {
	// NotRun reports whether an error of the client means that the command was certainly not
	// carried out. If nil, no error does.
	NotRun func(error) bool
	// MayHaveRun reports whether an error of the client means that the command may have been
	// carried out although its context ended. If nil, no error does.
	MayHaveRun func(error) bool
	// Embedded means that the server is the embedded store, whose keys and members are sorted.
	Embedded bool
	// MemberBatch is the number of members of a large set that one step handles. If zero, it is
	// store.MemberBatch; tests use fewer.
	MemberBatch int
	// FeedEntries limits the number of entries in a feed. If zero, the limits for servers apply.
	FeedEntries int64
	// File is the name of the file that holds an embedded store; "" if it is only in memory.
	File string
	// Bulk begins a run of changes that are saved together. If nil, each change is saved at once.
	Bulk func(ctx context.Context) (context.Context, func(context.Context) error)
	// Lazy returns a context whose changes need not be durable when they are answered. If nil, all
	// changes are durable.
	Lazy func(context.Context) context.Context
	// Share lets other processes use an embedded store until stop is called. If nil, the store is
	// not embedded.
	Share func() (stop func() error, err error)
	// Close releases what was opened for the engine. If nil, the client stays open.
	Close func() error
}

// Share lets other processes of this user use an embedded store until stop is called. For any other
// store it does nothing.
func (e *Engine) Share() (stop func() error, err error) {
	if e.options.Share == nil {
		return func() error { return nil }, nil
	}
	return e.options.Share()
}

// An Engine keeps records on one server, which it reaches through one client.
type Engine struct {
	*onekey.OneSlot
	client  *redisx.Client
	options Options

	creating atomic.Int32 // creates under way
	creates  *redisx.Batcher[*creation]
	finding  atomic.Int32 // lookups by SRKs under way
	// schemas maps the key of ~/schema/TYPE to the store.StoredSchema that change.lua last reported
	// for it.
	schemas      sync.Map
	onlyDeclared atomic.Bool // the server rejects scripts that use undeclared keys
}

var _ store.Engine = (*Engine)(nil)

// New returns an engine that keeps its records on the server that client is connected to.
func New(client redis.UniversalClient, o Options) *Engine {
	o.MemberBatch = cmp.Or(o.MemberBatch, store.MemberBatch)
	e := &Engine{options: o}
	// With Bulk, every command is sent on its own: the context of a call shows whether it belongs
	// to a bulk, and a batch of calls has no such context.
	e.client = redisx.NewClient(client, redisx.Retry{Attempts: maxAttempts, Retryable: e.retryable, Sent: e.mayHaveRun, Pause: redisx.SleepWithJitter}, o.Bulk != nil)
	e.OneSlot = onekey.New(e.client, onekey.Options{OneSlot: true, Sorted: o.Embedded, MemberBatch: o.MemberBatch, Bulk: o.Bulk, Lazy: o.Lazy, Close: o.Close, Notes: history.InBoth, FeedEntries: o.FeedEntries, TombstoneLife: tombstoneLife})
	e.creates = redisx.NewBatcher(maxGroup, func(ctx context.Context, all []*creation) { e.createAll(ctx, withoutConflicts(all)) })
	return e
}

// Survey implements [store.Engine]. It sends no commands to an embedded store.
func (e *Engine) Survey(ctx context.Context, closely bool) (store.Survey, error) {
	s := store.Survey{Store: store.OnServer, File: e.options.File, SerialBulks: e.options.Bulk != nil}
	switch {
	case s.File != "":
		s.Store = store.InFile
		return s, nil
	case e.options.Embedded:
		s.Store = store.InMemory
		return s, nil
	}
	if err := redisx.CheckOneSlot(ctx, e.client); err != nil {
		return s, err
	}
	if err := redisx.VerifyTransparent(ctx, e.client); err != nil {
		return s, err
	}
	var address string
	if c, is := e.client.UniversalClient.(*redis.Client); is {
		address = c.Options().Addr
	}
	if address == sentinelAddr {
		s.Store, address = store.BySentinel, ""
	}
	server, err := redisx.Survey(ctx, e.client, address, closely)
	s.Servers = []store.Server{server}
	return s, err
}

// sentinelAddr is the address that go-redis reports for a server found through Sentinel.
const sentinelAddr = "FailoverClient"

// Settle implements [store.Engine]. It never waits: every change is one script, so no writer is in
// the middle of one.
func (e *Engine) Settle(context.Context, int) (bool, error) { return false, nil }

// mayHaveRun reports whether the server may have run the command that failed with err.
func (e *Engine) mayHaveRun(err error) bool {
	if e.options.MayHaveRun != nil && e.options.MayHaveRun(err) {
		return true
	}
	return redisx.Sent(err) && (e.options.NotRun == nil || !e.options.NotRun(err))
}

// retryable reports whether another attempt may succeed.
func (e *Engine) retryable(err error) bool {
	return redisx.Retryable(err) && (e.options.NotRun == nil || !e.options.NotRun(err))
}

// maxAttempts limits how many times a command is sent.
const maxAttempts = 6

// tombstoneLife is the lifetime of a tombstone in seconds. change.lua contains the same number.
const tombstoneLife = "600"
