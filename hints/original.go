package hints

import (
	"fmt"

	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// AsEntry implements resolve_entry_hint of CoffeeNode UserDB, the original of this store, for a
// hint in JSON: a string that is a PRK or an SRK, a pair of type and primary value, or a triplet of
// type, field and value. As in the original, the type in a list must be declared, but neither the
// field nor the type in a key needs to be. For the field "*", the quintuplet contains a pattern for
// SCAN in place of the key. Unlike the original, AsEntry escapes all parts of a key and returns
// canonical values. It returns an *Error for all other hints, including entries.
func AsEntry(s schema.Schema, b []byte) (Quintuplet, error) {
	text, list, err := textOrList(b)
	switch {
	case err != nil:
		return Quintuplet{}, err
	case list == nil:
		return analyzeUnder(s, text)
	case len(list) != 2 && len(list) != 3:
		return Quintuplet{}, refuseJSON(b, fmt.Sprintf("list of %d, want two or three", len(list)))
	}
	t, ok := s.Types[list[0]]
	switch {
	case !ok:
		return Quintuplet{}, refuseJSON(b, "the schema has no type "+quoted(list[0]))
	case len(list) == 2:
		return quintupletOf(s, list[0], t.Primary, list[1])
	}
	return quintupletOf(s, list[0], list[1], list[2])
}

// AsUser implements CoffeeNode UserDB's resolve_user_entry_hint, which resolves hints for entries
// of one type. Here that is typ, which must be declared; in the original it is always user. A
// string is a PRK or SRK of any type, or else a UID; a list is a pair of field and value. Otherwise
// AsUser behaves like AsEntry.
func AsUser(s schema.Schema, typ string, b []byte) (Quintuplet, error) {
	t, ok := s.Types[typ]
	if !ok {
		return Quintuplet{}, refuseJSON(b, "the schema has no type "+quoted(typ))
	}
	text, list, err := textOrList(b)
	switch {
	case err != nil:
		return Quintuplet{}, err
	case list == nil:
		if q, err := analyzeUnder(s, text); err == nil {
			return q, nil
		}
		return quintupletOf(s, typ, t.Primary, text)
	case len(list) != 2:
		return Quintuplet{}, refuseJSON(b, fmt.Sprintf("list of %d, want two", len(list)))
	}
	return quintupletOf(s, typ, list[0], list[1])
}

// textOrList reads a string or a list from JSON; list is nil for a string. Like the original, it
// also reads an object whose ~isa is "list" as a list, and refuses every other object.
func textOrList(b []byte) (text string, list []string, err error) {
	text, list, part, err := readJSON(b, "neither a list nor a string")
	if part == nil {
		return text, list, err
	}
	if part[facetType] != schema.Text("list") {
		return "", nil, refuseJSON(b, "an entry")
	}
	n, _ := part["length"].JSON()
	for i := 0; fmt.Sprint(i) != string(n); i++ {
		v, ok := part[fmt.Sprint(i)]
		if !ok || v.Codec() != schema.CodecText {
			return "", nil, refuseJSON(b, fmt.Sprintf("element %d is not a string", i+1))
		}
		list = append(list, v.Text())
	}
	return "", list, nil
}

// quintupletOf returns the quintuplet for a field and value. The type need not be declared. For the
// field *, for which no record exists, it contains a pattern in place of the key.
func quintupletOf(s schema.Schema, typ, field, value string) (Quintuplet, error) {
	t, ok := s.Types[typ]
	if !ok {
		t.Fold = schema.FoldExact
	}
	k, err := resolver{typ, t}.keyOf(field, value)
	if err != nil {
		return Quintuplet{}, &Error{Hint: Field(field, value).String(), Reason: reasonOf(err)}
	}
	q := quintuplet(k)
	if field == "*" {
		q[1] = patternForAny(typ, k.Value())
	}
	return q, nil
}

// analyzeUnder returns the quintuplet for a key. It makes the value of an SRK canonical if its type
// is declared.
func analyzeUnder(s schema.Schema, text string) (Quintuplet, error) {
	k, err := prkOrSRK(text, 0)
	if err != nil {
		return Quintuplet{}, err
	}
	t, ok := s.Types[k.Type()]
	if k.Kind() == recordkey.KindPRK || !ok || t.Primary == k.Field() {
		return quintuplet(k), nil
	}
	return quintupletOf(s, k.Type(), k.Field(), k.Value())
}

// Split implements CoffeeNode UserDB's split_record_key: it returns the type, field and value of a
// PRK or an SRK. If only is not zero, it accepts only keys of that kind. The results are escaped as
// in the key; recordkey.Unescape decodes them. The error is an *Error for all other keys, including
// keys in a namespace.
func Split(text string, only recordkey.Kind) ([3]string, error) {
	q, err := Analyze(text, only)
	return [3]string(q[2:]), err
}

// Analyze implements CoffeeNode UserDB's analyze_record_key: it returns the same as Split, preceded
// by the kind and the key itself.
func Analyze(text string, only recordkey.Kind) (Quintuplet, error) {
	k, err := prkOrSRK(text, only)
	if err != nil {
		return Quintuplet{}, err
	}
	q := quintuplet(k)
	for i := range q[2:] {
		q[2+i] = recordkey.Escape(q[2+i])
	}
	return q, nil
}

func prkOrSRK(text string, only recordkey.Kind) (k recordkey.Key, err error) {
	want := "want PRK or SRK"
	if only != 0 {
		want = "want " + only.String()
	}
	if len(text) > maxKey {
		return k, hintError(text, want+": too long")
	}
	k, err = recordkey.Parse(text)
	switch {
	case err != nil:
		err = hintError(text, want+": "+describeKeyError(err))
	case k.Namespace() != (recordkey.Namespace{}):
		err = hintError(text, want+": it lies in a namespace")
	case k.Kind() != recordkey.KindPRK && k.Kind() != recordkey.KindSRK || only != 0 && k.Kind() != only:
		err = hintError(text, want+", got "+k.Kind().String())
	}
	return k, err
}
