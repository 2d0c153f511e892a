//go:build !race

// With the race detector a sync.Pool loses values at random, so that more is allocated.

package userdb

import (
	"context"
	"maps"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// TestCreateAllocations limits what a create allocates before it is sent.
func TestCreateAllocations(t *testing.T) {
	users := openUsers(t)
	n := NewEntry{UID: "u1", Facets: schema.Texts("email", "u1@x.org", "name", "ann", "job", "Bonn")}
	if n := testing.AllocsPerRun(100, func() {
		d, err := users.newDraft(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		c, err := users.declared.Create(d)
		if err != nil || len(c.Claim) != 2 || len(c.Elsewhere) != 2 {
			t.Fatalf("the change is %+v, %v", c, err)
		}
	}); n > 23 {
		t.Errorf("a create allocates %v times, want at most 23", n)
	}
}

// TestEditAllocations limits what an edit of two facets of an entry allocates before it is sent,
// and checks that it does not change the entry that was read. Save must return the fields as
// stored, and not change the copy that it saves.
func TestEditAllocations(t *testing.T) {
	ctx := context.Background()
	users := openUsers(t)
	read, err := users.Create(ctx, NewEntry{UID: "u1", Facets: schema.Texts("email", "u1@x.org", "name", "ann", "job", "Bonn")})
	if err != nil {
		t.Fatal(err)
	}
	r := store.Record{Key: read.key.In(recordkey.Namespace{}), Fields: read.fields}
	if n := testing.AllocsPerRun(100, func() {
		e := read
		e.Put("job", schema.Text("Köln"))
		e.Put("name", schema.Text("bea"))
		c, facets, due, err := users.editChange(ctx, r, e)
		if err != nil || !due || len(c.Claim) != 1 || len(c.Release) != 1 || facets["name"] != "bea" {
			t.Fatalf("the change is %+v, %v, %v", c, due, err)
		}
	}); n > 16 {
		t.Errorf("an edit of two facets allocates %v times, want at most 16", n)
	}
	if read.Text("job") != "Bonn" || read.fields["name"] != "ann" {
		t.Error("an edit has changed the entry that was read")
	}
	e := read
	e.Put("job", schema.Text("Köln"))
	saved, err := users.Save(ctx, e)
	if err != nil {
		t.Fatal(err)
	}
	found, err := users.Find(ctx, hints.Key(saved.Key()))
	if err != nil || found.Rev() != saved.Rev() {
		t.Fatalf("found the revision %s, %v; want %s", found.Rev(), err, saved.Rev())
	}
	// The stored field holds more than the revision.
	found.fields[store.FieldRev] = saved.fields[store.FieldRev]
	if !maps.Equal(found.fields, saved.fields) || e.fields["job"] != "Bonn" {
		t.Errorf("Save returned the fields %v, want the stored ones %v, and no change of the copy that was saved", saved.fields, found.fields)
	}
}
