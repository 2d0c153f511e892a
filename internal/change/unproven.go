package change

import (
	"errors"
	"slices"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
)

// ErrUnproven means that an entry was self-registered, and that nobody has proved yet that they own
// its address. A stranger may have registered it, and must not add anything that lets them in after
// the owner of the address has taken over the entry.
var ErrUnproven = errors.New("the address is not verified yet")

func unproven(field, reason string) error {
	return &store.FieldError{Err: ErrUnproven, Field: field, Rule: "unproven", Reason: reason}
}

// CheckUnproven returns an error if a change of an unproven entry, or of a new one, adds a second
// factor, a further value, a second address, or an identifier that nobody types, such as that of a
// passkey. Values may be replaced.
func (t *Type) CheckUnproven(old store.Record, facets, own map[string]string) error {
	if mark := own[factor.FieldMark]; mark != "" && mark != old.Fields[factor.FieldMark] {
		return unproven("factor", "no second factor can be added until the address is verified")
	}
	for name := range furtherAfter(old.Fields, own) {
		if f, is := store.ParseFurther(name, own[name]); is && old.Fields[name] == "" {
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

// givesUpAddress reports whether an entry has an address that facets lack. An unproven entry then
// loses its tags: they may have been given to the owner of that address, and the visitor who
// registered the entry may verify another one.
func (t *Type) givesUpAddress(old store.Record, facets map[string]string) bool {
	stays := map[string]bool{}
	for _, field := range t.Secondary {
		if wire, has := facets[field]; has && t.Schema.Fields[field].HasAddresses() {
			stays[t.Schema.Canonical(wire)] = true
		}
	}
	return slices.ContainsFunc(t.Secondary, func(field string) bool {
		wire, has := old.Fields[field]
		return has && t.Schema.Fields[field].HasAddresses() && !stays[t.Schema.Canonical(wire)]
	})
}

// EndUnproven changes facets and own after somebody has shown that they own a value of an unproven
// entry. The entry is then no longer unproven. Unless keep is true, it also ends the access of the
// person who registered the entry: the password, sessions and tokens.
//
// If the entry has an address, a value that is not an address proves nothing.
func (t *Type) EndUnproven(old store.Record, facets, own map[string]string, field string, now time.Time, keep bool) {
	if old.Fields[store.FieldUnproven] == "" || !t.Schema.Fields[field].HasAddresses() && t.hasAddress(facets) {
		return
	}
	own[store.FieldUnproven] = ""
	if keep {
		return
	}
	SetPassword(old, now, "", facets, own)
	delete(facets, store.FieldPassword)
}

// hasAddress reports whether facets contain an address by which the entry can be found.
func (t *Type) hasAddress(facets map[string]string) bool {
	for _, field := range t.Secondary {
		if _, has := facets[field]; has && t.Schema.Fields[field].HasAddresses() {
			return true
		}
	}
	return false
}
