package ci_test

import (
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the imports in the table of packages")

const module = "github.com/coffeenode/userdb/"

// sources returns the texts of all Go, Markdown, Lua and shell files, of the Makefile and of the
// files in .ci, by path. It leaves out test data and packages of Node.
func sources(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "testdata", "node_modules"}, d.Name()):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		if slices.Contains([]string{".go", ".md", ".lua", ".sh"}, filepath.Ext(path)) || path == "Makefile" || strings.HasPrefix(path, ".ci/") {
			text, err := fs.ReadFile(root, path)
			files[path] = string(text)
			return err
		}
		return nil
	})
	if err != nil || len(files) < 100 {
		t.Fatalf("found %d files, %v; want at least 100", len(files), err)
	}
	return files
}

// The keys of phrases are patterns for words at which a reader stops. The values are better words.
var phrases = map[string]string{
	`passengers?`: "call",
	`crowded`:     "busy",
	`joint`:       "batch",
	`boards?`:     "joins a batch",

	`says whether`:           "reports whether",
	`whoever`:                "the one that",
	`as it (is|was) then`:    "at that time",
	`none of kind`:           "not of kind",
	`(this|that|it) is none`: "it is not one",
}

// TestPhrases checks that no file contains one of phrases. The change log may quote them.
func TestPhrases(t *testing.T) {
	for phrase, better := range phrases {
		found := regexp.MustCompile(`(?i)\b(` + phrase + `)\b`)
		for path, text := range sources(t) {
			if path == "internal/ci/house_test.go" || path == "CHANGELOG.md" {
				continue
			}
			for i, line := range strings.Split(text, "\n") {
				if found.MatchString(line) {
					t.Errorf("%s:%d: %q; write: %s", path, i+1, found.FindString(line), better)
				}
			}
		}
	}
}

// imports returns, by folder, the packages of this module that each package imports. Imports of
// tests do not count.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "../../...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	imported := map[string][]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		folder := strings.TrimPrefix(p.ImportPath, module)
		imported[folder] = nil
		for _, i := range p.Imports {
			if strings.HasPrefix(i, module) {
				imported[folder] = append(imported[folder], strings.TrimPrefix(i, module))
			}
		}
		slices.Sort(imported[folder])
	}
	return imported
}

// row matches a row of the table of packages in CONTRIBUTING.md: a folder, its purpose and its
// imports.
var row = regexp.MustCompile("(?m)^(\\| `([a-z_/]+)/` \\|[^|]*\\| )([^|]*)( \\|)$")

// TestPackageTable compares the table of packages in CONTRIBUTING.md with the imports of the
// packages. With -update it rewrites the table.
func TestPackageTable(t *testing.T) {
	const page = "../../CONTRIBUTING.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	imported, named := imports(t), map[string]bool{}
	updated := row.ReplaceAllStringFunc(string(text), func(line string) string {
		m := row.FindStringSubmatch(line)
		folder, listed := m[2], m[3]
		named[folder] = true
		found, is := imported[folder]
		if !is {
			t.Errorf("%s/ is not a package", folder)
		}
		want := "no package of this module"
		if len(found) > 0 {
			want = "`" + strings.Join(found, "` `") + "`"
		}
		if listed == "all" {
			want = listed
		}
		if listed != want && !*update {
			t.Errorf("%s/: the table lists the imports\n%s\nbut its files import\n%s\nIf the files are right, run: go test ./internal/ci -update", folder, listed, want)
		}
		return m[1] + want + m[4]
	})
	for folder := range imported {
		if !named[folder] {
			t.Errorf("the table has no row for %s/", folder)
		}
	}
	if *update {
		if err := os.WriteFile(page, []byte(updated), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
