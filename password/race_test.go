//go:build race

package password

// slow reports whether the race detector is on, which makes hashing take ten times as long.
const slow = true
