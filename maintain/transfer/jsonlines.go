package transfer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/schema"
)

// maxImportLine is how long one entry may be, in bytes.
const maxImportLine = 16 << 20

// jsonLines is an input of JSON lines.
type jsonLines struct {
	r    *bufio.Reader
	no   int64
	size int64
	kind string  // the type where a line names none
	last reading // of the line that was parsed last
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

func (s *jsonLines) mayBeClear(l *line) bool { return strings.Contains(l.raw, `"`+columnClear+`"`) }

func (s *jsonLines) parse(v *view.View, l *line) error {
	r := &s.last
	if !scanLine(l.raw, r) {
		if err := readLine(l.raw, r); err != nil {
			return err
		}
	}
	if r.kind == "" {
		r.kind = s.kind
	}
	t, err := v.Type(r.kind)
	if err != nil {
		return err
	}
	l.begin(t, len(r.facets)+len(r.wire))
	for _, f := range r.facets {
		value, err := f.value(t.Schema.Codec(f.field))
		if err == nil {
			err = l.put(f.field, value)
		} else {
			err = unreadableFacet(f.field, err)
		}
		if err != nil {
			return err
		}
	}
	if len(r.wire)+len(r.tertiary) > 0 {
		if err := l.takeExact(r); err != nil {
			return err
		}
	}
	return l.take(v, r.secrets)
}

// takeExact takes facets in base64, and tertiary records.
func (l *line) takeExact(r *reading) (err error) {
	for _, field := range slices.Sorted(maps.Keys(r.wire)) {
		v, err := schema.Decode(l.t.Schema.Codec(field), string(r.wire[field]))
		if err != nil {
			return unreadableFacet(field, err)
		}
		if err := l.put(field, v); err != nil {
			return err
		}
	}
	l.draft.Tertiary, err = r.contents()
	return err
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

// jsonProblem says what is wrong with a line without quoting it: it may hold secrets.
func jsonProblem(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("no JSON: something is wrong at byte %d", syntax.Offset)
	}
	return errNoObject
}

// A reading is what a line of JSON says, before a schema says what it means.
type reading struct {
	kind     string // the type; "": none is named
	facets   []facetText
	wire     map[string][]byte
	tertiary map[string]tertiaryRecord
	secrets
}

// A facetText is a facet in JSON. An unescaped one is a string with nothing escaped between its quotes.
type facetText struct {
	field, raw string
	unescaped  bool
}

func (f facetText) value(c schema.Codec) (schema.Value, error) {
	if f.unescaped && (c == schema.CodecText || c == schema.CodecDate) {
		return schema.ParseText(c, f.raw[1:len(f.raw)-1])
	}
	return schema.ParseJSON(c, json.RawMessage(f.raw))
}

// readLine reads a line of any kind.
func readLine(text string, r *reading) error {
	raw, err := object(text)
	if err != nil {
		return err
	}
	*r = reading{facets: r.facets[:0]}
	texts := map[string]*string{"type": &r.kind, "password": &r.hash, "clear_password": &r.clear, "password_changed": &r.changed, "disabled": &r.disabled}
	return members(raw, func(name string, value json.RawMessage) error {
		switch name {
		case "facets":
			return members(value, func(field string, value json.RawMessage) error {
				r.facets = append(r.facets, facetText{field: field, raw: string(value)})
				return nil
			})
		case "wire":
			r.wire = map[string][]byte{}
			return members(value, func(field string, value json.RawMessage) error {
				var wire []byte
				err := typed(field, value, &wire)
				r.wire[field] = wire
				return err
			})
		case "tertiary":
			r.tertiary = map[string]tertiaryRecord{}
			return members(value, func(name string, value json.RawMessage) error {
				x, err := readRecord(value)
				r.tertiary[name] = x
				return err
			})
		case "~rejected": // of an import that refused it
			return nil
		}
		if texts[name] == nil {
			return unknownMember(name)
		}
		return typed(name, value, texts[name])
	})
}

// object is the one JSON object of a line.
func object(text string) (json.RawMessage, error) {
	if !utf8.ValidString(text) {
		return nil, errors.New("not UTF-8")
	}
	dec := json.NewDecoder(strings.NewReader(text))
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return nil, jsonProblem(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("there is more behind the JSON object")
	}
	if raw[0] != '{' {
		return nil, errNoObject
	}
	return raw, nil
}

// readRecord reads a tertiary record.
func readRecord(raw json.RawMessage) (x tertiaryRecord, err error) {
	err = members(raw, func(name string, value json.RawMessage) error {
		switch name {
		case "kind":
			return typed(name, value, &x.Kind)
		case "value":
			x.Value = value
			return nil
		case "value64":
			return typed(name, value, &x.Value64)
		}
		return unknownMember(name)
	})
	return x, err
}

// members reads an object, of JSON that is known to be valid, whose names are exact and stand there once; null is one
// without members. What encoding/json makes a struct or a map of would be the last of two, also of two that differ in
// case.
func members(raw json.RawMessage, member func(name string, value json.RawMessage) error) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	begin, err := dec.Token()
	if err == nil && begin == nil {
		return nil
	}
	if begin != json.Delim('{') {
		return errors.New("no JSON object where one is wanted")
	}
	met := map[string]bool{}
	for dec.More() {
		token, _ := dec.Token()
		name, _ := token.(string)
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return jsonProblem(err)
		}
		if met[name] {
			return fmt.Errorf("%s stands there twice", records.Quoted(name))
		}
		met[name] = true
		if err := member(name, value); err != nil {
			return err
		}
	}
	return nil
}

// typed reads the value of a member.
func typed[T any](name string, raw json.RawMessage, to *T) error {
	if json.Unmarshal(raw, to) != nil {
		return fmt.Errorf("%s is of another JSON type", records.Quoted(name))
	}
	return nil
}

func unknownMember(name string) error { return fmt.Errorf("unknown field %s", records.Quoted(name)) }

// scanLine reads a simple line, in a tenth of the time of readLine: an object with members that readLine knows,
// none of them twice, and in it only strings that have nothing escaped, numbers, true, false and null.
func scanLine(text string, r *reading) (simple bool) {
	s := scanner{text: text}
	*r = reading{facets: r.facets[:0]}
	texts := [...]*string{&r.kind, &r.hash, &r.clear, &r.changed, &r.disabled}
	var met [len(simpleMembers)]bool
	s.object(func(name string) {
		i := slices.Index(simpleMembers[:], name)
		if s.lost = s.lost || i < 0 || met[i]; s.lost {
			return
		}
		if met[i] = true; i < len(texts) {
			*texts[i] = s.string()
			return
		}
		s.object(func(field string) { r.facets = append(r.facets, s.facet(field)) })
	})
	s.space()
	return !s.lost && s.at == len(text) && utf8.ValidString(text) && !twice(r.facets)
}

var simpleMembers = [...]string{"type", "password", "clear_password", "password_changed", "disabled", "facets"}

// mostScanned is how many facets a simple line has at most: each is compared with all others.
const mostScanned = 100

// twice reports whether a facet is there twice, or whether there are too many to tell.
func twice(facets []facetText) bool {
	if len(facets) > mostScanned {
		return true
	}
	for i, f := range facets {
		for _, g := range facets[:i] {
			if f.field == g.field {
				return true
			}
		}
	}
	return false
}

// A scanner reads simple JSON from the left. Once it is lost it reads nothing that counts.
type scanner struct {
	text string
	at   int
	lost bool
}

// peek is the next byte; 0 at the end.
func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *scanner) space() {
	for c := s.peek(); c == ' ' || c == '\t' || c == '\r' || c == '\n'; c = s.peek() {
		s.at++
	}
}

// take reads c, with space before it, and reports whether it stands there.
func (s *scanner) take(c byte) bool {
	s.space()
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) want(c byte) {
	if !s.take(c) {
		s.lost = true
	}
}

// object reads an object; value reads what a name stands for.
func (s *scanner) object(value func(name string)) {
	s.want('{')
	if s.take('}') {
		return
	}
	for !s.lost {
		name := s.string()
		s.want(':')
		value(name)
		if s.take('}') {
			return
		}
		s.want(',')
	}
}

func (s *scanner) string() string {
	s.want('"')
	for i := s.at; i < len(s.text) && !s.lost; i++ {
		switch c := s.text[i]; {
		case c == '"':
			said := s.text[s.at:i]
			s.at = i + 1
			return said
		case c < ' ' || c == '\\':
			s.lost = true
		}
	}
	s.lost = true
	return ""
}

func (s *scanner) facet(field string) facetText {
	s.space()
	from := s.at
	if s.peek() == '"' {
		s.string()
		return facetText{field, s.text[from:s.at], true}
	}
	for s.at < len(s.text) && strings.IndexByte(" \t\r\n,}", s.peek()) < 0 {
		s.at++
	}
	raw := s.text[from:s.at]
	if strings.HasPrefix(raw, "{") || strings.HasPrefix(raw, "[") || !json.Valid([]byte(raw)) {
		s.lost = true
	}
	return facetText{field: field, raw: raw}
}
