package ci_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns limits lines of comments and of Markdown. A tab counts as four columns.
const maxColumns = 100

// TestComments checks that no comment says what a function is in place of what it does, and that no
// line of a comment or of Markdown is too long.
func TestComments(t *testing.T) {
	for path, text := range sources(t) {
		for _, p := range commentProblems(path, text) {
			t.Errorf("%s:%s", path, p)
		}
	}
}

// commentProblems returns the problems in the comments or the Markdown of a file, as "LINE:
// PROBLEM".
func commentProblems(path, text string) []string {
	lines := strings.Split(text, "\n")
	switch {
	case strings.HasSuffix(path, ".go"):
		return goProblems(text, lines)
	case strings.HasSuffix(path, ".md"):
		return markdownProblems(lines)
	case strings.HasSuffix(path, ".lua"):
		return lineProblems(lines, "--")
	case strings.HasSuffix(path, ".sh"), shebang.MatchString(text):
		return lineProblems(lines, "#")
	}
	return nil
}

var (
	// shebang matches the first line of a shell script.
	shebang = regexp.MustCompile(`^#!.*\b(ba)?sh\b`)

	// directive matches comments for programs, such as //go:embed and //nolint:gosec.
	directive = regexp.MustCompile(`^//[a-z]+:[a-z]`)
)

func goProblems(text string, lines []string) (problems []string) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return []string{err.Error()}
	}
	for _, d := range file.Decls {
		f, is := d.(*ast.FuncDecl)
		if is && !returnsBool(f) && definesNoun(f.Name.Name, f.Doc.Text()) {
			problems = append(problems, fmt.Sprintf("%d: the comment says what %s is; say what it does: returns, reports, writes, …",
				set.Position(f.Doc.Pos()).Line, f.Name.Name))
		}
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if c.Text == "// Output:" { // go test compares the lines that follow
				break
			}
			if directive.MatchString(c.Text) {
				continue
			}
			first := set.Position(c.Pos()).Line
			for i := range strings.Count(c.Text, "\n") + 1 {
				problems = appendLong(problems, first+i, lines[first+i-1])
			}
		}
	}
	return problems
}

// definesNoun reports whether a comment begins with "NAME is" or the like.
func definesNoun(name, comment string) bool {
	words := strings.Fields(comment)
	return len(words) > 1 && words[0] == name && slices.Contains([]string{"is", "are", "was", "were"}, words[1])
}

func returnsBool(f *ast.FuncDecl) bool {
	if f.Type.Results == nil {
		return false
	}
	return slices.ContainsFunc(f.Type.Results.List, func(r *ast.Field) bool {
		id, is := r.Type.(*ast.Ident)
		return is && id.Name == "bool"
	})
}

// lineProblems returns problems for long lines that contain a comment. Comments begin with mark and
// end with the line.
func lineProblems(lines []string, mark string) (problems []string) {
	for i, line := range lines {
		if hasComment(line, mark) {
			problems = appendLong(problems, i+1, line)
		}
	}
	return problems
}

// hasComment reports whether a line contains mark at the start of a word, outside quotes.
func hasComment(line, mark string) bool {
	quote, before := rune(0), ' '
	for at, c := range line {
		switch {
		case quote != 0:
			if c == quote && before != '\\' {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case strings.HasPrefix(line[at:], mark) && (before == ' ' || before == '\t'):
			return true
		}
		before = c
	}
	return false
}

var (
	// loneLink matches a line that is one link, one image, or the definition of a link.
	loneLink = regexp.MustCompile(`^\s*(?:[-*>] |\d+\. )?(?:\[?!?\[[^\]]*\]\([^)]*\)(?:\]\([^)]*\))?[.,;:]?|\[[^\]]*\]: .*)$`)

	listItem = regexp.MustCompile(`^(?:[-*+]|\d+[.)]) `)
)

// markdownProblems finds long lines outside of code blocks and tables.
func markdownProblems(lines []string) (problems []string) {
	fenced, indented, inList, before := false, false, false, ""
	for i, line := range lines {
		text := strings.TrimSpace(line)
		if line == text && text != "" {
			inList = listItem.MatchString(line)
		}
		// An indented line is code if it follows an empty line and is not part of a list.
		indented = strings.HasPrefix(line, "    ") && (indented || before == "" && !inList)
		before = text
		if strings.HasPrefix(text, "```") {
			fenced = !fenced
		}
		if !fenced && !indented && !strings.HasPrefix(text, "|") && !loneLink.MatchString(line) {
			problems = appendLong(problems, i+1, line)
		}
	}
	return problems
}

// appendLong appends a problem if the line is too long and could be wrapped.
func appendLong(problems []string, number int, line string) []string {
	columns := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
	const minWords = 3 // a comment mark and one long word cannot be wrapped
	if columns <= maxColumns || len(strings.Fields(line)) < minWords {
		return problems
	}
	return append(problems, fmt.Sprintf("%d: the line has %d columns, want at most %d", number, columns, maxColumns))
}

// TestCommentProblems checks that each rule finds its violations, and nothing else.
func TestCommentProblems(t *testing.T) {
	const pkg = "package a\n\n"
	long := strings.Repeat("word ", 20) // of 100 columns, the last of them a space
	for _, tt := range []struct {
		name, path, text string
		want             int // problems
	}{
		{"noun above a function", "a.go", pkg + "// f is a noun.\nfunc f() int { return 0 }\n", 1},
		{"noun above a function without results", "a.go", pkg + "// f are nouns.\nfunc f() {}\n", 1},
		{"noun above a method", "a.go", pkg + "// F was one.\n// More.\nfunc (t T) F() error { return nil }\n", 1},
		{"noun on the next line", "a.go", pkg + "// f\n// is a noun.\nfunc f() int { return 0 }\n", 1},
		{"noun above a function that returns a bool", "a.go", pkg + "// f is true.\nfunc f() bool { return true }\n", 0},
		{"noun above a function with a bool among its results", "a.go", pkg + "// f is true.\nfunc f() (n int, is bool) { return 0, true }\n", 0},
		{"verb above a function", "a.go", pkg + "// f returns what is.\nfunc f() int { return 0 }\n", 0},
		{"noun in a string", "a.go", pkg + "var s = `\n// f is a noun.\nfunc f() int\n`\n", 0},
		{"noun for a type", "a.go", pkg + "// T is a noun.\ntype T int\n", 0},
		{"noun apart from the function", "a.go", pkg + "// f is a noun.\n\nfunc f() int { return 0 }\n", 0},

		{"long Go comment", "a.go", pkg + "// " + long + "\n", 1},
		{"long Go comment with tabs", "a.go", pkg + "func f() {\n\t\t// " + long[:94] + "\n}\n", 1},
		{"Go comment of 100 columns", "a.go", pkg + "\t// " + long[:93] + "\n", 0},
		{"Go comment of 100 letters", "a.go", pkg + "// " + strings.ReplaceAll(long[:97], "o", "ö") + "\n", 0},
		{"long Go comment at the end of a line", "a.go", pkg + "var a = 1 // " + long + "\n", 1},
		{"long Go comment in a block", "a.go", pkg + "/*\n" + long + "x\n*/\n", 1},
		{"long Go comment in a string", "a.go", pkg + "var s = `\n// " + long + "`\n", 0},
		{"long code", "a.go", pkg + "var s = \"" + long + "\"\n", 0},
		{"long word", "a.go", pkg + "// https://example.com/" + strings.Repeat("x", 100) + "\n", 0},
		{"long directive", "a.go", pkg + "//go:generate " + long + "\nvar a int\n", 0},
		{"directive on a long line", "a.go", pkg + "var a = `" + long + "` //nolint:gosec\n", 0},
		{"long output", "a.go", pkg + "// Output:\n// " + long + "\n", 0},
		{"invalid Go", "a.go", "package", 1},

		{"long Lua comment", "a.lua", "-- " + long + "\n", 1},
		{"long Lua comment at the end of a line", "a.lua", "local a = 1 -- " + long + "\n", 1},
		{"long Lua comment in a string", "a.lua", "local a = ' -- " + long + "'\n", 0},
		{"long shell comment", "a.sh", "\t# " + long + "\n", 1},
		{"long shell comment without an extension", ".ci/a", "#!/usr/bin/env bash\necho # " + long + "\n", 1},
		{"long shell comment in a string", "a.sh", "echo \"# " + long + "\"\n", 0},
		{"long shell line with $# but no comment", "a.sh", "echo $# " + long + "\n", 0},
		{"long comment in a Makefile", "Makefile", "# " + long + "\n", 0},

		{"long Markdown", "a.md", long + "x\n", 1},
		{"long list item", "a.md", "- short\n  " + long + "\n", 1},
		{"long nested item", "a.md", "- short\n    - " + long + "\n", 1},
		{"long paragraph of an item", "a.md", "- short\n\n    " + long + "\n", 1},
		{"long Markdown after a code block", "a.md", "```\n" + long + "x\n```\n" + long + "x\n", 1},
		{"long indented code", "a.md", "short\n\n    " + long + "\n    " + long + "\n", 0},
		{"long row of a table", "a.md", "| " + long + " |\n", 0},
		{"link alone", "a.md", "[" + long + "](https://example.com)\n- ![" + long + "](a.svg)\n", 0},
		{"link with text", "a.md", "See [" + long + "](https://example.com).\n", 1},
		{"definition of a link", "a.md", "[a]: https://example.com \"" + long + "\"\n", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := commentProblems(tt.path, tt.text); len(got) != tt.want {
				t.Errorf("got %q, want %d problems", got, tt.want)
			}
		})
	}
}
