package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/embedded"
	"github.com/coffeenode/userdb/maintain"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A session is one run of one command: its flags, its output, and its store once it is open.
type session struct {
	globals
	std  stdio
	out  *output
	most time.Duration // that the command may take; 0: no end
	log  *slog.Logger
	db   *userdb.DB

	guarded bool // words stood after --
}

// firstLine reports whether a word stands for the first line of standard input: - does, but not after --, where
// a script has what a visitor wrote.
func (s *session) firstLine(word string) bool { return word == "-" && !s.guarded }

// An asker wants something from a person before it runs. The time for that is not limited, and the
// store must not be left open: somebody else may want it.
type asker interface {
	ask(ctx context.Context, s *session) error
}

func (s *session) work(ctx context.Context, c command) error {
	var err error
	if s.most, err = s.limit(c); err != nil {
		return err
	}
	s.log = s.logger(c)
	if a, ok := c.(asker); ok {
		if err := a.ask(ctx, s); err != nil {
			return err
		}
	}
	return s.timed(ctx, func(ctx context.Context) error { return c.Run(ctx, s) })
}

// timed gives f the time that a command may take, and closes the store behind it.
func (s *session) timed(ctx context.Context, f func(context.Context) error) error {
	if s.most > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.most, errTimeout)
		defer cancel()
	}
	err := f(ctx)
	if cerr := s.close(); err == nil {
		err = cerr
	}
	if err != nil && ctx.Err() != nil {
		return late(ctx, s.most, err)
	}
	return err
}

// limit is how long the command may take; 0 is without end.
func (s *session) limit(c command) (time.Duration, error) {
	_, isPatient := c.(patient)
	switch {
	case s.Timeout != nil && *s.Timeout < 0:
		return 0, usagef("--timeout %v: want a time such as 30s, or 0 for none", *s.Timeout)
	case s.Timeout != nil:
		return *s.Timeout, nil
	case isPatient:
		return 0, nil
	}
	return defaultTimeout, nil
}

// open connects to the store, and chooses the schema: the one that was named, else the one in the
// database, else the built-in one.
func (s *session) open(ctx context.Context) (*userdb.DB, error) {
	if s.db != nil {
		return s.db, nil
	}
	url, err := s.url()
	if err != nil {
		return nil, err
	}
	o := userdb.Options{Logger: s.log}
	if o.Namespace, err = recordkey.ParseNamespace(s.Namespace); err != nil {
		return nil, usagef("--namespace: %v", err)
	}
	if s.Schema != "" {
		if o.Schema, err = s.schemaFile(); err != nil {
			return nil, err
		}
	}
	if s.db, err = userdb.Open(ctx, url, o); err != nil {
		s.db = nil
		return nil, err
	}
	if s.Schema == "" {
		err = s.useStored(ctx)
	}
	return s.db, err
}

// useStored reads and writes by the schema in the database, if there is one.
func (s *session) useStored(ctx context.Context) error {
	stored, err := maintain.StoredSchema(ctx, s.db)
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
	if s.db == nil {
		return nil
	}
	err := s.db.Close()
	s.db = nil
	return err
}

func (s *session) url() (string, error) {
	if s.Store != "" {
		return s.Store, nil
	}
	path, err := embedded.DefaultPath()
	if err != nil {
		return "", usagef("no store: %v (--store or USERDB_STORE)", err)
	}
	return "file:" + path, nil
}

func (s *session) schemaFile() (schema.Schema, error) {
	f, err := os.Open(s.Schema)
	if err != nil {
		return schema.Schema{}, usagef("--schema: %v", err)
	}
	defer f.Close()
	sc, err := schema.Load(f)
	if err != nil && !errors.Is(err, schema.ErrSchema) {
		return sc, usagef("--schema: %v", err)
	}
	if err != nil {
		return sc, fmt.Errorf("--schema %s: %w", s.Schema, err)
	}
	return sc, nil
}

// schemaAlone is the schema for what needs no store.
func (s *session) schemaAlone() (schema.Schema, error) {
	if s.Schema == "" {
		return schema.User(), nil
	}
	return s.schemaFile()
}

// typ is the view of one type.
func (s *session) typ(ctx context.Context, name string) (*userdb.Type, error) {
	db, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	t, err := db.Type(name)
	if err != nil {
		return nil, fmt.Errorf("%w; there is %s", err, strings.Join(db.Schema().Names(), ", "))
	}
	return t, nil
}

// A place is what an operator's text points at: a hint, and the view of its type.
type place struct {
	text string
	hint hints.Hint
	typ  *userdb.Type
}

// at reads a hint and finds its type.
func (s *session) at(ctx context.Context, text string) (place, error) {
	h, err := hints.Parse(text)
	if err != nil {
		return place{}, err
	}
	db, err := s.open(ctx)
	if err != nil {
		return place{}, err
	}
	target, err := resolve(h, db.Schema(), s.Type)
	if err != nil {
		return place{}, err
	}
	t, err := s.typ(ctx, target.Type)
	return place{text, h, t}, err
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
func (p place) named(err error) error {
	if !aboutEntry(err) {
		return err
	}
	return fmt.Errorf("%s: %w", shown(p.text), err)
}

// aboutEntry says whether an error is about one entry, so that others may be well.
func aboutEntry(err error) bool {
	return errors.Is(err, userdb.ErrNotFound) || errors.Is(err, userdb.ErrCorrupt)
}

// failures gathers what is wrong with some of many, so that one line says it in the end.
type failures struct {
	of    int // how many were asked for; 0: unknown
	first error
	texts []string
}

// maxNamed is how many failures are named.
const maxNamed = 5

// add takes an error about one entry, and refuses any other.
func (f *failures) add(text string, err error) bool {
	if !aboutEntry(err) {
		return false
	}
	if f.first == nil {
		f.first = err
	}
	f.texts = append(f.texts, text)
	return true
}

func (f *failures) err() error {
	if len(f.texts) < 2 {
		if f.first == nil {
			return nil
		}
		return place{text: f.texts[0]}.named(f.first)
	}
	var named []string
	for _, text := range f.texts[:min(len(f.texts), maxNamed)] {
		named = append(named, shown(text))
	}
	if len(f.texts) > maxNamed {
		named = append(named, "…")
	}
	return fmt.Errorf("%w (%d of %d: %s)", f.first, len(f.texts), f.of, strings.Join(named, ", "))
}

// note takes an error about an entry of a listing, which names its key itself.
func (f *failures) note(err error) bool { return f.add("", err) }

// unread says in the end of a listing what was left out of it.
func (f *failures) unread() error {
	if len(f.texts) < 2 {
		return f.first
	}
	return fmt.Errorf("%d entries are left out; the first: %w", len(f.texts), f.first)
}
