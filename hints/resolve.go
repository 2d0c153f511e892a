package hints

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// Resolve returns the records that h refers to under s. If typ is not "", h must not name another
// type. If typ is "", h must name a type. The keys lie in no namespace. The error is an *Error.
func (h Hint) Resolve(s schema.Schema, typ string) (Target, error) {
	h = h.unpair(s, typ)
	t, err := h.resolve(s, typ)
	if err != nil {
		return Target{}, &Error{Hint: h.String(), Reason: reasonOf(err)}
	}
	return t, nil
}

func (h Hint) resolve(s schema.Schema, callerType string) (Target, error) {
	var err error
	switch h.form { // errors that do not depend on the type
	case formKey:
		err = checkKey(h.key)
	case formText:
		err = checkText(s, h.value)
	}
	typ, typeErr := h.commonType(callerType)
	if err := cmp.Or(err, typeErr); err != nil {
		return Target{}, err
	}
	decl, ok := s.Types[typ]
	if !ok {
		return Target{}, errors.New("the schema has no type " + quoted(typ) + "; it has " + strings.Join(s.Names(), ", "))
	}
	r := resolver{typ, decl}
	switch h.form {
	case formAny:
		return r.resolveAny(h.value)
	case formField:
		return r.resolveField(h.field, h.value)
	case formUID, formText:
		return r.resolveField(decl.Primary, h.value)
	case formKey:
		return r.resolveKey(h.key)
	case formFacets:
		return r.resolveFacets(h.part)
	}
	return Target{}, errors.New("not a hint")
}

// commonType returns the type that h refers to. callerType is the type to which the caller
// restricts h, or "". If both h and the caller name a type, they must name the same one.
func (h Hint) commonType(callerType string) (typ string, err error) {
	for _, named := range [...]string{h.Type(), h.typ, callerType} {
		switch {
		case named == "" || named == typ:
		case typ == "":
			typ = named
		default:
			return "", errors.New("names type " + quoted(typ) + ", want " + quoted(named))
		}
	}
	if typ == "" {
		return "", errors.New("names no type")
	}
	return typ, nil
}

// unpair replaces a pair with its meaning under s: a type and a UID, or a field and a value.
func (h Hint) unpair(s schema.Schema, callerType string) Hint {
	if h.form != formPair {
		return h
	}
	_, isType := s.Types[h.field]
	switch {
	case isType:
		return UID(h.value).Of(h.field)
	case h.field == "*":
		return Any(h.value).Of(h.typ)
	case h.typ == "" && callerType == "":
		return UID(h.value).Of(h.field) // resolve refuses it, because the type does not exist
	}
	return Field(h.field, h.value).Of(h.typ)
}

func checkKey(k recordkey.Key) error {
	if ns := k.Namespace(); ns != (recordkey.Namespace{}) {
		return errors.New("lies in namespace " + quoted(ns.Path()) + ": open a view of it and use the key without the namespace")
	}
	if k.Kind() != recordkey.KindPRK && k.Kind() != recordkey.KindSRK {
		return errors.New(k.Kind().String() + ", want PRK or SRK")
	}
	return nil
}

// checkText refuses a text that begins like a key of a declared type but is not one. Otherwise it
// would be read as a UID.
func checkText(s schema.Schema, text string) error {
	typ, rest, _ := strings.Cut(text, "/")
	if _, ok := s.Types[typ]; !ok || !strings.Contains(rest, ":") {
		return nil
	}
	if _, err := recordkey.Parse(text); err != nil {
		return errors.New("not a record key: " + describeKeyError(err))
	}
	return nil
}

// A resolver resolves hints to entries of one type.
type resolver struct {
	typ  string
	decl schema.Type
}

func (r resolver) resolveField(field, value string) (Target, error) {
	decl, ok := r.decl.Fields[field]
	switch {
	case field == r.decl.Primary:
	case !ok:
		return Target{}, errors.New("type " + quoted(r.typ) + " has no such field")
	case !decl.Role.Has(schema.RoleSecondary):
		return Target{}, errors.New("not a secondary field of type " + quoted(r.typ))
	}
	k, err := r.keyOf(field, value)
	return Target{Type: r.typ, Field: field, Value: k.Value(), Keys: []recordkey.Key{k}}, err
}

// keyOf returns the PRK for the primary field, or the SRK for another field with the canonical
// value.
func (r resolver) keyOf(field, value string) (k recordkey.Key, err error) {
	switch {
	case value == "":
		return k, errors.New("no value")
	case len(value) > MaxValue:
		return k, fmt.Errorf("the value is over %d bytes", MaxValue)
	case field == r.decl.Primary:
		return recordkey.PRK(r.typ, field, value)
	}
	if value, _ = r.decl.Identifier(value); value == "" {
		return k, errors.New("the value is blank")
	}
	return recordkey.SRK(r.typ, field, value)
}

func (r resolver) resolveAny(value string) (Target, error) {
	k, err := r.keyOf("*", value) // checks the value even if there is no secondary field
	if err != nil {
		return Target{}, err
	}
	fields := r.decl.Typed()
	t := Target{Type: r.typ, Field: "*", Value: k.Value(), Keys: make([]recordkey.Key, len(fields))}
	for i, field := range fields {
		if t.Keys[i], err = recordkey.SRK(r.typ, field, t.Value); err != nil {
			return Target{}, err
		}
	}
	return t, nil
}

// patternForAny returns a pattern for a canonical value in any field, declared or not.
func patternForAny(typ, value string) string {
	return recordkey.Pattern{Kind: recordkey.KindSRK, Type: typ, Value: value}.String()
}

// resolveKey resolves a PRK or an SRK.
func (r resolver) resolveKey(k recordkey.Key) (Target, error) {
	isPrimary := k.Field() == r.decl.Primary
	switch {
	case k.Kind() == recordkey.KindPRK && !isPrimary:
		return Target{}, errors.New("not a PRK: the primary field of type " + quoted(r.typ) + " is " + quoted(r.decl.Primary))
	case k.Kind() == recordkey.KindSRK && isPrimary:
		return Target{}, errors.New("not an SRK: " + quoted(k.Field()) + " is the primary field of type " + quoted(r.typ))
	}
	return r.resolveField(k.Field(), k.Value())
}

func (r resolver) resolveFacets(part schema.Facets) (Target, error) {
	uid, err := identifier(part, r.decl.Primary)
	prk, prkErr := identifier(part, facetPRK)
	switch err = cmp.Or(err, prkErr); {
	case err != nil:
		return Target{}, err
	case prk != "":
		return r.resolveEntryKey(prk, uid)
	case uid != "":
		return r.resolveField(r.decl.Primary, uid)
	}
	return r.resolveSecondaries(part)
}

// identifier returns the text of a facet that identifies an entry, or "" if the entry lacks it.
func identifier(part schema.Facets, field string) (text string, err error) {
	v, ok := part[field]
	if !ok || v.IsNull() {
		return "", nil
	}
	if c := v.Codec(); c != schema.CodecText && c != schema.CodecIdentity {
		return "", errors.New("facet " + quoted(field) + " is not a string")
	}
	if v.Text() == "" {
		return "", errors.New("facet " + quoted(field) + " is empty")
	}
	return v.Text(), nil
}

// resolveEntryKey resolves the ~prk of an entry. If the entry has a primary facet, the two must
// agree.
func (r resolver) resolveEntryKey(prk, uid string) (Target, error) {
	if len(prk) > maxKey {
		return Target{}, errors.New("~prk is too long")
	}
	k, err := recordkey.Parse(prk)
	switch elsewhere := checkKey(k); {
	case err != nil || k.Kind() != recordkey.KindPRK:
		return Target{}, errors.New("~prk is not a PRK")
	case elsewhere != nil:
		return Target{}, fmt.Errorf("~prk %w", elsewhere)
	case k.Type() != r.typ:
		return Target{}, errors.New("~prk is of type " + quoted(k.Type()) + ", want " + quoted(r.typ))
	case uid != "" && k.Value() != uid:
		return Target{}, errors.New("~prk and facet " + quoted(r.decl.Primary) + " differ")
	}
	return r.resolveKey(k)
}

func (r resolver) resolveSecondaries(part schema.Facets) (Target, error) {
	t := Target{Type: r.typ}
	for _, field := range r.decl.Secondary() {
		value, err := identifier(part, field)
		if value == "" && err == nil {
			continue
		}
		k, keyErr := r.keyOf(field, value)
		if err := cmp.Or(err, keyErr); err != nil {
			return Target{}, err
		}
		t.Keys = append(t.Keys, k)
	}
	if len(t.Keys) == 0 {
		return Target{}, errors.New("has neither the primary nor a secondary facet of type " + quoted(r.typ))
	}
	t.Field, t.Value, t.All = t.Keys[0].Field(), t.Keys[0].Value(), len(t.Keys) > 1
	return t, nil
}

// reasonOf returns the text of an error without the key or value that it quotes.
func reasonOf(err error) string {
	if syntax, ok := errors.AsType[*recordkey.SyntaxError](err); ok {
		return syntax.Reason
	}
	if value, ok := errors.AsType[*schema.ValueError](err); ok {
		return value.Reason
	}
	return err.Error()
}

// describeKeyError returns the reason for an error about a key, preceded by the position in the
// key.
func describeKeyError(err error) string {
	if syntax, ok := errors.AsType[*recordkey.SyntaxError](err); ok {
		return "at byte " + strconv.Itoa(syntax.At) + ": " + syntax.Reason
	}
	return err.Error()
}
