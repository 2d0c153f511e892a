package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"unicode/utf8"
)

// maxDepth limits the nesting of a schema file. A valid schema needs six levels.
const maxDepth = 17

// A node is one JSON value. Its name is the name of an object's member or the index of an array's
// item.
type node struct {
	name  string
	token json.Token // the opening delimiter of an object or array
	items []node     // the contents of an object or array
}

// parseFile parses one JSON value. Unlike encoding/json it refuses two members with the same name
// and bytes that are not UTF-8.
func parseFile(file []byte) (root node, p *problem) {
	if len(file) > MaxFile {
		return root, problemf("the file is larger than %d bytes", MaxFile)
	}
	file = bytes.TrimPrefix(file, []byte("\ufeff"))
	if !utf8.Valid(file) {
		return root, problemf("the file is not UTF-8")
	}
	if err := json.Unmarshal(file, new(json.RawMessage)); err != nil {
		return root, syntaxProblem(file, err)
	}
	dec := json.NewDecoder(bytes.NewReader(file))
	dec.UseNumber()
	return parser{dec, "named twice"}.read("", maxDepth)
}

// syntaxProblem returns a problem with the line and column of a JSON syntax error.
func syntaxProblem(file []byte, err error) *problem {
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return problemf("not JSON: %v", err)
	}
	before := file[:max(0, min(int(syntax.Offset)-1, len(file)))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return problemf("not JSON: line %d, column %d: %v", line, column, err)
}

// A parser reads valid JSON.
type parser struct {
	dec         *json.Decoder
	twiceReason string // the reason to return for two members with the same name
}

// withNumbers makes the decoder of p keep the text of numbers, and returns p.
func (p parser) withNumbers() parser {
	p.dec.UseNumber()
	return p
}

// read reads the next value, which may contain at most depth levels of objects and arrays.
func (p parser) read(name string, depth int) (n node, _ *problem) {
	token, err := p.dec.Token()
	if err != nil {
		return n, problemf("a number is too large") // the only possible error in valid JSON
	}
	n = node{name: name, token: token}
	delim, nested := token.(json.Delim)
	if !nested {
		return n, nil
	}
	if depth == 0 {
		return n, problemf("nested too deeply")
	}
	seen := map[string]bool{}
	for p.dec.More() {
		name := strconv.Itoa(len(n.items))
		if delim == '{' {
			token, _ := p.dec.Token()
			name, _ = token.(string)
			if seen[name] {
				return n, problemf("%s", p.twiceReason).at(name)
			}
			seen[name] = true
		}
		item, itemProblem := p.read(name, depth-1)
		if itemProblem != nil {
			return n, itemProblem.at(name)
		}
		n.items = append(n.items, item)
	}
	_, _ = p.dec.Token() // the closing delimiter
	return n, nil
}

// Descriptions of nodes for people.
const (
	anObject = "an object"
	aList    = "a list"
	aString  = "a string"
	aNumber  = "a number"
	aBoolean = "true or false"
)

func (n node) kind() string {
	switch token := n.token.(type) {
	case json.Delim:
		if token == '[' {
			return aList
		}
		return anObject
	case string:
		return aString
	case json.Number:
		return aNumber
	case bool:
		return aBoolean
	}
	return "null"
}

// A reader extracts values from nodes. It keeps the first problem and ignores all later ones.
type reader struct {
	path    []string // to the current node
	problem *problem
}

func (r *reader) fail(reason string, args ...any) {
	if r.problem == nil {
		r.problem = problemf(reason, args...).at(slices.Clone(r.path)...)
	}
}

// want reports whether n is of the given kind, and records a problem if it is not.
func (r *reader) want(n node, kind string) bool {
	if n.kind() != kind {
		r.fail("want %s, got %s", kind, n.kind())
	}
	return n.kind() == kind
}

// members maps names of an object's members to the functions that read them.
type members map[string]func(node)

// object passes each member of n to its function.
func (r *reader) object(n node, known members) {
	r.each(n, anObject, func(item node) {
		if read, ok := known[item.name]; ok {
			read(item)
		} else {
			r.fail("unknown key; want one of %s", list(sorted(known)))
		}
	})
}

// each passes each item of n, which must be of the given kind, to read.
func (r *reader) each(n node, kind string, read func(item node)) {
	if !r.want(n, kind) {
		return
	}
	for _, item := range n.items {
		r.path = append(r.path, item.name)
		read(item)
		r.path = r.path[:len(r.path)-1]
	}
}

// text returns the string in n, and records a problem if it is empty.
func (r *reader) text(n node) string {
	text, _ := n.token.(string)
	if r.want(n, aString) && text == "" {
		r.fail("empty; leave it out instead")
	}
	return text
}

// integer returns the number in n, which must be whole and fit in 32 bits.
func (r *reader) integer(n node) int {
	if !r.want(n, aNumber) {
		return 0
	}
	number, _ := n.token.(json.Number)
	i, err := strconv.ParseInt(number.String(), 10, 32)
	if err != nil {
		r.fail("want a whole number, got %s", shorten(number.String()))
	}
	return int(i)
}

// texts returns the items of an array of strings.
func (r *reader) texts(n node) (texts []string) {
	r.each(n, aList, func(item node) { texts = append(texts, r.text(item)) })
	return texts
}

func (r *reader) boolean(n node) bool { return r.want(n, aBoolean) && n.token == true }
