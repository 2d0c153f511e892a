package check_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

func requireEqual(t testdb.Tester, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", what, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// fields returns n fields, all declared like f.
func fields(n int, f schema.Field) map[string]schema.Field {
	all := map[string]schema.Field{}
	for i := range n {
		all[fmt.Sprintf("f%d", i)] = f
	}
	return all
}

// longName fits as a field name by itself, but not with ~skv: before it.
var longName = strings.Repeat("n", 60)

// The numbers of fields rely on this: an entry can have 12 more than its type has in Fields, and a
// folded secondary field takes two.
var notCompactTests = []struct {
	what, typ string
	t         schema.Type
	want      []string
}{
	{"the built-in schema", "user", schema.User().Types["user"], nil},
	{"many fields", "user", schema.Type{Primary: "id", Fields: fields(502, schema.Field{})}, []string{`: an entry of type "user" with all its fields has 514, more than 512`}},
	{"many fields, but not too many", "user", schema.Type{Primary: "id", Fields: fields(500, schema.Field{})}, nil},
	{"many secondary fields", "user", schema.Type{Primary: "id", Fields: fields(253, schema.Field{Role: schema.RoleSecondary})}, []string{`: an entry of type "user" with all its fields has 518, more than 512`}},
	{"many exact secondary fields", "user", schema.Type{Primary: "id", Fold: schema.FoldExact, Fields: fields(253, schema.Field{Role: schema.RoleSecondary})}, nil},
	{
		"long names", "user",
		schema.Type{Primary: "id", Fields: map[string]schema.Field{longName: {Role: schema.RoleSecondary}, longName + "12345": {}, longName + "1234": {}}},
		[]string{
			longName + "12345: the name of the field \"" + longName + "12345\" has 65 bytes, more than 64",
			"~skv:" + longName + ": the name of the field \"~skv:" + longName + "\" has 65 bytes, more than 64",
		},
	},
	{"a type with room for the usual UID", strings.Repeat("t", 48), schema.Type{Primary: "id"}, nil},
	{
		"a type without room for the usual UID", strings.Repeat("t", 47) + " ",
		schema.Type{Primary: "id"},
		[]string{`~prk: ~prk of type "` + strings.Repeat("t", 47) + ` " has more than 64 bytes with a UID of more than 11; generated UIDs have 12`},
	},
	{
		"a type name that is too long", strings.Repeat("t", 80),
		schema.Type{Primary: "id"},
		[]string{`~prk: ~prk of type "` + strings.Repeat("t", 80) + `" has more than 64 bytes with a UID of more than 0; generated UIDs have 12`},
	},
}

func TestNotCompact(t *testing.T) {
	const tail = "; by its default limits, Redis does not keep such entries compact, so they take more memory"
	for _, tt := range notCompactTests {
		t.Run(tt.what, func(t *testing.T) {
			var got []string
			for _, p := range check.NotCompact(schema.Schema{Types: map[string]schema.Type{tt.typ: tt.t}}) {
				text, known := strings.CutSuffix(p.Text, tail)
				got = append(got, p.Field+": "+text)
				key := "~/schema/" + recordkey.Escape(tt.typ)
				if !known || p.Severity == check.SeverityError || p.Code != "entry_not_compact" || p.Key != key {
					t.Errorf("got %+v, want a warning with the code entry_not_compact, the key %s and the usual end of the text", p, key)
				}
			}
			requireEqual(t, "reported", got, tt.want)
		})
	}
}

// TestNotCompactMatchesRedis checks that NotCompact warns if, and only if, Redis does not store an
// entry with the usual UID compactly. One type name is just short enough, the other is one byte
// longer.
func TestNotCompactMatchesRedis(t *testing.T) {
	for n, want := range map[int]string{48: "listpack", 49: "hashtable"} {
		typ := strings.Repeat("t", n)
		sch := schema.Schema{Types: map[string]schema.Type{typ: {Primary: "id"}}}
		s := newSite(testdb.Open(t, testdb.ServerClient(t), recordkey.Namespace{}, sch))
		e, err := s.Type(t, typ).Create(s.Ctx, userdb.NewEntry{})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Raw.ObjectEncoding(s.Ctx, e.Key().String()).Val(); got != want {
			t.Errorf("a type name of %d bytes: Redis stores an entry as %s, want %s", n, got, want)
		}
		if warned := len(check.NotCompact(sch)) > 0; warned != (want != "listpack") {
			t.Errorf("a type name of %d bytes: warned %v, want %v", n, warned, !warned)
		}
	}
}
