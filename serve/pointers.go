package serve

import (
	"reflect"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/schema"
)

// withoutStrayPointers returns p without pointers to members that the body of a request does not
// have, as in an error about a value that a token holds. input is the operation's input. A pointer
// to a member that the body may have stays, and so does one to a facet that is required and
// missing.
func (p *Problem) withoutStrayPointers(input any) *Problem {
	body := reflect.Indirect(reflect.ValueOf(input)).FieldByName("Body")
	isStray := func(e FieldProblem) bool {
		return strings.HasPrefix(e.Pointer, "/") && !hasMember(body, e.Pointer, e.Rule == schema.RequiredRule)
	}
	if !slices.ContainsFunc(p.Errors, isStray) {
		return p
	}
	answer := *p
	answer.Errors = slices.Clone(p.Errors)
	for i, e := range answer.Errors {
		if isStray(e) {
			answer.Errors[i].Pointer = ""
		}
	}
	return &answer
}

// hasMember reports whether a JSON pointer leads from a value to a member of a struct, whether or
// not that member is absent from the request, or to a member of a map. If absent is set, the map
// need not have it. Pointers into other values are not checked.
func hasMember(v reflect.Value, pointer string, absent bool) bool {
	name, rest, more := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
	name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
	if v.Kind() == reflect.Pointer && v.IsNil() {
		v = reflect.New(v.Type().Elem())
	}
	switch v = reflect.Indirect(v); v.Kind() {
	case reflect.Invalid:
		return false
	case reflect.Struct:
		v = memberOf(v, name)
	case reflect.Map:
		if v = v.MapIndex(reflect.ValueOf(name)); !v.IsValid() && absent && !more {
			return true
		}
	default:
		return true
	}
	return v.IsValid() && (!more || hasMember(v, rest, absent))
}

// memberOf returns the field of a struct that JSON encodes under a name, or the zero Value.
func memberOf(v reflect.Value, name string) reflect.Value {
	for _, f := range reflect.VisibleFields(v.Type()) {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name && f.IsExported() {
			return v.FieldByIndex(f.Index)
		}
	}
	return reflect.Value{}
}
