package serve

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/coffeenode/userdb/userdb"
)

// Limits of listening.
const (
	mostListeners = 500
	mostBehind    = 100 // parts of the feed that are kept for a listener who takes them slowly
)

// feedTime is between two readings of a feed that somebody listens to.
var feedTime = 250 * time.Millisecond

// A feed is read once for all who listen to it in this process, and not at all while nobody does.
type feed struct {
	listeners int
	stop      context.CancelFunc

	mu   sync.Mutex
	last *feedPart
	from string // the position that the last part begins at
}

// A feedPart is what was read at a time, and where to wait for what comes after it.
type feedPart struct {
	number int
	ready  chan struct{} // closed when the rest is set
	page   userdb.EventPage
	frames [][]byte  // its events as every listener is told of them
	next   *feedPart // nil: the feed is not read any more
}

// now is the part that is still to come, and the position that it begins at.
func (f *feed) now() (*feedPart, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.from
}

// listen is the feed of a view, for as long as leave is not called.
func (s *Service) listen(ctx context.Context, db *userdb.DB) (f *feed, leave func(), err error) {
	if f, err = s.join(db, nil); f == nil && err == nil {
		asked, cancel := within(ctx)
		defer cancel()
		var end userdb.EventPage
		if end, err = db.Events(asked, userdb.EventQuery{After: userdb.EventsEnd}); err == nil {
			reading, stop := context.WithCancel(context.WithoutCancel(ctx))
			fresh := &feed{stop: stop, last: &feedPart{ready: make(chan struct{})}, from: end.Next}
			if f, err = s.join(db, fresh); f == fresh {
				go f.read(reading, db, feedTime)
			} else {
				stop()
			}
		}
	}
	return f, sync.OnceFunc(func() { s.leave(db, f) }), err
}

// join counts one more listener to the feed of a view. It returns the feed that others listen to already, or else fresh, which is then
// theirs, too; nil where there is neither.
func (s *Service) join(db *userdb.DB, fresh *feed) (*feed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := 0
	for _, other := range s.feeds {
		all += other.listeners
	}
	if all >= mostListeners {
		return nil, problem(userdb.CodeUnavailable, "too many listen").retry(10)
	}
	f := cmp.Or(s.feeds[db], fresh)
	if f != nil {
		s.feeds[db] = f
		f.listeners++
	}
	return f, nil
}

func (s *Service) leave(db *userdb.DB, f *feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.listeners--; f.listeners == 0 {
		f.stop()
		delete(s.feeds, db)
	}
}

// read reads the feed until nobody listens. While the store does not answer it waits.
func (f *feed) read(ctx context.Context, db *userdb.DB, every time.Duration) {
	part, from := f.now()
	defer func() { close(part.ready) }()
	for {
		asked, cancel := context.WithTimeout(ctx, requestTime)
		page, err := db.Events(asked, userdb.EventQuery{After: from, Limit: 1000})
		cancel()
		if err == nil && (len(page.Events) > 0 || page.Gap) {
			next := &feedPart{number: part.number + 1, ready: make(chan struct{})}
			part.page, part.frames, part.next, from = page, framesOf(page), next, page.Next
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
		case <-time.After(every):
		}
	}
}
