package hints_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A probe is one call of CoffeeNode UserDB, the original of this store, and its result.
type probe struct {
	Fn     string            `json:"fn"`
	Args   []json.RawMessage `json:"args"`
	Result json.RawMessage   `json:"result"`
	Error  string            `json:"error"`
}

// call returns the notation of p in the tables below: fn("text"), fn(["list"]).
func (p probe) call() string {
	args := make([]string, len(p.Args))
	for i, arg := range p.Args {
		args[i] = string(arg)
	}
	return p.Fn + "(" + strings.Join(args, ",") + ")"
}

func originalSchema(t testing.TB) schema.Schema {
	f, err := os.Open("../test/testdata/original/original_options.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := schema.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func probes(t testing.TB) []probe {
	f, err := os.Open("../test/testdata/original/original_probes.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var list []probe
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var p probe
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

// text returns the only argument of a call, which must be a string.
func (p probe) text() (string, error) {
	var s string
	if len(p.Args) != 1 {
		return "", fmt.Errorf("%d arguments, want 1", len(p.Args))
	}
	return s, json.Unmarshal(p.Args[0], &s)
}

// triplet returns the three strings that a call has as its arguments, or as a list in its only
// argument.
func (p probe) triplet() (list []string, err error) {
	b, err := json.Marshal(p.Args)
	if len(p.Args) == 1 {
		b = p.Args[0]
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &list); err != nil || len(list) != 3 {
		return nil, fmt.Errorf("got %d elements, want 3: %v", len(list), err)
	}
	return list, nil
}

// counterparts maps the functions of the original to functions that do the same with this package.
var counterparts = map[string]func(schema.Schema, probe) (any, error){
	"resolve_entry_hint":      func(s schema.Schema, p probe) (any, error) { return hints.AsEntry(s, p.Args[0]) },
	"resolve_user_entry_hint": func(s schema.Schema, p probe) (any, error) { return hints.AsUser(s, "user", p.Args[0]) },

	"split_record_key":             split(0),
	"split_primary_record_key":     split(recordkey.KindPRK),
	"split_secondary_record_key":   split(recordkey.KindSRK),
	"analyze_record_key":           analyze(0),
	"analyze_primary_record_key":   analyze(recordkey.KindPRK),
	"analyze_secondary_record_key": analyze(recordkey.KindSRK),

	"escape_key_value_crumb": func(_ schema.Schema, p probe) (any, error) {
		text, err := p.text()
		return recordkey.Escape(text), err
	},
	"unescape_key_value_crumb": func(_ schema.Schema, p probe) (any, error) {
		text, err := p.text()
		return recordkey.UnescapeLoose(text), err
	},
	"primary_record_key_from_id_triplet":   build(recordkey.PRK),
	"secondary_record_key_from_id_triplet": build(recordkey.SRK),
	"primary_record_key_from_user_id": func(s schema.Schema, p probe) (any, error) {
		uid, err := p.text()
		if err != nil {
			return nil, err
		}
		target, err := hints.UID(uid).Resolve(s, "user")
		if err != nil {
			return nil, err
		}
		return target.Keys[0].String(), nil
	},
	"_primary_record_key_from_hint": func(s schema.Schema, p probe) (any, error) {
		q, err := hints.AsEntry(s, p.Args[0])
		return q[1], err
	},
	"_index_description_from_type":   declared(func(t schema.Type) any { return []any{t.Primary, t.Secondary()} }),
	"_key_names_from_type":           declared(func(t schema.Type) any { return []any{t.Primary, t.Secondary()} }),
	"_primary_key_name_from_type":    declared(func(t schema.Type) any { return t.Primary }),
	"_secondary_key_names_from_type": declared(func(t schema.Type) any { return t.Secondary() }),
}

func split(only recordkey.Kind) func(schema.Schema, probe) (any, error) {
	return func(_ schema.Schema, p probe) (any, error) {
		text, err := p.text()
		if err != nil {
			return nil, err
		}
		return hints.Split(text, only)
	}
}

func analyze(only recordkey.Kind) func(schema.Schema, probe) (any, error) {
	return func(_ schema.Schema, p probe) (any, error) {
		text, err := p.text()
		if err != nil {
			return nil, err
		}
		return hints.Analyze(text, only)
	}
}

func build(key func(typ, field, value string) (recordkey.Key, error)) func(schema.Schema, probe) (any, error) {
	return func(_ schema.Schema, p probe) (any, error) {
		list, err := p.triplet()
		if err != nil {
			return nil, err
		}
		return key(list[0], list[1], list[2])
	}
}

func declared(get func(schema.Type) any) func(schema.Schema, probe) (any, error) {
	return func(s schema.Schema, p probe) (any, error) {
		name, err := p.text()
		if err != nil {
			return nil, err
		}
		t, ok := s.Types[name]
		if !ok {
			return nil, errors.New("no such type")
		}
		return get(t), nil
	}
}

// deviations lists the reasons why our results differ from those of the original. Each pattern
// matches the calls, in the notation of probe.call, that differ for that reason.
var deviations = []struct{ reason, pattern string }{
	{
		"the original splits at JavaScript's \\s, which has U+FEFF and lacks U+0085; Unicode's White_Space lacks U+FEFF and has U+0085",
		`\("user/uid:a[\x{feff}\x{85}]b"\)`,
	},
	{
		"control characters and white space are escaped, and a text that contains them unescaped is not a key",
		`\("(.*[\x{3000}\x{2028}]|.*\\u00(0b|1c|1f)|.*\\[tnr])|\["user","name",".*\\[tn]`,
	},
	{"braces are escaped, so that no value chooses its cluster slot", `\("(user/uid:)?\{x\}"\)`},
	{"the value in a key is unescaped, so that a parsed key has the value that it was built from", `^resolve_.*\("user/.*\+[_.+].*/~prk"\)`},
	{"in the original, [*, *] matches every user; here a caller's text is never a pattern", `^resolve_.*"\*","\*"\]\)`},
	{"an empty crumb is an error", `^resolve_.*""\]\)`},
	{"the names of fields are also escaped, because otherwise two fields could have the same key", `^resolve_.*"(a/b|a:b|name:Alice/~prk)","x"\]\)`},
	{"a list in place of a text is an error; the original converts it to a text, as JavaScript does", `^resolve_.*\["u(ser|id)"\]`},
	{"a text in place of a list is an error; the original takes its characters, as JavaScript does", `_from_id_triplet\("abc"\)`},
	{"the original returns a fallback in place of an error; here the caller gets the error", `^(split|analyze)_.*,("FALLBACK"|null)\)`},
	{"unescaping makes one pass from the left; the original replaces one escape after the other", `^unescape_.*\+\+_`},
	{"the function of the original throws on every valid hint", `^_primary_record_key_from_hint\(\["user"`},
	{"the original mistakes a property that every JavaScript object inherits for a type", `_type\("constructor"\)`},
}

// TestOriginalProbes replays every call of the original. The golden file lists the results that
// differ, by reason.
func TestOriginalProbes(t *testing.T) {
	s := originalSchema(t)
	found := make([]strings.Builder, len(deviations))
	list := probes(t)
	for _, p := range list {
		f, ok := counterparts[p.Fn]
		if !ok {
			t.Errorf("no counterpart of %s", p.Fn)
			continue
		}
		got, want := "error", "error"
		if answer, err := f(s, p); err == nil {
			got = compact(t, answer)
		}
		if p.Error == "" {
			want = compact(t, p.Result)
		}
		if got == want {
			continue
		}
		i := slices.IndexFunc(deviations, func(d struct{ reason, pattern string }) bool {
			return regexp.MustCompile(d.pattern).MatchString(p.call())
		})
		if i < 0 {
			t.Errorf("%s: got %s, want %s", p.call(), got, want)
			continue
		}
		fmt.Fprintf(&found[i], "%+q\n\toriginal %+q\n\there     %+q\n", p.call(), want, got)
	}
	var b strings.Builder
	for i, d := range deviations {
		if found[i].Len() == 0 {
			t.Errorf("no call deviates for this reason: %s", d.reason)
		}
		fmt.Fprintf(&b, "# %s\n%s", d.reason, found[i].String())
	}
	checkGolden(t, "deviations.golden", b.String())
	if len(list) != 593 {
		t.Errorf("got %d probes, want 593", len(list))
	}
}

// compact returns the JSON of v, with sorted members and without white space.
func compact(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var plain any
	if err := json.Unmarshal(b, &plain); err != nil {
		t.Fatal(err)
	}
	if b, err = json.Marshal(plain); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestAsErrors checks the texts of the errors of AsEntry and AsUser.
func TestAsErrors(t *testing.T) {
	s := originalSchema(t)
	entry := func(b string) error {
		_, err := hints.AsEntry(s, []byte(b))
		return err
	}
	user := func(b string) error {
		_, err := hints.AsUser(s, "user", []byte(b))
		return err
	}
	_, noType := hints.AsUser(s, "team", []byte(`"x"`))
	for _, row := range []struct {
		err  error
		want string
	}{
		{entry(`"17c07627d35e"`), `hints: "17c07627d35e": want PRK or SRK: at byte 12: no / after the type`},
		{entry(`"user/uid:x/tags"`), `hints: "user/uid:x/tags": want PRK or SRK, got tertiary key`},
		{entry(`"~acme/user/uid:x"`), `hints: "~acme/user/uid:x": want PRK or SRK: it lies in a namespace`},
		{entry(`["name","Alice"]`), `hints: "[\"name\",\"Alice\"]": the schema has no type "name"`},
		{entry(`["user"]`), `hints: "[\"user\"]": list of 1, want two or three`},
		{entry(`["user","uid",5]`), `hints: "[\"user\",\"uid\",5]": element 3 is not a string`},
		{entry(`{"~isa":"user","uid":"x"}`), `hints: {…}: an entry`},
		{entry(`{"~isa":"list","length":2,"0":"user"}`), `hints: {…}: element 2 is not a string`},
		{entry(`{"~isa":"list","length":2,"0":"user","1":7}`), `hints: {…}: element 2 is not a string`},
		{entry(`true`), `hints: "true": neither a list nor a string`},
		{entry(`["user","uid",`), `hints: "[\"user\",\"uid\",": not valid JSON`},
		{user(`["user","uid","x"]`), `hints: "[\"user\",\"uid\",\"x\"]": list of 3, want two`},
		{user(`["~isa","user"]`), `hints: field "~isa": field begins with ~`},
		{user(`""`), `hints: field "uid": no value`},
		{noType, `hints: "\"x\"": the schema has no type "team"`},
	} {
		checkErr(t, row.err, row.want)
	}
}

func TestSplitAndAnalyzeRefuse(t *testing.T) {
	prk := func(text string) error {
		_, err := hints.Split(text, recordkey.KindPRK)
		return err
	}
	srk := func(text string) error {
		_, err := hints.Analyze(text, recordkey.KindSRK)
		return err
	}
	for _, row := range []struct {
		err  error
		want string
	}{
		{prk("user/name:x/~prk"), `hints: "user/name:x/~prk": want PRK, got SRK`},
		{srk("user/uid:x"), `hints: "user/uid:x": want SRK, got PRK`},
		{srk("user/job:x/~prks"), `hints: "user/job:x/~prks": want SRK, got index key`},
		{prk("user/uid:a b"), `hints: "user/uid:a b": want PRK: at byte 10: " " must be written +_`},
		{prk(strings.Repeat("é", 10_000)), `hints: "` + strings.Repeat("é", 40) + `"…: want PRK: too long`},
	} {
		checkErr(t, row.err, row.want)
	}
}

// TestAsReturnsCanonicalValues checks that AsEntry returns canonical values and keys if the type
// has the fold casefold, because the records have these keys.
func TestAsReturnsCanonicalValues(t *testing.T) {
	s := schema.User()
	for _, row := range []struct{ in, want string }{
		{`["user","name","ALICE"]`, `["srk","user/name:alice/~prk","user","name","alice"]`},
		{`"user/name:ALICE/~prk"`, `["srk","user/name:alice/~prk","user","name","alice"]`},
		{`"user/uid:ALICE"`, `["prk","user/uid:ALICE","user","uid","ALICE"]`},
		{`"team/name:ALICE/~prk"`, `["srk","team/name:ALICE/~prk","team","name","ALICE"]`},
		{`["user","*","A*"]`, `["srk","user/*:a\\*/~prk","user","*","a*"]`},
	} {
		got, err := hints.AsEntry(s, []byte(row.in))
		if err != nil || compact(t, got) != row.want {
			t.Errorf("%s: got %s, %v, want %s", row.in, compact(t, got), err, row.want)
		}
	}
}
