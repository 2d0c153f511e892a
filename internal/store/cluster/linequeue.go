package cluster

import (
	"context"
	"sync"

	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/recordkey"
)

// A lineQueue holds lines that wait to be added to one part of the feed of logins or of the feed of
// failures. These feeds may lack lines. Each feed has its own queues, so that strangers who fill
// the queues of failures leave room for logins.
type lineQueue struct {
	queued chan struct{} // holds one element for each note until it is added
	turn   chan struct{} // holds an element while a note is being added

	mu    sync.Mutex
	notes []queuedNote // in order of arrival
}

// A queuedNote is a note about the entry at prk for a feed of a namespace.
type queuedNote struct {
	ns   recordkey.Namespace
	feed string
	prk  recordkey.Key
	note history.Note
}

func newLineQueue() *lineQueue {
	return &lineQueue{queued: make(chan struct{}, maxQueued), turn: make(chan struct{}, 1)}
}

func (q *lineQueue) put(n queuedNote) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.notes = append(q.notes, n)
}

// take removes and returns the first note. The queue must not be empty.
func (q *lineQueue) take() queuedNote {
	q.mu.Lock()
	defer q.mu.Unlock()
	first := q.notes[0]
	q.notes = q.notes[1:]
	return first
}

// AppendFeed implements [store.Engine]. For the feeds of logins and of failures, it only queues the
// line, so that no login or session waits for another master. These feeds lose lines if too many
// wait, or if a master does not answer for a minute.
func (e *Engine) AppendFeed(ctx context.Context, ns recordkey.Namespace, feed string, prk recordkey.Key, n history.Note) error {
	queues, ok := e.lineQueues[feed]
	if !ok {
		return e.OneSlot.AppendFeed(ctx, ns, feed, prk, n)
	}
	q := queues[history.FeedPart(prk)]
	select {
	case q.queued <- struct{}{}:
	default:
		return nil
	}
	q.put(queuedNote{ns, feed, prk, n})
	// When its turn comes, each goroutine adds the first note in the queue, which may not be n.
	e.goDetached(ctx, feedTimeout, func(ctx context.Context) {
		defer release(q.queued)
		mayAdd := acquire(ctx, q.turn)
		if mayAdd {
			defer release(q.turn)
		}
		if first := q.take(); mayAdd {
			_ = e.OneSlot.AppendFeed(ctx, first.ns, first.feed, first.prk, first.note)
		}
	})
	return nil
}
