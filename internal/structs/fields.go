package structs

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"sync"
)

// A Field is a tagged field of a struct.
type Field struct {
	Tag
	Path  string // for people, as in Account.Address.City
	Index []int  // for reflect.Value.FieldByIndex
	Type  reflect.Type
}

// An Error says what is wrong with a struct. Package schema converts it to a schema.Error. This
// package cannot import package schema.
type Error struct {
	Path   string // the struct or its field, as in Account.Email
	Reason string
}

// cache maps types to their cachedFields.
var cache sync.Map

type cachedFields struct {
	fields []Field
	bad    *Error
}

// Fields returns the tagged fields of a struct and of the structs embedded in it. It computes them
// once for each type. Callers share the slice and must not modify it.
func Fields(t reflect.Type) ([]Field, *Error) {
	if a, ok := cache.Load(t); ok {
		a := a.(cachedFields)
		return a.fields, a.bad
	}
	fields, bad := walk(t)
	cache.Store(t, cachedFields{fields, bad})
	return fields, bad
}

// Title returns the name of a struct, for people.
func Title(t reflect.Type) string { return cmp.Or(t.Name(), "struct") }

// A part is the struct itself or a struct that is embedded in it.
type part struct {
	typ    reflect.Type
	path   string
	index  []int
	sealed bool // reached by an embedded pointer that cannot be set
}

// walk visits the embedded structs level by level, like encoding/json: a field hides more deeply
// embedded fields of the same name. Two fields of the same name on one level are an error.
func walk(t reflect.Type) (fields []Field, bad *Error) {
	if t.Kind() != reflect.Struct {
		return nil, &Error{t.String(), "not a struct"}
	}
	seen, above := map[reflect.Type]bool{}, map[string]bool{}
	for level := []part{{typ: t, path: Title(t)}}; len(level) > 0; {
		found, deeper, bad := fieldsOfLevel(level)
		if bad != nil {
			return nil, bad
		}
		for _, f := range found {
			if !above[f.Name] {
				fields = append(fields, f)
			}
			above[f.Name] = true
		}
		// Do this only once the level is complete. A struct that is embedded twice on one level has
		// every field twice, which is an error.
		for _, p := range level {
			seen[p.typ] = true
		}
		level = slices.DeleteFunc(deeper, func(p part) bool { return seen[p.typ] })
	}
	if len(fields) == 0 {
		return nil, &Error{Title(t), "no field has a tag " + Key}
	}
	return fields, nil
}

// fieldsOfLevel returns the fields of one level and the structs of the next.
func fieldsOfLevel(level []part) (found []Field, deeper []part, bad *Error) {
	paths := map[string]string{}
	for _, p := range level {
		fields, embedded, bad := p.fields()
		if bad != nil {
			return nil, nil, bad
		}
		for _, f := range fields {
			if other := paths[f.Name]; other != "" {
				return nil, nil, &Error{f.Path, fmt.Sprintf("has the name %q, like %s", f.Name, other)}
			}
			paths[f.Name] = f.Path
		}
		found, deeper = append(found, fields...), append(deeper, embedded...)
	}
	return found, deeper, nil
}

// fields returns the tagged fields of one struct, and the structs that are embedded in it without a
// tag.
func (p part) fields() (tagged []Field, embedded []part, bad *Error) {
	for i := range p.typ.NumField() {
		f := p.typ.Field(i)
		path := p.path + "." + f.Name
		index := append(append(make([]int, 0, len(p.index)+1), p.index...), i)
		text, has, err := Lookup(string(f.Tag))
		switch {
		case err != nil:
			return nil, nil, &Error{path, err.Error()}
		case text == "-":
		case !has && f.Anonymous:
			if t, pointer := Base(f.Type); t.Kind() == reflect.Struct {
				embedded = append(embedded, part{t, path, index, p.sealed || pointer && !f.IsExported()})
			}
		case !has:
		case !f.IsExported():
			return nil, nil, &Error{path, "is not exported and cannot be set"}
		case p.sealed:
			return nil, nil, &Error{path, "is embedded as an unexported pointer and cannot be set"}
		default:
			tag, err := ParseTag(text)
			if err != nil {
				return nil, nil, &Error{path, err.Error()}
			}
			tagged = append(tagged, Field{tag, path, index, f.Type})
		}
	}
	return tagged, embedded, nil
}

// Base returns the type that a pointer points to, or t itself if it is not a pointer.
func Base(t reflect.Type) (base reflect.Type, pointer bool) {
	if t.Kind() == reflect.Pointer {
		return t.Elem(), true
	}
	return t, false
}
