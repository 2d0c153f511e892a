//go:build unix

package migrate_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// programEnv is the environment variable that holds the JSON of a program. A process that has it
// runs that program.
const programEnv = "USERDB_ROLLING_PROGRAM"

// A program describes a process of a rolling deploy.
type program struct {
	URL     string
	Name    string // part of the UIDs of its entries
	Version int    // version of its schema: 1 or 2
	Applies bool   // the program converts entries to schema 2 and ends
	Hangs   bool   // it stops in the middle of that, until it is killed
}

const (
	writersPerVersion = 6                      // writers for each schema
	controlEntries    = 700                    // entries that nobody changes
	minRounds         = 5                      // rounds of each writer
	pause             = 100 * time.Millisecond // between the rounds of a writer
	timeout           = 2 * time.Minute
)

// schemaVersion returns version 1 or 2 of the schema. Version 2 adds a field that is indexed and
// ordered, and orders names. Hashes are cheap, so that the programs spend their time in the store.
func schemaVersion(version int) schema.Schema {
	t := schema.User().Types["user"]
	policy := schema.DefaultPassword()
	policy.Cost = 4
	t.Password = &policy
	if version == 1 {
		t.Fields["name"] = schema.Field{Role: schema.RoleSecondary, Kind: "nickname"}
	} else {
		t.Fields["city"] = schema.Field{Role: schema.RoleIndexed | schema.RoleOrdered}
	}
	return schema.Schema{Types: map[string]schema.Type{"user": t}}
}

// TestProgram runs a program in a process that TestRollingDeploy starts. Otherwise it does nothing.
func TestProgram(t *testing.T) {
	text := os.Getenv(programEnv)
	if text == "" {
		t.Skip("this test runs only in processes that TestRollingDeploy starts")
	}
	var p program
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	// stopping is set at the end of the input: the parent wants the process to stop, or has ended.
	var stopping atomic.Bool
	go func() { io.Copy(io.Discard, os.Stdin); stopping.Store(true) }()
	report := func(format string, args ...any) { fmt.Printf("program: "+format+"\n", args...) }
	db, err := p.open(t.Context(), &stopping)
	if err == nil && p.Applies {
		var plan migrate.Change
		if plan, err = migrate.Plan(t.Context(), db, schemaVersion(2)); err == nil {
			report("applies")
			err = plan.Apply(t.Context(), func(int64, int64) {
				if p.Hangs {
					select {}
				}
			})
		}
	}
	for round := 0; err == nil && !p.Applies && !stopping.Load(); round++ {
		if err = p.round(t.Context(), testdb.Must(db.Type("user")), round); err == nil {
			report("round %d", round)
			time.Sleep(pause)
		}
	}
	if err != nil && !stopping.Load() {
		report("error: %v", err)
	}
}

// open opens the store. With schema 2 it retries until the conversion of the entries has begun. The
// timeouts are long, so that a process that was suspended in the middle of a call does not fail
// once resumed.
func (p program) open(ctx context.Context, stopping *atomic.Bool) (*userdb.DB, error) {
	separator := "?"
	if strings.Contains(p.URL, "?") {
		separator = "&"
	}
	url := fmt.Sprintf("%s%sdial_timeout=%v&read_timeout=%[3]v&write_timeout=%[3]v", p.URL, separator, 2*timeout)
	for {
		db, err := userdb.Open(ctx, url, userdb.Options{Schema: schemaVersion(p.Version)})
		if p.Version == 1 || stopping.Load() || !errors.Is(err, userdb.ErrSchemaMismatch) || !strings.Contains(err.Error(), "userdb schema apply") {
			return db, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// round calls each operation once, on an entry that nobody else uses.
func (p program) round(ctx context.Context, users *userdb.Type, n int) error {
	uid := fmt.Sprintf("%s-%d", p.Name, n)
	facets := schema.Texts("name", uid+" Name", "email", uid+"@example.com")
	if p.Version == 2 {
		facets["city"] = schema.Text("City " + uid)
	}
	if _, err := users.Create(ctx, userdb.NewEntry{UID: uid, Facets: facets, Tags: []string{p.Name}, Password: "correct horse battery staple"}); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	for what, do := range map[string]func() error{
		"update": func() error {
			_, err := users.Update(ctx, hints.Field("name", uid+" name"), func(e *userdb.Entry) error {
				e.Put("name", schema.Text(uid+" New"))
				return nil
			})
			return err
		},
		"tags":     func() error { return errOnly(users.Tags(hints.UID(uid)).Add(ctx, "staff")) },
		"password": func() error { return errOnly(users.SetPassword(ctx, hints.UID(uid), "another horse battery staple")) },
		"login": func() error {
			_, err := users.Login(ctx, uid+"@example.com", "wrong", userdb.Attempt{})
			if errors.Is(err, userdb.ErrLogin) {
				return nil
			}
			return fmt.Errorf("login with a wrong password: got %v, want ErrLogin", err)
		},
		"unknown field": func() error { return p.writeUnknownField(ctx, users, uid) },
		"index":         func() error { return p.query(ctx, users, uid) },
	} {
		if err := do(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	if n%3 == 0 {
		if err := users.Delete(ctx, hints.UID(uid)); err != nil {
			return fmt.Errorf("delete: %w", err)
		}
	}
	return nil
}

func errOnly[T any](_ T, err error) error { return err }

// writeUnknownField checks that a program of schema 1 cannot write a field that only schema 2 has.
func (p program) writeUnknownField(ctx context.Context, users *userdb.Type, uid string) error {
	if p.Version == 2 {
		return nil
	}
	_, err := users.Update(ctx, hints.UID(uid), func(e *userdb.Entry) error { e.Put("city", schema.Text("x")); return nil })
	if refused, ok := errors.AsType[*userdb.FieldError](err); ok && refused.Rule == "undeclared" {
		return nil
	}
	return fmt.Errorf("writing an undeclared field: got %v, want a FieldError of the rule undeclared", err)
}

// query runs queries that need schema 2. Each must find all its entries, or return an error while
// the index is being built.
func (p program) query(ctx context.Context, users *userdb.Type, uid string) error {
	if p.Version == 1 {
		return nil
	}
	for where, q := range map[string]userdb.Query{
		"in the index":             {Where: schema.Texts("city", "City "+uid)},
		"in the order of city":     {Order: "city", Prefix: "City " + uid},
		"in the order of the name": {Order: "name", Prefix: "Control "},
	} {
		n := 0
		var err error
		for _, failed := range users.All(ctx, q) {
			if err = failed; err == nil {
				n++
			}
		}
		least := 1
		if q.Order == "name" {
			least = controlEntries
		}
		if err != nil && !errors.Is(err, userdb.ErrIndexBuilding) || err == nil && n < least {
			return fmt.Errorf("got %d entries %s, %v; want at least %d", n, where, err, least)
		}
	}
	return nil
}

// A process is a running program, seen from the test.
type process struct {
	program
	cmd    *exec.Cmd
	input  io.WriteCloser
	rounds atomic.Int64
	ended  chan struct{}
}

// startProgram starts a program. If the program reports an error, the test fails.
func startProgram(t *testing.T, p program) *process {
	t.Helper()
	r := &process{program: p, cmd: exec.Command(os.Args[0], "-test.run=^TestProgram$", "-test.timeout=0"), ended: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), programEnv+"="+string(testdb.Must(json.Marshal(p))))
	r.cmd.Stderr = os.Stderr
	r.input = testdb.Must(r.cmd.StdinPipe())
	output := testdb.Must(r.cmd.StdoutPipe())
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.ended)
		for sc := bufio.NewScanner(output); sc.Scan(); {
			text, ok := strings.CutPrefix(sc.Text(), "program: ")
			switch {
			case ok && strings.HasPrefix(text, "error: "):
				t.Errorf("%s of schema %d: %s", p.Name, p.Version, text)
			case ok:
				r.rounds.Add(1)
			}
		}
		r.cmd.Wait() // its error does not matter: errors of the program are in the output
	}()
	t.Cleanup(r.kill)
	return r
}

func (r *process) signal(s syscall.Signal) { r.cmd.Process.Signal(s) }

func (r *process) kill() {
	r.cmd.Process.Kill()
	<-r.ended
}

// stop closes the input of the process, which makes it end, and waits for it.
func (r *process) stop() {
	r.input.Close()
	<-r.ended
}

// waitRounds waits until each process has completed this many more rounds, or the test has failed.
func waitRounds(t *testing.T, rs []*process, rounds int64) {
	t.Helper()
	begin := time.Now()
	for _, r := range rs {
		for from := r.rounds.Load(); r.rounds.Load() < from+rounds && !t.Failed(); time.Sleep(10 * time.Millisecond) {
			if time.Since(begin) > timeout {
				t.Fatalf("%s of schema %d: only %d rounds within %v", r.Name, r.Version, r.rounds.Load(), timeout)
			}
		}
	}
}

// TestRollingDeploy runs programs of two schemas as processes that write while another process
// converts entries from one schema to the other. Meanwhile some of the processes are killed or
// suspended, even the converting one. No call may fail, except for writing a field that the program
// does not know, and no query may use an incomplete index.
func TestRollingDeploy(t *testing.T) {
	if testing.Short() {
		t.Skip("runs many processes on three kinds of server")
	}
	for name, url := range map[string]func(t *testing.T) string{
		"redis":    func(t *testing.T) string { return redistest.Start(t).URL() },
		"sentinel": func(t *testing.T) string { return redistest.StartSentinel(t).URL() },
		"cluster":  func(t *testing.T) string { return redistest.StartCluster(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runRollingDeploy(t, url(t))
		})
	}
}

func runRollingDeploy(t *testing.T, url string) {
	before := testdb.Must(userdb.Open(t.Context(), url, userdb.Options{Schema: schemaVersion(1)}))
	defer before.Close()
	var lines strings.Builder
	for i := range controlEntries {
		fmt.Fprintf(&lines, `{"facets":{"name":"Control %d"}}`+"\n", i)
	}
	if _, err := transfer.Import(t.Context(), before, strings.NewReader(lines.String()), transfer.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	var all []*process
	writers := func(version int, generation string) (rs []*process) {
		for i := range writersPerVersion {
			rs = append(rs, startProgram(t, program{URL: url, Name: fmt.Sprintf("p%d%s%d", version, generation, i), Version: version}))
		}
		all = append(all, rs...)
		return rs
	}
	old := writers(1, "a")
	waitRounds(t, old, 2)
	newer := writers(2, "a")
	apply := program{URL: url, Name: "apply", Version: 1, Applies: true}
	hanging := apply
	hanging.Hangs = true
	first := startProgram(t, hanging)
	for begin := time.Now(); testdb.Must(migrate.StoredSchema(t.Context(), before)).Types["user"].Building == nil; time.Sleep(time.Millisecond) {
		if time.Since(begin) > timeout {
			t.Fatalf("within %v, the stored schema did not say that an addition is being built", timeout)
		}
	}
	first.kill()
	old[0].kill()
	old[1].kill()
	all = append(all, startProgram(t, program{URL: url, Name: "p1b0", Version: 1}), startProgram(t, program{URL: url, Name: "p1b1", Version: 1}))
	waitRounds(t, newer, 1)
	newer[0].kill()
	suspended, running := old[2:4], old[4:]
	for _, r := range suspended { // in the middle of a call, until everything is complete
		r.signal(syscall.SIGSTOP)
	}
	again := startProgram(t, apply)
	waitRounds(t, running, 2)
	<-again.ended
	for _, r := range suspended {
		r.signal(syscall.SIGCONT)
	}
	waitRounds(t, old[2:], minRounds)
	waitRounds(t, newer[1:], minRounds)
	var stopping sync.WaitGroup
	for _, r := range all {
		stopping.Go(r.stop)
	}
	stopping.Wait()
	checkResult(t, url)
}

// checkResult checks that the change is complete, that no record is damaged, and that the index and
// the order contain all entries.
func checkResult(t *testing.T, url string) {
	db := testdb.Must(userdb.Open(t.Context(), url, userdb.Options{Schema: schemaVersion(2)}))
	defer db.Close()
	if stored := testdb.Must(migrate.StoredSchema(t.Context(), db)).Types["user"]; stored.Building != nil {
		t.Errorf("the stored schema says that an addition is still being built: %+v", stored.Building)
	}
	// On a cluster, repair the damage of killed programs.
	repair := check.Options{Repair: strings.HasPrefix(url, "redis+cluster:")}
	for range 2 {
		for p, err := range check.Run(t.Context(), db, repair) {
			if err != nil || p.Severity == check.SeverityError && !repair.Repair {
				t.Errorf("a check found %v, error %v; want no problem", p, err)
			}
		}
		repair.Repair = false
	}
	users := testdb.Must(db.Type("user"))
	want := map[string]int64{}
	entries := 0
	for e, err := range users.All(t.Context(), userdb.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		want[e.Text("city")]++
		entries++
	}
	ordered := 0
	for _, err := range users.All(t.Context(), userdb.Query{Order: "name"}) {
		if ordered++; err != nil {
			t.Fatal(err)
		}
	}
	if ordered != entries {
		t.Errorf("the order of names has %d entries, want all %d", ordered, entries)
	}
	for city, n := range want {
		if city == "" {
			continue
		}
		if got, err := users.Count(t.Context(), userdb.Query{Where: schema.Texts("city", city)}); err != nil || got.Entries != n {
			t.Errorf("entries in the index of %s: got %+v, %v; want %d", city, got, err, n)
		}
	}
	t.Logf("%d entries", entries)
}
