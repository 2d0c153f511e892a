package store

import (
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/recordkey"
)

// A Note holds the lines that a change adds to the history of its entry and to the feed. The format
// is described in onekey/scripts/history.lua. Without Lines it adds nothing.
type Note struct {
	// Each line is KIND WHO ORIGIN FIELDS PURPOSE. Each word is escaped, and no line is longer than
	// MaxLineLength.
	Lines []string
	// Now is the time of the lines; zero means the server's clock.
	Now time.Time
	// Call is the rev of the change. Each line ends with a mark that is derived from it, so that a
	// line that is sent twice is added once. If Call is "", the lines have no marks.
	Call string
	// Feed is the feed that the lines belong to, or FeedNone. If "", it is FeedChanges.
	Feed string
}

// MarkedLines returns the lines, each with its own mark.
func (n Note) MarkedLines() []string {
	if n.Call == "" {
		return n.Lines
	}
	all, end := make([]string, len(n.Lines)), ""
	if !n.InChanges() {
		end = otherFeedMark
	}
	for i, line := range n.Lines {
		all[i] = line + " " + n.Call[:markLen] + strconv.Itoa(i) + end
	}
	return all
}

const (
	// markLen is how much of a rev a mark contains. The line's number follows.
	markLen = 8

	// otherFeedMark ends the mark of a line that feed.lua does not copy to the feed of changes.
	otherFeedMark = "-"
)

// InChanges reports whether the lines belong to the feed of changes.
func (n Note) InChanges() bool { return n.Feed == "" || n.Feed == FeedChanges }

// LineTime returns the time at which a history line was written, in microseconds.
func LineTime(line string) (microseconds int64) {
	number, _, _ := strings.Cut(line, " ")
	n, _ := strconv.ParseInt(number, 10, 64) // a malformed line counts as old
	return n
}

// LineKind returns the kind of a history line.
func LineKind(line string) string {
	_, rest, _ := strings.Cut(line, " ") // the number
	kind, _, _ := strings.Cut(rest, " ")
	return kind
}

// EndsWithDelete reports whether the last line of a history says that its entry was deleted. The
// record of such a history expires within a day.
func EndsWithDelete(history string) bool {
	return LineKind(history[strings.LastIndexByte(history, '\n')+1:]) == "delete"
}

// LineID returns the text that identifies a history line: its mark or, if it has none, its first
// word, which is a time. It does the same as name_of in history.lua.
func LineID(line string) string {
	words := strings.Split(line, " ")
	if len(words) == lineWords+1 {
		return words[lineWords]
	}
	return words[0]
}

// lineWords is the number of words in a line without a mark.
const lineWords = 6

// StoredInEntry reports whether the note of a new entry is stored in the entry, as FieldNote, until
// more lines follow. This is so for a single line without an origin. With an origin, the entry
// would keep it for longer than histories are kept.
func (n Note) StoredInEntry() bool {
	if len(n.Lines) != 1 {
		return false
	}
	_, after, _ := strings.Cut(n.Lines[0], " ") // the kind
	_, origin, _ := strings.Cut(after, " ")
	return strings.HasPrefix(origin, "/ ")
}

// MayStayInEntry reports whether a FieldNote may stay in its entry until more lines follow: it is
// empty or satisfies StoredInEntry.
func MayStayInEntry(note string) bool {
	words := strings.Fields(note)
	return len(words) == 0 || len(words) == lineWords && words[1] == "create"
}

// MaxLineLength is the maximum length of a line in bytes.
const MaxLineLength = 1024

// Feeds of a namespace: streams of what has happened in it. Events that different people can cause
// are in different feeds, so that no number of them displaces those of others.
const (
	FeedChanges = "changes" // what histories contain, without sessions
	// FeedLogins holds what account holders repeat as often as they like: successful logins, and
	// beginnings and ends of sessions.
	FeedLogins = "logins"
	// FeedFailures holds events that anybody can cause without an account.
	FeedFailures  = "failures"
	FeedOperators = "operators" // what operators do, and what is done to them
	FeedGuesses   = "guesses"   // failed logins of operators, which anybody can cause

	FeedNone = "-" // stands for no feed
)

// FeedParts is the number of streams that make up a feed on a cluster. A single server writes only
// to the first.
const FeedParts = 16

// A FeedLimit limits the size of a feed and the age of its entries.
type FeedLimit struct {
	Entries, Bytes int64
	Life           time.Duration
}

// FeedLimits holds the limits of each feed. An embedded store, which is saved as a whole, keeps
// only EmbeddedEntries in each.
var FeedLimits = map[string]FeedLimit{
	FeedChanges:   {4 << 20, 256 << 20, 90 * 24 * time.Hour},
	FeedLogins:    {768 << 10, 48 << 20, 7 * 24 * time.Hour},
	FeedFailures:  {256 << 10, 16 << 20, 7 * 24 * time.Hour},
	FeedOperators: {256 << 10, 16 << 20, 90 * 24 * time.Hour},
	FeedGuesses:   {256 << 10, 16 << 20, 7 * 24 * time.Hour},
}

// EmbeddedEntries is the maximum number of entries in each feed of an embedded store.
const EmbeddedEntries = 2000

// HistoryKey returns the key of an entry's history, a text in the entry's slot.
func HistoryKey(prk recordkey.Key) (recordkey.Key, error) { return prk.Own("history") }

// FeedKey returns the key of one part of a feed.
func FeedKey(ns recordkey.Namespace, feed string, part int) (recordkey.Key, error) {
	at, err := feedSlot(ns, feed, part)
	if err != nil {
		return recordkey.Key{}, err
	}
	return at.Own("feed")
}

// FeedProgressKey returns the key of the record that says which lines of an entry were added last
// to a part of a feed. It lies in the slot of that part.
func FeedProgressKey(prk recordkey.Key, feed string, part int) (recordkey.Key, error) {
	at, err := feedSlot(prk.Namespace(), feed, part)
	if err != nil {
		return recordkey.Key{}, err
	}
	return at.Own("fed", prk.In(recordkey.Namespace{}).String())
}

// feedSlot returns a key that stands for one part of a feed. It is not the key of an entry. The
// records of the part have it between braces in their keys, which puts them into one slot.
func feedSlot(ns recordkey.Namespace, feed string, part int) (recordkey.Key, error) {
	at, err := recordkey.PRK("feed", feed, strconv.Itoa(part))
	return at.In(ns), err
}

// FeedPart returns the part of a cluster's feed that an entry belongs to.
func FeedPart(prk recordkey.Key) int {
	h := fnv.New32a()
	if prk.IsValid() {
		_, _ = h.Write([]byte(prk.In(recordkey.Namespace{}).String())) // Write never fails
	}
	return int(h.Sum32() % FeedParts)
}

// A Feed asks for lines after a position. After holds, for each part, the ID of the last line read,
// or "" to start at the beginning. With Reverse it asks for the lines before the position, newest
// first, and a part whose position is "" returns no lines.
type Feed struct {
	NS      recordkey.Namespace
	Name    string
	After   [FeedParts]string
	Reverse bool
	Count   int // approximate number of lines from each part
}

// A FeedLine is a line of a feed. The IDs of lines that were added together differ only in their
// last number.
type FeedLine struct {
	Part int
	ID   string // MILLISECONDS-NUMBER:LINE
	Text string // PRK LINE
}

// A FeedPage holds the lines that follow a position, in order within each part.
type FeedPage struct {
	Lines []FeedLine
	// Gap reports for each part whether the line at the position no longer exists. Lines after it
	// may have been lost as well.
	Gap [FeedParts]bool
	// At is where to continue in each part after a gap: the position of the last remaining line
	// that is not after the old position, or "" for the beginning.
	At [FeedParts]string
}
