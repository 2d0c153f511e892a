//go:build race

package userdb_test

// raced says that the race detector is on, under which a hash takes ten times as long.
const raced = true
