package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coffeenode/userdb/maintain"
)

type importCmd struct {
	File        string `arg:"" name:"FILE" help:"JSON lines as 'userdb export' prints them, or CSV with a header (.csv); - is standard input."`
	CSV         bool   `help:"The input is CSV, whatever its name."`
	OnDuplicate string `placeholder:"DO" enum:"fail,skip,update" default:"fail" help:"Where an entry is there, or has the identifier: fail (refuse the line), skip or update (bring it up to date)."`
	Rejects     string `placeholder:"FILE" help:"Where refused lines go, in the form of the input (FILE.rejects beside the input)."`
	DryRun      bool   `help:"Write nothing; say what would come of it."`
	Resume      bool   `help:"Go on with an import that was interrupted."`
}

func (*importCmd) Help() string {
	return `Each entry is written whole or not at all. CSV columns are facets by name, sets as words or JSON,
and password (a hash), clear_password, ~isa (the type). Refused lines go to a file, with the
reasons, to be mended and imported again; then the exit code is 1. How far it came is kept in
FILE.import meanwhile: after an interruption, the same with --resume goes on from there.

Examples:
  userdb import users.jsonl
  userdb import staff.csv --on-duplicate update --dry-run`
}

// patient: a large input takes its time.
func (*importCmd) patient() {}

// tidy: what was begun is finished and noted before an interrupted import ends.
func (*importCmd) tidy() {}

// An importRun is one import: its input, and what it keeps beside it.
type importRun struct {
	c       *importCmd
	s       *session
	in      io.Reader
	file    *os.File // where in comes from; nil: standard input
	size    int64    // of the input; 0: not known
	state   string   // the file of the state; "": none is kept
	o       maintain.ImportOptions
	bar     *progress
	last    maintain.ImportState
	rejects *rejectFile
}

func (c *importCmd) Run(ctx context.Context, s *session) error {
	r := &importRun{c: c, s: s, bar: newProgress(s.std.err, time.Now)}
	defer r.close()
	if err := r.prepare(ctx); err != nil {
		return err
	}
	db, err := s.open(ctx)
	if err != nil {
		return err
	}
	report, err := maintain.Import(ctx, db, r.in, r.o)
	r.bar.end()
	if cerr := r.rejects.close(); err == nil {
		err = cerr
	}
	return r.conclude(report, err)
}

func (r *importRun) prepare(ctx context.Context) error {
	c := r.c
	r.o = maintain.ImportOptions{
		Type: r.s.Type, CSV: c.CSV || strings.EqualFold(filepath.Ext(c.File), ".csv"),
		OnDuplicate: c.OnDuplicate, DryRun: c.DryRun, Save: r.save,
	}
	rejects := c.Rejects
	if c.File == "-" {
		if c.Resume {
			return usagef("--resume needs a file: standard input cannot be read again")
		}
		r.in = until(ctx, r.s.std.in)
	} else {
		if err := r.openFile(ctx); err != nil {
			return err
		}
		if rejects == "" {
			rejects = c.File + ".rejects"
		}
		if err := r.takeState(); err != nil {
			return err
		}
	}
	r.rejects = &rejectFile{path: rejects, more: r.o.Resume.ID != ""}
	if rejects != "" && !c.DryRun {
		r.o.Rejects = r.rejects
	} else {
		r.o.Refused = r.tell
	}
	return nil
}

func (r *importRun) openFile(ctx context.Context) error {
	f, err := os.Open(r.c.File)
	if err != nil {
		return usagef("%v", err)
	}
	r.file = f
	info, err := f.Stat()
	switch {
	case err != nil:
		return usagef("%v", err)
	case info.IsDir():
		return usagef("%s is a directory", shown(r.c.File))
	case info.Mode().IsRegular():
		r.in, r.size = f, info.Size()
	default:
		r.in = until(ctx, f)
	}
	return nil
}

// until reads from r until ctx ends: a pipe whose writer is silent does not hold up who wants to stop.
func until(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	go func() {
		_, err := io.Copy(in, r)
		in.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { in.CloseWithError(context.Cause(ctx)) })
	return out
}

// takeState reads how far an interrupted import of the file came.
func (r *importRun) takeState() error {
	if r.c.DryRun {
		return nil
	}
	r.state = r.c.File + ".import"
	text, err := os.ReadFile(r.state)
	switch {
	case errors.Is(err, os.ErrNotExist) && r.c.Resume:
		return usagef("%s does not exist: no import of %s was interrupted", shown(r.state), shown(r.c.File))
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return usagef("%v", err)
	case !r.c.Resume:
		return usagef("an import of %s was interrupted: --resume goes on; remove %s to begin anew", shown(r.c.File), shown(r.state))
	}
	if json.Unmarshal(text, &r.o.Resume) != nil || r.o.Resume.ID == "" {
		return usagef("%s cannot be read: remove it to begin anew", shown(r.state))
	}
	r.last = r.o.Resume
	return nil
}

// save keeps how far the import came, so that a crash at any moment leaves the old state or the new.
func (r *importRun) save(state maintain.ImportState) error {
	r.last = state
	done := fmt.Sprintf("%d lines, %s%s", state.Lines, r.bar.rate(state.Lines-r.o.Resume.Lines), r.bar.left(state.Bytes-r.o.Resume.Bytes, r.size-r.o.Resume.Bytes))
	r.bar.show(done)
	if r.state == "" {
		return nil
	}
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.state+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(r.state+".new", r.state)
}

// tell names a refused line where no file takes it.
func (r *importRun) tell(line int64, reason string) {
	r.bar.end()
	fmt.Fprintf(r.s.std.err, "line %d: %s\n", line, oneLine(reason))
}

func (r *importRun) close() {
	if r.file != nil {
		r.file.Close() // only ever read
	}
}

// conclude says what the import did.
func (r *importRun) conclude(report maintain.Report, err error) error {
	if err != nil {
		if r.last.Lines > 0 && r.state != "" {
			fmt.Fprintf(r.s.std.err, "%s done with; --resume goes on from there\n", count(r.last.Lines, "line"))
		} else if r.last.Lines > 0 {
			fmt.Fprintf(r.s.std.err, "%s done with\n", count(r.last.Lines, "line"))
		}
		return r.unread(err)
	}
	if r.state != "" {
		if err := os.Remove(r.state); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	text := fmt.Sprintf("%s read: %d created, %d updated, %d skipped, %d refused",
		count(report.Read, "line"), report.Created, report.Updated, report.Skipped, report.Refused)
	if err := r.s.out.say(report, text); err != nil {
		return err
	}
	if report.Refused == 0 {
		return nil
	}
	if r.o.Rejects != nil {
		return fmt.Errorf("%w: %s; see %s", errRefused, count(report.Refused, "line"), shown(r.rejects.path))
	}
	return fmt.Errorf("%w: %s", errRefused, count(report.Refused, "line"))
}

// unread says how much of a file was not read.
func (r *importRun) unread(err error) error {
	var unread *maintain.ReadError
	if r.size == 0 || !errors.As(err, &unread) {
		return err
	}
	return fmt.Errorf("%w (%d of %d bytes of %s were not read)", err, r.size-unread.Offset, r.size, shown(r.c.File))
}

var errRefused = errors.New("not all was imported")

// A rejectFile is made when there is something to write. It may hold what nobody else should read.
type rejectFile struct {
	path string
	more bool // an interrupted import has begun it
	f    *os.File
}

func (r *rejectFile) Write(p []byte) (int, error) {
	if r.f == nil {
		how := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
		if r.more {
			how = os.O_WRONLY | os.O_CREATE | os.O_APPEND
		}
		var err error
		if r.f, err = os.OpenFile(r.path, how, 0o600); err != nil {
			return 0, err
		}
	}
	return r.f.Write(p)
}

func (r *rejectFile) close() error {
	if r == nil || r.f == nil {
		return nil
	}
	return r.f.Close()
}
