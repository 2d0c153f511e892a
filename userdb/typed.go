package userdb

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"reflect"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/structs"
	"github.com/coffeenode/userdb/internal/typed"
	"github.com/coffeenode/userdb/schema"
)

// A Typed is a view of one declared type whose entries are structs. It is made by Of, and safe for concurrent use. Its verbs
// are those of Type, with their errors and round trips.
//
// What stands in a field of the struct, and in the facet of its tag:
//
//	Go type                     zero value         facet
//	string                      facet is absent    text; an empty one is read as ""
//	encoding.TextMarshaler      as its text says   text; an empty one is absent
//	time.Time                   facet is absent    date, cut to milliseconds; or text, which keeps all; UTC in both
//	numbers, bool               0, false           number (of integers all digits), boolean
//	slice, map, interface       nil: absent        json
//	struct, array               as it is           json
//	a pointer to one of these   nil: absent        what it points at, be it zero or empty
//
// A facet that is absent is read as the zero value, and stays absent where the field is left at that: only Create writes
// a 0 or false that nobody set. Where absent and zero differ, as for a number that may be unknown, the field is a pointer.
// The primary field holds the UID; where it is empty, Create makes one.
//
// A facet that the struct has no field for stays as it is. What is stored and does not fit into its field (300 into an int8)
// is ErrUnmarshal, what cannot be stored (NaN, a text that is not UTF-8) ErrInvalid; in both a *FieldError names the facet
// and the Go field.
type Typed[T any] struct {
	users *Type
	plan  *typed.Plan
}

// Of is a view of a type by the `userdb` tags of the struct T. Package schema, at From, says what a tag is. T may leave out
// any facet of the type, and any option in a tag. The error is a *schema.Error whose path is the Go field:
//
//   - T is not a struct, or has no tags; a tag cannot be read, or is that of a field that is not exported.
//   - Two fields have one name.
//   - The type does not declare a facet of that name, and is not open; or not with a role or rule that the tag names.
//   - The codec of the facet does not hold the Go type.
func Of[T any](t *Type) (*Typed[T], error) {
	t = t.now()
	refuses := func(field string) string {
		if field == store.FieldPassword {
			return "a password is set by its own verb"
		}
		return t.declared.Refuses(field)
	}
	plan, err := typed.New(reflect.TypeFor[T](), t.declared.Schema, refuses, reflect.TypeFor[Revision]())
	if err != nil {
		return nil, err
	}
	return &Typed[T]{t, plan}, nil
}

// A Revision says which revision of an entry a struct was read from: a field of this type with the tag "~rev" has it, in
// every struct that a Typed returns. It keeps the entry as it was read, by which Save knows what has been changed since. One
// that was made of text, in the hidden field of a form or in JSON, does not: it is there to be compared in Update. Revisions
// of two reads are not ==; their Strings are.
type Revision struct {
	rev  string
	read *Entry // nil: made of text
}

// String is the Rev of the entry.
func (r Revision) String() string { return r.rev }

// Entry is the entry as it was read, with all its facets; the zero Entry where the Revision was made of text.
func (r Revision) Entry() Entry {
	if r.read == nil {
		return Entry{}
	}
	return *r.read
}

// MarshalText gives String.
func (r Revision) MarshalText() ([]byte, error) { return []byte(r.rev), nil }

// UnmarshalText takes what String gave.
func (r *Revision) UnmarshalText(text []byte) error {
	*r = Revision{rev: string(text)}
	return nil
}

// New is what Create takes for a struct: to add a password and tags, and for other verbs that make an entry.
func (t *Typed[T]) New(v T) (NewEntry, error) {
	uid, facets, bad := t.plan.Facets(reflect.ValueOf(&v).Elem())
	if bad != nil {
		return NewEntry{}, invalid(bad.Field, "codec", bad.Reason)
	}
	return NewEntry{UID: uid, Facets: facets}, nil
}

// Read is an entry as a struct, for entries that other verbs return, such as Type.Login. Facets that were put into this
// copy are among those of the struct, and Save of it writes them.
func (t *Typed[T]) Read(e Entry) (T, error) {
	var v T
	err := t.fill(&v, e)
	if err != nil {
		v = *new(T)
	}
	return v, err
}

// fill reads an entry into a zero struct.
func (t *Typed[T]) fill(v *T, e Entry) error {
	if e.Type() != t.users.Name() {
		return notOfType(t.users)
	}
	into := reflect.ValueOf(v).Elem()
	if bad := t.plan.Read(into, e.wires()); bad != nil {
		return &FieldError{Err: ErrUnmarshal, Field: bad.Field, Rule: "type", Reason: bad.Reason}
	}
	if t.plan.Rev != nil {
		read := e // e itself would be allocated where there is no Revision, too
		at, _ := typed.At(into, t.plan.Rev, true)
		*at.Addr().Interface().(*Revision) = Revision{e.Rev(), &read}
	}
	return nil
}

// read is Read of what a verb returned, also where that is not confirmed.
func (t *Typed[T]) read(e Entry, err error) (T, error) {
	var zero T
	if !done(err) {
		return zero, err
	}
	v, bad := t.Read(e)
	return v, cmp.Or(bad, err)
}

// Create makes an entry of a struct, as Type.Create does, and returns it as written: with its UID.
func (t *Typed[T]) Create(ctx context.Context, v T) (T, error) {
	n, err := t.New(v)
	if err != nil {
		return t.read(Entry{}, err)
	}
	return t.read(t.users.Create(ctx, n))
}

// Find returns the entry that a hint points at, as Type.Find does.
func (t *Typed[T]) Find(ctx context.Context, h hints.Hint) (T, error) {
	return t.read(t.users.Find(ctx, h))
}

// Update reads an entry, lets f change the struct, and writes what differs, as Type.Update does: again where somebody else
// changed the entry meanwhile, so that f may run more than once. A change of the UID is ErrInvalid. f is not called where
// the entry does not fit into the struct.
func (t *Typed[T]) Update(ctx context.Context, h hints.Hint, f func(*T) error) (T, error) {
	return t.read(t.users.Update(ctx, h, func(e *Entry) error {
		v, err := t.Read(*e)
		if err == nil {
			err = f(&v)
		}
		if err != nil {
			return err
		}
		return t.edit(e, &v)
	}))
}

// Save writes what differs in a struct from the entry that it was read from, as Type.Save does. ErrConflict says that the
// entry has another revision by now (I6), ErrNotFound that it is gone. Where nothing differs, nothing is written. A struct
// without the Revision that it was read with is ErrInvalid: what it does not say could not be told from what is to be unset.
// Update is for that.
func (t *Typed[T]) Save(ctx context.Context, v T) (T, error) {
	e, err := t.source(&v)
	if err == nil {
		err = t.edit(&e, &v)
	}
	if err != nil {
		return t.read(Entry{}, err)
	}
	return t.read(t.users.Save(ctx, e))
}

// source is the entry that a struct was read from.
func (t *Typed[T]) source(v *T) (Entry, error) {
	if t.plan.Rev != nil {
		at, there := typed.At(reflect.ValueOf(v).Elem(), t.plan.Rev, false)
		if there {
			if rev := at.Addr().Interface().(*Revision); rev.read != nil {
				return *rev.read, nil
			}
		}
	}
	return Entry{}, invalid(structs.RevName, "struct", "not a struct that was read with its Revision")
}

// edit changes the copy of an entry to what a struct says.
func (t *Typed[T]) edit(e *Entry, v *T) error {
	edits := maps.Clone(e.edits)
	bad := t.plan.Changes(reflect.ValueOf(v).Elem(), e.wires(), func(field string, v *schema.Value) {
		if edits == nil {
			edits = map[string]*schema.Value{}
		}
		edits[field] = v
	})
	if bad != nil {
		return invalid(bad.Field, "codec", bad.Reason)
	}
	e.edits = edits
	return nil
}

// All yields the entries that a query selects, as Type.All does. One that does not fit into the struct yields its
// ErrUnmarshal, and the sequence goes on.
func (t *Typed[T]) All(ctx context.Context, q Query) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for e, err := range t.users.All(ctx, q) {
			if !yield(t.read(e, err)) {
				return
			}
		}
	}
}

// A PageOf is a Page of structs.
type PageOf[T any] struct {
	Entries    []T
	Next, Back string // as those of a Page
}

// Page returns some of the entries that a query selects, as Type.Page does. Those that do not fit into the struct are left
// out, too: the error is ErrUnmarshal then, beside the others, which are good.
func (t *Typed[T]) Page(ctx context.Context, q Query) (PageOf[T], error) {
	p, err := t.users.Page(ctx, q)
	var unfit leftOut
	all, n := make([]T, len(p.Entries)), 0
	for _, e := range p.Entries {
		if bad := t.fill(&all[n], e); bad != nil {
			all[n] = *new(T)
			unfit.add(bad)
			continue
		}
		n++
	}
	return PageOf[T]{all[:n:n], p.Next, p.Back}, cmp.Or(err, unfit.err())
}
