package userdb

import (
	"context"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
)

// TestUnobservedCostsNothing: a verb that nobody observes allocates no more than what is in it.
func TestUnobservedCostsNothing(t *testing.T) {
	ctx := context.Background()
	db, err := Open(ctx, "memory:", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	users, err := db.Type("user")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := users.Create(ctx, NewEntry{UID: "u1", Facets: schema.Texts("email", "u1@x.org")}); err != nil {
		t.Fatal(err)
	}
	if got := testing.AllocsPerRun(100, func() {
		var err error
		same, v := db.begin(ctx, "Find", &err)
		v.end(&err)
		if same != ctx || err != nil {
			t.Error("the verb is another one")
		}
	}); got != 0 {
		t.Errorf("to tell nobody takes %v allocations", got)
	}
	h := hints.UID("u1")
	with := least(func() { _, _ = users.Find(ctx, h) })
	without := least(func() { _, _ = db.find(ctx, h, "user") })
	if with != without {
		t.Errorf("Find takes %v allocations, and what is in it %v", with, without)
	}
}

// least are the allocations of f, of some attempts: the store in the process has turns of its own.
func least(f func()) float64 {
	n := testing.AllocsPerRun(100, f)
	for range 9 {
		n = min(n, testing.AllocsPerRun(100, f))
	}
	return n
}
