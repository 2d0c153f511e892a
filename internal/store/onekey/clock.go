package onekey

import (
	"sync/atomic"
	"time"
)

const (
	// maxTimeAge limits how long the time of a server is computed from its last reply. A step of
	// the server's clock goes unnoticed for that long.
	maxTimeAge = time.Second
	// maxClockStep limits how much the clock of this machine may have been set since the reply.
	maxClockStep = 50 * time.Millisecond
)

// A serverClock keeps a server's last reply to TIME, so that not every call has to ask. The zero
// serverClock has no reply. It may be used by several goroutines.
type serverClock struct {
	last atomic.Pointer[timeReply]
}

// A timeReply holds the time of a server, and the moment at which it was asked for, by the two
// clocks of this machine. The monotonic clock is never set, but it stops while the machine is
// suspended.
type timeReply struct{ server, monotonic, wall time.Time }

// set stores the server's reply to a command that was sent at a moment, unless c has a newer one.
func (c *serverClock) set(server, moment time.Time) {
	if last := c.last.Load(); last == nil || moment.After(last.monotonic) {
		c.last.Store(&timeReply{server: server, monotonic: moment, wall: moment.Round(0)})
	}
}

// replyFor returns the last reply, or nil if it cannot be used at a moment: it is too old or, since
// then, the clock of this machine was set or the machine was suspended.
func (c *serverClock) replyFor(moment time.Time) *timeReply {
	last := c.last.Load()
	if last == nil {
		return nil
	}
	age := moment.Sub(last.monotonic)
	step := moment.Round(0).Sub(last.wall) - age
	if age < 0 || age > maxTimeAge || step.Abs() > maxClockStep {
		return nil
	}
	return last
}

// at returns the server's time at a moment, or a time that is later by at most the time that the
// reply took.
func (r timeReply) at(moment time.Time) time.Time { return r.server.Add(moment.Sub(r.monotonic)) }
