package hints

import (
	"errors"
	"strconv"
	"strings"

	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// Resolve says which records h means under s. In the view of one type, typ is that type, and h
// may name no other; "" is for all types of the store, and h must name a type itself. The keys lie in
// no namespace. Anything that cannot be resolved is an *Error.
func (h Hint) Resolve(s schema.Schema, typ string) (Target, error) {
	h = h.unpair(s, typ)
	r := resolver{hint: h}
	reason := h.check(s)
	if reason != "" {
		return r.refuse(reason)
	}
	if r.typ, reason = h.typeIn(typ); reason != "" {
		return r.refuse(reason)
	}
	var ok bool
	if r.decl, ok = s.Types[r.typ]; !ok {
		return r.refuse("the schema has no type " + shown(r.typ))
	}
	return r.resolve()
}

// typeIn is the type that is meant in the view of a type: all that name one must agree.
func (h Hint) typeIn(view string) (typ, reason string) {
	for _, named := range [...]string{h.Type(), h.typ, view} {
		switch {
		case named == "" || named == typ:
		case typ == "":
			typ = named
		default:
			return "", "names type " + shown(typ) + ", wanted is " + shown(named)
		}
	}
	if typ == "" {
		return "", "names no type"
	}
	return typ, ""
}

// unpair tells a pair that begins with a type from one that begins with a field.
func (h Hint) unpair(s schema.Schema, view string) Hint {
	if h.form != formPair {
		return h
	}
	_, isType := s.Types[h.field]
	switch {
	case isType:
		return UID(h.value).Of(h.field)
	case h.field == "*":
		return Any(h.value).Of(h.typ)
	case h.typ == "" && view == "":
		return UID(h.value).Of(h.field) // and refused, for there is no such type
	}
	return Field(h.field, h.value).Of(h.typ)
}

// check refuses what is wrong whatever the type.
func (h Hint) check(s schema.Schema) (reason string) {
	switch h.form {
	case formKey:
		return checkKey(h.key)
	case formText:
		return checkText(s, h.value)
	}
	return ""
}

func checkKey(k recordkey.Key) (reason string) {
	if ns := k.Namespace(); ns != (recordkey.Namespace{}) {
		return "lies in namespace " + shown(ns.Path()) + ": use a view of it, and the key as it is there"
	}
	if k.Kind() != recordkey.KindPRK && k.Kind() != recordkey.KindSRK {
		return k.Kind().String() + ", want PRK or SRK"
	}
	return ""
}

// checkText refuses for a UID what was plainly meant to be a key.
func checkText(s schema.Schema, text string) (reason string) {
	typ, rest, ok := strings.Cut(text, "/")
	if !ok || !strings.Contains(rest, ":") {
		return ""
	}
	if _, ok := s.Types[typ]; !ok {
		return ""
	}
	if _, err := recordkey.Parse(text); err != nil {
		return "no record key: " + placeOf(err)
	}
	return ""
}

// resolver resolves one hint whose type is known.
type resolver struct {
	hint Hint
	typ  string
	decl schema.Type
}

func (r resolver) refuse(reason string) (Target, error) {
	return Target{}, &Error{Hint: r.hint.String(), Reason: reason}
}

func (r resolver) resolve() (Target, error) {
	h := r.hint
	switch h.form {
	case formAny:
		return r.any(h.value)
	case formField:
		return r.field(h.field, h.value)
	case formUID, formText:
		return r.primary(h.value)
	case formKey:
		return r.key(h.key)
	case formFacets:
		return r.facets(h.part)
	}
	return r.refuse("no hint")
}

func (r resolver) primary(value string) (Target, error) {
	if reason := checkValue(value); reason != "" {
		return r.refuse(reason)
	}
	k, err := recordkey.PRK(r.typ, r.decl.Primary, value)
	if err != nil {
		return r.refuse(reasonOf(err))
	}
	return Target{Type: r.typ, Field: r.decl.Primary, Value: value, Keys: []recordkey.Key{k}}, nil
}

func (r resolver) field(field, value string) (Target, error) {
	if field == r.decl.Primary {
		return r.primary(value)
	}
	if reason := r.checkSecondary(field); reason != "" {
		return r.refuse(reason)
	}
	k, reason := r.srk(field, value)
	if reason != "" {
		return r.refuse(reason)
	}
	return Target{Type: r.typ, Field: field, Value: k.Value(), Keys: []recordkey.Key{k}}, nil
}

func (r resolver) checkSecondary(field string) (reason string) {
	decl, ok := r.decl.Fields[field]
	if !ok {
		return "type " + shown(r.typ) + " has no such field"
	}
	if decl.Role != schema.RoleSecondary {
		return "no secondary field of type " + shown(r.typ)
	}
	return ""
}

// srk makes value canonical.
func (r resolver) srk(field, value string) (k recordkey.Key, reason string) {
	if reason = checkValue(value); reason != "" {
		return k, reason
	}
	if value = r.decl.Canonical(value); value == "" {
		return k, "the value is blank"
	}
	k, err := recordkey.SRK(r.typ, field, value)
	if err != nil {
		return k, reasonOf(err)
	}
	return k, ""
}

func checkValue(value string) (reason string) {
	switch {
	case value == "":
		return "no value"
	case len(value) > MaxValue:
		return "the value is over " + strconv.Itoa(MaxValue) + " bytes"
	}
	return ""
}

// reasonOf keeps of an error about a key or a value what does not quote its input.
func reasonOf(err error) string {
	var syntax *recordkey.SyntaxError
	var value *schema.ValueError
	switch {
	case errors.As(err, &syntax):
		return syntax.Reason
	case errors.As(err, &value):
		return value.Reason
	}
	return err.Error()
}

// placeOf is reasonOf with the position.
func placeOf(err error) string {
	var syntax *recordkey.SyntaxError
	if errors.As(err, &syntax) {
		return "at byte " + strconv.Itoa(syntax.At) + ": " + syntax.Reason
	}
	return err.Error()
}

func (r resolver) any(value string) (Target, error) {
	k, reason := r.srk("*", value) // checks it where there is no secondary field, too
	if reason != "" {
		return r.refuse(reason)
	}
	value = k.Value()
	fields := r.decl.Secondary()
	t := Target{Type: r.typ, Field: "*", Value: value, Keys: make([]recordkey.Key, len(fields))}
	for i, field := range fields {
		var err error
		if t.Keys[i], err = recordkey.SRK(r.typ, field, value); err != nil {
			return r.refuse(reasonOf(err))
		}
	}
	t.Pattern = anyPattern(r.typ, value)
	return t, nil
}

// anyPattern finds a canonical value under every field, declared or not.
func anyPattern(typ, value string) string {
	return recordkey.Pattern{Kind: recordkey.KindSRK, Type: typ, Value: value}.String()
}

// key resolves a PRK or an SRK.
func (r resolver) key(k recordkey.Key) (Target, error) {
	isPrimary := k.Field() == r.decl.Primary
	switch {
	case k.Kind() == recordkey.KindPRK && !isPrimary:
		return r.refuse("no PRK: the primary field of type " + shown(r.typ) + " is " + shown(r.decl.Primary))
	case k.Kind() == recordkey.KindSRK && isPrimary:
		return r.refuse("no SRK: " + shown(k.Field()) + " is the primary field of type " + shown(r.typ))
	}
	return r.field(k.Field(), k.Value())
}

func (r resolver) facets(part schema.Facets) (Target, error) {
	uid, reason := identifier(part, r.decl.Primary)
	if reason != "" {
		return r.refuse(reason)
	}
	prk, reason := identifier(part, facetPRK)
	switch {
	case reason != "":
		return r.refuse(reason)
	case prk != "":
		return r.entryKey(prk, uid)
	case uid != "":
		return r.primary(uid)
	}
	return r.secondaries(part)
}

// identifier is the text of a facet that points at an entry, "" where the entry has none.
func identifier(part schema.Facets, field string) (text, reason string) {
	v, ok := part[field]
	if !ok || v.IsNull() {
		return "", ""
	}
	if c := v.Codec(); c != schema.CodecText && c != schema.CodecIdentity {
		return "", "facet " + shown(field) + " is no text"
	}
	if v.Text() == "" {
		return "", "facet " + shown(field) + " is empty"
	}
	return v.Text(), ""
}

// entryKey resolves an entry's own PRK, with which its primary facet, if known, must agree.
func (r resolver) entryKey(prk, uid string) (Target, error) {
	if len(prk) > maxKey {
		return r.refuse("~prk is too long")
	}
	k, err := recordkey.Parse(prk)
	if err != nil || k.Kind() != recordkey.KindPRK {
		return r.refuse("~prk is no PRK")
	}
	if reason := checkKey(k); reason != "" {
		return r.refuse("~prk " + reason)
	}
	if k.Type() != r.typ {
		return r.refuse("~prk is of type " + shown(k.Type()) + ", wanted is " + shown(r.typ))
	}
	if uid != "" && k.Value() != uid {
		return r.refuse("~prk and facet " + shown(r.decl.Primary) + " differ")
	}
	return r.key(k)
}

func (r resolver) secondaries(part schema.Facets) (Target, error) {
	t := Target{Type: r.typ}
	for _, field := range r.decl.Secondary() {
		value, reason := identifier(part, field)
		if value == "" && reason == "" {
			continue
		}
		var k recordkey.Key
		if reason == "" {
			k, reason = r.srk(field, value)
		}
		if reason != "" {
			return r.refuse(reason)
		}
		t.Keys = append(t.Keys, k)
	}
	if len(t.Keys) == 0 {
		return r.refuse("has neither the primary nor a secondary facet of type " + shown(r.typ))
	}
	t.Field, t.Value, t.All = t.Keys[0].Field(), t.Keys[0].Value(), len(t.Keys) > 1
	return t, nil
}
