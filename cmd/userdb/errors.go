package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

var (
	errInterrupted = errors.New("interrupted")
	errTimeout     = errors.New("not done in time")
	errNoStore     = errors.New("no such store")
	errStalled     = errors.New("the input did not come in time")
	errUsage       = errors.New("usage")
	errDamage      = errors.New("the check found damage")
)

// A usageError says what is wrong with a command line, and what to write instead.
type usageError string

func (e usageError) Error() string        { return string(e) }
func (e usageError) Is(target error) bool { return target == errUsage }

func usagef(format string, args ...any) error { return usageError(fmt.Sprintf(format, args...)) }

// A verdict is what an error means to scripts: a code and an exit code that never change.
type verdict struct {
	err    error
	code   string
	exit   int
	advice string // what to do, where the error does not say so itself
}

const unreachable = "is the store of --store (USERDB_STORE) the right one, and up?"

// refusals are what to do about a server that answers, but refuses, by its word for it.
var refusals = []struct{ word, advice string }{
	{"NOAUTH", "give user and password in the store's URL, or in USERDB_STORE: redis://USER:PASSWORD@HOST:PORT"},
	{"WRONGPASS", "mend user and password in the store's URL"},
	{"NOPERM", "the user in the store's URL may not do this: docs/redis-acl.md has the rights"},
	{
		"ERR The user executing the script",
		"the user in the store's URL may not do this: ACL LOG on the server names the command, docs/redis-acl.md has the rights",
	},
	{"ERR ACL failure in script", "the user in the store's URL may not do this: docs/redis-acl.md has the rights"},
	{"ERR DB index is out of range", "the server has no database of that number: name another one in the store's URL"},
	{"NOREPLICAS", "the server has too few replicas to write (min-replicas-to-write): bring them back"},
	{"MASTERDOWN", "this replica has lost its master: name the master, or its Sentinels with redis+sentinel://"},
	{"CLUSTERDOWN", "part of the cluster is down: CLUSTER INFO and CLUSTER NODES on a node say which"},
	{"OOM", "the server's memory is full: give it more (maxmemory)"},
	{"READONLY", "this is a replica: name its master, or its Sentinels with redis+sentinel://"},
	{"LOADING", "the server has just started: try again soon"},
	{"BUSY", "a script holds the server up: try again, or end it there with SCRIPT KILL"},
	{"MISCONF", "the server cannot save to its disk: see its log"},
}

// verdicts are tried in order: what ended the run first, then the store, then the caller's words, then entries.
var verdicts = []verdict{
	{errInterrupted, "interrupted", 130, ""},
	{errDamage, "corrupt", 7, ""},
	{userdb.ErrFileDamaged, "corrupt", 1, ""},
	{userdb.ErrOutcomeUnknown, "unavailable", 6, "the change was made whole or not at all: read the entry to see"},
	{userdb.ErrUnconfirmed, "unavailable", 6, "the change was made: 'userdb check --repair' completes it, once the server no longer refuses"},
	{userdb.ErrFileFull, "unavailable", 6, ""},
	{userdb.ErrFileExposed, "unavailable", 6, ""},
	{userdb.ErrFileLocked, "unavailable", 6, "wait for the other process, or give a longer --timeout"},
	{errNoStore, "unavailable", 6, "is --store (USERDB_STORE) the right one? 'userdb create' and 'userdb import' make a new one"},
	{errStalled, "unavailable", 6, "does something write to it? --timeout gives more time"},
	{errTimeout, "unavailable", 6, "is the store of --store (USERDB_STORE) reachable? --timeout gives more time"},
	{userdb.ErrIndexBuilding, "unavailable", 6, "it answers when 'userdb schema apply' has ended"},
	{userdb.ErrUnavailable, "unavailable", 6, unreachable},
	{errUsage, "usage", 2, ""},
	{userdb.ErrURL, "usage", 2, "see --store in 'userdb --help'"},
	{userdb.ErrUnsuitable, "usage", 2, ""},
	{transfer.ErrInput, "usage", 2, ""},
	{userdb.ErrCursor, "usage", 2, "give --after or --before what the same command said"},
	{hints.ErrHint, "hint", 2, "see 'userdb hint --help'"},
	{recordkey.ErrSyntax, "hint", 2, ""},
	{userdb.ErrSchemaMismatch, "schema_mismatch", 2, ""},
	{schema.ErrSchema, "schema", 2, ""},
	{userdb.ErrInvalid, "invalid", 2, ""},
	{password.ErrPolicy, "invalid", 2, ""},
	{userdb.ErrNotFound, "not_found", 3, ""},
	{errKeyTaken, "duplicate", 4, ""},
	{errOperatorTaken, "duplicate", 4, ""},
	{migrate.ErrCollision, "duplicate", 4, ""},
	{migrate.ErrNotEmpty, "duplicate", 4, ""},
	{check.ErrKeep, "usage", 2, ""},
	{migrate.ErrNamespace, "usage", 2, ""},
	{userdb.ErrDuplicate, "duplicate", 4, "another entry has it: choose another value"},
	{userdb.ErrConflict, "conflict", 4, "get the entry as it is now, and try again"},
	{userdb.ErrLogin, "login", 5, ""},
	{errToken, "login", 5, ""},
	{userdb.ErrTooManyAttempts, "throttled", 8, ""},
	{userdb.ErrCorrupt, "corrupt", 1, "'userdb check' says more"},
}

func judge(err error) verdict {
	for _, v := range verdicts {
		if errors.Is(err, v.err) {
			return v
		}
	}
	return verdict{err, "other", 1, ""}
}

// field is the field that an error is about, or "".
func field(err error) string {
	if f, ok := errors.AsType[*userdb.FieldError](err); ok {
		return f.Field
	}
	if errors.Is(err, password.ErrPolicy) {
		return passwordField
	}
	return ""
}

// credentials are what stands before the host of a URL, or in it as the password of a Sentinel's master, wherever
// it was typed.
var credentials = regexp.MustCompile(`(://)\S*(@)|([?&]password=)[^\s&"]*`)

// message is an error for people: what is wrong, and what to do.
func message(err error) string {
	text := credentials.ReplaceAllString(wrong(err), "$1$3…$2")
	advice := judge(err).advice
	if advice == unreachable && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, fs.ErrPermission)) { // it was reached
		advice = ""
	}
	sent := errors.Is(err, userdb.ErrOutcomeUnknown) || errors.Is(err, userdb.ErrUnconfirmed)
	if sent || advice == unreachable || advice == "" {
		for _, r := range refusals {
			switch found := strings.Contains(text+" ", ": "+r.word+" "); {
			case found && sent:
				advice += "; " + r.advice
			case found:
				advice = r.advice
			}
		}
	}
	if advice == "" {
		return text
	}
	return text + "; " + advice
}

// wrong says what is wrong, without the names of packages that mean nothing to people.
func wrong(err error) string {
	if hint, ok := errors.AsType[*hints.Error](err); ok && err.Error() == hint.Error() {
		return strings.TrimSpace("hint "+hint.Hint) + ": " + hint.Reason
	}
	return onOneLine(err)
}

// onOneLine returns the text of an error, and of several that were joined that of each.
func onOneLine(err error) string {
	joined, is := err.(interface{ Unwrap() []error })
	if !is {
		return err.Error()
	}
	var lines, texts []string
	for _, one := range joined.Unwrap() {
		lines, texts = append(lines, one.Error()), append(texts, onOneLine(one))
	}
	if err.Error() != strings.Join(lines, "\n") { // it has words of its own
		return err.Error()
	}
	return strings.Join(texts, "; ")
}

// late says what an error means that came when the time was up or the command was interrupted.
func late(ctx context.Context, limit time.Duration, err error) error {
	interrupted := errors.Is(context.Cause(ctx), errInterrupted)
	unknown := errors.Is(err, userdb.ErrOutcomeUnknown)
	switch {
	case interrupted && unknown:
		return fmt.Errorf("%w: %w", errInterrupted, userdb.ErrOutcomeUnknown)
	case interrupted:
		return errInterrupted
	case unknown, errors.Is(err, userdb.ErrFileLocked):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, errTimeout):
		return fmt.Errorf("%w: the store did not answer within %v", errTimeout, limit)
	}
	return err
}

// within gives f so much time; 0 is without end.
func within(ctx context.Context, most time.Duration, f func(context.Context) error) error {
	if most > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, most, errTimeout)
		defer cancel()
	}
	err := f(ctx)
	if err != nil && ctx.Err() != nil {
		return late(ctx, most, err)
	}
	return err
}

// report prints the one line about an error and returns the exit code.
func report(w io.Writer, asJSON bool, err error) int {
	if err == nil || enough(err) {
		return 0
	}
	type failure struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		Field   string `json:"field,omitempty"`
	}
	v, text := judge(err), message(err)
	errorOutput(w, asJSON).say(map[string]failure{"error": {v.code, text, field(err)}}, "userdb: "+oneLine(text)) // or nothing can be told
	return v.exit
}
