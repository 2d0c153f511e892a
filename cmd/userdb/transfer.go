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

	"github.com/coffeenode/userdb/internal/ownfile"
	"github.com/coffeenode/userdb/maintain"
)

type exportCmd struct {
	Hint    string `arg:"" name:"HINT" optional:"" help:"One entry, with all that is held of it; without it, all entries."`
	Secrets bool   `help:"Also password hashes: keep the output where nobody else can read it."`
}

func (*exportCmd) Help() string {
	return `Prints one JSON line an entry: its type, its facets, its tertiary records, and since when it is
disabled. 'userdb import' reads that. Entries come in no order, and no lock is held.

Examples:
  userdb export > users.jsonl
  userdb export email=alice@example.com
  userdb export --secrets > backup.jsonl`
}

// patient: a large store takes its time.
func (*exportCmd) patient() {}

func (c *exportCmd) Run(ctx context.Context, s *session) error {
	db, err := s.open(ctx)
	if err != nil {
		return err
	}
	var unreadable failures
	bar := newProgress(s.std.err, time.Now)
	o := maintain.ExportOptions{
		Secrets: c.Secrets, Type: s.Type,
		Unreadable: func(err error) { unreadable.note(err) },
		Progress:   func(done int64) { bar.show(fmt.Sprintf("%d entries, %s", done, bar.rate(done))) },
	}
	if c.Hint != "" {
		p, err := s.at(ctx, c.Hint)
		if err != nil {
			return err
		}
		o.Only = p.hint.Of(p.typ.Name())
	}
	_, err = maintain.Export(ctx, db, io.Writer(s.out), o)
	bar.end()
	return firstOf(notWhole(firstOf(err, s.out.flush())), unreadable.unread())
}

// notWhole makes an error also of a reader that went away: what it kept would pass for a backup.
func notWhole(err error) error {
	if enough(err) {
		return fmt.Errorf("%v: the export is not whole", err)
	}
	return err
}

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
	r.rejects = &rejectFile{path: rejects}
	if rejects == "" || c.DryRun {
		r.o.Refused = r.tell
		return nil
	}
	if r.file != nil && sameFile(r.file, rejects) {
		return usagef("%s is the input: name another file for the refused lines", shown(rejects))
	}
	r.o.Rejects = r.rejects
	if r.o.Resume.Report.Refused > 0 {
		return r.rejects.again()
	}
	return nil
}

// sameFile reports whether there is a file at a path, and it is f.
func sameFile(f *os.File, path string) bool {
	is, err := f.Stat()
	there, terr := os.Stat(path)
	return err == nil && terr == nil && os.SameFile(is, there)
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
	_, err := os.Lstat(r.state)
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
	if r.o.Resume, err = readState(r.state); err != nil {
		return usagef("%s cannot be read: %v; remove it to begin anew", shown(r.state), err)
	}
	r.last = r.o.Resume
	return nil
}

// maxState is how long a state may be, in bytes: several times what any is.
const maxState = 4 << 10

func readState(path string) (state maintain.ImportState, err error) {
	f, err := ownfile.Reopen(path, os.O_RDONLY)
	if err != nil {
		return state, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxState))
	if err != nil {
		return state, err
	}
	if json.Unmarshal(text, &state) != nil || state.ID == "" || state.Lines <= 0 {
		return state, errors.New("it is not what an import has left")
	}
	return state, nil
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
	f, err := ownfile.Create(r.state + ".new")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = firstOf(err, f.Close()); err != nil {
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
	f    *os.File
}

// again opens what an interrupted import has begun.
func (r *rejectFile) again() (err error) {
	r.f, err = ownfile.Reopen(r.path, os.O_WRONLY|os.O_APPEND)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return usagef("refused lines would go there: %v; move it away, or name another file with --rejects", err)
	}
	return nil
}

func (r *rejectFile) Write(p []byte) (int, error) {
	if r.f == nil {
		var err error
		if r.f, err = create(r.path); err != nil {
			return 0, err
		}
	}
	return r.f.Write(p)
}

// create makes a file anew; names like /dev/stderr are taken as they are.
func create(path string) (*os.File, error) {
	if strings.HasPrefix(filepath.Clean(path), "/dev/") {
		return os.OpenFile(path, os.O_WRONLY, 0)
	}
	return ownfile.Create(path)
}

func (r *rejectFile) close() error {
	if r == nil || r.f == nil {
		return nil
	}
	return r.f.Close()
}
