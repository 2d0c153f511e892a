package password

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/trustelem/zxcvbn/scoring"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestMain pins the current year, because dates and years far from it need more guesses.
func TestMain(m *testing.M) {
	flag.Parse()
	scoring.ReferenceYear = 2026
	os.Exit(m.Run())
}

// A report is one line of the results of CoffeeNode UserDB, the original of this store.
type report struct {
	Password string
	Result   struct {
		Isa     string  `json:"~isa"`
		Level   int     `json:"ttc.level"`
		Time    string  `json:"ttc"`
		Seconds float64 `json:"ttc.seconds"`
		Score   int
		Entropy float64
	}
}

func originalReports(t *testing.T) (all []report) {
	eachLine(t, "../test/testdata/original/original_strength.jsonl", func(r report) { all = append(all, r) })
	return all
}

// TestStrengthAgainstOriginal compares with a golden file how each report differs from the
// original's, whose zxcvbn is older and has other dictionaries.
func TestStrengthAgainstOriginal(t *testing.T) {
	var b strings.Builder
	fmt.Fprintln(&b, "# entropy here (and how much more than in CoffeeNode UserDB), score and time: CoffeeNode UserDB > here, password")
	for _, o := range originalReports(t) {
		r := Strength(o.Password)
		fmt.Fprintf(&b, "%8.3f (%+9.3f)  %d > %d  %-9s > %-9s  %q\n", r.Entropy, r.Entropy-o.Result.Entropy,
			o.Result.Score, r.Score, o.Result.Time, r.Time, o.Password)
	}
	const golden = "testdata/strength-differences.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	got, wanted := strings.Split(b.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(got), len(wanted)) {
		if i >= len(got) || i >= len(wanted) || got[i] != wanted[i] {
			t.Fatalf("line %d of %s differs; got\n%s", i+1, golden, b.String())
		}
	}
}

// TestTimeInWordsMatchesOriginal checks that inWords returns the original's words and levels for
// the original's numbers.
func TestTimeInWordsMatchesOriginal(t *testing.T) {
	all := originalReports(t)
	if len(all) != 32 {
		t.Fatalf("%d reports, want 32", len(all))
	}
	for _, o := range all {
		if level, text := inWords(o.Result.Seconds); level != o.Result.Level || text != o.Result.Time {
			t.Errorf("%v s: %d %q, want %d %q", o.Result.Seconds, level, text, o.Result.Level, o.Result.Time)
		}
		// Half of the guesses at 10,000 a second. The original rounds the entropy first.
		if got := math.Exp2(o.Result.Entropy) / 2 / 10_000; math.Abs(got-o.Result.Seconds) > o.Result.Seconds/1000+0.001 {
			t.Errorf("%q: %v s of %v bits, want %v", o.Password, got, o.Result.Entropy, o.Result.Seconds)
		}
	}
}

func TestTimeInWords(t *testing.T) {
	for _, tt := range []struct {
		seconds float64
		level   int
		text    string
	}{
		{0, 0, "instant"},
		{59.999, 0, "instant"},
		{60, 1, "2 minutes"},
		{61, 1, "3 minutes"},
		{3599, 1, "61 minutes"},
		{3600, 2, "2 hours"},
		{86400, 3, "2 days"},
		{31*86400 - 1, 3, "32 days"},
		{31 * 86400, 4, "2 months"},
		{12 * 31 * 86400, 5, "2 years"},
		{100*12*31*86400 - 1, 5, "101 years"},
		{100 * 12 * 31 * 86400, 6, "centuries"},
		{math.MaxFloat64, 6, "centuries"},
	} {
		if level, text := inWords(tt.seconds); level != tt.level || text != tt.text {
			t.Errorf("%v s: %d %q, want %d %q", tt.seconds, level, text, tt.level, tt.text)
		}
	}
}

func TestStrengthJSON(t *testing.T) {
	for password, want := range map[string]string{
		"fjord umbrella 91 quilts": `{"~isa":"USERDB/password-strength-report","ttc.level":6,"ttc":"centuries","ttc.seconds":235633150008680,"score":4,"entropy":62.031,"suggestions":[]}`,
		"123456":                   `{"~isa":"USERDB/password-strength-report","ttc.level":0,"ttc":"instant","ttc.seconds":0,"score":0,"entropy":1,"suggestions":["add another word or two, preferably unusual","avoid common words, names and passwords, and your own names, in any spelling"]}`,
		"":                         `{"~isa":"USERDB/password-strength-report","ttc.level":0,"ttc":"instant","ttc.seconds":0,"score":0,"entropy":0,"suggestions":["add another word or two, preferably unusual"]}`,
	} {
		got, err := json.Marshal(Strength(password))
		if err != nil || string(got) != want {
			t.Errorf("%q: %s, %v\nwant %s", password, got, err, want)
		}
	}
}

func TestStrengthSuggestions(t *testing.T) {
	for _, tt := range []struct{ password, pattern string }{
		{"dragon", "dictionary"},
		{"Drag0n", "dictionary"},
		{"ijnmkop", "spatial"},
		{"aaaaaaa", "repeat"},
		{"bcdefg", "sequence"},
		{"19.11.1999", "date"},
		{"1987", "regex"},
	} {
		got := Strength(tt.password).Suggestions
		i := slices.IndexFunc(advice, func(h struct{ pattern, say string }) bool { return h.pattern == tt.pattern })
		if !slices.Contains(got, advice[i].say) {
			t.Errorf("%q: got the advice %q, want it to include that for the pattern %q", tt.password, got, tt.pattern)
		}
	}
	// No suggestion appears twice.
	if got := Strength("dragonmonkey").Suggestions; len(got) != 2 {
		t.Errorf("two words: got %q, want two suggestions", got)
	}
}

func TestStrengthConsidersOwn(t *testing.T) {
	const password = "grzegorzbrzeczyszczykiewicz"
	alone, owned := Strength(password), Strength(password, "Grzegorz", "BRZECZYSZCZYKIEWICZ")
	if alone.Score != 4 || owned.Score != 1 {
		t.Errorf("got the score %d, and %d for the owner of the names; want 4 and 1", alone.Score, owned.Score)
	}
	many := slices.Repeat([]string{"someone"}, maxOwn)
	if got := Strength(password, append(many, "grzegorz", "brzeczyszczykiewicz")...); got.Score != 4 {
		t.Errorf("got the score %d with the names after %d others, want 4, because further identifiers are ignored", got.Score, maxOwn)
	}
}

func TestStrengthIsLimited(t *testing.T) {
	for _, unit := range []string{"xK9!q", "日本語", "😀é", "\xff\xfe"} {
		long := []rune(strings.Repeat(unit, 200_000))
		first, more := string(long[:maxExamined]), string(long[:maxExamined+1])
		got, want := Strength(string(long), more), Strength(first, first)
		if got.Entropy != want.Entropy {
			t.Errorf("%q over and over: %v bits, want the %v of its beginning", unit, got.Entropy, want.Entropy)
		}
	}
}

// TestStrengthOfOtherScripts checks that text beyond ASCII gets no better score than ASCII text
// with the same structure.
func TestStrengthOfOtherScripts(t *testing.T) {
	for _, tt := range []struct {
		password, ascii string
		own             string
	}{
		{"ääääääääääää", "############", ""},
		{"日本日本日本日本日本", "#%#%#%#%#%", ""},
		{"😀😀😀😀😀😀😀😀😀😀", "##########", ""},
		{"пароль-маша", "", "ПАРОЛЬ-МАША"},
		{"\xff\xff\xff\xff\xff\xff\xff\xff", "########", ""},
	} {
		got := Strength(tt.password, tt.own)
		if got.Score > 1 {
			t.Errorf("%q scores %d, want 1 at most", tt.password, got.Score)
		}
		if want := Strength(tt.ascii); tt.ascii != "" && got.Entropy != want.Entropy {
			t.Errorf("%q: %v bits, want the %v of %q", tt.password, got.Entropy, want.Entropy, tt.ascii)
		}
	}
	if got := Strength("鮭とわかめの味噌汁を毎朝いただく"); got.Score != 4 {
		t.Errorf("a sentence scores %d, want 4", got.Score)
	}
}
