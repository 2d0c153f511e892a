package change

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// testType returns a type with two secondary fields, an indexed one, indexed tags, and more.
func testType(t *testing.T, fold schema.Fold) *Type {
	t.Helper()
	s := schema.Schema{Types: map[string]schema.Type{"user": {
		Primary: "uid", Fold: fold,
		Fields: map[string]schema.Field{
			"email": {Role: schema.RoleSecondary},
			"name":  {Role: schema.RoleSecondary},
			"job":   {Role: schema.RoleIndexed},
			"age":   {Codec: schema.CodecNumber},
		},
		Tertiary: map[string]schema.Tertiary{"tags": {Kind: "set", Indexed: true}, "log": {Kind: "list"}},
	}}}
	c, err := Compile(s, recordkey.Namespace{})
	if err != nil {
		t.Fatal(err)
	}
	typ, err := c.Type("user")
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

// TestUnchangedFacets checks that an update neither folds a secondary facet that stays as it is,
// nor touches its SRK. Folding a facet that is not ASCII would allocate memory.
func TestUnchangedFacets(t *testing.T) {
	typ := testType(t, schema.FoldCasefold)
	work := func(old store.Record) float64 {
		return testing.AllocsPerRun(100, func() {
			facets := Facets(old)
			facets["age"] = "8"
			c, due, err := typ.Update(old, facets, nil)
			if err != nil || !due || len(c.Claim)+len(c.Release) > 0 || len(c.Set) != 1 || len(c.Unset) > 0 {
				t.Fatalf("the change is %+v, %v; want one that only sets age", c, err)
			}
		})
	}
	plain := work(record("name", "anna", "age", "7"))
	for _, old := range []store.Record{
		record("name", "Jürgen", "~skv:name", "jürgen", "age", "7"),
		record("name", "jürgen", "age", "7"),
		record("name", "Jürgen", "age", "7"), // as a program that folds nothing writes it
	} {
		if n := work(old); n > plain {
			t.Errorf("%v: an update allocates %v times, want %v as for ASCII", old.Fields, n, plain)
		}
	}
}

func record(pairs ...string) store.Record {
	prk, _ := recordkey.PRK("user", "uid", "1")
	fields := map[string]string{"~isa": "user", "~prk": "user/uid:1", "~rev": "aaaaaaaaaaaa", "uid": "1"}
	for i := 0; i+1 < len(pairs); i += 2 {
		fields[pairs[i]] = pairs[i+1]
	}
	return store.Record{Key: prk, Fields: fields}
}

func facets(pairs ...string) map[string]string {
	m := map[string]string{"uid": "1"}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

// describe returns a change as one text. The order of facets does not matter.
func describe(c store.Change) string {
	var parts []string
	set := slices.SortedFunc(slices.Values(c.Set), func(a, b store.Facet) int { return cmp.Compare(a.Field, b.Field) })
	for _, f := range set {
		parts = append(parts, f.Field+"="+f.Wire)
	}
	for _, f := range slices.Sorted(slices.Values(c.Unset)) {
		parts = append(parts, "-"+f)
	}
	for _, l := range []struct {
		name string
		keys []recordkey.Key
	}{{"claim", c.Claim}, {"elsewhere", c.Elsewhere}, {"release", c.Release}, {"index", c.Index}, {"unindex", c.Unindex}} {
		for _, k := range l.keys {
			parts = append(parts, l.name+" "+k.String())
		}
	}
	return strings.Join(parts, "; ")
}

func TestUpdate(t *testing.T) {
	for _, tt := range []struct {
		what string
		fold schema.Fold
		old  store.Record
		to   map[string]string
		want string
	}{
		{"no change", schema.FoldCasefold, record("name", "bob"), facets("name", "bob"), ""},
		{"a facet without a role", schema.FoldCasefold, record("age", "4"), facets("age", "5"), "age=5"},
		{"a facet without a role is removed", schema.FoldCasefold, record("age", "4"), facets(), "-age"},
		{
			"another secondary value", schema.FoldExact, record("name", "Bob"), facets("name", "Rob"),
			"name=Rob; claim user/name:Rob/~prk; elsewhere user/email:Rob/~prk; release user/name:Bob/~prk",
		},
		{
			"only another spelling", schema.FoldCasefold, record("name", "Bob", "~skv:name", "bob"), facets("name", "BOB"),
			"name=BOB",
		},
		{
			"changed to its canonical spelling", schema.FoldCasefold, record("name", "Bob", "~skv:name", "bob"), facets("name", "bob"),
			"name=bob; -~skv:name",
		},
		{
			"changed from its canonical spelling", schema.FoldCasefold, record("name", "bob"), facets("name", "Bob"),
			"name=Bob; ~skv:name=bob",
		},
		{
			"a secondary value is removed", schema.FoldCasefold, record("name", "Bob", "~skv:name", "bob"), facets(),
			"-name; -~skv:name; release user/name:bob/~prk",
		},
		{
			"the canonical form that is stored is released", schema.FoldCasefold,
			record("name", "Bob", "~skv:name", "old form"), facets("name", "Rob"),
			"name=Rob; ~skv:name=rob; claim user/name:rob/~prk; elsewhere user/email:rob/~prk; release user/name:old+_form/~prk",
		},
		{
			"two fields exchange values", schema.FoldExact, record("name", "a", "email", "b"), facets("name", "b", "email", "a"),
			"email=a; name=b; claim user/email:a/~prk; claim user/name:b/~prk; elsewhere user/name:a/~prk; elsewhere user/email:b/~prk; " +
				"release user/email:b/~prk; release user/name:a/~prk",
		},
		{
			"both fields get one value", schema.FoldExact, record(), facets("name", "x", "email", "x"),
			"email=x; name=x; claim user/email:x/~prk; claim user/name:x/~prk",
		},
		{
			"an indexed facet", schema.FoldExact, record("job", "cook"), facets("job", "smith"),
			"job=smith; index user/job:smith/~prks; unindex user/job:cook/~prks",
		},
		{"an old value that no key can name", schema.FoldExact, record("name", ""), facets("name", "x"), "name=x; claim user/name:x/~prk; elsewhere user/email:x/~prk"},
	} {
		typ := testType(t, tt.fold)
		c, changed, err := typ.Update(tt.old, tt.to, nil)
		if err != nil {
			t.Errorf("%s: %v", tt.what, err)
			continue
		}
		if got := describe(c); got != tt.want || changed != (tt.want != "") {
			t.Errorf("%s:\n got %s, changed %v\nwant %s", tt.what, got, changed, tt.want)
		}
		if c.Expected.Rev != "aaaaaaaaaaaa" || c.Create || c.Delete {
			t.Errorf("%s: rev %q, create %v, delete %v; want aaaaaaaaaaaa, false and false", tt.what, c.Expected.Rev, c.Create, c.Delete)
		}
	}
}

func TestUpdateRefuses(t *testing.T) {
	typ := testType(t, schema.FoldExact)
	for _, tt := range []struct {
		what string
		to   map[string]string
		want string
	}{
		{"another UID", map[string]string{"uid": "2"}, "invalid value: uid: the primary facet cannot change"},
		{"a value too long for a key", facets("name", strings.Repeat("x", 1025)), "invalid value: name: not a value that a record key can hold"},
		{"an empty index value", facets("job", ""), "invalid value: job: not a value that an index can hold: it is empty or over 1 KiB"},
	} {
		_, _, err := typ.Update(record(), tt.to, nil)
		if err == nil || err.Error() != tt.want || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %v, want %s", tt.what, err, tt.want)
		}
	}
}

func TestUpdateOwnFields(t *testing.T) {
	typ := testType(t, schema.FoldExact)
	old := record("~epoch", "k", "~disabled", "since")
	c, changed, err := typ.Update(old, facets(), map[string]string{"~epoch": "", "~disabled": "since", "~passwd": "now", "~gone": ""})
	if err != nil || !changed {
		t.Fatalf("Update: got changed %v, %v; want true and no error", changed, err)
	}
	if got, want := describe(c), "~passwd=now; -~epoch"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCreate(t *testing.T) {
	typ := testType(t, schema.FoldCasefold)
	c, err := typ.Create(Draft{
		UID: "1", Facets: map[string]string{"email": "A@x.org", "name": "Al"}, Own: map[string]string{"~passwd": "now"},
		Tertiary: []Content{{Name: "tags", Kind: "set", Values: []string{"b", "a", "b"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := "email=A@x.org; name=Al; uid=1; ~isa=user; ~passwd=now; ~prk=user/uid:1; ~skv:email=a@x.org; ~skv:name=al; " +
		"claim user/email:a@x.org/~prk; claim user/name:al/~prk; elsewhere user/name:a@x.org/~prk; elsewhere user/email:al/~prk"
	if got := describe(c); got != want || !c.Create {
		t.Errorf(" got %s\nwant %s", got, want)
	}
	if len(c.Add) != 1 || !slices.Equal(c.Add[0].Values, []string{"a", "b"}) || c.Add[0].Index[1].String() != "user/tags:b/~prks" {
		t.Errorf("tags: got %+v, want a and b with their index sets", c.Add)
	}
	if _, err := typ.Create(Draft{UID: ""}); !errors.Is(err, ErrInvalid) {
		t.Errorf("an empty UID: got %v, want ErrInvalid", err)
	}
	if _, err := typ.Create(Draft{UID: "1", Facets: map[string]string{}, Tertiary: []Content{{Name: "log", Kind: "set", Values: []string{"x"}}}}); !errors.Is(err, schema.ErrSchema) {
		t.Errorf("a list as a set: got %v, want schema.ErrSchema", err)
	}
}

func TestDelete(t *testing.T) {
	typ := testType(t, schema.FoldCasefold)
	c := typ.Delete(record("name", "Bob", "~skv:name", "bob", "job", "cook"), time.Now())
	if got, want := describe(c), "release user/name:bob/~prk; unindex user/job:cook/~prks"; got != want || !c.Delete {
		t.Errorf("got %s, want %s", got, want)
	}
	var drop []string
	for _, d := range c.Drop {
		drop = append(drop, d.Key.String())
	}
	if want := []string{"user/uid:1/log", "user/uid:1/tags", "~/throttle/user/uid/1", "~/history/{user/uid:1}"}; !slices.Equal(drop, want) {
		t.Errorf("dropped records: got %v, want %v", drop, want)
	}
}

func TestApply(t *testing.T) {
	typ := testType(t, schema.FoldCasefold)
	old := record("name", "Bob", "~skv:name", "bob", "job", "cook")
	c, _, err := typ.Update(old, facets("name", "bob", "age", "3"), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := Apply(c, "bbbbbbbbbbbb", old.Fields).Fields
	want := map[string]string{"~isa": "user", "~prk": "user/uid:1", "~rev": "bbbbbbbbbbbb", "uid": "1", "name": "bob", "age": "3"}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestEncodeElements checks that encodeElements returns what Redis takes, and an error for
// everything that Redis would refuse after the first write.
func TestEncodeElements(t *testing.T) {
	for _, tt := range []struct {
		kind     string
		in, want []string // a nil want means ErrInvalid
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
		got, err := encodeElements(Content{Name: tt.kind, Kind: tt.kind, Values: tt.in})
		if (err == nil) != (tt.want != nil) || err != nil && !errors.Is(err, ErrInvalid) || !slices.Equal(got, tt.want) {
			t.Errorf("%s %q: got %q, %v; want %q", tt.kind, tt.in, got, err, tt.want)
		}
	}
}
