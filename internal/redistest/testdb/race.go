//go:build race

package testdb

// RaceEnabled reports whether the race detector is on.
const RaceEnabled = true
