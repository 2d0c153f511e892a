// Package typed converts structs with `userdb` tags to facets, and facets to structs.
package typed

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/coffeenode/userdb/internal/structs"
	"github.com/coffeenode/userdb/schema"
)

// A Plan maps the fields of a struct to the facets of entries of one type. It never changes and is
// safe for concurrent use.
type Plan struct {
	Rev     []int           // index of the field for the entry's revision; nil if there is none
	Sets    []structs.Field // the fields for tertiary sets
	primary string          // the name of the primary field
	fields  []field
}

// A field is a tagged field of the struct.
type field struct {
	structs.Field
	codec   schema.Codec
	pointer bool // nil means absent, every other value present
	texts   bool // a slice of the values of a secondary field
	form
}

// A Problem says that a field cannot be read or written.
type Problem struct {
	Field  string // the name of the facet
	Reason string // for people; names the field of the struct
}

func (f *field) problem(err error) *Problem {
	return &Problem{f.Name, fmt.Sprintf("Go field %s (%s): %v", f.Path, f.Type, err)}
}

// New returns the plan of a struct for entries of a type. refuses returns why a facet cannot be
// written, or "". rev is the required type of a field for the revision. The error is a
// *schema.Error whose path is the field of the struct.
func New(t reflect.Type, declared schema.Type, refuses func(field string) string, rev reflect.Type) (*Plan, error) {
	tagged, bad := structs.Fields(t)
	if bad != nil {
		return nil, (*schema.Error)(bad)
	}
	p := &Plan{primary: declared.Primary}
	for _, f := range tagged {
		switch {
		case f.IsSet():
			if reason := cmp.Or(f.SetProblem(), missingSet(f, declared)); reason != "" {
				return nil, &schema.Error{Path: f.Path, Reason: reason}
			}
			p.Sets = append(p.Sets, f)
		case f.Name != structs.RevName:
			bound, reason := bind(f, declared, refuses)
			if reason != "" {
				return nil, &schema.Error{Path: f.Path, Reason: reason}
			}
			p.fields = append(p.fields, bound)
		case f.Type != rev:
			return nil, &schema.Error{Path: f.Path, Reason: fmt.Sprintf("%s needs type %s, not %s", structs.RevName, rev, f.Type)}
		default:
			p.Rev = f.Index
		}
	}
	return p, nil
}

// missingSet returns why the schema does not fit a field that holds a tertiary set, or "".
func missingSet(f structs.Field, declared schema.Type) string {
	switch set := declared.Tertiary[f.Name]; {
	case set.Kind != structs.Set:
		return fmt.Sprintf("the schema declares no set %s", strconv.Quote(f.Name))
	case slices.Contains(f.Options, "indexed") && !set.Indexed:
		return fmt.Sprintf("the tag declares indexed for set %s, but the schema does not", strconv.Quote(f.Name))
	}
	return ""
}

// bind checks a field of the struct against the type. reason says what is wrong with the field, or
// is "".
func bind(f structs.Field, declared schema.Type, refuses func(string) string) (b field, reason string) {
	codec := declared.Codec(f.Name)
	if reason := refuses(f.Name); reason != "" {
		return b, fmt.Sprintf("facet %s: %s", strconv.Quote(f.Name), reason)
	}
	if claim := undeclared(f.Tag, declared); claim != "" {
		return b, fmt.Sprintf("the tag declares %s for facet %s, but the schema does not", claim, strconv.Quote(f.Name))
	}
	if d := declared.Fields[f.Name]; structs.IsTexts(f.Type) && d.Role.Has(schema.RoleSecondary) {
		if d.MaxValues() < 2 {
			return b, fmt.Sprintf("the schema allows one value in facet %s", strconv.Quote(f.Name))
		}
		return field{Field: f, codec: codec, texts: true}, ""
	}
	names, err := structs.Codecs(f.Type)
	if err != nil {
		return b, err.Error()
	}
	if !slices.Contains(names, string(codec)) {
		return b, fmt.Sprintf("facet %s has codec %s, which does not support type %s", strconv.Quote(f.Name), codec, f.Type)
	}
	base, pointer := structs.Base(f.Type)
	return field{f, codec, pointer, false, formOf(base, codec)}, ""
}

// undeclared returns the first option of a tag that the schema does not declare, or "".
func undeclared(t structs.Tag, declared schema.Type) string {
	f := declared.Fields[t.Name]
	for _, option := range t.Options {
		has := slices.Contains(f.Role.Names(), option) || option == structs.Required && f.Required ||
			option == structs.Untyped && !f.IsTyped() || option == structs.Primary && t.Name == declared.Primary
		if !has {
			return option
		}
	}
	if t.Kind != "" && t.Kind != f.Kind {
		return "kind " + t.Kind
	}
	return ""
}

// A Source holds an entry: the wire forms of its facets, and a function that returns the values of
// a secondary field that may have several.
type Source struct {
	Wires map[string]string
	Texts func(field string) []string
}

// Read fills a zero struct from an entry. If a facet is not valid in its codec, Read treats it as
// absent, like every reader of an entry.
func (p *Plan) Read(v reflect.Value, from Source) *Problem {
	for i := range p.fields {
		f := &p.fields[i]
		if f.texts {
			if texts := from.Texts(f.Name); len(texts) > 0 {
				into, _ := At(v, f.Index, true)
				into.Set(reflect.ValueOf(texts))
			}
			continue
		}
		wire, has := from.Wires[f.Name]
		if !has {
			continue
		}
		into, _ := At(v, f.Index, true)
		if err := f.get(into, wire); err != nil {
			if _, bad := schema.Decode(f.codec, wire); bad == nil {
				return f.problem(err)
			}
		}
	}
	return nil
}

// Facets returns the facets of a struct for a new entry. The primary value, and the values of
// fields that may have several, are separate.
func (p *Plan) Facets(v reflect.Value) (uid string, facets schema.Facets, values map[string][]string, problem *Problem) {
	facets = make(schema.Facets, len(p.fields))
	for i := range p.fields {
		f := &p.fields[i]
		from, exists := At(v, f.Index, false)
		if !exists {
			continue
		}
		if f.texts {
			if texts := from.Interface().([]string); len(texts) > 0 {
				if values == nil {
					values = map[string][]string{}
				}
				values[f.Name] = texts
			}
			continue
		}
		wire, present, err := f.put(from)
		if err != nil {
			return "", nil, nil, f.problem(err)
		}
		if f.Name == p.primary {
			uid = wire
			continue
		}
		if present {
			if facets[f.Name], err = f.value(wire); err != nil {
				return "", nil, nil, f.problem(err)
			}
		}
	}
	return uid, facets, values, nil
}

// Changes calls edit for every facet in which a struct differs from the entry that it was read
// from, with the new value, or nil if the facet becomes absent. Another notation for the same value
// is not a change. For fields with several values it calls editTexts.
func (p *Plan) Changes(v reflect.Value, read Source, edit func(field string, v *schema.Value), editTexts func(field string, texts []string)) *Problem {
	for i := range p.fields {
		f := &p.fields[i]
		from, exists := At(v, f.Index, false)
		if f.texts {
			var texts []string
			if exists {
				texts = from.Interface().([]string)
			}
			if !slices.Equal(texts, read.Texts(f.Name)) {
				editTexts(f.Name, texts)
			}
			continue
		}
		stored, had := read.Wires[f.Name]
		if !had && (!exists || from.IsZero()) {
			continue
		}
		wire, present, err := "", false, error(nil)
		if exists {
			wire, present, err = f.put(from)
		}
		switch {
		case err != nil:
			return f.problem(err)
		case had && f.same(stored, wire, present):
		case present:
			value, err := f.value(wire)
			if err != nil {
				return f.problem(err)
			}
			edit(f.Name, &value)
		case had:
			edit(f.Name, nil)
		}
	}
	return nil
}

// same reports whether stored means the same as wire, as 42.0 and 42 do. It reads stored into a
// field and writes the field again.
func (f *field) same(stored, wire string, present bool) bool {
	if present && stored == wire {
		return true
	}
	again := reflect.New(f.Type).Elem()
	if f.get(again, stored) != nil {
		return false
	}
	wireAgain, presentAgain, err := f.put(again)
	return err == nil && presentAgain == present && (!present || wireAgain == wire)
}

// get sets a field from a wire form.
func (f *field) get(into reflect.Value, wire string) error {
	if isNull(f.codec, wire) {
		return nil
	}
	if !f.pointer {
		return f.read(into, wire)
	}
	base := reflect.New(f.Type.Elem())
	err := f.read(base.Elem(), wire)
	if err == nil {
		into.Set(base)
	}
	return err
}

// put returns the wire form of a field, and reports whether the facet is present.
func (f *field) put(from reflect.Value) (wire string, present bool, err error) {
	if !f.pointer {
		wire, empty, err := f.write(from)
		return wire, !empty, err
	}
	if from.IsNil() {
		return "", false, nil
	}
	wire, _, err = f.write(from.Elem())
	if err == nil && isNull(f.codec, wire) {
		err = errNull
	}
	return wire, true, err
}

// At returns the field of a struct at an index. If an embedded pointer on the way is nil, it
// allocates a struct if allocate is true, and returns false otherwise.
func At(v reflect.Value, index []int, allocate bool) (reflect.Value, bool) {
	for n, i := range index {
		if n > 0 && v.Kind() == reflect.Pointer {
			if v.IsNil() && !allocate {
				return reflect.Value{}, false
			}
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	return v, true
}
