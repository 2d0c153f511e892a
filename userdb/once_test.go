package userdb

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/coffeenode/userdb/schema"
)

// TestRequestsDiffer checks that each field of NewEntry changes the encoding of a request, except
// Password, RequirePassword, and Problems, with which nothing is created.
func TestRequestsDiffer(t *testing.T) {
	values := map[string]any{
		"UID": "true", "Facets": schema.Texts("name", "ann"), "Tags": []string{"true"}, "Disabled": true,
		"Password": "battery staple", "RequirePassword": true, "Values": map[string][]string{"true": nil},
		"Sets":           map[string][]string{"true": nil},
		"SelfRegistered": true,
		"Labels":         map[string]map[string]string{"true": nil},
		"Problems":       errors.New("true"),
	}
	unencoded := []string{"Password", "RequirePassword", "Problems"}
	encoded := map[string]string{encodeRequest(NewEntry{}): "no field"}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[NewEntry]()) {
		value, ok := values[field.Name]
		if !ok {
			t.Fatalf("NewEntry has a field %s, which this test must set", field.Name)
		}
		var n NewEntry
		reflect.ValueOf(&n).Elem().FieldByIndex(field.Index).Set(reflect.ValueOf(value))
		text := encodeRequest(n)
		if other, same := encoded[text]; same != slices.Contains(unencoded, field.Name) {
			t.Errorf("a request with %s has the encoding of one with %q: %v, want %v", field.Name, other, same, !same)
		}
		encoded[text] = field.Name
	}
}
