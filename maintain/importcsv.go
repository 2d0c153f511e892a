package maintain

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/core"
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
)

type csvRows struct {
	r      *csv.Reader
	kept   *keeper
	kind   string
	header []string
}

// newCSVRows reads the header.
func newCSVRows(in io.Reader, kind string) (*csvRows, error) {
	kept := &keeper{r: in}
	s := &csvRows{r: csv.NewReader(kept), kept: kept, kind: kind}
	s.r.FieldsPerRecord = -1
	header, err := s.r.Read()
	if err == io.EOF {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the header: %w", ErrInput, err)
	}
	kept.cut(s.r.InputOffset())
	header[0] = strings.TrimPrefix(header[0], "\ufeff") // as spreadsheets write it
	for i, name := range header {
		if name == "" || slices.Contains(header[:i], name) {
			return nil, fmt.Errorf("%w: the header names %s twice, or has an empty name", ErrInput, quoted(name))
		}
	}
	s.header = header
	return s, nil
}

// A keeper keeps what was read and not cut off yet: the text of a row.
type keeper struct {
	r    io.Reader
	from int64
	text []byte
}

func (k *keeper) Read(p []byte) (int, error) {
	if len(k.text) > maxImportLine {
		return 0, fmt.Errorf("%w: a row of over 16 MiB: is there a quote that does not end?", ErrInput)
	}
	n, err := k.r.Read(p)
	k.text = append(k.text, p[:n]...)
	return n, err
}

// cut returns the text up to an offset.
func (k *keeper) cut(to int64) string {
	n := min(int(to-k.from), len(k.text))
	row := string(k.text[:n])
	k.text = append(k.text[:0], k.text[n:]...)
	k.from = to
	return row
}

func (s *csvRows) next(l *line) (more bool, err error) {
	cells, err := s.r.Read()
	var bad *csv.ParseError
	if err != nil && !errors.As(err, &bad) {
		return false, endOf(err)
	}
	l.cells = cells
	if bad != nil {
		l.no, l.err = int64(bad.StartLine), bad.Err
	} else {
		no, _ := s.r.FieldPos(0)
		l.no = int64(no)
	}
	l.raw = s.kept.cut(s.r.InputOffset())
	l.size = int64(len(l.raw))
	if l.err == nil && len(cells) != len(s.header) {
		l.err = fmt.Errorf("%d cells, and the header has %d", len(cells), len(s.header))
	}
	return true, nil
}

func (s *csvRows) parse(c *core.Core, l *line, _ *reading) error {
	typ := s.kind
	if i := slices.Index(s.header, columnType); i >= 0 && l.cells[i] != "" {
		typ = l.cells[i]
	}
	t, err := c.Type(typ)
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
	return l.take(c, own)
}

// column takes a cell that is no facet, and says whether the column is for such.
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
	default:
		return false
	}
	return true
}

// cell takes a facet or a tertiary record.
func (l *line) cell(name, cell string) error {
	if name == columnText {
		return errText
	}
	if strings.HasPrefix(name, "~") {
		return nil
	}
	if kind := l.t.Schema.Tertiary[name].Kind; kind != "" {
		content, err := cellContent(name, kind, cell)
		l.draft.More = append(l.draft.More, content)
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
func cellContent(name, kind, cell string) (core.Content, error) {
	if kind == "set" && !strings.HasPrefix(strings.TrimSpace(cell), "[") {
		return core.Content{Name: name, Kind: kind, Values: strings.Fields(cell)}, nil
	}
	if !json.Valid([]byte(cell)) {
		return core.Content{}, fmt.Errorf("tertiary record %s: no JSON", quoted(name))
	}
	c, err := exchangeRecord{Kind: kind, Value: json.RawMessage(cell)}.content(name)
	if err != nil {
		return c, fmt.Errorf("tertiary record %s: %w", quoted(name), err)
	}
	return c, nil
}
