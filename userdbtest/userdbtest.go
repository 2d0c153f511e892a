// Package userdbtest gives each test of an application its own store: in memory, with cheap
// password hashes and a clock that the test controls, filled from files, and checked at the end.
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
// The store is a real one, embedded: all rules and uniqueness apply, and nothing is mocked. The
// package works in tests only.
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

// TB holds the methods that New needs of a *testing.T, a *testing.B or a *rapid.T.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(f func())
}

// A Store is the store of one test. It is safe for concurrent use.
type Store struct {
	*userdb.DB        // for the application under test, which may close it
	Clock      *Clock // the clock of the store
	t          TB
}

// An Option configures New.
type Option func(*options)

type options struct {
	userdb userdb.Options
	files  []func(*Store)
}

// Schema sets the schema of the store. The default is schema.User().
func Schema(s schema.Schema) Option { return func(o *options) { o.userdb.Schema = s } }

// With sets the options that an application would pass to userdb.Open. All of them apply, except
// CacheSize, which an embedded store does not need. If u has no schema, the schema of an earlier
// Schema or With remains.
func With(u userdb.Options) Option {
	return func(o *options) {
		if len(u.Schema.Types) == 0 {
			u.Schema = o.userdb.Schema
		}
		o.userdb = u
	}
}

// Fixtures fills the store from files, as Store.Load does.
func Fixtures(fsys fs.FS, names ...string) Option {
	return func(o *options) { o.files = append(o.files, func(s *Store) { s.t.Helper(); s.Load(fsys, names...) }) }
}

// New opens a store that is empty except for Fixtures. When the test ends or the DB is closed, the
// records in all namespaces are checked, each broken invariant fails the test, and the store is
// removed. If the store cannot be opened or filled, New ends the test.
func New(t TB, all ...Option) *Store {
	t.Helper()
	if !testing.Testing() {
		panic("userdbtest: used outside a test: its password hashes protect nobody")
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
	if err := view.HooksOf(db).UseCheapHashes(); err != nil {
		return errors.Join(err, db.Close())
	}
	s.DB, err = view.Reconfigure(db, func(c *view.Config) {
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

// A checkedEngine checks the records of its store when it is closed, by the application or at the
// end of the test.
type checkedEngine struct {
	store.Engine
	close func() error
}

func (c *checkedEngine) Close() error { return c.close() }

// Type returns the view of a declared type. If the schema does not declare the name, Type ends the
// test.
func (s *Store) Type(name string) *userdb.Type {
	s.t.Helper()
	t, err := s.DB.Type(name)
	if err != nil {
		s.t.Fatalf("userdbtest: %v", err)
	}
	return t
}

// Load adds the entries in files to the store. Files that end in .jsonl or .ndjson hold JSON lines
// as an export writes them; files that end in .csv hold CSV with a header. Lines without a type are
// of type user, and clear passwords are in clear_password. If a file cannot be read or a line is
// refused, Load ends the test.
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
			s.t.Fatalf("userdbtest: %s: some lines were refused", name)
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

// Check fails the test for each broken invariant. Nothing may write while it runs. It is also
// called at the end of the test.
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

// check checks the records in one namespace. It uses the schema that is stored there, since a view
// of the application may have another schema than the one that New was given.
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
