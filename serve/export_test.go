package serve

import "time"

// GoBy has a service judge keys by a clock of tests.
func (s *Service) GoBy(now func() time.Time) { s.ring.now = now }

// MostAtOnce sets how many requests services that are made from now on answer at a time.
func MostAtOnce(n int) (before int) {
	before, mostAtOnce = mostAtOnce, n
	return before
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
