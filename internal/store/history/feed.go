package history

import (
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/store/arg"
	"github.com/coffeenode/userdb/recordkey"
)

// Feeds of a namespace: streams of its events. Events that different groups of people can cause are
// in different feeds, so that no group displaces the events of another.
const (
	FeedChanges = "changes" // the events of histories, without sessions
	// FeedLogins holds events that account holders can repeat without limit: successful logins, and
	// starts and ends of sessions.
	FeedLogins = "logins"
	// FeedFailures holds events that anybody can cause without an account.
	FeedFailures  = "failures"
	FeedOperators = "operators" // actions of operators and on operators
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

// FeedLimits holds the limits of each feed. An embedded store, all of which is in memory, keeps
// only EmbeddedEntries in each.
var FeedLimits = map[string]FeedLimit{
	FeedChanges:   {4 << 20, 256 << 20, Life},
	FeedLogins:    {768 << 10, 48 << 20, 7 * 24 * time.Hour},
	FeedFailures:  {256 << 10, 16 << 20, 7 * 24 * time.Hour},
	FeedOperators: {256 << 10, 16 << 20, 90 * 24 * time.Hour},
	FeedGuesses:   {256 << 10, 16 << 20, 7 * 24 * time.Hour},
}

// EmbeddedEntries is the maximum number of entries in each feed of an embedded store.
const EmbeddedEntries = 2000

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

// PartsOf returns the parts of a feed that may have events of an entry: the part to which a cluster
// adds them, and, because records may have been moved, the one to which a single server adds them.
// For the zero key it returns all parts.
func PartsOf(prk recordkey.Key) []int {
	parts := make([]int, 0, FeedParts)
	for part := range FeedParts {
		if !prk.IsValid() || part == 0 || part == FeedPart(prk) {
			parts = append(parts, part)
		}
	}
	return parts
}

// FeedPart returns the part of a feed to which a cluster adds the events of an entry.
func FeedPart(prk recordkey.Key) int {
	h := fnv.New32a()
	if prk.IsValid() {
		_, _ = h.Write([]byte(prk.In(recordkey.Namespace{}).String())) // Write never fails
	}
	return int(h.Sum32() % FeedParts)
}

// A Feed asks for lines of some parts of a feed after a position. After holds, for each part, the
// ID of the last line read, or "" to start at the beginning. With Reverse it asks for the lines
// before the position, newest first, and a part whose position is "" returns no lines.
type Feed struct {
	NS      recordkey.Namespace
	Name    string
	Parts   []int
	After   [FeedParts]string
	Reverse bool
	Count   int // approximate number from each part; lines that were added together count once
}

// A FeedLine is a line of a feed. The IDs of lines that were added together differ only in their
// last number.
type FeedLine struct {
	Part int
	ID   string // MILLISECONDS-NUMBER:LINE
	Text string // the PRK of the entry, a space and the event; see Parse
}

// A FeedPage holds the lines that a Feed asked for, in the requested order within each part.
type FeedPage struct {
	Lines []FeedLine
	// Gap reports for each part whether the line at the position no longer exists. Lines after it
	// may have been lost as well. With Reverse, no gap is reported.
	Gap [FeedParts]bool
	// At is where to continue in each part after a gap: the position of the last remaining line
	// that is not after the old position, or "" for the beginning.
	At [FeedParts]string
}

// TrimArgs returns the arguments of trim.lua.
func (l FeedLimit) TrimArgs() []string {
	return []string{strconv.FormatInt(l.Bytes, 10), arg.Millis(l.Life)}
}

// Parse returns the key of the entry that a line is about, which is zero if there is none, and the
// event that it describes.
func (f FeedLine) Parse() (prk recordkey.Key, l Line, ok bool) {
	about, text, _ := strings.Cut(f.Text, " ")
	if key, err := recordkey.Parse(about); err == nil {
		prk = key
	}
	l, ok = ParseLine(text)
	return prk, l, ok
}

// ParseID parses the ID of a feed line. n combines its NUMBER and LINE.
func ParseID(id string) (ms, n uint64, ok bool) {
	first, rest, _ := strings.Cut(id, "-")
	second, third, _ := strings.Cut(rest, ":")
	ms, err1 := strconv.ParseUint(first, 10, 64)
	number, err2 := strconv.ParseUint(second, 10, 32)
	line, err3 := strconv.ParseUint(third, 10, 16)
	return ms, number<<16 + line, err1 == nil && err2 == nil && err3 == nil
}

// A StreamEntry is an entry of the stream of a feed. It holds lines that were added together.
type StreamEntry struct{ ID, Text string }

func (e StreamEntry) lines() []string { return strings.Split(e.Text, "\n") }

// Position returns the position after the entry.
func (e StreamEntry) Position() string { return e.ID + ":" + strconv.Itoa(len(e.lines())) }

// SplitPosition returns the ID of a stream entry and the number of a line in it, from 1.
func SplitPosition(position string) (id string, line int) {
	id, number, _ := strings.Cut(position, ":")
	line, _ = strconv.Atoi(number) // this package wrote the number
	return id, line
}

// LinesAfter returns the lines after a position. found holds the stream entries from the position
// on. gap reports whether the entry at the position no longer exists.
func LinesAfter(part int, found []StreamEntry, position string) (all []FeedLine, gap bool) {
	id, read := SplitPosition(position)
	for i, e := range found {
		texts := e.lines()
		if i == 0 && e.ID == id {
			texts = texts[min(read, len(texts)):]
		}
		all = append(all, e.feedLines(part, texts)...)
	}
	return all, id != "" && (len(found) == 0 || found[0].ID != id)
}

// LinesBefore returns the lines before a position, newest first. found holds the stream entries up
// to the position, newest first.
func LinesBefore(part int, found []StreamEntry, position string) (all []FeedLine) {
	id, line := SplitPosition(position)
	for _, e := range found {
		lines := e.feedLines(part, e.lines())
		if e.ID == id {
			lines = lines[:min(max(line-1, 0), len(lines))]
		}
		slices.Reverse(lines)
		all = append(all, lines...)
	}
	return all
}

// feedLines returns lines of the stream entry as lines of a feed. texts holds all lines of the
// stream entry, or only the last ones. A line without a number gets one. history.lua gives the line
// the same number in the history of its entry, unless the history already has a line with that
// number or a higher one.
func (e StreamEntry) feedLines(part int, texts []string) []FeedLine {
	ms, n, _ := ParseID(e.ID + ":0")
	added, skipped := ms*1000+n>>16%1000, len(e.lines())-len(texts)
	fed := make([]FeedLine, len(texts))
	for i, line := range texts {
		about, event, _ := strings.Cut(line, " ")
		if rest, unnumbered := strings.CutPrefix(event, "- "); unnumbered {
			line = about + " " + strconv.FormatUint(added+uint64(skipped+i), 10) + " " + rest
		}
		fed[i] = FeedLine{Part: part, ID: e.ID + ":" + strconv.Itoa(skipped+i+1), Text: line}
	}
	return fed
}
