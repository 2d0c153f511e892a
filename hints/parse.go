package hints

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

const (
	maxJSON = 1 << 20  // bytes
	maxKey  = 16 << 10 // bytes of a key: more than three escaped parts of the maximum length
)

// Parse parses an operator's text. It tries these forms in order:
//
//   - the JSON of a hint, if the text begins with [ or {; see ParseJSON
//   - FIELD=VALUE, or *=VALUE for a value of any typed secondary field; FIELD contains no slash or
//     colon and does not begin with a tilde
//   - a record key; in an SRK, the field * means any typed secondary field
//   - a UID
//
// A value that these forms cannot express needs JSON: ["user","a=b"] is the UID a=b. Resolve
// refuses a text that begins like a key of a declared type but is not one, for example because of
// the space in "user/name:a b/~prk". The error is an *Error if the text is empty, too long or
// invalid JSON.
func Parse(text string) (Hint, error) {
	if json := strings.TrimLeft(text, jsonSpace); json != "" && (json[0] == '[' || json[0] == '{') {
		return ParseJSON([]byte(json))
	}
	return parseText(text)
}

func parseText(text string) (Hint, error) {
	if text == "" {
		return Hint{}, &Error{Reason: "empty hint"}
	}
	if len(text) > maxKey {
		return Hint{}, hintError(text, fmt.Sprintf("over %d bytes", maxKey))
	}
	if field, value, ok := cutField(text); ok {
		if field == "*" {
			return Any(value), nil
		}
		return Field(field, value), nil
	}
	k, err := recordkey.Parse(text)
	if err != nil {
		return Hint{form: formText, value: text}, nil
	}
	if k.Kind() == recordkey.KindSRK && k.Field() == "*" && k.Namespace() == (recordkey.Namespace{}) {
		return Any(k.Value()).Of(k.Type()), nil
	}
	return Key(k), nil
}

func cutField(text string) (field, value string, ok bool) {
	i := strings.IndexAny(text, "=/:")
	if i < 0 || text[i] != '=' || text[0] == '~' {
		return "", "", false
	}
	return text[:i], text[i+1:], true
}

// ParseJSON parses a hint in one of the forms of CoffeeNode UserDB, the original of this store:
//
//   - a triplet [type, field, value]
//   - a pair, which means [type, primary value] if the schema passed to Resolve has such a type,
//     and [field, value] otherwise
//   - an object: an entry or a part of one
//   - a string: any text that Parse accepts, except JSON
//
// In a list, the field "*" means any typed secondary field. The JSON may have 1 MiB and nest as
// deeply as schema.JSON allows. The error is an *Error.
func ParseJSON(b []byte) (Hint, error) {
	text, list, part, err := readJSON(b, "neither a list, an object nor a string")
	switch {
	case err != nil:
		return Hint{}, err
	case part != nil:
		return Hint{form: formFacets, part: part}, nil
	case list == nil:
		return parseText(text)
	case len(list) == 2:
		return Hint{form: formPair, field: list[0], value: list[1]}, nil
	case len(list) != 3:
		return Hint{}, refuseJSON(b, fmt.Sprintf("list of %d, want two or three", len(list)))
	case list[1] == "*":
		return Any(list[2]).Of(list[0]), nil
	}
	return Field(list[1], list[2]).Of(list[0]), nil
}

// refuseJSON returns the error that refuses JSON. It does not quote an object, because that may be
// an entry with its password hash.
func refuseJSON(b []byte, reason string) error {
	if b = bytes.TrimLeft(b, jsonSpace); len(b) > 0 && b[0] == '{' {
		return &Error{Hint: Hint{form: formFacets}.String(), Reason: reason}
	}
	return hintError(string(b[:min(len(b), maxShown+1)]), reason)
}

const jsonSpace = " \t\r\n"

// readJSON reads a string, a list of strings or an object with facets, and sets only the result for
// the form that it finds. For any other JSON value, the reason in the error is otherReason.
func readJSON(b []byte, otherReason string) (text string, list []string, part schema.Facets, err error) {
	switch {
	case len(b) > maxJSON:
		err = fmt.Errorf("over %d bytes", maxJSON)
	case !utf8.Valid(b):
		err = errors.New("not UTF-8")
	case !json.Valid(b):
		err = errors.New("not valid JSON")
	default:
		switch value := bytes.TrimLeft(b, jsonSpace); value[0] {
		case '[':
			list, err = readList(value)
		case '{':
			part, err = readObject(value)
		case '"':
			text = unquote(value)
		default:
			err = errors.New(otherReason)
		}
	}
	if err != nil {
		return "", nil, nil, refuseJSON(b, err.Error())
	}
	return text, list, part, nil
}

func readList(b []byte) ([]string, error) {
	var raws []json.RawMessage
	_ = json.Unmarshal(b, &raws) // b is a valid list
	list := make([]string, len(raws))
	for i, raw := range raws {
		if raw[0] != '"' {
			return nil, fmt.Errorf("element %d is not a string", i+1)
		}
		list[i] = unquote(raw)
	}
	return list, nil
}

// unquote decodes a valid JSON string. An unpaired surrogate becomes U+FFFD, as in JavaScript.
func unquote(b []byte) (text string) {
	_ = json.Unmarshal(b, &text)
	return text
}

// readObject reads the facets of an entry. It keeps facets that are not text as JSON, because they
// do not identify an entry.
func readObject(b []byte) (schema.Facets, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	_, _ = dec.Token() // Token cannot fail on valid JSON
	part := schema.Facets{}
	for dec.More() {
		name, _ := dec.Token()
		field := fmt.Sprint(name)
		if _, again := part[field]; again {
			return nil, errors.New("facet " + quoted(field) + " appears twice")
		}
		var raw json.RawMessage
		_ = dec.Decode(&raw)
		v, err := facet(raw)
		if err != nil {
			return nil, errors.New("facet " + quoted(field) + ": " + reasonOf(err))
		}
		part[field] = v
	}
	return part, nil
}

func facet(raw json.RawMessage) (schema.Value, error) {
	switch raw[0] {
	case '"':
		return schema.Text(unquote(raw)), nil
	case 'n':
		return schema.Null(), nil
	}
	return schema.JSON(raw)
}
