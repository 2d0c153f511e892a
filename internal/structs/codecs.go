package structs

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"time"
)

// The type of times, and the interfaces with which types encode and decode themselves.
var (
	Time = reflect.TypeFor[time.Time]()

	textMarshaler   = reflect.TypeFor[encoding.TextMarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	jsonMarshaler   = reflect.TypeFor[json.Marshaler]()
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
)

// Textual reports whether a pointer to a type implements both encoding.TextMarshaler and
// encoding.TextUnmarshaler.
func Textual(t reflect.Type) bool {
	writes, reads := methods(t, textMarshaler, textUnmarshaler)
	return writes && reads
}

// methods reports which of two interfaces a pointer to t implements. Values here are always
// addressable.
func methods(t, write, read reflect.Type) (writes, reads bool) {
	p := reflect.PointerTo(t)
	return p.Implements(write), p.Implements(read)
}

// IsTexts reports whether a type is a slice of strings. In a secondary field, such a slice holds
// several values.
func IsTexts(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String && t.Elem().PkgPath() == "" && t.PkgPath() == ""
}

// Codecs returns the names of the codecs that support a type, the preferred one first. For a
// pointer, they are those of its base type. The error says why no codec supports the type.
func Codecs(t reflect.Type) ([]string, error) {
	t, _ = Base(t)
	err := jsonProblem(t, map[reflect.Type]bool{})
	if err != nil {
		return nil, err
	}
	var names []string
	switch k := t.Kind(); {
	case t == Time:
		return []string{"date", "text", "identity", "json"}, nil
	case Textual(t):
		names = append(names, "text", "identity")
	case k == reflect.String:
		return []string{"text", "identity", "json"}, nil
	}
	switch t.Kind() {
	case reflect.Bool:
		names = append(names, "boolean")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		names = append(names, "number")
	}
	return append(names, "json"), nil
}

// jsonProblem returns why encoding/json cannot encode and decode a type, or nil. seen holds the
// types that were already checked, because types may be recursive.
func jsonProblem(t reflect.Type, seen map[reflect.Type]bool) error {
	if seen[t] {
		return nil
	}
	seen[t] = true
	for _, pair := range [][2]reflect.Type{{jsonMarshaler, jsonUnmarshaler}, {textMarshaler, textUnmarshaler}} {
		switch writes, reads := methods(t, pair[0], pair[1]); {
		case writes != reads:
			return fmt.Errorf("type %s has only one of the methods of %s and %s", t, pair[0], pair[1])
		case writes:
			return nil
		}
	}
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer, reflect.Uintptr:
		return fmt.Errorf("no codec supports type %s", t)
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return fmt.Errorf("no codec supports an interface with methods, such as %s", t)
		}
	case reflect.Map:
		if k := t.Key(); !isName(k) {
			return fmt.Errorf("no codec supports type %s: its keys are not text", t)
		}
		return jsonProblem(t.Elem(), seen)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return jsonProblem(t.Elem(), seen)
	case reflect.Struct:
		return membersProblem(t, seen)
	}
	return nil
}

// isName reports whether encoding/json can encode values of a type as names of members.
func isName(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return true
	}
	return t.Implements(textMarshaler) && reflect.PointerTo(t).Implements(textUnmarshaler)
}

func membersProblem(t reflect.Type, seen map[reflect.Type]bool) error {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Tag.Get("json") == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		if err := jsonProblem(f.Type, seen); err != nil {
			return fmt.Errorf("%w (field %s)", err, f.Name)
		}
	}
	return nil
}
