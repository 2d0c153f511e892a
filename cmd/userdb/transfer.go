package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/internal/privatefile"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/password"
)

func exportCommand(s *session) *cobra.Command {
	var o transfer.ExportOptions
	c := &cobra.Command{
		Use:   "export [HINT]",
		Short: "Write entries as JSON lines",
		Long: `Write one entry with everything that is stored about it, or all entries. Each is one JSON line with
its type, its facets, its tertiary records and, if it is disabled, since when. 'userdb import' reads
these lines. Entries come in no order, and nothing is locked. Held values and retired UIDs have
their own lines, so that nobody else gets them in a store that imports the lines.`,
		Example: `  userdb export > users.jsonl
  userdb export email=alice@example.com
  userdb export --secrets > backup.jsonl`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			if err := s.checkNamedSchema(ctx); err != nil {
				return err
			}
			if o.Secrets {
				s.warnExposed()
			}
			if o.Type = s.defaultType(s.db.Schema()); len(words) > 0 {
				p, err := s.subject(ctx, words[0])
				if err != nil {
					return err
				}
				o.Only = p.hint.Of(p.typ.Name())
			}
			var unreadable failures
			o.Unreadable = func(err error) { unreadable.add("", err) }
			p := s.progress("", true)
			o.Progress = func(done int64) { p.show("%d entries, %s", done, p.rate(done)) }
			_, err := transfer.Export(ctx, s.db, s.out, o)
			if len(words) > 0 {
				err = withHint(words[0], err)
			}
			p.clear()
			if len(words) == 0 && err == nil {
				err = s.warnLeftOut(ctx)
			}
			if err = cmp.Or(err, s.out.flush()); brokenPipe(err) {
				// If the reader stopped early, what it got must not pass for a complete backup.
				err = fmt.Errorf("%v: the export is incomplete", err)
			}
			return cmp.Or(err, unreadable.err())
		}, unlimited, opened, reading, allTypes),
	}
	c.Flags().BoolVar(&o.Secrets, "secrets", false, "include password hashes: keep the output where nobody else can read it")
	return c
}

// warnLeftOut warns of each stored type that the schema of --schema lacks, because an export leaves
// its entries out.
func (s *session) warnLeftOut(ctx context.Context) error {
	if s.Schema == "" {
		return nil
	}
	stored, err := migrate.StoredSchema(ctx, s.db)
	if err != nil {
		return err
	}
	for _, name := range stored.Names() {
		if _, has := s.db.Schema().Types[name]; !has {
			text := fmt.Sprintf("type %s is stored, but is not in the schema of --schema: its entries are left out", printable(name))
			if err := errorOutput(s.std.err, s.JSON).print(map[string]string{"warning": text}, text); err != nil {
				return err
			}
		}
	}
	return nil
}

func importCommand(s *session) *cobra.Command {
	r := &importRun{s: s, o: transfer.ImportOptions{OnDuplicate: "fail"}}
	c := &cobra.Command{
		Use:   "import FILE",
		Short: "Import entries from JSON or CSV",
		Long: `Import entries from JSON lines, as 'userdb export' prints them, from a JSON list of such objects, or
from CSV with a header (.csv); - is standard input. Each entry is written completely or not at all.

CSV columns are facets by name, sets as words or JSON, and password (a hash), clear_password,
disabled (a date, or true or false), verified:FIELD (likewise) and ~isa (the type). --map can also
map to !disabled and disabled_until. With --split, a cell holds several values of a field: the first
becomes the facet, and a value that contains the separator is in quotes. If the schema does not know
a column or a facet, the whole file is refused.

Refused lines go to a file, with the reasons, for you to correct and import again; the first ten are
also reported, without their values. The exit code is then 1. FILE.import records the progress
meanwhile: after an interruption, the same command with --resume continues from there.

With --dry-run, --try checks whether one person could log in after the import. It exits 5 if not,
and 3 if no line has the identifier.`,
		Example: `  userdb import users.jsonl
  userdb import staff.csv --on-duplicate update --dry-run
  userdb import hr.csv --map E-Mail=email --map active=!disabled --ignore Phone
  userdb import crm.csv --split 'email=;'
  userdb import accounts.csv --dry-run --try Val --password-stdin < secret.txt`,
		RunE: s.run(r.run, unlimited, saving),
	}
	c.Flags().BoolVar(&r.o.CSV, "csv", false, "the input is CSV, whatever its name")
	choiceFlag(c, &r.o.OnDuplicate, "on-duplicate", "if the entry exists, `DO` this: fail (refuse the line), skip or update\n"+
		"(default fail); a line with an identifier of another entry is refused", "fail", "skip", "update")
	c.Flags().StringVar(&r.rejects.path, "rejects", "", "write refused lines to `FILE`, in the format of the input (default: the\n"+
		"name of the input with .rejects added)")
	c.Flags().BoolVar(&r.o.DryRun, "dry-run", false, "write nothing; say what would happen")
	choiceFlag(c, &r.o.From, "from", "the input is an export of `PRODUCT`: "+strings.Join(transfer.Products(), ", "), transfer.Products()...)
	c.Flags().StringVar(&r.params, "from-params", "", "`FILE` with the password hash parameters of a Firebase project")
	c.Flags().StringArrayVar(&r.maps, "map", nil, "import a column or facet as another field: `COLUMN=FIELD`; may be repeated")
	c.Flags().StringArrayVar(&r.o.Ignore, "ignore", nil, "leave out `COLUMN`; may be repeated; '*' leaves out all that --map does\nnot name")
	c.Flags().BoolVar(&r.o.WithoutPassword, "without-password", false, "if a password cannot be used, import the account without it")
	c.Flags().BoolVar(&r.o.WithoutIdentifier, "without-identifier", false, "also import accounts that have no identifier")
	choiceFlag(c, &r.o.Prepared, "prepared", "the product hashes not the password but this `FORM` of it: append,\n"+
		"md5-hex, sha1-hex, sha256-hex, sha384-hex, sha512-hex, sha256-base64,\nsha384-base64 or sha512-base64", password.PreparedForms()...)
	c.Flags().StringVar(&r.pepper, "pepper", "", "`FILE` with the pepper that --prepared append appends, on one line")
	c.Flags().StringVar(&r.trial.Identifier, "try", "", "check one account of a dry run: whether `IDENTIFIER` could log in with the\npassword that is asked for")
	c.Flags().BoolVar(&r.o.Extra, "extra", false, "keep facets that the schema does not declare, if the type is open")
	r.formFlags(c)
	c.Flags().BoolVar(&r.resume, "resume", false, "continue an import that was interrupted")
	return s.withStdin(c)
}

// An importRun is one import. It holds the input, and the files that the import writes next to it.
type importRun struct {
	s       *session
	file    string
	resume  bool
	maps    []string // COLUMN=FIELD
	params  string   // the file of --from-params
	pepper  string   // the file of --pepper
	trial   transfer.Trial
	o       transfer.ImportOptions
	in      io.Reader
	f       *os.File    // the source of in; nil for standard input
	info    os.FileInfo // of f
	size    int64       // of the input in bytes; 0 if unknown
	state   string      // the path of the state file; "" if no state is kept
	bar     *progress
	last    transfer.ImportState // the progress reported last
	saved   int64                // lines that the state file counts
	rejects rejectFile
	refused int64 // number of lines refused in this run
}

func (r *importRun) run(ctx context.Context, words []string) error {
	r.file, r.bar = words[0], r.s.progress("", true)
	defer func() { r.f.Close() }() // nil for standard input
	if err := r.prepare(ctx); err != nil {
		return err
	}
	if err := r.s.open(ctx); err != nil {
		return err
	}
	r.o.Type = r.s.defaultType(r.s.db.Schema())
	report, err := transfer.Import(ctx, r.s.db, r.in, r.o)
	r.bar.clear()
	return r.finish(report, cmp.Or(err, r.rejects.close()))
}

// rejectsSuffix is appended to the name of the input to name the file of refused lines.
const rejectsSuffix = ".rejects"

// isCSV reports whether the name of a file is that of a CSV file. It ignores rejectsSuffix, because
// refused lines have the format of the input.
func isCSV(name string) bool {
	for strings.HasSuffix(name, rejectsSuffix) {
		name = strings.TrimSuffix(name, rejectsSuffix)
	}
	return strings.EqualFold(filepath.Ext(name), ".csv")
}

func (r *importRun) prepare(ctx context.Context) error {
	r.o.Save, r.o.Restarted = r.save, r.restart
	if err := r.readMapsAndFiles(ctx); err != nil {
		return err
	}
	if err := r.prepareTrial(ctx); err != nil {
		return err
	}
	r.o.CSV = r.o.CSV || isCSV(r.file)
	switch {
	case r.resume && r.o.DryRun:
		return usagef("--resume cannot be used with --dry-run, which checks the whole file and records no progress")
	case r.resume && isStream(r.file):
		return usagef("--resume needs a file that can be read again, not standard input or a device")
	case r.file == "-":
		r.in = contextReader(ctx, r.s.std.in)
	default:
		if err := r.open(ctx); err != nil {
			return err
		}
		if isStream(r.file) {
			break
		}
		r.rejects.path = cmp.Or(r.rejects.path, r.file+rejectsSuffix)
		if err := r.loadState(); err != nil {
			return err
		}
	}
	return r.prepareRejects()
}

// prepareRejects sets where refused lines go. It returns an error if they cannot go there.
func (r *importRun) prepareRejects() error {
	if !isDevice(r.rejects.path) {
		r.o.Refused = r.printRefused
	}
	if r.rejects.path == "" || r.o.DryRun {
		return nil
	}
	if r.rejects.path == "-" {
		return usagef("--rejects -: refused lines must go to a file")
	}
	if rejects, err := os.Stat(r.rejects.path); err == nil && os.SameFile(r.info, rejects) {
		return usagef("%s is the input: name another file for the refused lines", printable(r.rejects.path))
	}
	if dir, err := os.Stat(filepath.Dir(r.rejects.path)); err != nil || !dir.IsDir() {
		return usagef("refused lines would go to %s, whose directory does not exist: name another file with --rejects", printable(r.rejects.path))
	}
	r.rejects.std = r.s.std
	r.o.Rejects = &r.rejects
	if r.o.Resume.Report.Refused > 0 {
		return r.rejects.reopen()
	}
	return nil
}

// readMapsAndFiles parses the values of --map, and reads the files of --from-params and --pepper.
func (r *importRun) readMapsAndFiles(ctx context.Context) error {
	r.o.Map = map[string]string{}
	for _, pair := range r.maps {
		at := strings.LastIndex(pair, "=") // a column name may contain =, but a field name does not
		if at <= 0 || at == len(pair)-1 {
			return usagef("--map %s: want COLUMN=FIELD", printable(pair))
		}
		column, field := pair[:at], pair[at+1:]
		if earlier := r.o.Map[column]; earlier != "" && earlier != field {
			return usagef("--map %s: it is already mapped to %s", printable(pair), printable(earlier))
		}
		r.o.Map[column] = field
	}
	var err error
	if r.o.FromParams, err = readParams(ctx, "--from-params", r.params); err != nil {
		return err
	}
	if r.o.Pepper, err = readParams(ctx, "--pepper", r.pepper); err == nil && r.pepper != "" {
		r.o.Pepper = strings.TrimRight(r.o.Pepper, "\r\n")
		if r.o.Prepared != "append" || r.o.Pepper == "" || strings.ContainsAny(r.o.Pepper, "\r\n") {
			return usagef("--pepper: want --prepared append, and a file of one line")
		}
	}
	return err
}

func (r *importRun) open(ctx context.Context) (err error) {
	r.f, err = openWithContext(ctx, r.file)
	if ctx.Err() != nil {
		return stalledError(ctx, r.file)
	}
	if err != nil {
		return usagef("%v", err)
	}
	r.info, err = r.f.Stat()
	switch {
	case err != nil:
		return usagef("%v", err)
	case r.info.IsDir():
		return usagef("%s is a directory", printable(r.file))
	case r.info.Mode().IsRegular():
		r.in, r.size = r.f, r.info.Size()
	default:
		r.in = contextReader(ctx, r.f)
	}
	return nil
}

// loadState reads the state file that an interrupted import left. It returns an error if the file
// exists without --resume, or does not exist with --resume. In a dry run it does nothing.
func (r *importRun) loadState() error {
	if r.o.DryRun {
		return nil
	}
	r.state = r.file + ".import"
	_, err := os.Lstat(r.state) // readState checks whether it is safe to open
	switch {
	case errors.Is(err, os.ErrNotExist) && r.resume:
		return usagef("%s does not exist: no import of %s was interrupted", printable(r.state), printable(r.file))
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return usagef("%v", err)
	case !r.resume:
		return usagef("an import of %s was interrupted: --resume continues it; remove %s to start over", printable(r.file), printable(r.state))
	}
	if r.o.Resume, err = readState(r.state); err != nil {
		return usagef("%s cannot be read: %v; remove it to start over", printable(r.state), err)
	}
	r.last, r.saved = r.o.Resume, r.o.Resume.Lines
	return nil
}

// maxParams limits the files of --from-params and --pepper, in bytes.
const maxParams = 64 << 10

// readParams reads the small file of a flag. It returns "" for an empty path.
func readParams(ctx context.Context, flag, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	f, err := openWithContext(ctx, path)
	var text []byte
	if err == nil {
		defer f.Close()
		text, err = io.ReadAll(io.LimitReader(contextReader(ctx, f), maxParams+1))
	}
	switch {
	case ctx.Err() != nil:
		return "", stalledError(ctx, path)
	case err != nil:
		return "", usagef("%s: %v", flag, err)
	case len(text) > maxParams:
		return "", usagef("%s: %s is longer than 64 KiB", flag, printable(path))
	}
	return string(text), nil
}

// maxState limits a state file, in bytes. It is several times the size of any state.
const maxState = 4 << 10

func readState(path string) (state transfer.ImportState, err error) {
	f, err := privatefile.Reopen(path, os.O_RDONLY)
	if err != nil {
		return state, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxState))
	if err == nil && (json.Unmarshal(text, &state) != nil || state.ID == "" || state.Lines <= 0) {
		err = errors.New("it does not hold the progress of an import")
	}
	return state, err
}

// restart prepares for an import that starts again from the first line.
func (r *importRun) restart() {
	r.o.Resume, r.last, r.saved = transfer.ImportState{}, transfer.ImportState{}, 0
	r.rejects.discard()
	text := "a server restarted, or a replica took over, since the import was interrupted: it starts again from the first line, because lines may be missing"
	// If this fails, the import is still right.
	_ = errorOutput(r.s.std.err, r.s.JSON).print(map[string]string{"warning": text}, text)
}

// save shows and records the progress of the import. A crash at any moment leaves the old state or
// the new one.
func (r *importRun) save(state transfer.ImportState) error {
	r.last = state
	from := r.o.Resume
	r.bar.show("%d lines, %s%s", state.Lines, r.bar.rate(state.Lines-from.Lines), r.bar.remaining(state.Bytes-from.Bytes, r.size-from.Bytes))
	if r.state == "" {
		return nil
	}
	if err := r.writeState(state); err != nil {
		return fmt.Errorf("recording progress: %w", err)
	}
	r.saved = state.Lines
	return nil
}

// writeState writes the state file.
func (r *importRun) writeState(state transfer.ImportState) error {
	f, err := privatefile.Create(r.state + ".new")
	if err != nil {
		return err
	}
	if err := cmp.Or(json.NewEncoder(f).Encode(state), f.Close()); err != nil {
		os.Remove(r.state + ".new") // half a state is of no use, and the disk may be full
		return err
	}
	return os.Rename(r.state+".new", r.state)
}

// maxShown is how many refused lines are printed if a file collects all of them.
const maxShown = 10

// printRefused counts a refused line, and prints its number and why it was refused, but no value of
// it. If a file collects all refused lines, printRefused prints only the first maxShown.
func (r *importRun) printRefused(line int64, reason string) {
	if r.refused++; r.o.Rejects != nil && r.refused > maxShown {
		return
	}
	r.bar.clear()
	type refused struct {
		Line   int64  `json:"line"`
		Reason string `json:"reason"`
	}
	text := fmt.Sprintf("line %d: %s", line, oneLine(reason))
	// If this fails, the line is still counted.
	_ = errorOutput(r.s.std.err, r.s.JSON).print(map[string]refused{"refused": {line, reason}}, text)
}

// finish prints the result of the import and returns its error. It removes the state file if the
// import is complete.
func (r *importRun) finish(report transfer.Report, err error) error {
	if err != nil {
		return r.fail(err)
	}
	if r.state != "" {
		if err := os.Remove(r.state); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	skipped := "skipped"
	if r.o.OnDuplicate == transfer.DuplicateUpdate {
		skipped = "unchanged"
	}
	text := fmt.Sprintf("%s read: %d created, %d updated, %d %s, %d refused",
		plural(report.Read, "line"), report.Created, report.Updated, report.Skipped, skipped, report.Refused)
	text = strings.Join(append([]string{text}, report.Notes()...), "\n")
	if err := cmp.Or(r.s.out.print(report, text), r.reportTrial()); err != nil || report.Refused == 0 {
		return err
	}
	err = fmt.Errorf("%w: %d of %d", errRefused, report.Refused, report.Read)
	if r.o.Rejects == nil {
		return err
	}
	if more := r.refused - maxShown; more > 0 && !r.s.JSON {
		fmt.Fprintf(r.s.std.err, "and %d more\n", more)
	}
	if isDevice(r.rejects.path) {
		return err
	}
	again := "userdb import " + printable(r.rejects.path)
	if r.o.CSV && !isCSV(r.rejects.path) {
		again += " --csv"
	}
	again = "'" + again + "'"
	if len(r.maps)+len(r.o.Ignore)+len(r.o.Split) > 0 || r.o.From != "" {
		again += " with the same flags"
	}
	return fmt.Errorf("%w; correct them in %s, then %s", err, printable(r.rejects.path), again)
}

// fail prints how many lines a failed import processed, and returns its error with advice.
func (r *importRun) fail(err error) error {
	more := ""
	switch {
	case r.state == "":
		if errors.Is(err, transfer.ErrLost) {
			err = fmt.Errorf("%w; import again with --on-duplicate skip", err)
		}
	case errors.Is(err, transfer.ErrLost):
		err = fmt.Errorf("%w; --resume imports what is missing", err)
	case r.saved == r.last.Lines:
		more = "; --resume continues from there"
	case r.saved > 0:
		more = fmt.Sprintf("; --resume continues after %s, because later progress was not recorded", plural(r.saved, "line"))
	default:
		more = "; this was not recorded, so import again with --on-duplicate skip, not with --resume"
	}
	if unknown, ok := errors.AsType[*transfer.ColumnError](err); ok {
		name, keep := "NAME", ""
		if plainName.MatchString(unknown.Name) {
			name = unknown.Name
		}
		switch {
		case unknown.Open:
			keep = ", --extra keeps it"
		case r.o.Extra:
			keep = "; --extra keeps such facets only in types that are open"
		}
		err = fmt.Errorf("%w (--map %s=FIELD names the field, --ignore %s leaves it out, --ignore '*' leaves out all that have no --map%s)", err, name, name, keep)
		if r.last.Lines == 0 {
			err = fmt.Errorf("%w; nothing was imported", err)
		}
	}
	switch {
	case r.last.Lines == 0 && r.rejects.failed:
		fmt.Fprintf(r.s.std.err, "the first lines may have been imported; name a file that can be written with --rejects, and import again with --on-duplicate skip, not with --resume\n")
	case r.last.Lines == 0:
	case r.o.DryRun:
		fmt.Fprintf(r.s.std.err, "%s checked\n", plural(r.last.Lines, "line"))
	default:
		fmt.Fprintf(r.s.std.err, "%s done%s\n", plural(r.last.Lines, "line"), more)
	}
	if unread, ok := errors.AsType[*transfer.ReadError](err); ok && r.size > 0 {
		return fmt.Errorf("%w (%d of %d bytes of %s were not read)", err, r.size-unread.Offset, r.size, printable(r.file))
	}
	return err
}

// plainName matches a name that needs no quotes in a shell and is short enough for a message.
var plainName = regexp.MustCompile(`^[\pL\d_.@:-]{1,40}$`)

var errRefused = errors.New("lines refused")
