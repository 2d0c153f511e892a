package change

import (
	"errors"
	"slices"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/schema"
)

// ErrUnproven means that an entry was self-registered, and that nobody has proved yet that they own
// its address. A stranger may have registered it, and must not add anything that lets them in after
// the owner of the address has taken over the entry.
var ErrUnproven = errors.New("the address is not verified yet")

func unproven(field, reason string) error {
	return &store.FieldError{Err: ErrUnproven, Field: field, Rule: "unproven", Reason: reason}
}

// CheckUnproven returns an error if a change makes or changes an unproven entry and adds a second
// factor, a further value or a second address, or sets an identifier that nobody types, such as
// that of a passkey.
func (t *Type) CheckUnproven(old store.Record, facets, own map[string]string) error {
	if mark := own[factor.FieldMark]; mark != "" && mark != old.Fields[factor.FieldMark] {
		return unproven("factor", "no second factor can be added until the address is verified")
	}
	for name := range furtherAfter(old.Fields, own) {
		if f, ok := store.ParseFurther(name, own[name]); ok && old.Fields[name] == "" {
			return unproven(f.Field, "no further value can be added until the address is verified")
		}
	}
	addresses, changed := 0, ""
	for _, field := range t.Secondary {
		wire, has := facets[field]
		if !has {
			continue
		}
		changes := wire != old.Fields[field]
		switch f := t.Schema.Fields[field]; {
		case !f.IsTyped() && changes:
			return unproven(field, "this identifier cannot be added until the address is verified")
		case f.HasAddresses():
			if addresses++; changes {
				changed = field
			}
		}
	}
	if addresses > 1 && changed != "" {
		return unproven(changed, "no second address can be added until the first is verified")
	}
	return nil
}

// givesUpAddress reports whether an entry has an address in a secondary field, first or further,
// that it lacks after a change. An unproven entry then loses its tags: they may have been given to
// the owner of that address, and the visitor who registered the entry may verify another one.
func (t *Type) givesUpAddress(old store.Record, facets, own map[string]string) bool {
	after := t.addresses(WithFurther(old, facets, own))
	for address := range t.addresses(old.Fields) {
		if !after[address] {
			return true
		}
	}
	return false
}

// addresses returns the canonical forms of all mail addresses in the secondary fields of an entry.
func (t *Type) addresses(fields map[string]string) map[string]bool {
	all := map[string]bool{}
	for _, v := range appendWritten(nil, t.Secondary, fields, store.FurtherIn(fields, "")) {
		if t.Schema.Fields[v.field].HasAddresses() {
			all[t.Schema.Canonical(v.value)] = true
		}
	}
	return all
}

// EndUnproven changes facets and own after somebody has shown that they own a value of an unproven
// entry, which is then no longer unproven. Unless keep is true, it also ends every access of the
// person who registered the entry: the password, sessions, tokens, second factors and, as
// dropOthers does, other identifiers.
//
// If the entry has an address in a secondary field, a value that is not an address proves nothing.
func (t *Type) EndUnproven(old store.Record, facets, own map[string]string, proved Proved, now time.Time, keep bool) {
	isAddress := t.Schema.Fields[proved.Field].HasAddresses()
	if old.Fields[store.FieldUnproven] == "" || !isAddress && len(t.addresses(facets)) > 0 {
		return
	}
	own[store.FieldUnproven] = ""
	if keep {
		return
	}
	SetPassword(old, now, "", facets, own)
	delete(facets, store.FieldPassword)
	own[factor.FieldMark], own[factor.FieldHash] = "", ""
	t.dropOthers(old, facets, own, proved)
}

// A Proved names a value whose owner has shown that they receive what is sent to it. The zero
// Proved names no value.
type Proved struct{ Field, Written string }

// dropOthers removes from facets and own the values that may lead to the person who registered the
// entry: all further values, all values of secondary fields except the proved one and names, and
// the addresses in other fields. A required facet stays. If its field is secondary, no secrets are
// sent to it until it is verified.
func (t *Type) dropOthers(old store.Record, facets, own map[string]string, proved Proved) {
	for name := range furtherAfter(old.Fields, own) {
		own[name] = ""
	}
	for _, field := range t.Secondary {
		written, has := facets[field]
		switch {
		case field == proved.Field:
			facets[field] = proved.Written
			Verify(field, proved.Written, own)
		case !has || IsName(t.Schema.Fields[field]):
		case slices.Contains(t.Required, field):
			own[store.FieldVerified(field)] = store.Unverified(written)
		default:
			delete(facets, field)
		}
	}
	for field, f := range t.Schema.Fields {
		if f.HasAddresses() && !slices.Contains(t.Secondary, field) && !slices.Contains(t.Required, field) {
			delete(facets, field)
		}
	}
}

// IsName reports whether the values of a field are names, to which nothing can be sent.
func IsName(f schema.Field) bool { return f.Kind == "username" || f.Kind == "nickname" }
