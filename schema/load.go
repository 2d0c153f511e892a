package schema

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
)

// MaxFile is the maximum size of a schema file in bytes.
const MaxFile = 1 << 20

// Load reads and validates a schema in the form of this package or of the options.json of
// CoffeeNode UserDB, the original of this store.
//
// Members that the file does not have get their zero value or, in a password object, the value of
// DefaultPassword.
//
// The options.json of the original becomes a schema of open types with FoldExact. Its secondary
// keys become text fields. The password policy has the cost bcrypt.rounds and no rules. Load
// ignores the address of the database (protocol, hostname, port, collection-idx).
//
// The error is an *Error if the file is invalid. Load wraps the errors of r.
func Load(r io.Reader) (Schema, error) {
	file, err := io.ReadAll(io.LimitReader(r, MaxFile+1))
	if err != nil {
		return Schema{}, fmt.Errorf("reading schema: %w", err)
	}
	s, p := read(file)
	if p != nil {
		return Schema{}, p.err()
	}
	return s, nil
}

// read parses and validates a file in either form.
func read(file []byte) (Schema, *problem) {
	root, p := parseFile(file)
	switch {
	case p != nil:
		return Schema{}, p
	case isOriginal(root):
		return readOriginal(root)
	}
	var r reader
	var s Schema
	r.object(root, members{"types": func(n node) { s.Types = mapOf(&r, n, readType) }})
	return s, cmp.Or(r.problem, s.problem())
}

func readType(r *reader, n node) (t Type) {
	r.object(n, members{
		"primary":   func(n node) { t.Primary = r.text(n) },
		"fold":      func(n node) { t.Fold = Fold(r.text(n)) },
		"canonical": func(n node) { t.Form = r.text(n) },
		"orders":    func(n node) { t.Orders = r.text(n) },
		"fields":    func(n node) { t.Fields = mapOf(r, n, readField) },
		"open":      func(n node) { t.Open = r.boolean(n) },
		"tertiary":  func(n node) { t.Tertiary = mapOf(r, n, readTertiary) },
		"password":  func(n node) { t.Password = readPassword(r, n) },
		"retire":    func(n node) { t.Retire = r.boolean(n) },
		"factors":   func(n node) { t.Factors = r.boolean(n) },
		"retired":   func(n node) { t.Retired = r.texts(n) },
		"building":  func(n node) { t.Building = readBuilding(r, n) },
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
		"required": func(n node) { f.Required = r.boolean(n) },
		"reserved": func(n node) { f.Reserved = r.texts(n) },
		"many":     func(n node) { f.Many = r.integer(n) },
		"hold":     func(n node) { f.Hold = readPeriod(r, n) },
		"typed": func(n node) {
			if !r.boolean(n) {
				f.Typed = new(false)
			}
		},
	})
	return f
}

func readBuilding(r *reader, n node) *Building {
	var b Building
	r.object(n, members{
		"id":   func(n node) { b.ID = r.text(n) },
		"what": func(n node) { b.What = mapOf(r, n, (*reader).texts) },
	})
	return &b
}

func readRole(r *reader, n node) (roles Role) {
	read := func(n node) {
		name := r.text(n)
		role, known := roleOf(name)
		switch {
		case r.problem != nil:
		case !known:
			r.fail("unknown role %s; want one of %s", quoteIfUnclear(name), allRoles)
		case roles.Has(role):
			r.fail("the role %s appears twice", name)
		}
		roles |= role
	}
	if n.kind() != aList {
		read(n)
		return roles
	}
	r.each(n, aList, read)
	return roles
}

func readTertiary(r *reader, n node) (t Tertiary) {
	r.object(n, members{
		"kind":    func(n node) { t.Kind = r.text(n) },
		"indexed": func(n node) { t.Indexed = r.boolean(n) },
		"max":     func(n node) { t.Max = r.integer(n) },
	})
	return t
}

func readPassword(r *reader, n node) *Password {
	p := DefaultPassword()
	r.object(n, members{
		"cost":      func(n node) { p.Cost = r.integer(n) },
		"min":       func(n node) { p.Min = r.integer(n) },
		"strength":  func(n node) { p.Strength = r.integer(n) },
		"blocklist": func(n node) { p.Blocklist = r.boolean(n) },
	})
	return &p
}

func readPeriod(r *reader, n node) Period {
	text := r.text(n)
	if text == "" {
		return 0
	}
	p, err := ParsePeriod(text)
	if err != nil {
		r.fail("%v", err)
	}
	return p
}

// mapOf reads an object with arbitrary names. It returns nil if the object is empty.
func mapOf[V any](r *reader, n node, read func(*reader, node) V) (m map[string]V) {
	r.each(n, anObject, func(item node) {
		if m == nil {
			m = map[string]V{}
		}
		m[item.name] = read(r, item)
	})
	return m
}

// isOriginal reports whether a file has the form of the original's options.json.
func isOriginal(root node) bool {
	has := func(name string) bool {
		return slices.ContainsFunc(root.items, func(item node) bool { return item.name == name })
	}
	return !has("types") && (has("schema") || has("indexes"))
}

// original holds the parts of an options.json that Load uses.
type original struct {
	rounds  int
	codecs  map[string]map[string]Codec // by type, then by field
	indexes map[string]Type             // by type: the primary field and the secondary fields
}

func readOriginal(root node) (Schema, *problem) {
	var r reader
	var o original
	ignore := func(node) {}
	r.object(root, members{
		"protocol":       ignore,
		"hostname":       ignore,
		"port":           ignore,
		"collection-idx": ignore,
		"bcrypt":         func(n node) { r.object(n, members{"rounds": func(n node) { o.rounds = r.integer(n) }}) },
		"schema":         func(n node) { o.codecs = mapOf(&r, n, readCodecs) },
		"indexes":        func(n node) { o.indexes = mapOf(&r, n, readIndex) },
	})
	s := o.schema()
	return s, cmp.Or(r.problem, o.locate(s.problem()))
}

func readCodecs(r *reader, n node) map[string]Codec {
	return mapOf(r, n, func(r *reader, n node) Codec { return Codec(r.text(n)) })
}

func readIndex(r *reader, n node) (t Type) {
	t.Fields = map[string]Field{}
	r.object(n, members{
		"primary-key":    func(n node) { t.Primary = r.text(n) },
		"secondary-keys": func(n node) { r.each(n, aList, func(key node) { readSecondary(r, key, t.Fields) }) },
	})
	if _, again := t.Fields[t.Primary]; again {
		r.fail("%s is the primary key and a secondary key", quoteIfUnclear(t.Primary))
	}
	return t
}

func readSecondary(r *reader, n node, fields map[string]Field) {
	name := r.text(n)
	if _, again := fields[name]; again {
		r.fail("%s appears twice", quoteIfUnclear(name))
	}
	fields[name] = Field{Role: RoleSecondary}
}

// schema returns the schema that o declares.
func (o original) schema() Schema {
	s := Schema{Types: map[string]Type{}}
	for _, name := range slices.Concat(sorted(o.codecs), sorted(o.indexes)) {
		t := Type{Primary: o.indexes[name].Primary, Fold: FoldExact, Open: true, Password: &Password{Cost: o.rounds}}
		if len(o.codecs[name])+len(o.indexes[name].Fields) > 0 {
			t.Fields = map[string]Field{}
		}
		maps.Copy(t.Fields, o.indexes[name].Fields)
		for field, codec := range o.codecs[name] {
			t.Fields[field] = Field{Codec: codec, Role: t.Fields[field].Role}
		}
		s.Types[name] = t
	}
	return s
}

// locate replaces the path of p, which leads into the schema, with the matching path into the
// options.json.
func (o original) locate(p *problem) *problem {
	if p == nil || len(p.path) < 2 {
		return p
	}
	name, rest := p.path[1], append(slices.Clone(p.path[2:]), "", "")
	_, hasCodec := o.codecs[name][rest[1]]
	_, indexed := o.indexes[name]
	path := []string{"schema", name}
	switch {
	case rest[0] == "fields" && hasCodec:
		path = append(path, rest[1])
	case rest[0] == "fields":
		path = []string{"indexes", name, "secondary-keys"}
	case rest[0] == "primary":
		path = []string{"indexes", name, "primary-key"}
	case rest[0] == "password":
		path = []string{"bcrypt", "rounds"}
	case indexed:
		path = []string{"indexes", name}
	}
	return &problem{path, p.reason}
}
