package onekey

import (
	"testing"
	"time"
)

// TestServerClock checks which time a serverClock derives from an earlier reply of the server, and
// when the server has to be asked again.
func TestServerClock(t *testing.T) {
	received, server := time.Now(), time.Unix(1, 0)
	var c serverClock
	if c.replyFor(received) != nil {
		t.Error("a clock without a reply returns one")
	}
	c.set(server, received)
	for age, asks := range map[time.Duration]bool{0: false, maxTimeAge: false, maxTimeAge + 1: true, -1: true} {
		moment := received.Add(age)
		r := c.replyFor(moment)
		if (r == nil) != asks {
			t.Errorf("after %v the server is asked: %v, want %v", age, r == nil, asks)
		}
		if r != nil && !r.at(moment).Equal(server.Add(age)) {
			t.Errorf("after %v the server's time is %v, want %v", age, r.at(moment), server.Add(age))
		}
	}
	for _, step := range []time.Duration{-time.Minute, time.Minute} {
		c.last.Store(&timeReply{server: server, monotonic: received, wall: received.Round(0).Add(-step)})
		if c.replyFor(received) != nil {
			t.Errorf("the server is not asked after the clock was set by %v", step)
		}
	}
}
