//go:build race

package store_test

// walks is less under the race detector, where each takes ten times as long.
const walks = 1000
