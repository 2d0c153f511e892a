// Package docs_test runs the code in README and in the pages of docs.
package docs_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/scim"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// pages returns the paths of README and of all pages of docs.
func pages(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.md")
	if err != nil || len(files) < 10 {
		t.Fatalf("found only %d pages in docs: %q, %v", len(files), files, err)
	}
	return append(files, "../README.md")
}

// blocks returns a page's code blocks in a language.
func blocks(t *testing.T, page, language string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, block := range strings.Split("\n"+string(text), "\n```"+language+"\n")[1:] {
		code, _, closed := strings.Cut(block, "\n```")
		if !closed {
			t.Fatalf("%s: a block of %s is not closed", page, language)
		}
		found = append(found, code+"\n")
	}
	return found
}

// TestLanguages checks that each code block is in a language that a test below runs, apart from the
// rules in redis-acl.md, which have a test of their own.
func TestLanguages(t *testing.T) {
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		open := false
		for line := range strings.Lines(string(text)) {
			language, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
			if !fence {
				continue
			}
			if open = !open; open && !strings.Contains(" go sh json html ", " "+language+" ") && page != "redis-acl.md" {
				t.Errorf("%s: nothing runs a block of %q", page, language)
			}
		}
	}
}

// TestGo runs the programs on the pages, which must print "true <nil>", and the tests, and compiles
// the program in scs.md and all other Go code.
func TestGo(t *testing.T) {
	imports := "package page\n\nimport (\n\t\"context\"\n\t\"database/sql\"\n\t\"encoding/json\"\n\t\"errors\"\n\t\"fmt\"\n\t\"io\"\n\t\"net/http\"\n\t\"time\"\n\n\t\"github.com/coffeenode/userdb/hints\"\n" +
		"\t\"github.com/coffeenode/userdb/passkey\"\n\t\"github.com/coffeenode/userdb/passkey/pages\"\n\t\"github.com/coffeenode/userdb/schema\"\n\t\"github.com/coffeenode/userdb/userdb\"\n\t\"github.com/coffeenode/userdb/web\"\n\t\"github.com/coffeenode/userdb/web/oidc\"\n)\n\n" +
		"var _ = []any{context.Background, errors.Is, fmt.Sprint, io.EOF, http.Get, sql.ErrNoRows, json.Valid, time.Second, hints.Any, schema.Text, userdb.Open, web.Texts, oidc.SignIn{}, passkey.New, pages.Register}\n\n"
	compiled := map[string]string{} // code, by the path of a file that does not exist
	programs := 0
	for _, page := range pages(t) {
		for i, code := range blocks(t, page, "go") {
			file := filepath.Join(t.TempDir(), "main.go")
			switch {
			case strings.HasPrefix(code, "package shop_test"):
				runTest(t, page, code)
			case page == "scs.md": // this program needs a module that userdb does not require
				writeFile(t, file, code)
				goCommand(t, page, "testdata/scs", "", "build", "-o", os.DevNull, file)
			case strings.HasPrefix(code, "package main"):
				programs++
				writeFile(t, file, code)
				goCommand(t, page, ".", "true <nil>\n", "run", file)
			default:
				compiled[fmt.Sprintf("testdata/%s%d/page.go", strings.TrimSuffix(page, ".md"), i)] = imports + code
			}
		}
	}
	if programs == 0 || len(compiled) < 3 {
		t.Errorf("found only %d programs and %d other blocks of Go, want at least 1 and 3", programs, len(compiled))
	}
	// As packages of this module, all blocks are compiled by one command, and none is linked.
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	args := []string{"build", "-overlay", filepath.Join(t.TempDir(), "overlay.json")}
	for path, code := range compiled {
		file := filepath.Join(t.TempDir(), "page.go")
		writeFile(t, file, code)
		overlay.Replace[path] = file
		args = append(args, "./"+filepath.Dir(path))
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, args[2], string(text))
	goCommand(t, "all other Go code", ".", "", args...)
}

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// goCommand runs the go command in dir on the code that what names, and checks what it prints.
func goCommand(t *testing.T, what, dir, want string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	var stderr strings.Builder // including what the go command says about downloads
	cmd.Stderr = &stderr
	if out, err := cmd.Output(); err != nil || string(out) != want {
		t.Errorf("%s: %v\ngot %q, want %q\n%s", what, err, out, want, stderr.String())
	}
}

// runTest runs a block that is a test file, beside the fixtures of userdbtest's own tests.
func runTest(t *testing.T, page, code string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "testdata"), os.DirFS("../userdbtest/testdata")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "shop_test.go")
	if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "test", "-v", file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%s: %v\n%s", page, err, out)
	}
}

// TestJSON checks that each block of JSON is a schema, or a mapping for directories.
func TestJSON(t *testing.T) {
	seen := 0
	for _, page := range pages(t) {
		for _, code := range blocks(t, page, "json") {
			seen++
			_, err := schema.Load(strings.NewReader(code))
			if page == "scim.md" && err != nil {
				_, err = scim.ReadMapping(strings.NewReader(code))
			}
			if err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
	if seen == 0 {
		t.Error("no page has a block of JSON")
	}
}

// TestTelephoneNumbers checks that under the schema for telephone numbers no name reads like one,
// in whichever country's spelling.
func TestTelephoneNumbers(t *testing.T) {
	for _, block := range blocks(t, "schema.md", "json") {
		if !strings.Contains(block, `"tel"`) {
			continue
		}
		s, err := schema.Load(strings.NewReader(block))
		if err != nil {
			t.Fatal(err)
		}
		db, err := userdb.Open(t.Context(), "memory:", userdb.Options{Schema: s})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		users, err := db.Type("user")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"+491701234567", "0170-1234567", "0170/12 34 567", "(555) 123-4567", "07 00 90 01 23", "٠١٠-١٢٣٤"} {
			_, err := users.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("name", name)})
			if !errors.Is(err, userdb.ErrInvalid) {
				t.Errorf("the name %q: %v, want ErrInvalid", name, err)
			}
		}
		for _, name := range []string{"Zoë", "李小龍", "agent 007"} {
			if _, err := users.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("name", name)}); err != nil {
				t.Errorf("the name %q: %v", name, err)
			}
		}
		return
	}
	t.Fatal("schema.md has no schema for telephone numbers")
}

// TestHTML checks that each block of HTML is a template that can replace one of package web.
func TestHTML(t *testing.T) {
	for _, page := range pages(t) {
		for _, code := range blocks(t, page, "html") {
			if _, err := web.Templates().Parse(code); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}

var (
	exits = regexp.MustCompile(` # exits (\d)\b`)
	url   = regexp.MustCompile(`redis://localhost:6379(/0)?`)
)

// shellScript returns a shell script of a page's commands. Each must exit with 0, or with the
// status that a comment "exits N" names.
func shellScript(page string, blocks []string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.Join(blocks, "")) {
		line = strings.TrimSpace(line)
		want := "0"
		if m := exits.FindStringSubmatch(line); m != nil {
			want = m[1]
		}
		fmt.Fprintf(&b, "%s\ncode=$?; if [ $code != %s ]; then echo \"exit $code, want %s\"; cat <<'LINE'\n%s\nLINE\nexit 1; fi\n",
			line, want, want, line)
	}
	return b.String()
}

// TestCommands runs the commands of each page in a real shell, in the order of the page.
func TestCommands(t *testing.T) {
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, "userdb"), "../cmd/userdb")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, page := range pages(t) {
		code := blocks(t, page, "sh")
		if len(code) == 0 {
			continue
		}
		t.Run(page, func(t *testing.T) {
			dir := t.TempDir()
			prepare(t, page, bin, dir)
			text := shellScript(page, code)
			if url.MatchString(text) {
				server := redistest.Start(t)
				if page == "moving.md" {
					loadOriginal(t, server, dir)
				}
				text = url.ReplaceAllString(text, server.URL())
			}
			runScript(t, bin, dir, text)
			checkPrivate(t, dir)
		})
	}
}

// checkPrivate checks that nobody else may read the files with secrets that a page has created.
func checkPrivate(t *testing.T, dir string) {
	t.Helper()
	secret := regexp.MustCompile(`key|password|token|serve\.log|backup`)
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		info, err := file.Info()
		if err == nil && info.Mode().IsRegular() && secret.MatchString(file.Name()) && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("others may read %s: %v", file.Name(), info.Mode())
		}
	}
}

// runScript runs a script with a store of its own, which is a file unless the script uses another.
func runScript(t *testing.T, bin, dir, text string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "trap 'kill $(jobs -p) 2> /dev/null' EXIT\n"+text)
	cmd.WaitDelay = 10 * time.Second // for processes that still run after a script failed
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + bin + ":" + dir + ":" + os.Getenv("PATH"), "HOME=" + dir, "XDG_DATA_HOME=" + dir,
		"USERDB_STORE=file:" + filepath.Join(dir, "store.jsonl"),
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		const maxOutput = 2000
		t.Errorf("%v\n%s", err, out[max(0, len(out)-maxOutput):])
	}
}

// prepare creates the files and accounts that a page assumes.
func prepare(t *testing.T, page, bin, dir string) {
	t.Helper()
	user, err := json.Marshal(schema.User())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"schema.json":  string(user),
		"ordered.json": strings.Replace(string(user), `"job":{}`, `"job":{"role":"ordered"}`, 1),
		"staff.csv":    "email,name\nzoe@example.com,Zoe\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if page == "import.md" {
		writeExports(t, dir)
	}
	switch page {
	case "../README.md", "moving.md", "stores.md":
	default:
		runScript(t, bin, dir, "echo 'correct horse battery' | userdb create user uid=17c0 email=alice@example.com name=Alice --password-stdin")
	}
}

// writeExports writes exports of other products, and programs that print tables.
func writeExports(t *testing.T, dir string) {
	t.Helper()
	const samples = "../maintain/transfer/testdata/"
	for name, sample := range map[string]string{
		"auth0.ndjson": "auth0.ndjson", "django.json": "django.json", "firebase.json": "firebase.json",
		"hash_config.txt": "firebase-params.txt", "realm.json": "keycloak.json", "auth_users.csv": "field/supabase_full.csv",
	} {
		text, err := os.ReadFile(samples + sample)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"secret.txt":     "correct horse battery staple\n",
		"pepper.txt":     strings.Repeat("c0ffee", 8) + "\n",
		"rocketchat.csv": "email,password\nroy@example.com,$2b$05$abcdefghijklmnopqrstuuwu32frxN9AJ48RxCyNhxMTNn0faunLS\n",
		"joomla_users.csv": "id,name,username,email,password,block,registerDate\nj1,Joe Roe,joe,joe@example.com," +
			"$P$BDeMvSwaKjwUYFYNZGGz5pwkNSQYGW0,1,2024-01-05 10:00:00\n",
		"mediawiki_user.csv": "user_id,user_name,user_email,user_email_authenticated,user_password,user_registration\n" +
			"m1,Mia,mia@example.com,20240105100000,,20240105100000\n",
		"devise.csv": "email,password\ndeb@example.com,$2a$05$abcdefghijklmnopqrstuuZIBlfjY3F1BvayXOlLWWD18HOAzkkLm\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const bcrypt = `$2a$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy`
	for name, text := range map[string]string{
		"psql": `case "$3" in *user_passwords*) echo 'uid,name,email,added,disabled,password
d1,dee,dee@example.com,2024-01-05 10:00:00.123,f,` + bcrypt + `';; *auth.users*) echo 'uid,email,password,added,disabled,verified:email
s1,sue@example.com,` + bcrypt + `,2024-01-05T10:00:00.123Z,f,t';; *) echo 'id,login,email,hash
p1,pat,pat@example.com,` + bcrypt + `';; esac`,
		"wp": `echo 'ID,user_login,user_email,user_pass
1,will,will@example.com,$wp` + strings.Replace(bcrypt, "2a", "2y", 1) + `'`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// loadOriginal writes the original program's records to a server, and its schema to a file.
func loadOriginal(t *testing.T, server *redistest.Server, dir string) {
	t.Helper()
	const data = "../test/testdata/original/"
	text, err := os.ReadFile(data + "original_options.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "options.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(data + "original_fixture.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	client := server.Client()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var record struct {
			Key   string
			Value any
		}
		if err := json.Unmarshal(lines.Bytes(), &record); err != nil {
			t.Fatal(err)
		}
		put := client.Set(context.Background(), record.Key, record.Value, 0).Err
		if fields, ok := record.Value.(map[string]any); ok {
			put = client.HSet(context.Background(), record.Key, fields).Err
		}
		if err := put(); err != nil {
			t.Fatal(err)
		}
	}
	if lines.Err() != nil {
		t.Fatal(lines.Err())
	}
}

// TestPinnedPrograms checks that each program that a page runs with npx has a fixed version.
func TestPinnedPrograms(t *testing.T) {
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range regexp.MustCompile(`npx [^-\s]\S*`).FindAllString(string(text), -1) {
			if !regexp.MustCompile(`@\d+\.\d+\.\d+$`).MatchString(run) {
				t.Errorf("%s: %s names no exact version", page, run)
			}
		}
	}
}

// TestStart checks that README begins with two commands for a fresh clone: one that runs a program,
// and one that runs all tests.
func TestStart(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, start, _ := strings.Cut(string(text), "\n## Start\n")
	start, _, _ = strings.Cut(start, "\n## ")
	found := regexp.MustCompile(`(?m)^    (go run (\./\S+)|make test)\b`).FindAllStringSubmatch(start, -1)
	if strings.Count(start, "\n    ") != 2 || len(found) != 2 || found[0][2] == "" || found[1][2] != "" {
		t.Fatalf("README does not begin with two commands:\n%s", start)
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Name}}", found[0][2])
	cmd.Dir = ".."
	if out, err := cmd.Output(); err != nil || string(out) != "main\n" {
		t.Errorf("%s is not a program: %q, %v", found[0][2], out, err)
	}
}

// TestEnteredPasswords checks that pages that create an account with a password from a form set
// RequirePassword. Otherwise an empty input would create an account without a password.
func TestEnteredPasswords(t *testing.T) {
	entry, found := regexp.MustCompile(`userdb\.NewEntry\{[^\n]*Password: *[a-z][^\n]*`), 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, created := range entry.FindAllString(string(text), -1) {
			if found++; !strings.Contains(created, "RequirePassword: true") {
				t.Errorf("%s creates an account without RequirePassword: %s", page, created)
			}
		}
	}
	if found == 0 {
		t.Error("no page creates an account with a password from a form")
	}
}

// TestLinksAndPictures checks that every link leads to a page or a file, that a program drew the
// pictures, and that README is short.
func TestLinksAndPictures(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	block := regexp.MustCompile("(?s)\n```.*?\n```") // in Go, Of[T](users) is not a link
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(block.ReplaceAllString(string(text), ""), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
	for _, name := range []string{"identifiers", "architecture"} {
		file := "img/" + name + ".svg"
		picture, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		drawn, err := exec.CommandContext(t.Context(), "go", "run", "./img", name).Output()
		if err != nil || string(drawn) != string(picture) {
			t.Errorf("%s differs from what ./img draws: %v", file, err)
		}
	}
	if text, err := os.ReadFile("../README.md"); err != nil || strings.Count(string(text), "\n") > 170 {
		t.Errorf("README has over 170 lines: %v", err)
	}
}
