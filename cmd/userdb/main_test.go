package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/coffeenode/userdb/internal/hashcost"
	"github.com/coffeenode/userdb/internal/redistest"
)

// runs adapts a function to the interface of testing.M.
type runs func() int

func (r runs) Run() int { return r() }

// program is the name of the command that runs userdb in a separate process, for tests that need
// one.
const program = "userdb-process"

func TestMain(m *testing.M) {
	testscript.Main(runs(func() int { return hashcost.Cheap(m) }), map[string]func(){
		program: func() {
			std := standard()
			std.sleep = nil
			os.Exit(hashcost.Cheap(runs(func() int { return run(os.Args[1:], std) })))
		},
	})
}

// Every script in testdata/script runs on the embedded file and on a Redis server.
func TestScriptsOnFile(t *testing.T) { runScripts(t, "script", false) }

func TestScriptsOnRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("TestScriptsOnFile runs the same scripts")
	}
	runScripts(t, "script", true)
}

// Scripts in testdata/file and testdata/redis run only on that kind of store.
func TestFileScripts(t *testing.T)  { runScripts(t, "file", false) }
func TestRedisScripts(t *testing.T) { runScripts(t, "redis", true) }

func runScripts(t *testing.T, dir string, onRedis bool) {
	files, err := filepath.Glob(filepath.Join("testdata", dir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("scripts: %v, %v", files, err)
	}
	for _, file := range files {
		store := ""
		if onRedis {
			store = redistest.Shared(t).URL()
		}
		runScript(t, file, store)
	}
}

// runScript runs a script on a store, or on the default one if store is "".
func runScript(t *testing.T, file, store string) {
	t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
		testscript.Run(t, testscript.Params{
			Files:              []string{file},
			RequireUniqueNames: true,
			Setup:              func(env *testscript.Env) error { return setup(env, store) },
			Cmds: map[string]func(*testscript.TestScript, bool, []string){
				"userdb": succeeds, "exits": exits, "throttles": throttles, "redis": rawRedis, "keep": keep, "same": same,
				"damage": damage,
			},
		})
	})
}

// damage implements the command damage FILE TEXT, which changes a byte of the first TEXT in FILE.
func damage(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	data, err := os.ReadFile(path)
	ts.Check(err)
	at := bytes.Index(data, []byte(args[1]))
	if at < 0 {
		ts.Fatalf("%s does not hold %s", args[0], args[1])
	}
	data[at] ^= 1
	ts.Check(os.WriteFile(path, data, 0o600))
}

// setup gives a script a new home folder, so that its default store is a new embedded file. If
// store is not "", it takes the place of this file, and the script's variable SERVER is its
// address.
func setup(env *testscript.Env, store string) error {
	env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
	env.Setenv("XDG_DATA_HOME", filepath.Join(env.WorkDir, "data"))
	env.Setenv("USERDB_STORE", store)
	_, server, _ := strings.Cut(store, "://")
	env.Setenv("SERVER", strings.TrimSuffix(server, "/0"))
	return nil
}

// succeeds implements the command userdb ARG… [<FILE], which runs a command line and fails the
// script unless it exits 0.
func succeeds(ts *testscript.TestScript, neg bool, args []string) {
	exits(ts, neg, append([]string{"0", "userdb"}, args...))
}

// exits implements the command exits CODE userdb [ARG…] [<FILE], which runs a command line and
// fails the script unless it exits with CODE.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || args[1] != "userdb" {
		ts.Fatalf("usage: exits CODE userdb [ARG…] [<FILE]")
	}
	got := commandLine(ts, args[2:])
	io.WriteString(ts.Stdout(), got.out)
	io.WriteString(ts.Stderr(), got.err)
	if want := args[0]; strconv.Itoa(got.code) != want {
		ts.Fatalf("exit code %d, want %s", got.code, want)
	}
}

func commandLine(ts *testscript.TestScript, args []string) result {
	stdin := ""
	if n := len(args); n > 0 && strings.HasPrefix(args[n-1], "<") {
		stdin, args = ts.ReadFile(args[n-1][1:]), args[:n-1]
	}
	defer enterScript(ts)()
	return runCommand(nil, stdin, args...)
}

// throttles implements the command throttles userdb [ARG…] [<FILE], which repeats a login with a
// wrong password until the required wait is many times as long as a command takes on this machine.
func throttles(ts *testscript.TestScript, _ bool, args []string) {
	longest := time.Duration(0)
	for {
		began := time.Now()
		got := commandLine(ts, args[1:])
		longest = max(longest, time.Since(began))
		_, wait, _ := strings.Cut(strings.TrimSpace(got.err), "too many attempts: wait ")
		parsed, _ := time.ParseDuration(wait) // rounded up
		switch {
		case got.code != 5 && got.code != 8:
			ts.Fatalf("exit code %d: %s", got.code, got.err)
		case parsed-time.Second > 8*longest:
			return
		case got.code == 8:
			time.Sleep(longest)
		}
	}
}

// environment lists the variables that a script can set for the program.
var environment = []string{"HOME", "XDG_DATA_HOME", "USERDB_STORE", "USERDB_SCHEMA", "USERDB_NAMESPACE"}

// enterScript gives this process the environment and the folder of a script until the returned
// function is called. Only one script can use them at a time. A process for each command would take
// ten times as long.
func enterScript(ts *testscript.TestScript) func() {
	was := map[string]string{}
	for _, name := range environment {
		was[name] = os.Getenv(name)
		os.Setenv(name, ts.Getenv(name))
	}
	dir, err := os.Getwd()
	ts.Check(err)
	ts.Check(os.Chdir(ts.MkAbs(".")))
	return func() {
		ts.Check(os.Chdir(dir))
		for name, value := range was {
			os.Setenv(name, value)
		}
	}
}

// rawRedis implements the command redis COMMAND [ARG…], which sends a command to the script's
// server directly. Arguments in quotes are Go strings.
func rawRedis(ts *testscript.TestScript, _ bool, args []string) {
	o, err := redis.ParseURL(ts.Getenv("USERDB_STORE"))
	ts.Check(err)
	c := redis.NewClient(o)
	defer c.Close()
	words := make([]any, len(args))
	for i, arg := range args {
		if text, err := strconv.Unquote(arg); err == nil {
			arg = text
		}
		words[i] = arg
	}
	ts.Check(c.Do(context.Background(), words...).Err())
}

// keep implements the command keep NAME stdout|stderr PREFIX, which sets the variable NAME to the
// text that follows PREFIX in the last output, up to a quote or white space.
func keep(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: keep NAME stdout|stderr PREFIX")
	}
	_, rest, ok := strings.Cut(ts.ReadFile(args[1]), args[2])
	if !ok {
		ts.Fatalf("no %q in %s", args[2], args[1])
	}
	end := strings.IndexAny(rest, "\" \n")
	ts.Setenv(args[0], rest[:end])
}

// revisions matches the random revision in each entry.
var revisions = regexp.MustCompile(`(~rev +|"~rev":")[A-Za-z0-9_.]{12}`)

// same implements the command same stdout|stderr FILE, which compares an output with a file that
// has REV in place of each revision.
func same(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: same stdout|stderr FILE")
	}
	got := revisions.ReplaceAllString(ts.ReadFile(args[0]), "${1}REV")
	if want := ts.ReadFile(args[1]); got != want {
		ts.Fatalf("%s is:\n%s\nwant %s:\n%s", args[0], got, args[1], want)
	}
}

// A result holds the exit code and the output of a command.
type result struct {
	code     int
	out, err string
}

// runCommand runs a command line in this process. term answers its prompts; nil means that standard
// input is not a terminal.
func runCommand(term terminal, stdin string, args ...string) result {
	var out, errs bytes.Buffer
	code := run(args, stdio{in: strings.NewReader(stdin), out: &out, err: &errs, term: term})
	return result{code, out.String(), errs.String()}
}

// useFile makes a new embedded file the store of a test.
func useFile(t *testing.T) {
	t.Helper()
	t.Setenv("USERDB_STORE", fmt.Sprintf("file:%s", filepath.Join(t.TempDir(), "users.jsonl")))
	for _, name := range []string{"USERDB_SCHEMA", "USERDB_NAMESPACE"} {
		t.Setenv(name, "")
	}
}
