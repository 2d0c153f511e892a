package maintain

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// Fields of ~/schema/TYPE.
const (
	fieldFingerprint = "fingerprint"
	fieldSchema      = "schema"
)

// StoredSchema is the schema in the database: the types that entries of the view's namespace were
// written by. It is the zero Schema where nothing was written yet, or only by the original.
// userdb.ErrCorrupt says that it cannot be read, as that of a newer version, or is not the one that its fingerprint is of.
func StoredSchema(ctx context.Context, db *userdb.DB) (schema.Schema, error) {
	return storedIn(ctx, db, fieldSchema)
}

// BegunSchema is the schema that Apply has begun to bring records to, of the types that it is not
// done with; the zero Schema where there is none. Errors are those of StoredSchema.
func BegunSchema(ctx context.Context, db *userdb.DB) (schema.Schema, error) {
	return storedIn(ctx, db, fieldNext)
}

// storedIn reads the types that have a schema in a field of ~/schema/TYPE.
func storedIn(ctx context.Context, db *userdb.DB, field string) (schema.Schema, error) {
	c := view.Of(db)
	types, err := recordkey.Own("types")
	if err != nil {
		return schema.Schema{}, err
	}
	raws, err := store.Inspect(ctx, c.Engine, []string{types.In(c.NS).String()}, 0)
	if err != nil {
		return schema.Schema{}, err
	}
	names := raws[0].Items
	if kind := raws[0].Type; kind != store.KindNone && kind != "set" {
		return schema.Schema{}, corrupt(types, "not a set")
	}
	keys := make([]recordkey.Key, len(names))
	for i, name := range names {
		key, err := recordkey.Own("schema", name)
		if err != nil {
			return schema.Schema{}, corrupt(types, "it names a type that no key can name")
		}
		keys[i] = key.In(c.NS)
	}
	hashes, err := store.Hashes(ctx, c.Engine, texts(keys))
	if err != nil {
		return schema.Schema{}, err
	}
	stored := map[string]string{}
	for i, h := range hashes {
		text, is := h.Fields[field]
		if is || field == fieldSchema && (h.Other || len(h.Fields) > 0) { // else nothing was stored but the name
			stored[names[i]] = text
		}
	}
	s, err := parseStored(stored)
	if err != nil {
		return schema.Schema{}, corrupt(types, err.Error())
	}
	for i, h := range hashes {
		if t, is := s.Types[names[i]]; is && field == fieldSchema && isAnother(t, h.Fields) {
			return schema.Schema{}, corrupt(keys[i], anotherSchema)
		}
	}
	return s, nil
}

const anotherSchema = "the schema is not the one that the fingerprint is of"

// isAnother reports whether a stored schema is not what was stored. While a change is under way the fingerprint is none.
func isAnother(t schema.Type, fields map[string]string) bool {
	return fields[fieldNext] == "" && t.Fingerprint() != fields[fieldFingerprint]
}

func corrupt(key recordkey.Key, reason string) error {
	return &store.CorruptError{Key: key.String(), Reason: reason}
}

// parseStored reads the JSON of types by their names.
func parseStored(stored map[string]string) (schema.Schema, error) {
	if len(stored) == 0 {
		return schema.Schema{}, nil
	}
	types := map[string]json.RawMessage{}
	for name, text := range stored {
		if !json.Valid([]byte(text)) {
			return schema.Schema{}, fmt.Errorf("the stored schema of type %s is no JSON", quoted(name))
		}
		types[name] = json.RawMessage(text)
	}
	text, err := json.Marshal(map[string]map[string]json.RawMessage{"types": types})
	if err != nil {
		return schema.Schema{}, err
	}
	s, err := schema.Load(bytes.NewReader(text))
	if err != nil {
		return schema.Schema{}, fmt.Errorf("the stored schema cannot be read: %w", err)
	}
	for name, t := range s.Types {
		s.Types[name] = t.FromStore()
	}
	return s, nil
}

// PasswordHash is the stored hash of the password of the entry that a hint points at, "" where it has
// none. It is for an operator who moves entries elsewhere; nothing else gives hashes away. typ is the
// type that is meant where the hint names none. Errors are those of userdb.Type.Find.
func PasswordHash(ctx context.Context, db *userdb.DB, typ string, h hints.Hint) (string, error) {
	_, r, err := view.Of(db).Find(ctx, h, typ)
	if err != nil {
		return "", err
	}
	return r.Fields[store.FieldPassword], nil
}
