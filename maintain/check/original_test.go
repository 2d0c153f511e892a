package check_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
)

// TestCheckOriginal checks what the original wrote, by the schema that it was written by. Each line of
// the golden file is damage that the original did: it takes values from other users, writes empty
// ones, and leaves white space and braces in keys.
func TestCheckOriginal(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, testdb.OriginalSchema(t))
		s.Load(t, "../../testdata/original/original_fixture.jsonl")
		var lines []string
		for p, err := range check.Run(s.Ctx, s.DB, check.Options{}) {
			if err != nil {
				t.Fatal(err)
			}
			line := fmt.Sprintf("I%d %v", p.Invariant, p)
			if p.Code == "field_missing" && strings.Contains(p.Text, "nonexistent") {
				line = "I0 problem field_missing user/uid:…: no \"nonexistent\"" // of every entry
			}
			lines = append(lines, line)
		}
		slices.Sort(lines)
		got := strings.Join(slices.Compact(lines), "\n") + "\n"
		testdb.Golden(t, "testdata/original.golden", got)
	})
}
