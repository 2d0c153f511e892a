package userdb

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"reflect"
	"slices"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/structs"
	"github.com/coffeenode/userdb/internal/typed"
)

// A Typed is a view of one type of entries as structs. It is made by Of and is safe for concurrent
// use. Its methods are those of Type, with the same errors and round trips.
//
// Fields of the struct map to facets as follows:
//
//	Go type                     zero value         facet
//	string                      facet is absent    text; an empty one is read as ""
//	encoding.TextMarshaler      by its text        text; an empty one is absent
//	time.Time                   facet is absent    UTC: date to the millisecond, or text in full
//	numbers, bool               0, false           number (integers in full precision), boolean
//	slice, map, interface       nil: absent        json
//	struct, array               stored             json
//	pointer to one of these     nil: absent        the value it points to, even if zero or empty
//
// An absent facet is read as the zero value, and stays absent if the field still has that value
// when it is saved; only Create writes a 0 or false that was not set. If absent and zero differ, as
// for a number that may be unknown, use a pointer. The primary field holds the UID; if it is empty,
// Create generates one.
//
// A field of type []string with the option set holds the members of a tertiary set, in sorted
// order. Reading one or many entries takes one more round trip for all sets. Create writes the sets
// in the same change as the facets; so do Update and Save if the struct has other members than were
// read. FromEntry leaves the field nil unless the members are known; see Entry.Members.
//
// Before Update and Save write a set, they read it again, in one more round trip. If a method of
// Set has added or removed members meanwhile, Update starts again and Save returns ErrConflict.
// Such a change is still undone if it comes between this read and the write. So do not put a set
// that decides about rights into a struct; use Set.Add and Set.Remove.
//
// A facet for which the struct has no field does not change. A stored facet that does not fit its
// field, such as 300 in an int8, is ErrUnmarshal. A value that cannot be stored, such as NaN or
// text that is not UTF-8, is ErrInvalid. In both cases a *FieldError names the facet and the Go
// field.
type Typed[T any] struct {
	users *Type
	plan  *typed.Plan
}

// Of returns a view of a type as the struct T with `userdb` tags, which schema.From describes. T
// may omit any facet of the type, and tags may omit any option. The error is a *schema.Error, whose
// path is the Go field, if one of these is true:
//
//   - T is not a struct or has no tags, or a tag is malformed or on a field that is not exported.
//   - Two fields have the same name.
//   - The type is not open and does not declare the facet, or not with the role or rule in the tag.
//   - The codec of the facet cannot hold the Go type.
func Of[T any](t *Type) (*Typed[T], error) {
	t = t.current()
	refuses := func(field string) string {
		if field == store.FieldPassword {
			return "the password is not a facet"
		}
		return t.declared.RefusalReason(field)
	}
	plan, err := typed.New(reflect.TypeFor[T](), t.declared.Schema, refuses, reflect.TypeFor[Revision]())
	if err != nil {
		return nil, err
	}
	return &Typed[T]{t, plan}, nil
}

// A Revision says which revision of an entry a struct was read from. Every struct that a Typed
// returns has one if T has a field of this type with the tag "~rev". It keeps the entry as it was
// read, so that Save knows what has changed since.
//
// A Revision that was unmarshalled from text, such as a hidden form field or JSON, does not keep
// the entry. It can be compared with the current one in Update. Two revisions that were read
// separately are never ==; compare their Strings.
type Revision struct {
	rev  string
	read *Entry // nil if the Revision was unmarshalled from text
}

// String returns the Rev of the entry.
func (r Revision) String() string { return r.rev }

// Entry returns the entry as it was read, with all its facets. It is the zero Entry if the Revision
// was unmarshalled from text.
func (r Revision) Entry() Entry {
	if r.read == nil {
		return Entry{}
	}
	return *r.read
}

// MarshalText returns the same text as String.
func (r Revision) MarshalText() ([]byte, error) { return []byte(r.rev), nil }

// UnmarshalText sets r from the text that String returns. It returns no error.
func (r *Revision) UnmarshalText(text []byte) error {
	*r = Revision{rev: string(text)}
	return nil
}

// NewEntry returns the NewEntry that Create would use for v, so that callers can add a password and
// tags or pass it to another method that creates entries. The error is ErrInvalid if a value cannot
// be stored.
func (t *Typed[T]) NewEntry(v T) (NewEntry, error) {
	uid, facets, values, bad := t.plan.Facets(reflect.ValueOf(&v).Elem())
	if bad != nil {
		return NewEntry{}, invalid(bad.Field, "codec", bad.Reason)
	}
	n := NewEntry{UID: uid, Facets: facets, Values: values}
	for _, f := range t.plan.Sets {
		if members := setIn(reflect.ValueOf(&v).Elem(), f); len(members) > 0 {
			if n.Sets == nil {
				n.Sets = map[string][]string{}
			}
			n.Sets[f.Name] = members
		}
	}
	return n, nil
}

// FromEntry returns an entry as a struct. It is for entries that methods of Type, such as Login,
// return. The struct includes facets that Put has set in e, and Save writes them. The error is
// ErrUnmarshal if a facet does not fit its field, and ErrInvalid if e is an entry of another type.
func (t *Typed[T]) FromEntry(e Entry) (T, error) {
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
	if bad := t.plan.Read(into, e.source()); bad != nil {
		return &FieldError{Err: ErrUnmarshal, Field: bad.Field, Rule: "type", Reason: bad.Reason}
	}
	for _, f := range t.plan.Sets {
		if members := e.Members(f.Name); len(members) > 0 {
			at, _ := typed.At(into, f.Index, true)
			at.Set(reflect.ValueOf(members))
		}
	}
	if t.plan.Rev != nil {
		read := e // &e would move e to the heap even without a Revision
		at, _ := typed.At(into, t.plan.Rev, true)
		*at.Addr().Interface().(*Revision) = Revision{e.Rev(), &read}
	}
	return nil
}

// read converts the results of a method of Type to those of the same method of Typed. It returns
// the struct even if the change is unconfirmed.
func (t *Typed[T]) read(e Entry, err error) (T, error) {
	var zero T
	if !committed(err) {
		return zero, err
	}
	v, bad := t.FromEntry(e)
	return v, cmp.Or(bad, err)
}

// Create creates an entry from a struct as Type.Create does. It returns the struct as written,
// including its UID.
func (t *Typed[T]) Create(ctx context.Context, v T) (T, error) {
	n, err := t.NewEntry(v)
	if err != nil {
		return t.read(Entry{}, err)
	}
	e, err := t.users.Create(ctx, n)
	members := n.sets()
	e.sets = map[string][]string{}
	for _, name := range t.setNames() {
		e.sets[name] = members[name]
	}
	return t.read(e, err)
}

// Find returns the entry that h identifies, as Type.Find does.
func (t *Typed[T]) Find(ctx context.Context, h hints.Hint) (T, error) {
	e, err := t.users.Find(ctx, h)
	if err == nil {
		err = t.addSets(ctx, &e, t.setNames())
	}
	return t.read(e, err)
}

// Update reads an entry, calls f to change the struct, and writes the difference, as Type.Update
// does. If another change comes in between, Update starts again, so f may be called more than once.
// If f changes the UID, the error is ErrInvalid. If the entry does not fit the struct, f is not
// called.
func (t *Typed[T]) Update(ctx context.Context, h hints.Hint, f func(*T) error) (T, error) {
	return t.read(t.users.Update(ctx, h, func(e *Entry) error {
		return retryOnConflict(ctx, func() (conflict bool, err error) {
			edited := *e
			if err := t.addSets(ctx, &edited, t.setNames()); err != nil {
				return false, err
			}
			v, err := t.FromEntry(edited)
			if err != nil {
				return false, err
			}
			err = f(&v)
			if _, only := problemsIn(err); !only {
				return false, err
			}
			if refused := t.edit(&edited, &v); refused != nil {
				err = errors.Join(err, refused)
			}
			if err != nil {
				*e = edited // so that Type.Update finds the other problems
				return false, err
			}
			if err = t.checkSetsUnchanged(ctx, edited); err == nil {
				*e = edited
			}
			return errors.Is(err, ErrConflict), err
		})
	}))
}

// Save writes the difference between a struct and the entry that it was read from, as Type.Save
// does. If there is none, nothing is written. The error is ErrConflict if the entry, or a set that
// Save would write, has changed since (I6), and ErrNotFound if the entry was deleted. It is
// ErrInvalid if the struct has members of a set that was not read; see FromEntry.
//
// The struct must have the Revision that it was read with; otherwise the error is ErrInvalid,
// because Save could not tell facets that the caller removed from those it never read. Use Update
// in that case.
func (t *Typed[T]) Save(ctx context.Context, v T) (T, error) {
	e, err := t.source(&v)
	if err == nil {
		err = t.edit(&e, &v)
	}
	if err == nil {
		err = t.checkSetsUnchanged(ctx, e)
	}
	if err != nil {
		return t.read(Entry{}, err)
	}
	return t.read(t.users.Save(ctx, e))
}

// checkSetsUnchanged returns ErrConflict if a set that e changes no longer has the members that
// were read. Methods of Set do not change the revision, so the write itself cannot tell.
func (t *Typed[T]) checkSetsUnchanged(ctx context.Context, e Entry) error {
	names := slices.DeleteFunc(sortedKeys(e.newSets), func(name string) bool {
		_, read := e.sets[name]
		return !read
	})
	current := e
	if err := t.addSets(ctx, &current, names); err != nil {
		return err
	}
	for _, name := range names {
		if !slices.Equal(current.sets[name], e.sets[name]) {
			return ErrConflict
		}
	}
	return nil
}

// source returns the entry that a struct was read from.
func (t *Typed[T]) source(v *T) (Entry, error) {
	if t.plan.Rev != nil {
		at, ok := typed.At(reflect.ValueOf(v).Elem(), t.plan.Rev, false)
		if ok {
			if rev := at.Addr().Interface().(*Revision); rev.read != nil {
				return *rev.read, nil
			}
		}
	}
	return Entry{}, invalid(structs.RevName, "struct", "the struct was not read with its Revision")
}

// edit changes an entry so that it equals a struct.
func (t *Typed[T]) edit(e *Entry, v *T) error {
	edited := *e
	bad := t.plan.Changes(reflect.ValueOf(v).Elem(), e.source(), edited.edit, func(field string, texts []string) { edited.SetTexts(field, texts...) })
	if bad != nil {
		return invalid(bad.Field, "codec", bad.Reason)
	}
	for _, f := range t.plan.Sets {
		members := setIn(reflect.ValueOf(v).Elem(), f)
		known, ok := e.knownSets()[f.Name]
		switch {
		case !ok && members != nil:
			return invalid(f.Name, "struct", "the set was not read; use Update, or a query with WithSets")
		case ok && !slices.Equal(known, distinct(members)):
			edited.SetMembers(f.Name, members...)
		}
	}
	*e = edited
	return nil
}

// setIn returns the members of a set in a struct.
func setIn(v reflect.Value, f structs.Field) []string {
	at, exists := typed.At(v, f.Index, false)
	if !exists {
		return nil
	}
	return at.Interface().([]string)
}

// setNames returns the names of the sets for which the struct has fields.
func (t *Typed[T]) setNames() (names []string) {
	for _, f := range t.plan.Sets {
		names = append(names, f.Name)
	}
	return names
}

// addSets reads the named sets of an entry.
func (t *Typed[T]) addSets(ctx context.Context, e *Entry, names []string) error {
	if len(names) == 0 {
		return nil
	}
	users := t.users.current()
	found := []store.Found{{Record: store.Record{Key: e.key.In(users.view.NS)}}}
	sets, err := users.readSets(ctx, found, names)
	switch {
	case err != nil:
		return err
	case found[0].Err != nil:
		return found[0].Err
	case sets[0] == nil: // deleted meanwhile
		return ErrNotFound
	}
	e.sets = sets[0]
	return nil
}

// All yields the entries that a query selects, as Type.All does. For an entry that does not fit the
// struct it yields ErrUnmarshal and continues.
func (t *Typed[T]) All(ctx context.Context, q Query) iter.Seq2[T, error] {
	q.WithSets = append(slices.Clip(q.WithSets), t.setNames()...)
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
	Next, Prev string // the same as in Page
}

// Page returns some of the entries that a query selects, as Type.Page does. Entries that do not fit
// the struct are also left out; the error is then ErrUnmarshal, and the returned entries are valid.
func (t *Typed[T]) Page(ctx context.Context, q Query) (PageOf[T], error) {
	q.WithSets = append(slices.Clip(q.WithSets), t.setNames()...)
	p, err := t.users.Page(ctx, q)
	var unfit skippedEntries
	all, n := make([]T, len(p.Entries)), 0
	for _, e := range p.Entries {
		if bad := t.fill(&all[n], e); bad != nil {
			all[n] = *new(T)
			unfit.add(bad)
			continue
		}
		n++
	}
	return PageOf[T]{all[:n:n], p.Next, p.Prev}, cmp.Or(err, unfit.err())
}
