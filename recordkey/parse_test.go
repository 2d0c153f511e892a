package recordkey_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/recordkey"
)

func TestParseErrors(t *testing.T) {
	long := strings.Repeat("x", recordkey.MaxCrumb+1)
	deep := strings.Repeat("~n/", 17)
	for _, row := range []struct{ in, want string }{
		{"", `"" at byte 0: type is empty`},
		{"user", `"user" at byte 4: no / after the type`},
		{"user/uid", `"user/uid" at byte 8: no : after the field`},
		{"user/uid:", `"user/uid:" at byte 9: value is empty`},
		{"user/:x", `"user/:x" at byte 5: field is empty`},
		{"/uid:x", `"/uid:x" at byte 0: type is empty`},
		{"user/uid:x/", `"user/uid:x/" at byte 11: name is empty`},
		{"user/uid:x/~tags", `"user/uid:x/~tags" at byte 11: name begins with ~`},
		{"user/uid:x/~prk/", `"user/uid:x/~prk/" at byte 11: name begins with ~`},
		{"user/uid:x/~PRK", `"user/uid:x/~PRK" at byte 11: name begins with ~`},
		{"user/uid:x/a/b", `"user/uid:x/a/b" at byte 12: "/" must be written +,`},
		{"user/~isa:x", `"user/~isa:x" at byte 5: field begins with ~`},
		{"user/uid:a:b", `"user/uid:a:b" at byte 10: ":" must be written +.`},
		{"us:er/uid:x", `"us:er/uid:x" at byte 2: ":" must be written +.`},
		{"user/uid:a b", `"user/uid:a b" at byte 10: " " must be written +_`},
		{"user/uid:{x}", `"user/uid:{x}" at byte 9: "{" must be written +(`},
		{"user/uid:a\tb", `"user/uid:a\tb" at byte 10: "\t" must be written +x09`},
		{"user/uid:\u00a0", `"user/uid:\u00a0" at byte 9: "\u00a0" must be written +xc2+xa0`},
		{"user/uid:é\xe9", `"user/uid:é\xe9" at byte 11: "\xe9" must be written +xe9`},
		{"user/uid:+", `"user/uid:+" at byte 9: invalid escape`},
		{"user/uid:a+q", `"user/uid:a+q" at byte 10: invalid escape`},
		{"user/uid:+x0", `"user/uid:+x0" at byte 9: invalid escape`},
		{"user/uid:+xFF", `"user/uid:+xFF" at byte 9: invalid escape`},
		{"user/uid:+x41", `"user/uid:+x41" at byte 9: "A" must not be written in hex`},
		{"user/uid:+x20", `"user/uid:+x20" at byte 9: " " must not be written in hex`},
		{"user/uid:+xc3+xa9", `"user/uid:+xc3+xa9" at byte 9: "é" must not be written in hex`},
		{"user/uid:+x00+xe2+x98+x83", `"user/uid:+x00+xe2+x98+x83" at byte 13: "☃" must not be written in hex`},
		{"user/uid:+xc3\xa9", `"user/uid:+xc3\xa9" at byte 13: "\xa9" must be written +xa9`},
		{"user/uid:" + long, `"user/uid:` + long[:71] + `"… at byte 9: value is over 1024 bytes`},
		{"~", `"~" at byte 1: namespace is empty`},
		{"~acme", `"~acme" at byte 5: no / after the namespace`},
		{"~acme/", `"~acme/" at byte 6: type is empty`},
		{"~ac me/user/uid:x", `"~ac me/user/uid:x" at byte 3: " " must be written +_`},
		{deep + "user/uid:x", `"~n/~n/~n/~n/~n/~n/~n/~n/~n/~n/~n/~n/~n/~n/~n/~n/~n/user/uid:x" at byte 48: more than 16 levels`},
		{"~/", `"~/" at byte 2: part is empty`},
		{"~/schema/", `"~/schema/" at byte 9: part is empty`},
		{"~/a:b", `"~/a:b" at byte 3: ":" must be written +.`},
		{"~/token/{user/uid:x", `"~/token/{user/uid:x" at byte 8: want the key of an entry in the same namespace between braces`},
		{"~/token/{", `"~/token/{" at byte 8: want the key of an entry in the same namespace between braces`},
		{"~/token/{}", `"~/token/{}" at byte 9: type is empty`},
		{"~/{user/uid:x}", `"~/{user/uid:x}" at byte 2: "{" must be written +(`},
		{"~/token/{user/uid:x}/y", `"~/token/{user/uid:x}/y" at byte 8: want the key of an entry in the same namespace between braces`},
		{"~/token/{user/uid:x}}", `"~/token/{user/uid:x}}" at byte 19: "}" must be written +)`},
		{"~/token/{user/uid:x/tags}", `"~/token/{user/uid:x/tags}" at byte 9: tertiary key between braces, want PRK`},
		{"~/token/{~/x/{user/uid:x}}", `"~/token/{~/x/{user/uid:x}}" at byte 9: type begins with ~`},
		{"~a/~/token/{user/uid:x}", `"~a/~/token/{user/uid:x}" at byte 11: want the key of an entry in the same namespace between braces`},
		{"~/token/{~a/user/uid:x}", `"~/token/{~a/user/uid:x}" at byte 9: type begins with ~`},
		{"~" + strings.Repeat("/x", 17), `"~/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x" at byte 34: more than 16 parts`},
	} {
		k, err := recordkey.Parse(row.in)
		checkErr(t, err, "recordkey.Parse: "+row.want)
		if k.IsValid() {
			t.Errorf("%q: refused, but the key is %v, want the zero Key", row.in, k)
		}
	}
}

// crumbs generates arbitrary bytes, or texts made of pieces that are difficult in keys.
func crumbs() *rapid.Generator[string] {
	nasty := rapid.SampledFrom([]string{
		"+", " ", "/", ":", "{", "}", "~", "*", "?", "[", "]", "^", "-", "\\", "x", "41", "_", "~prk", "~prks",
		"\x00", "\t", "\x7f", "\u0085", "\u00a0", "\u2028", "\u3000", "\ufeff", "\u200b", "é", "☃", "😀",
		"\xc3", "\xa9", "\xe2\x98", "\xed\xa0\x80", "\xff",
	})
	return rapid.Custom(func(t *rapid.T) string {
		if rapid.Bool().Draw(t, "raw") {
			return string(rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "bytes"))
		}
		return strings.Join(rapid.SliceOfN(nasty, 1, 8).Draw(t, "pieces"), "")
	})
}

// names generates crumbs that can be a type, a field or the name of a tertiary record.
func names() *rapid.Generator[string] {
	return crumbs().Filter(func(s string) bool { return !strings.HasPrefix(s, "~") })
}

// keys generates keys of all kinds, inside and outside namespaces.
func keys() *rapid.Generator[recordkey.Key] {
	return rapid.Custom(func(t *rapid.T) recordkey.Key {
		var ns recordkey.Namespace
		for _, name := range rapid.SliceOfN(crumbs(), 0, 3).Draw(t, "namespaces") {
			ns, _ = ns.Sub(name)
		}
		typ, field, value := names().Draw(t, "type"), names().Draw(t, "field"), crumbs().Draw(t, "value")
		switch rapid.IntRange(1, 6).Draw(t, "kind") {
		case 1:
			return must(recordkey.PRK(typ, field, value)).In(ns)
		case 2:
			return must(recordkey.SRK(typ, field, value)).In(ns)
		case 3:
			return must(recordkey.Index(typ, field, value)).In(ns)
		case 4:
			return must(must(recordkey.PRK(typ, field, value)).Tertiary(names().Draw(t, "name"))).In(ns)
		case 5:
			return must(must(recordkey.PRK(typ, field, value)).Own(rapid.SliceOfN(crumbs(), 1, 4).Draw(t, "parts")...)).In(ns)
		}
		return must(recordkey.Own(rapid.SliceOfN(crumbs(), 1, 4).Draw(t, "parts")...)).In(ns)
	})
}

func TestParseReversesString(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := keys().Draw(t, "key")
		got, err := recordkey.Parse(k.String())
		if err != nil || got != k {
			t.Fatalf("%s: got %#v, %v\nwant %#v", k, got, err, k)
		}
	})
}

func TestKeyTextsAreUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := keys().Draw(t, "a"), keys().Draw(t, "b")
		if (a == b) != (a.String() == b.String()) || (a == b) != (a.Compare(b) == 0) {
			t.Fatalf("==, String and Compare disagree on %#v and %#v: %s and %s", a, b, a, b)
		}
	})
}

// TestNoKeyHasBracesOrSpace checks that no key contains white space, and that only the results of
// Key.Own contain braces. Redis Cluster hashes the text between braces to choose a slot, so these
// records lie in the slot of their entry.
func TestNoKeyHasBracesOrSpace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := keys().Draw(t, "key")
		s := k.String()
		if k.Kind() == recordkey.KindOwn && k.PRK().IsValid() {
			before, rest, _ := strings.Cut(s, "{")
			tag, after, _ := strings.Cut(rest, "}")
			if tag != k.PRK().String() || after != "" {
				t.Fatalf("%q: its slot is that of %q, want that of %q", s, tag, k.PRK())
			}
			s = before + tag
		}
		if strings.ContainsAny(s, "{} \t\n") {
			t.Fatalf("key %q has a brace or white space", s)
		}
	})
}

// naughtyStrings returns the Big List of Naughty Strings: texts that many programs mishandle.
func naughtyStrings(t testing.TB) []string {
	text, err := os.ReadFile("../test/testdata/blns.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

func TestNaughtyStrings(t *testing.T) {
	n := 0
	for _, s := range naughtyStrings(t) {
		k, err := recordkey.PRK("user", "uid", s)
		if s == "" || len(s) > recordkey.MaxCrumb {
			if err == nil {
				t.Errorf("%q is accepted as a value", s)
			}
			continue
		}
		n++
		if got, err := recordkey.Parse(k.String()); err != nil || got != k || got.Value() != s {
			t.Errorf("%q is read back as %v, %v; want the same", s, got, err)
		}
		ns, err := recordkey.Namespace{}.Sub(s)
		if err != nil || parse(k.In(ns).String()).Namespace() != ns || namespace(ns.Path()) != ns {
			t.Errorf("namespace %q is not read back: %v, %v", s, ns, err)
		}
	}
	if n < 400 {
		t.Errorf("%d strings were tried, want at least 400", n)
	}
}

func TestAllocations(t *testing.T) {
	text := func(s string) func() {
		k := parse(s)
		return func() { sink = k.String() }
	}
	parses := func(s string) func() {
		return func() { sinkKey, sinkErr = recordkey.Parse(s) }
	}
	for _, row := range []struct {
		what string
		f    func()
		want float64
	}{
		{"parse PRK", parses("user/uid:9a4c88dbc084"), 0},
		{"parse SRK in namespaces", parses("~acme/~eu/user/email:jürgen@example.com/~prk"), 0},
		{"parse tertiary key", parses("user/uid:9a4c88dbc084/tags"), 0},
		{"parse KindOwn key with escapes", parses("~a+_b/~/throttle/a+,b"), 0},
		{"parse SRK with an escaped value", parses("user/name:Just+_A.+_User/~prk"), 1},
		{"text of a PRK", text("user/uid:9a4c88dbc084"), 1},
		{"text of an escaped SRK", text("user/name:Just+_A.+_User,+_Gräfin+_+x85/~prk"), 1},
		{"build", func() { sinkKey, sinkErr = recordkey.SRK("user", "email", "a b@example.com") }, 0},
		{"build and text", func() {
			sinkKey, sinkErr = recordkey.SRK("user", "name", "Just A. User")
			sink = sinkKey.String()
		}, 1},
	} {
		if got := testing.AllocsPerRun(100, row.f); got != row.want {
			t.Errorf("%s: got %v allocations, want %v", row.what, got, row.want)
		}
	}
}

var (
	sink    string
	sinkKey recordkey.Key
	sinkErr error
)

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		sinkKey, sinkErr = recordkey.Parse("user/email:john@example.com/~prk")
	}
}

func BenchmarkString(b *testing.B) {
	k := parse("user/name:Just+_A.+_User/~prk")
	b.ReportAllocs()
	for b.Loop() {
		sink = k.String()
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"user/uid:9a4c88dbc084", "user/email:john@example.com/~prk", "user/job:Cook/~prks", "user/uid:x/tags",
		"~acme/~eu/user/uid:x", "~acme/~/throttle/a+,b", // keys in namespaces
		"user/name:Just+_A.+_User/~prk",         // escaped as in CoffeeNode UserDB, the original
		"user/uid:+x00+xc2+x85+xff+xe2+x80+xa8", // hex escapes, single and in runs
		"user/uid:+x41", "user/uid:+xc3+xa9",    // escapes that Escape never writes
		"~~/~+_/a/b:c",
		// keys with the key of an entry between braces, valid and invalid
		"~acme/~/token/{~acme/user/uid:9a4c}", "~/x/{~/y/{a/b:c}}", "~/x/{a/b:c", "~/{a/b:c}", "~/x/{a/b:c/d}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k, err := recordkey.Parse(s)
		if err != nil {
			_ = err.Error()
			return
		}
		if k.String() != s {
			t.Errorf("%q is read as %q, want the same text", s, k.String())
		}
		rebuilt, err := rebuild(k)
		if err != nil || rebuilt != k {
			t.Errorf("%q, built from its parts, is %v, %v; want the same key", s, rebuilt, err)
		}
	})
}

// rebuild returns a key made from the parts of k.
func rebuild(k recordkey.Key) (r recordkey.Key, err error) {
	switch k.Kind() {
	case recordkey.KindPRK:
		r, err = recordkey.PRK(k.Type(), k.Field(), k.Value())
	case recordkey.KindSRK:
		r, err = recordkey.SRK(k.Type(), k.Field(), k.Value())
	case recordkey.KindIndex:
		r, err = recordkey.Index(k.Type(), k.Field(), k.Value())
	case recordkey.KindTertiary:
		r, err = k.PRK().Tertiary(k.Name())
	case recordkey.KindOwn:
		if r, err = recordkey.Own(k.Parts()...); k.PRK().IsValid() {
			r, err = k.PRK().Own(k.Parts()...)
		}
	}
	return r.In(k.Namespace()), err
}
