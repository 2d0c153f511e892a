package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a schema file. Ours needs five.
const maxDepth = 16

// node is one JSON value that knows where in the file it stands.
type node struct {
	path  []string
	kind  string // what it is, for people
	text  string // of a string, a number or a truth value
	names []string
	items []node // of a list, or of an object, whose names are beside them
}

// What a node is.
const (
	anObject = "an object"
	aList    = "a list"
	aText    = "a text"
	aNumber  = "a number"
	aTruth   = "true or false"
	aNull    = "null"
)

// parse reads one JSON value, and refuses what encoding/json lets pass: two
// members of one name, and bytes that are not UTF-8.
func parse(file []byte) (node, *problem) {
	file = bytes.TrimPrefix(file, []byte("\ufeff"))
	if !utf8.Valid(file) {
		return node{}, problemf("the file is not UTF-8")
	}
	if err := json.Unmarshal(file, new(json.RawMessage)); err != nil {
		return node{}, syntaxProblem(file, err)
	}
	dec := json.NewDecoder(bytes.NewReader(file))
	dec.UseNumber()
	return parseNode(dec, nil)
}

// syntaxProblem says in which line and column the JSON ends to be JSON.
func syntaxProblem(file []byte, err error) *problem {
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return problemf("not JSON: %v", err)
	}
	before := file[:max(0, min(int(syntax.Offset)-1, len(file)))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return problemf("not JSON: line %d, column %d: %v", line, column, err)
}

// parseNode reads the next value of JSON that is known to be valid.
func parseNode(dec *json.Decoder, path []string) (node, *problem) {
	if len(path) > maxDepth {
		return node{}, problemf("nested too deeply").at(path...)
	}
	n := node{path: path}
	switch token, _ := dec.Token(); token := token.(type) {
	case json.Delim:
		read := parseList
		if token == '{' {
			read = parseObject
		}
		p := read(dec, &n)
		_, _ = dec.Token() // the closing delimiter
		return n, p
	case string:
		n.kind, n.text = aText, token
	case json.Number:
		n.kind, n.text = aNumber, token.String()
	case bool:
		n.kind, n.text = aTruth, strconv.FormatBool(token)
	default:
		n.kind = aNull
	}
	return n, nil
}

func parseObject(dec *json.Decoder, n *node) *problem {
	n.kind = anObject
	seen := map[string]bool{}
	for dec.More() {
		token, _ := dec.Token()
		name, _ := token.(string)
		path := append(slices.Clip(n.path), name)
		if seen[name] {
			return problemf("named twice").at(path...)
		}
		seen[name] = true
		item, p := parseNode(dec, path)
		if p != nil {
			return p
		}
		n.names, n.items = append(n.names, name), append(n.items, item)
	}
	return nil
}

func parseList(dec *json.Decoder, n *node) *problem {
	n.kind = aList
	for dec.More() {
		item, p := parseNode(dec, append(slices.Clip(n.path), strconv.Itoa(len(n.items))))
		if p != nil {
			return p
		}
		n.items = append(n.items, item)
	}
	return nil
}

// reader takes nodes apart. It keeps the first problem, after which the rest does
// not matter.
type reader struct{ found *problem }

func (r *reader) fail(n node, reason string, args ...any) {
	if r.found == nil {
		r.found = problemf(reason, args...).at(n.path...)
	}
}

// want reports whether n is of that kind.
func (r *reader) want(n node, kind string) bool {
	if n.kind != kind {
		r.fail(n, "want %s, got %s", kind, n.kind)
	}
	return n.kind == kind
}

// members are the functions that read the members of an object, by name.
type members map[string]func(node)

// object hands each member of n to its function.
func (r *reader) object(n node, known members) {
	r.each(n, func(name string, item node) {
		read, ok := known[name]
		if !ok {
			r.fail(item, "unknown key; known here are %s", list(sorted(known)))
			return
		}
		read(item)
	})
}

// each hands every member of n to f.
func (r *reader) each(n node, f func(name string, item node)) {
	if !r.want(n, anObject) {
		return
	}
	for i, name := range n.names {
		f(name, n.items[i])
	}
}

// list returns the items of n.
func (r *reader) list(n node) []node {
	if !r.want(n, aList) {
		return nil
	}
	return n.items
}

// text returns a text, which may not be empty.
func (r *reader) text(n node) string {
	if r.want(n, aText) && n.text == "" {
		r.fail(n, "empty; leave it out instead")
	}
	return n.text
}

// integer returns a whole number.
func (r *reader) integer(n node) int {
	if !r.want(n, aNumber) {
		return 0
	}
	i, err := strconv.ParseInt(n.text, 10, 32)
	if err != nil {
		r.fail(n, "want a whole number, got %s", shorten(n.text))
	}
	return int(i)
}

// truth returns true or false.
func (r *reader) truth(n node) bool { return r.want(n, aTruth) && n.text == "true" }
