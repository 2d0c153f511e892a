package transfer

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/schema"
)

// Columns of CSV that have a special meaning. Any other column holds the facet or the tertiary
// record of its name. A cell contains a set as a JSON array or as words separated by spaces, and a
// tertiary record of another kind as JSON.
const (
	columnType     = "~isa"             // the type, overriding ImportOptions.Type
	columnHash     = "password"         // a password hash
	columnClear    = "clear_password"   // a clear password
	columnChanged  = "password_changed" // a date
	columnDisabled = "disabled"         // a date, or true or false
	columnFlag     = "~disabled"        // true or false, as in the JSON of an entry
	columnEnabled  = "!disabled"        // true or false
	columnUntil    = "disabled_until"   // a date
	columnVerified = "verified:"        // before the name of a facet: true, false or a date
)

// Keys of a JSON line that no column of CSV has.
const (
	keyVerified = "verified" // a list of facets
	keyImported = "imported" // the mark of an imported password, or "" if it was not imported
)

// Columns that an import adds to rejected rows. They hold the line number of the row, the reason
// and, if the row could not be split into cells, its text.
const (
	columnLine   = "~line"
	columnReason = "~reason"
	columnText   = "~text"
)

// ignoredColumns occur in entries printed as JSON and in rejects. An import ignores them.
var ignoredColumns = []string{store.FieldPRK, store.FieldRev, columnLine, columnReason}

// specialColumns are neither facets nor tertiary records.
var specialColumns = []string{columnType, columnHash, columnClear, columnChanged, columnDisabled, columnFlag, columnEnabled, columnUntil}

// isSpecial reports whether a name is one of specialColumns or says that a facet is verified.
func isSpecial(name string) bool {
	return slices.Contains(specialColumns, name) || strings.HasPrefix(name, columnVerified)
}

// headerNames are all names that a header may have in addition to those of the schema.
var headerNames = slices.Concat(specialColumns, ignoredColumns, []string{columnText})

// A columnKind says what to do with the cells of a column.
type columnKind uint8

const (
	facetColumn   columnKind = iota // or a tertiary record
	specialColumn                   // see isSpecial
	ignoredColumn
	textColumn // columnText
)

func kindOf(name string) columnKind {
	switch {
	case name == "" || slices.Contains(ignoredColumns, name):
		return ignoredColumn
	case name == columnText:
		return textColumn
	case isSpecial(name):
		return specialColumn
	}
	return facetColumn
}

// csvRows reads an input of CSV with a header.
type csvRows struct {
	r             *csv.Reader
	input         rowText
	header        []string
	headerLines   []int64  // the lines on which the column names appear
	names         []string // the column names after mapping; empty for ignored columns
	kinds         []columnKind
	lines         int64 // lines of text read and removed from input
	size          int64 // size of those lines
	headerWritten bool  // the header of the rejects was written
}

// newCSVRows reads the header, which is at offset in the input.
func newCSVRows(in *bufio.Reader, offset int64, headerWritten bool) (*csvRows, error) {
	const tooLong = "a row of over 16 MiB: is a quote not closed?"
	s := &csvRows{input: rowText{r: in, offset: offset, tooLong: tooLong}, headerWritten: headerWritten}
	s.r = csv.NewReader(&s.input)
	s.r.FieldsPerRecord = -1
	header, err := s.r.Read()
	switch {
	case err == io.EOF:
		return s, nil
	case err != nil && s.input.err != nil:
		return nil, s.readError(s.input.err)
	case err != nil:
		return nil, fmt.Errorf("%w: the header: %w", ErrInput, err)
	}
	s.takeRow()
	for i, name := range header {
		at, _ := s.r.FieldPos(i)
		s.headerLines = append(s.headerLines, int64(at))
		if name == "" || slices.Contains(header[:i], name) {
			return nil, fmt.Errorf("%w: the header names %s twice, or has an empty name", ErrInput, records.Quoted(name))
		}
	}
	if len(header) == 1 && strings.ContainsAny(header[0], ";\t|") {
		return nil, fmt.Errorf("%w: the header is one column, %s: columns are separated by commas", ErrInput, records.Quoted(header[0]))
	}
	s.header = header
	return s, nil
}

// A rowText is a reader that keeps the text of the current row. A csv.Reader reads more of it only
// if the row continues. If reading fails in the middle of a row and the part before is malformed, a
// csv.Reader reports only the malformed part; a rowText keeps the read error.
type rowText struct {
	// r returns an error only after all data before the error. For that, its buffer must be larger
	// than that of the csv.Reader: otherwise reads would bypass the buffer and could return data
	// and an error together.
	r       *bufio.Reader
	offset  int64  // where r begins in the input, in bytes
	tooLong string // the message for a row that has not ended after maxImportLine
	text    bytes.Buffer
	err     error // never io.EOF
}

func (t *rowText) Read(p []byte) (int, error) {
	room := maxImportLine - t.text.Len()
	if room == 0 { // everything in the buffer belongs to one row, which may end here
		_, err := t.r.Peek(1)
		switch {
		case err == io.EOF:
			return 0, err
		case err == nil:
			err = fmt.Errorf("%w: %s", ErrInput, t.tooLong)
		}
		t.err = err
	}
	if t.err != nil {
		return 0, t.err
	}
	n, err := t.r.Read(p[:min(len(p), room)])
	t.text.Write(p[:n])
	if err != io.EOF {
		t.err = err
	}
	return n, err
}

// row returns the text of the row that was read last, until takeRow removes it.
func (s *csvRows) row() []byte { return s.input.text.Bytes()[:s.r.InputOffset()-s.size] }

// takeRow returns the row and removes it from the buffer.
func (s *csvRows) takeRow() string {
	row := string(s.input.text.Next(len(s.row())))
	s.size += int64(len(row))
	s.lines += int64(strings.Count(row, "\n"))
	return row
}

func (s *csvRows) next(l *line) (more bool, err error) {
	cells, err := s.r.Read()
	var bad *csv.ParseError
	switch {
	case err == io.EOF:
		return false, nil
	case err != nil && s.input.err != nil:
		return false, s.readError(s.input.err)
	case errors.As(err, &bad):
		if hasUnclosedQuote(s.row(), bad) {
			return false, s.readError(fmt.Errorf("%w: a quote that is not closed", ErrInput))
		}
		l.no, l.err = int64(bad.StartLine), bad.Err
	default:
		no, _ := s.r.FieldPos(0)
		l.no = int64(no)
	}
	l.cells, l.raw = cells, s.takeRow()
	l.size = int64(len(l.raw))
	if l.err == nil && len(cells) != len(s.header) {
		l.err = fmt.Errorf("%d cells, but the header has %d", len(cells), len(s.header))
	}
	if l.err != nil && s.lines > l.no {
		l.err = fmt.Errorf("%w, in a row that continues to line %d: is a quote not closed?", l.err, s.lines)
	}
	return true, nil
}

// readError returns the error for an input of which nothing more can be read.
func (s *csvRows) readError(err error) error {
	return &ReadError{Line: s.lines + 1, Offset: s.input.offset + s.size, Err: err}
}

// hasUnclosedQuote reports whether a row is malformed because a quote is not closed before the end
// of the input. Any other quote that the csv.Reader rejects is at the position that bad names.
func hasUnclosedQuote(text []byte, bad *csv.ParseError) bool {
	line := text[bytes.LastIndexByte(bytes.TrimSuffix(text, []byte("\n")), '\n')+1:]
	at := bad.Column - 1
	return bad.Err == csv.ErrQuote && (at >= len(line) || line[at] != '"')
}

func (s *csvRows) mayBeClear(*line) bool { return slices.Contains(s.names, columnClear) }

func (s *csvRows) parse(l *line, r *reading) error {
	for i, cell := range l.cells {
		if cell == "" {
			continue
		}
		switch name := s.names[i]; s.kinds[i] {
		case facetColumn:
			r.facets = append(r.facets, facet{name: s.header[i], text: cell, parse: schema.ParseText, field: name})
		case specialColumn:
			r.set(name, cell)
		case textColumn:
			return errors.New("the row could not be split into cells: fill in its cells and empty the column ~text")
		}
	}
	if len(r.facets)+len(r.own) == 0 { // spreadsheets write such rows after the last one
		return errors.New("all its cells are empty")
	}
	return nil
}

// cellContent parses a tertiary record in a cell: a set of words, or JSON.
func cellContent(name, kind, cell string) (change.Content, error) {
	cell = strings.TrimSpace(cell)
	if kind == "set" && !strings.HasPrefix(cell, "[") {
		return change.Content{Name: name, Kind: kind, Values: strings.Fields(cell)}, nil
	}
	if !json.Valid([]byte(cell)) {
		return change.Content{}, fmt.Errorf("tertiary record %s: not JSON", records.Quoted(name))
	}
	return tertiaryRecord{name: name, Kind: kind, Value: json.RawMessage(cell)}.content()
}

// reject writes a row with the columns of rejected rows. It leaves out those that an earlier import
// added.
func (s *csvRows) reject(w io.Writer, l *line) error {
	out := csv.NewWriter(w)
	if !s.headerWritten {
		// The error is returned by out.Error.
		_ = out.Write(append(s.strip(s.header), columnLine, columnReason, columnText))
		s.headerWritten = true
	}
	cells, text := l.cells, ""
	if len(cells) != len(s.header) {
		cells, text = make([]string, len(s.header)), strings.TrimRight(l.raw, "\r\n")
	}
	if i := slices.Index(s.header, columnText); i >= 0 && text == "" {
		text = cells[i]
	}
	_ = out.Write(append(s.strip(cells), strconv.FormatInt(l.no, 10), l.err.Error(), text))
	out.Flush()
	return out.Error()
}

func (s *csvRows) strip(cells []string) (kept []string) {
	for i, cell := range cells {
		if !slices.Contains([]string{columnLine, columnReason, columnText}, s.header[i]) {
			kept = append(kept, cell)
		}
	}
	return kept
}
