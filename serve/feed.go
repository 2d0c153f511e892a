package serve

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/coffeenode/userdb/userdb"
)

// maxLag is how many parts of the feed a slow listener may fall behind.
const maxLag = 100

// feedInterval is the time between two reads of a feed.
var feedInterval = 250 * time.Millisecond

// A feed reads the events of a view for all listeners in this process. It runs only while there are
// listeners.
type feed struct {
	listeners int
	stop      context.CancelFunc

	mu   sync.Mutex
	last *feedPart
	from string // the position at which last begins
}

// A feedPart holds the events of one read and leads to the part that follows.
type feedPart struct {
	number int
	ready  chan struct{} // closed when the fields below are set
	page   userdb.EventPage
	frames [][]byte  // the events of page, encoded for all listeners
	next   *feedPart // nil if the feed has ended
}

// tail returns the part that has yet to be read and the position at which it begins.
func (f *feed) tail() (*feedPart, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.from
}

// keepUp returns part, which begins at from, or the tail if part is too far behind. A part keeps
// all later ones in memory.
func (f *feed) keepUp(part *feedPart, from string) (*feedPart, string) {
	if last, at := f.tail(); last.number-part.number > maxLag {
		return last, at
	}
	return part, from
}

// subscribe returns the feed of a view, and starts it if nobody else listens. Unless it returns an
// error, the caller must call leave when it no longer listens.
func (s *Service) subscribe(ctx context.Context, db *userdb.DB) (f *feed, leave func(), err error) {
	if f = s.join(db, nil); f == nil {
		limited, cancel := withStoreTimeout(ctx)
		defer cancel()
		var end userdb.EventPage
		if end, err = db.Events(limited, userdb.EventQuery{After: userdb.EventsEnd}); err == nil {
			feedCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
			fresh := &feed{stop: stop, last: &feedPart{ready: make(chan struct{})}, from: end.Next}
			if f = s.join(db, fresh); f == fresh {
				go f.read(feedCtx, s.options.Logger, db, feedInterval)
			} else {
				stop()
			}
		}
	}
	return f, sync.OnceFunc(func() { s.leave(db, f) }), err
}

// join adds a listener to the feed of a view and returns the feed. If the view has no feed yet,
// fresh becomes its feed. If fresh is nil as well, join returns nil.
func (s *Service) join(db *userdb.DB, fresh *feed) *feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := cmp.Or(s.feeds[db], fresh)
	if f != nil {
		s.feeds[db] = f
		f.listeners++
	}
	return f
}

// leave removes a listener from a feed, and stops the feed if it was the last.
func (s *Service) leave(db *userdb.DB, f *feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.listeners--; f.listeners == 0 {
		f.stop()
		delete(s.feeds, db)
	}
}

// read reads the feed until ctx ends. While the store does not answer or refuses a command, it
// keeps trying. It logs the first error of each outage, and the end of the outage, because open
// streams only fall silent.
func (f *feed) read(ctx context.Context, log *slog.Logger, db *userdb.DB, interval time.Duration) {
	part, from := f.tail()
	defer func() { close(part.ready) }()
	outage := false
	for {
		limited, cancel := context.WithTimeout(ctx, storeTimeout)
		page, err := db.Events(limited, userdb.EventQuery{After: from, Limit: 1000})
		cancel()
		switch {
		case err != nil && !outage && ctx.Err() == nil:
			outage = true
			log.ErrorContext(ctx, "open streams receive no events until the feed can be read again", slog.String("cause", cause(err)))
		case err == nil && outage:
			outage = false
			log.InfoContext(ctx, "open streams receive events again")
		}
		if err == nil && (len(page.Events) > 0 || page.Gap) {
			next := &feedPart{number: part.number + 1, ready: make(chan struct{})}
			part.page, part.frames, part.next, from = page, encodeFrames(page), next, page.Next
			f.mu.Lock()
			f.last, f.from = next, from
			f.mu.Unlock()
			close(part.ready)
			part = next
			if len(page.Events) == 1000 {
				continue
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(interval):
		}
	}
}
