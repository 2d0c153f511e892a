package validate

import (
	"encoding/json"
	"os"
	"testing"

	"golang.org/x/text/secure/precis"

	"github.com/coffeenode/userdb/schema"
)

// A goldenCase is one input of the golden file, with the result of another implementation of
// PRECIS.
type goldenCase struct {
	Profile string
	Input   string
	Output  string
	Error   string
}

func goldenCases(t *testing.T, profile string) []goldenCase {
	raw, err := os.ReadFile("testdata/precis-golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var all, matching []goldenCase
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.Profile == profile {
			matching = append(matching, c)
		}
	}
	if len(matching) != 325 {
		t.Fatalf("%d tests of %s, want 325", len(matching), profile)
	}
	return matching
}

// A deviation explains why an input has another result here than in the golden file.
type deviation struct {
	input, reason string
	output        string // our result; empty if refused
}

const (
	surrogate = "the file has a lone surrogate, which encoding/json reads as U+FFFD, and the profile accepts U+FFFD"
	sigma     = "the golden file maps the last sigma of a word to the final form; x/text does not, and both have the same canonical form"
)

var (
	nicknameDeviations = []deviation{{"\ufffd", surrogate, "\ufffd"}}
	mappedDeviations   = []deviation{{"ΒόλοΣ", sigma, "βόλοσ"}, {"ΣΣ", sigma, "σσ"}}
)

func TestProfilesAgainstGolden(t *testing.T) {
	for _, c := range []struct {
		name       string
		profile    *precis.Profile
		deviations []deviation
	}{
		{"UsernameCasePreserved", casePreserved, nil},
		{"UsernameCaseMapped", caseMapped, mappedDeviations},
		{"NicknameCasePreserved", precis.Nickname, nicknameDeviations},
	} {
		testProfile(t, goldenCases(t, c.name), c.profile, c.deviations)
	}
}

func testProfile(t *testing.T, golden []goldenCase, profile *precis.Profile, deviations []deviation) {
	t.Helper()
	used := make(map[string]bool)
	for _, c := range golden {
		want, ok := c.Output, c.Error == ""
		for _, d := range deviations {
			if d.input == c.Input {
				used[d.input] = true
				want, ok = d.output, d.output != ""
			}
		}
		got, accepted := enforce(profile, c.Input)
		if accepted != ok || ok && got != want {
			t.Errorf("%s of %+q: got %+q, %v; want %+q, %v (%s)", c.Profile, c.Input, got, accepted, want, ok, c.Error)
		}
	}
	for _, d := range deviations {
		if !used[d.input] {
			t.Errorf("no test deviates for %+q: %s", d.input, d.reason)
		}
	}
}

// TestNameKindsMatchGolden checks the kinds username and nickname under FoldExact. Except for the
// values that our own rules refuse, they accept exactly the names that the golden file leaves
// unchanged, and the nickname U+FFFD: see surrogate.
func TestNameKindsMatchGolden(t *testing.T) {
	ownRules := map[string]string{
		"name: username: contains an @":     "the documentation of CoffeeNode UserDB advises it",
		"name: nickname: contains an @":     "the documentation of CoffeeNode UserDB advises it",
		"name: username: digits only":       "the documentation of CoffeeNode UserDB advises it",
		"name: nickname: digits only":       "the documentation of CoffeeNode UserDB advises it",
		"name: size: longer than 1 KiB":     "a value must fit into a key",
		"name: nickname: begins like a URL": "the documentation of CoffeeNode UserDB advises it",
		"name: username: begins like a URL": "the documentation of CoffeeNode UserDB advises it",
	}
	seen := make(map[string]int)
	for kind, profile := range map[string]string{"username": "UsernameCasePreserved", "nickname": "NicknameCasePreserved"} {
		r := mustCompile(t, fields(schema.FoldExact, map[string]schema.Field{"name": ofKind(kind)}))
		for _, c := range goldenCases(t, profile) {
			got := text(r.Secondary("name", c.Input))
			if _, known := ownRules[got]; known {
				seen[got]++
				continue
			}
			want := c.Error == "" && c.Output == c.Input || c.Input == "\ufffd" && kind == "nickname"
			if (got == "") != want {
				t.Errorf("%s %+q: got %q, want accepted %v", kind, c.Input, got, want)
			}
		}
	}
	t.Logf("refused by our own rules: %v", seen)
	if len(seen) < 3 {
		t.Errorf("our own rules refused only %v, want at least 3 reasons", seen)
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		fold           schema.Fold
		value          string
		username, nick string
	}{
		{schema.FoldExact, "Alice", "", ""},
		{schema.FoldExact, "Alice B", "username: a character that RFC 8265 does not allow there", ""},
		{schema.FoldExact, " Alice", "username: a character that RFC 8265 does not allow there", "nickname: not in the form that RFC 8266 prescribes"},
		{schema.FoldExact, "ＡＬＩＣＥ", "username: not in the form that RFC 8265 prescribes", "nickname: not in the form that RFC 8266 prescribes"},
		{schema.FoldExact, "e\u0301", "username: not in the form that RFC 8265 prescribes", "nickname: not in the form that RFC 8266 prescribes"},
		{schema.FoldExact, "a＠b", "username: not in the form that RFC 8265 prescribes", "nickname: not in the form that RFC 8266 prescribes"},
		{schema.FoldExact, "HTTPS://x", "username: begins like a URL", "nickname: begins like a URL"},
		{schema.FoldCasefold, "alice", "", ""},
		{schema.FoldCasefold, "josé_", "", ""},
		{schema.FoldCasefold, "نام", "", ""},
		{schema.FoldCasefold, "1نام", "username: a character that RFC 8265 does not allow there", ""},
		// Canonical maps Cherokee letters to upper case, but the profile maps them to lower case.
		{schema.FoldCasefold, "\u13a0\u13a1", "", ""},
		{schema.FoldCasefold, "௧௨௩", "username: digits only", "nickname: digits only"},
		{schema.FoldCasefold, "٣٤٥", "username: a character that RFC 8265 does not allow there", "nickname: digits only"},
		{schema.FoldCasefold, "1a", "", ""},
		{schema.FoldCasefold, "a1@", "username: contains an @", "nickname: contains an @"},
		{schema.FoldCasefold, "http://", "username: begins like a URL", "nickname: begins like a URL"},
		{schema.FoldCasefold, "http:/", "", ""},
		{schema.FoldCasefold, "ahttp://", "", ""},
		{schema.FoldCasefold, "♚", "username: a character that RFC 8265 does not allow there", ""},
	} {
		r := mustCompile(t, fields(c.fold, map[string]schema.Field{"username": ofKind("username"), "nickname": ofKind("nickname")}))
		if got := text(r.Secondary("username", c.value)); got != c.username {
			t.Errorf("%s username %q: got %q, want %q", c.fold, c.value, got, c.username)
		}
		if got := text(r.Secondary("nickname", c.value)); got != c.nick {
			t.Errorf("%s nickname %q: got %q, want %q", c.fold, c.value, got, c.nick)
		}
	}
}

// TestStandardProfilesRefuseValidNames fails when the profiles of x/text stop applying the Bidi
// Rule to all text beyond ASCII. Then they can replace our own.
func TestStandardProfilesRefuseValidNames(t *testing.T) {
	if _, err := precis.UsernameCasePreserved.String("josé_"); err == nil {
		t.Error("precis.UsernameCasePreserved accepts josé_: use it")
	}
}
