package userdb_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestDisabledIsShown: who may not log in is seen so in JSON, and found by every kind of query.
func TestDisabledIsShown(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		sch := schema.User()
		sch.Types["user"].Fields["age"] = schema.Field{Role: schema.RoleOrdered, Codec: schema.CodecNumber}
		sch.Types["user"].Fields["job"] = schema.Field{Role: schema.RoleIndexed}
		typ := typeOf(t, s.open(userdb.Options{Schema: sch}), "user")
		var on, off []string
		for i := range 20 {
			id := fmt.Sprintf("u%02d", i)
			_, err := typ.Create(t.Context(), userdb.NewEntry{UID: id, Tags: []string{"t"}, Facets: schema.Facets{
				"name": schema.Text(id), "age": schema.Number(float64(i)), "job": schema.Text("cook"),
			}})
			must(t, err)
			if i%3 > 0 {
				on = append(on, id)
				continue
			}
			off = append(off, id)
			must(t, typ.Disable(t.Context(), uid(id)))
		}
		for name, q := range map[string]userdb.Query{
			"all": {}, "by index": {Where: schema.Texts("job", "cook")}, "by tag": {Has: []string{"t"}},
			"ordered": {Order: "age"}, "reversed": {Order: "age", Reverse: true},
		} {
			for disabled, want := range map[bool][]string{false: on, true: off} {
				q.Disabled, q.Limit, q.After = &disabled, 0, ""
				if got := allAndPaged(t, typ, q); !slices.Equal(got, want) {
					t.Errorf("%s, disabled %v: %q, want %q", name, disabled, got, want)
				}
			}
		}
		for id, want := range map[string]bool{"u00": true, "u01": false} {
			e, err := typ.Find(t.Context(), uid(id))
			must(t, err)
			text, err := json.Marshal(e)
			must(t, err)
			var flat map[string]any
			must(t, json.Unmarshal(text, &flat))
			if got, is := flat["~disabled"]; is != want || want && got != true || flat["name"] != id {
				t.Errorf("%s", text)
			}
			disabled := true
			if got := allAndPaged(t, typ, userdb.Query{Where: schema.Texts("name", id), Disabled: &disabled}); len(got) == 1 != want {
				t.Errorf("%s by name: %q", id, got)
			}
		}
	})
}

// allAndPaged are the UIDs that All and pages of three give, sorted, each once.
func allAndPaged(t *testing.T, typ *userdb.Type, q userdb.Query) []string {
	t.Helper()
	var all, paged []string
	for e, err := range typ.All(t.Context(), q) {
		must(t, err)
		all = append(all, e.UID())
	}
	q.Limit = 3
	for more := true; more; more = q.After != "" {
		es, next, err := typ.Page(t.Context(), q)
		must(t, err)
		for _, e := range es {
			paged = append(paged, e.UID())
		}
		q.After = next
	}
	slices.Sort(all)
	slices.Sort(paged)
	all, paged = slices.Compact(all), slices.Compact(paged) // a server's tables may grow meanwhile
	if !slices.Equal(all, paged) {
		t.Errorf("All gives %q, and pages %q", all, paged)
	}
	return all
}
