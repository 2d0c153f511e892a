package schema_test

import (
	"testing"

	"github.com/coffeenode/userdb/schema"
)

// TestFingerprintStays fails if a change of the code would make every existing database refuse its
// own schema.
func TestFingerprintStays(t *testing.T) {
	tests := map[string]struct {
		typ  schema.Type
		want string
	}{
		"built in":                             {schema.User().Types["user"], "1df6cd2ac1ae4421"},
		"plain":                                {plainUser(), "b01659932dc032d0"},
		"original, CoffeeNode UserDB":          {originalSchema(t).Types["user"], "5b7de14ff681bc3a"},
		"all properties":                       {wholeSchema.Types["user"], "27d2d0e33dec11b2"},
		"primary field only":                   {schema.Type{Primary: "id"}, "d2f52e689f259ba0"},
		"plain, canonical form 1":              {changed(func(t *schema.Type) { t.Form = "1" }), "b4bcaf91c531509b"},
		"primary field only, canonical form 1": {schema.Type{Primary: "id", Form: "1"}, "a7d140393d323234"},
		"original, canonical form 1, which the exact fold ignores": {changedOriginal(t), "5b7de14ff681bc3a"},
	}
	for name, test := range tests {
		if got := test.typ.Fingerprint(); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

func changedOriginal(t *testing.T) schema.Type {
	typ := originalSchema(t).Types["user"]
	typ.Form = "1"
	return typ
}

// plainUser returns the built-in type without ordered fields, as earlier versions had it.
func plainUser() schema.Type {
	t := schema.User().Types["user"]
	for name, f := range t.Fields {
		f.Role &^= schema.RoleOrdered
		t.Fields[name] = f
	}
	return t
}

// changed returns the type of plainUser after a change.
func changed(change func(*schema.Type)) schema.Type {
	t := plainUser()
	change(&t)
	return t
}

// TestDifference changes one property or two, and checks that Difference and Fingerprint agree.
func TestDifference(t *testing.T) {
	tests := []struct {
		change func(*schema.Type)
		want   string
	}{
		{func(*schema.Type) {}, ""},
		{func(t *schema.Type) { t.Fields["city"] = schema.Field{} }, ""},
		{func(t *schema.Type) { t.Fields["age"] = schema.Field{Codec: schema.CodecNumber, Pattern: "x"} }, ""},
		{func(t *schema.Type) { delete(t.Fields, "job") }, ""},
		{func(t *schema.Type) {
			t.Fields["email"] = schema.Field{Role: schema.RoleSecondary, Kind: "url", Reserved: []string{"a"}}
		}, ""},
		{func(t *schema.Type) { t.Fold = "" }, ""},
		{func(t *schema.Type) { t.Password = nil }, ""},
		{func(t *schema.Type) { t.Tertiary["seen"] = schema.Tertiary{Kind: "list"} }, ""},
		{func(t *schema.Type) { t.Primary = "id" }, "primary field: stored uid; here id"},
		{func(t *schema.Type) { t.Fold = schema.FoldExact }, "fold: stored casefold; here exact"},
		{func(t *schema.Type) { t.Form = schema.FormVersion() }, ""},
		{func(t *schema.Type) { t.Form = "1" }, `canonical form: stored "` + schema.FormVersion() + `"; here 1`},
		{func(t *schema.Type) { t.Fields["name"] = schema.Field{} }, "secondary fields: stored email, name; here email"},
		{func(t *schema.Type) { t.Fields["job"] = schema.Field{Role: schema.RoleSecondary} }, "secondary fields: stored email, name; here email, job, name"},
		{func(t *schema.Type) { t.Fields["job"] = schema.Field{Role: schema.RoleIndexed} }, "indexed fields: stored none; here job"},
		{func(t *schema.Type) { t.Fields["a, b"] = schema.Field{Role: schema.RoleIndexed} }, `indexed fields: stored none; here "a, b"`},
		{func(t *schema.Type) { t.Fields["added"] = schema.Field{Role: schema.RoleOrdered} }, "ordered fields: stored none; here added"},
		{func(t *schema.Type) { t.Tertiary["tags"] = schema.Tertiary{Kind: "set"} }, "indexed tertiary records: stored tags; here none"},
		{func(t *schema.Type) { t.Fold = schema.FoldExact; t.Fields = nil }, "fold: stored casefold; here exact, and secondary fields: stored email, name; here none"},
	}
	stored := plainUser()
	for _, test := range tests {
		here := changed(test.change)
		if got := here.Difference(stored); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
		if same := here.Fingerprint() == stored.Fingerprint(); same != (test.want == "") {
			t.Errorf("difference %q: the fingerprints are equal: %t, want %t", test.want, same, test.want == "")
		}
	}
}
