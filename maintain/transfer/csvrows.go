package transfer

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/csvtext"
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
	keyVerified = "verified"      // a list of facets
	keyUnproven = "unproven"      // true or false
	keyFactors  = "factors"       // an object of second factors
	keySecond   = "second_factor" // true if the line leaves the second factors out
	keyValues   = "values"        // all values of fields that have several
	keyImported = "imported"      // the mark of an imported password, or "" if it was not imported
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

// headerNames lists the fixed names that a header may have in addition to those of the schema.
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

// csvOptions say how an input of CSV is written.
type csvOptions struct {
	delimiter     rune
	null          string // an unquoted cell that means no value, besides \N; may be empty
	sep           string // the line before the header that names the delimiter; may be empty
	offset        int64  // where the header begins in the input, in bytes
	headerWritten bool   // the header of the rejects was written
}

// csvRows reads an input of CSV with a header.
type csvRows struct {
	csvOptions
	r           *csv.Reader
	input       rowText
	header      []string // without the columns at its end that have no name
	headerLines []int64  // the lines on which the column names appear
	names       []string // the column names after mapping; empty for ignored columns
	kinds       []columnKind
	lines       int64  // lines of text read, including sep
	size        int64  // size of the lines removed from input
	rejects     bool   // the input is a file of refused rows, whose cells csvtext.Escape wrote
	bareLine    int64  // the line of the row read last, if the csv.Reader refused its quote; or 0
	guarded     string // the column of that row with a number after an apostrophe; or empty
}

// newCSVRows reads the header.
func newCSVRows(in *bufio.Reader, o csvOptions) (*csvRows, error) {
	const tooLong = "a row of over 16 MiB: is a quote not closed?"
	s := &csvRows{csvOptions: o, input: rowText{r: in, offset: o.offset, tooLong: tooLong, delimiter: []byte(string(o.delimiter))}}
	s.lines = s.skippedLines()
	s.r = csv.NewReader(&s.input)
	s.r.FieldsPerRecord, s.r.Comma = -1, o.delimiter
	header, err := s.read()
	switch {
	case err == io.EOF:
		return s, nil
	case err != nil && s.input.err != nil:
		return nil, s.readError(s.input.err)
	case err != nil:
		return nil, fmt.Errorf("%w: the header: %w", ErrInput, err)
	}
	if s.rejects = slices.Contains(header, columnReason); s.rejects {
		for i := range header {
			header[i], _ = csvtext.Unescape(header[i])
		}
	}
	s.takeRow()
	if o.delimiter != ' ' && o.delimiter != '\t' && len(header) > 1 && !slices.ContainsFunc(header[1:], hasNoLeadingSpace) {
		s.r.TrimLeadingSpace = true // each delimiter has a space after it
	}
	for i := range header {
		header[i] = strings.TrimSpace(header[i])
	}
	for len(header) > 0 && header[len(header)-1] == "" {
		header = header[:len(header)-1]
	}
	for i := range header {
		s.headerLines = append(s.headerLines, s.lineOf(i))
	}
	s.header = header
	if len(header) == 0 {
		return nil, fmt.Errorf("%w: the first line names no column", ErrInput)
	}
	return s, nil
}

func hasNoLeadingSpace(text string) bool { return !strings.HasPrefix(text, " ") }

// skippedLines returns the number of lines before the header that the csv.Reader does not see.
func (s *csvRows) skippedLines() int64 { return int64(strings.Count(s.sep, "\n")) }

// lineOf returns the line on which a cell of the row that was read last begins.
func (s *csvRows) lineOf(cell int) int64 {
	if s.bareLine > 0 {
		return s.bareLine
	}
	at, _ := s.r.FieldPos(cell)
	return int64(at) + s.skippedLines()
}

// read returns the cells of the next row. Cells without a value are empty.
func (s *csvRows) read() ([]string, error) {
	cells, err := s.r.Read()
	s.bareLine, s.guarded = 0, ""
	var bad *csv.ParseError
	isBare := errors.As(err, &bad) && bad.Err == csv.ErrBareQuote && s.input.err == nil
	if err != nil && !isBare {
		return cells, err
	}
	row, isQuoted := s.row(), func(int) bool { return false }
	if bytes.IndexByte(row, '"') >= 0 {
		split, problem := csvtext.Split(string(row), s.delimiter, s.r.TrimLeadingSpace)
		switch {
		case problem == csvtext.ErrOpen && isBare:
			// What follows would be read as rows, although it may belong to the cell.
			return nil, problem
		case problem != nil:
			return cells, err
		}
		cells = cells[:0]
		for _, c := range split {
			cells = append(cells, c.Text)
		}
		isQuoted = func(i int) bool { return split[i].Quoted }
	}
	if isBare {
		s.bareLine = int64(bad.StartLine) + s.skippedLines()
	}
	for i, cell := range cells {
		switch text, escaped := csvtext.Unescape(cell); {
		case s.meansNull(cell) && !isQuoted(i):
			cells[i] = ""
		case escaped && s.rejects:
			cells[i] = text
		case csvtext.IsGuardedNumber(cell) && i < len(s.names) && s.kinds[i] != ignoredColumn && s.names[i] != columnClear:
			s.guarded = s.names[i]
		default:
			cells[i] = csvtext.UnwrapText(cell)
		}
	}
	return cells, nil
}

// maxDelimiters is the maximum number of delimiters in a row of CSV, inside and outside quotes.
// Some more are accepted if the row ends soon after them.
const maxDelimiters = 500_000

// A rowText is a reader that keeps the text of the current row, and what was read after it. The
// csv.Reader calls Read again only if the row has not ended, so at a call all of the text belongs
// to that row. If reading fails in the middle of a row and the part before is malformed, a
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
	// delimiter separates the cells of a row, for each of which a csv.Reader takes some 40 bytes.
	// It is empty if the input is not CSV.
	delimiter  []byte
	delimiters int
}

func (t *rowText) Read(p []byte) (int, error) {
	room := maxImportLine - t.text.Len()
	switch { // everything in the buffer belongs to one row, which may end here
	case t.delimiters > maxDelimiters:
		t.err = cmp.Or(t.err, fmt.Errorf("%w: a row with over %d delimiters: is a quote not closed?", ErrInput, maxDelimiters))
	case room == 0:
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
	if len(t.delimiter) > 0 {
		t.delimiters += bytes.Count(p[:n], t.delimiter)
	}
	return n, err
}

// row returns the text of the row that was read last, until takeRow removes it.
func (s *csvRows) row() []byte { return s.input.text.Bytes()[:s.r.InputOffset()-s.size] }

// takeRow returns the row and removes it from the buffer.
func (s *csvRows) takeRow() string {
	row := string(s.input.text.Next(len(s.row())))
	s.input.delimiters -= strings.Count(row, string(s.delimiter))
	s.size += int64(len(row))
	s.lines += int64(strings.Count(row, "\n"))
	return row
}

func (s *csvRows) next(l *line) (more bool, err error) {
	cells, err := s.read()
	var bad *csv.ParseError
	switch {
	case err == io.EOF:
		return false, nil
	case err != nil && s.input.err != nil:
		return false, s.readError(s.input.err)
	case err == csvtext.ErrOpen:
		return false, s.readError(fmt.Errorf("%w: this row has a quote that is not closed, and one inside a cell without quotes: "+
			"put that cell in quotes, and double the one inside", ErrInput))
	case errors.As(err, &bad):
		if hasUnclosedQuote(s.row(), bad) {
			return false, s.readError(fmt.Errorf("%w: a quote that is not closed", ErrInput))
		}
		if bad.Err == csv.ErrQuote && bytes.Contains(s.row(), []byte(`\"`)) {
			return false, s.readError(fmt.Errorf("%w: a quote after a backslash, as MySQL writes it: "+
				"write the file with quotes doubled (FIELDS ESCAPED BY '\"')", ErrInput))
		}
		l.no, l.err = int64(bad.StartLine)+s.skippedLines(), quoteAdvice(bad.Err)
	default:
		l.no = s.lineOf(0)
		for len(cells) > len(s.header) && cells[len(cells)-1] == "" { // as spreadsheets add them
			cells = cells[:len(cells)-1]
		}
	}
	l.cells, l.raw = cells, s.takeRow()
	l.size = int64(len(l.raw))
	if l.err == nil && len(cells) != len(s.header) {
		l.err = fmt.Errorf("%d cells, but the header has %d", len(cells), len(s.header))
		l.cells = nil // reject writes the text of the row
	}
	if l.err == nil && s.guarded != "" {
		l.err = fmt.Errorf(`%s: a number after an apostrophe, which programs add for spreadsheets: remove the apostrophe, or write ="TEXT" if the text begins with it`,
			records.Quoted(s.guarded))
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

// quoteAdvice returns the error for a row with a quote at a place where CSV has none.
func quoteAdvice(err error) error {
	switch err {
	case csv.ErrBareQuote:
		return errors.New("a quote inside a cell without quotes: put the cell in quotes, and double the one inside")
	case csv.ErrQuote:
		return errors.New("a quote that is not doubled, inside a cell in quotes")
	}
	return err
}

// hasUnclosedQuote reports whether a row is malformed because a quote is not closed before the end
// of the input. Any other quote that the csv.Reader rejects is at the column of parseErr.
func hasUnclosedQuote(text []byte, parseErr *csv.ParseError) bool {
	line := text[bytes.LastIndexByte(bytes.TrimSuffix(text, []byte("\n")), '\n')+1:]
	at := parseErr.Column - 1
	return parseErr.Err == csv.ErrQuote && (at >= len(line) || line[at] != '"')
}

func (s *csvRows) mayHaveClearPassword(*line) bool { return slices.Contains(s.names, columnClear) }

func (s *csvRows) parse(l *line, r *reading) error {
	if !utf8.ValidString(l.raw) {
		return errors.New("not UTF-8: is the file in Latin-1 or another encoding? convert it to UTF-8")
	}
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
	return nil
}

// cellContent parses a tertiary record in a cell: a set of words, or JSON.
func cellContent(t *change.Type, name, kind, cell string) (change.Content, error) {
	cell = strings.TrimSpace(cell)
	if kind == "set" && !strings.HasPrefix(cell, "[") {
		var words []string
		for word := range strings.FieldsSeq(cell) {
			if len(words) == maxMembers {
				return change.Content{}, t.TooManyError(name)
			}
			words = append(words, word)
		}
		return change.Content{Name: name, Kind: kind, Values: words}, nil
	}
	if !json.Valid([]byte(cell)) {
		return change.Content{}, fmt.Errorf("tertiary record %s: not JSON", records.Quoted(name))
	}
	return tertiaryRecord{name: name, Kind: kind, Value: json.RawMessage(cell)}.contentFor(t)
}

// reject writes a row, followed by the columns of rejected rows. It leaves out the columns that an
// earlier import added, and escapes cells that a spreadsheet would run.
func (s *csvRows) reject(w io.Writer, l *line) error {
	write := func(cells []string) error {
		for i, cell := range cells {
			cells[i] = csvtext.Escape(cell)
		}
		return csvtext.Write(w, s.delimiter, cells, s.meansNull)
	}
	if !s.headerWritten {
		if _, err := io.WriteString(w, s.sep); err != nil {
			return err
		}
		if err := write(append(s.strip(s.header), columnLine, columnReason, columnText)); err != nil {
			return err
		}
		s.headerWritten = true
	}
	cells, text := l.cells, ""
	if len(cells) != len(s.header) {
		cells, text = make([]string, len(s.header)), strings.TrimRight(l.raw, "\r\n")
	}
	if i := slices.Index(s.header, columnText); i >= 0 && text == "" {
		text = cells[i]
	}
	return write(append(s.strip(cells), strconv.FormatInt(l.no, 10), l.err.Error(), text))
}

// meansNull reports whether a cell has no value unless it is in quotes.
func (s *csvRows) meansNull(cell string) bool {
	return cell == `\N` || cell == s.null && cell != ""
}

func (s *csvRows) strip(cells []string) (kept []string) {
	for i, cell := range cells {
		if !slices.Contains([]string{columnLine, columnReason, columnText}, s.header[i]) {
			kept = append(kept, cell)
		}
	}
	return kept
}
