package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/maintain/internal/records"
)

// A ColumnError reports a column, or a name in JSON, that the schema does not declare.
type ColumnError struct {
	Line   int64  // line of the name, counted from 1
	Name   string // the name in the input
	As     string // the name that Map gives it, if different
	Reason string // the reason, with a suggestion if a declared name is similar
	Open   bool   // the type is open, so ImportOptions.Extra would keep the facet
}

func (e *ColumnError) Error() string {
	name := records.Quoted(e.Name)
	if e.As != "" {
		name += " as " + records.Quoted(e.As)
	}
	return fmt.Sprintf("%s: line %d: %s: %s", ErrInput, e.Line, name, e.Reason)
}

// Unwrap returns ErrInput.
func (e *ColumnError) Unwrap() error { return ErrInput }

// columns maps names of the input, which are columns of CSV or facets in JSON, to names of fields.
type columns struct {
	to         map[string]string // field names by name in the input
	ignored    []string
	ignoreRest bool            // the options ignore all names that they do not map
	mappedOnly bool            // leave out names that are not in to
	unused     map[string]bool // names in the options that have not occurred in the input
}

func newColumns(o ImportOptions, primary string) (columns, error) {
	c := columns{to: map[string]string{}, ignored: o.Ignore, ignoreRest: slices.Contains(o.Ignore, "*"), unused: map[string]bool{}}
	c.mappedOnly = o.From != "" || c.ignoreRest
	given := slices.Collect(maps.Values(o.Map))
	for name, to := range productsByName[o.From].names {
		if to = cmp.Or(to, primary); !slices.Contains(given, to) {
			c.to[name] = to
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Map)) {
		to := o.Map[name]
		switch {
		case slices.Contains(o.Ignore, name):
			return c, fmt.Errorf("%w: %s is both mapped and ignored", ErrInput, records.Quoted(name))
		case (strings.HasPrefix(to, "~") || strings.HasPrefix(to, "!")) && !isSpecial(to):
			return c, fmt.Errorf("%w: %s cannot become %s, which is not a facet", ErrInput, records.Quoted(name), records.Quoted(to))
		}
		c.to[name] = to
		c.unused[name] = true
	}
	for _, name := range o.Ignore {
		switch {
		case slices.Contains(productsByName[o.From].keys, name):
			return c, fmt.Errorf("%w: %s cannot be ignored: every account of %s needs it", ErrInput, records.Quoted(name), o.From)
		case name == "*" && o.From != "":
			return c, fmt.Errorf("%w: \"*\" cannot be ignored; name what to ignore: everything in an export of %s that has no meaning here is left out anyway", ErrInput, o.From)
		case name != "*":
			c.unused[name] = true
		}
	}
	return c, nil
}

// target returns the field that a name is mapped to, or "" if it is left out.
func (c *columns) target(name string) string {
	delete(c.unused, name)
	switch to, given := c.to[name]; {
	case slices.Contains(c.ignored, name):
		return ""
	case given || c.mappedOnly:
		return to
	}
	return name
}

// isMapped reports whether the options say what becomes of a name.
func (c *columns) isMapped(name string) bool { return c.ignoreRest || c.isNamed(name) }

// isNamed reports whether the options mention a name.
func (c *columns) isNamed(name string) bool {
	return c.to[name] != "" || slices.Contains(c.ignored, name)
}

// checkUnused returns an error if the options mention a name that has not occurred in the input.
// The input must have been read to its end.
func (c *columns) checkUnused() error {
	for _, name := range slices.Sorted(maps.Keys(c.unused)) {
		return fmt.Errorf("%w: it has nothing called %s, which the options map or ignore", ErrInput, records.Quoted(name))
	}
	return nil
}

// checkInput reads the input, if it can be read again, and returns an error if it has an undeclared
// name. Of CSV in which all rows have one type, it reads only the header.
func (im *importer) checkInput(ctx context.Context, r io.Reader) error {
	input, ok := r.(io.ReadSeeker)
	if !ok {
		return nil
	}
	begin, err := input.Seek(0, io.SeekCurrent)
	if err != nil { // a pipe
		return nil
	}
	src, err := im.openSource(input)
	more := err == nil
	if rows, ok := src.(*csvRows); ok && more {
		rows.r.ReuseRecord = true                      // no row is kept
		more = slices.Contains(rows.names, columnType) // else resolveHeader has checked all names
	}
	lines := 0
	var l line
	for more && ctx.Err() == nil {
		l = line{}
		if more, err = src.next(&l); more && err == nil {
			var read bool
			if read, err = im.checkNames(src, &l); read {
				lines++
			}
		}
		more = more && err == nil
	}
	if err == nil && ctx.Err() == nil && lines > 0 {
		err = im.columns.checkUnused()
	}
	if readErr, ok := errors.AsType[*ReadError](err); ok && readErr != nil {
		err = nil // the import reports the error when it gets there
	} else {
		im.namesChecked = true
	}
	_, again := input.Seek(begin, io.SeekStart)
	return cmp.Or(err, ctx.Err(), again)
}

// checkNames checks that the schema declares all names in a line, and reports whether the line
// could be read. It ignores other problems of the line.
func (im *importer) checkNames(src source, l *line) (read bool, err error) {
	if l.err != nil || l.isBlank() {
		return false, nil
	}
	r := im.resetReading()
	t, err := im.read(src, l, r)
	if unknown, ok := errors.AsType[*ColumnError](err); ok {
		unknown.Line = l.no
		return true, unknown
	}
	if err != nil {
		return false, nil
	}
	for _, x := range r.tertiary {
		if _, declared := t.Schema.Tertiary[x.name]; !declared {
			near := change.Suggest(x.name, slices.Sorted(maps.Keys(t.Schema.Tertiary)))
			return true, unknownName(l.no, x.inputName, x.name, fmt.Sprintf("type %q has no such tertiary record%s", t.Name, near), false)
		}
	}
	for _, v := range r.values {
		if reason := im.refusalReason(t, v.field); reason != "" {
			return true, unknownName(l.no, v.name, v.field, reason, t.Schema.Open)
		}
	}
	for _, f := range r.facets {
		if _, isSet := t.Schema.Tertiary[f.field]; isSet && l.cells != nil {
			continue
		}
		if reason := im.refusalReason(t, f.field); reason != "" {
			return true, unknownName(l.no, f.name, f.field, reason, t.Schema.Open)
		}
	}
	return true, nil
}

// unknownName returns the error for a name that is mapped to field.
func unknownName(line int64, name, field, reason string, open bool) error {
	e := &ColumnError{Line: line, Name: name, Reason: reason, Open: open}
	if field != name {
		e.As = field
	}
	return e
}

// refusalReason returns why a type does not accept a facet of some name, or "" if it does.
func (im *importer) refusalReason(t *change.Type, name string) string {
	if im.o.Extra && t.Schema.Open || name == columnHash || strings.HasPrefix(name, "~") {
		return "" // either accepted, or no facet of any type, so the line is refused later
	}
	return t.UndeclaredReason(name, columnHash, columnClear, columnFlag)
}

// read parses a line, maps its names, and returns its type.
func (im *importer) read(src source, l *line, r *reading) (*change.Type, error) {
	if err := src.parse(l, r); err != nil {
		return nil, err
	}
	if !im.o.CSV { // resolveHeader has mapped the names of CSV
		if err := im.renameFacets(r); err != nil {
			return nil, err
		}
	}
	return im.typeInForce(cmp.Or(r.own[columnType], im.o.Type))
}

// renameFacets maps the names of facets, of fields with several values and of tertiary records, and
// moves special columns out of the facets.
func (im *importer) renameFacets(r *reading) error {
	kept := r.facets[:0]
	for _, f := range r.facets {
		to := im.columns.target(f.name)
		switch {
		case to == "" || im.o.From != "" && f.text == "", f.flat && isEmptyJSON(f.text):
			continue
		case to == f.name && !f.flat || !isSpecial(to):
			f.field = to
			kept = append(kept, f)
			continue
		case r.own[to] != "":
			return duplicateName(to)
		}
		text, err := f.plainText()
		if err != nil {
			return fmt.Errorf("%s, mapped to %s, is not a text", records.Quoted(f.name), to)
		}
		r.set(to, text)
	}
	r.facets = kept
	tertiary := r.tertiary[:0]
	for _, x := range r.tertiary {
		x.inputName = x.name
		if x.name = im.columns.target(x.name); x.name == "" {
			continue
		}
		if slices.ContainsFunc(tertiary, func(other tertiaryRecord) bool { return other.name == x.name }) {
			return duplicateName(x.name)
		}
		tertiary = append(tertiary, x)
	}
	r.tertiary = tertiary
	values := r.values[:0]
	for _, v := range r.values {
		if v.field = im.columns.target(v.name); v.field == "" {
			continue
		}
		if slices.ContainsFunc(values, func(other fieldValues) bool { return other.field == v.field }) {
			return duplicateName(v.field)
		}
		values = append(values, v)
	}
	r.values = values
	return nil
}

func duplicateName(name string) error { return fmt.Errorf("two values for %s", records.Quoted(name)) }

// resolveHeader maps the columns of a CSV header to fields and checks them.
func (im *importer) resolveHeader(s *csvRows) error {
	if len(s.header) == 0 { // the input is empty
		return nil
	}
	if err := im.checkIsHeader(s); err != nil {
		return err
	}
	s.names = make([]string, len(s.header))
	for i, column := range s.header {
		name := im.columns.target(column)
		switch {
		case column == "" && !im.columns.isMapped(""):
			return fmt.Errorf("%w: column %d of the header has no name: name it, or leave such columns out (userdb import --ignore '')", ErrInput, i+1)
		case slices.Contains(s.header[:i], column) && column != "":
			return fmt.Errorf("%w: the header names %s twice", ErrInput, records.Quoted(column))
		case name == "":
		case slices.Contains(s.names[:i], name):
			return fmt.Errorf("%w: two columns are mapped to %s", ErrInput, records.Quoted(name))
		case strings.HasPrefix(name, "~") && !slices.Contains(headerNames, name):
			return fmt.Errorf("%w: the header names %s, which is not a facet", ErrInput, records.Quoted(name))
		}
		if err := im.checkVerified(name); err != nil {
			return err
		}
		s.names[i] = name
		s.kinds = append(s.kinds, kindOf(name))
	}
	if err := im.columns.checkUnused(); err != nil {
		return err
	}
	var refused error
	for i, name := range s.names {
		if name != "" && !isSpecial(name) && !slices.Contains(headerNames, name) {
			refused = cmp.Or(refused, im.checkColumn(s, i, name))
		}
	}
	return cmp.Or(refused, im.checkSplit(s.names))
}

// checkIsHeader returns an error if the first line may be a row. The error does not quote the line,
// which may be a secret.
func (im *importer) checkIsHeader(s *csvRows) error {
	names := slices.Clone(headerNames)
	for _, typ := range im.Types.Schema.Names() {
		if t, err := im.Type(typ); err == nil {
			names = slices.AppendSeq(append(names, t.Schema.Primary), maps.Keys(t.Schema.Fields))
			names = slices.AppendSeq(names, maps.Keys(t.Schema.Tertiary))
		}
	}
	known, near := im.o.Extra, ""
	for i, column := range s.header {
		equal := func(name string) bool { return strings.EqualFold(name, column) }
		switch {
		case im.columns.isNamed(column) || isSpecial(column) || slices.ContainsFunc(names, equal):
			known = true
		case im.columns.ignoreRest: // the column is left out
		case looksLikeValue(column):
			return fmt.Errorf("%w: the first line holds values, not the names of columns: put a line with the names before it", ErrInput)
		case near == "":
			if near = change.Suggest(column, names); near != "" {
				near = fmt.Sprintf(" (column %d%s)", i+1, strings.Replace(near, ";", ":", 1))
			}
		}
	}
	if known {
		return nil
	}
	if len(s.header) == 1 {
		for _, d := range delimiters {
			if strings.ContainsRune(s.header[0], d.char) && d.char != s.delimiter {
				return fmt.Errorf("%w: the first line is a single column: if %s separate the columns, name that delimiter (userdb import --delimiter)", ErrInput, d.name)
			}
		}
	}
	return fmt.Errorf("%w: the schema knows none of the names in the first line: is there a header?%s", ErrInput, near)
}

var delimiters = []struct {
	char rune
	name string
}{{';', "semicolons"}, {'\t', "tabs"}, {'|', "vertical bars"}, {',', "commas"}, {':', "colons"}}

// looksLikeValue reports whether a text that should be a name looks like a value: an address, a
// hash, a number, a date, an ID or a long text.
func looksLikeValue(text string) bool { return len(text) > 64 || valueLike.MatchString(text) }

var valueLike = regexp.MustCompile(`[^\s@]@[^\s@]+\.|^\$\w+\$|^(?:[-+\d.,:/TZ ]*\d[-+\d.,:/TZ ]*|true|false|` +
	`[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|[0-9a-fA-F]{24,})$`)

// checkVerified returns an error if a name means that a facet is verified, but no type declares the
// facet.
func (im *importer) checkVerified(name string) error {
	field, ok := strings.CutPrefix(name, columnVerified)
	if !ok {
		return nil
	}
	for _, t := range im.Types.ByName {
		if im.refusalReason(t, field) == "" {
			return nil
		}
	}
	return fmt.Errorf("%w: %s: no type has the field %s", ErrInput, records.Quoted(name), records.Quoted(field))
}

// checkColumn returns an error unless at least one of the types that rows can have declares the
// column as a facet or a tertiary record.
func (im *importer) checkColumn(s *csvRows, column int, name string) error {
	types := []string{im.o.Type}
	if slices.Contains(s.names, columnType) {
		types = im.Types.Schema.Names()
	}
	var refused error
	open := false
	for _, typ := range types {
		t, err := im.Type(typ)
		if err != nil {
			continue
		}
		reason := im.refusalReason(t, name)
		if _, isSet := t.Schema.Tertiary[name]; isSet || reason == "" {
			return nil
		}
		open = open || t.Schema.Open
		refused = unknownName(s.headerLines[column], s.header[column], name, reason, open)
	}
	return refused
}
