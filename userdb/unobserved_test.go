package userdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
)

// TestUnobservedCostsNothing checks that a method without observers allocates nothing for them.
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
			t.Error("begin changed the context or the error")
		}
	}); got != 0 {
		t.Errorf("begin and end allocate %v times without observers, want never", got)
	}
	h := hints.UID("u1")
	public := minAllocs(func() { _, _ = users.Find(ctx, h) })
	bare := minAllocs(func() { _, _ = db.find(ctx, h, "user") })
	if public != bare {
		t.Errorf("Find allocates %v times, db.find %v times; want the same", public, bare)
	}
}

// minAllocs returns the smallest number of allocations of f over many runs. Other runs may count
// more, as the embedded store has goroutines of its own and pools lose their contents at random
// under the race detector.
func minAllocs(f func()) float64 {
	n := testing.AllocsPerRun(1, f)
	for range 499 {
		n = min(n, testing.AllocsPerRun(1, f))
	}
	return n
}

// TestOutcomeWords checks that wrapped errors have the outcomes of their rows in errorCodes, that
// every outcome is described in the comment of Outcome and in docs/watch.md, and that every fault
// is an outcome.
func TestOutcomeWords(t *testing.T) {
	code, err := os.ReadFile("observe.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/watch.md")
	if err != nil {
		t.Fatal(err)
	}
	words := []Outcome{outcomeOf(nil), outcomeOf(errors.New("mine"))}
	for _, row := range errorCodes {
		word := cmp.Or(row.outcome, Outcome(row.code))
		words = append(words, word)
		if got := outcomeOf(fmt.Errorf("wrapped: %w", row.err)); got != word {
			t.Errorf("outcome of %v, wrapped: got %s, want %s", row.err, got, word)
		}
	}
	for _, w := range words {
		if !strings.Contains(string(code), "\n//\t"+string(w)+" ") || !strings.Contains(string(page), "`"+string(w)+"`") {
			t.Errorf("%s is not documented", w)
		}
	}
	for _, f := range faults {
		if !slices.Contains(words, f) {
			t.Errorf("the fault %s is not an outcome", f)
		}
	}
}
