package typed

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/structs"
	"github.com/coffeenode/userdb/schema"
)

// A form is how values of one Go type are written by one codec.
type form struct {
	// write gives what is written, and whether that is as good as nothing: an empty text, the zero time, a nil list. Of a
	// number and a boolean nothing is: 0 and false are values.
	write func(v reflect.Value) (wire string, empty bool, err error)
	// read sets v, which is zero. It refuses what v cannot hold.
	read func(v reflect.Value, wire string) error
}

// formOf is the form of a type in a codec, which holds it, says structs.Codecs.
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
	errNull  = errors.New("points to null, which is indistinguishable from nil")
	errNaN   = errors.New("NaN is not a number")
	errYear  = errors.New("a time outside the years 0 to 9999")
	errRange = errors.New("a time outside the range of JavaScript dates")
	errUTF8  = errors.New("contains text that is not UTF-8")
	errFit   = errors.New("cannot hold what is stored")
)

// value is what is written, as a value to be stored.
func (f *field) value(wire string) (schema.Value, error) {
	if f.codec == schema.CodecNumber && wire == "NaN" {
		return schema.Value{}, errNaN
	}
	return schema.Decode(f.codec, wire)
}

// isNull reports whether a facet is there without a value.
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
	if wire == "" { // what would have been written as that is absent
		return nil
	}
	return v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(wire))
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

// Whole numbers are written with all their digits, also those that JavaScript rounds when it reads them.
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

// wholeNumber reads a whole number that is written as no whole number is, such as 42.0 and 1e3, and is exactly that.
func wholeNumber(wire string) (f float64, whole bool) {
	const exact = 1 << 53
	v, err := schema.ParseText(schema.CodecNumber, wire)
	f, _ = v.Number()
	return f, err == nil && f == math.Trunc(f) && math.Abs(f) <= exact
}

func writeFloat(v reflect.Value) (string, bool, error) {
	f := v.Float()
	if v.Kind() == reflect.Float32 { // with the digits that tell it from other numbers of its size
		f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'g', -1, 32), 64)
	}
	return schema.Number(f).Wire(), false, nil // of the negative zero 0: they are equal, and an index has one of them
}

func readFloat(v reflect.Value, wire string) error {
	f, err := strconv.ParseFloat(wire, v.Type().Bits())
	if plain := strings.Trim(wire, "0123456789.+-eE") == ""; !plain { // Infinity, NaN, and what only Go calls a number
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

// timeOf is the time in a field.
func timeOf(v reflect.Value) time.Time { return *v.Addr().Interface().(*time.Time) }

func setTime(v reflect.Value, t time.Time) { *v.Addr().Interface().(*time.Time) = t }

// The first and the last second of JavaScript's dates, counted from 1970.
const (
	firstSecond = -8_640_000_000_000
	lastSecond  = 8_640_000_000_000
)

func writeDate(v reflect.Value) (string, bool, error) {
	t := timeOf(v)
	if s := t.Unix(); s < firstSecond || s >= lastSecond {
		return "", false, errRange
	}
	return schema.Date(t).Wire(), t.IsZero(), nil
}

// dateForm is how nearly all dates are written. Package time reads it fastest by the layout of all RFC 3339.
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

// A time in a field of text keeps its nanoseconds, which a date does not have.
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
		return errFit // theirs quotes the value
	}
	setTime(v, t.UTC())
	return nil
}

var (
	longNumber = regexp.MustCompile(`[0-9.]{16}`)
	// notUTF8 is what encoding/json makes of bytes that are not UTF-8; the character U+FFFD it leaves as it is.
	notUTF8 = regexp.MustCompile(`(^|[^\\])(\\\\)*\\ufffd`)
)

// writeJSON writes as JavaScript does, but for numbers that it would round: they stay as they are.
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
	return json.Unmarshal([]byte(wire), v.Addr().Interface())
}
