package transfer

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/schema"
)

// csvRows is an input of CSV with a header. Columns are facets by their names, sets among the tertiary
// records (a JSON array, or words), and these:
const (
	columnType     = "~isa"             // the type, instead of ImportOptions.Type
	columnHash     = "password"         // a hash
	columnClear    = "clear_password"   // a clear password
	columnChanged  = "password_changed" // a date
	columnDisabled = "disabled"         // a date
	columnFlag     = "~disabled"        // true or false, as an entry in JSON has it
)

// passedOver are columns of entries in JSON and of rejects, that say nothing to an import.
var passedOver = []string{store.FieldPRK, store.FieldRev, columnLine, columnReason}

type csvRows struct {
	r      *csv.Reader
	kept   *keeper
	kind   string
	header []string
	lines  int64 // of text, that were read and cut off
}

// newCSVRows reads the header.
func newCSVRows(in io.Reader, kind string) (*csvRows, error) {
	kept := &keeper{r: in}
	s := &csvRows{r: csv.NewReader(kept), kept: kept, kind: kind}
	s.r.FieldsPerRecord = -1
	header, err := s.r.Read()
	switch {
	case err == io.EOF:
		return s, nil
	case err != nil && kept.err != nil:
		return nil, s.unread(kept.err)
	case err != nil:
		return nil, fmt.Errorf("%w: the header: %w", ErrInput, err)
	}
	s.cut()
	header[0] = strings.TrimPrefix(header[0], "\ufeff") // as spreadsheets write it
	for i, name := range header {
		if name == "" || slices.Contains(header[:i], name) {
			return nil, fmt.Errorf("%w: the header names %s twice, or has an empty name", ErrInput, records.Quoted(name))
		}
		if strings.HasPrefix(name, "~") && name != columnType && name != columnFlag && name != columnText && !slices.Contains(passedOver, name) {
			return nil, fmt.Errorf("%w: the header names %s, which is no facet", ErrInput, records.Quoted(name))
		}
	}
	if len(header) == 1 && strings.ContainsAny(header[0], ";\t|") {
		return nil, fmt.Errorf("%w: the header is one column, %s: columns are separated by commas", ErrInput, records.Quoted(header[0]))
	}
	s.header = header
	return s, nil
}

// A keeper keeps what was read and not cut off yet: the text of a row. A csv.Reader forgets an error behind half a
// row that is wrong in itself; a keeper does not.
type keeper struct {
	r    io.Reader
	from int64
	text []byte
	err  error // other than io.EOF
}

func (k *keeper) Read(p []byte) (int, error) {
	if k.err == nil && len(k.text) > maxImportLine {
		k.err = fmt.Errorf("%w: a row of over 16 MiB: is there a quote that does not end?", ErrInput)
	}
	if k.err != nil {
		return 0, k.err
	}
	n, err := k.r.Read(p)
	k.text = append(k.text, p[:n]...)
	if err != io.EOF {
		k.err = err
	}
	return n, err
}

// all reports whether a row reaches up to where reading failed, so that it may be but half of one.
func (k *keeper) all(to int64) bool { return k.err != nil && to >= k.from+int64(len(k.text)) }

// row is the text up to an offset.
func (k *keeper) row(to int64) []byte { return k.text[:min(int(to-k.from), len(k.text))] }

// cut returns the text up to an offset, and keeps it no longer.
func (k *keeper) cut(to int64) string {
	row := string(k.row(to))
	k.text = append(k.text[:0], k.text[len(row):]...)
	k.from = to
	return row
}

func (s *csvRows) next(l *line) (more bool, err error) {
	cells, err := s.r.Read()
	var bad *csv.ParseError
	switch {
	case err == io.EOF:
		return false, nil
	case err != nil && s.kept.all(s.r.InputOffset()):
		return false, s.unread(s.kept.err)
	case errors.As(err, &bad):
		if unclosed(s.kept.row(s.r.InputOffset()), bad) {
			return false, s.unread(errUnclosed)
		}
		l.no, l.err = int64(bad.StartLine), bad.Err
	case err != nil:
		return false, s.unread(err)
	default:
		no, _ := s.r.FieldPos(0)
		l.no = int64(no)
	}
	l.cells, l.raw = cells, s.cut()
	l.size = int64(len(l.raw))
	if l.err == nil && len(cells) != len(s.header) {
		l.err = fmt.Errorf("%d cells, and the header has %d", len(cells), len(s.header))
	}
	if l.err != nil && s.lines > l.no {
		l.err = fmt.Errorf("%w, in a row that goes on to line %d: is there a quote that does not end?", l.err, s.lines)
	}
	return true, nil
}

// cut returns the text of the row that was read last.
func (s *csvRows) cut() string {
	row := s.kept.cut(s.r.InputOffset())
	s.lines += int64(strings.Count(row, "\n"))
	return row
}

// unread is the error of an input of which nothing more can be read.
func (s *csvRows) unread(err error) error {
	return &ReadError{Line: s.lines + 1, Offset: s.kept.from, Err: err}
}

var errUnclosed = fmt.Errorf("%w: a quote that does not end", ErrInput)

// unclosed reports whether what is wrong with the text of a row is a quote that nothing closes, up to the end of the
// input: a quote in the wrong place stands where the csv.Reader says.
func unclosed(text []byte, bad *csv.ParseError) bool {
	line := text[bytes.LastIndexByte(bytes.TrimSuffix(text, []byte("\n")), '\n')+1:]
	at := bad.Column - 1
	return bad.Err == csv.ErrQuote && (at >= len(line) || line[at] != '"')
}

func (s *csvRows) mayBeClear(*line) bool { return slices.Contains(s.header, columnClear) }

func (s *csvRows) parse(v *view.View, l *line) error {
	typ := s.kind
	if i := slices.Index(s.header, columnType); i >= 0 && l.cells[i] != "" {
		typ = l.cells[i]
	}
	t, err := v.Type(typ)
	if err != nil {
		return err
	}
	l.begin(t, len(s.header))
	var own secrets
	for i, cell := range l.cells {
		if cell == "" || own.column(s.header[i], cell) {
			continue
		}
		if err := l.cell(s.header[i], cell); err != nil {
			return err
		}
	}
	return l.take(v, own)
}

// column takes a cell that is no facet, and reports whether the column is for such.
func (s *secrets) column(name, cell string) bool {
	switch name {
	case columnHash:
		s.hash = cell
	case columnClear:
		s.clear = cell
	case columnChanged:
		s.changed = cell
	case columnDisabled:
		s.disabled = cell
	case columnFlag:
		s.flag = cell
	default:
		return slices.Contains(passedOver, name) || name == columnType
	}
	return true
}

// cell takes a facet or a tertiary record.
func (l *line) cell(name, cell string) error {
	if name == columnText {
		return errText
	}
	if kind := l.t.Schema.Tertiary[name].Kind; kind != "" {
		content, err := cellContent(name, kind, cell)
		l.draft.Tertiary = append(l.draft.Tertiary, content)
		return err
	}
	v, err := schema.ParseText(l.t.Schema.Codec(name), cell)
	if err != nil {
		return unreadableFacet(name, err)
	}
	return l.put(name, v)
}

var errText = errors.New("it could not be taken apart: put its cells in place, and empty the column ~text")

// cellContent reads a tertiary record: a set of words, or JSON.
func cellContent(name, kind, cell string) (change.Content, error) {
	if kind == "set" && !strings.HasPrefix(strings.TrimSpace(cell), "[") {
		return change.Content{Name: name, Kind: kind, Values: strings.Fields(cell)}, nil
	}
	if cell = strings.TrimSpace(cell); !json.Valid([]byte(cell)) {
		return change.Content{}, fmt.Errorf("tertiary record %s: no JSON", records.Quoted(name))
	}
	c, err := tertiaryRecord{Kind: kind, Value: json.RawMessage(cell)}.content(name)
	if err != nil {
		return c, fmt.Errorf("tertiary record %s: %w", records.Quoted(name), err)
	}
	return c, nil
}
