package web

import (
	"testing"
	"time"

	"github.com/coffeenode/userdb/userdb"
)

// TestVerifiedAge checks that the age of a session is off by at most a minute, even if the clock
// here differs from the store's by an hour.
func TestVerifiedAge(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, 0, time.Hour} {
		store := time.Now().Add(skew)
		for _, age := range []time.Duration{0, 5 * time.Minute, 2 * time.Hour} {
			s := userdb.Session{Verified: store.Add(-age), LastSeen: store.Add(-30 * time.Second)}
			if got := verifiedAge(s, 1); got < age-time.Minute || got > age+time.Minute {
				t.Errorf("a clock that is off by %s: got the age %s, want about %s", skew, got, age)
			}
		}
	}
}

// TestVerifiedWithin checks that a visitor who is not signed in does not count as verified.
func TestVerifiedWithin(t *testing.T) {
	if VerifiedWithin(t.Context(), time.Hour) {
		t.Error("a visitor who is not signed in counts as verified")
	}
}
