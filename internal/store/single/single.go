// Package single keeps records on one server: standalone, found by Sentinel, or embedded. A change is one Lua script
// and one round trip; so is a lookup.
package single

import (
	"cmp"
	"context"
	"embed"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

//go:embed scripts
var scripts embed.FS

// Options of an engine.
type Options struct {
	// Undone says of a client's error that the command was certainly not carried out; nil: never.
	Undone func(error) bool
	// Doubtful says of a client's error that the command may have been carried out, although its context ended; nil:
	// never.
	Doubtful func(error) bool
	// Match has the engine match SCAN's patterns itself, for a server that does it in another way than Redis.
	Match bool
	// MemberBatch is store.MemberBatch; tests have less. 0: that.
	MemberBatch int
	// FeedEntries is how many entries a feed has; 0: those of a server.
	FeedEntries int64
	// File is where an embedded store is kept; "": in memory alone.
	File string
	// Bulk begins a run of changes that are saved together; nil: each is saved at once.
	Bulk func(ctx context.Context) (context.Context, func(context.Context) error)
	// Share lets other processes use an embedded store until stop is called; nil: it is not one.
	Share func() (stop func() error, err error)
	// Close releases what was opened for the engine; nil leaves the client open.
	Close func() error
}

// Share lets other processes of this user use an embedded store; of a server it does nothing.
func (e *Engine) Share() (stop func() error, err error) {
	if e.options.Share == nil {
		return func() error { return nil }, nil
	}
	return e.options.Share()
}

// An Engine keeps records on the one server that a client speaks to.
type Engine struct {
	*onekey.Keys
	client  *redisx.Client
	options Options

	creating atomic.Int32 // callers that are under way
	creates  *redisx.Batcher[*creation]
	finding  atomic.Int32 // likewise
	stored   sync.Map     // store.Stored by the key of ~/schema/TYPE, as the last delete was told
	strict   atomic.Bool  // the server forbids scripts the keys that they do not declare
}

var _ store.Engine = (*Engine)(nil)

// New returns an engine over a client that speaks to one server.
func New(client redis.UniversalClient, o Options) *Engine {
	o.MemberBatch = cmp.Or(o.MemberBatch, store.MemberBatch)
	e := &Engine{options: o}
	// A batch has no caller's context, and so belongs to no bulk.
	e.client = redisx.NewClient(client, redisx.Retry{Attempts: attempts, Passing: e.passing, Sent: e.sent, Pause: redisx.Pause}, o.Bulk != nil)
	e.Keys = onekey.New(e.client, onekey.Options{OneSlot: true, WholeSets: o.Match, MemberBatch: o.MemberBatch, Bulk: o.Bulk, Close: o.Close, Notes: onekey.NotesBoth, FeedEntries: o.FeedEntries, TombstoneLife: tombstoneLife})
	e.creates = redisx.NewBatcher(groupMost, func(ctx context.Context, all []*creation) { e.createAll(ctx, firsts(all)) })
	return e
}

// Survey implements [store.Engine]. The embedded store is known.
func (e *Engine) Survey(ctx context.Context, closely bool) (store.Survey, error) {
	s := store.Survey{Store: store.OnServer, File: e.options.File, Bulks: e.options.Bulk != nil}
	switch {
	case s.File != "":
		s.Store = store.InFile
		return s, nil
	case e.options.Match:
		s.Store = store.InMemory
		return s, nil
	}
	if err := redisx.OneSlot(ctx, e.client); err != nil {
		return s, err
	}
	if err := redisx.Faithful(ctx, e.client); err != nil {
		return s, err
	}
	var address string
	if c, is := e.client.UniversalClient.(*redis.Client); is {
		address = c.Options().Addr
	}
	if address == sentinels {
		s.Store, address = store.BySentinel, ""
	}
	server, err := redisx.Survey(ctx, e.client, address, closely)
	s.Servers = []store.Server{server}
	return s, err
}

// sentinels is what go-redis calls the address of a server that Sentinels name.
const sentinels = "FailoverClient"

// Linger implements [store.Engine]: every change is one script.
func (e *Engine) Linger(context.Context, int) (bool, error) { return false, nil }

// sent reports whether the server may have run the command that failed with err.
func (e *Engine) sent(err error) bool {
	if e.options.Doubtful != nil && e.options.Doubtful(err) {
		return true
	}
	return redisx.Sent(err) && (e.options.Undone == nil || !e.options.Undone(err))
}

// passing reports whether another attempt may succeed.
func (e *Engine) passing(err error) bool {
	return redisx.Passing(err) && (e.options.Undone == nil || !e.options.Undone(err))
}

// attempts is how often something is sent.
const attempts = 6

// tombstoneLife is how many seconds a tombstone lives, as change.lua has it, too.
const tombstoneLife = "600"
