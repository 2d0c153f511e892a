package schema

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/structs"
)

// From returns the type that the tags of a struct declare. The program adds what tags cannot
// express (Fold, Password, other tertiary records) and puts the type into a Schema under its name:
//
//	type User struct {
//	    UID   string          `userdb:"uid,primary"`
//	    Rev   userdb.Revision `userdb:"~rev"`
//	    Email string          `userdb:"email,secondary,kind=email"`
//	    Age   *int            `userdb:"age,ordered"`
//	    Added time.Time       `userdb:"added,required"`
//	    Prefs map[string]bool `userdb:"prefs"`
//	    Tags  []string        `userdb:"tags,set,indexed"`
//	}
//
// A tag consists of the name of the facet and options, separated by commas. The options use the
// schema's own words: primary, which exactly one field must have; the roles secondary, indexed and
// ordered; required; untyped, which is "typed": false; kind=NAME; and many=N. Fields without a tag,
// or with the tag "-", are ignored. Fields of an embedded struct, or of an embedded pointer to a
// struct, count as fields of the outer struct; as in encoding/json, the least deeply embedded field
// hides others of the same name. A pointer to a value is declared like the value. "~rev" is not a
// facet; see userdb.Revision.
//
// The option set declares a tertiary set, which may be indexed, in place of a facet. Its field has
// type []string.
//
// A secondary field of type []string may have up to 20 values, or as many as the option many says.
// A field of type string with the option many, such as many=5, holds the first value.
//
// The codec follows from the Go type: date for time.Time; text for strings and for types that
// implement encoding.TextMarshaler and TextUnmarshaler; number for numbers; boolean for bool; and
// json for all others. To use another codec, change the returned Type. For example, a time.Time in
// a text field keeps its nanoseconds.
//
// The error is an *Error whose path is the field of the struct. It reports an invalid tag, an
// unexported field with a tag, two fields with the same name, a Go type that no codec supports, and
// everything that Validate refuses.
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
	if len(p.path) > 1 && (p.path[0] == "fields" || p.path[0] == "tertiary") {
		where, p.path = paths[p.path[1]], p.path[2:]
	}
	return Type{}, &Error{Path: where, Reason: strings.Join(append(p.path, p.reason), ": ")}
}

// manyInStructs is the maximum number of values of a field that a struct declares as a slice.
const manyInStructs = 20

// declare adds a field of a struct to t. If it cannot, it returns the reason.
func (t *Type) declare(from structs.Field) (reason string) {
	if from.IsSet() {
		if t.Tertiary == nil {
			t.Tertiary = map[string]Tertiary{}
		}
		t.Tertiary[from.Name] = Tertiary{Kind: structs.Set, Indexed: slices.Contains(from.Options, RoleIndexed.String())}
		return from.SetProblem()
	}
	codecs, err := structs.Codecs(from.Type)
	if err != nil {
		return err.Error()
	}
	f := Field{Codec: Codec(codecs[0]), Kind: from.Kind, Many: from.Many}
	if structs.IsTexts(from.Type) && slices.Contains(from.Options, RoleSecondary.String()) {
		f.Codec, f.Many = CodecText, cmp.Or(f.Many, manyInStructs)
	}
	if f.Codec == CodecText {
		f.Codec = "" // the default is left out, as in a file
	}
	for _, option := range from.Options {
		role, _ := roleOf(option) // 0 for options that are not roles
		f.Role |= role
		f.Required = f.Required || option == structs.Required
		if option == structs.Untyped {
			f.Typed = new(false)
		}
	}
	switch primary := slices.Contains(from.Options, structs.Primary); {
	case from.Name == passwordField:
		return "the password cannot be a field of a struct; set it with SetPassword"
	case primary && t.Primary != "":
		return "a second primary field, after " + quoteIfUnclear(t.Primary)
	case primary:
		t.Primary = from.Name
		if f.Role == 0 && f.Codec == "" && f.Kind == "" { // it needs no declaration
			return ""
		}
	}
	t.Fields[from.Name] = f
	return ""
}
