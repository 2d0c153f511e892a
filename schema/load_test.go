package schema_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/coffeenode/userdb/schema"
)

// wholeFile uses every member of a schema file; wholeSchema is the same schema in Go.
const wholeFile = `{"types": {
	"user": {
		"primary": "uid", "fold": "exact",
		"fields": {
			"uid":    {"kind": "pattern", "pattern": "^[0-9a-f]{12}$"},
			"email":  {"role": "secondary", "kind": "email", "reserved": ["root@localhost"], "many": 3},
			"rating": {"codec": "json"},
			"city":   {"role": "indexed"},
			"born":   {"role": "ordered", "codec": "date"},
			"job":    {}
		},
		"tertiary": {
			"tags":  {"kind": "set", "indexed": true},
			"seen":  {"kind": "list", "indexed": false, "max": 50}
		},
		"password": {"cost": 10, "min": 0, "strength": 3, "blocklist": false}
	},
	"invoice": {"primary": "number"}
}}`

var wholeSchema = schema.Schema{Types: map[string]schema.Type{
	"user": {
		Primary: "uid",
		Fold:    schema.FoldExact,
		Fields: map[string]schema.Field{
			"uid":    {Kind: "pattern", Pattern: "^[0-9a-f]{12}$"},
			"email":  {Role: schema.RoleSecondary, Kind: "email", Reserved: []string{"root@localhost"}, Many: 3},
			"rating": {Codec: schema.CodecJSON},
			"city":   {Role: schema.RoleIndexed},
			"born":   {Role: schema.RoleOrdered, Codec: schema.CodecDate},
			"job":    {},
		},
		Tertiary: map[string]schema.Tertiary{"tags": {Kind: "set", Indexed: true}, "seen": {Kind: "list", Max: 50}},
		Password: &schema.Password{Cost: 10, Strength: 3},
	},
	"invoice": {Primary: "number"},
}}

func TestLoad(t *testing.T) {
	tests := map[string]struct {
		file string
		want schema.Schema
	}{
		"every member": {wholeFile, wholeSchema},
		"built in": {`{"types": {"user": {
			"primary": "uid", "fold": "casefold",
			"fields": {"email": {"role": ["secondary", "ordered"], "kind": "email"},
			           "name":  {"role": ["secondary", "ordered"], "kind": "nickname"},
			           "added": {"role": "ordered", "codec": "date"}, "job": {}},
			"tertiary": {"tags": {"kind": "set", "indexed": true}},
			"password": {"cost": 12, "min": 8}}}}`, schema.User()},
		"byte order mark": {"\ufeff" + fileWithType(`"primary":"id"`), oneType(schema.Type{Primary: "id"})},
		"empty members": {
			fileWithType(`"primary":"id","fields":{},"tertiary":{},"password":{}`),
			oneType(schema.Type{Primary: "id", Password: &schema.Password{Cost: 12, Min: 8, Blocklist: true}}),
		},
		"typed, which is the default": {
			fileWithField(`"role":"secondary","typed":true`),
			oneType(schema.Type{Primary: "id", Fields: map[string]schema.Field{"f": {Role: schema.RoleSecondary}}}),
		},
		"untyped, with all that goes with it": {
			fileWithField(`"role":["secondary","ordered","indexed"],"typed":false,"many":3,"kind":"url","required":true`),
			oneType(schema.Type{Primary: "id", Fields: map[string]schema.Field{"f": {
				Role: schema.RoleSecondary | schema.RoleOrdered | schema.RoleIndexed, Typed: new(false), Many: 3, Kind: "url", Required: true,
			}}}),
		},
		"no password policy": {
			fileWithType(`"primary":"id","password":{"cost":0,"min":0,"blocklist":false}`),
			oneType(schema.Type{Primary: "id", Password: &schema.Password{}}),
		},
	}
	for name, test := range tests {
		got, err := schema.Load(strings.NewReader(test.file))
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, test.want)
		}
	}
}

// TestLoadOriginal loads the options.json under which CoffeeNode UserDB, the original of this
// store, wrote the fixtures.
func TestLoadOriginal(t *testing.T) {
	got := originalSchema(t)
	want := schema.Schema{Types: map[string]schema.Type{"user": {
		Primary: "uid",
		Fold:    schema.FoldExact,
		Open:    true,
		Fields: map[string]schema.Field{
			"email":       {Role: schema.RoleSecondary},
			"name":        {Role: schema.RoleSecondary, Codec: schema.CodecText},
			"nonexistent": {Role: schema.RoleSecondary},
			"age":         {Codec: schema.CodecNumber},
			"rating":      {Codec: schema.CodecJSON},
			"added":       {Codec: schema.CodecDate},
		},
		Password: &schema.Password{Cost: 10},
	}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func originalSchema(t *testing.T) schema.Schema {
	file, err := os.Open("../test/testdata/original/original_options.json")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s, err := schema.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fileWithType returns a schema file with one type, t.
func fileWithType(members string) string { return `{"types":{"t":{` + members + `}}}` }

// fileWithField returns a schema file with the primary field id and a field f.
func fileWithField(members string) string {
	return fileWithType(`"primary":"id","fields":{"f":{` + members + `}}`)
}

func oneType(t schema.Type) schema.Schema {
	return schema.Schema{Types: map[string]schema.Type{"t": t}}
}

// many returns n members of an object.
func many(n int, value string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`"n%d":%s`, i, value)
	}
	return strings.Join(all, ",")
}

// TestLoadErrors loads files with one mistake each.
func TestLoadErrors(t *testing.T) {
	tests := []struct{ file, want string }{
		// Not JSON.
		{``, `schema: not JSON: line 1, column 1: unexpected end of JSON input`},
		{"{\n  \"typ√\": }", `schema: not JSON: line 2, column 11: invalid character '}' looking for beginning of value`},
		{fileWithType(`"primary":"id"`) + ` {}`, `schema: not JSON: line 1, column 34: invalid character '{' after top-level value`},
		{"{\"types\xff\":{}}", `schema: the file is not UTF-8`},
		{strings.Repeat(" ", schema.MaxFile) + "{}", `schema: the file is larger than 1048576 bytes`},
		{`{"types":` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `}`, `schema: types.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0: nested too deeply`},

		// Wrong structure.
		{`[]`, `schema: want an object, got a list`},
		{`null`, `schema: want an object, got null`},
		{`{}`, `schema: types: no type is declared`},
		{`{"types":{}}`, `schema: types: no type is declared`},
		{`{"types":[]}`, `schema: types: want an object, got a list`},
		{`{"types":{"t":"id"}}`, `schema: types.t: want an object, got a string`},
		{fileWithType(`"primary":1`), `schema: types.t.primary: want a string, got a number`},
		{fileWithType(`"primary":"id","password":null`), `schema: types.t.password: want an object, got null`},
		{fileWithType(`"primary":"id","password":{"cost":"12"}`), `schema: types.t.password.cost: want a number, got a string`},
		{fileWithType(`"primary":"id","password":{"cost":12.5}`), `schema: types.t.password.cost: want a whole number, got 12.5`},
		{fileWithType(`"primary":"id","password":{"min":1e99}`), `schema: types.t.password.min: want a whole number, got 1e99`},
		{fileWithType(`"primary":"id","password":{"blocklist":1}`), `schema: types.t.password.blocklist: want true or false, got a number`},
		{fileWithField(`"reserved":"root"`), `schema: types.t.fields.f.reserved: want a list, got a string`},
		{fileWithField(`"reserved":["a",true]`), `schema: types.t.fields.f.reserved.1: want a string, got true or false`},

		// Previous names of fields.
		{fileWithType(`"primary":"id","fields":{"f":{"was":"g"},"g":{}}`), `schema: types.t.fields.f.was: g is still declared, or is a key or a password`},
		{fileWithField(`"was":"id"`), `schema: types.t.fields.f.was: id is still declared, or is a key or a password`},
		{fileWithField(`"was":"password"`), `schema: types.t.fields.f.was: password is still declared, or is a key or a password`},
		{fileWithField(`"was":"f"`), `schema: types.t.fields.f.was: f is still declared, or is a key or a password`},
		{fileWithType(`"primary":"id","fields":{"f":{"was":"h"},"g":{"was":"h"}}`), `schema: types.t.fields.f.was: h is also the previous name of another field`},
		{fileWithField(`"was":"~h"`), `schema: types.t.fields.f.was: names that begin with ~ are reserved for the store`},

		// Unknown and repeated keys.
		{`{"types":{"t":{"primary":"id"}},"type":{}}`, `schema: type: unknown key; want one of types`},
		{fileWithType(`"primary":"id","field":{}`), `schema: types.t.field: unknown key; want one of building, canonical, factors, fields, fold, open, orders, password, primary, retire, retired, tertiary`},
		{fileWithField(`"rolle":"secondary"`), `schema: types.t.fields.f.rolle: unknown key; want one of codec, hold, kind, many, pattern, required, reserved, role, typed, was`},
		{fileWithField(`"Role":"secondary"`), `schema: types.t.fields.f.Role: unknown key; want one of codec, hold, kind, many, pattern, required, reserved, role, typed, was`},
		{fileWithType(`"primary":"id","tertiary":{"a":{"kind":"set","index":true}}`), `schema: types.t.tertiary.a.index: unknown key; want one of indexed, kind, max`},
		{fileWithType(`"primary":"id","password":{"rounds":1}`), `schema: types.t.password.rounds: unknown key; want one of blocklist, cost, min, strength`},
		{`{"types":{"t":{"primary":"id"},"t":{"primary":"id"}}}`, `schema: types.t: named twice`},
		{fileWithField(`"role":"secondary","role":"indexed"`), `schema: types.t.fields.f.role: named twice`},
		{fileWithType(`"primary":"id","fields":{"f":{},"\u0066":{}}`), `schema: types.t.fields.f: named twice`},
		{fileWithField(`"x\ny":1`), `schema: types.t.fields.f."x\ny": unknown key; want one of codec, hold, kind, many, pattern, required, reserved, role, typed, was`},

		// Unknown words.
		{fileWithField(`"codec":"nubmer"`), `schema: types.t.fields.f.codec: unknown codec nubmer; want one of boolean, date, identity, json, null, number, text`},
		{fileWithField(`"role":"secondary","codec":"nubmer"`), `schema: types.t.fields.f.codec: unknown codec nubmer; want one of boolean, date, identity, json, null, number, text`},
		{fileWithField(`"codec":""`), `schema: types.t.fields.f.codec: empty; leave it out instead`},
		{fileWithField(`"role":"unique"`), `schema: types.t.fields.f.role: unknown role unique; want one of indexed, ordered, secondary`},
		{fileWithField(`"kind":"e mail"`), `schema: types.t.fields.f.kind: unknown kind "e mail"; want one of email, email-dots, nickname, pattern, url, username`},
		{fileWithType(`"primary":"id","fold":"lower"`), `schema: types.t.fold: unknown fold lower; want one of casefold, exact`},
		{fileWithType(`"primary":"id","tertiary":{"a":{"kind":"stream"}}`), `schema: types.t.tertiary.a.kind: unknown kind stream; want one of hash, list, set, string, zset`},
		{fileWithType(`"primary":"id","tertiary":{"a":{}}`), `schema: types.t.tertiary.a.kind: missing; want one of hash, list, set, string, zset`},

		// Roles.
		{fileWithField(`"role":["secondary","index"]`), `schema: types.t.fields.f.role.1: unknown role index; want one of indexed, ordered, secondary`},
		{fileWithField(`"role":["ordered","ordered"]`), `schema: types.t.fields.f.role.1: the role ordered appears twice`},
		{fileWithField(`"role":["ordered",""]`), `schema: types.t.fields.f.role.1: empty; leave it out instead`},
		{fileWithField(`"role":{"ordered":true}`), `schema: types.t.fields.f.role: want a string, got an object`},
		{fileWithType(`"primary":"id","fields":{"id":{"role":"secondary"}}`), `schema: types.t.fields.id.role: the primary field cannot have a role`},
		{fileWithType(`"primary":"id","fields":{"id":{"codec":"number"}}`), `schema: types.t.fields.id.codec: a key must be text`},
		{fileWithField(`"role":"secondary","codec":"number"`), `schema: types.t.fields.f.codec: a key must be text`},
		{fileWithType(`"primary":"id","fields":{"password":{"role":"secondary"}}`), `schema: types.t.fields.password.role: a password cannot be a key or be indexed`},
		{fileWithType(`"primary":"id","fields":{"password":{"role":"indexed"}}`), `schema: types.t.fields.password.role: a password cannot be a key or be indexed`},
		{fileWithType(`"primary":"id","fields":{"password":{"codec":"json"}}`), `schema: types.t.fields.password.codec: a password must be text`},
		{fileWithType(`"primary":"password"`), `schema: types.t.primary: a password cannot be a key`},
		{fileWithType(`"primary":"id","tertiary":{"a":{"kind":"list","max":-1}}`), `schema: types.t.tertiary.a.max: -1 is not between 0 and 100000`},
		{fileWithType(`"primary":"id","tertiary":{"a":{"kind":"list","max":100001}}`), `schema: types.t.tertiary.a.max: 100001 is not between 0 and 100000`},
		{fileWithType(`"primary":"id","tertiary":{"a":{"kind":"string","max":1}}`), `schema: types.t.tertiary.a.max: a string has no members`},
		{fileWithType(`"primary":"id","tertiary":{"a":{"kind":"list","indexed":true}}`), `schema: types.t.tertiary.a.indexed: only a set can be indexed`},
		{fileWithType(`"primary":"id","fields":{"a":{"role":"indexed"}},"tertiary":{"a":{"kind":"set","indexed":true}}`), `schema: types.t.tertiary.a.indexed: the field of this name already has an index`},
		{fileWithType(`"primary":"id","fields":{"a":{"role":"ordered"}},"tertiary":{"a":{"kind":"set","indexed":true}}`), `schema: types.t.tertiary.a.indexed: the field of this name already has an index`},

		{fileWithField(`"many":2`), `schema: types.t.fields.f.many: only a secondary field can have several values`},
		{fileWithField(`"role":"secondary","many":101`), `schema: types.t.fields.f.many: 101 is not between 0 and 100`},
		{fileWithField(`"typed":false`), `schema: types.t.fields.f.typed: only a secondary field can be untyped`},
		{fileWithField(`"role":"ordered","typed":false`), `schema: types.t.fields.f.typed: only a secondary field can be untyped`},
		{fileWithField(`"role":"secondary","kind":"email","typed":false`), `schema: types.t.fields.f.typed: people type values of the kind email`},
		{fileWithField(`"role":"secondary","kind":"nickname","typed":false`), `schema: types.t.fields.f.typed: people type values of the kind nickname`},
		{fileWithField(`"role":"secondary","typed":"no"`), `schema: types.t.fields.f.typed: want true or false, got a string`},
		{fileWithField(`"role":"secondary","many":"2"`), `schema: types.t.fields.f.many: want a number, got a string`},
		{fileWithType(`"primary":"id","fields":{"a:b":{"role":"secondary"},"c":{"role":"secondary","many":2}}`), `schema: types.t.fields."a:b": in a type with many or hold, the name of a secondary field cannot have a colon`},

		// Names.
		{fileWithType(``), `schema: types.t.primary: the type has no primary key`},
		{fileWithType(`"primary":""`), `schema: types.t.primary: empty; leave it out instead`},
		{fileWithType(`"primary":"~id"`), `schema: types.t.primary: names that begin with ~ are reserved for the store`},
		{fileWithType(`"primary":"*"`), `schema: types.t.primary: the name * is reserved: in a hint it means every secondary field`},
		{fileWithType(`"primary":"id","fields":{"*":{}}`), `schema: types.t.fields.*: the name * is reserved: in a hint it means every secondary field`},
		{fileWithType(`"primary":"id","fields":{"~prk":{}}`), `schema: types.t.fields.~prk: names that begin with ~ are reserved for the store`},
		{fileWithType(`"primary":"id","fields":{"":{}}`), `schema: types.t.fields."": name is empty`},
		{fileWithType(`"primary":"id","tertiary":{"~prks":{"kind":"set"}}`), `schema: types.t.tertiary.~prks: names that begin with ~ are reserved for the store`},
		{`{"types":{"~own":{"primary":"id"}}}`, `schema: types.~own: names that begin with ~ are reserved for the store`},
		{`{"types":{"*":{"primary":"id"}}}`, `schema: types.*: the name * is reserved: in a hint it means every secondary field`},
		{`{"types":{"":{"primary":"id"}}}`, `schema: types."": name is empty`},
		{fileWithType(`"primary":"id","fields":{"` + strings.Repeat("x", 1025) + `":{}}`), `schema: types.t.fields."` + strings.Repeat("x", 64) + `…": name is over 1024 bytes`},
		{fileWithType(`"primary":"t"`), `schema: types.t: a field of type t also has this name`},
		{fileWithType(`"primary":"id","fields":{"t":{}}`), `schema: types.t: a field of type t also has this name`},
		{`{"types":{"a":{"primary":"id","fields":{"b.c":{}}},"b.c":{"primary":"id"}}}`, `schema: types."b.c": a field of type a also has this name`},

		// Rules.
		{fileWithField(`"pattern":"a("`), "schema: types.t.fields.f.pattern: missing closing ): \"a(\""},
		{fileWithField(`"pattern":"(?=a)"`), "schema: types.t.fields.f.pattern: invalid or unsupported Perl syntax: \"(?=\""},
		{fileWithField(`"pattern":"` + strings.Repeat("x", 4097) + `"`), `schema: types.t.fields.f.pattern: longer than 4096 bytes`},
		{fileWithField(`"kind":"pattern"`), `schema: types.t.fields.f.pattern: the kind pattern requires a pattern`},
		{fileWithField(`"reserved":["root",""]`), `schema: types.t.fields.f.reserved.1: empty; leave it out instead`},
		{fileWithType(`"primary":"id","password":{"cost":3}`), `schema: types.t.password.cost: 3 is not between 4 and 15`},
		{fileWithType(`"primary":"id","password":{"cost":16}`), `schema: types.t.password.cost: 16 is not between 4 and 15`},
		{fileWithType(`"primary":"id","password":{"min":73}`), `schema: types.t.password.min: 73 is not between 0 and 72`},
		{fileWithType(`"primary":"id","password":{"min":-1}`), `schema: types.t.password.min: -1 is not between 0 and 72`},
		{fileWithType(`"primary":"id","password":{"strength":5}`), `schema: types.t.password.strength: 5 is not between 0 and 4`},

		// Limits.
		{`{"types":{` + many(65, `{"primary":"id"}`) + `}}`, `schema: types: more than 64 types`},
		{fileWithType(`"primary":"id","fields":{` + many(257, `{}`) + `}`), `schema: types.t.fields: more than 256 fields`},
		{fileWithType(`"primary":"id","tertiary":{` + many(257, `{"kind":"set"}`) + `}`), `schema: types.t.tertiary: more than 256 records`},
		{fileWithField(`"reserved":[` + strings.TrimSuffix(strings.Repeat(`"a",`, 4097), ",") + `]`), `schema: types.t.fields.f.reserved: more than 4096 values`},

		// The options.json of the original.
		{`{"schema":{},"indexes":{}}`, `schema: types: no type is declared`},
		{`{"schema":{},"cluster":1}`, `schema: cluster: unknown key; want one of bcrypt, collection-idx, hostname, indexes, port, protocol, schema`},
		{`{"types":{"t":{"primary":"id"}},"schema":{}}`, `schema: schema: unknown key; want one of types`},
		{`{"schema":{"u":{"age":"int"}},"indexes":{"u":{"primary-key":"uid"}}}`, `schema: schema.u.age: unknown codec int; want one of boolean, date, identity, json, null, number, text`},
		{`{"schema":{"u":{"age":42}},"indexes":{"u":{"primary-key":"uid"}}}`, `schema: schema.u.age: want a string, got a number`},
		{`{"schema":{"u":{"age":"text"}}}`, `schema: indexes.u.primary-key: the type has no primary key`},
		{`{"indexes":{"u":{"secondary-keys":["a"]}}}`, `schema: indexes.u.primary-key: the type has no primary key`},
		{`{"indexes":{"u":{"primary":"uid"}}}`, `schema: indexes.u.primary: unknown key; want one of primary-key, secondary-keys`},
		{`{"indexes":{"u":{"primary-key":"uid","secondary-keys":["a","b","a"]}}}`, `schema: indexes.u.secondary-keys.2: a appears twice`},
		{`{"indexes":{"u":{"primary-key":"uid","secondary-keys":["uid"]}}}`, `schema: indexes.u: uid is the primary key and a secondary key`},
		{`{"indexes":{"u":{"primary-key":"uid","secondary-keys":["~a"]}}}`, `schema: indexes.u.secondary-keys: names that begin with ~ are reserved for the store`},
		{`{"schema":{"u":{"age":"number"}},"indexes":{"u":{"primary-key":"uid","secondary-keys":["age"]}}}`, `schema: schema.u.age: a key must be text`},
		{`{"indexes":{"~u":{"primary-key":"uid"}}}`, `schema: indexes.~u: names that begin with ~ are reserved for the store`},
		{`{"schema":{"~u":{}}}`, `schema: schema.~u: names that begin with ~ are reserved for the store`},
		{`{"bcrypt":{"rounds":31},"indexes":{"u":{"primary-key":"uid"}}}`, `schema: bcrypt.rounds: 31 is not between 4 and 15`},
		{`{"bcrypt":{"rounds":10,"salt":1},"indexes":{"u":{"primary-key":"uid"}}}`, `schema: bcrypt.salt: unknown key; want one of rounds`},
	}
	for _, test := range tests {
		s, err := schema.Load(strings.NewReader(test.file))
		var bad *schema.Error
		if !errors.As(err, &bad) || !errors.Is(err, schema.ErrSchema) || err.Error() != test.want {
			t.Errorf("%.200s\ngot  %v\nwant %s", test.file, err, test.want)
		}
		if s.Types != nil {
			t.Errorf("%.200s: got an error, but also a schema: %v", test.file, s)
		}
	}
}

// TestLoadReader checks that Load returns the reader's error.
func TestLoadReader(t *testing.T) {
	_, err := schema.Load(iotest.ErrReader(io.ErrClosedPipe))
	if !errors.Is(err, io.ErrClosedPipe) || errors.Is(err, schema.ErrSchema) || err.Error() != "reading schema: io: read/write on closed pipe" {
		t.Errorf("got %v, want the error of the closed pipe, which is not a schema error", err)
	}
}

// TestRoles checks that a field may have one role or several, in JSON and in Go.
func TestRoles(t *testing.T) {
	for text, want := range map[string]schema.Role{
		`"ordered"`:                         schema.RoleOrdered,
		`["ordered"]`:                       schema.RoleOrdered,
		`["secondary","ordered"]`:           schema.RoleSecondary | schema.RoleOrdered,
		`["indexed","ordered","secondary"]`: schema.RoleSecondary | schema.RoleIndexed | schema.RoleOrdered,
		`[]`:                                0,
	} {
		s, err := schema.Load(strings.NewReader(`{"types":{"t":{"primary":"id","fields":{"f":{"role":` + text + `}}}}}`))
		if got := s.Types["t"].Fields["f"].Role; err != nil || got != want {
			t.Errorf("%s: got %v, %v; want %v", text, got, err, want)
		}
		written, err := json.Marshal(want)
		var read schema.Role
		if err != nil || json.Unmarshal(written, &read) != nil || read != want {
			t.Errorf("%v: written as %s, and read as %v; want no change", want, written, read)
		}
	}
	typ := schema.Type{Fields: map[string]schema.Field{"a": {Role: schema.RoleSecondary | schema.RoleOrdered}, "b": {Role: schema.RoleOrdered}}}
	if got := fmt.Sprint(typ.Secondary(), typ.Indexed(), typ.Ordered()); got != "[a] [] [a b]" {
		t.Errorf("roles: got %s, want \"[a] [] [a b]\"", got)
	}
	if err := json.Unmarshal([]byte(`"roman"`), new(schema.Role)); err == nil {
		t.Error("UnmarshalJSON accepts an unknown role")
	}
}
