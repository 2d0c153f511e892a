package schema_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/schema"
)

// TestCompare compares two changed copies of the built-in type. The name of a case says what the
// program's copy has or lacks, compared with the stored one.
func TestCompare(t *testing.T) {
	for _, tt := range []struct {
		name   string
		stored func(*schema.Type)
		here   func(*schema.Type)
		want   schema.Relation
		words  string
	}{
		{"the same", nil, nil, schema.Same, ""},
		{"default codec spelled out", nil, func(t *schema.Type) { t.Fields["job"] = schema.Field{Codec: schema.CodecText} }, schema.Same, ""},
		{"ignored properties", nil, func(t *schema.Type) {
			t.Password = &schema.Password{Min: 12}
			t.Fields["job"] = schema.Field{Reserved: []string{"root"}}
		}, schema.Same, ""},
		{
			"already renamed field", func(t *schema.Type) { t.Fields["b"] = schema.Field{} },
			func(t *schema.Type) { t.Fields["b"] = schema.Field{Was: "a"} }, schema.Same, "",
		},
		{"missing field", nil, func(t *schema.Type) { delete(t.Fields, "name") }, schema.Lacks, "the stored schema has the field name, which is not declared here"},
		{"missing role", nil, func(t *schema.Type) { t.Fields["name"] = schema.Field{Kind: "nickname"} }, schema.Lacks, "field name: role secondary: stored"},
		{"missing index of members", nil, func(t *schema.Type) { t.Tertiary["tags"] = schema.Tertiary{Kind: "set"} }, schema.Lacks, "tertiary record tags: indexed: stored"},
		{"missing required rule", func(t *schema.Type) { t.Fields["job"] = schema.Field{Required: true} }, nil, schema.Lacks, "field job: required: stored"},
		{"not open", func(t *schema.Type) { t.Open = true }, nil, schema.Lacks, "an open type: stored"},
		{"missing record", nil, func(t *schema.Type) { t.Tertiary = nil }, schema.Lacks, "the stored schema has the tertiary record tags, which is not declared here"},
		{"added plain field", nil, func(t *schema.Type) { t.Fields["c"] = schema.Field{} }, schema.Adds, "field c: not stored"},
		{"added plain field and missing field", nil, func(t *schema.Type) { t.Fields["c"] = t.Fields["job"]; delete(t.Fields, "job") }, schema.Adds, "field c: not stored"},
		{"added record", nil, func(t *schema.Type) { t.Tertiary["x"] = schema.Tertiary{Kind: "set", Indexed: true} }, schema.Adds, "tertiary record x: not stored"},
		{"opened type", nil, func(t *schema.Type) { t.Open = true }, schema.Adds, "an open type: not stored"},
		{"added role", nil, func(t *schema.Type) { t.Fields["job"] = schema.Field{Role: schema.RoleOrdered} }, schema.Builds, "field job: role ordered: not stored"},
		{
			"added field with roles", nil, func(t *schema.Type) { t.Fields["c"] = schema.Field{Role: schema.RoleOrdered | schema.RoleIndexed} },
			schema.Builds, "field c: role indexed: not stored, and field c: role ordered: not stored",
		},
		{"added index of members", func(t *schema.Type) { t.Tertiary["tags"] = schema.Tertiary{Kind: "set"} }, nil, schema.Builds, "tertiary record tags: indexed: not stored"},
		{"added required rule", nil, func(t *schema.Type) { t.Fields["job"] = schema.Field{Required: true} }, schema.Builds, "field job: required: not stored"},
		{"more values", nil, func(t *schema.Type) {
			t.Fields["name"] = schema.Field{Role: schema.RoleSecondary, Kind: "nickname", Many: 3}
		}, schema.Builds, "values of field name: stored at most 1; here 3"},
		{"fewer values", func(t *schema.Type) {
			t.Fields["name"] = schema.Field{Role: schema.RoleSecondary, Kind: "nickname", Many: 3}
		}, nil, schema.Lacks, "values of field name: stored at most 3; here 1"},
		{"untyped", changeField("name", withoutKind), untyped("name"), schema.Lacks, "field name: typed: stored"},
		{"typed", untyped("name"), changeField("name", withoutKind), schema.Builds, "field name: typed: not stored"},
		{"typed in other words", nil, changeField("name", func(f *schema.Field) { f.Typed = new(true) }), schema.Same, ""},
		{"untyped in both", untyped("name"), untyped("name"), schema.Same, ""},
		{"untyped and not stored", func(t *schema.Type) { delete(t.Fields, "name") }, untyped("name"), schema.Builds, "field name: role secondary: not stored"},
		{"renamed field", nil, func(t *schema.Type) { t.Fields["work"] = schema.Field{Was: "job"}; delete(t.Fields, "job") }, schema.Builds, "field work: stored as job"},
		{"another codec", nil, func(t *schema.Type) { t.Fields["added"] = schema.Field{} }, schema.Differs, "codec of field added: stored date; here text"},
		{"another kind", nil, func(t *schema.Type) { t.Fields["job"] = schema.Field{Kind: "url"} }, schema.Differs, "kind of field job: stored none; here url"},
		{"another pattern", nil, func(t *schema.Type) { t.Fields["job"] = schema.Field{Pattern: "^a"} }, schema.Differs, `pattern of field job: stored ""; here ^a`},
		{"another primary field", nil, func(t *schema.Type) { t.Primary = "id" }, schema.Differs, "primary field: stored uid; here id"},
		{"another fold", nil, func(t *schema.Type) { t.Fold = schema.FoldExact }, schema.Differs, "fold: stored casefold; here exact"},
		{"another kind of record", nil, func(t *schema.Type) { t.Tertiary["tags"] = schema.Tertiary{Kind: "list"} }, schema.Differs, "kind of tertiary record tags: stored set; here list"},
		{"retired field", func(t *schema.Type) { t.Retired = []string{"c"} }, func(t *schema.Type) { t.Fields["c"] = schema.Field{} }, schema.Differs, "field c: retired"},
		{
			"retired record", func(t *schema.Type) { t.Retired = []string{"x"} }, func(t *schema.Type) { t.Tertiary["x"] = schema.Tertiary{Kind: "set"} },
			schema.Differs, "tertiary record x: retired",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nothing := func(*schema.Type) {}
			if tt.stored == nil {
				tt.stored = nothing
			}
			if tt.here == nil {
				tt.here = nothing
			}
			if got, words := changed(tt.here).Compare(changed(tt.stored)); got != tt.want || words != tt.words {
				t.Errorf("got %d, %q; want %d, %q", got, words, tt.want, tt.words)
			}
		})
	}
}

// TestMergeLaw checks that the result of Merge contains everything stored and everything that
// programs add, that every program can work with it, and that the order of merging does not matter.
func TestMergeLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stored := anyType().Draw(t, "stored")
		adding := func(name string) schema.Type {
			here := stored
			here.Fields = map[string]schema.Field{name: {Codec: schema.CodecNumber}}
			here.Tertiary = map[string]schema.Tertiary{name: {Kind: "set", Indexed: rapid.Bool().Draw(t, "indexed")}}
			here.Open = rapid.Bool().Draw(t, "open")
			return here
		}
		a, b := adding("A"), adding("B")
		ab, ba := a.Merge(b.Merge(stored)), b.Merge(a.Merge(stored))
		if r, words := ab.Compare(ba); r != schema.Same || strings.TrimSpace(words) != "" {
			t.Fatalf("the order of merging matters: %s", words)
		}
		for _, here := range []schema.Type{a, b, stored} {
			if r, words := here.Compare(ab); r > schema.Lacks {
				t.Fatalf("a program cannot work with the merged schema: %s", words)
			}
		}
		if err := (schema.Schema{Types: map[string]schema.Type{"TYPE": ab}}).Validate(); err != nil {
			t.Fatal(err)
		}
	})
}

// changeField returns a function that changes a field of a type.
func changeField(name string, edit func(*schema.Field)) func(*schema.Type) {
	return func(t *schema.Type) {
		f := t.Fields[name]
		edit(&f)
		t.Fields[name] = f
	}
}

func withoutKind(f *schema.Field) { f.Kind = "" }

// untyped returns a function that makes a field untyped and removes its kind.
func untyped(name string) func(*schema.Type) {
	return changeField(name, func(f *schema.Field) { f.Kind, f.Typed = "", new(false) })
}

// TestAdditionOfTyped checks that a field whose values become typed has the addition "typed", and
// that a new field has only its roles.
func TestAdditionOfTyped(t *testing.T) {
	typed, loose := changed(changeField("name", withoutKind)), changed(untyped("name"))
	for _, tt := range []struct {
		what     string
		from, to schema.Type
		want     string
	}{
		{"becomes typed", loose, typed, "map[name:[typed]]"},
		{"becomes untyped", typed, loose, "map[]"},
		{"new and untyped", changed(func(t *schema.Type) { delete(t.Fields, "name") }), loose, "map[name:[secondary]]"},
		{"new and typed", changed(func(t *schema.Type) { delete(t.Fields, "name") }), typed, "map[name:[secondary]]"},
	} {
		if got := fmt.Sprint(tt.to.Additions(tt.from)); got != tt.want {
			t.Errorf("%s: the additions are %s, want %s", tt.what, got, tt.want)
		}
	}
	building := typed
	building.Building = &schema.Building{ID: "x", What: map[string][]string{"name": {schema.TypedRule}}}
	if before := building.WithoutBuilding(); before.Fields["name"].IsTyped() || !reflect.DeepEqual(before, loose) {
		t.Errorf("WithoutBuilding returns %+v, want %+v", before, loose)
	}
	if !reflect.DeepEqual(building.Typed(), []string{"email", "name"}) || !reflect.DeepEqual(loose.Typed(), []string{"email"}) {
		t.Errorf("typed fields: %q while name becomes typed, %q before; want email and name, then email", building.Typed(), loose.Typed())
	}
	for name, typ := range map[string]schema.Type{"a typed field": building, "an untyped one": loose} {
		typ.Building = building.Building
		err := (schema.Schema{Types: map[string]schema.Type{"user": typ}}).Validate()
		if (err == nil) != (name == "a typed field") {
			t.Errorf("building %s: got %v, want an error: %v", name, err, name != "a typed field")
		}
	}
}

// TestFirstMany checks that Many is an addition that has to be built if the field had one value
// before, and that a larger Many is not.
func TestFirstMany(t *testing.T) {
	name := func(many int) schema.Type {
		return changed(func(t *schema.Type) {
			t.Fields["name"] = schema.Field{Role: schema.RoleSecondary, Many: many}
		})
	}
	plain := changed(func(t *schema.Type) { t.Fields["name"] = schema.Field{} })
	for _, tt := range []struct {
		from, to schema.Type
		want     []string
	}{
		{name(0), name(3), []string{"many"}},
		{name(1), name(3), []string{"many"}},
		{name(2), name(3), nil},
		{name(3), name(0), nil},
		{plain, name(3), []string{"secondary", "many"}},
	} {
		more := tt.to.Additions(tt.from)
		if !slices.Equal(more["name"], tt.want) {
			t.Errorf("from %+v to %+v: got %q, want %q", tt.from.Fields["name"], tt.to.Fields["name"], more, tt.want)
		}
		if len(more) == 0 {
			continue
		}
		building := tt.to
		building.Building = &schema.Building{ID: "x", What: more}
		if !building.Building.BecomesMany("name") {
			t.Errorf("while %q are being built: BecomesMany returns false, want true", more)
		}
		before := building.WithoutBuilding()
		for what, typ := range map[string]schema.Type{"while building": building, "before": before} {
			if err := (schema.Schema{Types: map[string]schema.Type{"TYPE": typ}}).Validate(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if relation, words := before.Compare(tt.from); relation != schema.Same {
			t.Errorf("WithoutBuilding differs from the type before: %s", words)
		}
	}
	wrong := name(0)
	wrong.Building = &schema.Building{What: map[string][]string{"name": {"many"}}}
	if err := (schema.Schema{Types: map[string]schema.Type{"TYPE": wrong}}).Validate(); err == nil {
		t.Error("many is being built, but not declared: want an error")
	}
}
