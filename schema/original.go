package schema

import (
	"slices"
)

// original is what matters of an options.json.
type original struct {
	rounds  int
	codecs  map[string]map[string]Codec // by type, by field
	indexes map[string]originalIndex    // by type
}

type originalIndex struct {
	primary   string
	secondary []string
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
		"bcrypt":         func(n node) { r.object(n, members{"rounds": func(n node) { o.rounds = r.whole(n) }}) },
		"schema":         func(n node) { o.codecs = mapOf(&r, n, readCodecs) },
		"indexes":        func(n node) { o.indexes = mapOf(&r, n, readIndex) },
	})
	s := o.schema()
	return s, first(r.found, o.place(s.problem()))
}

func readCodecs(r *reader, n node) map[string]Codec {
	return mapOf(r, n, func(r *reader, n node) Codec { return Codec(r.text(n)) })
}

func readIndex(r *reader, n node) (x originalIndex) {
	r.object(n, members{
		"primary-key":    func(n node) { x.primary = r.text(n) },
		"secondary-keys": func(n node) { x.secondary = readKeys(r, n) },
	})
	if slices.Contains(x.secondary, x.primary) {
		r.fail(n, "%s is the primary key and a secondary key; a field has one role", bare(x.primary))
	}
	return x
}

// readKeys returns the texts of a list in which none may stand twice.
func readKeys(r *reader, n node) []string {
	keys := readTexts(r, n)
	for i, item := range r.list(n) {
		if slices.Index(keys, item.text) < i {
			r.fail(item, "%s is there already; a field has one role", bare(item.text))
		}
	}
	return keys
}

// schema returns what o declares.
func (o original) schema() Schema {
	s := Schema{Types: map[string]Type{}}
	for name := range o.codecs {
		s.Types[name] = o.typeNamed(name)
	}
	for name := range o.indexes {
		s.Types[name] = o.typeNamed(name)
	}
	return s
}

func (o original) typeNamed(name string) Type {
	x := o.indexes[name]
	fields := map[string]Field{}
	for field, codec := range o.codecs[name] {
		fields[field] = Field{Codec: codec}
	}
	for _, field := range x.secondary {
		fields[field] = Field{Codec: fields[field].Codec, Role: RoleSecondary}
	}
	if len(fields) == 0 {
		fields = nil
	}
	return Type{Primary: x.primary, Fold: FoldExact, Fields: fields, Password: &Password{Cost: o.rounds}}
}

// place turns the path of p, which leads into a schema of our form, into one that
// leads into the options.json.
func (o original) place(p *problem) *problem {
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
