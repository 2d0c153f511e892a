//go:build race

package testdb

// Raced reports whether the race detector is on.
const Raced = true
