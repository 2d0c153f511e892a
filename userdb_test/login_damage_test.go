package userdb_test

import (
	"strings"
	"testing"

	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// brokenRecords are what may lie where logins look, as kinds of records and their contents.
var brokenRecords = []struct{ name, record, command string }{
	{"a secret that is a list", "secret", "RPUSH KEY x"},
	{"a secret that is a hash", "secret", "HSET KEY x y"},
	{"an empty secret", "secret", "SET KEY "},
	{"a short secret", "secret", "SET KEY abcd"},
	{"a secret that is garbage", "secret", "SET KEY " + strings.Repeat("zz", 32)},
	{"counters that are a string", "throttle", "SET KEY x"},
	{"counters that are a set", "throttle", "SADD KEY x"},
	{"counters without numbers", "throttle", "HSET KEY sn many"},
	{"counters that overflow", "throttle", "HSET KEY su 1e400"},
	{"a time that is none", "throttle", "HSET KEY o:x y"},
	{"failures that are none", "throttle", "HSET KEY n:x -1"},
	{"calls that are none", "throttle", "HSET KEY k xyz"},
}

// TestBrokenRecords: a login that cannot be judged names the record and what mends it, and nothing is hashed.
func TestBrokenRecords(t *testing.T) {
	for _, tt := range brokenRecords {
		t.Run(tt.name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *site) {
				g := newGate(s, gateOptions())
				g.add("alice", alicePassword)
				parts := []string{"secret"}
				if tt.record == "throttle" {
					parts = []string{"throttle", "user", "uid", "alice"}
				}
				key, err := recordkey.Own(parts...)
				must(t, err)
				words := strings.Split(strings.ReplaceAll(tt.command, "KEY", key.String()), " ")
				args := make([]any, len(words))
				for i, w := range words {
					args[i] = w
				}
				must(t, g.raw.Do(t.Context(), args...).Err())
				own, other := g.hashes(func() {
					wantErr(t, tt.name, g.in("alice", alicePassword, "home"), userdb.ErrCorrupt, key.String(), "'userdb check --repair'")
				})
				if own+other != 0 {
					t.Errorf("%d hashes were made", own+other)
				}
				must(t, g.raw.Del(t.Context(), key.String()).Err())
				must(t, g.in("alice", alicePassword, "home"))
			})
		})
	}
}
