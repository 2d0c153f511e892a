package transfer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/schema"
)

// A reading is what a line of JSON says, before a schema says what it means.
type reading struct {
	kind     string // the type; "": none is named
	facets   []facetText
	wire     map[string][]byte
	tertiary map[string]exchangeRecord
	secrets
}

// secrets are what is kept of an entry besides its facets: a hash or a clear password, dates, and a flag for it being
// disabled where no date is known.
type secrets struct{ hash, clear, changed, disabled, flag string }

// A facetText is a facet in JSON. A plain one is a string that says what stands between its quotes.
type facetText struct {
	field, raw string
	plain      bool
}

func (f facetText) value(c schema.Codec) (schema.Value, error) {
	if f.plain && (c == schema.CodecText || c == schema.CodecDate) {
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
			r.tertiary = map[string]exchangeRecord{}
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
func readRecord(raw json.RawMessage) (x exchangeRecord, err error) {
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
	if string(raw) == "null" {
		return nil
	}
	if len(raw) == 0 || raw[0] != '{' {
		return errors.New("no JSON object where one is wanted")
	}
	met := map[string]bool{}
	for at := afterSpace(raw, 1); raw[at] != '}'; {
		if raw[at] == ',' {
			at = afterSpace(raw, at+1)
		}
		end := valueEnd(raw, at)
		var name string
		if err := typed("", raw[at:end], &name); err != nil {
			return err
		}
		at = afterSpace(raw, afterSpace(raw, end)+1) // the colon
		end = valueEnd(raw, at)
		if met[name] {
			return fmt.Errorf("%s stands there twice", records.Quoted(name))
		}
		met[name] = true
		if err := member(name, raw[at:end:end]); err != nil {
			return err
		}
		at = afterSpace(raw, end)
	}
	return nil
}

func afterSpace(raw []byte, at int) int {
	for raw[at] == ' ' || raw[at] == '\t' || raw[at] == '\r' || raw[at] == '\n' {
		at++
	}
	return at
}

// valueEnd is where the value that begins at a place ends.
func valueEnd(raw []byte, at int) int {
	for depth, text := 0, false; at < len(raw); at++ {
		switch c := raw[at]; {
		case text && c == '\\':
			at++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			depth++
			continue
		case depth == 0 && strings.IndexByte(" \t\r\n,:}]", c) >= 0: // behind a number, true, false or null
			return at
		case c == '}' || c == ']':
			depth--
		}
		if depth == 0 && !text && strings.IndexByte("\"}]", raw[at]) >= 0 {
			return at + 1
		}
	}
	return at
}

// typed reads the value of a member.
func typed[T any](name string, raw json.RawMessage, to *T) error {
	if text, is := any(to).(*string); is && raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 {
		*text = string(raw[1 : len(raw)-1])
		return nil
	}
	if json.Unmarshal(raw, to) != nil {
		return fmt.Errorf("%s is of another JSON type", records.Quoted(name))
	}
	return nil
}

func unknownMember(name string) error { return fmt.Errorf("unknown field %s", records.Quoted(name)) }

// scanLine reads a line of the usual kind, in a tenth of the time: an object with members that readLine knows,
// none of them twice, and in it only strings that have nothing escaped, numbers, true, false and null.
func scanLine(text string, r *reading) (usual bool) {
	s := scanner{text: text}
	*r = reading{facets: r.facets[:0]}
	texts := [...]*string{&r.kind, &r.hash, &r.clear, &r.changed, &r.disabled}
	var met [len(usualMembers)]bool
	s.object(func(name string) {
		i := slices.Index(usualMembers[:], name)
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

var usualMembers = [...]string{"type", "password", "clear_password", "password_changed", "disabled", "facets"}

// mostScanned is how many facets a usual line has at most: each is compared with all others.
const mostScanned = 100

// twice says whether a facet is there twice, or whether there are too many to tell.
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

// A scanner reads usual JSON from the left. Once it is lost it reads nothing that counts.
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

// take reads c, with space before it, and says whether it stands there.
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
