package check

import (
	"testing"

	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestContestIsOver: an entry that gave its value to another while all were gone through holds it no more.
func TestContestIsOver(t *testing.T) {
	ctx := t.Context()
	db, err := userdb.Open(ctx, "memory:", userdb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	users, err := db.Type("user")
	if err != nil {
		t.Fatal(err)
	}
	for uid, name := range map[string]string{"a": "Other", "b": "Bob"} {
		if _, err := users.Create(ctx, userdb.NewEntry{UID: uid, Facets: schema.Texts("name", name)}); err != nil {
			t.Fatal(err)
		}
	}
	c := &checker{View: view.Of(db)}
	typ, err := c.Type("user")
	if err != nil {
		t.Fatal(err)
	}
	var holders []recordkey.Key
	for _, uid := range []string{"a", "b"} {
		prk, err := typ.PRK(uid)
		if err != nil {
			t.Fatal(err)
		}
		holders = append(holders, prk)
	}
	k := &records.Contest{Type: typ, Value: "bob", Field: "name", Holders: holders}
	if err := c.stillHeld(ctx, k); err != nil || len(k.Holders) != 1 {
		t.Errorf("left: %v, %v", k.Holders, err)
	}
}
