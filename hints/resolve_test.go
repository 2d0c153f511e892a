package hints_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// twoTypes returns the built-in schema with two more types: order, which has a number and an exact
// code, and note, which has only an id.
func twoTypes() schema.Schema {
	s := schema.User()
	s.Types["order"] = schema.Type{
		Primary: "number",
		Fold:    schema.FoldExact,
		Fields:  map[string]schema.Field{"code": {Role: schema.RoleSecondary}, "state": {Role: schema.RoleIndexed}},
	}
	s.Types["note"] = schema.Type{Primary: "id"}
	return s
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestResolve(t *testing.T) {
	for _, row := range []struct {
		hint hints.Hint
		view string
		want string
	}{
		{hints.UID("17c0"), "user", `["prk","user/uid:17c0","user","uid","17c0"]`},
		// primary values are not folded
		{hints.UID("17C0"), "user", `["prk","user/uid:17C0","user","uid","17C0"]`},
		{hints.UID("7").Of("order"), "", `["prk","order/number:7","order","number","7"]`},
		{hints.UID("user/uid:x"), "user", `["prk","user/uid:user+,uid+.x","user","uid","user/uid:x"]`},

		{hints.Field("uid", "17c0"), "user", `["prk","user/uid:17c0","user","uid","17c0"]`},
		{hints.Field("name", "  ALICE\tB "), "user", `["srk","user/name:alice+_b/~prk","user","name","alice b"]`},
		{hints.Field("code", " A "), "order", `["srk","order/code:+_A+_/~prk","order","code"," A "]`},
		{hints.Field("name", "user/uid:x"), "user", `["srk","user/name:user+,uid+.x/~prk","user","name","user/uid:x"]`},
		{hints.Field("name", "\xff"), "user", `["srk","user/name:+xff/~prk","user","name","\ufffd"]`},

		{hints.Any("Alice"), "user", `["any",["user/email:alice/~prk","user/name:alice/~prk"],"user","*","alice","user/*:alice/~prk"]`},
		{hints.Any("*"), "user", `["any",["user/email:*/~prk","user/name:*/~prk"],"user","*","*","user/*:\\*/~prk"]`},
		{hints.Any("user/*:*/~prk"), "order", `["any",["order/code:user+,*+.*+,~prk/~prk"],"order","*","user/*:*/~prk","order/*:user+,\\*+.\\*+,~prk/~prk"]`},
		{hints.Any("x").Of("note"), "note", `["any",[],"note","*","x","note/*:x/~prk"]`},

		{hints.Key(key("user/uid:17c0")), "", `["prk","user/uid:17c0","user","uid","17c0"]`},
		{hints.Key(key("user/uid:17c0")), "user", `["prk","user/uid:17c0","user","uid","17c0"]`},
		{hints.Key(key("user/name:Al+_B/~prk")), "", `["srk","user/name:al+_b/~prk","user","name","al b"]`},
		{hints.Key(key("order/code:Al+_B/~prk")).Of("order"), "", `["srk","order/code:Al+_B/~prk","order","code","Al B"]`},

		{hints.Facets(schema.Texts("uid", "x", "name", "Alice")), "user", `["prk","user/uid:x","user","uid","x"]`},
		{hints.Facets(schema.Texts("~isa", "user", "name", "Alice")), "", `["srk","user/name:alice/~prk","user","name","alice"]`},
		{hints.Facets(schema.Texts("~isa", "user", "~prk", "user/uid:x")), "", `["prk","user/uid:x","user","uid","x"]`},
		{hints.Facets(schema.Texts("~prk", "user/uid:x", "uid", "x", "name", "")), "user", `["prk","user/uid:x","user","uid","x"]`},
		{hints.Facets(schema.Facets{"name": schema.Text("A"), "email": schema.Null(), "age": schema.Number(4)}), "user", `["srk","user/name:a/~prk","user","name","a"]`},
		{hints.Facets(schema.Texts("name", "Alice", "email", "A@B.org")), "user", `["srk","user/email:a@b.org/~prk","user","email","a@b.org"]`},
	} {
		got, err := row.hint.Resolve(twoTypes(), row.view)
		if err != nil || asJSON(t, got) != row.want {
			t.Errorf("%s in view %q:\ngot  %s, %v\nwant %s", row.hint, row.view, asJSON(t, got), err, row.want)
		}
	}
}

func TestResolveRefuses(t *testing.T) {
	long, longer := strings.Repeat("x", recordkey.MaxCrumb+1), strings.Repeat("x", hints.MaxValue+1)
	facets := func(pairs ...string) hints.Hint { return hints.Facets(schema.Texts(pairs...)) }
	for _, row := range []struct {
		hint hints.Hint
		view string
		want string
	}{
		{hints.Hint{}, "user", `hints: zero Hint: not a hint`},
		{hints.Hint{}, "", `hints: zero Hint: names no type`},
		{hints.UID("x"), "", `hints: UID: names no type`},
		{hints.UID("x"), "team", `hints: UID: the schema has no type "team"; it has note, order, user`},
		{hints.UID("x").Of("order"), "user", `hints: UID: names type "order", want "user"`},
		{hints.UID(""), "user", `hints: UID: no value`},
		{hints.UID(long), "user", `hints: UID: value is over 1024 bytes`},
		{hints.UID(longer), "user", `hints: UID: the value is over 4096 bytes`},

		{hints.Field("age", "4"), "user", `hints: field "age": type "user" has no such field`},
		{hints.Field("job", "Cook"), "user", `hints: field "job": not a secondary field of type "user"`},
		{hints.Field("state", "open"), "order", `hints: field "state": not a secondary field of type "order"`},
		{hints.Field("*", "x"), "user", `hints: field "*": type "user" has no such field`},
		{hints.Field("name", ""), "user", `hints: field "name": no value`},
		{hints.Field("name", " \t "), "user", `hints: field "name": the value is blank`},
		{hints.Field("name", long), "user", `hints: field "name": value is over 1024 bytes`},

		{hints.Any(""), "user", `hints: *: no value`},
		{hints.Any("\u3000"), "user", `hints: *: the value is blank`},
		{hints.Any(longer), "user", `hints: *: the value is over 4096 bytes`},
		{hints.Any(long).Of("note"), "", `hints: *: value is over 1024 bytes`},

		{hints.Key(recordkey.Key{}), "user", `hints: "invalid Key": invalid kind 0, want PRK or SRK`},
		{hints.Key(key("team/id:x")), "", `hints: "team/id:x": the schema has no type "team"; it has note, order, user`},
		{hints.Key(key("order/number:7")), "user", `hints: "order/number:7": names type "order", want "user"`},
		{hints.Key(key("order/number:7")).Of("user"), "", `hints: "order/number:7": names type "order", want "user"`},
		{hints.Key(key("user/name:x")), "user", `hints: "user/name:x": not a PRK: the primary field of type "user" is "uid"`},
		{hints.Key(key("user/uid:x/~prk")), "user", `hints: "user/uid:x/~prk": not an SRK: "uid" is the primary field of type "user"`},
		{hints.Key(key("user/age:4/~prk")), "user", `hints: "user/age:4/~prk": type "user" has no such field`},
		{hints.Key(key("user/uid:x/tags")), "user", `hints: "user/uid:x/tags": tertiary key, want PRK or SRK`},
		{hints.Key(key("user/job:x/~prks")), "user", `hints: "user/job:x/~prks": index key, want PRK or SRK`},
		{hints.Key(key("~/schema/user")), "user", `hints: "~/schema/user": own key, want PRK or SRK`},
		{hints.Key(key("~acme/user/uid:x")), "user", `hints: "~acme/user/uid:x": lies in namespace "acme": open a view of it and use the key without the namespace`},

		{facets(), "user", `hints: {…}: has neither the primary nor a secondary facet of type "user"`},
		{facets("job", "Cook"), "user", `hints: {…}: has neither the primary nor a secondary facet of type "user"`},
		{facets("name", "x"), "", `hints: {…}: names no type`},
		{facets("~isa", "order", "number", "7"), "user", `hints: {…}: names type "order", want "user"`},
		{facets("uid", ""), "user", `hints: {…}: facet "uid" is empty`},
		{facets("name", "Alice", "email", ""), "user", `hints: {…}: facet "email" is empty`},
		{facets("name", " "), "user", `hints: {…}: the value is blank`},
		{hints.Facets(schema.Facets{"uid": schema.Number(5)}), "user", `hints: {…}: facet "uid" is not a string`},
		{hints.Facets(schema.Facets{"name": schema.Date(time.Unix(0, 0))}), "user", `hints: {…}: facet "name" is not a string`},
		{facets("~prk", "user/name:x/~prk"), "user", `hints: {…}: ~prk is not a PRK`},
		{facets("~prk", "x"), "user", `hints: {…}: ~prk is not a PRK`},
		{facets("~prk", strings.Repeat("x", 20_000)), "user", `hints: {…}: ~prk is too long`},
		{facets("~prk", "order/number:x"), "user", `hints: {…}: ~prk is of type "order", want "user"`},
		{facets("~prk", "user/uid:x", "uid", "y"), "user", `hints: {…}: ~prk and facet "uid" differ`},
		{facets("~prk", "~acme/user/uid:x"), "user", `hints: {…}: ~prk lies in namespace "acme": open a view of it and use the key without the namespace`},
	} {
		got, err := row.hint.Resolve(twoTypes(), row.view)
		checkErr(t, err, row.want)
		if got.Type != "" || got.Keys != nil {
			t.Errorf("%s: refused, but the target is %+v, want the zero Target", row.hint, got)
		}
	}
}

// TestEntryWithSeveralSecondaryFacets checks that all keys of a hint with several secondary facets
// must lead to the same entry.
func TestEntryWithSeveralSecondaryFacets(t *testing.T) {
	both := hints.Facets(schema.Texts("name", "Alice", "email", "A@B.org"))
	one := hints.Facets(schema.Texts("name", "Alice"))
	for _, row := range []struct {
		hint hints.Hint
		all  bool
		keys []recordkey.Key
	}{
		{both, true, []recordkey.Key{key("user/email:a@b.org/~prk"), key("user/name:alice/~prk")}},
		{one, false, []recordkey.Key{key("user/name:alice/~prk")}},
		{hints.Any("a"), false, []recordkey.Key{key("user/email:a/~prk"), key("user/name:a/~prk")}},
	} {
		got, err := row.hint.Resolve(schema.User(), "user")
		if err != nil || got.All != row.all || !slices.Equal(got.Keys, row.keys) {
			t.Errorf("%s: got %+v, %v, want All %v and the keys %v", row.hint, got, err, row.all, row.keys)
		}
	}
}

// TestTargetsInJSON checks that the outer encoder decides whether < and > in a target are escaped.
func TestTargetsInJSON(t *testing.T) {
	targets := map[string]hints.Target{}
	for name, h := range map[string]hints.Hint{"any": hints.Any("<b>"), "one": hints.UID("<b>")} {
		target, err := h.Resolve(twoTypes(), "user")
		if err != nil {
			t.Fatal(err)
		}
		targets[name] = target
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(targets); err != nil {
		t.Fatal(err)
	}
	want := `{"any":["any",["user/email:<b>/~prk","user/name:<b>/~prk"],"user","*","<b>","user/*:<b>/~prk"],` +
		`"one":["prk","user/uid:<b>","user","uid","<b>"]}` + "\n"
	if b.String() != want {
		t.Errorf("got  %swant %s", b.String(), want)
	}
	if got := asJSON(t, hints.Target{}); got != `["","","","",""]` {
		t.Errorf("the zero Target is %s, want empty texts", got)
	}
}

func TestHintsAreValues(t *testing.T) {
	f := schema.Texts("name", "Alice")
	h := hints.Facets(f)
	f["name"] = schema.Text("Bob")
	got, err := h.Resolve(schema.User(), "user")
	if err != nil || got.Value != "alice" {
		t.Errorf("after a change of the facets that were passed to Facets: got %+v, %v; want the value alice", got, err)
	}
	if !(hints.Hint{}).IsZero() || h.IsZero() || hints.Any("").IsZero() {
		t.Error("IsZero must return true for the zero Hint, and false for a hint by facets or by an empty value")
	}
}

func TestTypeOfHint(t *testing.T) {
	for _, row := range []struct {
		hint hints.Hint
		want string
	}{
		{hints.Any("x"), ""},
		{hints.Any("x").Of("user"), "user"},
		{hints.Key(key("order/number:7")), "order"},
		{hints.Key(key("order/number:7")).Of("user"), "order"},
		{hints.Facets(schema.Texts("~isa", "order")), "order"},
		{hints.Facets(schema.Facets{"~isa": schema.Null()}), ""},
		{hints.Facets(nil).Of("user"), "user"},
	} {
		if got := row.hint.Type(); got != row.want {
			t.Errorf("%s: got type %q, want %q", row.hint, got, row.want)
		}
	}
}

// TestVisitorTextIsNeverAKey checks that no text of a visitor makes a hint leave the type and the
// fields that the program named, and that errors do not repeat the text.
func TestVisitorTextIsNeverAKey(t *testing.T) {
	s := twoTypes()
	try := func(t interface {
		Helper()
		Fatalf(string, ...any)
	}, text string,
	) {
		t.Helper()
		for _, h := range []hints.Hint{hints.Any(text), hints.Field("name", text)} {
			got, err := h.Resolve(s, "user")
			if err != nil {
				if len(text) > 3 && strings.Contains(err.Error(), text) {
					t.Fatalf("%q is in the error %v", text, err)
				}
				continue
			}
			want := s.Types["user"].Canonical(text)
			for _, k := range got.Keys {
				if k.Kind() != recordkey.KindSRK || k.Type() != "user" || k.Value() != want {
					t.Fatalf("%q: got key %s, want an SRK of type user and value %q", text, k, want)
				}
			}
			if p := got.Pattern(); p != "" && strings.Count(p, "*")-strings.Count(p, `\*`) != 1 {
				t.Fatalf("%q: pattern %s, want one unescaped *", text, p)
			}
		}
	}
	for _, text := range naughtyStrings(t) {
		try(t, text)
	}
	for _, text := range []string{"user/uid:x", "order/number:7", `["order","7"]`, "*=x", "uid=x", "*", "~/schema/user", strings.Repeat("hunter2", 1000)} {
		try(t, text)
	}
	rapid.Check(t, func(t *rapid.T) { try(t, rapid.String().Draw(t, "text")) })
}

// TestNaughtyUIDs checks that every text except the empty one can be a UID, and that the key of its
// record resolves to the same key.
func TestNaughtyUIDs(t *testing.T) {
	n := 0
	for _, text := range naughtyStrings(t) {
		got, err := hints.UID(text).Resolve(schema.User(), "user")
		if text == "" {
			checkErr(t, err, "hints: UID: no value")
			continue
		}
		if err != nil || got.Value != text || got.Keys[0].Value() != text {
			t.Errorf("%q: got %+v, %v; want the text as value", text, got, err)
			continue
		}
		again, err := hints.Parse(got.Keys[0].String())
		if err != nil {
			t.Errorf("%s: %v", got.Keys[0], err)
			continue
		}
		if target, err := again.Resolve(schema.User(), ""); err != nil || target.Keys[0] != got.Keys[0] {
			t.Errorf("%s is read as %+v, %v; want a target with the same key", got.Keys[0], target, err)
		}
		n++
	}
	if n < 400 {
		t.Errorf("%d strings were tried, want at least 400", n)
	}
}

// TestResolveUntyped checks that only hints that name a field find values that nobody types.
func TestResolveUntyped(t *testing.T) {
	s := schema.User()
	s.Types["user"].Fields["ext"] = schema.Field{Role: schema.RoleSecondary, Typed: new(false)}
	pair, err := hints.ParseJSON([]byte(`["*","A"]`))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		hint hints.Hint
		want string
	}{
		{hints.Any("A"), `["any",["user/email:a/~prk","user/name:a/~prk"],"user","*","a","user/*:a/~prk"]`},
		{pair, `["any",["user/email:a/~prk","user/name:a/~prk"],"user","*","a","user/*:a/~prk"]`},
		{hints.Field("ext", "A"), `["srk","user/ext:a/~prk","user","ext","a"]`},
		{hints.Key(key("user/ext:a/~prk")), `["srk","user/ext:a/~prk","user","ext","a"]`},
		{hints.Facets(schema.Texts("ext", "A")), `["srk","user/ext:a/~prk","user","ext","a"]`},
	} {
		if got, err := row.hint.Resolve(s, "user"); err != nil || asJSON(t, got) != row.want {
			t.Errorf("%s: got %s, %v\nwant %s", row.hint, asJSON(t, got), err, row.want)
		}
	}
}

func TestAllocationsOfResolve(t *testing.T) {
	s := schema.User()
	h := hints.Field("email", "alice@hotmail.com")
	got := testing.AllocsPerRun(100, func() {
		if _, err := h.Resolve(s, "user"); err != nil {
			t.Fatal(err)
		}
	})
	if got != 1 { // for the list of keys
		t.Errorf("got %v allocations, want 1", got)
	}
}

func BenchmarkResolve(b *testing.B) {
	s := schema.User()
	for _, h := range []hints.Hint{hints.UID("17c07627d35e"), hints.Field("email", "alice@hotmail.com"), hints.Any("alice")} {
		b.Run(fmt.Sprint(h), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := h.Resolve(s, "user"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
