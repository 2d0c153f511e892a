// Command userdb keeps accounts in Redis or, where no store is named, in a file: entries that are
// found by any identifier they own. See userdb --help.
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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/connect"
	"github.com/coffeenode/userdb/internal/embedded"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

func main() { os.Exit(run(os.Args[1:], standard())) }

// stdio is what a run reads and writes.
type stdio struct {
	in       io.Reader
	out, err io.Writer
	term     terminal // nil: standard input is no terminal
	width    int      // of the terminal that out is, in characters; 0: it is not one
}

func standard() stdio {
	return stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr, term: findTerminal(), width: widthOf(os.Stdout)}
}

// run does what a command line says and returns the exit code.
func run(args []string, std stdio) int {
	logging.Disable()              // what the client has to say stands in its errors
	signal.Ignore(syscall.SIGPIPE) // so that a closed output is an error, which ends the run quietly
	s := newSession(std)
	err := s.parse(args)
	if err == nil {
		err = s.execute()
	}
	return report(std.err, s.JSON, err)
}

const (
	// grace is how long an interrupted command may take to end by itself. Nothing is left half done
	// when it does not: changes are all or nothing in the store.
	grace = 500 * time.Millisecond
	// saveGrace is grace for a command that saves how far it came.
	saveGrace = 10 * time.Second
	// serveGrace is grace for a service, which lets requests end.
	serveGrace = 25 * time.Second
)

// execute runs the command until it is done or interrupted. The first signal ends its context, the second one kills.
func (s *session) execute() error {
	if s.do == nil {
		help := s.help.String()
		return cmp.Or(s.out.say(help, strings.TrimSuffix(help, "\n")), s.out.flush())
	}
	patience := grace
	switch {
	case s.is(saving):
		patience = saveGrace
	case s.is(serves):
		patience = serveGrace
	}
	ctx, cancel := context.WithCancelCause(userdb.WithActor(context.Background(), userdb.Actor{Who: "command"}))
	end, abandon := context.WithCancelCause(context.Background())
	signals, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(signals, func() {
		stop()
		cancel(errInterrupted)
		time.AfterFunc(patience, func() { abandon(errInterrupted) })
	})
	_, err := unlessDone(end, func() (any, error) { return nil, cmp.Or(s.do(ctx), s.out.flush()) })
	return err
}

// A session is one run of one command: its flags, what it is to do, its output, and its store once it is open.
type session struct {
	globals
	yes, fromStdin, batch bool // --yes, --password-stdin, --batch

	guarded bool // words stood after --
	agreed  bool // the schema of --schema does not contradict the stored one
	std     stdio
	out     *output
	help    bytes.Buffer // what the library printed, where only help is asked for

	do     func(context.Context) error // nil: print help
	traits []trait
	log    *slog.Logger
	db     *userdb.DB

	observers []userdb.Observer
}

func newSession(std stdio) *session {
	return &session{std: std, out: &output{w: bufio.NewWriterSize(std.out, 64<<10), live: isTerminal(std.out)}}
}

// A trait is what sets some commands apart.
type trait int

const (
	unlimited trait = iota // there is no --timeout but the one that is given
	asking                 // it asks a person, which takes any time, with the store closed: see session.ask
	public                 // visitors may see the output: nothing in it concerns the operator, or tells entries apart
	opened                 // the store is open when it begins
	saving                 // when it is interrupted, it finishes what it has begun, and saves how far it came
	byUID                  // a bare word is a UID, and nothing else
	serves                 // it runs until it is told to end, which is no failure
	reading                // it changes nothing, and makes no store where the one that is named does not exist
)

func (s *session) is(t trait) bool { return slices.Contains(s.traits, t) }

// run makes f what a verb does with the words of its line. The library only reads the line: execute runs f later.
func (s *session) run(f func(ctx context.Context, words []string) error, traits ...trait) func(*cobra.Command, []string) error {
	return func(_ *cobra.Command, words []string) error {
		s.traits = traits
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

// readingIf gives a verb the trait reading where its flags say so.
func (s *session) readingIf(so func() bool, run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, words []string) error {
		err := run(c, words)
		if so() {
			s.traits = append(s.traits, reading)
		}
		return err
	}
}

// firstLine reports whether a word stands for the first line of standard input: - does, but not after --, where
// a script has what a visitor wrote.
func (s *session) firstLine(word string) bool { return word == "-" && !s.guarded }

// timeout is how long the command may take, or serve to begin; 0 is without end.
func (s *session) timeout() time.Duration {
	switch {
	case s.Timeout != nil:
		return *s.Timeout
	case s.is(unlimited):
		return 0
	}
	return 30 * time.Second
}

// timed gives f the time that the command may take, and closes the store after it.
func (s *session) timed(ctx context.Context, f func(context.Context) error) error {
	most := s.timeout()
	if s.is(serves) { // it is timed until its store is open
		most = 0
	}
	return within(ctx, most, func(ctx context.Context) error { return cmp.Or(f(ctx), s.close()) })
}

// open connects to the store, and chooses the schema: the one that was named, else the one in the
// database, else the built-in one.
func (s *session) open(ctx context.Context) error {
	if s.db != nil {
		return nil
	}
	url := s.Store
	if url == "" {
		path, err := embedded.DefaultPath()
		if err != nil {
			return usagef("no store: %v (--store or USERDB_STORE)", err)
		}
		url = "file:" + path
	}
	ns, err := recordkey.ParseNamespace(s.Namespace)
	if err != nil {
		return usagef("--namespace: %v", err)
	}
	sc, err := s.namedSchema(ctx, schema.Schema{})
	if err != nil {
		return err
	}
	if err := s.there(); err != nil {
		return err
	}
	db, err := userdb.Open(ctx, url, userdb.Options{Logger: s.log, Namespace: ns, Schema: sc, OnSchema: userdb.SchemaLater, Observers: s.observers, History: s.History})
	if err != nil {
		return err
	}
	if s.db = db; s.Schema == "" {
		err = s.useStored(ctx)
	}
	return err
}

// there refuses to read a file that was named and does not exist: a name that was mistyped would pass for an empty store,
// and become one.
func (s *session) there() error {
	path := connect.File(s.Store)
	if path == "" || !s.is(reading) || embedded.Exists(path) {
		return nil
	}
	return fmt.Errorf("%w: %s", errNoStore, shown(path))
}

// useStored reads and writes by the schema in the database, if there is one.
func (s *session) useStored(ctx context.Context) error {
	stored, err := migrate.StoredSchema(ctx, s.db)
	if err != nil || len(stored.Types) == 0 {
		return err
	}
	view, err := s.db.With(stored)
	if err == nil {
		s.db = view
	}
	return err
}

func (s *session) close() error {
	db := s.db
	if s.db = nil; db == nil {
		return nil
	}
	return db.Close()
}

// namedSchema is the schema of --schema, or otherwise.
func (s *session) namedSchema(ctx context.Context, otherwise schema.Schema) (schema.Schema, error) {
	if s.Schema == "" {
		return otherwise, nil
	}
	f, err := openUntil(ctx, s.Schema)
	if ctx.Err() != nil {
		return otherwise, stalled(ctx, s.Schema)
	}
	if err != nil {
		return otherwise, usagef("--schema: %v", err)
	}
	defer f.Close()
	sc, err := schema.Load(until(ctx, f))
	if ctx.Err() != nil {
		return otherwise, stalled(ctx, s.Schema)
	}
	if errors.Is(err, schema.ErrSchema) {
		return sc, fmt.Errorf("--schema %s: %w", s.Schema, err)
	} else if err != nil {
		return sc, usagef("--schema: %v", err)
	}
	return sc, nil
}

// typ is the view of one type.
func (s *session) typ(ctx context.Context, name string) (*userdb.Type, error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	t, err := s.db.Type(name)
	if err != nil {
		return nil, fmt.Errorf("%w; there is %s", err, strings.Join(s.db.Schema().Names(), ", "))
	}
	return t, s.agrees(ctx)
}

// agrees refuses a schema of --schema that contradicts the stored one: by it nothing would be found, or the wrong entries, and
// that would pass for what is there. While records are being brought to another schema, it may be that one.
func (s *session) agrees(ctx context.Context) error {
	if s.Schema == "" || s.agreed {
		return nil
	}
	stored, err := migrate.StoredSchema(ctx, s.db)
	if errors.Is(err, userdb.ErrCorrupt) { // a check with a schema may mend that
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range s.db.Schema().Names() {
		is, has := stored.Types[name]
		relation, difference := s.db.Schema().Types[name].Against(is.Whole())
		if !has || relation != schema.Differs {
			continue
		}
		begun, err := migrate.BegunSchema(ctx, s.db)
		if err != nil {
			return err
		}
		if _, underWay := begun.Types[name]; !underWay {
			return fmt.Errorf("%w: type %s: %s; use the stored schema ('userdb schema show'), or bring the records over with 'userdb schema apply'",
				userdb.ErrSchemaMismatch, shown(name), difference)
		}
	}
	s.agreed = true
	return nil
}

// A subject is what an operator's text points at: a hint, and the view of its type.
type subject struct {
	text string
	hint hints.Hint
	typ  *userdb.Type
}

// subject reads a hint and finds its type.
func (s *session) subject(ctx context.Context, text string) (subject, error) {
	p, err := s.subjects(ctx, []string{text})
	if err != nil {
		return subject{}, err
	}
	return p[0], nil
}

// subjects reads hints. A bare word that is no UID is a value of any secondary field, but for verbs that go by UIDs.
func (s *session) subjects(ctx context.Context, texts []string) ([]subject, error) {
	all := make([]subject, len(texts))
	words := map[string][]int{} // by type
	for i, text := range texts {
		p, err := s.asItIs(ctx, text)
		if err != nil {
			return nil, err
		}
		if all[i] = p; !s.is(byUID) {
			if _, is := p.hint.Word(); is {
				words[p.typ.Name()] = append(words[p.typ.Name()], i)
			}
		}
	}
	for _, of := range words {
		if err := settle(ctx, all, of); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// settle has those of some subjects, which are bare words of one type, that no entry has as its UID be values of any secondary
// field.
func settle(ctx context.Context, all []subject, of []int) error {
	typ, hs := all[of[0]].typ, make([]hints.Hint, len(of))
	for i, at := range of {
		hs[i] = all[at].hint
	}
	i := 0
	for _, err := range typ.FindAll(ctx, hs...) {
		if err != nil && !aboutEntry(err) {
			return err
		}
		if word, _ := hs[i].Word(); errors.Is(err, userdb.ErrNotFound) {
			all[of[i]].hint = hints.Any(word).Of(typ.Name())
		}
		i++
	}
	return nil
}

// asItIs reads a hint as the library does.
func (s *session) asItIs(ctx context.Context, text string) (subject, error) {
	h, err := hints.Parse(text)
	if err != nil {
		return subject{}, err
	}
	if err := s.open(ctx); err != nil {
		return subject{}, err
	}
	target, err := resolve(h, s.db.Schema(), s.Type)
	if err != nil {
		return subject{}, err
	}
	t, err := s.typ(ctx, target.Type)
	return subject{text, h, t}, err
}

// onSubject does f with the subject that a hint points at.
func (s *session) onSubject(text string, f func(context.Context, subject) error) func(context.Context) error {
	return func(ctx context.Context) error {
		p, err := s.subject(ctx, text)
		if err != nil {
			return err
		}
		return named(text, f(ctx, p))
	}
}

// runOn makes f what a verb does with the subject that its first word names, and the other words.
func (s *session) runOn(
	f func(ctx context.Context, p subject, words []string) error, traits ...trait,
) func(*cobra.Command, []string) error {
	return s.run(func(ctx context.Context, words []string) error {
		return s.onSubject(words[0], func(ctx context.Context, p subject) error { return f(ctx, p, words[1:]) })(ctx)
	}, traits...)
}

// resolve reads a hint as one of the type that it names, else as one of the type that is meant.
func resolve(h hints.Hint, sc schema.Schema, meant string) (hints.Target, error) {
	target, err := h.Resolve(sc, "")
	if err == nil || h.Type() != "" {
		return target, err
	}
	return h.Resolve(sc, meant)
}

// named says in an error about an entry which hint it was.
func named(hint string, err error) error {
	if !aboutEntry(err) {
		return err
	}
	return fmt.Errorf("%s: %w", shown(hint), err)
}

// aboutEntry reports whether an error is about one entry, so that others may be well.
func aboutEntry(err error) bool {
	return errors.Is(err, userdb.ErrNotFound) || errors.Is(err, userdb.ErrCorrupt)
}
