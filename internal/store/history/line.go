package history

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/recordkey"
)

// A Line describes an event in a history.
type Line struct {
	Time        time.Time // set by the script that writes the line
	Kind        string
	Who, Origin string
	Fields      []string // names; the last is "…" if there was no room for more
	Purpose     string
}

// Limits on the length of words of a history line, in bytes.
const (
	maxWho        = 80
	maxOriginWord = 80 // also for the purpose
	maxFields     = 500
)

// emptyWord stands for an empty word. No other word is escaped to it.
const emptyWord = "/"

// String returns the line without its time: KIND WHO ORIGIN FIELDS PURPOSE.
func (l Line) String() string {
	return strings.Join([]string{l.Kind, escapeWord(l.Who, maxWho), escapeWord(l.Origin, maxOriginWord), joinFields(l.Fields), escapeWord(l.Purpose, maxOriginWord)}, " ")
}

// ParseLine parses a line of a history. It returns false if the text has too few words.
func ParseLine(text string) (l Line, ok bool) {
	words := strings.Split(text, " ")
	if len(words) < lineWords {
		return l, false
	}
	l = Line{
		Time: time.UnixMicro(lineTime(text)), Kind: words[1], Who: unescapeWord(words[2]),
		Origin: unescapeWord(words[3]), Purpose: unescapeWord(words[5]),
	}
	for name := range strings.SplitSeq(words[4], "/") {
		if name != "" {
			l.Fields = append(l.Fields, unescapeWord(name))
		}
	}
	return l, true
}

func escapeWord(text string, most int) string {
	if text == "" {
		return emptyWord
	}
	return recordkey.Escape(strings.ToValidUTF8(text[:min(len(text), most)], ""))
}

// joinFields returns names with slashes between them, which escaped names do not contain. If the
// list would be too long, it ends with … after the names that fit.
func joinFields(fields []string) string {
	var b strings.Builder
	for i, f := range fields {
		if i > 0 {
			b.WriteByte('/')
		}
		f = recordkey.Escape(f)
		if b.Len()+len(f) > maxFields {
			b.WriteString("…")
			break
		}
		b.WriteString(f)
	}
	if b.Len() == 0 {
		return emptyWord
	}
	return b.String()
}

func unescapeWord(escaped string) string {
	text, err := recordkey.Unescape(escaped)
	if err != nil { // the word is "/", which stands for ""
		return ""
	}
	return text
}

// lineTime returns the time at which a history line was written, in microseconds.
func lineTime(line string) (microseconds int64) {
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

// Lines returns the lines of a record and those that wait in the entry, in order. Lines that wait
// are newer. A line that is in both places is returned once.
func Lines(record, waiting string) []string {
	has := map[string]bool{}
	return slices.DeleteFunc(strings.FieldsFunc(record+"\n"+waiting, func(r rune) bool { return r == '\n' }), func(line string) bool {
		name := LineID(line)
		defer func() { has[name] = true }()
		return has[name]
	})
}

// OfLatest returns the lines about the latest entry with a key. They begin with the last create. If
// a delete follows it, they begin after that delete, because the program that created the entry
// again may have written no line.
func OfLatest(lines []string) []string {
	for i, line := range slices.Backward(lines) {
		switch LineKind(line) {
		case "create":
			return lines[i:]
		case "delete":
			return lines[i+1:]
		}
	}
	return lines
}
