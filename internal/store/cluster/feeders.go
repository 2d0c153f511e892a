package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// Callers do not wait for the feed. Each part of it has its own queue and its own feeders, so a
// master that does not answer delays only the parts that it serves, and never a change of an entry.
const (
	partFeeders = 4           // feeders that work on one part at a time
	mostUnfed   = 256         // entries that may wait for one part; further callers wait for room
	feedTime    = time.Minute // how long a feeder keeps trying
	feedPause   = time.Second // wait between two tries
)

// A feedQueue holds the entries whose lines are still missing from one part of the feed.
type feedQueue struct {
	room  chan struct{} // holds one element for each entry until it is fed
	turns chan struct{} // holds one element for each feeder at work

	mu      sync.Mutex
	waiting map[recordkey.Key]unfed // entries that no feeder has taken yet
}

// An unfed value describes the history lines of an entry that waits in a queue.
type unfed struct {
	note  store.Note
	first string // the whole history; "" if it must be read
}

func newFeedQueue() *feedQueue {
	return &feedQueue{
		room: make(chan struct{}, mostUnfed), turns: make(chan struct{}, partFeeders),
		waiting: map[recordkey.Key]unfed{},
	}
}

// join updates an entry that is already waiting, and reports whether there is one.
func (q *feedQueue) join(prk recordkey.Key, n store.Note) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, waits := q.waiting[prk]
	if waits {
		q.waiting[prk] = unfed{note: n}
	}
	return waits
}

// put adds an entry. The caller has already acquired room for it.
func (q *feedQueue) put(prk recordkey.Key, u unfed) {
	if !q.join(prk, u.note) {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.waiting[prk] = u
	}
}

// take removes an entry from those that wait, and reports whether it was one of them.
func (q *feedQueue) take(prk recordkey.Key) (u unfed, waits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	u, waits = q.waiting[prk]
	delete(q.waiting, prk)
	return u, waits
}

// feedLater queues an entry whose history has lines that the feed lacks, if n has any lines. The
// caller does not wait for the feed; Close does.
func (e *Engine) feedLater(ctx context.Context, prk recordkey.Key, n store.Note) {
	e.feedSoon(ctx, prk, n, "")
}

// feedSoon works like feedLater, for a caller that may know the entry's whole history. first is
// that history, or "" if it must be read. If the queue has no room before ctx ends or finishTime
// is over, the lines come with the entry's next change.
func (e *Engine) feedSoon(ctx context.Context, prk recordkey.Key, n store.Note, first string) {
	if len(n.Lines) == 0 {
		return
	}
	q := e.unfed[store.FeedPart(prk)]
	if q.join(prk, n) {
		return
	}
	limited, cancel := context.WithTimeout(ctx, finishTime)
	defer cancel()
	if !acquire(limited, q.room) {
		return
	}
	q.put(prk, unfed{n, first})
	e.background(ctx, feedTime, func(ctx context.Context) {
		defer release(q.room)
		e.feedInTurn(ctx, q, prk)
	})
}

// feedInTurn feeds an entry as soon as a feeder is free, and retries while that may help.
func (e *Engine) feedInTurn(ctx context.Context, q *feedQueue, prk recordkey.Key) {
	if !acquire(ctx, q.turns) {
		q.take(prk)
		return
	}
	defer release(q.turns)
	u, waits := q.take(prk)
	if !waits {
		return
	}
	for {
		err := e.feed(ctx, prk, u.note, u.first)
		if err == nil || !redisx.Passing(err) || e.pause(ctx, feedPause) != nil {
			return
		}
	}
}

// awaitFeeders waits until all queued entries are fed, but no longer than finishTime.
func (e *Engine) awaitFeeders() {
	ctx, cancel := context.WithTimeout(context.Background(), finishTime)
	defer cancel()
	for _, q := range e.unfed {
		for range mostUnfed {
			if !acquire(ctx, q.room) {
				return
			}
			defer release(q.room)
		}
	}
}

// acquire takes one of the places of a channel, and reports whether it got one before ctx ended. It
// takes a free place even if ctx has ended.
func acquire(ctx context.Context, places chan<- struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
	}
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func release(places <-chan struct{}) { <-places }
