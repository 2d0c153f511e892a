package transfer

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/schema"
)

// maxImportLine is how long one entry may be, in bytes.
const maxImportLine = 16 << 20

// A line is an entry of an input, as it stands there and as it is understood.
type line struct {
	no    int64 // of the first line of text that it takes, from 1
	size  int64 // in bytes, with its end
	raw   string
	cells []string // of a CSV row
	t     *change.Type
	draft change.Draft
	clear string // password
	err   error  // why it is refused
	done  outcome

	changed               store.Record // the entry that the line has changed
	setPassword, disabled bool         // and how
}

// An outcome is what became of a line.
type outcome uint8

const (
	refusedLine outcome = iota
	createdLine
	updatedLine
	skippedLine
)

// A lineSource reads an input.
type lineSource interface {
	// next reads the next line, and reports whether there is one. An error, a *ReadError, ends the input.
	next(l *line) (more bool, err error)
	// parse makes a draft of a line; r is for its use.
	parse(c *view.View, l *line, r *reading) error
}

// jsonLines is an input of JSON lines.
type jsonLines struct {
	r    *bufio.Reader
	no   int64
	size int64
	kind string // the type where a line names none
}

func (s *jsonLines) next(l *line) (more bool, err error) {
	switch err := s.read(l); {
	case err == io.EOF && l.size == 0:
		return false, nil
	case err != nil && err != io.EOF:
		return false, &ReadError{Line: s.no + 1, Offset: s.size, Err: err}
	}
	s.no++
	s.size += l.size
	l.no = s.no
	return true, nil
}

// read reads to the end of a line. One that is too long is read over.
func (s *jsonLines) read(l *line) error {
	part, err := s.r.ReadSlice('\n')
	l.size, l.raw = int64(len(part)), string(part)
	for errors.Is(err, bufio.ErrBufferFull) {
		part, err = s.r.ReadSlice('\n')
		if l.size += int64(len(part)); l.size > maxImportLine {
			l.raw, l.err = l.raw[:100], errLongLine
		} else {
			l.raw += string(part)
		}
	}
	return err
}

var (
	errLongLine = errors.New("it is over 16 MiB")
	errNoObject = errors.New("no JSON object as an export has it")
)

// blank says whether a line has nothing on it.
func (l *line) blank() bool {
	return l.cells == nil && l.err == nil && strings.TrimSpace(l.raw) == ""
}

func (s *jsonLines) parse(c *view.View, l *line, r *reading) error {
	if !scanLine(l.raw, r) {
		if err := readLine(l.raw, r); err != nil {
			return err
		}
	}
	if r.kind == "" {
		r.kind = s.kind
	}
	t, err := c.Type(r.kind)
	if err != nil {
		return err
	}
	l.begin(t, len(r.facets)+len(r.wire))
	for _, f := range r.facets {
		v, err := f.value(t.Schema.Codec(f.field))
		if err == nil {
			err = l.put(f.field, v)
		} else {
			err = unreadableFacet(f.field, err)
		}
		if err != nil {
			return err
		}
	}
	if len(r.wire)+len(r.tertiary) > 0 {
		if err := l.unusual(r); err != nil {
			return err
		}
	}
	return l.take(c, r.secrets)
}

// unusual takes facets in base64, and tertiary records.
func (l *line) unusual(r *reading) (err error) {
	for _, field := range slices.Sorted(maps.Keys(r.wire)) {
		v, err := schema.Decode(l.t.Schema.Codec(field), string(r.wire[field]))
		if err != nil {
			return unreadableFacet(field, err)
		}
		if err := l.put(field, v); err != nil {
			return err
		}
	}
	l.draft.More, err = r.contents()
	return err
}

// jsonProblem says what is wrong with a line without quoting it: it may hold secrets.
func jsonProblem(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("no JSON: something is wrong at byte %d", syntax.Offset)
	}
	return errNoObject
}

func unreadableFacet(field string, err error) error {
	reason := err.Error()
	var value *schema.ValueError
	if errors.As(err, &value) {
		reason = "no " + string(value.Codec) + ": " + value.Reason
	}
	return change.Invalid(field, "codec", reason)
}

func (r *reading) contents() (all []change.Content, err error) {
	for _, name := range slices.Sorted(maps.Keys(r.tertiary)) {
		c, err := r.tertiary[name].content(name)
		if err != nil {
			return nil, fmt.Errorf("tertiary record %s: %w", records.Quoted(name), err)
		}
		all = append(all, c)
	}
	return all, nil
}

// begin begins the draft of an entry with about so many facets.
func (l *line) begin(t *change.Type, facets int) {
	l.t = t
	l.draft = change.Draft{Facets: make(map[string]string, facets+1)}
}

// put puts a facet into the draft.
func (l *line) put(field string, v schema.Value) error {
	if field == l.t.Schema.Primary {
		if l.draft.UID = v.Wire(); l.draft.UID == "" {
			return change.Invalid(field, "non-empty", "it is empty; leave it out to have one made up")
		}
		return nil
	}
	return l.t.EncodeFacet(l.draft.Facets, field, v, nil)
}

// take adds to the draft what is no facet.
func (l *line) take(c *view.View, s secrets) error {
	now := c.Now()
	switch {
	case s.flag != "" && s.flag != "true" && s.flag != "false":
		return fmt.Errorf("%s is neither true nor false", columnFlag)
	case s.flag == "false" && s.disabled != "":
		return errors.New("both disabled and not")
	case s.flag == "true" && s.disabled == "":
		s.disabled = schema.Date(now).Wire()
	}
	if err := l.own(store.FieldChanged, s.changed, now); err != nil {
		return err
	}
	if err := l.own(store.FieldDisabled, s.disabled, now); err != nil {
		return err
	}
	l.clear = s.clear
	switch {
	case s.hash != "" && s.clear != "":
		return errors.New("both a password's hash and a clear password")
	case s.hash != "":
		if err := c.Hashing.Usable(l.t, s.hash); err != nil {
			return fmt.Errorf("password: %w (a clear password is called clear_password)", err)
		}
		l.draft.Facets[store.FieldPassword] = s.hash
	case s.clear != "" && s.changed == "":
		return l.own(store.FieldChanged, schema.Date(now).Wire(), now)
	}
	return nil
}

// own sets a field of the store's own to a date; "" leaves it out. What is to come is now: by a time far ahead no
// session would ever be younger than its password.
func (l *line) own(field, date string, now time.Time) error {
	if date == "" {
		return nil
	}
	v, err := schema.ParseText(schema.CodecDate, date)
	at, isDate := v.Time()
	if err != nil || !isDate {
		return fmt.Errorf("%s is no date", records.Quoted(date[:min(len(date), 40)]))
	}
	if at.After(now) {
		at = now
	}
	if l.draft.Own == nil {
		l.draft.Own = map[string]string{}
	}
	l.draft.Own[field] = schema.Date(at).Wire()
	return nil
}

// identifiers are the secondary values of a draft, which no password may be.
func (l *line) identifiers() []string {
	own := []string{l.draft.UID}
	for _, field := range l.t.Secondary {
		own = append(own, l.draft.Facets[field])
	}
	return own
}
