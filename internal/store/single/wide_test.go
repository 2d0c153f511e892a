package single

import (
	"fmt"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// TestManyKeys creates and changes an entry with many values in one field of a type with many
// secondary fields. Lua cannot unpack the keys of such a change at once.
func TestManyKeys(t *testing.T) {
	const values, fields = 100, 200
	declared := map[string]schema.Field{}
	for i := range fields {
		declared[fmt.Sprintf("f%03d", i)] = schema.Field{Role: schema.RoleSecondary}
	}
	declared["f000"] = schema.Field{Role: schema.RoleSecondary, Many: values}
	c, err := change.Compile(schema.Schema{Types: map[string]schema.Type{"wide": {Primary: "uid", Fields: declared}}}, recordkey.Namespace{})
	if err != nil {
		t.Fatal(err)
	}
	typ, e := c.ByName["wide"], New(redistest.Shared(t).Client(), Options{})
	apply := func(ch store.Change, err error) string {
		t.Helper()
		rev := ""
		if err == nil {
			rev, err = e.Apply(t.Context(), ch)
		}
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
	apply(typ.Create(change.Draft{UID: "first", Facets: map[string]string{}}))
	texts := func(prefix string) (all []string) {
		for i := range values {
			all = append(all, fmt.Sprint(prefix, i))
		}
		return all
	}
	set := func(old store.Record, prefix string) (facets, own map[string]string) {
		facets, own = map[string]string{"uid": "u"}, map[string]string{}
		if err := typ.SetTexts(old, facets, own, "f000", texts(prefix), time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		return facets, own
	}
	facets, own := set(store.Record{}, "a")
	create, err := typ.Create(change.Draft{UID: "u", Facets: facets, Own: own})
	if len(create.Elsewhere) < 10_000 {
		t.Fatalf("the create has only %d keys elsewhere, want at least 10,000", len(create.Elsewhere))
	}
	apply(create, err)
	read := func() store.Record {
		found, err := e.Find(t.Context(), []store.Lookup{{PRK: create.Key}})
		if err != nil || found[0].Err != nil {
			t.Fatal(err, found[0].Err)
		}
		return found[0].Record
	}
	old := read()
	facets, own = set(old, "b")
	update, _, err := typ.Update(old, facets, own)
	apply(update, err)
	if got := typ.Values(read().Fields, "f000"); len(got) != values || got[0].Canonical != "b0" || got[values-1].Canonical != fmt.Sprint("b", values-1) {
		t.Errorf("the entry has %d values, %+v; want %d, from b0 on", len(got), got, values)
	}
	for key, want := range map[string]int64{"wide/f000:a7/~prk": 0, "wide/f000:b7/~prk": 1} {
		if n := e.client.Exists(t.Context(), key).Val(); n != want {
			t.Errorf("%s exists %d times, want %d", key, n, want)
		}
	}
	taken, err := typ.Create(change.Draft{UID: "v", Facets: map[string]string{"f150": "b99"}})
	if err == nil {
		_, err = e.Apply(t.Context(), taken)
	}
	if err == nil {
		t.Error("a value of the entry was given to another one")
	}
}
