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
	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// Errors of the command itself. errDamage means that check found errors in the records; it then
// exits 7. errUnrecorded means that something was done, but its event is missing from the feed.
var (
	errInterrupted = coded.New(userdb.CodeInterrupted, "interrupted")
	errTimeout     = coded.New(userdb.CodeUnavailable, "timed out")
	errNoStore     = coded.New(userdb.CodeUnavailable, "no such store")
	errNoDataDir   = coded.New(userdb.CodeUnavailable, "no --store (USERDB_STORE) is given, and the data directory of this user cannot be used")
	errStalled     = coded.New(userdb.CodeUnavailable, "the input did not arrive in time")
	errUnrecorded  = coded.New(userdb.CodeUnavailable, "the event was not recorded")
	errNoType      = coded.New(userdb.CodeSchema, "no such type")
	errDamage      = coded.New(userdb.CodeCorrupt, "the check found damage")
)

// A usageError says what is wrong with a command line and what to write instead.
type usageError string

func (e usageError) Error() string          { return string(e) }
func (e usageError) ErrorCode() userdb.Code { return userdb.CodeUsage }

func usagef(format string, args ...any) error { return usageError(fmt.Sprintf(format, args...)) }

// noTypeError returns the error for a type that a schema does not have.
func noTypeError(name string, sc schema.Schema) error {
	return fmt.Errorf("%w: %s; the schema has %s", errNoType, truncate(printable(name), 64), strings.Join(sc.Names(), ", "))
}

const unreachable = "is the store of --store (USERDB_STORE) the right one, and is it running?"

// serverErrors lists the first words of errors of servers and connections, each with advice. If a
// message contains several of them, it gets the advice of the last one, or of all if a change was
// sent.
var serverErrors = []struct{ word, advice string }{
	{"no Sentinel answers:", "are the Sentinels of --store (USERDB_STORE) the right ones, and are they running?"},
	{
		"NOAUTH", "put the user and password into the store's URL: redis://USER:PASSWORD@HOST:PORT; " +
			"those of a master that Sentinels name are &username=USER&password=PASSWORD",
	},
	{"WRONGPASS", "correct the user and password in the store's URL"},
	{"NOPERM", "the user in the store's URL may not do this: docs/redis-acl.md lists the rights"},
	{
		"ERR The user executing the script",
		"the user in the store's URL may not do this: ACL LOG on the server names the command, docs/redis-acl.md lists the rights",
	},
	{"ERR ACL failure in script", "the user in the store's URL may not do this: docs/redis-acl.md lists the rights"},
	{"ERR DB index is out of range", "the server has no database of that number: choose another one in the store's URL"},
	{"NOREPLICAS", "the server has too few replicas to write (min-replicas-to-write): bring them back"},
	{"MASTERDOWN", "this replica has lost its master: name the master, or its Sentinels with redis+sentinel://"},
	{"CLUSTERDOWN", "part of the cluster is down: CLUSTER INFO and CLUSTER NODES on a node say which"},
	{"ERR This instance has cluster support disabled", "the server is not part of a cluster: write redis:// in place of redis+cluster://"},
	{"ERR max number of clients reached", "the server has as many connections as its maxclients allows: close some, or raise it"},
	{"no Sentinel answers: NOAUTH", "put the Sentinels' password into the store's URL: redis+sentinel://:PASSWORD@HOST:PORT?master_name=NAME"},
	{"ERR unknown command", "the server lacks a command that userdb needs: is it Redis, or a Sentinel, as the store's URL says?"},
	{"no TLS answer to a TLS handshake", "if the port does not speak TLS, write redis:// in place of rediss://"},
	{"the port speaks TLS", "write rediss:// in place of redis://"},
	{"EOF", "the server closed the connection: its log may say why; if its port speaks TLS, write rediss:// in place of redis://"},
	{"OOM", "the server's memory is full: give it more (maxmemory)"},
	{"READONLY", "this is a replica: name its master, or its Sentinels with redis+sentinel://"},
	{"LOADING", "the server has just started: try again soon"},
	{"BUSY", "a script blocks the server: try again, or end it there with SCRIPT KILL"},
	{"MISCONF", "the server cannot save to its disk: see its log"},
}

// advice says what to do about errors that do not say so themselves. adviceOn(err) uses the first
// row with an error that err wraps and that has the same code as err. An empty text means that
// there is no advice.
var advice = []struct {
	err  error
	text string
}{
	{errUnrecorded, ""},
	{userdb.ErrOutcomeUnknown, "the change was made completely or not at all: read the entry to find out"},
	{userdb.ErrUnconfirmed, "the change is committed: once the server no longer refuses commands, 'userdb check --repair' completes it"},
	{userdb.ErrFileFull, "make room on the disk of the file"},
	{userdb.ErrFileExposed, ""},
	{userdb.ErrFileLocked, "wait for the other process, or give a longer --timeout"},
	{errNoStore, "is --store (USERDB_STORE) the right one? 'userdb create' and 'userdb import' create one"},
	{errNoDataDir, "set HOME or XDG_DATA_HOME to a directory in which you may write, or give --store"},
	{errStalled, "is something writing to it? --timeout gives more time"},
	{errTimeout, "is the store of --store (USERDB_STORE) reachable? --timeout gives more time"},
	{userdb.ErrIndexBuilding, "try again when 'userdb schema apply' is done"},
	{userdb.ErrUnavailable, unreachable},
	{userdb.ErrURL, "see --store in 'userdb --help'"},
	{userdb.ErrCursor, "give --after or --before a cursor that the same command printed"},
	{hints.ErrHint, "see 'userdb hint --help'"},
	{userdb.ErrDuplicate, "another entry has it: choose another value"},
	{userdb.ErrConflict, "get the entry as it is now, and try again"},
	{userdb.ErrCorrupt, "'userdb check' says more"},
}

func adviceOn(err error) string {
	if f, ok := errors.AsType[*userdb.FieldError](err); ok && errors.Is(err, userdb.ErrDuplicate) {
		switch f.Rule {
		case "retired":
			return "choose another value, or free this one with 'userdb retired forget'"
		case "held":
			return "another entry gave it up and holds it: see 'userdb held show'"
		}
	}
	code := userdb.CodeOf(err)
	for _, a := range advice {
		if errors.Is(err, a.err) && userdb.CodeOf(a.err) == code {
			return a.text
		}
	}
	return ""
}

// exitStatus returns the exit status of a command that ends with an error.
func exitStatus(err error) int {
	code := userdb.CodeOf(err)
	if code == userdb.CodeCorrupt && errors.Is(err, errDamage) {
		return 7 // the check was completed, and found damage
	}
	return code.ExitStatus()
}

// fieldOf returns the field that an error is about, or "".
func fieldOf(err error) string {
	if f, ok := errors.AsType[*userdb.FieldError](err); ok {
		return f.Field
	}
	if errors.Is(err, password.ErrPolicy) {
		return passwordField
	}
	return ""
}

// credentials matches, anywhere in a message, the user and password before the host of a URL, and a
// password in the query of a URL.
var credentials = regexp.MustCompile(`(://)\S*(@)|([?&]password=)[^\s&"]*`)

// hideCredentials replaces the credentials in all URLs in a text.
func hideCredentials(text string) string { return credentials.ReplaceAllString(text, "$1$3…$2") }

// message returns what is wrong and what to do about it, for people.
func message(err error) string {
	text := hideCredentials(describe(err))
	advice := adviceOn(err)
	if advice == unreachable && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission)) {
		// The store was reached.
		advice = ""
	}
	sent := errors.Is(err, userdb.ErrOutcomeUnknown) || errors.Is(err, userdb.ErrUnconfirmed)
	if sent || advice == unreachable || advice == "" {
		for _, r := range serverErrors {
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

// describe returns what is wrong, without package names that mean nothing to people.
func describe(err error) string {
	if hint, ok := errors.AsType[*hints.Error](err); ok && err.Error() == hint.Error() {
		return strings.TrimSpace("hint "+hint.Hint) + ": " + hint.Reason
	}
	return joinTexts(err)
}

// joinTexts returns the text of an error. It joins the texts of joined errors with semicolons.
func joinTexts(err error) string {
	joined := joinedErrors(err)
	if joined == nil {
		return err.Error()
	}
	var texts []string
	for _, part := range joined {
		texts = append(texts, joinTexts(part))
	}
	return strings.Join(texts, "; ")
}

// joinedErrors returns the errors of an [errors.Join]. For any other error it returns nil.
func joinedErrors(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var lines []string
	for _, part := range joined.Unwrap() {
		lines = append(lines, part.Error())
	}
	if err.Error() != strings.Join(lines, "\n") { // err adds words to those of the joined errors
		return nil
	}
	return joined.Unwrap()
}

// contextError returns the error to report if a function returned err and its ctx has ended: the
// time limit has passed, or the command was interrupted.
func contextError(ctx context.Context, limit time.Duration, err error) error {
	interrupted := errors.Is(context.Cause(ctx), errInterrupted)
	unknown := errors.Is(err, userdb.ErrOutcomeUnknown)
	switch {
	case interrupted && unknown:
		return fmt.Errorf("%w: %w", errInterrupted, userdb.ErrOutcomeUnknown)
	case interrupted:
		return errInterrupted
	case unknown, errors.Is(err, userdb.ErrFileLocked), errors.Is(err, errUnrecorded):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, errTimeout):
		return fmt.Errorf("%w: the store did not answer within %v", errTimeout, limit)
	}
	return err
}

// within calls f with a time limit. Zero means no limit.
func within(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, errTimeout)
		defer cancel()
	}
	err := f(ctx)
	if err != nil && ctx.Err() != nil {
		return contextError(ctx, limit, err)
	}
	return err
}

// A failure holds the JSON that is printed about an error. Errors is nil unless there are several
// errors.
type failure struct {
	Code    userdb.Code `json:"code"`
	Message string      `json:"message"`
	Field   string      `json:"field,omitempty"`
	Errors  []failure   `json:"errors,omitempty"`
}

// report writes a line about an error, or one about each of several joined errors, and returns the
// exit code.
func report(w io.Writer, asJSON bool, err error) int {
	if err == nil || brokenPipe(err) {
		return 0
	}
	text := message(err)
	f := failure{Code: userdb.CodeOf(err), Message: text, Field: fieldOf(err)}
	lines := []string{text}
	if joined := joinedErrors(err); joined != nil {
		lines = nil
		for _, part := range joined {
			lines = append(lines, message(part))
			f.Errors = append(f.Errors, failure{Code: userdb.CodeOf(part), Message: message(part), Field: fieldOf(part)})
		}
	}
	for i := range lines {
		lines[i] = "userdb: " + oneLine(lines[i])
	}
	// If this fails, there is nowhere left to report it.
	errorOutput(w, asJSON).print(map[string]failure{"error": f}, strings.Join(lines, "\n"))
	return exitStatus(err)
}
