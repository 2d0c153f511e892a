package typed

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/structs"
	"github.com/coffeenode/userdb/schema"
)

// A form converts between values of a Go type and their wire form in one codec.
type form struct {
	// write returns the wire form, and reports whether v is empty: an empty text, the zero time, or
	// null in JSON, such as a nil slice or map. Numbers and booleans are never empty: 0 and false
	// are values.
	write func(v reflect.Value) (wire string, empty bool, err error)
	// read sets v, which is zero. It returns an error if v cannot hold the value.
	read func(v reflect.Value, wire string) error
}

// formOf returns the form of type t in codec c, which must be one of structs.Codecs(t).
func formOf(t reflect.Type, c schema.Codec) form {
	switch k := t.Kind(); {
	case c == schema.CodecDate:
		return form{writeDate, readDate}
	case c == schema.CodecJSON:
		return form{writeJSON, readJSON}
	case c == schema.CodecBoolean:
		return form{writeBool, readBool}
	case c == schema.CodecNumber && k >= reflect.Int && k <= reflect.Int64:
		return form{writeInt, readInt}
	case c == schema.CodecNumber && k >= reflect.Uint && k <= reflect.Uint64:
		return form{writeUint, readUint}
	case c == schema.CodecNumber:
		return form{writeFloat, readFloat}
	case t == structs.Time:
		return form{writeTime, readTime}
	case structs.Textual(t):
		return form{writeMethod, readMethod}
	}
	return form{writeText, readText}
}

var (
	errNull  = errors.New("points to a value that is stored as null, and would be read as nil")
	errNaN   = errors.New("NaN is not a number")
	errYear  = errors.New("a time outside the years 0 to 9999")
	errRange = errors.New("a time outside the range of JavaScript dates")
	errUTF8  = errors.New("contains text that is not UTF-8")
	errFit   = errors.New("cannot hold the stored value")
)

// value returns the stored value with the given wire form.
func (f *field) value(wire string) (schema.Value, error) {
	if f.codec == schema.CodecNumber && wire == "NaN" {
		return schema.Value{}, errNaN
	}
	return schema.Decode(f.codec, wire)
}

// isNull reports whether a facet is present without a value.
func isNull(c schema.Codec, wire string) bool {
	return (c == schema.CodecJSON || c == schema.CodecBoolean) && strings.Trim(wire, " \t\n\r") == "null"
}

func writeText(v reflect.Value) (string, bool, error) { return v.String(), v.Len() == 0, nil }

func readText(v reflect.Value, wire string) error {
	v.SetString(wire)
	return nil
}

func writeMethod(v reflect.Value) (string, bool, error) {
	text, err := v.Addr().Interface().(encoding.TextMarshaler).MarshalText()
	return string(text), len(text) == 0, err
}

func readMethod(v reflect.Value, wire string) error {
	if wire == "" { // write treats an empty text as absent
		return nil
	}
	return withoutValue(v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(wire)))
}

// withoutValue returns errFit in place of an error whose text may quote the stored value.
func withoutValue(err error) error {
	if err == nil {
		return nil
	}
	if wrong, is := errors.AsType[*json.UnmarshalTypeError](err); is {
		kind, _, _ := strings.Cut(wrong.Value, " ") // the value of a number follows
		return fmt.Errorf("%w: a JSON %s is not a %s", errFit, kind, wrong.Type)
	}
	return errFit
}

func writeBool(v reflect.Value) (string, bool, error) {
	return strconv.FormatBool(v.Bool()), false, nil
}

func readBool(v reflect.Value, wire string) error {
	read, err := schema.Decode(schema.CodecBoolean, wire)
	b, _ := read.Bool()
	v.SetBool(b)
	return err
}

// writeInt keeps all digits of an integer, even those that JavaScript would round.
func writeInt(v reflect.Value) (string, bool, error) {
	return strconv.FormatInt(v.Int(), 10), false, nil
}

func writeUint(v reflect.Value) (string, bool, error) {
	return strconv.FormatUint(v.Uint(), 10), false, nil
}

func readInt(v reflect.Value, wire string) error {
	i, err := strconv.ParseInt(wire, 10, 64)
	if err != nil {
		f, whole := wholeNumber(wire)
		if !whole {
			return errFit
		}
		i = int64(f)
	}
	if v.OverflowInt(i) {
		return errFit
	}
	v.SetInt(i)
	return nil
}

func readUint(v reflect.Value, wire string) error {
	u, err := strconv.ParseUint(wire, 10, 64)
	if err != nil {
		f, whole := wholeNumber(wire)
		if !whole || f < 0 {
			return errFit
		}
		u = uint64(f)
	}
	if v.OverflowUint(u) {
		return errFit
	}
	v.SetUint(u)
	return nil
}

// wholeNumber parses an integer in another notation, such as 42.0 or 1e3, if it is exact.
func wholeNumber(wire string) (f float64, whole bool) {
	const exact = 1 << 53
	v, err := schema.ParseText(schema.CodecNumber, wire)
	f, _ = v.Number()
	return f, err == nil && f == math.Trunc(f) && math.Abs(f) <= exact
}

func writeFloat(v reflect.Value) (string, bool, error) {
	f := v.Float()
	if v.Kind() == reflect.Float32 { // use the shortest digits that identify the float32
		f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'g', -1, 32), 64)
	}
	// Negative zero becomes 0, because the two are equal, and an index contains only one of them.
	return schema.Number(f).Wire(), false, nil
}

func readFloat(v reflect.Value, wire string) error {
	f, err := strconv.ParseFloat(wire, v.Type().Bits())
	// The codec decides about Infinity, NaN, and notations that only Go accepts.
	if plain := strings.Trim(wire, "0123456789.+-eE") == ""; !plain {
		var read schema.Value
		read, err = schema.ParseText(schema.CodecNumber, wire)
		f, _ = read.Number()
	}
	if err != nil {
		return errFit
	}
	v.SetFloat(f)
	return nil
}

// timeOf returns the time in a field.
func timeOf(v reflect.Value) time.Time { return *v.Addr().Interface().(*time.Time) }

func setTime(v reflect.Value, t time.Time) { *v.Addr().Interface().(*time.Time) = t }

// Dates are at or after firstSecond and before endSecond, in seconds from 1970. JavaScript also has
// the instant endSecond, but nothing within that second.
const (
	firstSecond = -8_640_000_000_000
	endSecond   = 8_640_000_000_000
)

func writeDate(v reflect.Value) (string, bool, error) {
	t := timeOf(v)
	if s := t.Unix(); s < firstSecond || s >= endSecond {
		return "", false, errRange
	}
	return schema.Date(t).Wire(), t.IsZero(), nil
}

// dateForm is the form of nearly all dates. readDate recognizes it by its length, and reads it with
// time.RFC3339Nano, for which package time has a fast path.
const dateForm = "2006-01-02T15:04:05.000Z"

func readDate(v reflect.Value, wire string) (err error) {
	var t time.Time
	if n := len(wire); n == len(dateForm) && wire[n-5] == '.' && wire[n-1] == 'Z' {
		t, err = time.Parse(time.RFC3339Nano, wire)
	} else {
		var read schema.Value
		read, err = schema.Decode(schema.CodecDate, wire)
		t, _ = read.Time()
	}
	setTime(v, t)
	return err
}

// writeTime keeps the nanoseconds of a time in a text field, which a date would drop.
func writeTime(v reflect.Value) (string, bool, error) {
	t := timeOf(v).UTC()
	if year := t.Year(); year < 0 || year > 9999 {
		return "", false, errYear
	}
	if t.IsZero() {
		return "", true, nil
	}
	return t.Format(time.RFC3339Nano), false, nil
}

func readTime(v reflect.Value, wire string) error {
	if wire == "" {
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, wire)
	if err != nil {
		return withoutValue(err)
	}
	setTime(v, t.UTC())
	return nil
}

var (
	longNumber = regexp.MustCompile(`[0-9.]{16}`)
	// notUTF8 matches what encoding/json writes for bytes that are not UTF-8. It
	// leaves U+FFFD as it is if the text contains that character.
	notUTF8 = regexp.MustCompile(`(^|[^\\])(\\\\)*\\ufffd`)
)

// writeJSON returns JSON in JavaScript's form, or as encoding/json writes it if JavaScript might
// round one of its numbers.
func writeJSON(v reflect.Value) (wire string, empty bool, err error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v.Addr().Interface()); err != nil {
		return "", false, err
	}
	raw := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if notUTF8.Match(raw) {
		return "", false, errUTF8
	}
	value, err := schema.JSON(raw)
	if err != nil {
		return "", false, err
	}
	wire = value.Wire()
	if longNumber.Match(raw) {
		wire = string(raw)
	}
	return wire, wire == "null", nil
}

func readJSON(v reflect.Value, wire string) error {
	return withoutValue(json.Unmarshal([]byte(wire), v.Addr().Interface()))
}
