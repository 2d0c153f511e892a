package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// Callers do not wait for the feed. Each part of it has a queue and feeders of its own, so that a master that does not
// answer delays only the parts that it serves, and no change of an entry.
const (
	partFeeders = 4           // feed one part at a time
	mostUnfed   = 256         // entries wait for one part; more callers wait for room
	feedTime    = time.Minute // how long feeders go on trying
	feedPause   = time.Second // between two tries
)

// A feedQueue holds the entries whose lines one part of the feed still lacks.
type feedQueue struct {
	room  chan struct{} // has one element for each entry, until it is fed
	turns chan struct{} // has one element for each feeder at work

	mu      sync.Mutex
	waiting map[recordkey.Key]unfed // entries that no feeder has taken yet
}

// An unfed entry has these lines in its history.
type unfed struct {
	note  store.Note
	first string // the whole history, if it is known; "": it must be read
}

func newFeedQueue() *feedQueue {
	return &feedQueue{
		room: make(chan struct{}, mostUnfed), turns: make(chan struct{}, partFeeders),
		waiting: map[recordkey.Key]unfed{},
	}
}

// join adds a note to an entry that waits already, and reports whether it does.
func (q *feedQueue) join(prk recordkey.Key, n store.Note) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, waits := q.waiting[prk]
	if waits {
		q.waiting[prk] = unfed{note: n}
	}
	return waits
}

// put adds an entry, for which the caller has taken room.
func (q *feedQueue) put(prk recordkey.Key, u unfed) {
	if !q.join(prk, u.note) {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.waiting[prk] = u
	}
}

// take returns an entry to the feeder that feeds it, and reports whether it still waits.
func (q *feedQueue) take(prk recordkey.Key) (u unfed, waits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	u, waits = q.waiting[prk]
	delete(q.waiting, prk)
	return u, waits
}

// feedLater puts into the feed what it lacks of the history of an entry, if something was noted. The caller does not
// wait for it; Close does.
func (e *Engine) feedLater(ctx context.Context, prk recordkey.Key, n store.Note) {
	e.feedSoon(ctx, prk, n, "")
}

// feedSoon does what feedLater does for a caller that may know the whole history: first, if it is not "". If the part has no room
// before the caller's time is over, the lines come with the next change of the entry.
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

// feedInTurn feeds an entry when it is its turn. It tries again as long as that may help.
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

// awaitFeeders returns when the feeders have fed all that waited, or finishTime is over.
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

// acquire takes one of the places of a channel, and reports whether it got one before ctx ended. A free place is taken
// in any case.
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
