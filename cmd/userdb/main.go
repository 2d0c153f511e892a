// Command userdb stores accounts in Redis or, if no store is named, in a file. An account is found
// by any identifier that it owns. See userdb --help.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/connect"
	"github.com/coffeenode/userdb/internal/embedded"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

func main() { os.Exit(run(os.Args[1:], standard())) }

// A stdio holds the streams that a run reads and writes.
type stdio struct {
	in       io.Reader
	out, err io.Writer
	term     terminal // nil if standard input is not a terminal
	width    int      // characters in a line of out; 0 if it is not a terminal
	// sleep waits for a duration, or until the context ends. If nil, no command waits.
	sleep func(context.Context, time.Duration) error
}

func standard() stdio {
	return stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr, term: findTerminal(), width: terminalWidth(os.Stdout), sleep: sleep}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run executes a command line and returns its exit code.
func run(args []string, std stdio) int {
	logging.Disable() // errors of commands say what the Redis client would log
	// A write to a closed pipe then returns an error and does not kill the process.
	signal.Ignore(syscall.SIGPIPE)
	s := newSession(std)
	err := s.parse(args)
	if err == nil {
		err = s.execute()
	}
	return report(std.err, s.JSON, err)
}

const (
	// grace is how long an interrupted command has to end by itself before the process exits.
	// Exiting leaves nothing half done, because the store makes every change completely or not at
	// all.
	grace = 500 * time.Millisecond
	// saveGrace is the grace period of a command that saves its progress.
	saveGrace = 10 * time.Second
	// serveGrace is the grace period of a service, which finishes the requests in progress.
	serveGrace = 25 * time.Second
)

// execute runs the command until it ends or is interrupted. The first signal cancels its context;
// the second one kills the process.
func (s *session) execute() error {
	if s.do == nil {
		help := s.help.String()
		return cmp.Or(s.out.print(help, strings.TrimSuffix(help, "\n")), s.out.flush())
	}
	wait := grace
	switch {
	case s.is(saving):
		wait = saveGrace
	case s.is(serves):
		wait = serveGrace
	}
	ctx, cancel := context.WithCancelCause(userdb.WithActor(context.Background(), userdb.Actor{Name: "command"}))
	end, abandon := context.WithCancelCause(context.Background())
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		ends = append(ends, syscall.SIGHUP)
	}
	signals, stop := signal.NotifyContext(ctx, ends...)
	defer stop()
	context.AfterFunc(signals, func() {
		stop()
		cancel(errInterrupted)
		time.AfterFunc(wait, func() { abandon(errInterrupted) })
	})
	_, err := callWithContext(end, func() (any, error) { return nil, cmp.Or(s.do(ctx), s.out.flush()) })
	return err
}

// A session is one run of one command. It holds the flags, the function to call, the output and,
// once it is open, the store.
type session struct {
	globals
	yes, fromStdin, batch bool // --yes, --password-stdin, --batch

	literalDash   bool // some words follow --; see firstLine
	schemaChecked bool // --schema was compared with the stored schema and accepted
	borrowed      bool // db stays open, because another session opened it
	std           stdio
	out           *output
	help          bytes.Buffer // the help that cobra printed, if only help was requested

	do     func(context.Context) error // nil: print help
	traits []trait
	log    *slog.Logger
	db     *userdb.DB
	url    string // of the store, once it is open

	hasKeys bool // the store was opened with keys of second factors

	observers []userdb.Observer
}

func newSession(std stdio) *session {
	return &session{std: std, out: &output{w: bufio.NewWriterSize(std.out, 64<<10), live: isTerminal(std.out)}}
}

// A trait describes how a command differs from most others.
type trait int

const (
	unlimited trait = iota // has no time limit unless --timeout sets one
	asking                 // may ask a person, and closes the store meanwhile: see session.ask
	public                 // visitors may see the output, so it prints no warnings
	opened                 // begins with the store open
	saving                 // finishes its current step and saves its progress if interrupted
	byUID                  // a bare word is always a UID
	serves                 // runs until a signal stops it, which counts as success
	reading                // changes nothing, and fails if --store names a file that does not exist
	allTypes               // has to do with all types, unless a HINT names an entry
)

func (s *session) is(t trait) bool { return slices.Contains(s.traits, t) }

// run returns a RunE function for a command that f implements. words holds the arguments that are
// not flags. RunE only stores f and the traits, because cobra calls it while it parses the line;
// execute calls f.
func (s *session) run(f func(ctx context.Context, words []string) error, traits ...trait) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, words []string) error {
		s.traits = traits
		if hinted := len(words) > 0 && strings.Contains(c.Use, "HINT"); s.Type != "" && s.is(allTypes) && !hinted {
			// The caller would take the result for that of one type.
			return fmt.Errorf("--type cannot limit '%s', which has to do with all types", c.CommandPath())
		}
		if s.Type != "" && strings.Contains(c.Use, "TYPE") && len(words) > 0 && !strings.Contains(words[0], "=") && words[0] != s.Type {
			return usagef("--type %s contradicts the type %s", printable(s.Type), printable(words[0]))
		}
		if !s.is(public) && !s.JSON {
			s.log = slog.New(warnings{s.std.err})
		}
		s.do = func(ctx context.Context) error {
			if s.is(asking) {
				return f(ctx, words)
			}
			return s.timed(ctx, func(ctx context.Context) error {
				if s.is(opened) {
					if err := s.open(ctx); err != nil {
						return err
					}
				}
				return f(ctx, words)
			})
		}
		return nil
	}
}

// readingIf adds the trait reading to a command if reads returns true. It calls reads after the
// flags are parsed.
func (s *session) readingIf(reads func() bool, run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, words []string) error {
		err := run(c, words)
		if reads() {
			s.traits = append(s.traits, reading)
		}
		return err
	}
}

// firstLine reports whether word stands for the first line of standard input. A hyphen does, unless
// words follow --, where scripts put what a visitor entered.
func (s *session) firstLine(word string) bool { return word == "-" && !s.literalDash }

// timeout returns how long the command may take or, for serve, how long opening the store may take.
// Zero means no limit.
func (s *session) timeout() time.Duration {
	switch {
	case s.Timeout != nil:
		return *s.Timeout
	case s.is(unlimited):
		return 0
	}
	return 30 * time.Second
}

// timed calls f with the time limit of the command and closes the store afterwards.
func (s *session) timed(ctx context.Context, f func(context.Context) error) error {
	limit := s.timeout()
	if s.is(serves) { // only opening its store is limited
		limit = 0
	}
	return within(ctx, limit, func(ctx context.Context) error { return cmp.Or(f(ctx), s.close()) })
}

// open connects to the store, unless it is open. It chooses the schema: the one of --schema, else
// the stored one, else the built-in one.
func (s *session) open(ctx context.Context) error {
	if s.db != nil {
		return nil
	}
	err := s.connect(ctx)
	if err != nil && s.lacksDataDir() && !errors.Is(err, errNoStore) && userdb.CodeOf(err) == userdb.CodeUnavailable {
		return fmt.Errorf("%w: %w", errNoDataDir, err)
	}
	return err
}

// lacksDataDir reports whether no store is named and the directory of the one in this user's data
// directory cannot be used. Opening the store would have made it.
func (s *session) lacksDataDir() bool {
	path, err := embedded.DefaultPath()
	return s.Store == "" && err == nil && !isDir(filepath.Dir(path))
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// connect does the work of open.
func (s *session) connect(ctx context.Context) error {
	url, err := s.storeURL()
	if err != nil {
		return err
	}
	ns, err := recordkey.ParseNamespace(s.Namespace)
	if err != nil {
		return usagef("--namespace %s: %s", printable(s.Namespace), syntaxReason(err))
	}
	sc, err := s.namedSchema(ctx, schema.Schema{})
	if err != nil {
		return err
	}
	if err := s.checkStoreExists(); err != nil {
		return err
	}
	keys, err := s.readKeys(url)
	if err != nil {
		return err
	}
	s.hasKeys = len(keys) > 0
	defer s.announceWait(connect.File(url))()
	db, err := userdb.Open(ctx, url, userdb.Options{Logger: s.log, Namespace: ns, Schema: sc, OnSchema: userdb.SchemaDeferred, Observers: s.observers, History: s.History, Keys: keys})
	if err != nil {
		return err
	}
	s.url = url
	if s.db = db; s.Schema == "" {
		err = s.useStored(ctx)
	}
	return err
}

// storeURL returns the URL of the named store or, without one, that of this user's file.
func (s *session) storeURL() (string, error) {
	if s.Store != "" {
		return s.Store, nil
	}
	path, err := embedded.DefaultPath()
	if err != nil {
		return "", usagef("no store: %v (--store or USERDB_STORE)", err)
	}
	return "file:" + path, nil
}

// syntaxReason returns why a record key or the name of a namespace cannot be parsed, without naming
// the Go function that parses it.
func syntaxReason(err error) string {
	if bad, ok := errors.AsType[*recordkey.SyntaxError](err); ok {
		return bad.Reason
	}
	return err.Error()
}

// patience is how long a command waits for a file before it says that it waits.
var patience = time.Second

// announceWait prints that the command waits for the file at path, if another process still has it
// open after a while. The caller calls stop when the file is open; after that, nothing is printed.
// path is "" if the store is not a file.
func (s *session) announceWait(path string) (stop func()) {
	done := make(chan struct{})
	timer := time.AfterFunc(patience, func() {
		defer close(done)
		if path == "" || s.is(public) || s.JSON {
			return
		}
		if holder := embedded.OtherHolder(path); holder != "" {
			fmt.Fprintln(s.std.err, "userdb: waiting for "+oneLine(path)+", which "+holder+" has open")
		}
	})
	return func() {
		if !timer.Stop() {
			<-done
		}
	}
}

// checkStoreExists returns an error if the command only reads and --store names a file that does
// not exist. Otherwise a mistyped name would look like an empty store, and its file would be
// created.
func (s *session) checkStoreExists() error {
	path := connect.File(s.Store)
	if path == "" || !s.is(reading) || embedded.Exists(path) {
		return nil
	}
	return fmt.Errorf("%w: %s", errNoStore, printable(path))
}

// useStored switches to the stored schema, if there is one.
func (s *session) useStored(ctx context.Context) error {
	stored, err := migrate.StoredSchema(ctx, s.db)
	if err != nil || len(stored.Types) == 0 {
		return err
	}
	db, err := view.Reconfigure(s.db, func(c *view.Config) { c.Schema = stored })
	if err == nil {
		s.db = db
	}
	return err
}

func (s *session) close() error {
	db := s.db
	if s.db = nil; db == nil || s.borrowed {
		return nil
	}
	return db.Close()
}

// namedSchema loads the schema of --schema. Without the flag it returns fallback.
func (s *session) namedSchema(ctx context.Context, fallback schema.Schema) (schema.Schema, error) {
	if s.Schema == "" {
		return fallback, nil
	}
	f, err := openWithContext(ctx, s.Schema)
	if ctx.Err() != nil {
		return fallback, stalledError(ctx, s.Schema)
	}
	if err != nil {
		return fallback, usagef("--schema: %v", err)
	}
	defer f.Close()
	sc, err := schema.Load(contextReader(ctx, f))
	if ctx.Err() != nil {
		return fallback, stalledError(ctx, s.Schema)
	}
	if errors.Is(err, schema.ErrSchema) {
		return sc, fmt.Errorf("--schema %s: %w", s.Schema, err)
	} else if err != nil {
		return sc, usagef("--schema: %v", err)
	}
	return sc, nil
}

// typ opens the store and returns the type called name. If name is "", it returns the type of
// session.defaultType.
func (s *session) typ(ctx context.Context, name string) (*userdb.Type, error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	sc := s.db.Schema()
	if name = cmp.Or(name, s.defaultType(sc)); name == "" {
		return nil, usagef("name a type: the schema has %s", strings.Join(sc.Names(), ", "))
	}
	t, err := s.db.Type(name)
	if err != nil {
		return nil, noTypeError(name, sc)
	}
	return t, s.checkNamedSchema(ctx)
}

// defaultType returns the type of --type. Without the flag it returns the only type of sc or, if
// there are several, user. It returns "" if none of them is called user.
func (s *session) defaultType(sc schema.Schema) string {
	names := sc.Names()
	switch {
	case s.Type != "":
		return s.Type
	case len(names) == 1:
		return names[0]
	case slices.Contains(names, "user"):
		return "user"
	}
	return ""
}

// checkNamedSchema returns an error if the schema of --schema contradicts the stored one. Under
// such a schema a command would find nothing, or the wrong entries, and nobody would notice. It
// accepts a schema to which the records are being migrated.
func (s *session) checkNamedSchema(ctx context.Context) error {
	if s.Schema == "" || s.schemaChecked {
		return nil
	}
	stored, err := migrate.StoredSchema(ctx, s.db)
	if errors.Is(err, userdb.ErrCorrupt) { // 'userdb check --schema' may repair that
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range s.db.Schema().Names() {
		typ, isStored := stored.Types[name]
		relation, difference := s.db.Schema().Types[name].Compare(typ.WithoutBuilding())
		if !isStored || relation != schema.Differs {
			continue
		}
		begun, err := migrate.PendingSchema(ctx, s.db)
		if err != nil {
			return err
		}
		if _, underWay := begun.Types[name]; !underWay {
			return fmt.Errorf("%w: type %s: %s; use the stored schema ('userdb schema show'), or convert the records with 'userdb schema apply'",
				userdb.ErrSchemaMismatch, printable(name), difference)
		}
	}
	s.schemaChecked = true
	return nil
}

// A subject holds a hint that an operator entered and the type of the entry that it points at.
type subject struct {
	text string
	hint hints.Hint
	typ  *userdb.Type
}

// subject parses a hint and finds its type.
func (s *session) subject(ctx context.Context, text string) (subject, error) {
	p, err := s.subjects(ctx, []string{text})
	if err != nil {
		return subject{}, err
	}
	return p[0], nil
}

// subjects parses hints. A bare word is a UID or, if no entry has that UID, a value of any
// secondary field. For a command with the trait byUID it is always a UID.
func (s *session) subjects(ctx context.Context, texts []string) ([]subject, error) {
	all := make([]subject, len(texts))
	words := map[string][]int{} // by type
	for i, text := range texts {
		p, err := s.parseSubject(ctx, text)
		if err != nil {
			return nil, err
		}
		if all[i] = p; !s.is(byUID) {
			if _, isWord := p.hint.Word(); isWord {
				words[p.typ.Name()] = append(words[p.typ.Name()], i)
			}
		}
	}
	for _, indexes := range words {
		if err := resolveWords(ctx, all, indexes); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// resolveWords turns bare words that are not the UID of any entry into hints for a value of any
// secondary field. indexes holds the positions, in subjects, of the bare words of one type.
func resolveWords(ctx context.Context, subjects []subject, indexes []int) error {
	typ, hs := subjects[indexes[0]].typ, make([]hints.Hint, len(indexes))
	for i, at := range indexes {
		hs[i] = subjects[at].hint
	}
	i := 0
	for _, err := range typ.FindAll(ctx, hs...) {
		if err != nil && !aboutEntry(err) {
			return err
		}
		if word, _ := hs[i].Word(); errors.Is(err, userdb.ErrNotFound) {
			subjects[indexes[i]].hint = hints.Any(word).Of(typ.Name())
		}
		i++
	}
	return nil
}

// parseSubject parses a hint and finds its type. A bare word is a UID.
func (s *session) parseSubject(ctx context.Context, text string) (subject, error) {
	h, err := hints.Parse(text)
	if err != nil {
		return subject{}, err
	}
	if err := s.open(ctx); err != nil {
		return subject{}, err
	}
	target, err := resolve(h, s.db.Schema(), s.defaultType(s.db.Schema()))
	if err != nil {
		return subject{}, err
	}
	t, err := s.typ(ctx, target.Type)
	return subject{text, h, t}, err
}

// onSubject returns a function that parses a hint and calls f with its subject.
func (s *session) onSubject(text string, f func(context.Context, subject) error) func(context.Context) error {
	return func(ctx context.Context) error {
		p, err := s.subject(ctx, text)
		if err != nil {
			return err
		}
		return withHint(text, f(ctx, p))
	}
}

// runOn returns a RunE function that calls f with the subject that the first word names and with
// the other words.
func (s *session) runOn(
	f func(ctx context.Context, p subject, words []string) error, traits ...trait,
) func(*cobra.Command, []string) error {
	return s.run(func(ctx context.Context, words []string) error {
		return s.onSubject(words[0], func(ctx context.Context, p subject) error { return f(ctx, p, words[1:]) })(ctx)
	}, traits...)
}

// resolve resolves a hint. If the hint names no type, its type is defaultType.
func resolve(h hints.Hint, sc schema.Schema, defaultType string) (hints.Target, error) {
	target, err := h.Resolve(sc, "")
	if err == nil || h.Type() != "" {
		return target, err
	}
	if defaultType == "" && len(sc.Types) > 1 {
		return target, usagef("hint %s names no type: give one with --type; the schema has %s", h, strings.Join(sc.Names(), ", "))
	}
	if _, has := sc.Types[defaultType]; !has && defaultType != "" {
		return target, noTypeError(defaultType, sc)
	}
	return h.Resolve(sc, defaultType)
}

// withHint adds the hint to an error about an entry.
func withHint(hint string, err error) error {
	if !aboutEntry(err) {
		return err
	}
	return fmt.Errorf("%s: %w", printable(hint), err)
}

// aboutEntry reports whether an error is about a single entry, so that other entries may be fine.
func aboutEntry(err error) bool {
	return errors.Is(err, userdb.ErrNotFound) || errors.Is(err, userdb.ErrCorrupt)
}
