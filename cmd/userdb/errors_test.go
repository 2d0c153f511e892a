package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestExitStatus checks codes and exit statuses. They must never change, because scripts rely on
// them.
func TestExitStatus(t *testing.T) {
	for _, tt := range []struct {
		err  error
		code userdb.Code
		exit int
	}{
		{errInterrupted, "interrupted", 130},
		{fmt.Errorf("%w: %w", errInterrupted, userdb.ErrOutcomeUnknown), "interrupted", 130},
		{errDamage, "corrupt", 7},
		{fmt.Errorf("%w: %w", userdb.ErrUnavailable, userdb.ErrFileDamaged), "corrupt", 1},
		{fmt.Errorf("%w: %w", userdb.ErrOutcomeUnknown, context.DeadlineExceeded), "unavailable", 6},
		{fmt.Errorf("%w: %w", userdb.ErrUnavailable, userdb.ErrFileFull), "unavailable", 6},
		{fmt.Errorf("%w: %w: %w", userdb.ErrUnavailable, userdb.ErrFileLocked, errTimeout), "unavailable", 6},
		{errTimeout, "unavailable", 6},
		{errStalled, "unavailable", 6},
		{errNoStore, "unavailable", 6},
		{fmt.Errorf("%w: %w", errNoDataDir, userdb.ErrUnavailable), "unavailable", 6},
		{userdb.ErrUnavailable, "unavailable", 6},
		{usagef("wrong"), "usage", 2},
		{userdb.ErrURL, "usage", 2},
		{userdb.ErrUnsuitable, "unavailable", 6},
		{errors.Join(userdb.ErrNotFound, userdb.ErrCorrupt), "corrupt", 1},
		{errors.Join(errDamage, errTimeout), "unavailable", 6},
		{errKeyTaken, "duplicate", 4},
		{errOperatorTaken, "duplicate", 4},
		{userdb.ErrCursor, "usage", 2},
		{&hints.Error{}, "hint", 2},
		{&recordkey.SyntaxError{}, "hint", 2},
		{userdb.ErrSchemaMismatch, "schema_mismatch", 2},
		{&schema.Error{}, "schema", 2},
		{&userdb.FieldError{Err: userdb.ErrInvalid}, "invalid", 2},
		{&password.PolicyError{}, "invalid", 2},
		{userdb.ErrNotFound, "not_found", 3},
		{&userdb.FieldError{Err: userdb.ErrDuplicate}, "duplicate", 4},
		{userdb.ErrConflict, "conflict", 4},
		{userdb.ErrLogin, "login", 5},
		{errToken, "login", 5},
		{&userdb.WaitError{Wait: time.Minute}, "throttled", 8},
		{userdb.ErrCorrupt, "corrupt", 1},
		{errors.New("anything else"), "other", 1},
	} {
		err := fmt.Errorf("doing something: %w", tt.err)
		if code, exit := userdb.CodeOf(err), exitStatus(err); code != tt.code || exit != tt.exit {
			t.Errorf("%v: got code %s and exit status %d, want %s and %d", err, code, exit, tt.code, tt.exit)
		}
	}
}

// TestRefusalAdvice checks the advice in errors for a connection that cannot work with its URL.
func TestRefusalAdvice(t *testing.T) {
	for text, want := range map[string]string{
		"no TLS answer to a TLS handshake (EOF)": "write redis:// in place of rediss://",
		"the port speaks TLS":                    "write rediss:// in place of redis://",
		"EOF":                                    "if its port speaks TLS, write rediss://",
		"write: broken pipe: ERR max number of clients reached": "as many connections as its maxclients allows",
		"ERR This instance has cluster support disabled":        "write redis:// in place of redis+cluster://",
		"no Sentinel answers: dial tcp: connection refused":     "are the Sentinels of --store (USERDB_STORE) the right ones, and are they running?",
		"no Sentinel answers: NOAUTH Authentication required.":  "put the Sentinels' password into the store's URL: redis+sentinel://:PASSWORD@",
		"NOAUTH Authentication required.":                       "those of a master that Sentinels name are &username=USER&password=PASSWORD",
		"no Sentinel answers: WRONGPASS invalid password":       "correct the user and password in the store's URL",
		"no Sentinel answers: ERR unknown command 'sentinel'":   "is it Redis, or a Sentinel, as the store's URL says?",
	} {
		if got := message(fmt.Errorf("%w: %s", userdb.ErrUnavailable, text)); !strings.Contains(got, want) {
			t.Errorf("the message for %s is %q, want it to contain %q", text, got, want)
		}
	}
}

// TestExitStatusOfCodes checks that an error ends the command with the exit status of its code, and
// that --help explains each exit status.
func TestExitStatusOfCodes(t *testing.T) {
	for _, code := range userdb.Codes() {
		if got := exitStatus(fmt.Errorf("wrapped: %w", coded.New(code, "an error"))); got != code.ExitStatus() {
			t.Errorf("%s exits %d, want %d", code, got, code.ExitStatus())
		}
		if _, all, _ := strings.Cut(about, "Exit codes:"); !strings.Contains(strings.ReplaceAll(all, "\n", " "), fmt.Sprintf(" %d ", code.ExitStatus())) {
			t.Errorf("--help does not explain exit status %d", code.ExitStatus())
		}
	}
}

// errPipe is the error of writing to a pipe that nobody reads.
var errPipe = &os.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}

func refusal(word string) error { return fmt.Errorf("%w: %w", userdb.ErrUnavailable, errors.New(word)) }

func TestReport(t *testing.T) {
	for _, tt := range []struct {
		err          error
		text, asJSON string
	}{
		{nil, "", ""},
		{outputError(errPipe), "", ""},
		{outputError(errors.New("disk full")), "userdb: writing the output: disk full\n", `{"error":{"code":"other","message":"writing the output: disk full"}}` + "\n"},
		{&userdb.FieldError{Err: userdb.ErrInvalid, Field: "age", Reason: "too old"}, "userdb: invalid value: age: too old\n", `{"error":{"code":"invalid","message":"invalid value: age: too old","field":"age"}}` + "\n"},
		{usagef("two\nlines \x1b[31m and \u202e"), "userdb: two\\nlines \\x1b[31m and \\u202e\n", `{"error":{"code":"usage","message":"two\nlines \u001b[31m and \u202e"}}` + "\n"},
		{
			errors.Join(&userdb.FieldError{Err: userdb.ErrInvalid, Field: "age", Reason: "too old"}, errors.Join(&userdb.FieldError{Err: userdb.ErrInvalid, Field: "b", Reason: "no"})),
			"userdb: invalid value: age: too old\nuserdb: invalid value: b: no\n", `{"error":{"code":"invalid","message":"invalid value: age: too old; invalid value: b: no","field":"age","errors":[{"code":"invalid","message":"invalid value: age: too old","field":"age"},{"code":"invalid","message":"invalid value: b: no","field":"b"}]}}` + "\n",
		},
		{refusal("OOM command not allowed"), "userdb: store unavailable: OOM command not allowed; the server's memory is full: give it more (maxmemory)\n", `{"error":{"code":"unavailable","message":"store unavailable: OOM command not allowed; the server's memory is full: give it more (maxmemory)"}}` + "\n"},
		{refusal("BUSY Redis is busy running a script."), "userdb: store unavailable: BUSY Redis is busy running a script.; a script blocks the server: try again, or end it there with SCRIPT KILL\n", `{"error":{"code":"unavailable","message":"store unavailable: BUSY Redis is busy running a script.; a script blocks the server: try again, or end it there with SCRIPT KILL"}}` + "\n"},
		{
			fmt.Errorf("%w: %w", userdb.ErrUnavailable, syscall.ENOSPC), "userdb: store unavailable: no space left on device\n",
			`{"error":{"code":"unavailable","message":"store unavailable: no space left on device"}}` + "\n",
		},
		{refusal("dial tcp: no route"), "userdb: store unavailable: dial tcp: no route; is the store of --store (USERDB_STORE) the right one, and is it running?\n", `{"error":{"code":"unavailable","message":"store unavailable: dial tcp: no route; is the store of --store (USERDB_STORE) the right one, and is it running?"}}` + "\n"},
		{
			fmt.Errorf("%w: ERR The user executing the script can't", userdb.ErrOutcomeUnknown),
			"userdb: outcome unknown: ERR The user executing the script can't; the change was made completely or not at all: read the entry to find out; the user in the store's URL may not do this: ACL LOG on the server names the command, docs/redis-acl.md lists the rights\n",
			`{"error":{"code":"unavailable","message":"outcome unknown: ERR The user executing the script can't; the change was made completely or not at all: read the entry to find out; the user in the store's URL may not do this: ACL LOG on the server names the command, docs/redis-acl.md lists the rights"}}` + "\n",
		},
		{
			fmt.Errorf("changing k: %w: refused: NOPERM no", userdb.ErrUnconfirmed),
			"userdb: changing k: committed, not confirmed: refused: NOPERM no; the change is committed: once the server no longer refuses commands, 'userdb check --repair' completes it; the user in the store's URL may not do this: docs/redis-acl.md lists the rights\n",
			`{"error":{"code":"unavailable","message":"changing k: committed, not confirmed: refused: NOPERM no; the change is committed: once the server no longer refuses commands, 'userdb check --repair' completes it; the user in the store's URL may not do this: docs/redis-acl.md lists the rights"}}` + "\n",
		},
		{
			fmt.Errorf("%w: CLUSTERDOWN The cluster is down", userdb.ErrUnavailable),
			"userdb: store unavailable: CLUSTERDOWN The cluster is down; part of the cluster is down: CLUSTER INFO and CLUSTER NODES on a node say which\n",
			`{"error":{"code":"unavailable","message":"store unavailable: CLUSTERDOWN The cluster is down; part of the cluster is down: CLUSTER INFO and CLUSTER NODES on a node say which"}}` + "\n",
		},
		{&hints.Error{Reason: "empty"}, "userdb: hint: empty; see 'userdb hint --help'\n", `{"error":{"code":"hint","message":"hint: empty; see 'userdb hint --help'"}}` + "\n"},
	} {
		var text, asJSON strings.Builder
		report(&text, false, tt.err)
		report(&asJSON, true, tt.err)
		if text.String() != tt.text {
			t.Errorf("report(%v) = %q, want %q", tt.err, text.String(), tt.text)
		}
		if asJSON.String() != tt.asJSON {
			t.Errorf("report(%v) as JSON = %q, want %q", tt.err, asJSON.String(), tt.asJSON)
		}
	}
}

func TestContextError(t *testing.T) {
	interrupted, cancel := context.WithCancelCause(context.Background())
	cancel(errInterrupted)
	timeUp, cancelTimeUp := context.WithDeadlineCause(context.Background(), time.Time{}, errTimeout)
	defer cancelTimeUp()
	slow := fmt.Errorf("%w: %w", userdb.ErrUnavailable, context.DeadlineExceeded)
	refused := fmt.Errorf("%w: connection refused", userdb.ErrUnavailable)
	unknown := fmt.Errorf("%w: %w", userdb.ErrOutcomeUnknown, context.DeadlineExceeded)
	for _, tt := range []struct {
		ctx  context.Context
		err  error
		want string
	}{
		{interrupted, context.Canceled, "interrupted"},
		{interrupted, refused, "interrupted"},
		{interrupted, unknown, "interrupted: outcome unknown"},
		{timeUp, slow, "timed out: the store did not answer within 1s"},
		{timeUp, refused, "store unavailable: connection refused"},
		{timeUp, unknown, "outcome unknown: context deadline exceeded"},
		{timeUp, fmt.Errorf("%w: %w", userdb.ErrFileLocked, errTimeout), "embedded: file is locked: timed out"},
	} {
		if got := contextError(tt.ctx, time.Second, tt.err).Error(); got != tt.want {
			t.Errorf("contextError(%v) = %q, want %q", tt.err, got, tt.want)
		}
	}
}

// TestStoreIsNotEchoed checks that no output contains the password in a store URL, even if other
// parts of the URL are mistyped.
func TestStoreIsNotEchoed(t *testing.T) {
	useFile(t)
	for _, store := range []string{
		"hush@host", "hush:hush@host:6379", "hush://u@h", "redis:hush@host", "redis://u:hush@ho st", "redis://u:hush@127.0.0.1:1", "redis://:hush@127.0.0.1:1/0",
		"redis://hush@127.0.0.1:1", "redis://u:hush/x@host:1", "redis://u:hush@h?no=1", "redis+cluster://u:hush@127.0.0.1:1", "redis+sentinel://u:hush@127.0.0.1:1",
		"redis+sentinel://u:hush@127.0.0.1:1?master_name=m&password=hush", "rediss://u:hush@127.0.0.1:1?tls_ca=/nowhere", "unix://u:hush@/nowhere/s",
	} {
		lines := [][]string{{"--store", store, "count", "user"}, {"--store=" + store, "check"}, {"get", "a1", "--store", store, "--help"}, {"--store", store, "login", "--help"}}
		if strings.Contains(store, "://") && !strings.Contains(store, "hush://") {
			lines = append(lines, []string{store, "count", "user"}, []string{"count", "user", store}, []string{"--stor=" + store, "count", "user"}, []string{"count", "user", "--stor", store},
				[]string{"get", store}, []string{"--timeout", store, "count", "user"}, []string{"--namespace", store, "count", "user"}, []string{"login", store, store})
		}
		for _, line := range lines {
			for _, args := range [][]string{line, append([]string{"--json"}, line...)} {
				if got := runCommand(nil, "", append(args, "--timeout", "300ms")...); strings.Contains(got.out+got.err, "hush") {
					t.Errorf("userdb %q prints the password of the store: %s%s", args, got.out, got.err)
				}
			}
		}
		t.Setenv("USERDB_STORE", store)
		for _, args := range [][]string{{"count", "user"}, {"count", "user", "--json"}, {"--help"}} {
			if got := runCommand(nil, "", append(args, "--timeout", "300ms")...); strings.Contains(got.out+got.err, "hush") {
				t.Errorf("USERDB_STORE=%s userdb %q prints the password of the store: %s%s", store, args, got.out, got.err)
			}
		}
		useFile(t)
	}
}

// TestNoDataDirectory checks that a command without --store says what to set if the directory of
// this user's data cannot be made, or if HOME does not name one. Nothing is made elsewhere.
func TestNoDataDirectory(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no HOME")
	}
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("USERDB_STORE", "")
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	const unusable = "set HOME or XDG_DATA_HOME to a directory in which you may write, or give --store"
	for _, tt := range []struct {
		home, data string
		code       int
		want       string
	}{
		{file, "", 6, unusable},
		{filepath.Join(file, "home"), "", 6, unusable},
		{"", file, 6, unusable},
		{dir, filepath.Join(file, "data"), 6, unusable},
		{"", "", 2, "$HOME is not defined; set XDG_DATA_HOME, or name a store (--store or USERDB_STORE)"},
		{"home", "", 2, `$HOME is "home", want an absolute path; set XDG_DATA_HOME`},
		{"", "data", 2, "$HOME is not defined; set XDG_DATA_HOME"},
	} {
		t.Setenv("HOME", tt.home)
		t.Setenv("XDG_DATA_HOME", tt.data)
		for _, args := range [][]string{{"create", "email=a@x.org", "--no-password"}, {"get", "a"}, {"status"}, {"check"}} {
			if got := runCommand(nil, "", args...); got.code != tt.code || !strings.Contains(got.err, tt.want) {
				t.Errorf("HOME=%q XDG_DATA_HOME=%q %s: got %+v, want exit %d and %q", tt.home, tt.data, args, got, tt.code, tt.want)
			}
		}
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("the working directory holds %v, %v; want only the file", all, err)
	}
	t.Setenv("HOME", "")
	t.Setenv("XDG_DATA_HOME", file)
	if got := runCommand(nil, "", "--store", "redis://127.0.0.1:1", "get", "a"); strings.Contains(got.err, unusable) {
		t.Errorf("with a store that is named: %+v", got)
	}
}
