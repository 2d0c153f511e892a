package main

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"github.com/rivo/uniseg"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A table prints a listing on a terminal: one line for each entry, and no line wider than the
// terminal. The first sampleSize entries determine the columns, so that a long listing need not be
// read to its end before it is printed.
type table struct {
	out     io.Writer
	width   int    // of the terminal
	primary string // the field that the first column shows
	typ     schema.Type
	fields  []string
	all     bool           // no fields were asked for: show those of the first entries
	first   []userdb.Entry // not yet printed, because the columns are not known
	widths  []int          // of the columns; nil until the first row is printed
}

// sampleSize is how many entries determine the columns.
const sampleSize = 100

const (
	gap      = "  "
	ellipsis = "…"
	disabled = gap + "disabled"
	minWidth = 8  // to which columns may be narrowed
	uidWidth = 12 // the same for UIDs, which people copy: the width of one that userdb generates
)

// add prints an entry or, until the columns are known, keeps it for later.
func (t *table) add(e userdb.Entry) error {
	if t.widths != nil {
		return t.printEntry(e)
	}
	t.first = append(t.first, e)
	if len(t.first) < sampleSize {
		return nil
	}
	return t.end()
}

// end determines the columns, and prints the entries that add kept.
func (t *table) end() error {
	if t.widths != nil || len(t.first) == 0 {
		return nil
	}
	if t.all {
		for _, e := range t.first {
			t.fields = append(t.fields, t.hiddenFields(e)...)
		}
		slices.SortFunc(t.fields, func(a, b string) int {
			return cmp.Or(t.rank(a)-t.rank(b), strings.Compare(a, b))
		})
	}
	head := append([]string{t.primary}, t.fields...)
	t.fit(head)
	err := t.print(head, false, false)
	for _, e := range t.first {
		err = cmp.Or(err, t.printEntry(e))
	}
	t.first = nil
	return err
}

// hiddenFields returns the fields of an entry that no column shows.
func (t *table) hiddenFields(e userdb.Entry) (fields []string) {
	for name := range e.Fields() {
		if name != t.primary && !slices.Contains(t.fields, name) {
			fields = append(fields, name)
		}
	}
	return fields
}

func (t *table) cells(e userdb.Entry) []string {
	cells := []string{printable(e.UID())}
	for _, field := range t.fields {
		cell := ""
		if v, has := e.Get(field); has {
			cell = shortCell(v)
		}
		if texts := e.Texts(field); len(texts) > 1 {
			cell = printableList(texts)
		}
		cells = append(cells, cell)
	}
	return cells
}

// fit makes each column as wide as its cells. If a row does not fit the terminal, it first narrows
// the columns of facets that identify nobody, then those of identifiers, and those of dates last.
func (t *table) fit(head []string) {
	t.widths = make([]int, len(head))
	widen := func(cells []string, more int) {
		for i, cell := range cells {
			t.widths[i], more = max(t.widths[i], uniseg.StringWidth(cell)+more), 0
		}
	}
	widen(head, 0)
	for _, e := range t.first {
		widen(t.cells(e), disabledWidth(e.Disabled()))
	}
	uid := uidWidth + disabledWidth(slices.ContainsFunc(t.first, userdb.Entry.Disabled))
	// These are minimum widths, to be tried in turn. Columns whose minimum is 0 are not narrowed.
	for _, least := range []struct{ other, identifier, date int }{
		{16, 0, 0}, {16, 24, 0}, {minWidth, minWidth, 0}, {minWidth, minWidth, minWidth},
	} {
		columns := []int{max(uid, least.identifier)}
		if least.identifier == 0 {
			columns[0] = 0
		}
		for _, field := range t.fields {
			columns = append(columns, []int{least.identifier, least.other, least.date}[t.rank(field)])
		}
		narrow(t.widths, t.width, columns)
	}
}

// rank returns 0 for fields that identify an entry, 1 for others, and 2 for dates.
func (t *table) rank(field string) int {
	switch f := t.typ.Fields[field]; {
	case f.Role.Has(schema.RoleSecondary):
		return 0
	case f.Codec == schema.CodecDate:
		return 2
	}
	return 1
}

// disabledWidth returns the width of the word disabled after a UID, with the gap before it. It
// returns 0 if the entry is not disabled.
func disabledWidth(isDisabled bool) int {
	if isDisabled {
		return len(disabled)
	}
	return 0
}

// printEntry prints the row of an entry. If the user did not choose fields and the entry has one
// without a column, the row ends with an ellipsis.
func (t *table) printEntry(e userdb.Entry) error {
	return t.print(t.cells(e), e.Disabled(), t.all && len(t.hiddenFields(e)) > 0)
}

func (t *table) print(cells []string, isDisabled, more bool) error {
	var b strings.Builder
	for i, cell := range cells {
		width := t.widths[i]
		if i > 0 {
			b.WriteString(gap)
		} else if isDisabled {
			cell = truncate(cell, width-disabledWidth(true)) + disabled
		}
		cell = truncate(cell, width)
		b.WriteString(cell + strings.Repeat(" ", width-uniseg.StringWidth(cell)))
	}
	line := strings.TrimRight(b.String(), " ")
	if more {
		line += gap + ellipsis
	}
	_, err := io.WriteString(t.out, truncate(line, t.width)+"\n")
	return err
}

// truncate shortens a text to width columns of a terminal. It cuts between two characters and marks
// the cut with an ellipsis.
func truncate(text string, width int) string {
	if uniseg.StringWidth(text) <= width {
		return text
	}
	var b strings.Builder
	for left := width - 1; ; {
		character, rest, wide, _ := uniseg.FirstGraphemeClusterInString(text, -1)
		if wide > left {
			return b.String() + ellipsis
		}
		b.WriteString(character)
		text, left = rest, left-wide
	}
}
