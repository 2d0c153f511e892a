package cluster

import (
	"errors"
	"testing"

	"github.com/coffeenode/userdb/internal/store"
)

// TestLocate goes on with listings whose masters are still there, have been replaced, or have become fewer.
func TestLocate(t *testing.T) {
	a, b, c := master{addr: "10.0.0.1:7000"}, master{addr: "10.0.0.2:7000"}, master{addr: "host-c:7000"}
	for _, tt := range []struct {
		name    string
		masters []master
		cursor  string
		i       int
		at      uint64
		err     error
	}{
		{"the beginning", []master{a, b}, "", 0, 0, nil},
		{"a master that is there", []master{a, b, c}, b.cursor(1, 42), 1, 42, nil},
		{"a name with dashes", []master{a, b, c}, c.cursor(2, 7), 2, 7, nil},
		{"moved up, since another is gone", []master{b, c}, c.cursor(1, 7), 1, 7, nil},
		{"replaced: its shard from the beginning", []master{a, c}, b.cursor(1, 42), 1, 0, nil},
		{"fewer than there were", []master{a}, c.cursor(2, 7), 0, 0, nil},
		{"no cursor", []master{a}, "x", 0, 0, store.ErrCursor},
		{"no number of a master", []master{a}, "x-10_0_0_1:7000-1", 0, 0, store.ErrCursor},
		{"no place", []master{a}, "0-10_0_0_1:7000-x", 0, 0, store.ErrCursor},
		{"a place below zero", []master{a}, "0-10_0_0_1:7000--1", 0, 0, store.ErrCursor},
		{"a master below zero", []master{a}, "-1-10_0_0_1:7000-1", 0, 0, store.ErrCursor},
	} {
		i, at, err := locate(tt.masters, tt.cursor)
		if i != tt.i || at != tt.at || !errors.Is(err, tt.err) {
			t.Errorf("%s: got %d, %d, %v, want %d, %d, %v", tt.name, i, at, err, tt.i, tt.at, tt.err)
		}
	}
}
