// Package userdbtest gives tests of applications a store of their own: in memory, with password hashes that take no time and
// a clock that a test moves, filled from files, and checked at the end.
//
//	func TestSignIn(t *testing.T) {
//		t.Parallel()
//		s := userdbtest.New(t, userdbtest.Fixtures(os.DirFS("testdata"), "users.jsonl"))
//		server := newServer(s.DB)
//		…
//		s.Clock.Advance(time.Hour) // the link of the mail has expired
//		…
//	}
//
// The store is the real one, embedded: all rules and all uniqueness hold, and nothing is mocked. It works in tests alone.
package userdbtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/embedded"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TB is what New needs of a *testing.T, a *testing.B or a *rapid.T.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(f func())
}

// A Store is the store of one test. It is safe for concurrent use.
type Store struct {
	*userdb.DB        // for the application under test, which may close it
	Clock      *Clock // what the store goes by
	t          TB
}

// An Option is for New.
type Option func(*options)

type options struct {
	userdb userdb.Options
	files  []func(*Store)
}

// Schema is the schema of the store. Without it, it is schema.User().
func Schema(s schema.Schema) Option { return func(o *options) { o.userdb.Schema = s } }

// With are options as an application gives them to userdb.Open: all of them count but Cache, of which an embedded store has no
// need.
func With(u userdb.Options) Option { return func(o *options) { o.userdb = u } }

// Fixtures are files that the store is filled from, as with Store.Load.
func Fixtures(fsys fs.FS, names ...string) Option {
	return func(o *options) { o.files = append(o.files, func(s *Store) { s.t.Helper(); s.Load(fsys, names...) }) }
}

// New opens a store that is empty but for Fixtures. When the test ends, or the DB is closed, all records are checked, those of
// all namespaces, and each broken invariant fails the test; then the store is gone. What cannot be opened or filled ends the
// test.
func New(t TB, all ...Option) *Store {
	t.Helper()
	if !testing.Testing() {
		panic("userdbtest: not in a test: its password hashes protect nobody")
	}
	var o options
	for _, option := range all {
		option(&o)
	}
	s := &Store{Clock: &Clock{t: t, now: time.Now().Truncate(time.Millisecond)}, t: t}
	if err := s.open(o.userdb); err != nil {
		t.Fatalf("userdbtest: opening a store: %v", err)
	}
	for _, load := range o.files {
		load(s)
	}
	return s
}

func (s *Store) open(o userdb.Options) error {
	db, err := userdb.Open(embedded.WithClock(context.Background(), s.Clock.Now), "memory:", o)
	if err != nil {
		return err
	}
	if err := view.Cheapen(db); err != nil {
		return errors.Join(err, db.Close())
	}
	s.DB, err = view.With(db, func(c *view.Config) {
		c.Clock = s.Clock.Now
		c.Engine = &checkedEngine{Engine: c.Engine, close: sync.OnceValue(func() error { s.Check(); return db.Close() })}
	})
	if err != nil {
		return errors.Join(err, db.Close())
	}
	s.t.Cleanup(func() {
		s.t.Helper()
		if err := s.Close(); err != nil {
			s.t.Errorf("userdbtest: closing the store: %v", err)
		}
	})
	return nil
}

// A checked engine is checked before it is closed, by the application or by the end of the test.
type checkedEngine struct {
	store.Engine
	close func() error
}

func (c *checkedEngine) Close() error { return c.close() }

// Type is the view of a declared type. A name that the schema does not have ends the test.
func (s *Store) Type(name string) *userdb.Type {
	s.t.Helper()
	t, err := s.DB.Type(name)
	if err != nil {
		s.t.Fatalf("userdbtest: %v", err)
	}
	return t
}

// Load puts the entries of files into the store: JSON lines, as export writes them, in files that end in .jsonl or .ndjson, and
// CSV with a header in those that end in .csv. Lines that name no type are of type user; clear passwords come as
// clear_password. A file that cannot be read ends the test, and so does a line that is refused.
func (s *Store) Load(fsys fs.FS, names ...string) {
	s.t.Helper()
	for _, name := range names {
		refused := false
		err := s.load(fsys, name, func(line int64, reason string) {
			refused = true
			s.t.Errorf("userdbtest: %s, line %d: %s", name, line, reason)
		})
		if err != nil {
			s.t.Fatalf("userdbtest: %s: %v", name, err)
		}
		if refused {
			s.t.Fatalf("userdbtest: %s: not all of it was taken", name)
		}
	}
}

func (s *Store) load(fsys fs.FS, name string, refused func(int64, string)) error {
	o := transfer.ImportOptions{Refused: refused}
	switch ext := path.Ext(name); ext {
	case ".jsonl", ".ndjson":
	case ".csv":
		o.CSV = true
	default:
		return fmt.Errorf("a file that ends in %q; want .jsonl, .ndjson or .csv", ext)
	}
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = transfer.Import(context.Background(), s.DB, f, o)
	return err
}

// Check fails the test on each broken invariant, in the middle of it: nothing may write meanwhile. At the end New does so.
func (s *Store) Check() {
	s.t.Helper()
	inside, err := migrate.Namespaces(context.Background(), s.DB)
	if err != nil {
		s.t.Errorf("userdbtest: looking for namespaces: %v", err)
		return
	}
	s.check(view.Of(s.DB).NS)
	for _, n := range inside {
		s.check(n.Namespace)
	}
}

// check goes by the schema that is stored in a namespace: a view of the application's may have another than New was given.
func (s *Store) check(ns recordkey.Namespace) {
	s.t.Helper()
	db, err := s.In(ns)
	var stored schema.Schema
	if err == nil {
		stored, err = migrate.StoredSchema(context.Background(), db)
	}
	if err == nil && len(stored.Types) > 0 {
		db, err = db.With(stored)
	}
	if err != nil {
		s.t.Errorf("userdbtest: checking the records: %v", err)
		return
	}
	for p, err := range check.Run(context.Background(), db, check.Options{}) {
		switch {
		case err != nil:
			s.t.Errorf("userdbtest: checking the records: %v", err)
		case p.Severity == check.SeverityError:
			s.t.Errorf("userdbtest: the store is damaged: %s", p)
		}
	}
}
