package validate

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/schema"
)

// refusedFromOriginal lists values that CoffeeNode UserDB, the original of this store, wrote and
// the built-in schema refuses, by their first characters. They load under the original's own
// options.json, which has no kinds.
var refusedFromOriginal = map[string]string{
	"zwsp\u200bx":             "name: invisible: an invisible character (U+200B)",
	"bom\ufeffx":              "name: invisible: an invisible character (U+FEFF)",
	"xxxxxxxx":                "name: size: longer than 1 KiB",
	"http://example.com/foo/": "name: nickname: begins like a URL",
	"alice@hotmail.com":       "name: nickname: contains an @", // as a name
	"":                        "non-empty: empty",
}

func TestValuesOfTheOriginal(t *testing.T) {
	r := mustCompile(t, schema.User().Types["user"])
	used := make(map[string]bool)
	for _, facet := range originalFacets(t) {
		got := text(r.Facet(facet[0], schema.Text(facet[1])))
		if got == "" {
			continue
		}
		explained := false
		for value, want := range refusedFromOriginal {
			if strings.HasSuffix(got, want) && strings.HasPrefix(facet[1], value) && (value != "" || facet[1] == "") {
				used[value], explained = true, true
			}
		}
		if !explained {
			t.Errorf("%s %.40q: got %s, which no deviation explains", facet[0], facet[1], got)
		}
	}
	for value := range refusedFromOriginal {
		if !used[value] {
			t.Errorf("nothing that begins with %q is refused", value)
		}
	}
}

// originalFacets returns the e-mail addresses and names that the original accepted. It leaves out
// those that are not texts.
func originalFacets(t *testing.T) (facets [][2]string) {
	f, err := os.Open("../test/testdata/original/original_creates.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct{ Entry map[string]json.RawMessage }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{"email", "name"} {
			var value string
			if raw, ok := line.Entry[field]; ok && json.Unmarshal(raw, &value) == nil {
				facets = append(facets, [2]string{field, value})
			}
		}
	}
	if err := lines.Err(); err != nil || len(facets) < 100 {
		t.Fatalf("read %d facets, want at least 100: %v", len(facets), err)
	}
	return facets
}

// TestNaughtyStrings checks that no two kinds except nickname and username accept the same naughty
// string, and that no error contains a string of more than six bytes.
func TestNaughtyStrings(t *testing.T) {
	raw, err := os.ReadFile("../test/testdata/blns.json")
	if err != nil {
		t.Fatal(err)
	}
	var naughty []string
	if err := json.Unmarshal(raw, &naughty); err != nil || len(naughty) < 500 {
		t.Fatalf("read %d strings, want at least 500: %v", len(naughty), err)
	}
	r := mustCompile(t, fields("", everyKind))
	accepted := make(map[string]int)
	for _, s := range naughty {
		value := r.typ.Canonical(s)
		if accepting := strings.Join(acceptedBy(r, value), " "); strings.Contains(accepting, " ") && accepting != "nickname username" {
			t.Errorf("%q is accepted by %s", value, accepting)
		} else {
			accepted[accepting]++
		}
		for _, field := range r.typed {
			if err := r.Secondary(field, value); err != nil && len(value) > 6 && strings.Contains(err.Error(), value) {
				t.Errorf("the error reveals the value %q: %v", value, err)
			}
		}
	}
	if accepted["nickname"] < 100 || accepted["nickname username"] < 50 || accepted[""] < 20 {
		t.Errorf("too few values were accepted; by kinds: %v", accepted)
	}
}
