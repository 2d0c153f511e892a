package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/schema"
)

// A ColumnError is a column, or a name in JSON, that means nothing to an import: the schema declares nothing of that name.
type ColumnError struct {
	Line   int64  // where it stands, from 1
	Name   string // in the input
	As     string // what it was to become, where that is another name; else ""
	Reason string // and the name that was meant, where one is near
	Open   bool   // the type is open: ImportOptions.Extra would keep the facet
}

func (e *ColumnError) Error() string {
	name := records.Quoted(e.Name)
	if e.As != "" {
		name += " as " + records.Quoted(e.As)
	}
	return fmt.Sprintf("%s: line %d: %s: %s", ErrInput, e.Line, name, e.Reason)
}

// Unwrap gives ErrInput.
func (e *ColumnError) Unwrap() error { return ErrInput }

// columns says what the columns of CSV and the facets of JSON are to an import.
type columns struct {
	to         map[string]string // what a name becomes
	ignored    []string
	mappedOnly bool            // what becomes nothing else is left out
	unused     map[string]bool // names that the options give, and that the input has not shown yet
}

func newColumns(o ImportOptions, primary string) (columns, error) {
	c := columns{to: map[string]string{}, ignored: o.Ignore, mappedOnly: o.From != "", unused: map[string]bool{}}
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
			return c, fmt.Errorf("%w: %s is both to be mapped and to be ignored", ErrInput, records.Quoted(name))
		case strings.HasPrefix(to, "~") && !slices.Contains(specialColumns, to):
			return c, fmt.Errorf("%w: %s cannot become %s, which is no facet", ErrInput, records.Quoted(name), records.Quoted(to))
		}
		c.to[name] = to
		c.unused[name] = true
	}
	for _, name := range o.Ignore {
		if o.CSV { // elsewhere an input may well have nothing to ignore
			c.unused[name] = true
		}
	}
	return c, nil
}

// of is what a name is here; "" where it is left out.
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

// given reports whether the options say what a name is.
func (c *columns) isMapped(name string) bool {
	return c.to[name] != "" || slices.Contains(c.ignored, name)
}

// whole complains of options about a name that an input, read to its end, does not have.
func (c *columns) checkUnused() error {
	for _, name := range slices.Sorted(maps.Keys(c.unused)) {
		return fmt.Errorf("%w: it has nothing called %s, which was to be mapped or ignored", ErrInput, records.Quoted(name))
	}
	return nil
}

// survey reads an input to its end, if it can be read again, and looks for names that mean nothing.
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
	lines := 0
	var l line
	for more := err == nil; more && ctx.Err() == nil; {
		l = line{}
		if more, err = src.next(&l); more && err == nil {
			lines++
			err = im.checkNames(src, &l)
		}
		more = more && err == nil
	}
	if err == nil && ctx.Err() == nil && lines > 0 {
		err = im.columns.checkUnused()
	}
	if unread, is := errors.AsType[*ReadError](err); is && unread != nil {
		err = nil // the import will tell, when it comes there
	} else {
		im.namesChecked = true
	}
	_, again := input.Seek(begin, io.SeekStart)
	return cmp.Or(err, ctx.Err(), again)
}

// known checks that all names of a line mean something. What else is wrong with it is not told here.
func (im *importer) checkNames(src source, l *line) error {
	if l.err != nil || l.isBlank() {
		return nil
	}
	r := im.resetReading()
	t, err := im.read(src, l, r)
	if unknown, is := errors.AsType[*ColumnError](err); is {
		unknown.Line = l.no
		return unknown
	}
	if err != nil {
		return nil
	}
	for _, x := range r.tertiary {
		if _, declared := t.Schema.Tertiary[x.name]; !declared {
			near := change.Meant(x.name, slices.Sorted(maps.Keys(t.Schema.Tertiary)))
			return unknownName(l.no, x.inputName, x.name, fmt.Sprintf("type %q has no such tertiary record%s", t.Name, near), false)
		}
	}
	for _, f := range r.facets {
		if _, isSet := t.Schema.Tertiary[f.field]; isSet && l.cells != nil {
			continue
		}
		if reason := im.refusalReason(t, f.field); reason != "" {
			return unknownName(l.no, f.name, f.field, reason, t.Schema.Open)
		}
	}
	return nil
}

// unknown is the error for a name that became a field.
func unknownName(line int64, name, field, reason string, open bool) error {
	e := &ColumnError{Line: line, Name: name, Reason: reason, Open: open}
	if field != name {
		e.As = field
	}
	return e
}

// refuses says why an import into a type takes no facet of a name; "" where it does.
func (im *importer) refusalReason(t *change.Type, name string) string {
	if im.o.Extra && t.Schema.Open || name == columnHash || strings.HasPrefix(name, "~") {
		return "" // or it is no facet anywhere, and refuses its line
	}
	return t.Undeclared(name, columnHash, columnClear, columnFlag)
}

// read reads what a line says, with the names that it has here, and of which type it is.
func (im *importer) read(src source, l *line, r *reading) (*change.Type, error) {
	if err := src.parse(l, r); err != nil {
		return nil, err
	}
	if !im.o.CSV { // the header has been through that
		if err := im.renameFacets(r); err != nil {
			return nil, err
		}
	}
	return im.typeInForce(cmp.Or(r.own[columnType], im.o.Type))
}

// rename gives facets and tertiary records the names that they have here, and takes out those that are none.
func (im *importer) renameFacets(r *reading) error {
	kept := r.facets[:0]
	for _, f := range r.facets {
		to := im.columns.target(f.name)
		switch {
		case to == "" || im.o.From != "" && f.text == "":
			continue
		case to == f.name && !f.flat || !slices.Contains(specialColumns, to):
			f.field = to
			kept = append(kept, f)
			continue
		case r.own[to] != "":
			return duplicateName(to)
		}
		codec := schema.CodecText
		if to == columnFlag {
			codec = schema.CodecBoolean
		}
		v, err := f.parse(codec, f.text)
		if err != nil {
			return fmt.Errorf("%s, which is to be %s, is no %s", records.Quoted(f.name), to, codec)
		}
		r.own[to] = v.Text()
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
	return nil
}

func duplicateName(name string) error { return fmt.Errorf("two are called %s", records.Quoted(name)) }

// header finds out what the columns of CSV are to an import.
func (im *importer) resolveHeader(s *csvRows) error {
	s.names = make([]string, len(s.header))
	for i, column := range s.header {
		name := im.columns.target(column)
		switch {
		case name == "":
		case slices.Contains(s.names[:i], name):
			return fmt.Errorf("%w: two columns are %s", ErrInput, records.Quoted(name))
		case strings.HasPrefix(name, "~") && !slices.Contains(headerNames, name):
			return fmt.Errorf("%w: the header names %s, which is no facet", ErrInput, records.Quoted(name))
		}
		s.names[i] = name
	}
	if len(s.header) == 0 {
		return nil
	}
	if err := im.columns.checkUnused(); err != nil {
		return err
	}
	var refused error
	known := false
	for i, name := range s.names {
		if name == "" || slices.Contains(headerNames, name) {
			known = true
			continue
		}
		err := im.checkColumn(s, i, name)
		refused = cmp.Or(refused, err)
		known = known || err == nil || strings.Contains(err.Error(), "did you mean")
	}
	if !known { // what stands there may be anybody's secret
		return fmt.Errorf("%w: the first line names nothing that the schema knows: is there a header?", ErrInput)
	}
	return refused
}

// refusesColumn is the error for a column that no type whose entries may be in the rows has as a facet or a tertiary record.
func (im *importer) checkColumn(s *csvRows, column int, name string) error {
	types := []string{im.o.Type}
	if slices.Contains(s.names, columnType) {
		types = im.Types.Schema.Names()
	}
	var refused error
	open := false
	for _, of := range types {
		t, err := im.Type(of)
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
