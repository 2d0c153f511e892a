package userdb

import (
	"maps"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/schema"
)

// TestEditsKeepOwnFields checks that Drop of one of the store's own fields changes neither the
// stored entry nor the one that Save returns.
func TestEditsKeepOwnFields(t *testing.T) {
	users := openUsers(t)
	e, err := users.Create(t.Context(), NewEntry{UID: "u1", Facets: schema.Texts("email", "u1@x.org", "name", "ann")})
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{store.FieldType, store.FieldPRK, store.FieldRev} {
		e.Drop(field)
	}
	e.Put("name", schema.Text("bea"))
	saved, err := users.Save(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	found, err := users.Find(t.Context(), hints.UID("u1"))
	if err != nil || found.Text("name") != "bea" {
		t.Fatalf("found the name %q, %v", found.Text("name"), err)
	}
	found.fields[store.FieldRev] = store.Rev(found.fields[store.FieldRev]) // it holds former ones
	if !maps.Equal(found.fields, saved.fields) {
		t.Errorf("Save returned the fields %v, want the stored ones %v", saved.fields, found.fields)
	}
}

// openUsers returns the built-in type in a store in memory.
func openUsers(t *testing.T) *Type {
	t.Helper()
	db, err := Open(t.Context(), "memory:", Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	users, err := db.Type("user")
	if err != nil {
		t.Fatal(err)
	}
	return users
}
