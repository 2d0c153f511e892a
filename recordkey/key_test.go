package recordkey_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/recordkey"
)

// must returns k for arguments that are known to be valid, and panics on error.
func must(k recordkey.Key, err error) recordkey.Key {
	if err != nil {
		panic(err)
	}
	return k
}

func parse(s string) recordkey.Key { return must(recordkey.Parse(s)) }

func namespace(path string) recordkey.Namespace {
	ns, err := recordkey.ParseNamespace(path)
	if err != nil {
		panic(err)
	}
	return ns
}

// checkErr checks the text of err, and that it is a *SyntaxError.
func checkErr(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Fatalf("got no error, want %q", want)
	}
	if err.Error() != want {
		t.Errorf("got error  %s\nwant error %s", err, want)
	}
	var syntax *recordkey.SyntaxError
	if !errors.Is(err, recordkey.ErrSyntax) || !errors.As(err, &syntax) {
		t.Errorf("%v is not a *SyntaxError that matches ErrSyntax", err)
	}
}

func TestConstructorErrors(t *testing.T) {
	long := strings.Repeat("x", recordkey.MaxCrumb+1)
	user := must(recordkey.PRK("user", "uid", "x"))
	last := func(k recordkey.Key, err error) error { return err }
	for _, row := range []struct {
		err  error
		want string
	}{
		{last(recordkey.PRK("", "uid", "x")), `recordkey.PRK: "" at byte 0: type is empty`},
		{last(recordkey.PRK("user", "", "x")), `recordkey.PRK: "" at byte 0: field is empty`},
		{last(recordkey.PRK("user", "uid", "")), `recordkey.PRK: "" at byte 0: value is empty`},
		{last(recordkey.SRK("~user", "name", "x")), `recordkey.SRK: "~user" at byte 0: type begins with ~`},
		{last(recordkey.Index("user", "~isa", "x")), `recordkey.Index: "~isa" at byte 0: field begins with ~`},
		{
			last(recordkey.SRK("user", "name", long)),
			`recordkey.SRK: …"` + long[:80] + `" at byte 1024: value is over 1024 bytes`,
		},
		{last(user.Tertiary("")), `recordkey.Tertiary: "" at byte 0: name is empty`},
		{last(user.Tertiary("~prk")), `recordkey.Tertiary: "~prk" at byte 0: name begins with ~`},
		{last(parse("user/name:x/~prk").Tertiary("tags")), `recordkey.Tertiary: "user/name:x/~prk" at byte 0: SRK, want PRK`},
		{last(recordkey.Key{}.Tertiary("tags")), `recordkey.Tertiary: "invalid Key" at byte 0: invalid kind 0, want PRK`},
		{last(recordkey.Own()), `recordkey.Own: "" at byte 0: no parts`},
		{last(user.Own()), `recordkey.Own: "" at byte 0: no parts`},
		{last(user.Own("token", "")), `recordkey.Own: "" at byte 0: part is empty`},
		{last(parse("user/uid:x/tags").Own("token")), `recordkey.Own: "user/uid:x/tags" at byte 0: tertiary key, want PRK`},
		{last(recordkey.Key{}.Own("token")), `recordkey.Own: "invalid Key" at byte 0: invalid kind 0, want PRK`},
		{last(recordkey.Own("schema", "")), `recordkey.Own: "" at byte 0: part is empty`},
		{last(recordkey.Own(strings.Split("abcdefghijklmnopq", "")...)), `recordkey.Own: "q" at byte 0: more than 16 parts`},
	} {
		checkErr(t, row.err, row.want)
	}
}

func TestLongestCrumbs(t *testing.T) {
	longest := strings.Repeat("\x00", recordkey.MaxCrumb) // four times as long when escaped
	k := must(recordkey.PRK(longest, longest, longest))
	k = must(k.Tertiary(longest))
	if got := parse(k.String()); got != k {
		t.Error("the longest crumbs are not read back")
	}
	own := must(recordkey.Own(longest))
	if got := parse(own.String()); got != own {
		t.Error("the longest part of a KindOwn key is not read back")
	}
}

func TestAccessors(t *testing.T) {
	for _, row := range []struct {
		key                           string
		kind                          recordkey.Kind
		ns, typ, field, value, name   string
		kindName, prk, inRoot, inAcme string
	}{
		{"user/uid:9a4c", recordkey.KindPRK, "", "user", "uid", "9a4c", "", "PRK", "user/uid:9a4c", "user/uid:9a4c", "~acme/user/uid:9a4c"},
		{"~acme/~eu/user/uid:a+_b/tags", recordkey.KindTertiary, "~acme/~eu/", "user", "uid", "a b", "tags", "tertiary key", "~acme/~eu/user/uid:a+_b", "user/uid:a+_b/tags", "~acme/user/uid:a+_b/tags"},
		{"user/name:Bob/~prk", recordkey.KindSRK, "", "user", "name", "Bob", "", "SRK", "invalid Key", "user/name:Bob/~prk", "~acme/user/name:Bob/~prk"},
		{"user/job:Cook/~prks", recordkey.KindIndex, "", "user", "job", "Cook", "", "index key", "invalid Key", "user/job:Cook/~prks", "~acme/user/job:Cook/~prks"},
		{"~eu/~/schema/user", recordkey.KindOwn, "~eu/", "", "", "", "", "own key", "invalid Key", "~/schema/user", "~acme/~/schema/user"},
		{"~eu/~/token/{~eu/user/uid:a+_b}", recordkey.KindOwn, "~eu/", "user", "uid", "a b", "", "own key", "~eu/user/uid:a+_b", "~/token/{user/uid:a+_b}", "~acme/~/token/{~acme/user/uid:a+_b}"},
	} {
		k := parse(row.key)
		checks := []struct{ what, got, want string }{
			{"Namespace", k.Namespace().String(), row.ns},
			{"Type", k.Type(), row.typ},
			{"Field", k.Field(), row.field},
			{"Value", k.Value(), row.value},
			{"Name", k.Name(), row.name},
			{"Kind", k.Kind().String(), row.kindName},
			{"PRK", k.PRK().String(), row.prk},
			{"In the whole store", k.In(recordkey.Namespace{}).String(), row.inRoot},
			{"In acme", k.In(namespace("acme")).String(), row.inAcme},
		}
		for _, c := range checks {
			if c.got != c.want {
				t.Errorf("%s of %s: got %q, want %q", c.what, row.key, c.got, c.want)
			}
		}
		if k.Kind() != row.kind || !k.IsValid() {
			t.Errorf("%s: kind %d, valid %v, want %d, true", row.key, k.Kind(), k.IsValid(), row.kind)
		}
	}
}

func TestZeroKey(t *testing.T) {
	var zero recordkey.Key
	if zero.IsValid() || zero.String() != "invalid Key" || zero.In(namespace("acme")) != zero || zero.PRK() != zero {
		t.Errorf("the zero Key has the text %v, valid: %v; want invalid Key, false, also after In and PRK", zero, zero.IsValid())
	}
	if _, err := recordkey.Parse(zero.String()); err == nil {
		t.Error("Parse accepts the text of the zero Key")
	}
	_, err := zero.AppendText([]byte("kept"))
	checkErr(t, err, `recordkey.AppendText: "" at byte 0: zero Key`)
}

func TestOwnParts(t *testing.T) {
	parts := []string{"throttle", "a/b c", "~x", "\xff"}
	k := must(recordkey.Own(parts...))
	if got, want := k.String(), "~/throttle/a+,b+_c/~x/+xff"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := parse(k.String()).Parts(); !slices.Equal(got, parts) {
		t.Errorf("got parts %q, want %q", got, parts)
	}
	ofEntry := must(parse("~a/user/uid:x").Own(parts...))
	if got, want := ofEntry.String(), "~a/~/throttle/a+,b+_c/~x/+xff/{~a/user/uid:x}"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := parse(ofEntry.String()).Parts(); !slices.Equal(got, parts) {
		t.Errorf("got parts %q, want %q", got, parts)
	}
	if got := parse("user/uid:x").Parts(); got != nil {
		t.Errorf("a PRK has parts %q, want none", got)
	}
}

func TestCompare(t *testing.T) {
	sorted := []recordkey.Key{
		{},
		parse("~/schema/user"),
		parse("user/name:b/~prk"),
		parse("user/uid:a"),
		parse("user/uid:a/friends"),
		parse("user/uid:a/tags"),
		parse("user/uid:a+_b"),
		parse("user/uid:b"),
		parse("~acme/user/uid:a"),
	}
	for i, a := range sorted {
		for j, b := range sorted {
			want := min(max(i-j, -1), 1)
			if got := a.Compare(b); got != want {
				t.Errorf("%v.Compare(%v) = %d, want %d", a, b, got, want)
			}
		}
	}
}

func TestKeysInJSON(t *testing.T) {
	type document struct {
		Keys map[recordkey.Key]recordkey.Key
	}
	in := document{map[recordkey.Key]recordkey.Key{parse("user/name:a+_b/~prk"): parse("user/uid:x")}}
	text, err := json.Marshal(in)
	if err != nil || string(text) != `{"Keys":{"user/name:a+_b/~prk":"user/uid:x"}}` {
		t.Fatalf("Marshal returns %s, %v; want the texts of the keys", text, err)
	}
	var out document
	if err := json.Unmarshal(text, &out); err != nil || out.Keys[parse("user/name:a+_b/~prk")] != parse("user/uid:x") {
		t.Errorf("Unmarshal gives %v, %v; want the same keys", out, err)
	}
	before := parse("user/uid:x")
	k := before
	checkErr(t, k.UnmarshalText([]byte("user")), `recordkey.Parse: "user" at byte 4: no / after the type`)
	if k != before {
		t.Errorf("a failed UnmarshalText changed the key to %v, want %v", k, before)
	}
}
