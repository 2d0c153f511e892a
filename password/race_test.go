//go:build race

package password

// slow is whether the race detector makes hashes ten times slower.
const slow = true
