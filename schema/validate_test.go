package schema_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/schema"
)

// TestValidate checks schemas that only a program can declare; TestLoadErrors checks the others.
func TestValidate(t *testing.T) {
	tests := []struct {
		give schema.Schema
		want string
	}{
		{schema.User(), ""},
		{oneType(schema.Type{Primary: "id"}), ""},
		{oneType(schema.Type{Primary: "id", Password: &schema.Password{}}), ""},
		{oneType(schema.Type{Primary: "id", Fields: map[string]schema.Field{"id": {Codec: schema.CodecIdentity}}}), ""},
		{oneType(schema.Type{Primary: "id", Fields: map[string]schema.Field{"password": {Codec: schema.CodecText}}}), ""},
		{oneType(schema.Type{Primary: "id", Fields: map[string]schema.Field{"a": {Role: schema.RoleOrdered, Codec: schema.CodecDate}}}), ""},
		{schema.Schema{}, "schema: types: no type is declared"},
		{oneType(schema.Type{}), "schema: types.t.primary: the type has no primary key"},
		{oneType(schema.Type{Primary: "i\xff"}), "schema: types.t.primary: the name is not UTF-8"},
		{oneType(schema.Type{Primary: "id", Fields: map[string]schema.Field{"\xff": {}}}), `schema: types.t.fields."\xff": the name is not UTF-8`},
		{oneType(schema.Type{Primary: "id", Fields: map[string]schema.Field{"f": {Pattern: "\xff"}}}), `schema: types.t.fields.f.pattern: invalid UTF-8: "\xff"`},
		{oneType(schema.Type{Primary: "id", Fields: map[string]schema.Field{"f": {Reserved: []string{""}}}}), `schema: types.t.fields.f.reserved: "" is not a value`},
		{oneType(schema.Type{Primary: "id", Fields: map[string]schema.Field{"f": {Reserved: []string{"\xff"}}}}), `schema: types.t.fields.f.reserved: "\xff" is not a value`},
		{oneType(schema.Type{Primary: "id", Fields: map[string]schema.Field{"f": {Role: 64}}}), `schema: types.t.fields.f.role: unknown role; want one of indexed, ordered, secondary`},
	}
	for _, test := range tests {
		err := test.give.Validate()
		if err == nil && test.want == "" {
			continue
		}
		if err == nil || err.Error() != test.want || !errors.Is(err, schema.ErrSchema) {
			t.Errorf("%+v: got %v, want %q", test.give, err, test.want)
		}
	}
}

// TestValidateOrder checks that Validate always returns the same one of several problems: the first
// in the order of names.
func TestValidateOrder(t *testing.T) {
	fields := map[string]schema.Field{}
	for _, name := range strings.Fields("k i d b z m y") {
		fields[name] = schema.Field{Codec: "none"}
	}
	for range 20 {
		err := oneType(schema.Type{Primary: "id", Fields: fields}).Validate()
		if err == nil || !strings.HasPrefix(err.Error(), "schema: types.t.fields.b.codec:") {
			t.Fatalf("got %v, want an error at types.t.fields.b.codec", err)
		}
	}
}

func TestErrorIsOnlyErrSchema(t *testing.T) {
	if err := (&schema.Error{Reason: "x"}); errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, schema.ErrSchema) {
		t.Error("a schema error must match ErrSchema and no other error")
	}
}

// TestUserIsNew checks that callers of User cannot change each other's schema.
func TestUserIsNew(t *testing.T) {
	s := schema.User()
	s.Types["user"].Fields["email"] = schema.Field{}
	s.Types["user"].Password.Cost = 4
	if !reflect.DeepEqual(schema.User().Types["user"].Secondary(), []string{"email", "name"}) ||
		schema.User().Types["user"].Password.Cost != 12 || schema.DefaultPassword().Cost != 12 {
		t.Error("the built-in schema was changed")
	}
}

func TestPolicy(t *testing.T) {
	tests := []struct {
		give *schema.Password
		want schema.Password
	}{
		{nil, schema.Password{Cost: 12, Min: 8, Blocklist: true}},
		{&schema.Password{}, schema.Password{Cost: 12}},
		{&schema.Password{Cost: 10, Min: 4, Strength: 2}, schema.Password{Cost: 10, Min: 4, Strength: 2}},
	}
	for _, test := range tests {
		if got := (schema.Type{Password: test.give}).Policy(); got != test.want {
			t.Errorf("%v: got %+v, want %+v", test.give, got, test.want)
		}
	}
	if p := (&schema.Password{}); (schema.Type{Password: p}).Policy().Cost != 12 || p.Cost != 0 {
		t.Error("Policy changed the schema")
	}
}

func TestNames(t *testing.T) {
	user := wholeSchema.Types["user"]
	tests := map[string]struct{ got, want []string }{
		"types":            {wholeSchema.Names(), []string{"invoice", "user"}},
		"secondary":        {user.Secondary(), []string{"email"}},
		"indexed":          {user.Indexed(), []string{"city"}},
		"ordered":          {user.Ordered(), []string{"born"}},
		"tertiary":         {user.TertiaryNames(), []string{"seen", "tags"}},
		"indexed tertiary": {user.IndexedTertiary(), []string{"tags"}},
		"none":             {wholeSchema.Types["invoice"].Secondary(), nil},
	}
	for name, test := range tests {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("%s: got %q, want %q", name, test.got, test.want)
		}
	}
	for field, want := range map[string]schema.Codec{"born": schema.CodecDate, "job": schema.CodecText, "nobody": schema.CodecText} {
		if got := user.Codec(field); got != want {
			t.Errorf("codec of %s: got %s, want %s", field, got, want)
		}
	}
}

// TestRoundTrip writes and loads arbitrary valid schemas.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anySchema().Draw(t, "schema")
		file, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := schema.Load(strings.NewReader(string(file)))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\ngot  %+v, %v\nwant %+v", file, got, err, want)
		}
		for name, typ := range want.Types {
			if got.Types[name].Fingerprint() != typ.Fingerprint() {
				t.Fatalf("%s: the fingerprint has changed", name)
			}
		}
	})
}

// anySchema generates valid schemas. The names of types begin with a capital letter, so that no
// field has the same name.
func anySchema() *rapid.Generator[schema.Schema] {
	types := rapid.MapOfN(rapid.StringMatching(`[A-Z][A-Za-z0-9./: é]{0,8}`), anyType(), 1, 4)
	return rapid.Map(types, func(t map[string]schema.Type) schema.Schema { return schema.Schema{Types: t} })
}

func anyType() *rapid.Generator[schema.Type] {
	name := rapid.StringMatching(`[a-z<>&"\\][a-z0-9./: é\n]{0,8}`)
	return rapid.Custom(func(t *rapid.T) schema.Type {
		typ := schema.Type{
			Primary: "1" + name.Draw(t, "primary"),
			Fold:    rapid.SampledFrom([]schema.Fold{"", schema.FoldExact, schema.FoldCasefold}).Draw(t, "fold"),
		}
		typ.Fields = orNil(rapid.MapOfN(name, anyField(), 0, 6).Draw(t, "fields"))
		typ.Tertiary = orNil(rapid.MapOfN(rapid.StringMatching(`[0-9 ]{1,9}`), anyTertiary(), 0, 3).Draw(t, "tertiary"))
		if rapid.Bool().Draw(t, "password") {
			typ.Password = &schema.Password{
				Cost:      rapid.SampledFrom([]int{0, 4, 12, 15}).Draw(t, "cost"),
				Min:       rapid.IntRange(0, 72).Draw(t, "min"),
				Strength:  rapid.IntRange(0, 4).Draw(t, "strength"),
				Blocklist: rapid.Bool().Draw(t, "blocklist"),
			}
		}
		return typ
	})
}

func anyField() *rapid.Generator[schema.Field] {
	codecs := []schema.Codec{
		"", schema.CodecText, schema.CodecIdentity, schema.CodecDate, schema.CodecNumber,
		schema.CodecJSON, schema.CodecBoolean, schema.CodecNull,
	}
	return rapid.Custom(func(t *rapid.T) schema.Field {
		f := schema.Field{
			Role:    schema.Role(rapid.IntRange(0, 7).Draw(t, "role")),
			Kind:    rapid.SampledFrom([]string{"", "email", "nickname", "username", "url", "pattern"}).Draw(t, "kind"),
			Pattern: rapid.SampledFrom([]string{"^a+$", `[^<>&"\\]`, "\u2028|é"}).Draw(t, "pattern"),
		}
		typed := slices.Contains([]string{"email", "nickname", "username"}, f.Kind)
		if f.Role.Has(schema.RoleSecondary) && !typed && rapid.Bool().Draw(t, "untyped") {
			f.Typed = new(false)
		}
		if !f.Role.Has(schema.RoleSecondary) {
			f.Codec = rapid.SampledFrom(codecs).Draw(t, "codec")
		}
		if reserved := rapid.SliceOfN(rapid.StringN(1, 9, -1), 0, 3).Draw(t, "reserved"); len(reserved) > 0 {
			f.Reserved = reserved
		}
		return f
	})
}

func anyTertiary() *rapid.Generator[schema.Tertiary] {
	return rapid.SampledFrom([]schema.Tertiary{
		{Kind: "set"},
		{Kind: "set", Indexed: true},
		{Kind: "list", Max: 7},
		{Kind: "zset"},
		{Kind: "hash"},
		{Kind: "string"},
	})
}

// orNil returns m, or nil if m is empty, because Load returns nil for an empty object.
func orNil[V any](m map[string]V) map[string]V {
	if len(m) == 0 {
		return nil
	}
	return m
}
