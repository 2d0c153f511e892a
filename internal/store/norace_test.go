//go:build !race

package store_test

const walks = 10_000
