package maintain

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

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

// secrets are what is kept of an entry besides its facets: a hash or a clear password, and dates.
type secrets struct{ hash, clear, changed, disabled string }

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
	var x exchange
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&x); err != nil {
		return jsonProblem(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("there is more behind the JSON object")
	}
	*r = reading{
		kind: x.Type, facets: r.facets[:0], wire: x.Wire, tertiary: x.Tertiary,
		secrets: secrets{x.Password, x.ClearPassword, x.Changed, x.Disabled},
	}
	for _, field := range slices.Sorted(maps.Keys(x.Facets)) {
		r.facets = append(r.facets, facetText{field: field, raw: string(x.Facets[field])})
	}
	return nil
}

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
