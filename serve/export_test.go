package serve

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/coffeenode/userdb/userdb"
)

// KeepUp returns how many parts a listener is behind its feed after keepUp, if it was the given
// number of parts behind before.
func KeepUp(behind int) int {
	first, last := &feedPart{}, &feedPart{number: behind}
	part, _ := (&feed{last: last, from: "last"}).keepUp(first, "first")
	return last.number - part.number
}

// MaxLag is the number of parts that a listener may be behind its feed.
const MaxLag = maxLag

// SendSlowly sends a listener a page of events, each of which takes a write of its own, and returns
// how many of them were sent. The page must be sent within the given time.
func SendSlowly(events int, within time.Duration) (sent int, err error) {
	defer func(before time.Duration) { maxPageTime = before }(maxPageTime)
	maxPageTime = within
	w := httptest.NewRecorder()
	l := &listener{c: &call{}, w: w, control: http.NewResponseController(w)}
	frames := make([][]byte, events)
	for i := range frames {
		frames[i] = bytes.Repeat([]byte("x"), maxFrames)
	}
	err = l.send(userdb.EventPage{Events: make([]userdb.HistoryEvent, events)}, frames)
	return w.Body.Len() / maxFrames, err
}

// ReadBodyAfterRevocation reads from the body of a request whose key is known to be revoked, while
// the store does not say whether it is still valid.
func ReadBodyAfterRevocation(reason error) error {
	valid, revoke := context.WithCancelCause(context.Background())
	revoke(reason)
	s := &stream{
		ReadCloser: io.NopCloser(strings.NewReader("x")), control: http.NewResponseController(httptest.NewRecorder()), ctx: context.Background(),
		recheck: func() error { return nil },
	}
	defer s.start(valid)()
	_, err := s.Read(make([]byte, 1))
	return err
}

// WithDrain returns the context of requests to a service that shuts down: calls to the store end
// with the context store, and streams with the context stream.
func WithDrain(ctx, store, stream context.Context) context.Context {
	return context.WithValue(ctx, drainContextsKey{}, drainContexts{store, stream})
}

// FollowSlowly runs a listener that is too far behind its feed. It returns what the listener has
// been sent by the time it is dropped or ctx ends.
func FollowSlowly(ctx context.Context) string {
	first := &feedPart{ready: make(chan struct{})}
	last := first
	for range maxLag + 1 {
		last.next = &feedPart{number: last.number + 1, ready: make(chan struct{})}
		last.page = userdb.EventPage{Gap: true}
		close(last.ready)
		last = last.next
	}
	w := httptest.NewRecorder()
	l := &listener{c: &call{service: &Service{closing: make(chan struct{})}, valid: ctx}, w: w, control: http.NewResponseController(w), feed: &feed{last: last}}
	l.follow(ctx, first)
	return w.Body.String()
}

// SetClock sets the clock by which a service judges keys.
func (s *Service) SetClock(now func() time.Time) { s.keys.now = now }

// SetMaxConcurrent sets how many requests of each kind, except discovery and old events, a new
// service handles at the same time.
func SetMaxConcurrent(n int) (undo func()) {
	all := []*int{&maxRequests, &maxImports, &maxExports, &maxListeners, &maxOperators, &maxUploads, &maxLookups, &maxVisitors}
	before := make([]int, len(all))
	for i, limit := range all {
		before[i], *limit = *limit, n
	}
	return func() {
		for i, limit := range all {
			*limit = before[i]
		}
	}
}

// SetMaxReadBytes sets the approximate size of the entries that a request may read.
func SetMaxReadBytes(n int) (undo func()) {
	before := maxReadBytes
	maxReadBytes = n
	return func() { maxReadBytes = before }
}

// SetMaxPeerConns sets how many connections a client of a new service may have at the same time.
func SetMaxPeerConns(n int) (undo func()) {
	before := maxPeerConns
	maxPeerConns = n
	return func() { maxPeerConns = before }
}

// SetMaxPeerRequests sets how many requests a client of a new service may have at the same time.
func SetMaxPeerRequests(n int) (undo func()) {
	before := maxPeerRequests
	maxPeerRequests = n
	return func() { maxPeerRequests = before }
}

// SetMaxCatchUps sets how many listeners of a new service read old events at the same time.
func SetMaxCatchUps(n int) (undo func()) {
	before := maxCatchUps
	maxCatchUps = n
	return func() { maxCatchUps = before }
}

// SetMaxBodies sets how many bytes of bodies a new service keeps in memory at the same time.
func SetMaxBodies(n int) (undo func()) {
	before := maxBodies
	maxBodies = n
	return func() { maxBodies = before }
}

// SetMaxResponses sets how many bytes of entries the responses of a new service keep in memory.
func SetMaxResponses(n int) (undo func()) {
	before := maxResponses
	maxResponses = n
	return func() { maxResponses = before }
}

// SetSlotTimeout sets how long a request waits for a slot, or for bytes of responses.
func SetSlotTimeout(d time.Duration) (undo func()) {
	before := slotTimeout
	slotTimeout = d
	return func() { slotTimeout = before }
}

// SetStoreTimeout sets how long a request may wait for the store and for hashes.
func SetStoreTimeout(d time.Duration) (undo func()) {
	before := storeTimeout
	storeTimeout = d
	return func() { storeTimeout = before }
}

// SetReadTimeouts sets how long a client may take to send a header and a body.
func SetReadTimeouts(d time.Duration) (undo func()) {
	header, body := headerTimeout, bodyTimeout
	headerTimeout, bodyTimeout = d, d
	return func() { headerTimeout, bodyTimeout = header, body }
}

// SetResponseTimeout sets how long a response may take, from the end of the request's header on,
// and returns the previous value.
func SetResponseTimeout(d time.Duration) (before time.Duration) {
	before, responseTimeout = responseTimeout, d
	return before
}

// SetDrainTimeout sets how long requests may continue when the service shuts down, and returns the
// previous value.
func SetDrainTimeout(d time.Duration) (before time.Duration) {
	before, drainTimeout = drainTimeout, d
	return before
}

// SetAbortTimeout sets how long canceled requests have to end when the service shuts down.
func SetAbortTimeout(d time.Duration) (undo func()) {
	before := abortTimeout
	abortTimeout = d
	return func() { abortTimeout = before }
}

// SetPingInterval sets how long a stream may be silent.
func SetPingInterval(d time.Duration) (undo func()) {
	before := pingInterval
	pingInterval = d
	return func() { pingInterval = before }
}

// SetFeedInterval sets the time between two reads of a feed.
func SetFeedInterval(d time.Duration) (undo func()) {
	before := feedInterval
	feedInterval = d
	return func() { feedInterval = before }
}

// SetSchemaMaxAge sets how long a schema is trusted to be the stored one.
func SetSchemaMaxAge(d time.Duration) (undo func()) {
	before := schemaMaxAge
	schemaMaxAge = d
	return func() { schemaMaxAge = before }
}

// DecodeBody decodes a body as huma does before it checks it.
func DecodeBody(text []byte) (body any, err error) {
	err = strictJSON.Unmarshal(text, &body)
	return body, err
}

// ProblemOf returns the problem with which to respond to an error.
func ProblemOf(err error) *Problem { return problemOf(err) }

// ResponsesOf returns how many bytes of responses to the requests of a key are in memory.
func (s *Service) ResponsesOf(key string) int { return s.budgets.responses.usedBy(key) }

// SlotsOf returns how many slots the requests of a key have.
func (s *Service) SlotsOf(key string) int { return s.budgets.requests.usedBy(key) }

func (q *quota) usedBy(client string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.by[client]
}

// HoldResponse takes as much memory as a response to a key may take, until end is called.
func (s *Service) HoldResponse(key string) (end func()) {
	r := &response{quota: s.budgets.responses, client: key}
	if err := r.Reserve(context.Background()); err != nil {
		panic(err)
	}
	return r.release
}

// HoldCatchUp takes a slot of the listeners of a key that read old events, until end is called. It
// returns nil if there is none.
func (s *Service) HoldCatchUp(key string) (end func()) {
	end, _ = s.budgets.catchUps.takeSlot(key)
	return end
}
