package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// Callers wait for the feed only if a queue is full. Each part of the feed has its own queue and
// its own feeders, so a master that does not answer delays only the parts that it serves.
const (
	feedersPerPart = 4           // feeders that work on one part at a time
	maxQueued      = 256         // entries that may wait for one part; more callers block
	feedTimeout    = time.Minute // how long a feeder keeps trying
	feedRetryPause = time.Second // wait between two tries
)

// A feedQueue holds the entries whose lines are still missing from one part of the feed.
type feedQueue struct {
	queued  chan struct{} // holds one element for each entry until it is fed
	working chan struct{} // holds one element for each feeder at work

	mu      sync.Mutex
	waiting map[recordkey.Key]feedItem // entries that no feeder has taken yet
}

// A feedItem describes the history lines of an entry that waits in a queue.
type feedItem struct {
	note    history.Note
	history string // the whole history; "" if it must be read
}

func newFeedQueue() *feedQueue {
	return &feedQueue{
		queued: make(chan struct{}, maxQueued), working: make(chan struct{}, feedersPerPart),
		waiting: map[recordkey.Key]feedItem{},
	}
}

// update gives a waiting entry a newer note, after which its history must be read. It reports
// whether the entry was waiting.
func (q *feedQueue) update(prk recordkey.Key, n history.Note) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, waits := q.waiting[prk]
	if waits {
		q.waiting[prk] = feedItem{note: n}
	}
	return waits
}

// put adds an entry. The caller must have acquired a slot in q.queued for it.
func (q *feedQueue) put(prk recordkey.Key, item feedItem) {
	if !q.update(prk, item.note) {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.waiting[prk] = item
	}
}

// take removes an entry from those that wait, and reports whether it was waiting.
func (q *feedQueue) take(prk recordkey.Key) (item feedItem, waits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	item, waits = q.waiting[prk]
	delete(q.waiting, prk)
	return item, waits
}

// feedLater queues an entry whose history has lines that the feed of changes lacks, if n has any
// lines. The caller waits at most for a slot in the queue; Close waits for the feed. Lines for
// another feed go to AppendFeed.
func (e *Engine) feedLater(ctx context.Context, prk recordkey.Key, n history.Note) {
	e.queueFeed(ctx, prk, n, "")
}

// queueFeed works like feedLater, for a caller that may know the entry's whole history; text is ""
// if it must be read. If the queue is still full when ctx ends or finishTime is over, the lines are
// added with the entry's next change.
func (e *Engine) queueFeed(ctx context.Context, prk recordkey.Key, n history.Note, text string) {
	if len(n.Lines) == 0 || n.Feed == history.FeedNone {
		return
	}
	if !n.InChanges() {
		_ = e.AppendFeed(ctx, prk.Namespace(), n.Feed, prk, n)
		return
	}
	q := e.feedQueues[history.FeedPart(prk)]
	if q.update(prk, n) {
		return
	}
	limited, cancel := context.WithTimeout(ctx, finishTime)
	defer cancel()
	if !acquire(limited, q.queued) {
		return
	}
	q.put(prk, feedItem{n, text})
	e.goDetached(ctx, feedTimeout, func(ctx context.Context) {
		defer release(q.queued)
		e.feedInTurn(ctx, q, prk)
	})
}

// feedInTurn feeds an entry as soon as a feeder is free, and retries while that may help.
func (e *Engine) feedInTurn(ctx context.Context, q *feedQueue, prk recordkey.Key) {
	if !acquire(ctx, q.working) {
		q.take(prk)
		return
	}
	defer release(q.working)
	item, waits := q.take(prk)
	if !waits {
		return
	}
	for {
		err := e.feed(ctx, prk, item.note, item.history)
		if err == nil || !redisx.Retryable(err) || e.pause(ctx, feedRetryPause) != nil {
			return
		}
	}
}

// acquire takes one of the slots of a channel, and reports whether it got one before ctx ended. It
// takes a free slot even if ctx has ended.
func acquire(ctx context.Context, slots chan<- struct{}) bool {
	select {
	case slots <- struct{}{}:
		return true
	default:
	}
	select {
	case slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func release(slots <-chan struct{}) { <-slots }
