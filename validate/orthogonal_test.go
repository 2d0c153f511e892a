package validate

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/schema"
)

// plainName is the rule for names as an RE2 expression: no @, no http:// or https:// at the
// beginning, and not only digits. RE2 has no "not", so the expression goes through the letters of
// https:// one by one.
const plainName = `^(?:[^@h0-9][^@]*|[0-9]+[^@0-9][^@]*|` +
	`h(?:[^@t][^@]*|t(?:[^@t][^@]*|t(?:[^@p][^@]*|p(?:[^@:s][^@]*|` + afterColon +
	`|s(?:[^@:][^@]*|` + afterColon + `)?)?)?)?)?)$`

const afterColon = `:(?:[^@/][^@]*|/(?:[^@/][^@]*)?)?`

// The example from the documentation of CoffeeNode UserDB, the original of this store: once with
// the kind nickname for names, and once with a pattern for them.
var (
	original = map[string]schema.Field{
		"email":   ofKind("email"),
		"url":     pattern(`^https?://.+`),
		"invoice": pattern(`^[0-9]{7}$`),
		"name":    ofKind("nickname"),
	}
	originalInRE2 = with(original, "name", pattern(plainName))
)

func with(fs map[string]schema.Field, name string, f schema.Field) map[string]schema.Field {
	changed := maps.Clone(fs)
	changed[name] = f
	return changed
}

func pairsOf(t *testing.T, fold schema.Fold, fs map[string]schema.Field) []Pair {
	t.Helper()
	pairs, err := Check(fields(fold, fs))
	if err != nil {
		t.Fatal(err)
	}
	return pairs
}

func TestOriginalExampleIsOrthogonal(t *testing.T) {
	for _, fold := range []schema.Fold{schema.FoldExact, schema.FoldCasefold} {
		for _, fs := range []map[string]schema.Field{original, originalInRE2} {
			pairs := pairsOf(t, fold, fs)
			if len(pairs) != 6 {
				t.Errorf("%s: got %d pairs of four fields, want 6", fold, len(pairs))
			}
			for _, p := range pairs {
				if p.Verdict != Orthogonal || p.Witness != "" || p.Note != "" {
					t.Errorf("%s: got %+v, want orthogonal", fold, p)
				}
			}
		}
	}
}

// TestEachRuleOfOriginalExampleIsNeeded checks that fields overlap if one rule of the example, or
// one part of the rule for names, is removed.
func TestEachRuleOfOriginalExampleIsNeeded(t *testing.T) {
	for _, c := range []struct {
		without string
		fields  map[string]schema.Field
		want    []string // overlapping pairs, each with a witness
	}{
		{"the rule for e-mails", with(original, "email", schema.Field{}), []string{`email invoice 0000000`, `email name a`, `email url http://a`}},
		{"the rule for URLs", with(original, "url", schema.Field{}), []string{`email url a@a`, `invoice url 0000000`, `name url a`}},
		{"the rule for invoices", with(original, "invoice", schema.Field{}), []string{`email invoice a@a`, `invoice name a`, `invoice url http://a`}},
		{"the rule for names", with(original, "name", schema.Field{}), []string{`email name a@a`, `invoice name 0000000`, `name url http://a`}},
		{"no @ in names", with(original, "name", pattern(strings.ReplaceAll(plainName, "@", "\x00"))), []string{`email name a@a`}},
		{"names not only digits", with(original, "name", pattern(`^[^@h][^@]*$`)), []string{`invoice name 0000000`}},
		{"names not like URLs", with(original, "name", pattern(`^[0-9]*[^@0-9][^@]*$`)), []string{`name url http://a`}},
		{"more than an @ in e-mails", with(original, "email", pattern(`@`)), []string{`email url http://@`}},
		{"the end of invoices", with(original, "invoice", pattern(`^[0-9]{7}`)), []string{`email invoice 0000000@a`, `invoice name 0000000a`}},
		{"the beginning of URLs", with(original, "url", pattern(`https?://.+`)), []string{`email url "http://"@a`, `name url ahttp://a`}},
	} {
		for _, fold := range []schema.Fold{schema.FoldExact, schema.FoldCasefold} {
			var got []string
			for _, p := range pairsOf(t, fold, c.fields) {
				if p.Verdict != Orthogonal {
					got = append(got, strings.TrimSpace(strings.Join([]string{p.A, p.B, p.Witness, p.Note}, " ")))
				}
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("%s, without %s: got %q, want %q", fold, c.without, got, c.want)
			}
		}
	}
}

func TestVerdicts(t *testing.T) {
	const exact, folded = schema.FoldExact, schema.FoldCasefold
	for _, c := range []struct {
		name    string
		fold    schema.Fold
		a, b    schema.Field
		verdict Verdict
		witness string
		note    string
	}{
		{"no rules", exact, schema.Field{}, schema.Field{}, Overlap, "a", ""},
		{"empty matches do not count", exact, pattern(`^x*$`), pattern(`^y*$`), Orthogonal, "", ""},
		{"patterns match anywhere", exact, pattern(`x`), pattern(`y`), Overlap, "xy", ""},
		{"text anchors", exact, pattern(`\Ax`), pattern(`x\z`), Overlap, "x", ""},
		{"line anchors are text anchors", exact, pattern(`^x`), pattern(`^y`), Orthogonal, "", ""},
		{"line anchors match at line breaks with the flag m", exact, pattern(`(?m)^x`), pattern(`(?m)^y`), Overlap, "x\ny", ""},
		{"the end of a line with the flag m", exact, pattern(`(?m)x$`), pattern(`^x\ny$`), Overlap, "x\ny", ""},
		{"a dot does not match a line break", exact, pattern(`^.$`), pattern(`\n`), Orthogonal, "", ""},
		{"a dot matches a line break with the flag s", exact, pattern(`(?s)^.$`), pattern(`\n`), Overlap, "\n", ""},
		{"word boundary", exact, pattern(`a\b`), pattern(`^ab$`), Orthogonal, "", ""},
		{"word boundary at the end", exact, pattern(`a\b`), pattern(`^ba$`), Overlap, "ba", ""},
		{"a place that is not a word boundary", exact, pattern(`a\B`), pattern(`^a.$`), Overlap, "ab", ""},
		{"word boundary is ASCII", exact, pattern(`^é\b`), pattern(`^é$`), Orthogonal, "", ""},
		{"assertions in a row", exact, pattern(`a$^`), pattern(`a`), Orthogonal, "", "a accepts no value"},
		{"case-insensitive flag", exact, pattern(`(?i)^abc$`), pattern(`^[A-Z]+$`), Overlap, "ABC", ""},
		{"case-insensitive flag beyond ASCII", exact, pattern(`(?i)^k$`), pattern(`^[^kK]$`), Overlap, "\u212a", ""},
		{"non-greedy repetition", exact, pattern(`^a+?$`), pattern(`^a{3}$`), Overlap, "aaa", ""},
		{"the least common multiple of two counts", exact, pattern(`^(aa)+$`), pattern(`^(aaa)+$`), Overlap, "aaaaaa", ""},
		{"character classes without a common letter", exact, pattern(`^\p{Greek}$`), pattern(`^[[:alpha:]]$`), Orthogonal, "", ""},
		{"the most readable of the shortest witnesses", exact, pattern(`^.{3}$`), pattern(`^\W.[^a-z]$`), Overlap, "!a0", ""},
		{"no text contains surrogates", exact, pattern(`^[\x{d800}-\x{dfff}]$`), schema.Field{}, Orthogonal, "", "a accepts no value"},
		{"upper case is not canonical", folded, pattern(`^[A-Z]+$`), pattern(`^A`), Orthogonal, "", "a accepts no value"},
		{"two spaces are not canonical", folded, pattern(` {2}`), schema.Field{}, Orthogonal, "", "a accepts no value"},
		{"spaces are canonical only inside", folded, pattern(`^.? .?$`), schema.Field{}, Overlap, "a a", ""},
		{"marks that form one character with a letter", folded, pattern("^e[\u0301-\u0304]$"), schema.Field{}, Orthogonal, "", "a accepts no value"},
		{"a mark that stays a character of its own", folded, pattern("^e[\u0301-\u0305]$"), schema.Field{}, Overlap, "e\u0305", ""},
		{"a long value", exact, pattern(`^a{1000}b{24}$`), schema.Field{}, Overlap, strings.Repeat("a", 1000) + strings.Repeat("b", 24), ""},
		{"a value over 1 KiB", exact, pattern(`^a{1000}b{25}$`), schema.Field{}, Orthogonal, "", "a accepts no value"},
		{"a value over 1 KiB of two-byte characters", exact, pattern(`^é{513}$`), schema.Field{}, Orthogonal, "", "a accepts no value"},
		{"kind and pattern must both match", exact, schema.Field{Kind: "email", Pattern: `^a`}, schema.Field{Kind: "email", Pattern: `^b`}, Orthogonal, "", ""},
		{"reserved values do not count", exact, schema.Field{Pattern: `^[ab]$`, Reserved: []string{"a"}}, schema.Field{Reserved: []string{"b"}}, Orthogonal, "", ""},
		{"a value that is not reserved", exact, schema.Field{Pattern: `^[abc]$`, Reserved: []string{"a"}}, schema.Field{Reserved: []string{"b"}}, Overlap, "c", ""},
		{"reserved in any case", folded, schema.Field{Pattern: `^(?:root|admin)$`, Reserved: []string{"ROOT", "Admin"}}, schema.Field{}, Orthogonal, "", "a accepts no value"},
		{"e-mail and URL", folded, ofKind("email"), ofKind("url"), Orthogonal, "", ""},
		{"e-mail and URL in quotes", folded, ofKind("email"), pattern(`http://`), Overlap, `"http://"@a`, ""},
		{"address literal", folded, schema.Field{Kind: "email", Pattern: `^[a-z]*@\[`}, pattern(`@.i`), Overlap, "a@[ipv6:::]", ""},
		{"an address over 254 bytes", folded, ofKind("email"), pattern(`^.{255}`), Orthogonal, "", ""},
		{"username and nickname", folded, ofKind("username"), ofKind("nickname"), Overlap, "a", ""},
		{"nickname with a space", folded, ofKind("username"), schema.Field{Kind: "nickname", Pattern: ` `}, Orthogonal, "", ""},
		{"the kind refuses the only match", folded, ofKind("username"), pattern(`^☃$`), Orthogonal, "", ""},
		{"the kind refuses the first match", folded, ofKind("username"), pattern(`^[☃é]$`), Overlap, "é", ""},
		{"the kind refuses the shortest match", folded, ofKind("username"), pattern(`^(?:☃|[a-z]☃|yes)$`), Overlap, "yes", "a shorter one may exist"},
		{"the kind refuses too many matches", folded, ofKind("email"), pattern(`^[a-z]{65}@a$`), NotDecided, "", "the limit was reached first"},
		{"too many states", exact, pattern(`[ab].{20}c`), pattern(`d.{20}$`), NotDecided, "", "the limit was reached first"},
	} {
		p := verdictOn(t, c.fold, c.a, c.b)
		if p.Verdict != c.verdict || p.Witness != c.witness || p.Note != c.note {
			t.Errorf("%s: got %s %q (%s), want %s %q (%s)", c.name, p.Verdict, p.Witness, p.Note, c.verdict, c.witness, c.note)
		}
		if q := verdictOn(t, c.fold, c.b, c.a); q.Verdict != c.verdict || len(q.Witness) != len(c.witness) {
			t.Errorf("%s, with the fields swapped: got %s %q, want %s and a witness of %d bytes", c.name, q.Verdict, q.Witness, c.verdict, len(c.witness))
		}
	}
}

func TestPairsAreSorted(t *testing.T) {
	got := pairsOf(t, "", map[string]schema.Field{"c": ofKind("email"), "a": ofKind("url"), "b": {}})
	if len(got) != 3 || got[0].A+got[0].B+got[1].A+got[1].B+got[2].A+got[2].B != "abacbc" {
		t.Fatalf("got %+v, want the pairs ab, ac and bc", got)
	}
}

func TestNoPairs(t *testing.T) {
	for _, fs := range []map[string]schema.Field{nil, {"a": {}}} {
		if got := pairsOf(t, "", fs); len(got) != 0 {
			t.Errorf("%d fields: got %+v, want no pairs", len(fs), got)
		}
	}
}

// TestHardPairsShareLimit checks that hard pairs leave enough of the limit for the others, and that
// the whole proof ends.
func TestHardPairsShareLimit(t *testing.T) {
	fs := maps.Clone(original)
	for _, name := range []string{"h1", "h2", "h3", "h4"} {
		fs[name] = pattern(`[ab].{30}` + name + `.{30}$`)
	}
	pairs, err := check(fields(schema.FoldExact, fs), 1<<22)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pairs {
		_, a := original[p.A]
		_, b := original[p.B]
		if a && b && p.Verdict != Orthogonal {
			t.Errorf("an easy pair is not orthogonal: %+v", p)
		}
		if !a && !b && p.Verdict != NotDecided {
			t.Errorf("a hard pair is decided: %+v", p)
		}
	}
}

// TestHostileExpressions checks expressions that would take much time or memory if the prover
// repeated work for each of their instructions.
func TestHostileExpressions(t *testing.T) {
	for _, expr := range []string{
		strings.Repeat(`\pL{1000}`, 40),
		strings.Repeat(`(?:a*)*b?`, 400),
		strings.Repeat(`\p{Greek}|\PL|[^a-c\pM]|`, 150),
		`(?:(?:a{0,30}){0,30}b){0,1}`,
		strings.Repeat("(", 400) + "a" + strings.Repeat(")*", 400),
		strings.Repeat("(?i)k|ſ|", 500),
	} {
		p := verdictOn(t, "", pattern(expr), ofKind("email"))
		if p.Verdict == Overlap {
			continue
		}
		if want := "a accepts no value"; p.Verdict != Orthogonal || p.Note != want {
			t.Errorf("%.40q: got %s (%s), want an overlap, or orthogonal (%s)", expr, p.Verdict, p.Note, want)
		}
	}
}

// TestDisjointKinds checks that disjointKinds agrees with the prover about each pair of kinds,
// under both folds.
func TestDisjointKinds(t *testing.T) {
	kinds := []string{"email", "url", "username", "nickname", "pattern"}
	fieldOf := map[string]schema.Field{"pattern": pattern(".")}
	for _, kind := range kinds[:4] {
		fieldOf[kind] = ofKind(kind)
	}
	for _, fold := range []schema.Fold{schema.FoldExact, schema.FoldCasefold} {
		for i, a := range kinds {
			for _, b := range kinds[i:] {
				typ := fields(fold, map[string]schema.Field{"a": fieldOf[a], "b": fieldOf[b]})
				pairs, err := Check(typ)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := disjointKinds(typ), pairs[0].Verdict == Orthogonal; got != want {
					t.Errorf("%s, %s and %s: disjointKinds returns %v, but the prover %+v", fold, a, b, got, pairs[0])
				}
			}
		}
	}
}

// TestUntypedFields checks that fields whose values nobody types are compared with no other field,
// and that a search in any field leaves them out.
func TestUntypedFields(t *testing.T) {
	typ := schema.Type{Primary: "id", Fields: map[string]schema.Field{
		"email": {Role: schema.RoleSecondary, Kind: "email"},
		"ext":   {Role: schema.RoleSecondary, Typed: new(false)},
		"name":  {Role: schema.RoleSecondary, Kind: "nickname"},
	}}
	pairs, err := Check(typ)
	if err != nil || len(pairs) != 1 || pairs[0].A != "email" || pairs[0].B != "name" || pairs[0].Verdict != Orthogonal {
		t.Errorf("the pairs are %+v, %v; want only email and name", pairs, err)
	}
	r, err := Compile(typ)
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{"a@x.org": "[email]", "ann": "[name]", "": "[email name]"} {
		if got := fmt.Sprint(r.Candidates(value)); got != want {
			t.Errorf("%q may be in %s, want %s", value, got, want)
		}
	}
	if err := r.Secondary("ext", "a@x.org"); err != nil {
		t.Error(err)
	}
}
