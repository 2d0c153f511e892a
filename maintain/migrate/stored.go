package migrate

import (
	"context"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// StoredSchema is the schema in the database: the types that entries of the view's namespace were
// written by. It is the zero Schema where nothing was written yet, or only by the original.
// userdb.ErrCorrupt says that it cannot be read, as that of a newer version, or is not the one that its fingerprint is of.
func StoredSchema(ctx context.Context, db *userdb.DB) (schema.Schema, error) {
	return storedIn(ctx, db, records.FieldSchema)
}

// BegunSchema is the schema that Apply has begun to bring records to, of the types that it is not
// done with; the zero Schema where there is none. Errors are those of StoredSchema.
func BegunSchema(ctx context.Context, db *userdb.DB) (schema.Schema, error) {
	return storedIn(ctx, db, records.FieldNext)
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
		return schema.Schema{}, records.Corrupt(types, "not a set")
	}
	keys := make([]recordkey.Key, len(names))
	for i, name := range names {
		key, err := recordkey.Own("schema", name)
		if err != nil {
			return schema.Schema{}, records.Corrupt(types, "it names a type that no key can name")
		}
		keys[i] = key.In(c.NS)
	}
	hashes, err := store.Hashes(ctx, c.Engine, records.Texts(keys))
	if err != nil {
		return schema.Schema{}, err
	}
	stored := map[string]string{}
	for i, h := range hashes {
		text, is := h.Fields[field]
		if is || field == records.FieldSchema && (h.Other || len(h.Fields) > 0) { // else nothing was stored but the name
			stored[names[i]] = text
		}
	}
	s, err := records.ParseSchema(stored)
	if err != nil {
		return schema.Schema{}, records.Corrupt(types, err.Error())
	}
	for i, h := range hashes {
		if t, is := s.Types[names[i]]; is && field == records.FieldSchema && records.IsAnother(t, h.Fields) {
			return schema.Schema{}, records.Corrupt(keys[i], records.AnotherSchema)
		}
	}
	return s, nil
}
