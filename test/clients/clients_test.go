// Package clients_test uses the service as programs in other languages do. It checks the service's
// OpenAPI document with a linter. It uses an account from its creation to its deletion with a
// TypeScript client that is generated from the document. It uses the example site in Node as the
// site's visitors do. It also signs in to a site in Go with an OpenID provider in Node, and has
// answers of passkeys judged by another implementation. 'make clients' installs what the tests
// need. Without that they are skipped, unless USERDB_REQUIRE_NODE is set.
package clients_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest"
)

const example = "../../examples/node"

// requireNode skips a test if Node is missing, or if npm has not installed the packages of a
// folder.
func requireNode(t *testing.T, folder string) {
	t.Helper()
	_, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(filepath.Join(folder, "node_modules"))
	}
	switch {
	case err == nil:
	case os.Getenv("USERDB_REQUIRE_NODE") != "":
		t.Fatalf("%v: run 'make clients' first", err)
	default:
		t.Skipf("%v: run 'make clients' first", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var program string // the command, built once

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "userdb-clients-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program = filepath.Join(dir, "userdb")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	code := m.Run()
	_ = os.RemoveAll(dir) // the folder is temporary
	os.Exit(code)
}

// build builds the command, unless an earlier test has done so.
func build(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(program); err == nil {
		return
	}
	if out, err := exec.Command("go", "build", "-o", program, "../../cmd/userdb").CombinedOutput(); err != nil {
		t.Fatalf("building the command: %v\n%s", err, out)
	}
}

// A process is a running program that has printed its first line.
type process struct {
	*exec.Cmd
	first string
	lines chan string // the lines after first
}

// startProcess starts a process and kills it at the end of the test. pipe returns its standard
// error or its standard output.
func startProcess(t *testing.T, cmd *exec.Cmd, pipe func() (io.ReadCloser, error)) *process {
	t.Helper()
	out, err := pipe()
	must(t, err)
	must(t, cmd.Start())
	p := &process{Cmd: cmd, lines: make(chan string, 10_000)}
	t.Cleanup(p.kill)
	in := bufio.NewScanner(out)
	if !in.Scan() {
		t.Fatalf("%v printed nothing: %v", cmd.Args, in.Err())
	}
	p.first = in.Text()
	go func() {
		defer close(p.lines)
		for in.Scan() {
			select {
			case p.lines <- in.Text():
			default: // nobody reads them
			}
		}
	}()
	return p
}

func (p *process) kill() {
	_ = p.Process.Kill() // it may have ended
	_ = p.Wait()
}

// A service is a running 'userdb serve'.
type service struct {
	*process
	t     *testing.T
	store string
	url   string
}

// newCommand returns a command line that uses a store with the schema of schema.json.
func newCommand(t *testing.T, store string, args ...string) *exec.Cmd {
	t.Helper()
	schema, err := filepath.Abs("schema.json")
	must(t, err)
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "USERDB_STORE="+store, "USERDB_SCHEMA="+schema)
	return cmd
}

// startService starts a service that listens at an address, and ends it with the test.
func startService(t *testing.T, store, listen string, flags ...string) *service {
	t.Helper()
	build(t)
	cmd := newCommand(t, store, append([]string{"serve", "--console=false", "--listen=" + listen}, flags...)...)
	p := startProcess(t, cmd, cmd.StderrPipe)
	for line, open := p.first, true; open; line, open = <-p.lines {
		if url, ok := strings.CutPrefix(line, "listening on "); ok {
			return &service{p, t, store, url}
		}
	}
	t.Fatal("the service ended without printing its address")
	return nil
}

// createKey creates an API key and returns its secret.
func (s *service) createKey(name string, scopes ...string) string {
	s.t.Helper()
	cmd := newCommand(s.t, s.store, append([]string{"apikey", "create", name, "--scope"}, scopes...)...)
	out, err := cmd.Output()
	must(s.t, err)
	return strings.TrimSpace(string(out))
}

// runNode runs a program in Node and waits until it ends.
func runNode(t *testing.T, dir string, env []string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("node %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// saveDocument writes /openapi.json to a file.
func (s *service) saveDocument(path string) {
	s.t.Helper()
	res, err := http.Get(s.url + "/openapi.json")
	must(s.t, err)
	defer res.Body.Close()
	f, err := os.Create(path)
	must(s.t, err)
	_, err = io.Copy(f, res.Body)
	must(s.t, err)
	must(s.t, f.Close())
}

// newWorkspace returns a folder with the TypeScript program life.ts, the packages that npm has
// installed, and the OpenAPI document of a service.
func newWorkspace(t *testing.T) string {
	t.Helper()
	requireNode(t, ".")
	dir := t.TempDir()
	for _, name := range []string{"life.ts", "tsconfig.json", "package.json"} {
		text, err := os.ReadFile(name)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	installed, err := filepath.Abs("node_modules")
	must(t, err)
	must(t, os.Symlink(installed, filepath.Join(dir, "node_modules")))
	startService(t, "memory:", "127.0.0.1:0").saveDocument(filepath.Join(dir, "openapi.json"))
	return dir
}

// TestDocument checks that /openapi.json is a valid OpenAPI 3.1 document, by the official schema
// and by a linter.
func TestDocument(t *testing.T) {
	dir := newWorkspace(t)
	runNode(t, ".", nil, "lint.js", filepath.Join(dir, "openapi.json"))
}

// TestGenerated checks that a client that is generated from the document compiles in strict mode
// and works on a file and on Redis.
func TestGenerated(t *testing.T) {
	dir := newWorkspace(t)
	runNode(t, dir, nil, "node_modules/openapi-typescript/bin/cli.js", "openapi.json", "-o", "api.d.ts")
	runNode(t, dir, nil, "node_modules/typescript/bin/tsc", "-p", ".")
	for _, name := range []string{"file", "redis"} {
		t.Run(name, func(t *testing.T) {
			store := "file:" + filepath.Join(t.TempDir(), "users.jsonl")
			if name == "redis" {
				store = redistest.Start(t).URL()
			}
			s := startService(t, store, "127.0.0.1:0")
			runNode(t, dir, []string{"USERDB_URL=" + s.url, "USERDB_KEY=" + s.createKey("all", "admin"), "USERDB_READ_KEY=" + s.createKey("reader", "read")}, "life.js")
		})
	}
}

// TestProvisioned checks that another implementation of SCIM understands every response and agrees
// with it, and that users and groups can be created, changed and deleted as a third implementation
// expects, on a file and on Redis.
func TestProvisioned(t *testing.T) {
	requireNode(t, ".")
	for _, name := range []string{"file", "redis"} {
		t.Run(name, func(t *testing.T) {
			store := "file:" + filepath.Join(t.TempDir(), "users.jsonl")
			if name == "redis" {
				store = redistest.Start(t).URL()
			}
			s := startService(t, store, "127.0.0.1:0", "--scim", "--scim-mapping=mapping.json")
			environment := []string{"USERDB_URL=" + s.url, "USERDB_KEY=" + s.createKey("directory", "scim")}
			runNode(t, ".", environment, "scim.js")
			runNode(t, ".", environment, "lifecycle.js")
		})
	}
}

// waitFor waits until condition returns true.
func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for range 3000 {
		if condition() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("timed out waiting until %s", what)
}
