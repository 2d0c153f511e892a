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

// TestSecurityPage checks the names of tests in docs/security.md. Every row of its tables must name
// the tests that show the row's claim, or have a dash. A test in a row must exist in the package
// whose letter stands before it, and any other test in any package.
func TestSecurityPage(t *testing.T) {
	page, err := os.ReadFile("../docs/security.md")
	must(t, err)
	dirs := map[string][]string{ // by the letter with which the page abbreviates them
		"u": {".", "../userdb"}, "s": {"../internal/store", "../internal/store/*"}, "x": {"../schema"}, "p": {"../password"}, "h": {"../internal/hashpool"},
		"c": {"../cmd/userdb"}, "m": {"../maintain/*"}, "v": {"../serve", "../serve/*", "../serve/internal/*"}, "d": {"../deploy"},
		"o": {"../web/oidc", "../test/clients"},
	}
	name := regexp.MustCompile("(?:([a-z]) )?`([A-Za-z-]+)`")
	named := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 || strings.Contains(cells[4], "---") || strings.TrimSpace(cells[4]) == "shown by" {
			continue
		}
		tests := name.FindAllStringSubmatch(cells[4], -1)
		if len(tests) == 0 && strings.TrimSpace(cells[4]) != "—" {
			t.Errorf("this row names no tests: %s", line)
		}
		var in []string
		for _, m := range tests {
			if m[1] != "" {
				in = dirs[m[1]]
			}
			named++
			if !slices.ContainsFunc(in, func(dir string) bool { return hasTest(t, dir, m[2]) }) {
				t.Errorf("%s: no test %s in %q", strings.TrimSpace(cells[1]), m[2], in)
			}
		}
	}
	if named < 100 {
		t.Errorf("the page names %d tests, want at least 100", named)
	}
	all := allTests(t)
	for _, name := range regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(string(page), -1) {
		if !all[name[1]] {
			t.Errorf("no test is called %s", name[1])
		}
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
