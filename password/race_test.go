//go:build race

package password

// slow reports whether the race detector is on, with which hashing takes ten times as long.
const slow = true
