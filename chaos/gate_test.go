//go:build linux

package chaos

import (
	"os"
	"strings"
)

// A promise is one that a run holds the store to.
type promise string

const (
	tagsAreReplaced  promise = "an acknowledged replace of tags has its effect"
	refusalsAreWhole promise = "a change that a server refuses half-way leaves nothing that anybody is shown"
	linesAreExact    promise = "every acknowledged change has one line, and nothing else has"
	feedGoesOn       promise = "a follower hears each event once, also when its position is gone"
	answersAreTrue   promise = "what is answered of sessions after a lost reply is so"
)

// broken are the promises that the store is known not to keep. A run leaves out what only they forbid, and what would break
// them; with USERDB_CHAOS_ALL it keeps all in whose text that occurs. Take a promise out of here when it is kept.
var broken = map[promise]bool{
	tagsAreReplaced:  true,
	refusalsAreWhole: true,
	linesAreExact:    true,
	feedGoesOn:       true,
	answersAreTrue:   true,
}

// holds reports whether a run looks for what breaks a promise.
func (p promise) holds() bool {
	text, is := os.LookupEnv("USERDB_CHAOS_ALL")
	return !broken[p] || is && strings.Contains(string(p), text)
}
