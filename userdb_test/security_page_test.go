package userdb_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSecurityPage checks the names of tests in docs/security.md and docs/standards.md. Each row of
// their tables must name the tests that show its claim, or have a dash; a row with "**Met**" must
// name some. A test in a row must exist in the package whose letter stands before it. A test that
// is named elsewhere must exist in some package.
func TestSecurityPage(t *testing.T) {
	dirs := map[string][]string{ // by the letter with which the pages abbreviate them
		"u": {".", "../userdb"}, "s": {"../internal/store", "../internal/store/*"}, "x": {"../schema"}, "p": {"../password"}, "h": {"../internal/hashpool"},
		"c": {"../cmd/userdb"}, "m": {"../maintain/*"}, "v": {"../serve", "../serve/*", "../serve/internal/*"}, "d": {"../deploy"},
		"w": {"../web"}, "o": {"../web/oidc", "../test/clients"}, "f": {"../internal/totp", "../internal/sealed"}, "b": {"../test/browser"},
	}
	name := regexp.MustCompile("(?:([a-z]) )?`([A-Za-z-]+)`")
	all, named := allTests(t), 0
	for _, file := range []string{"security.md", "standards.md"} {
		page, err := os.ReadFile("../docs/" + file)
		must(t, err)
		shows := false // whether the last column of this table names tests
		for line := range strings.Lines(string(page)) {
			cells := strings.Split(strings.TrimSpace(line), "|")
			if len(cells) != 6 {
				shows = false
				continue
			}
			header := strings.TrimSpace(cells[4]) == "shown by"
			if shows = shows || header; header || !shows || strings.Contains(cells[4], "---") {
				continue
			}
			tests := name.FindAllStringSubmatch(cells[4], -1)
			if len(tests) == 0 && (strings.TrimSpace(cells[4]) != "—" || strings.Contains(cells[3], "**Met**")) {
				t.Errorf("%s: this row names no tests: %s", file, line)
			}
			var in []string
			for _, m := range tests {
				if m[1] != "" {
					in = dirs[m[1]]
				}
				named++
				if !slices.ContainsFunc(in, func(dir string) bool { return hasTest(t, dir, m[2]) }) {
					t.Errorf("%s: %s: no test %s in %q", file, strings.TrimSpace(cells[1]), m[2], in)
				}
			}
		}
		for _, name := range regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(string(page), -1) {
			if !all[name[1]] {
				t.Errorf("%s: no test is called %s", file, name[1])
			}
		}
	}
	if named < 200 {
		t.Errorf("the pages name %d tests, want at least 200", named)
	}
}

// allTests returns the names of the tests of all packages.
func allTests(t *testing.T) map[string]bool {
	t.Helper()
	all, test := map[string]bool{}, regexp.MustCompile(`(?m)^func (Test[A-Za-z]+)\(`)
	must(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range test.FindAllStringSubmatch(string(text), -1) {
			all[found[1]] = true
		}
		return err
	}))
	return all
}

// hasTest reports whether a package has a test or a script of that name.
func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "testdata", "script", name+".txtar")); err == nil {
		return true
	}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		if strings.Contains(string(text), "func "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}
