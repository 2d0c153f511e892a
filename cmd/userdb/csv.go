package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/coffeenode/userdb/internal/csvtext"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// csvLines prints entries as CSV with a header, as 'userdb import' reads it. It prints values as
// they are, except on a terminal, which they could control.
type csvLines struct {
	out     *output
	live    bool            // a terminal shows the output
	err     io.Writer       // for warnings
	fields  []string        // one for each column
	all     bool            // no fields were asked for
	started bool            // the header is printed
	records []string        // tertiary records, which CSV leaves out
	extra   int             // entries with a facet of a field that has no column
	split   map[string]rune // by field: the character between its values in a cell
	further int             // entries with several values in a field, of which one is shown
	unsafe  int             // cells that a spreadsheet may take for a formula
}

// newCSV returns a listing with the given fields. If fields is nil, it has all declared fields and
// a column ~disabled. The cells of a field in split hold all its values.
func newCSV(out *output, err io.Writer, t schema.Type, fields []string, split map[string]rune) *csvLines {
	l := &csvLines{out: out, live: out.live, err: err, fields: fields, all: fields == nil, split: split}
	if l.all {
		l.records = slices.Sorted(maps.Keys(t.Tertiary))
		l.fields = []string{t.Primary}
		for name := range t.Fields {
			if name != t.Primary {
				l.fields = append(l.fields, name)
			}
		}
		slices.Sort(l.fields[1:])
		l.fields = append(l.fields, disabledField)
	}
	return l
}

func (l *csvLines) add(e userdb.Entry) error {
	if err := l.header(); err != nil {
		return err
	}
	all := e.Flat()
	if _, has := all[disabledField]; !has {
		all[disabledField] = schema.Bool(false)
	}
	row, hidden := make([]string, len(l.fields)), false
	for i, name := range l.fields {
		v, has := all[name]
		text, texts := v.Wire(), e.Texts(name)
		if separator := l.split[name]; separator != 0 {
			text = joinValues(texts, separator)
		} else {
			hidden = hidden || len(texts) > 1
		}
		if has {
			row[i] = csvtext.WrapText(text)
		}
		if name != disabledField && isFormula(row[i]) {
			l.unsafe++
		}
	}
	for i := range row {
		if l.live {
			row[i] = oneLine(row[i])
		}
	}
	if l.all && !containsAll(l.fields, e) {
		l.extra++
	}
	if hidden {
		l.further++
	}
	return l.write(row)
}

// joinValues returns a cell with values, as 'userdb import --split' reads it. It quotes values that
// an import would otherwise trim or leave out.
func joinValues(texts []string, separator rune) string {
	var cell strings.Builder
	quote := func(text string) bool { return text == "" || text != strings.TrimSpace(text) }
	_ = csvtext.Write(&cell, separator, texts, quote) // a strings.Builder takes everything
	return strings.TrimSuffix(cell.String(), "\n")
}

// isFormula reports whether a spreadsheet may take the text of a cell for a formula.
func isFormula(text string) bool {
	if _, err := strconv.ParseFloat(text, 64); err == nil || text == "" {
		return false
	}
	return strings.ContainsRune("=+-@\t\r\n＝＋－＠", []rune(text)[0])
}

// containsAll reports whether fields has all fields of e.
func containsAll(fields []string, e userdb.Entry) bool {
	for name := range e.Fields() {
		if !slices.Contains(fields, name) {
			return false
		}
	}
	return true
}

// header prints the header, unless it has already been printed.
func (l *csvLines) header() error {
	if l.started {
		return nil
	}
	l.started = true
	return l.write(l.fields)
}

// write writes a row. It quotes a text that an import would otherwise read as no value.
func (l *csvLines) write(row []string) error {
	return csvtext.Write(l.out, ',', row, func(cell string) bool { return cell == `\N` || strings.EqualFold(cell, "NULL") })
}

// withVerb joins names, and adds "is" or "are".
func withVerb(names []string) string {
	if len(names) == 1 && !strings.HasSuffix(names[0], "s") {
		return printable(names[0]) + " is"
	}
	return printable(strings.Join(names, ", ")) + " are"
}

func (l *csvLines) end() error {
	err := l.header() // even if there is no entry
	if len(l.records) > 0 {
		fmt.Fprintf(l.err, "userdb: note: %s left out; 'userdb export' has everything\n", withVerb(l.records))
	}
	if l.extra > 0 {
		fmt.Fprintf(l.err, "userdb: warning: facets that the schema does not declare are left out, in %s; --fields and --json have them\n", plural(l.extra, "entry"))
	}
	if l.further > 0 {
		fmt.Fprintf(l.err, "userdb: warning: only the first value of each field is shown, in %s that have more; --split FIELD=CHAR and --json have all\n", plural(l.further, "entry"))
	}
	if l.unsafe > 0 {
		fmt.Fprintf(l.err, "userdb: warning: a spreadsheet may run %s as a formula: import all columns as text\n", plural(l.unsafe, "cell"))
	}
	return err
}
