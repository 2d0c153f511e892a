// Package storedschema reads the schema that is stored in a namespace. The first write of a type
// stores it, and from then on it is in force for every program:
//
//	~/types        set   the names of the types
//	~/schema/user  hash  fingerprint, schema, and during some schema changes next
//
// Running programs take over a changed schema with View.Follow in package view.
package storedschema

import (
	"cmp"
	"context"
	"errors"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// InForce returns the types with which the entries of a namespace were written. It returns none if
// nothing has been written yet, or only by CoffeeNode UserDB, the original program. The error is
// store.ErrCorrupt if a schema cannot be read or does not match its fingerprint.
func InForce(ctx context.Context, e store.Maintenance, ns recordkey.Namespace) (schema.Schema, error) {
	s, unreadable, err := Readable(ctx, e, ns)
	return s, cmp.Or(err, errors.Join(unreadable...))
}

// Readable returns the types that InForce returns, except those whose stored schema cannot be read,
// and an error for each of these.
func Readable(ctx context.Context, e store.Maintenance, ns recordkey.Namespace) (s schema.Schema, unreadable []error, err error) {
	return read(ctx, e, ns, store.FieldSchema)
}

// Pending returns the types to which an unfinished schema change converts the records, if the
// change stops other writers. Its errors are those of InForce.
func Pending(ctx context.Context, e store.Maintenance, ns recordkey.Namespace) (schema.Schema, error) {
	s, unreadable, err := read(ctx, e, ns, change.FieldNext)
	return s, cmp.Or(err, errors.Join(unreadable...))
}

// read reads the types with a schema in the given field of ~/schema/TYPE.
func read(ctx context.Context, e store.Maintenance, ns recordkey.Namespace, field string) (s schema.Schema, unreadable []error, err error) {
	types, _ := recordkey.Own("types") // a valid constant
	raws, err := store.Inspect(ctx, e, []string{types.In(ns).String()}, 0)
	if err != nil {
		return s, nil, err
	}
	names := raws[0].Items
	if kind := raws[0].Type; kind != store.KindNone && kind != "set" {
		return s, nil, corrupt(types, "not a set")
	}
	keys := make([]string, len(names))
	for i, name := range names {
		key, err := change.SchemaKey(ns, name)
		if err != nil {
			return s, nil, corrupt(types, "it lists a type name that no key can hold")
		}
		keys[i] = key.String()
	}
	hashes, err := store.Hashes(ctx, e, keys)
	if err != nil {
		return s, nil, err
	}
	stored := map[string]schema.Type{}
	for i, h := range hashes {
		text, ok := h.Fields[field]
		if !ok && (field != store.FieldSchema || !h.WrongType && len(h.Fields) == 0) {
			continue // only the name is stored
		}
		t, err := change.ParseType(names[i], text)
		if err != nil {
			unreadable = append(unreadable, corrupt(types, err.Error()))
			continue
		}
		if _, err := change.ParseStored(names[i], h.Fields); err != nil && field == store.FieldSchema {
			unreadable = append(unreadable, &store.CorruptError{Key: keys[i], Reason: err.Error()})
			continue
		}
		stored[names[i]] = t
	}
	return schema.Schema{Types: stored}, unreadable, nil
}

func corrupt(key recordkey.Key, reason string) error {
	return &store.CorruptError{Key: key.String(), Reason: reason}
}
