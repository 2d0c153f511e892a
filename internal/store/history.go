package store

import (
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/recordkey"
)

// A Note is what a change leaves in the history of its entry, and in the feed: see scripts/history.lua. Without Lines it leaves nothing.
type Note struct {
	Lines []string  // KIND WHO ORIGIN FIELDS PURPOSE, each of them escaped, and no longer than LongestLine
	Now   time.Time // zero: the server's clock
	Call  string    // the rev of what is noted, from which each line has a mark; "": they have none
}

// Marked returns the lines, each with a mark of its own.
func (n Note) Marked() []string {
	if n.Call == "" {
		return n.Lines
	}
	all := make([]string, len(n.Lines))
	for i, line := range n.Lines {
		all[i] = line + " " + n.Call[:markLen] + strconv.Itoa(i)
	}
	return all
}

// markLen is how much of a rev a mark has: it tells apart a hundred lines.
const markLen = 8

// LineTime is when a line of a history was noted, in microseconds.
func LineTime(line string) (microseconds int64) {
	number, _, _ := strings.Cut(line, " ")
	n, _ := strconv.ParseInt(number, 10, 64) // a line of another form is old
	return n
}

// LineName returns what a line of a history is known by, as history.lua has it: its mark, or its number.
func LineName(line string) string {
	words := strings.Split(line, " ")
	if len(words) == lineWords+1 {
		return words[lineWords]
	}
	return words[0]
}

const lineWords = 6

// InEntry reports whether what is noted of a new entry lies in it until more follows, as FieldNote: one line, without an address, which
// would stay for longer than histories do.
func (n Note) InEntry() bool {
	if len(n.Lines) != 1 {
		return false
	}
	_, after, _ := strings.Cut(n.Lines[0], " ") // the kind
	_, origin, _ := strings.Cut(after, " ")
	return strings.HasPrefix(origin, "/ ")
}

// Settled reports whether what lies in an entry as FieldNote may stay there until more follows: nothing, or what InEntry says.
func Settled(note string) bool {
	words := strings.Fields(note)
	return len(words) == 0 || len(words) == lineWords && words[1] == "create"
}

// LongestLine is how many bytes a line has.
const LongestLine = 1024

// Feeds are the streams of what has happened in a namespace.
const (
	FeedChanges  = "changes"  // all that histories have
	FeedLogins   = "logins"   // good logins, apart, so that a flood of them pushes no change out
	FeedFailures = "failures" // what anybody can make without an account, which pushes nothing else out
)

// FeedParts is in how many streams a feed lies on a cluster. One server writes into the first.
const FeedParts = 16

// A FeedLimit is how much a feed has at most.
type FeedLimit struct {
	Entries, Bytes int64
	Life           time.Duration
}

// FeedLimits are those of each feed. An embedded store, which is saved whole, has EmbeddedEntries of each.
var FeedLimits = map[string]FeedLimit{
	FeedChanges:  {4 << 20, 256 << 20, 90 * 24 * time.Hour},
	FeedLogins:   {768 << 10, 48 << 20, 7 * 24 * time.Hour},
	FeedFailures: {256 << 10, 16 << 20, 7 * 24 * time.Hour},
}

// EmbeddedEntries is how many entries each feed of an embedded store has.
const EmbeddedEntries = 2000

// HistoryKey is where the history of an entry lies: a text in its slot.
func HistoryKey(prk recordkey.Key) (recordkey.Key, error) { return prk.Own("history") }

// FeedKey is where a part of a feed lies.
func FeedKey(ns recordkey.Namespace, feed string, part int) (recordkey.Key, error) {
	at, err := feedAt(ns, feed, part)
	if err != nil {
		return recordkey.Key{}, err
	}
	return at.Own("feed")
}

// FedKey is where it lies, in the slot of its part of the feed, which line of an entry came into it last.
func FedKey(prk recordkey.Key, feed string, part int) (recordkey.Key, error) {
	at, err := feedAt(prk.Namespace(), feed, part)
	if err != nil {
		return recordkey.Key{}, err
	}
	return at.Own("fed", prk.In(recordkey.Namespace{}).String())
}

// feedAt is no entry: what stands between the braces of a key decides its slot.
func feedAt(ns recordkey.Namespace, feed string, part int) (recordkey.Key, error) {
	at, err := recordkey.PRK("feed", feed, strconv.Itoa(part))
	return at.In(ns), err
}

// FeedPart is the part of a cluster's feed in which an entry stands.
func FeedPart(prk recordkey.Key) int {
	h := fnv.New32a()
	if prk.IsValid() {
		_, _ = h.Write([]byte(prk.In(recordkey.Namespace{}).String())) // never fails, says its documentation
	}
	return int(h.Sum32() % FeedParts)
}

// A Feed is read from a position on: of each part the ID of what was read last, "" from the beginning. With Reverse it is what comes
// before that, the newest first, and "" is nothing.
type Feed struct {
	NS      recordkey.Namespace
	Name    string
	After   [FeedParts]string
	Reverse bool
	Count   int // about so many of each part
}

// A Fed is a line of a feed. Those that came at once have one ID but for its last number.
type Fed struct {
	Part int
	ID   string // MILLISECONDS-NUMBER:LINE
	Text string // PRK LINE
}

// A FeedPage is what follows a position, in the order of each part.
type FeedPage struct {
	Fed []Fed
	Gap [FeedParts]bool   // what the position names is there no longer, and perhaps other entries after it
	At  [FeedParts]string // where it goes on after a gap: the greatest position not above that one, "" at the beginning
}
