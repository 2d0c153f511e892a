package schema_test

import (
	"encoding/json"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/schema"
)

// TestDifferenceLaw checks that Difference returns "" exactly if the fingerprints are equal.
func TestDifferenceLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := anyType().Draw(t, "a")
		b := a
		if rapid.Bool().Draw(t, "another") {
			b = anyType().Draw(t, "b")
		}
		same := a.Fingerprint() == b.Fingerprint()
		if (a.Difference(b) == "") != same || (b.Difference(a) == "") != same {
			t.Fatalf("the fingerprints are equal: %t, but the differences are %q and %q", same, a.Difference(b), b.Difference(a))
		}
	})
}

// TestNewFieldLaw checks that a new field changes the fingerprint exactly if it has a role.
func TestNewFieldLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stored := anyType().Draw(t, "type")
		f := anyField().Draw(t, "field")
		here := stored
		here.Fields = map[string]schema.Field{"NEW": f}
		for name, field := range stored.Fields {
			here.Fields[name] = field
		}
		if moved := here.Fingerprint() != stored.Fingerprint(); moved != (f.Role != 0) {
			t.Fatalf("role %q: the new field changes the fingerprint: %t, want %t", f.Role, moved, f.Role != 0)
		}
		if f.Role != 0 && !strings.Contains(here.Difference(stored), "NEW") {
			t.Fatalf("the difference does not name the new field: %s", here.Difference(stored))
		}
	})
}

// anyJSON generates values that encoding/json can write and read without loss.
func anyJSON(depth int) *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Just[any](nil),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.Float64(), func(f float64) any { return f }),
		rapid.Map(rapid.String(), func(s string) any { return s }),
	)
	if depth == 0 {
		return leaf
	}
	inner := anyJSON(depth - 1)
	return rapid.OneOf(
		leaf,
		rapid.Map(rapid.SliceOfN(inner, 0, 4), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(rapid.StringN(0, 3, -1), inner, 0, 4), func(m map[string]any) any { return m }),
	)
}

// TestJSONLaw checks that JSON preserves the meaning of a text, and returns its own results
// unchanged.
func TestJSONLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw, err := json.MarshalIndent(anyJSON(3).Draw(t, "value"), " ", "\t")
		if err != nil {
			t.Fatal(err)
		}
		v, err := schema.JSON(raw)
		if err != nil || !sameJSON(raw, []byte(v.Wire())) {
			t.Fatalf("%s: got %s, %v; want JSON with the same meaning", raw, v.Wire(), err)
		}
		again, err := schema.JSON(json.RawMessage(v.Wire()))
		if err != nil || again != v {
			t.Fatalf("%s: got %s, %v; want it unchanged", v.Wire(), again.Wire(), err)
		}
	})
}

func TestNumberLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := math.Float64frombits(rapid.Uint64().Draw(t, "bits"))
		got, ok := schema.Number(want).Number()
		if !ok || got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Fatalf("got %g, %t; want %g, true", got, ok, want)
		}
	})
}

// TestDateLaw checks that dates keep their milliseconds. In years of four digits the order of dates
// must be the order of their texts, which ordered fields rely on.
func TestDateLaw(t *testing.T) {
	first, last := at("0000-01-01T00:00:00Z").UnixMilli(), at("9999-12-31T23:59:59.999Z").UnixMilli()
	rapid.Check(t, func(t *rapid.T) {
		a := time.UnixMilli(rapid.Int64Range(-8.64e15, 8.64e15).Draw(t, "ms"))
		if got, ok := schema.Date(a).Time(); !ok || !got.Equal(a) {
			t.Fatalf("got %s, %t; want %s, true", got, ok, a)
		}
		b := time.UnixMilli(rapid.Int64Range(first, last).Draw(t, "b"))
		c := time.UnixMilli(rapid.Int64Range(first, last).Draw(t, "c"))
		if strings.Compare(schema.Date(b).Wire(), schema.Date(c).Wire()) != b.Compare(c) {
			t.Fatalf("%s and %s do not sort as their times do", schema.Date(b).Wire(), schema.Date(c).Wire())
		}
	})
}

// TestManyReaders reads one schema from many goroutines, for the race detector.
func TestManyReaders(t *testing.T) {
	s := schema.User()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			user := s.Types["user"]
			if err := s.Validate(); err != nil {
				t.Error(err)
			}
			if got := user.Canonical(" Ａlice "); got != "alice" {
				t.Errorf("got %q, want \"alice\"", got)
			}
			if user.Difference(schema.User().Types["user"]) != "" || user.Policy().Min != 8 {
				t.Error("the schema changed")
			}
		})
	}
	wg.Wait()
}
