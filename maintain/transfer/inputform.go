package transfer

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"regexp"
)

// An inputForm is a form of input that has no name in ImportOptions.From.
type inputForm uint8

const (
	formLines inputForm = iota // JSON lines
	formList                   // a list of JSON objects, or objects of several lines each
	formCSV
)

// detectForm returns the form of an input, or an error if it is in another form than the options
// say. It reads nothing beyond what the buffer of in holds. The error quotes nothing of the input,
// which may hold secrets.
func detectForm(in *bufio.Reader, csv bool) (inputForm, error) {
	head, _ := in.Peek(max(1, in.Buffered())) // an error comes again when the input is read
	text := bytes.TrimLeft(head, " \t\r\n")
	first, rest, _ := bytes.Cut(text, []byte("\n"))
	first = bytes.TrimSpace(first)
	what := otherForm(text, first)
	switch {
	case len(text) == 0 && csv:
		return formCSV, nil
	case len(text) == 0:
		return formLines, nil
	case what != "":
		return 0, fmt.Errorf("%w: it looks like %s", ErrInput, what)
	case csv && jsonBegin.Match(text):
		return 0, fmt.Errorf("%w: it looks like JSON, not like CSV: import it as JSON, under a name that does not end in .csv", ErrInput)
	case csv && loneCR(head):
		return 0, fmt.Errorf("%w: its lines end with CR alone, as older programs on a Mac write them: save it with LF or CRLF at the ends of lines", ErrInput)
	case csv:
		return formCSV, nil
	case text[0] == '[', string(first) == "{":
		return formList, nil
	case text[0] == '{' || bytes.Contains(rest, []byte("\n{")) || bytes.HasPrefix(rest, []byte("{")):
		return formLines, nil
	}
	advice := "want one JSON object a line, or a list of them"
	switch {
	case passwordLine.Match(first):
		advice = "it looks like a password file: put a line such as name:password before the others, and import it as CSV with a colon as the delimiter (userdb import --delimiter :)"
	case bytes.ContainsAny(first, ",;\t|"):
		advice = "if it is CSV, import it as CSV (userdb import --csv)"
	}
	return 0, fmt.Errorf("%w: it is neither JSON lines nor a JSON list: %s", ErrInput, advice)
}

var (
	jsonBegin    = regexp.MustCompile(`^[{\[]\s*[{"\[\]}]`)
	passwordLine = regexp.MustCompile(`^[^\s:,;{\[]+:[^\s,;]+$`)
	phpMyAdmin   = regexp.MustCompile(`^\[\s*\{"type":"header"`)
	ldifLine     = regexp.MustCompile(`^(?:dn::? |version: \d|# extended LDIF)`)
	sqlLine      = regexp.MustCompile(`^(?:--( |$)|/\*!|SET |COPY \S+ .*FROM stdin|(?i:INSERT INTO |CREATE TABLE |BEGIN TRANSACTION|PRAGMA ))`)
)

// otherForm returns what an input looks like that is neither JSON nor CSV, and what to do about it,
// or "".
func otherForm(text, first []byte) string {
	switch {
	case bytes.HasPrefix(text, []byte("PK\x03\x04")):
		return "a spreadsheet or another archive: save the sheet as CSV"
	case bytes.HasPrefix(text, []byte("\x1f\x8b")):
		return "a compressed file: unpack it first"
	case bytes.HasPrefix(text, []byte("SQLite format 3")):
		return "an SQLite database: export the table with sqlite3 -header -csv"
	case bytes.HasPrefix(text, []byte("PGDMP")), sqlLine.Match(first):
		return "a dump of a database: export the table as CSV, such as with psql --csv"
	case ldifLine.Match(first):
		return "LDIF: write its entries as CSV or as JSON"
	case phpMyAdmin.Match(text):
		return "an export of phpMyAdmin: export the table as CSV, or take its list called data"
	case bytes.HasPrefix(text, []byte("<")):
		return "XML or HTML: export it as CSV or as JSON"
	case bytes.HasPrefix(text, []byte("%PDF")):
		return "a PDF file"
	}
	return ""
}

// loneCR reports whether the first line of a CSV ends with CR but not with CRLF.
func loneCR(head []byte) bool {
	quoted := false
	for i, c := range head {
		switch {
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '\n':
			return false
		case c == '\r' && i+1 < len(head):
			return head[i+1] != '\n'
		}
	}
	return false
}

// sepLine matches the line that spreadsheets write before the header to name the delimiter.
var sepLine = regexp.MustCompile(`^(?i:"?sep=)([^"\r\n])"?\r?\n`)

// cutSepLine reads that line, if there is one, and returns it with the delimiter in it.
func cutSepLine(in *bufio.Reader) (text string, delimiter rune) {
	head, _ := in.Peek(min(16, in.Buffered()))
	m := sepLine.FindSubmatch(head)
	if m == nil {
		return "", 0
	}
	text = string(m[0])
	_, _ = in.Discard(len(text)) // cannot fail: the bytes are buffered
	return text, rune(m[1][0])
}

// A jsonList reads an input whose objects are what lines hold in JSON lines: a list of them, the
// list "users" of an object, or objects of several lines each.
type jsonList struct {
	*productUsers
	lines *jsonLines
}

func (s jsonList) mayBeClear(l *line) bool { return s.lines.mayBeClear(l) }

func (s jsonList) parse(l *line, r *reading) error { return s.lines.parse(l, r) }

func (s jsonList) reject(w io.Writer, l *line) error { return s.productUsers.reject(w, l) }
