package validate

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/schema"
)

var shop = schema.Type{
	Primary: "uid",
	Fields: map[string]schema.Field{
		"email":   {Role: schema.RoleSecondary, Kind: "email", Reserved: []string{"Root@Example.org"}},
		"name":    {Role: schema.RoleSecondary, Kind: "nickname", Reserved: []string{"Admin", "ｒｏｏｔ"}},
		"invoice": {Role: schema.RoleSecondary, Pattern: `^[0-9]{7}$`},
		"contact": {Role: schema.RoleSecondary, Kind: "email", Pattern: `@example\.org$`},
		"job":     {Role: schema.RoleIndexed},
		"added":   {Codec: schema.CodecDate},
		"age":     {Codec: schema.CodecNumber},
		"vip":     {Codec: schema.CodecBoolean},
		"rating":  {Codec: schema.CodecJSON},
		"country": {Pattern: `^[A-Z]{2}$`, Reserved: []string{"ZZ"}},
		"site":    {Kind: "url"},
	},
}

func TestSecondary(t *testing.T) {
	r := mustCompile(t, shop)
	for _, c := range []struct{ field, value, want string }{
		{"email", "alice@hotmail.com", ""},
		{"email", "", "email: non-empty: empty"},
		{"email", "alice", "email: no @ in the address"},
		{"email", "root@example.org", "email: reserved: no entry may take this value"},
		{"email", "Alice@hotmail.com", "email: canonical: not in canonical form"},
		{"name", "alice", ""},
		{"name", "alice in chains", ""},
		{"name", "admin", "name: reserved: no entry may take this value"},
		{"name", "root", "name: reserved: no entry may take this value"},
		{"name", "a@b", "name: nickname: contains an @"},
		{"name", "1234567", "name: nickname: digits only"},
		{"name", "http://alice", "name: nickname: begins like a URL"},
		{"name", "\x01", "name: nickname: a character that RFC 8266 does not allow there"},
		{"name", "a  b", "name: canonical: not in canonical form"},
		{"name", "\xff", "name: text: not UTF-8"},
		{"name", strings.Repeat("a", 1024), ""},
		{"name", strings.Repeat("a", 1025), "name: size: longer than 1 KiB"},
		{"invoice", "1234567", ""},
		{"invoice", "123456", "invoice: pattern: does not match ^[0-9]{7}$"},
		{"contact", "shop@example.org", ""},
		{"contact", "shop@example.com", `contact: pattern: does not match @example\.org$`},
		{"contact", "@example.org", "contact: email: nothing before the @"},
		{"job", "cook", "job: secondary: not a secondary field"},
		{"nosuch", "cook", "nosuch: secondary: not a secondary field"},
		{"uid", "cook", "uid: secondary: not a secondary field"},
	} {
		if got := text(r.Secondary(c.field, c.value)); got != c.want {
			t.Errorf("Secondary(%q, %.40q): got %q, want %q", c.field, c.value, got, c.want)
		}
	}
}

func TestFacet(t *testing.T) {
	r := mustCompile(t, shop)
	day := time.Date(2014, 5, 6, 7, 8, 9, 0, time.UTC)
	list, err := schema.JSON([]byte(`[1,null]`))
	if err != nil {
		t.Fatal(err)
	}
	null, err := schema.JSON([]byte(`null`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		field string
		value schema.Value
		want  string
	}{
		{"email", schema.Text(" Alice@HotMail.com "), ""},
		{"email", schema.Text("ａｌｉｃｅ＠hotmail.com"), ""},
		{"name", schema.Text("ａ＠ｂ"), "name: nickname: contains an @"},
		{"name", schema.Text(" \t"), "name: non-empty: empty"},
		{"name", schema.Text("ADMIN"), "name: reserved: no entry may take this value"},
		{"name", schema.Bool(true), "name: text: not text"},
		{"name", schema.Null(), "name: text: not text"},
		{"uid", schema.Text("17c07627d35e"), ""},
		{"uid", schema.Text(""), "uid: non-empty: empty"},
		{"uid", schema.Text(strings.Repeat("1", 1025)), "uid: size: longer than 1 KiB"},
		{"job", schema.Text("Cook"), ""},
		{"job", schema.Text(""), "job: non-empty: empty"},
		{"added", schema.Date(day), ""},
		{"added", schema.Text("2014-05-06"), "added: codec: not a value of codec date"},
		{"added", schema.Null(), "added: codec: not a value of codec date"},
		{"age", schema.Number(42), ""},
		{"age", schema.Text("42"), "age: codec: not a value of codec number"},
		{"vip", schema.Bool(false), ""},
		{"vip", schema.Null(), ""},
		{"vip", schema.Text("true"), "vip: codec: not a value of codec boolean"},
		{"rating", list, ""},
		{"rating", null, ""},
		{"rating", schema.Null(), ""},
		{"country", schema.Text("DE"), ""},
		{"country", schema.Text("de"), "country: pattern: does not match ^[A-Z]{2}$"},
		{"country", schema.Text("ZZ"), "country: reserved: no entry may take this value"},
		{"country", schema.Null(), ""},
		{"site", schema.Text("https://example.org/a"), ""},
		{"site", schema.Text("example.org"), "site: url: neither http:// nor https://"},
		{"free", schema.Text(""), ""},
		{"free", schema.Number(1), ""},
		{"free", schema.Text(strings.Repeat("x", 64<<10)), ""},
		{"free", schema.Text(strings.Repeat("x", 64<<10+1)), "free: size: longer than 64 KiB"},
		{"free", schema.Text("\xff"), "free: text: not UTF-8"},
		{"", schema.Text("x"), "name: a field without a name"},
		{"~isa", schema.Text("x"), "~isa: name: names that begin with ~ are reserved for the store"},
		{"\xff", schema.Text("x"), `"\xff": name: not UTF-8`},
		{"any name at all", schema.Text("x"), ""},
		{strings.Repeat("n", 1025), schema.Text("x"), strings.Repeat("n", 64) + "…: name: longer than 1 KiB"},
	} {
		if got := text(r.Facet(c.field, c.value)); got != c.want {
			t.Errorf("Facet(%.20q, %.40q): got %q, want %q", c.field, c.value.Wire(), got, c.want)
		}
	}
}

func TestErrorIsErrRule(t *testing.T) {
	err := mustCompile(t, shop).Secondary("invoice", "12")
	var bad *Error
	if !errors.Is(err, ErrRule) || !errors.As(err, &bad) {
		t.Fatalf("%#v is not an *Error that matches ErrRule", err)
	}
	if bad.Field != "invoice" || bad.Rule != "pattern" {
		t.Errorf("got field %q and rule %q, want invoice and pattern", bad.Field, bad.Rule)
	}
	if errors.Is(err, schema.ErrSchema) {
		t.Error("the error also matches ErrSchema")
	}
}

func TestErrorQuotesAndShortens(t *testing.T) {
	long := strings.Repeat("é", 64)
	for _, c := range []struct {
		err  Error
		want string
	}{
		{Error{"a\nb", "size", "long"}, `"a\nb": size: long`},
		{Error{long, "size", "long"}, long[:64] + "…: size: long"},
		{Error{"x" + long, "size", "long"}, "x" + long[:62] + "…: size: long"},
		{Error{"email", "email", "wrong"}, "email: wrong"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// TestErrorsDoNotContainValue checks that no error contains the value, which may be a password that
// was entered into the wrong field.
func TestErrorsDoNotContainValue(t *testing.T) {
	r := mustCompile(t, shop)
	rapid.Check(t, func(t *rapid.T) {
		field := rapid.SampledFrom(r.typed).Draw(t, "field")
		value := rapid.StringMatching(`[Q-Z]{6}[@:/."\[ \x00]?[Q-Z]*`).Draw(t, "value")
		for _, err := range []error{r.Secondary(field, value), r.Facet(field, schema.Text(value))} {
			if err != nil && strings.Contains(err.Error(), value[:6]) {
				t.Fatalf("the error reveals %q: %q", value[:6], err)
			}
		}
	})
}

func TestCompileRefuses(t *testing.T) {
	for _, c := range []struct {
		field schema.Field
		want  string
	}{
		{ofKind("mail"), "schema: fields.f.kind: unknown kind"},
		{pattern("("), "schema: fields.f.pattern: not a regular expression"},
		{pattern("a{1001}"), "schema: fields.f.pattern: not a regular expression"},
	} {
		_, err := Compile(fields("", map[string]schema.Field{"f": c.field}))
		if text(err) != c.want || !errors.Is(err, schema.ErrSchema) {
			t.Errorf("%+v: got %v, want %q", c.field, err, c.want)
		}
		if _, checked := Check(fields("", map[string]schema.Field{"f": c.field})); text(checked) != c.want {
			t.Errorf("%+v: Check returns %v, want %s", c.field, checked, c.want)
		}
	}
}

// TestReservedWithoutEffect checks that reserved values that no field could have are left out.
func TestReservedWithoutEffect(t *testing.T) {
	f := schema.Field{Reserved: []string{strings.Repeat("x", 1025), " ", "\xff"}}
	if got := len(mustCompile(t, fields("", map[string]schema.Field{"f": f})).fields["f"].reserved); got != 0 {
		t.Errorf("got %d reserved values, want none", got)
	}
}

func TestCandidates(t *testing.T) {
	users := mustCompile(t, schema.User().Types["user"])
	clash := mustCompile(t, fields("", map[string]schema.Field{"x": pattern("a"), "y": pattern("b"), "z": ofKind("email")}))
	hard := mustCompile(t, fields(schema.FoldExact, map[string]schema.Field{"a": pattern(`[ab].{20}c`), "b": pattern(`d.{20}$`)}))
	for _, c := range []struct {
		rules       *Rules
		value, want string
	}{
		{users, "alice@hotmail.com", "email"},
		{users, "alice", "name"},
		{users, "1234567", "email name"},
		{users, "", "email name"},
		{clash, "a@b.org", "x y z"},
		{clash, "ab", "x y z"},
		{clash, "a", "x y z"},
		{clash, "c", "x y z"},
		// Check cannot decide whether these fields are orthogonal.
		{hard, "d" + strings.Repeat("x", 20), "a b"},
		{mustCompile(t, schema.Type{}), "a", ""},
		{mustCompile(t, fields("", map[string]schema.Field{"x": {}})), "a", "x"},
	} {
		got := c.rules.Candidates(c.value)
		if strings.Join(got, " ") != c.want {
			t.Errorf("Candidates(%q) of %v: got %q, want %q", c.value, c.rules.typed, got, c.want)
		}
		if len(got) > 0 {
			got[0] = "changed"
		}
		if again := c.rules.Candidates(c.value); strings.Join(again, " ") != c.want {
			t.Errorf("a change by the caller changes the candidates to %q, want %s", again, c.want)
		}
	}
}

func TestRulesAreSafeForConcurrentUse(t *testing.T) {
	r := mustCompile(t, shop)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, value := range []string{"alice", "josé", "ａ", "bob@example.org", "中文@例え.jp", "1234567"} {
				for _, field := range r.typed {
					_ = r.Secondary(field, value)
				}
				r.Candidates(value)
			}
		})
	}
	wg.Wait()
}

// TestQuickRulesCheckPatternAndReserved checks that patterns and reserved values also apply to
// values that a quick function accepts.
func TestQuickRulesCheckPatternAndReserved(t *testing.T) {
	f := schema.Field{Role: schema.RoleSecondary, Kind: "nickname", Pattern: "^[a-m]", Reserved: []string{"admin"}}
	r := mustCompile(t, fields(schema.FoldCasefold, map[string]schema.Field{"f": f}))
	for value, want := range map[string]bool{"alice": true, "zoe": false, "admin": false} {
		if err := r.Secondary("f", value); (err == nil) != want {
			t.Errorf("%q: got %v, want accepted: %t", value, err, want)
		}
	}
}
