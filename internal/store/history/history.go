// Package history owns the histories of entries and the feeds: their keys, scripts, lines and
// limits. It sends no commands.
//
// A history is a text beside its entry, in the entry's slot. It has one line for each event:
//
//	~/history/{PRK}    NUMBER KIND WHO ORIGIN FIELDS PURPOSE [MARK]
//
// NUMBER is the time in microseconds, and MARK identifies a line that is sent twice. FIELDS are
// names separated by slashes. Each word is escaped, and "/" stands for an empty one. The line of a
// create, and on a cluster also others, may wait in the entry's field ~note.
//
// A feed is a stream, on a cluster one for each of 16 parts. Each stream entry has lines about one
// entry, with a hyphen in place of NUMBER if that is the time of the stream entry:
//
//	~/feed/{feed/NAME:PART}      e: PRK LINE
//	~/fed/PRK/{feed/NAME:PART}   names of the lines of PRK that were added last
//
// history.lua describes how lines are written, and feed.lua how a cluster's feed follows histories.
package history

import (
	_ "embed"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/store/arg"
	"github.com/coffeenode/userdb/recordkey"
)

// Lua precedes every script that adds to a history or a feed. NoteLua adds lines to an entry's
// history, and FeedLineLua a line to a feed only. FeedLua copies to a cluster's feed those lines of
// a history that the feed lacks. TrimLua trims a feed.
var (
	//go:embed history.lua
	Lua string
	//go:embed note.lua
	NoteLua string
	//go:embed feedline.lua
	FeedLineLua string
	//go:embed feed.lua
	FeedLua string
	//go:embed trim.lua
	TrimLua string
)

// FieldNote is the field of an entry that holds lines of its history until the next ones are
// written.
const FieldNote = "~note"

// Life is how long histories keep an event.
const Life = 90 * 24 * time.Hour

// Key returns the key of an entry's history, a text in the entry's slot.
func Key(prk recordkey.Key) (recordkey.Key, error) { return prk.Own("history") }

// Letters that tell history.lua which keys it writes. These keys are the last of the script's KEYS.
const (
	InEntry  = "n" // none: the lines go into the entry
	InRecord = "r" // the record of the history
	InBoth   = "b" // the record of the history and the feed
	InFeed   = "f" // the feed
)

// A Note holds the lines that a change adds to the history of its entry and to the feed. The format
// is described in history.lua. Without Lines it adds nothing.
type Note struct {
	// Each line is a result of [Line.String].
	Lines []string
	// Now is the time of the lines; zero means the server's clock.
	Now time.Time
	// Call is the rev of the change. Each line ends with a mark that is derived from it, so that a
	// line that is sent twice is added once. If Call is "", the lines have no marks.
	Call string
	// Feed is the feed that the lines belong to, or FeedNone. If "", it is FeedChanges.
	Feed string
}

// markedLines returns the lines, each with its own mark.
func (n Note) markedLines() []string {
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
	// markLen is the number of characters of a rev with which a mark begins. The index of the line
	// in its note follows.
	markLen = 8

	// otherFeedMark ends the mark of a line that feed.lua does not copy to the feed of changes.
	otherFeedMark = "-"
)

// InChanges reports whether the lines belong to the feed of changes.
func (n Note) InChanges() bool { return n.Feed == "" || n.Feed == FeedChanges }

// StoredInEntry reports whether the note of a new entry is stored in the entry, as FieldNote, until
// more lines follow. This is so for a single line without an origin. An origin would stay in the
// entry for longer than histories are kept.
func (n Note) StoredInEntry() bool {
	if len(n.Lines) != 1 {
		return false
	}
	_, after, _ := strings.Cut(n.Lines[0], " ") // the kind
	_, origin, _ := strings.Cut(after, " ")
	return strings.HasPrefix(origin, "/ ")
}

// MayStayInEntry reports whether a FieldNote may stay in its entry until more lines follow: it is
// empty, or consists of the line of a create, without a mark.
func MayStayInEntry(note string) bool {
	words := strings.Fields(note)
	return len(words) == 0 || len(words) == lineWords && words[1] == "create"
}

// Args returns the last arguments of a script, as history.lua expects them. The parameter where is
// InEntry, InRecord, InBoth or InFeed; maxEntries is the maximum number of entries in the feed.
func (n Note) Args(where string, maxEntries int64, prk recordkey.Key) []string {
	about := "-"
	if prk.IsValid() {
		about = prk.In(recordkey.Namespace{}).String()
	}
	return []string{strconv.FormatInt(maxEntries, 10), about, strings.Join(n.markedLines(), "\n"), where + arg.Time(n.Now)}
}

// ResentArg is the index in the result of FeedLineArgs of the argument that says, if the line is
// sent again, how many milliseconds ago it was first sent.
const ResentArg = 1

// FeedLineArgs returns the arguments of feedline.lua.
func (n Note) FeedLineArgs(maxEntries int64, prk recordkey.Key) []string {
	last := n.markedLines()[len(n.Lines)-1]
	return append([]string{last[strings.LastIndexByte(last, ' ')+1:], ""}, n.Args(InFeed, maxEntries, prk)...)
}
