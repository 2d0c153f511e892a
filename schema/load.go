package schema

import (
	"fmt"
	"io"
	"slices"
)

// MaxFile is the greatest size of a schema file, in bytes.
const MaxFile = 1 << 20

// Load reads a schema, in our own form or in that of the original's options.json,
// and validates it. What is left out has the meaning of its zero value, but for
// members of a password that is there: they are those of DefaultPassword.
//
// The options.json of the original becomes a schema with FoldExact, whose
// secondary keys are fields of text, and whose Password asks nothing and has the
// cost bcrypt.rounds. How to reach the database (protocol, hostname, port,
// collection-idx) is ignored.
//
// What is wrong with the file is an *Error; a failure of r is returned as it is,
// wrapped.
func Load(r io.Reader) (Schema, error) {
	file, err := io.ReadAll(io.LimitReader(r, MaxFile+1))
	if err != nil {
		return Schema{}, fmt.Errorf("reading schema: %w", err)
	}
	if len(file) > MaxFile {
		return Schema{}, problemf("the file is larger than %d bytes", MaxFile).err()
	}
	root, p := parse(file)
	if p != nil {
		return Schema{}, p.err()
	}
	s, p := read(root)
	if p != nil {
		return Schema{}, p.err()
	}
	return s, nil
}

// read makes a valid schema of a file, in whichever form.
func read(root node) (Schema, *problem) {
	if isOriginal(root) {
		return readOriginal(root)
	}
	var r reader
	s := readOwn(&r, root)
	return s, first(r.found, s.problem())
}

func readOwn(r *reader, root node) (s Schema) {
	r.object(root, members{"types": func(n node) { s.Types = mapOf(r, n, readType) }})
	return s
}

func readType(r *reader, n node) (t Type) {
	r.object(n, members{
		"primary":   func(n node) { t.Primary = r.text(n) },
		"fold":      func(n node) { t.Fold = Fold(r.text(n)) },
		"canonical": func(n node) { t.Form = r.text(n) },
		"fields":    func(n node) { t.Fields = mapOf(r, n, readField) },
		"tertiary":  func(n node) { t.Tertiary = mapOf(r, n, readTertiary) },
		"password":  func(n node) { t.Password = readPassword(r, n) },
	})
	return t
}

func readField(r *reader, n node) (f Field) {
	r.object(n, members{
		"role":     func(n node) { f.Role = readRole(r, n) },
		"codec":    func(n node) { f.Codec = Codec(r.text(n)) },
		"kind":     func(n node) { f.Kind = r.text(n) },
		"pattern":  func(n node) { f.Pattern = r.text(n) },
		"was":      func(n node) { f.Was = r.text(n) },
		"reserved": func(n node) { f.Reserved = readTexts(r, n) },
	})
	return f
}

func readRole(r *reader, n node) Role {
	if n.kind == aList {
		r.fail(n, "a field has one role, and it is no list")
	}
	return Role(r.text(n))
}

func readTertiary(r *reader, n node) (t Tertiary) {
	r.object(n, members{
		"kind":    func(n node) { t.Kind = r.text(n) },
		"indexed": func(n node) { t.Indexed = r.truth(n) },
	})
	return t
}

func readPassword(r *reader, n node) *Password {
	p := DefaultPassword()
	r.object(n, members{
		"cost":      func(n node) { p.Cost = r.whole(n) },
		"min":       func(n node) { p.Min = r.whole(n) },
		"strength":  func(n node) { p.Strength = r.whole(n) },
		"blocklist": func(n node) { p.Blocklist = r.truth(n) },
	})
	return &p
}

// readTexts returns the texts of a list, nil if there are none.
func readTexts(r *reader, n node) (texts []string) {
	for _, item := range r.list(n) {
		texts = append(texts, r.text(item))
	}
	return texts
}

// mapOf reads an object whose names are the file's own; nil if there are none.
func mapOf[V any](r *reader, n node, read func(*reader, node) V) (m map[string]V) {
	r.each(n, func(name string, item node) {
		if m == nil {
			m = map[string]V{}
		}
		m[name] = read(r, item)
	})
	return m
}

// isOriginal reports whether a file has the form of the original's options.json.
func isOriginal(root node) bool {
	return !slices.Contains(root.names, "types") &&
		(slices.Contains(root.names, "schema") || slices.Contains(root.names, "indexes"))
}
