package transfer

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/strictjson"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/schema"
)

// maxImportLine is the maximum length of one entry in the input, in bytes, including the line
// ending.
const maxImportLine = 16 << 20

// jsonLines reads an input of JSON lines.
type jsonLines struct {
	r       *bufio.Reader
	columns columns
	no      int64
	size    int64 // bytes read so far, including a byte order mark before the first line
}

// next reads a line. If the line is too long, next skips it and sets its error.
func (s *jsonLines) next(l *line) (more bool, err error) {
	part, err := s.r.ReadSlice('\n')
	l.size = int64(len(part))
	parts := []string{string(part)}
	for err == bufio.ErrBufferFull {
		part, err = s.r.ReadSlice('\n')
		if l.size += int64(len(part)); l.size > maxImportLine {
			parts, l.err = []string{strings.Clone(parts[0][:100])}, errors.New("it is over 16 MiB")
		} else {
			parts = append(parts, string(part))
		}
	}
	l.raw = strings.Join(parts, "")
	switch {
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

func (s *jsonLines) mayHaveClearPassword(l *line) bool {
	return strings.Contains(l.raw, `"`+columnClear+`"`)
}

// parse parses a line. A name must match exactly, and appear at most once.
func (s *jsonLines) parse(l *line, r *reading) error {
	j := scanner{text: l.raw}
	var wire []facet
	j.object(func(name string) {
		if s.columns.isMapped(name) {
			r.facets = append(r.facets, facet{name: name, text: j.value(), parse: parseFlat, field: name, flat: true})
			r.flat = true
			return
		}
		switch name {
		case columnHash, columnClear, columnChanged:
			r.own[name] = j.string(name)
		case columnDisabled:
			r.own[name] = j.plainText(name)
		case keyImported:
			if r.mark, r.marked = j.string(name), true; r.mark != "" && r.mark != markOfClear && !store.IsImportMark(r.mark) {
				j.fail(errNoMark)
			}
		case keyVerified:
			if c := j.peek(); c != '[' && c != 'n' {
				j.fail(fmt.Errorf("%s has the wrong JSON type", records.Quoted(name)))
			}
			j.array(func() { r.verified = append(r.verified, j.string(name)) })
		case keyUnproven:
			r.unproven = decodeAs[bool](&j, name, j.value())
		case keyFactors:
			r.factors = map[string]string{}
			j.objectOf(name, func(factor string) { r.factors[factor] = j.string(factor) })
		case keySecond:
			r.secondFactor = decodeAs[bool](&j, name, j.value())
		case "type":
			r.own[columnType] = j.string(name)
		case "facets":
			r.nested = true
			j.objectOf(name, func(field string) {
				r.facets = append(r.facets, facet{name: field, text: j.value(), parse: parseJSON, field: field})
			})
		case "wire":
			j.objectOf(name, func(field string) {
				text := string(decodeAs[[]byte](&j, field, j.value()))
				wire = append(wire, facet{name: field, text: text, parse: schema.Decode, field: field})
			})
		case "tertiary":
			j.objectOf(name, func(name string) { r.tertiary = append(r.tertiary, j.tertiary(name)) })
		case keyHeld:
			r.held = j.preserved(name)
		case keyRetired:
			r.retired = j.preserved(name)
		case keyValues:
			j.objectOf(name, func(field string) { r.values = append(r.values, j.values(field)) })
		case "~rejected": // added by the import that refused the line
			j.value()
		case columnText:
			j.value()
			j.fail(errors.New("the line could not be read: correct the text in ~text, and put it in place of this whole object"))
		default:
			j.fail(unknownKey(name))
		}
	})
	r.facets = append(r.facets, wire...)
	if j.skipSpace(); j.err != nil || j.at < len(l.raw) || !utf8.ValidString(l.raw) || !strings.HasPrefix(strings.TrimSpace(l.raw), "{") {
		return cmp.Or(malformed(l.raw), j.err)
	}
	return nil
}

// unknownKey returns the error for a key that no line of an export has.
func unknownKey(name string) error {
	keys := []string{
		"type", "facets", "wire", "tertiary", columnHash, columnClear, columnChanged, columnDisabled,
		keyVerified, keyUnproven, keyFactors, keySecond, keyValues, keyImported, keyHeld, keyRetired,
	}
	e := &ColumnError{Name: name, Reason: `a line of JSON has the facets of an entry under "facets"`}
	if suggestion := change.Suggest(name, keys); suggestion != "" {
		e.Reason = "no line of an export has such a key" + suggestion
	}
	return e
}

// parseJSON parses a facet. It avoids the JSON decoder if the facet is a plain string.
func parseJSON(c schema.Codec, raw string) (schema.Value, error) {
	if (c == schema.CodecText || c == schema.CodecDate) && isPlainString(raw) {
		return schema.ParseText(c, raw[1:len(raw)-1])
	}
	return schema.ParseJSON(c, json.RawMessage(raw))
}

var errNoMark = errors.New(`"imported" is not the mark of an import`)

var errNotObject = errors.New("not a JSON object as in an export")

// malformed returns why a line is not a JSON object. It does not quote the line, which may hold
// secrets.
func malformed(text string) error {
	if !utf8.ValidString(text) {
		return errors.New("not UTF-8")
	}
	dec := json.NewDecoder(strings.NewReader(text))
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return fmt.Errorf("not JSON: syntax error at byte %d", syntax.Offset)
		}
		return errNotObject
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("there is more after the JSON object")
	}
	if raw[0] != '{' {
		return errNotObject
	}
	return nil
}

const memberRejected = `,"~rejected":`

// reject writes the line with a member ~rejected added. A line that is not a JSON object, or has no
// members, is written as a string in a new object.
func (*jsonLines) reject(w io.Writer, l *line) error {
	text := strings.TrimSpace(l.raw)
	if i := strings.LastIndex(text, memberRejected); i > 0 {
		text = text[:i] + "}"
	}
	body, isObject := strings.CutSuffix(text, "}")
	if !isObject || !json.Valid([]byte(text)) || len(strings.TrimSpace(body)) == 1 {
		quoted, _ := json.Marshal(text) // marshaling a string cannot fail
		body = `{"~text":` + string(quoted)
	}
	reason, _ := json.Marshal(l.err.Error())
	_, err := fmt.Fprintf(w, `%s%s{"line":%d,"reason":%s}}`+"\n", body, memberRejected, l.no, reason)
	return err
}

// A scanner reads JSON from left to right until err is set. It is many times faster than
// encoding/json if no string has escapes, and it refuses objects with duplicate names. If the
// syntax is wrong, malformed gives the reason.
type scanner struct {
	text  string
	at    int
	err   error
	limit int // maximum length of an object or array; 0 means maxMembers
}

// maxMembers is the maximum length of an object or array whose type has no other limit. It is the
// highest limit that a schema can set.
const maxMembers = 100_000

var errTooMany = errors.New("an object or array with too many members")

// isFull reports whether an object or array already has as many members as it may, and if so fails.
func (s *scanner) isFull(members int) bool {
	if members < cmp.Or(s.limit, maxMembers) {
		return false
	}
	s.fail(errTooMany)
	return true
}

func (s *scanner) fail(err error) { s.err = cmp.Or(s.err, err) }

func (s *scanner) skipSpace() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}

// peek returns the next byte after white space, or 0 at the end.
func (s *scanner) peek() byte {
	if s.skipSpace(); s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

// nextIs reports whether c comes next after white space.
func (s *scanner) nextIs(c byte) bool { return s.peek() == c }

// accept reports whether c comes next after white space, and if so moves past it.
func (s *scanner) accept(c byte) bool {
	if !s.nextIs(c) {
		return false
	}
	s.at++
	return true
}

// object reads an object. It calls member for each name to read its value. null is an object
// without members.
func (s *scanner) object(member func(name string)) {
	if s.nextIs('n') && s.value() == "null" {
		return
	}
	if !s.accept('{') {
		s.fail(errors.New("want a JSON object"))
	}
	var seen names
	for members := 0; s.err == nil && !s.accept('}'); members++ {
		if members > 0 && !s.accept(',') || !s.nextIs('"') {
			s.fail(errNotObject)
			return
		}
		if s.isFull(members) {
			return
		}
		name := s.string("")
		switch {
		case !s.accept(':'):
			s.fail(errNotObject)
		case !seen.add(name):
			s.fail(fmt.Errorf("%s appears twice", records.Quoted(name)))
		default:
			member(name)
		}
	}
}

// array reads an array. It calls element to read each element. null is an array without elements.
func (s *scanner) array(element func()) {
	if s.nextIs('n') && s.value() == "null" {
		return
	}
	if !s.accept('[') {
		s.fail(errNotArray)
	}
	for n := 0; s.err == nil && !s.accept(']'); n++ {
		if n > 0 && !s.accept(',') {
			s.fail(errNotArray)
		} else if !s.isFull(n) {
			element()
		}
	}
}

var (
	errNotArray  = errors.New("not a JSON array")
	errNotString = errors.New("not a JSON string")
)

// names is a set of the names of an object. Most objects have few, and need no map.
type names struct {
	few   [16]string
	count int
	many  map[string]struct{}
}

// add adds a name and reports whether it is new.
func (n *names) add(name string) bool {
	if n.count < len(n.few) {
		if slices.Contains(n.few[:n.count], name) {
			return false
		}
		n.few[n.count] = name
		n.count++
		return true
	}
	if n.many == nil {
		n.many = make(map[string]struct{}, 2*len(n.few))
		for _, name := range n.few {
			n.many[name] = struct{}{}
		}
	}
	_, has := n.many[name]
	n.many[name] = struct{}{}
	return !has
}

// objectOf reads the object under a name.
func (s *scanner) objectOf(name string, member func(name string)) {
	if c := s.peek(); c != '{' && c != 'n' {
		s.fail(fmt.Errorf("%s: not a JSON object", records.Quoted(name)))
		return
	}
	s.object(member)
}

// value reads a value of any kind and returns its text.
func (s *scanner) value() string {
	s.skipSpace()
	rest := s.text[s.at:]
	end := simpleLength(rest)
	if end == 0 {
		dec := json.NewDecoder(strings.NewReader(rest))
		if dec.Decode(new(json.RawMessage)) != nil {
			s.fail(errNotObject)
		}
		end = int(dec.InputOffset())
		if strings.HasPrefix(rest, `"`) && strictjson.HasLoneSurrogate(rest[:end]) {
			s.fail(errors.New("half a surrogate pair in a string"))
		}
	}
	s.at += end
	return rest[:end]
}

// simpleLength returns the length of the number, true, false, null or string without escapes at the
// start of text, or 0 if there is none.
func simpleLength(text string) int {
	if !strings.HasPrefix(text, `"`) {
		if end := max(0, strings.IndexAny(text, ",}] \t\r\n")); json.Valid([]byte(text[:end])) {
			return end
		}
		return 0
	}
	for i := 1; i < len(text) && text[i] >= ' ' && text[i] != '\\'; i++ {
		if text[i] == '"' {
			return i + 1
		}
	}
	return 0
}

// isPlainString reports whether raw is a JSON string without escapes.
func isPlainString(raw string) bool {
	return strings.HasPrefix(raw, `"`) && !strings.Contains(raw, `\`)
}

// string reads a string; null is the empty string.
func (s *scanner) string(name string) string {
	raw := s.value()
	if isPlainString(raw) {
		return raw[1 : len(raw)-1]
	}
	return decodeAs[string](s, name, raw)
}

// stringOrNull reads a string. It returns nil for null.
func (s *scanner) stringOrNull() *string {
	switch s.peek() {
	case '"':
		text := s.string("")
		return &text
	case 'n':
		s.value()
	default:
		s.fail(errNotString)
	}
	return nil
}

// plainText reads a string, a number or a boolean as text; null is the empty string.
func (s *scanner) plainText(name string) string {
	switch c := s.peek(); {
	case c == '{' || c == '[':
		s.fail(fmt.Errorf("%s has the wrong JSON type", records.Quoted(name)))
		return ""
	case c == '"' || c == 'n':
		return s.string(name)
	}
	return s.value()
}

// plainText returns a facet as text, before the schema gives it meaning.
func (f facet) plainText() (string, error) {
	v, err := f.parse(schema.CodecText, f.text)
	if err == nil {
		return v.Text(), nil
	}
	s := scanner{text: f.text} // in JSON it may be a number or a boolean
	return s.plainText(f.name), s.err
}

// decodeAs decodes the JSON of a member as T.
func decodeAs[T any](s *scanner, name, raw string) (v T) {
	if json.Unmarshal([]byte(raw), &v) != nil {
		s.fail(fmt.Errorf("%s has the wrong JSON type", records.Quoted(name)))
	}
	return v
}

// tertiary reads a tertiary record. It does not decode the record's value.
func (s *scanner) tertiary(name string) tertiaryRecord {
	x := tertiaryRecord{name: name}
	if c := s.peek(); c != '{' && c != 'n' {
		s.fail(fmt.Errorf("tertiary record %s: want a JSON object like {\"kind\":\"set\",\"value\":[\"a\"]}", records.Quoted(name)))
		return x
	}
	s.object(func(member string) {
		switch member {
		case "kind":
			x.Kind = s.string(member)
		case "value":
			x.Value = json.RawMessage(s.value())
		case "value64":
			if x.raw64 = s.value(); x.raw64 == "null" {
				x.raw64 = ""
			}
		default:
			s.fail(unknownMember(member))
		}
	})
	return x
}

func unknownMember(name string) error { return fmt.Errorf("unknown field %s", records.Quoted(name)) }
