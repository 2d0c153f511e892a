package serve

import (
	"context"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/coffeenode/userdb/userdb"
)

// FollowLate has a listener follow a feed that is too far ahead of it, and returns what it was sent until it is let go, or ctx ends.
func FollowLate(ctx context.Context) string {
	first := &feedPart{ready: make(chan struct{})}
	last := first
	for range mostBehind + 1 {
		last.next = &feedPart{number: last.number + 1, ready: make(chan struct{})}
		last.page = userdb.EventPage{Gap: true}
		close(last.ready)
		last = last.next
	}
	w := httptest.NewRecorder()
	l := &listener{c: &call{service: &Service{closing: make(chan struct{})}}, w: w, control: http.NewResponseController(w)}
	l.follow(ctx, &feed{last: last}, first)
	return w.Body.String()
}

// GoBy has a service judge keys by a clock of tests.
func (s *Service) GoBy(now func() time.Time) { s.ring.now = now }

// MostAtOnce sets how many requests of each kind services that are made from now on work on at a
// time.
func MostAtOnce(n int) (undo func()) {
	all := []*int{&mostAtOnce, &mostImports, &mostLookups, &mostVisitors}
	before := make([]int, len(all))
	for i, most := range all {
		before[i], *most = *most, n
	}
	return func() {
		for i, most := range all {
			*most = before[i]
		}
	}
}

// Hurry gives clients less time, until it is undone.
func Hurry(d time.Duration) (undo func()) {
	header, body := headerTime, bodyTime
	headerTime, bodyTime = d, d
	return func() { headerTime, bodyTime = header, body }
}

// AnswerTime sets how long an answer may take, from the header of its request on.
func AnswerTime(d time.Duration) (before time.Duration) {
	before, answerTime = answerTime, d
	return before
}

// DrainTime sets how long requests may go on when their service ends.
func DrainTime(d time.Duration) (before time.Duration) {
	before, drainTime = drainTime, d
	return before
}

// PingTime sets how long a stream says nothing at most.
func PingTime(d time.Duration) (undo func()) {
	before := pingTime
	pingTime = d
	return func() { pingTime = before }
}

// FeedTime sets how long it is between two readings of a feed.
func FeedTime(d time.Duration) (undo func()) {
	before := feedTime
	feedTime = d
	return func() { feedTime = before }
}

// SpaceAge sets how long a schema is believed to have no other types.
func SpaceAge(d time.Duration) (undo func()) {
	before := spaceAge
	spaceAge = d
	return func() { spaceAge = before }
}

// ProblemOf returns the problem that an error is answered with.
func ProblemOf(err error) *Problem { return problemOf(err) }
