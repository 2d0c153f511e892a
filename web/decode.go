package web

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/structs"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// maxBody limits the body of a request, in bytes.
const maxBody = 64 << 10

// Decode reads fields of a form or of a JSON object into a struct with `userdb` tags. fields lists
// the fields that the sender may set, by the names in their tags; JSON with other members is
// refused, and other inputs of a form are ignored. White space around a text of a form is dropped,
// and its line breaks become \n, whatever browsers send. An empty input sets the zero value, or nil
// for a pointer. The type of the Go field says what is accepted: a bool is true if its checkbox is
// ticked, a []string has all values of its inputs, a time.Time is written 2026-11-20 or as in RFC
// 3339, and a type that implements encoding.TextUnmarshaler reads its text. A field that is absent
// from JSON is left unchanged. So is one whose input is absent from a form, unless it is a bool or
// a []string: browsers send nothing for boxes that are not ticked.
//
// The error joins a *userdb.FieldError for each value that does not fit, with the rule "date",
// "number", "boolean" or "form", and one with the rule "field" for each member of JSON that may not
// be set. So Problems lists all of them. If the body as a whole is refused, the only error has the
// rule "size" or "form". The body is kept, so that Decode can be called again, for example by a
// function that Update repeats.
func Decode[T any](r *http.Request, v *T, fields ...string) error {
	all, bad := structs.Fields(reflect.TypeFor[T]())
	if bad != nil {
		return (*schema.Error)(bad)
	}
	object, isJSON, err := jsonIn(r)
	if err != nil {
		return err
	}
	if !isJSON {
		if !hasForm(r) {
			return notRead("form", "", "the body is neither a form nor JSON: see its Content-Type")
		}
		if err := r.ParseForm(); err != nil {
			return notRead("form", "", err.Error())
		}
	}
	var wrong []error
	for name := range object {
		if !slices.Contains(fields, name) {
			wrong = append(wrong, notRead("field", name, "cannot be set"))
		}
	}
	for _, name := range fields {
		i := slices.IndexFunc(all, func(f structs.Field) bool { return f.Name == name })
		if i < 0 {
			return fmt.Errorf("web.Decode: %T has no field with the name %q", *v, name)
		}
		into := reflect.ValueOf(v).Elem().FieldByIndex(all[i].Index)
		var rule string
		switch text, sent := object[name]; {
		case isJSON && sent:
			rule = decodeJSON(into, text)
		case !isJSON:
			rule = decodeForm(into, r.PostForm[name], r.PostForm.Has(name))
		}
		if rule != "" {
			wrong = append(wrong, notRead(rule, name, "not a "+rule))
		}
	}
	return errors.Join(wrong...)
}

func notRead(rule, field, reason string) error {
	return &userdb.FieldError{Err: userdb.ErrInvalid, Field: field, Rule: rule, Reason: reason}
}

// hasForm reports whether r.ParseForm reads the body of a request.
func hasForm(r *http.Request) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return kind == "application/x-www-form-urlencoded" && (r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch)
}

// jsonIn returns the members of the JSON object in the body of a request, and whether the request
// has a body in JSON.
func jsonIn(r *http.Request) (object map[string]json.RawMessage, is bool, err error) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "application/json" {
		return nil, false, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), r.Body))
	if err != nil || len(body) > maxBody {
		return nil, true, notRead("size", "", "the body cannot be read or is over 64 KiB")
	}
	if err := json.Unmarshal(body, &object); err != nil || object == nil {
		return nil, true, notRead("form", "", "the body is not a JSON object")
	}
	return object, true, nil
}

// decodeJSON sets a field of a struct. It returns the rule that the text breaks, or "".
func decodeJSON(into reflect.Value, text json.RawMessage) (rule string) {
	base, _ := structs.Base(into.Type())
	var written string
	if base == structs.Time && json.Unmarshal(text, &written) == nil {
		return decodeForm(into, []string{written}, true)
	}
	fresh := reflect.New(into.Type())
	if err := json.Unmarshal(text, fresh.Interface()); err != nil {
		return ruleOf(base)
	}
	into.Set(fresh.Elem())
	return ""
}

// decodeForm sets a field of a struct to the values of the inputs with its name. It returns the
// rule that they break, or "".
func decodeForm(into reflect.Value, values []string, sent bool) (rule string) {
	base, pointer := structs.Base(into.Type())
	switch {
	case structs.IsTexts(base):
		texts := []string{}
		for _, text := range values {
			if text = strings.TrimSpace(text); text != "" {
				texts = append(texts, oneKindOfLines(text))
			}
		}
		if pointer {
			into.Set(reflect.New(base))
			into = into.Elem()
		}
		into.Set(reflect.ValueOf(texts))
		return ""
	case !sent && base.Kind() != reflect.Bool:
		return ""
	}
	text := ""
	if len(values) > 0 {
		text = strings.TrimSpace(oneKindOfLines(values[len(values)-1]))
	}
	fresh := reflect.New(base)
	if text != "" {
		if rule := decodeText(fresh.Elem(), text); rule != "" {
			return rule
		}
	}
	switch {
	case !pointer:
		into.Set(fresh.Elem())
	case text == "":
		into.SetZero()
	default:
		into.Set(fresh)
	}
	return ""
}

// decodeText sets v to the value that a text represents. It returns the rule that the text breaks,
// or "".
func decodeText(v reflect.Value, text string) (rule string) {
	var err error
	unmarshaler, reads := v.Addr().Interface().(encoding.TextUnmarshaler)
	switch kind := v.Kind(); {
	case v.Type() == structs.Time:
		day, wrong := time.Parse(time.DateOnly, text)
		if wrong != nil {
			day, err = time.Parse(time.RFC3339, text)
		}
		v.Set(reflect.ValueOf(day))
	case reads:
		err = unmarshaler.UnmarshalText([]byte(text))
	case kind == reflect.String:
		v.SetString(text)
	case kind == reflect.Bool:
		on := text == "on" || text == "true" || text == "1"
		if v.SetBool(on); !on && text != "off" && text != "false" && text != "0" {
			return "boolean"
		}
	case v.CanInt():
		var n int64
		n, err = strconv.ParseInt(text, 10, v.Type().Bits())
		v.SetInt(n)
	case v.CanUint():
		var n uint64
		n, err = strconv.ParseUint(text, 10, v.Type().Bits())
		v.SetUint(n)
	case v.CanFloat():
		var n float64
		n, err = strconv.ParseFloat(text, v.Type().Bits())
		v.SetFloat(n)
	default:
		err = json.Unmarshal([]byte(text), v.Addr().Interface())
	}
	if err != nil {
		return ruleOf(v.Type())
	}
	return ""
}

// ruleOf returns the rule that a value breaks if it does not fit a type.
func ruleOf(t reflect.Type) string {
	switch v := reflect.Zero(t); {
	case t == structs.Time:
		return "date"
	case structs.Textual(t):
		return "form"
	case v.Kind() == reflect.Bool:
		return "boolean"
	case v.CanInt(), v.CanUint(), v.CanFloat():
		return "number"
	}
	return "form"
}
