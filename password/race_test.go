//go:build race

package password

// slow reports whether the race detector slows hashing down by a factor of ten.
const slow = true
