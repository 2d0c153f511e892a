package schema

import (
	"reflect"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/structs"
)

// From returns the type that the tags of a struct declare, for a program to complete with what tags do not say (Fold,
// Tertiary, Password) and to put into a Schema under its name:
//
//	type User struct {
//		UID   string          `userdb:"uid,primary"`
//		Rev   userdb.Revision `userdb:"~rev"`
//		Email string          `userdb:"email,secondary,kind=email"`
//		Age   *int            `userdb:"age,ordered"`
//		Added time.Time       `userdb:"added,required"`
//		Prefs map[string]bool `userdb:"prefs"`
//	}
//
// A tag is the name of the facet and, after commas, options in the schema's own words: primary, of exactly one field; the
// roles secondary, indexed and ordered; required; and kind=NAME. Fields without a tag, and with the tag "-", are left out.
// Fields of an embedded struct, or a pointer to one, count as those of the struct: the one that is embedded less deeply hides
// another of its name, as in encoding/json. A pointer to a value is declared like the value. "~rev" is no facet; see
// userdb.Revision.
//
// The codec follows from the Go type: date for time.Time; text for strings and for what encoding.TextMarshaler and
// TextUnmarshaler write and read; number; boolean; and json for the rest. To declare another one, change the Type: a
// time.Time in a field of text keeps its nanoseconds.
//
// The error is an *Error whose path is the field of the struct: a tag that cannot be read, an unexported field with a tag,
// two fields of one name, a Go type that no codec holds, and all that Validate refuses.
func From[T any]() (Type, error) { return fromStruct(reflect.TypeFor[T]()) }

func fromStruct(t reflect.Type) (Type, error) {
	fields, bad := structs.Fields(t)
	if bad != nil {
		return Type{}, (*Error)(bad)
	}
	typ, paths := Type{Fields: map[string]Field{}}, map[string]string{}
	for _, f := range fields {
		if f.Name == structs.RevName {
			continue
		}
		if reason := typ.declare(f); reason != "" {
			return Type{}, &Error{Path: f.Path, Reason: reason}
		}
		paths[f.Name] = f.Path
	}
	if typ.Primary == "" {
		return Type{}, &Error{Path: structs.Title(t), Reason: "no field has the option " + structs.Primary}
	}
	p := Schema{}.typeProblem("", typ)
	if p == nil {
		return typ, nil
	}
	where := structs.Title(t)
	if len(p.path) > 1 && p.path[0] == "fields" {
		where, p.path = paths[p.path[1]], p.path[2:]
	}
	return Type{}, &Error{Path: where, Reason: strings.Join(append(p.path, p.reason), ": ")}
}

// declare adds a field of a struct, and returns why that cannot be.
func (t *Type) declare(from structs.Field) (reason string) {
	codecs, err := structs.Codecs(from.Type)
	if err != nil {
		return err.Error()
	}
	f := Field{Codec: Codec(codecs[0]), Kind: from.Kind}
	if f.Codec == CodecText {
		f.Codec = "" // as in a schema that is written by hand
	}
	for _, option := range from.Options {
		role, _ := roleOf(option) // 0 for primary and required
		f.Role |= role
		f.Required = f.Required || option == structs.Required
	}
	switch primary := slices.Contains(from.Options, structs.Primary); {
	case from.Name == passwordField:
		return "a struct cannot contain the password: it has its own methods"
	case primary && t.Primary != "":
		return "a second primary field, after " + quoteIfUnclear(t.Primary)
	case primary:
		t.Primary = from.Name
		if f.Role == 0 && f.Codec == "" && f.Kind == "" { // then there is nothing to say of it
			return ""
		}
	}
	t.Fields[from.Name] = f
	return ""
}
