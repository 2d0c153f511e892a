package cluster

import (
	"context"
	"testing"
	"time"
)

// TestLinger: together the waits are longer than a writer may take for the steps of a change, and not much.
func TestLinger(t *testing.T) {
	var waited time.Duration
	e := &Engine{sleep: func(_ context.Context, d time.Duration) error { waited += d; return nil }}
	looks := 0
	for {
		more, err := e.Linger(t.Context(), looks)
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			break
		}
		looks++
	}
	if waited <= burialTime || waited > burialTime+5*time.Second || looks < 8 {
		t.Errorf("%d looks in %v, want some more than %v", looks, waited, burialTime)
	}
}
