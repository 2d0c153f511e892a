package scim

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	filter "github.com/scim2/filter-parser/v2"
)

// spellings returns n spellings of a name that differ in case.
func spellings(name string, n int) (all []string) {
	for i := range n {
		letters := []byte(name)
		for bit := range letters {
			if i>>bit&1 == 1 {
				letters[bit] -= 'a' - 'A'
			}
		}
		all = append(all, string(letters))
	}
	return all
}

// TestParsedPaths checks the number of paths of a PATCH request that reach the parser, which is
// slow.
func TestParsedPaths(t *testing.T) {
	members := map[string]int{}
	for _, name := range spellings("title", 15) {
		members[name] = 1
	}
	value, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	withPath := func(path string) string { return fmt.Sprintf(`{"op":"remove","path":%q}`, path) }
	long := `emails[type eq "` + strings.Repeat(`\\`, 1000) + `"]`
	for _, test := range []struct {
		name, urn, operation string
		operations, parsed   int
		refused              bool
	}{
		{"members of an object", urnUser, `{"op":"add","value":` + string(value) + `}`, maxOperations, 0, false},
		{"sub-attributes", urnUser, withPath("name.givenName"), maxOperations, 0, false},
		{"URNs", urnUser, withPath(strings.ToUpper(urnUser) + ":displayName"), maxOperations, 0, false},
		{"attributes of extensions", urnUser, withPath(urnCorp + ":manager.value"), maxOperations, 0, false},
		{"work addresses", urnUser, withPath(`emails[type eq "work"].value`), maxOperations, 0, false},
		{"members of groups", urnGroup, withPath(`members[value eq "é😀"]`), maxOperations, 0, false},
		{"as many paths as the parser may get", urnUser, withPath("emails[primary eq true]"), 200, 200, false},
		{"too many paths for the parser", urnUser, withPath("emails[primary eq true]"), maxOperations, 201, true},
		{"too many bytes for the parser", urnUser, withPath(long), maxOperations, 16<<10/len(long) + 1, true},
	} {
		var body patch
		text := `{"Operations":[` + strings.Join(slices.Repeat([]string{test.operation}, test.operations), ",") + `]}`
		if err := json.Unmarshal([]byte(text), &body); err != nil {
			t.Fatal(err)
		}
		r := patchReader{urn: test.urn}
		if _, err := r.steps(body); (err != nil) != test.refused || err != nil && !isBadRequest(err) || r.parsed != test.parsed {
			t.Errorf("%s: parsed %d paths and returned the error %v; want %d paths, and a refusal: %v", test.name, r.parsed, err, test.parsed, test.refused)
		}
	}
}

// urnCorp is the URN of an extension that is not stored.
const urnCorp = "urn:ietf:params:scim:schemas:extension:Corp:2.0:User"

// FuzzSimplePath checks that parseSimplePath returns what the parser returns for the same path,
// unless parseSimplePath leaves the path to the parser.
func FuzzSimplePath(f *testing.F) {
	for _, text := range []string{
		"ims", "name.givenName", "$ref", "a-b_c9.$d", "9a", "a.b.c", "a.", "", "é", "a\n", "a b", `emails[type eq "work"].value`, `members[value  EQ  "x"]`, `a[b eq ""]`,
		`a[b eq "\u0041"]`, "a[b eq \"\x7f\"]", "a[b eq \"\t\"]", `a[b eq "é😀"]`, "a[b eq \"\xff\"]", `a[b.c eq "d"]`, `a[b eq "c"]d`, `a.b[c eq "d"]`, `a[b eq "]"]`,
		urnUser + ":displayName", strings.ToUpper(urnUser) + `:emails[type eq "work"].value`, urnCorp + ":manager.value", urnUser + ":", urnUser + ":a:b",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := parseSimplePath(urnUser, text)
		if !ok {
			return
		}
		want, err := filter.ParsePath([]byte(text))
		if urn := want.AttributePath.URIPrefix; urn != nil && got.AttributePath.URIPrefix != nil && strings.EqualFold(*urn, *got.AttributePath.URIPrefix) {
			got.AttributePath.URIPrefix = urn
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %v; the parser says %v, %v", text, got, want, err)
		}
	})
}
