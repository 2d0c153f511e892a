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
const maxDepth = 17

// node is one JSON value. A member of an object has its name, an item of a list its index.
type node struct {
	name  string
	token json.Token // of an object or a list, the first
	items []node     // what stands in it
}

// parseFile reads one JSON value, and refuses what encoding/json lets pass: two members of one name, and bytes that are
// not UTF-8.
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

// syntaxProblem says in which line and column the JSON ends to be JSON.
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

// parser reads JSON that is known to be valid.
type parser struct {
	dec         *json.Decoder
	twiceReason string // what to say of two members of one name
}

// read reads the next value, with at most depth objects and lists in one another.
func (p parser) read(name string, depth int) (n node, _ *problem) {
	token, err := p.dec.Token()
	if err != nil {
		return n, problemf("a number is too large") // what else can be wrong with valid JSON?
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
		item, found := p.read(name, depth-1)
		if found != nil {
			return n, found.at(name)
		}
		n.items = append(n.items, item)
	}
	_, _ = p.dec.Token() // the closing delimiter
	return n, nil
}

// What a node is, for people.
const (
	anObject = "an object"
	aList    = "a list"
	aString  = "a text"
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

// reader takes nodes apart. It keeps the first problem, after which the rest does not matter.
type reader struct {
	path    []string // to the node that is read
	problem *problem
}

func (r *reader) fail(reason string, args ...any) {
	if r.problem == nil {
		r.problem = problemf(reason, args...).at(slices.Clone(r.path)...)
	}
}

// want reports whether n is of that kind.
func (r *reader) want(n node, kind string) bool {
	if n.kind() != kind {
		r.fail("want %s, got %s", kind, n.kind())
	}
	return n.kind() == kind
}

// members are the functions that read the members of an object, by name.
type members map[string]func(node)

// object hands each member of n to its function.
func (r *reader) object(n node, known members) {
	r.each(n, anObject, func(item node) {
		if read, ok := known[item.name]; ok {
			read(item)
		} else {
			r.fail("unknown key; want one of %s", list(sorted(known)))
		}
	})
}

// each hands what stands in n, which must be of that kind, to read.
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

// text returns a text, which may not be empty.
func (r *reader) text(n node) string {
	text, _ := n.token.(string)
	if r.want(n, aString) && text == "" {
		r.fail("empty; leave it out instead")
	}
	return text
}

// integer returns a whole number.
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

// texts are the items of a list of texts.
func (r *reader) texts(n node) (texts []string) {
	r.each(n, aList, func(item node) { texts = append(texts, r.text(item)) })
	return texts
}

// boolean returns true or false.
func (r *reader) boolean(n node) bool { return r.want(n, aBoolean) && n.token == true }
