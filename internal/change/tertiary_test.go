package change

import (
	"errors"
	"slices"
	"testing"

	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// TestElements wants of elements what Redis takes, and an error for all that it would refuse behind the first write.
func TestElements(t *testing.T) {
	kinds := map[string]schema.Tertiary{}
	for _, kind := range []string{"zset", "hash", "string", "list"} {
		kinds[kind] = schema.Tertiary{Kind: kind}
	}
	c, err := Compile(schema.Schema{Types: map[string]schema.Type{"user": {Primary: "uid", Tertiary: kinds}}}, recordkey.Namespace{})
	if err != nil {
		t.Fatal(err)
	}
	users, err := c.Type("user")
	if err != nil {
		t.Fatal(err)
	}
	prk, _ := users.PRK("u")
	for _, tt := range []struct {
		kind     string
		in, want []string // nil: refused
	}{
		{"zset", []string{"1.50", "a", "-Infinity", "b", "0x1p4", "c"}, []string{"1.5", "a", "-Inf", "b", "16", "c"}},
		{"zset", []string{"nan", "a"}, nil},
		{"zset", []string{"1", "a", "0x_1p4", "b"}, []string{"1", "a", "16", "b"}},
		{"zset", []string{"1e999", "a"}, nil},
		{"zset", []string{"1"}, nil},
		{"hash", []string{"a"}, nil},
		{"hash", []string{"a", "b"}, []string{"a", "b"}},
		{"string", []string{"a", "b"}, nil},
		{"string", []string{"a"}, []string{"a"}},
		{"list", []string{"a", "a"}, []string{"a", "a"}},
	} {
		m, err := users.content(prk, Content{Name: tt.kind, Kind: tt.kind, Values: tt.in})
		if (err == nil) != (tt.want != nil) || err != nil && !errors.Is(err, ErrInvalid) || !slices.Equal(m.Values, tt.want) {
			t.Errorf("%s %q: got %q, %v, want %q", tt.kind, tt.in, m.Values, err, tt.want)
		}
	}
}
