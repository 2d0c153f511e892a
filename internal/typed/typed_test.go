package typed_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/internal/typed"
	"github.com/coffeenode/userdb/schema"
)

// revision stands for userdb.Revision.
type revision struct{ rev string }

// everything has a field of every kind.
type everything struct {
	UID   string   `userdb:"uid,primary"`
	Rev   revision `userdb:"~rev"`
	Text  string   `userdb:"text"`
	TextP *string  `userdb:"textp"`
	Word  word     `userdb:"word"`
	I8    int8     `userdb:"i8"`
	I16   int16    `userdb:"i16"`
	I32   int32    `userdb:"i32"`
	I64   int64    `userdb:"i64"`
	I     *int     `userdb:"i"`
	U8    uint8    `userdb:"u8"`
	U16   uint16   `userdb:"u16"`
	U32   uint32   `userdb:"u32"`
	U64   uint64   `userdb:"u64"`
	U     *uint    `userdb:"u"`
	F32   float32  `userdb:"f32"`
	F64   float64  `userdb:"f64"`
	F     *float64 `userdb:"f"`
	B     bool     `userdb:"b"`
	BP    *bool    `userdb:"bp"`
	*Part
	inner
}

// Part is embedded as a pointer.
type Part struct {
	At    time.Time   `userdb:"at"`
	AtP   *time.Time  `userdb:"atp"`
	Nano  time.Time   `userdb:"nano"`
	NanoP *time.Time  `userdb:"nanop"`
	Addr  netip.Addr  `userdb:"addr"`
	AddrP *netip.Addr `userdb:"addrp"`
	Big   *big.Int    `userdb:"big"`
	Some  int         `userdb:"some"`
}

type inner struct {
	List  []string          `userdb:"list"`
	ListP *[]int            `userdb:"listp"`
	Map   map[string]uint64 `userdb:"map"`
	Any   any               `userdb:"any"`
	Raw   json.RawMessage   `userdb:"raw"`
	Bytes []byte            `userdb:"bytes"`
	Array [2]float32        `userdb:"array"`
	Tree  tree              `userdb:"tree"`
	TreeP *tree             `userdb:"treep"`
	Str   string            `userdb:"str"`
}

type word string

type tree struct {
	Name     string
	Size     int64 `json:",omitempty"`
	At       *time.Time
	Children []tree `json:",omitempty"`
}

// everySchema returns the type that From declares for everything, with codecs that From would not
// choose.
func everySchema(t testing.TB) schema.Type {
	t.Helper()
	typ, err := schema.From[everything]()
	if err != nil {
		t.Fatal(err)
	}
	for field, codec := range map[string]schema.Codec{"nano": schema.CodecText, "nanop": schema.CodecIdentity, "str": schema.CodecJSON} {
		typ.Fields[field] = schema.Field{Codec: codec}
	}
	return typ
}

// source returns an entry without fields that may have several values.
func source(wires map[string]string) typed.Source { return typed.Source{Wires: wires} }

func allowed(string) string { return "" }

func planOf[T any](t testing.TB, typ schema.Type) *typed.Plan {
	t.Helper()
	p, err := typed.New(reflect.TypeFor[T](), typ, allowed, reflect.TypeFor[revision]())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// written returns the wire forms of the facets of a new entry made from v, with its UID and type.
func written[T any](t rapid.TB, p *typed.Plan, v T) map[string]string {
	uid, facets, _, bad := p.Facets(reflect.ValueOf(&v).Elem())
	if bad != nil {
		t.Fatalf("%s: %s", bad.Field, bad.Reason)
	}
	wires := map[string]string{"uid": uid, "~isa": "user"}
	for field, v := range facets {
		wires[field] = v.Wire()
	}
	return wires
}

func read[T any](t rapid.TB, p *typed.Plan, wires map[string]string) (v T) {
	if bad := p.Read(reflect.ValueOf(&v).Elem(), source(wires)); bad != nil {
		t.Fatalf("%s: %s", bad.Field, bad.Reason)
	}
	return v
}

// changes returns the wire forms of the edits to a struct that was read; nil means absent.
func changes[T any](t rapid.TB, p *typed.Plan, v T, wires map[string]string) map[string]*string {
	edits := map[string]*string{}
	bad := p.Changes(reflect.ValueOf(&v).Elem(), source(wires), func(field string, v *schema.Value) {
		if _, twice := edits[field]; twice {
			t.Fatalf("%s is changed twice", field)
		}
		edits[field] = nil
		if v != nil {
			edits[field] = new(v.Wire())
		}
	}, nil)
	if bad != nil {
		t.Fatalf("%s: %s", bad.Field, bad.Reason)
	}
	return edits
}

// TestRoundTripLaw checks that a written struct reads back the same, including nil and empty
// slices, that each wire form is valid in its codec, and that Changes finds no change in what was
// read.
func TestRoundTripLaw(t *testing.T) {
	typ := everySchema(t)
	p := planOf[everything](t, typ)
	rapid.Check(t, func(t *rapid.T) {
		v := anyThing().Draw(t, "v")
		wires := written(t, p, v)
		for field, wire := range wires {
			if value, err := schema.Decode(typ.Codec(field), wire); err != nil || value.Wire() != wire {
				t.Fatalf("%s is written as %q, which its codec does not accept unchanged: %v", field, wire, err)
			}
		}
		got := read[everything](t, p, wires)
		if want := stored(v); !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %s\nwant %s", show(got), show(want))
		}
		if edits := changes(t, p, got, wires); len(edits) > 0 {
			t.Fatalf("nothing was changed, but there are edits of %v", slices.Collect(maps.Keys(edits)))
		}
	})
}

// TestChangesLaw changes some fields of a struct that was read, and checks that every edit changes
// a facet, and that the edited entry reads back as the struct.
func TestChangesLaw(t *testing.T) {
	p := planOf[everything](t, everySchema(t))
	rapid.Check(t, func(t *rapid.T) {
		v, other := anyThing().Draw(t, "v"), anyThing().Draw(t, "other")
		wires := written(t, p, v)
		mine := read[everything](t, p, wires)
		to, from := reflect.ValueOf(&mine).Elem(), reflect.ValueOf(&other).Elem()
		for i := range to.NumField() {
			if to.Type().Field(i).Name != "inner" && rapid.Bool().Draw(t, "change") {
				to.Field(i).Set(from.Field(i))
			}
		}
		if mine.inner = v.inner; rapid.Bool().Draw(t, "tree") {
			mine.Tree, mine.List = other.Tree, append(mine.List, "x")
		}
		after := maps.Clone(wires)
		for field, wire := range changes(t, p, mine, wires) {
			if was, had := wires[field]; wire == nil && !had || wire != nil && had && was == *wire {
				t.Fatalf("%s is in the edits but has not changed", field)
			}
			if delete(after, field); wire != nil {
				after[field] = *wire
			}
		}
		if got, want := read[everything](t, p, after), stored(mine); !reflect.DeepEqual(sparse(got), sparse(want)) {
			t.Fatalf("got  %s\nwant %s", show(got), show(want))
		}
	})
}

// sparse replaces a zero embedded struct with nil, because nothing of it is stored.
func sparse(v everything) everything {
	if v.Part != nil && *v.Part == (Part{}) {
		v.Part = nil
	}
	return v
}

// stored returns v as the store keeps it: times in UTC, and dates truncated to milliseconds.
func stored(v everything) everything {
	if v.Part == nil {
		return v
	}
	part := *v.Part
	v.Part = &part
	part.At, part.Nano = part.At.Truncate(time.Millisecond).UTC(), part.Nano.UTC()
	if part.AtP != nil {
		part.AtP = new(part.AtP.Truncate(time.Millisecond).UTC())
	}
	if part.NanoP != nil {
		part.NanoP = new(part.NanoP.UTC())
	}
	return v
}

func show(v any) string { return fmt.Sprintf("%+v %s", v, first(json.Marshal(v))) }

func first[T any](v T, _ error) T { return v }

// maybe draws pointers, including nil.
func maybe[T any](g *rapid.Generator[T]) *rapid.Generator[*T] { return rapid.Ptr(g, true) }

func anyTime() *rapid.Generator[time.Time] {
	return rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.IntRange(0, 9).Draw(t, "zero") == 0 {
			return time.Time{}
		}
		at := time.Unix(rapid.Int64Range(-62_135_596_799, 253_402_000_000).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
		return at.In(time.FixedZone("", rapid.IntRange(-12*60, 12*60).Draw(t, "zone")*60))
	})
}

func anyFloat() *rapid.Generator[float64] {
	return rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{
		0, math.Copysign(0, -1), math.MaxFloat64, math.SmallestNonzeroFloat64, math.Inf(1), math.Inf(-1), 1e21, 1e-7, 0.1, 1 << 53,
	}))
}

func anyAddr() *rapid.Generator[netip.Addr] {
	return rapid.SampledFrom([]netip.Addr{{}, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1%eth0")})
}

func anyTree(depth int) *rapid.Generator[tree] {
	return rapid.Custom(func(t *rapid.T) tree {
		v := tree{Name: rapid.String().Draw(t, "name"), Size: anyInt().Draw(t, "size")}
		if rapid.Bool().Draw(t, "at") {
			v.At = new(anyTime().Draw(t, "time").UTC())
		}
		if depth > 0 && rapid.Bool().Draw(t, "children") {
			v.Children = rapid.SliceOfN(anyTree(depth-1), 1, 2).Draw(t, "tree")
		}
		return v
	})
}

func anyInt() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{0, 1, -1, math.MaxInt64, math.MinInt64, 1<<53 + 1, -1<<53 - 1}))
}

func anyUint() *rapid.Generator[uint64] {
	return rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, math.MaxUint64, math.MaxInt64 + 1, 1<<53 + 1}))
}

func anyThing() *rapid.Generator[everything] {
	return rapid.Custom(func(t *rapid.T) everything {
		v := everything{
			UID: rapid.StringN(1, 9, -1).Draw(t, "uid"), Text: rapid.String().Draw(t, "text"), TextP: maybe(rapid.String()).Draw(t, "textp"),
			Word: word(rapid.String().Draw(t, "word")),
			I8:   rapid.Int8().Draw(t, "i8"), I16: rapid.Int16().Draw(t, "i16"), I32: rapid.Int32().Draw(t, "i32"), I64: anyInt().Draw(t, "i64"),
			U8: rapid.Uint8().Draw(t, "u8"), U16: rapid.Uint16().Draw(t, "u16"), U32: rapid.Uint32().Draw(t, "u32"), U64: anyUint().Draw(t, "u64"),
			I: maybe(rapid.Int()).Draw(t, "i"), U: maybe(rapid.Uint()).Draw(t, "u"),
			F32: rapid.OneOf(rapid.Float32(), rapid.SampledFrom([]float32{0, 0.1, math.MaxFloat32, math.SmallestNonzeroFloat32, 16777216})).Draw(t, "f32"),
			F64: anyFloat().Draw(t, "f64"), F: maybe(anyFloat()).Draw(t, "f"),
			B: rapid.Bool().Draw(t, "b"), BP: maybe(rapid.Bool()).Draw(t, "bp"),
			inner: anyInner().Draw(t, "inner"),
		}
		if rapid.Bool().Draw(t, "part") {
			v.Part = &Part{
				At: anyTime().Draw(t, "at"), AtP: maybe(anyTime()).Draw(t, "atp"), Nano: anyTime().Draw(t, "nano"), NanoP: maybe(anyTime()).Draw(t, "nanop"),
				Addr: anyAddr().Draw(t, "addr"), AddrP: maybe(anyAddr()).Draw(t, "addrp"), Some: rapid.Int().Draw(t, "some"),
			}
			if rapid.Bool().Draw(t, "big") {
				v.Big = new(big.Int).Lsh(big.NewInt(rapid.Int64().Draw(t, "big")), 70)
			}
		}
		return v
	})
}

func anyInner() *rapid.Generator[inner] {
	return rapid.Custom(func(t *rapid.T) inner {
		v := inner{
			ListP: maybe(rapid.SliceOfN(rapid.Int(), 0, 3)).Draw(t, "listp"), Bytes: rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "bytes"),
			Array: [2]float32{rapid.Float32().Draw(t, "a0"), 0.1}, Tree: anyTree(2).Draw(t, "tree"), TreeP: maybe(anyTree(1)).Draw(t, "treep"),
			Any: rapid.SampledFrom([]any{nil, "x", 0.1, true, []any{}, []any{nil, "\ufffd"}, map[string]any{"b": 1e21, "10": "<&>\u2028", "9": nil}}).Draw(t, "any"),
			Raw: json.RawMessage(rapid.SampledFrom([]string{"", "1", `{"b":[9223372036854775807],"1":2}`, `"\\ufffd"`}).Draw(t, "raw")),
			Str: rapid.String().Draw(t, "str"),
		}
		if len(v.Raw) == 0 {
			v.Raw = nil
		}
		switch rapid.IntRange(0, 2).Draw(t, "some") {
		case 0:
			v.List, v.Map = []string{}, map[string]uint64{}
		case 1:
			v.List = rapid.SliceOfN(rapid.String(), 1, 3).Draw(t, "list")
			v.Map = rapid.MapOfN(rapid.String(), anyUint(), 1, 3).Draw(t, "map")
		}
		return v
	})
}

// TestWritten checks the wire forms of values. In a zero struct, numbers, booleans and JSON values
// that cannot be nil are present.
func TestWritten(t *testing.T) {
	p := planOf[everything](t, everySchema(t))
	zero := map[string]string{
		"uid": "", "~isa": "user", "i8": "0", "i16": "0", "i32": "0", "i64": "0", "u8": "0", "u16": "0", "u32": "0", "u64": "0",
		"f32": "0", "f64": "0", "b": "false", "array": "[0,0]", "tree": `{"Name":"","At":null}`, "str": `""`,
	}
	if got := written(t, p, everything{}); !maps.Equal(got, zero) {
		t.Errorf("a zero struct is written as %v, want %v", got, zero)
	}
	withPart := maps.Clone(zero)
	withPart["some"] = "0"
	if got := written(t, p, everything{Part: &Part{}}); !maps.Equal(got, withPart) {
		t.Errorf("a zero struct with an embedded one is written as %v, want %v", got, withPart)
	}
	at := time.Date(2026, 11, 20, 9, 2, 40, 123456789, time.FixedZone("", 3600))
	v := everything{
		UID: "a", Text: " x ", I64: math.MinInt64, U64: math.MaxUint64, F32: 0.1, F64: math.Copysign(0, -1), F: new(1e21), BP: new(false),
		Part:  &Part{At: at, AtP: &time.Time{}, Nano: at, Addr: netip.IPv6Loopback(), AddrP: &netip.Addr{}},
		inner: inner{List: []string{"<&>"}, Map: map[string]uint64{"b": 1, "2": math.MaxUint64}, Any: map[string]any{"b": 1.5, "2": nil}, Bytes: []byte{255}},
	}
	want := maps.Clone(zero)
	maps.Copy(want, map[string]string{
		"uid": "a", "text": " x ", "i64": "-9223372036854775808", "u64": "18446744073709551615", "f32": "0.1", "f64": "0", "f": "1e+21", "bp": "false",
		"at": "2026-11-20T08:02:40.123Z", "atp": "0001-01-01T00:00:00.000Z", "nano": "2026-11-20T08:02:40.123456789Z", "addr": "::1", "addrp": "", "some": "0",
		"list": `["<&>"]`, "map": `{"2":18446744073709551615,"b":1}`, "any": `{"2":null,"b":1.5}`, "bytes": `"/w=="`,
	})
	if got := written(t, p, v); !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestRead reads wire forms that other programs may have written.
func TestRead(t *testing.T) {
	p := planOf[everything](t, everySchema(t))
	for _, tt := range []struct{ field, wire, want string }{
		{"i8", "42", "42"},
		{"i8", "42.0", "42"},
		{"i8", "1e2", "100"},
		{"i8", "128", "i8: Go field everything.I8 (int8): cannot hold the stored value"},
		{"i8", "42.5", "i8: Go field everything.I8 (int8): cannot hold the stored value"},
		{"i8", "42 years", "i8: Go field everything.I8 (int8): cannot hold the stored value"},
		{"i64", "9223372036854775808", "i64: Go field everything.I64 (int64): cannot hold the stored value"},
		{"i64", "1e+21", "i64: Go field everything.I64 (int64): cannot hold the stored value"},
		{"i64", "9007199254740992.0", "9007199254740992"},
		{"i", "NaN", "i: Go field everything.I (*int): cannot hold the stored value"},
		{"u8", "-1", "u8: Go field everything.U8 (uint8): cannot hold the stored value"},
		{"u8", "256", "u8: Go field everything.U8 (uint8): cannot hold the stored value"},
		{"u64", "-1.0", "u64: Go field everything.U64 (uint64): cannot hold the stored value"},
		{"f64", "NaN", "NaN"},
		{"f64", "Infinity", "+Inf"},
		{"f64", "1e400", "f64: Go field everything.F64 (float64): cannot hold the stored value"},
		{"f64", "0x10", "f64: Go field everything.F64 (float64): cannot hold the stored value"},
		{"f64", "many", "f64: Go field everything.F64 (float64): cannot hold the stored value"},
		{"f32", "1e39", "f32: Go field everything.F32 (float32): cannot hold the stored value"},
		{"b", " true\n", "true"},
		{"b", "null", "false"},
		{"b", "yes", "false"}, // invalid, so absent, as in Entry.Get
		{"bp", "null", "<nil>"},
		{"at", "2026-11-20", "2026-11-20 00:00:00 +0000 UTC"},
		{"at", "2026-11-20T09:02:40.5129+01:00", "2026-11-20 08:02:40.512 +0000 UTC"},
		{"at", "yesterday", "0001-01-01 00:00:00 +0000 UTC"},
		{"atp", "yesterday", "<nil>"},
		{"nano", "2026-11-20T09:02:40.123456789+01:00", "2026-11-20 08:02:40.123456789 +0000 UTC"},
		{"nano", "", "0001-01-01 00:00:00 +0000 UTC"},
		{"nano", "yesterday", "nano: Go field everything.Part.Nano (time.Time): cannot hold the stored value"},
		{"addr", "", "invalid IP"},
		{"addr", "x", "addr: Go field everything.Part.Addr (netip.Addr): cannot hold the stored value"},
		{"list", " null ", "[]"},
		{"list", "[1]", "list: Go field everything.inner.List ([]string): cannot hold the stored value: a JSON number is not a string"},
		{"list", "[", "[]"},
		{"map", `{"a":-1}`, "map: Go field everything.inner.Map (map[string]uint64): cannot hold the stored value: a JSON number is not a uint64"},
		{"treep", "null", "<nil>"},
	} {
		var v everything
		into := reflect.ValueOf(&v).Elem()
		bad := p.Read(into, source(map[string]string{tt.field: tt.wire}))
		got := fmt.Sprint(fieldOf(into, tt.field))
		if bad != nil {
			got = bad.Field + ": " + bad.Reason
		}
		if got != tt.want {
			t.Errorf("%s %q: got %s; want %s", tt.field, tt.wire, got, tt.want)
		}
	}
}

// fieldOf returns the field with the tag name in a struct or a struct embedded in it.
func fieldOf(v reflect.Value, name string) reflect.Value {
	for _, f := range reflect.VisibleFields(v.Type()) {
		if tag, _, _ := strings.Cut(f.Tag.Get("userdb"), ","); tag == name {
			at, err := v.FieldByIndexErr(f.Index)
			if err != nil {
				return reflect.ValueOf(err)
			}
			return at
		}
	}
	return reflect.Value{}
}

// TestChanges checks which differences count as changes.
func TestChanges(t *testing.T) {
	p := planOf[everything](t, everySchema(t))
	for _, tt := range []struct {
		name  string
		wires map[string]string
		edit  func(*everything)
		want  map[string]*string
	}{
		{"absent and zero are the same", nil, func(v *everything) { v.I64, v.B, v.Text, v.Part = 0, false, "", &Part{} }, nil},
		{"a value in place of nothing", nil, func(v *everything) { v.I64 = 1 }, map[string]*string{"i64": new("1")}},
		{"zero in place of a value", map[string]string{"i64": "7", "b": "true"}, func(v *everything) { v.I64, v.B = 0, false }, map[string]*string{"i64": new("0"), "b": new("false")}},
		{"nothing in place of a value", map[string]string{"i": "7", "text": "x"}, func(v *everything) { v.I, v.Text = nil, "" }, map[string]*string{"i": nil, "text": nil}},
		{"a pointer to zero", nil, func(v *everything) { v.I, v.TextP = new(0), new("") }, map[string]*string{"i": new("0"), "textp": new("")}},
		{"a stored empty text", map[string]string{"text": "", "textp": ""}, func(*everything) {}, nil},
		{"an empty text is removed", map[string]string{"textp": ""}, func(v *everything) { v.TextP = nil }, map[string]*string{"textp": nil}},
		{"other notations", map[string]string{"i64": "42.0", "f64": "NaN", "at": "2026-11-20", "list": `[ "a" ]`, "b": "null"}, func(*everything) {}, nil},
		{"other notations, changed", map[string]string{"i64": "42.0", "f64": "NaN"}, func(v *everything) { v.I64, v.F64 = 43, 1 }, map[string]*string{"i64": new("43"), "f64": new("1")}},
		{"a fraction of a millisecond", map[string]string{"at": "2026-11-20T08:02:40.512Z"}, func(v *everything) { v.At = v.At.Add(999 * time.Microsecond) }, nil},
		{"another zone", map[string]string{"at": "2026-11-20T08:02:40.512Z"}, func(v *everything) { v.At = v.At.In(time.FixedZone("", 3600)) }, nil},
		{"within a list", map[string]string{"list": `["a"]`}, func(v *everything) { v.List[0] = "b" }, map[string]*string{"list": new(`["b"]`)}},
		{"an empty list", map[string]string{"list": `["a"]`}, func(v *everything) { v.List = v.List[:0] }, map[string]*string{"list": new(`[]`)}},
		{"no list", map[string]string{"list": `["a"]`}, func(v *everything) { v.List = nil }, map[string]*string{"list": nil}},
		{"no embedded struct", map[string]string{"some": "1", "addr": "::1"}, func(v *everything) { v.Part = nil }, map[string]*string{"some": nil, "addr": nil}},
		{"the UID", map[string]string{"uid": "a"}, func(v *everything) { v.UID = "b" }, map[string]*string{"uid": new("b")}},
		{"the revision", nil, func(v *everything) { v.Rev.rev = "b" }, nil},
	} {
		v := read[everything](t, p, tt.wires)
		tt.edit(&v)
		got := changes(t, p, v, tt.wires)
		if want := tt.want; !maps.EqualFunc(got, want, func(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }) {
			t.Errorf("%s: got %s, want %s", tt.name, first(json.Marshal(got)), first(json.Marshal(want)))
		}
	}
}

type failing struct{ Text string }

func (failing) MarshalText() ([]byte, error)  { return nil, errors.New("no text") }
func (*failing) UnmarshalText(_ []byte) error { return nil }

// TestWriteErrors checks values that cannot be stored, in new and in changed entries.
func TestWriteErrors(t *testing.T) {
	typ := everySchema(t)
	typ.Fields["fails"] = schema.Field{}
	p := planOf[struct {
		everything
		Fails *failing `userdb:"fails"`
	}](t, typ)
	late := time.Date(300000, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		edit func(*everything, **failing)
		want string
	}{
		{func(v *everything, _ **failing) { v.F64 = math.NaN() }, "f64: Go field struct.everything.F64 (float64): NaN is not a number"},
		{func(v *everything, _ **failing) { v.F = new(math.NaN()) }, "f: Go field struct.everything.F (*float64): NaN is not a number"},
		{func(v *everything, _ **failing) { v.F32 = float32(math.NaN()) }, "f32: Go field struct.everything.F32 (float32): NaN is not a number"},
		{func(v *everything, _ **failing) { v.Part = &Part{At: late} }, "at: Go field struct.everything.Part.At (time.Time): a time outside the range of JavaScript dates"},
		{func(v *everything, _ **failing) { v.Part = &Part{Nano: late} }, "nano: Go field struct.everything.Part.Nano (time.Time): a time outside the years 0 to 9999"},
		{func(v *everything, _ **failing) { v.Any = math.NaN() }, "any: Go field struct.everything.inner.Any (interface {}): json: unsupported value: NaN"},
		{func(v *everything, _ **failing) { v.Any = make(chan int) }, "any: Go field struct.everything.inner.Any (interface {}): json: unsupported type: chan int"},
		{func(v *everything, _ **failing) { v.List = []string{"a\xff"} }, "list: Go field struct.everything.inner.List ([]string): contains text that is not UTF-8"},
		{func(v *everything, _ **failing) { v.ListP = new([]int) }, "listp: Go field struct.everything.inner.ListP (*[]int): points to a value that is stored as null, and would be read as nil"},
		{func(v *everything, _ **failing) { v.Raw = json.RawMessage(`{"a":1,"a":2}`) }, "raw: Go field struct.everything.inner.Raw (json.RawMessage): schema: json value \"{\\\"a\\\":1,\\\"a\\\":2}\": a member appears twice"},
		{func(_ *everything, f **failing) { *f = &failing{} }, "fails: Go field struct.Fails (*typed_test.failing): no text"},
	} {
		var v struct {
			everything
			Fails *failing `userdb:"fails"`
		}
		tt.edit(&v.everything, &v.Fails)
		from := reflect.ValueOf(&v).Elem()
		_, _, _, created := p.Facets(from)
		updated := p.Changes(from, typed.Source{}, func(string, *schema.Value) {}, nil)
		for method, bad := range map[string]*typed.Problem{"Facets": created, "Changes": updated} {
			if bad == nil || bad.Field+": "+bad.Reason != tt.want {
				t.Errorf("%s: got %v, want %s", method, bad, tt.want)
			}
		}
	}
}

func checkNew[T any](t *testing.T, typ schema.Type, want string) {
	t.Helper()
	refuses := func(field string) string {
		if _, declared := typ.Fields[field]; !declared && field != typ.Primary {
			return "no such field"
		}
		return ""
	}
	_, err := typed.New(reflect.TypeFor[T](), typ, refuses, reflect.TypeFor[revision]())
	if got := fmt.Sprint(err); got != want || err != nil && !errors.Is(err, schema.ErrSchema) {
		t.Errorf("got %s; want %s", got, want)
	}
}

type facet[V any] struct {
	V V `userdb:"f"`
}

// TestNew checks the errors for structs that do not fit a type.
func TestNew(t *testing.T) {
	with := func(f schema.Field) schema.Type {
		return schema.Type{Primary: "uid", Fields: map[string]schema.Field{"f": f}}
	}
	codec := func(c schema.Codec) schema.Type { return with(schema.Field{Codec: c}) }
	checkNew[facet[string]](t, codec(""), "<nil>")
	checkNew[facet[string]](t, codec("identity"), "<nil>")
	checkNew[facet[string]](t, codec("json"), "<nil>")
	checkNew[facet[int]](t, codec("json"), "<nil>")
	checkNew[facet[string]](t, codec("number"), `schema: facet[string].V: facet "f" has codec number, which does not support type string`)
	checkNew[facet[string]](t, codec("boolean"), `schema: facet[string].V: facet "f" has codec boolean, which does not support type string`)
	checkNew[facet[int]](t, codec("text"), `schema: facet[int].V: facet "f" has codec text, which does not support type int`)
	checkNew[facet[int]](t, codec("null"), `schema: facet[int].V: facet "f" has codec null, which does not support type int`)
	checkNew[facet[*[]int]](t, codec("date"), `schema: facet[*[]int].V: facet "f" has codec date, which does not support type *[]int`)
	checkNew[facet[chan int]](t, codec("json"), "schema: facet[chan int].V: no codec supports type chan int")
	checkNew[int](t, codec(""), "schema: int: not a struct")
	checkNew[struct {
		A string `userdb:"g"`
	}](t, codec(""), `schema: struct.A: facet "g": no such field`)
	checkNew[struct {
		Rev string `userdb:"~rev"`
	}](t, codec(""), "schema: struct.Rev: ~rev needs type typed_test.revision, not string")

	type claims struct {
		A string `userdb:"f,secondary,required,kind=email"`
	}
	checkNew[claims](t, with(schema.Field{Role: schema.RoleSecondary, Required: true, Kind: "email"}), "<nil>")
	checkNew[claims](t, with(schema.Field{Role: schema.RoleIndexed, Required: true, Kind: "email"}), `schema: claims.A: the tag declares secondary for facet "f", but the schema does not`)
	checkNew[claims](t, with(schema.Field{Role: schema.RoleSecondary, Kind: "email"}), `schema: claims.A: the tag declares required for facet "f", but the schema does not`)
	checkNew[claims](t, with(schema.Field{Role: schema.RoleSecondary, Required: true}), `schema: claims.A: the tag declares kind email for facet "f", but the schema does not`)
	type untyped struct {
		A string `userdb:"f,secondary,untyped"`
	}
	checkNew[untyped](t, with(schema.Field{Role: schema.RoleSecondary, Typed: new(false)}), "<nil>")
	checkNew[untyped](t, with(schema.Field{Role: schema.RoleSecondary}), `schema: untyped.A: the tag declares untyped for facet "f", but the schema does not`)
	checkNew[struct {
		A string `userdb:"f,primary"`
	}](t, codec(""), `schema: struct.A: the tag declares primary for facet "f", but the schema does not`)
	checkNew[struct {
		A string `userdb:"uid,primary"`
	}](t, codec(""), "<nil>")
	checkNew[struct {
		A int `userdb:"uid"`
	}](t, codec(""), `schema: struct.A: facet "uid" has codec text, which does not support type int`)
}

// TestReadAllocates checks that Read allocates only what the struct points to, and that Changes
// allocates little for an unchanged struct.
func TestReadAllocates(t *testing.T) {
	type flat struct {
		UID  string    `userdb:"uid"`
		Text string    `userdb:"text"`
		I    int64     `userdb:"i64"`
		U    uint8     `userdb:"u8"`
		F    float64   `userdb:"f64"`
		B    bool      `userdb:"b"`
		At   time.Time `userdb:"at"`
		P    *string   `userdb:"textp"`
	}
	p := planOf[flat](t, everySchema(t))
	wires := map[string]string{"uid": "a", "text": "b", "i64": "-7", "u8": "8", "f64": "0.5", "b": "true", "at": "2026-11-20T08:02:40.512Z", "textp": "c"}
	var v flat
	into := reflect.ValueOf(&v).Elem()
	if got := testing.AllocsPerRun(100, func() { p.Read(into, source(wires)) }); got != 1 || *v.P != "c" {
		t.Errorf("%g allocations, want 1, for the pointer", got)
	}
	edit := func(string, *schema.Value) { t.Error("an unchanged struct has a change") }
	// Only the texts of i64, f64 and at are allocated.
	if got := testing.AllocsPerRun(100, func() { p.Changes(into, source(wires), edit, nil) }); got > 3 {
		t.Errorf("%g allocations to find no change, want at most 3", got)
	}
}

// several has a field with several values.
type several struct {
	UID    string   `userdb:"uid,primary"`
	Emails []string `userdb:"email,secondary"`
}

// TestSeveralValues checks that a slice in a secondary field holds the values of that field.
func TestSeveralValues(t *testing.T) {
	typ, err := schema.From[several]()
	if err != nil || typ.Fields["email"].Many != 20 || typ.Codec("email") != schema.CodecText {
		t.Fatalf("From: %+v, %v; want a text field with up to 20 values", typ.Fields["email"], err)
	}
	p := planOf[several](t, typ)
	v := several{UID: "u", Emails: []string{"a", "b"}}
	uid, facets, values, bad := p.Facets(reflect.ValueOf(&v).Elem())
	if uid != "u" || len(facets) != 0 || !reflect.DeepEqual(values, map[string][]string{"email": {"a", "b"}}) || bad != nil {
		t.Errorf("a new entry has the UID %q, the facets %v and the values %v, %v; want u, no facets, and a and b", uid, facets, values, bad)
	}
	from := typed.Source{Wires: map[string]string{"uid": "u", "email": "a"}, Texts: func(string) []string { return []string{"a", "b"} }}
	var again several
	if bad := p.Read(reflect.ValueOf(&again).Elem(), from); bad != nil || !reflect.DeepEqual(again, v) {
		t.Errorf("read %+v, %v; want %+v", again, bad, v)
	}
	var edits [][]string
	change := func() *typed.Problem {
		return p.Changes(reflect.ValueOf(&again).Elem(), from, nil, func(_ string, texts []string) { edits = append(edits, texts) })
	}
	bad = change()
	again.Emails = []string{"b"}
	if bad = cmp.Or(bad, change()); bad != nil || !reflect.DeepEqual(edits, [][]string{{"b"}}) {
		t.Errorf("the changes are %q, %v; want one, to b", edits, bad)
	}
	typ.Fields["email"] = schema.Field{Role: schema.RoleSecondary}
	if _, err := typed.New(reflect.TypeFor[several](), typ, allowed, reflect.TypeFor[revision]()); err == nil {
		t.Error("a slice is accepted for a field that may have one value")
	}
}
