// Package transfer brings entries into an account store and out of it: as JSON lines, or from CSV.
//
// An import runs in one direction, batch by batch: lines are read (jsonlines.go, csvrows.go), each becomes an entry and
// the change that creates it (line.go), and the changes are written and what became of each line is told (write.go,
// duplicates.go).
package transfer

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/userdb"
)

// What an import does about an entry that is there already, or of whose identifiers one is taken.
const (
	DuplicateFail   = "fail"   // it refuses the line
	DuplicateSkip   = "skip"   // it passes over the line
	DuplicateUpdate = "update" // it brings the entry up to date
)

// ImportOptions say what Import reads, and how. The zero ImportOptions are for JSON lines of entries that are new.
type ImportOptions struct {
	Type        string // of lines that name none; "": user
	CSV         bool   // the input is CSV with a header, not JSON lines
	OnDuplicate string // DuplicateFail (also ""), DuplicateSkip or DuplicateUpdate
	DryRun      bool   // write nothing, and say what would come of it
	// From names another product whose export the input is: see Products. "": none.
	From string
	// FromParams are the password hash parameters of a project of Firebase, as its console shows them or in JSON.
	FromParams string
	// Map says what columns of CSV, facets and tertiary records of JSON become: a field, or password, clear_password,
	// password_changed, disabled, ~disabled (true or false) and ~isa (the type). A key of a line of JSON that is named here, or
	// in Ignore, is a facet of a flat object. Nil: all keep their names.
	Map map[string]string
	// Ignore are columns, facets and tertiary records that are left out.
	Ignore []string
	// Extra keeps facets that the schema does not declare. It wants types that are open.
	Extra bool
	// Rejects takes the refused lines, in the form of the input, with their numbers and the reasons. Nil: they are only
	// counted.
	Rejects io.Writer
	// Resume goes on with an import of the same input that was interrupted, under the same Type, CSV, From, FromParams, Map and
	// Ignore. Zero: from the beginning.
	Resume ImportState
	// Save is told how far the import came, after each batch that is in the store for good. Nil: nobody is.
	Save func(ImportState) error
	// Refused is told of refused lines. Nil: nobody is.
	Refused func(line int64, reason string)
}

// A Report counts what an import or an export did.
type Report struct {
	Read    int64 `json:"read"` // entries, or lines
	Created int64 `json:"created"`
	Updated int64 `json:"updated"`
	Skipped int64 `json:"skipped"`
	Refused int64 `json:"refused"`
}

// An ImportState is how far an import came, for going on with ImportOptions.Resume. It is kept as JSON.
type ImportState struct {
	ID     string `json:"id"`    // of the import: UIDs that it makes up follow from it
	Lines  int64  `json:"lines"` // read and done with
	Bytes  int64  `json:"bytes"` // of the input that they take
	Sum    string `json:"sum"`   // a checksum of those
	How    string `json:"how"`   // a checksum of the store, the namespace and what the options say about reading
	Report Report `json:"report"`
}

// ErrInput is an input that Import cannot read, or options that say nothing.
var ErrInput = errors.New("bad input")

// A ReadError is an input of an import that could not be read to its end. All lines before Line are done with.
type ReadError struct {
	Line   int64 // the first line of text, from 1, that was not read, nor what comes after it
	Offset int64 // where it begins, in bytes
	Err    error // why; an ErrInput where it is not the reader that failed
}

func (e *ReadError) Error() string {
	if unknown, is := errors.AsType[*ColumnError](e.Err); is {
		return fmt.Sprintf("%v; this line, and what comes after it, was not read", unknown)
	}
	return fmt.Sprintf("reading the input: line %d, and what comes after it, was not read: %v", e.Line, e.Err)
}

// Unwrap returns the reason.
func (e *ReadError) Unwrap() error { return e.Err }

// Import brings in entries: JSON lines as Export writes them, or CSV with a header. Each entry is written with all its
// tertiary records or not at all, and all rules and all uniqueness hold as for Create; but "added" is not filled in.
// Passwords come as hashes that login verifies, or clear (clear_password), and are hashed then, as many at a time as
// there are workers, under the policy of the type. A UID that is left out is made up from the import's ID, the number
// and the text of the line.
//
// With DuplicateUpdate the entry that a line means by its UID, else by its identifiers, gets the facets of the line,
// besides those that it has; a tertiary record in the line replaces the entry's. Another hash or a clear password does
// what SetPassword does, and disabled what Disable does: PasswordChanged is now, tokens are void, failed logins are
// forgotten, events are told. The dates in the line are for new entries, and not later than now.
//
// A column, a facet or a tertiary record that the schema does not declare is a *ColumnError, and nothing is imported: an input
// that can Seek is read to its end before. Of any other input the lines before that one are done with. An input must have
// the names of Map, and a CSV those of Ignore.
//
// Memory stays flat: some thousand lines are held at a time. Lines are done with in their order. The report counts all
// lines so far, also those before Resume. When ctx ends, what was begun is finished and saved, and the error is ctx's;
// a Read that is under way is waited for. An input that cannot be read to its end is a *ReadError, and the lines before
// that are done with. Any other error that is not about one line ends it, too; the last state that was saved is where
// Resume goes on. An entry that an import created before it was cut off, and does not know of, is recognised and
// counted as created.
func Import(ctx context.Context, db *userdb.DB, r io.Reader, o ImportOptions) (Report, error) {
	im, err := newImporter(ctx, db, r, o)
	if err != nil {
		return Report{}, err
	}
	err = im.run(ctx)
	return im.state.Report, err
}

type importer struct {
	*view.View     // as it was at the beginning: see typ
	db             *userdb.DB
	o              ImportOptions
	columns        columns
	src            source
	firebase       password.FirebaseScrypt
	model          string    // see productUsers
	clearPasswords bool      // clear passwords may have any name
	sum            hash.Hash // of the input
	sumBuffer      []byte    // what was added to it last
	reading        reading   // of the line that was parsed last
	state          ImportState
	resumed        bool
	namesChecked   bool            // all names in the input mean something
	headerBytes    int64           // bytes of the input before its lines: a byte order mark, and a header
	bytes          int64           // of its lines, that were read
	seen           map[uint64]bool // digests of the keys that a dry run has met in its input
	freeBatches    []*batch        // what batches hold is most of an import's memory: they are used again
	firstSize      int             // lines of the first batch
	batchSize      int             // and of the others
	concurrent     int             // batches under way, after the first
}

const (
	firstBatch    = 100     // lines of the first batch
	importBatch   = 500     // of the others
	bulkBatch     = 1000    // where each batch waits for a disk
	maxBatchBytes = 4 << 20 // or so much of the input
	maxConcurrent = 4       // batches under way, so that the server never waits for us
)

// clearBatch is how many lines with clear passwords are prepared at once: they take their time.
var clearBatch = max(16, runtime.GOMAXPROCS(0))

func newImporter(ctx context.Context, db *userdb.DB, r io.Reader, o ImportOptions) (*importer, error) {
	o.OnDuplicate, o.Type = cmp.Or(o.OnDuplicate, DuplicateFail), cmp.Or(o.Type, "user")
	if !slices.Contains([]string{DuplicateFail, DuplicateSkip, DuplicateUpdate}, o.OnDuplicate) {
		return nil, fmt.Errorf("%w: on a duplicate %s; want fail, skip or update", ErrInput, records.Quoted(o.OnDuplicate))
	}
	im := &importer{
		View: view.Of(db), db: db, o: o, sum: sha256.New(), state: o.Resume, resumed: o.Resume.ID != "", seen: map[uint64]bool{},
		clearPasswords: slices.Contains(slices.Collect(maps.Values(o.Map)), columnClear), firstSize: firstBatch, batchSize: importBatch, concurrent: maxConcurrent, reading: reading{own: map[string]string{}},
	}
	fingerprint, err := im.fingerprint(ctx)
	switch {
	case err != nil:
		return nil, err
	case !im.resumed:
		im.state = ImportState{ID: rand.Text(), How: fingerprint}
	case im.state.How != fingerprint:
		return nil, fmt.Errorf("%w: the import was begun in another store or namespace, or with another type, form or mapping of its input", ErrInput)
	}
	if err := im.parseOptions(); err != nil {
		return nil, err
	}
	survey, err := im.Engine.Survey(ctx, false)
	if err != nil {
		return nil, err
	}
	if survey.Bulks {
		im.batchSize = bulkBatch
	}
	if survey.Bulks || o.DryRun {
		im.concurrent = 1
	}
	if err := im.checkInput(ctx, r); err != nil {
		return nil, err
	}
	im.src, err = im.openSource(r)
	return im, err
}

// how is a checksum of what decides what the lines of an input mean, and where they go: the secret of a store is in no other.
// An import that nobody can go on with makes none.
func (im *importer) fingerprint(ctx context.Context) (string, error) {
	secret := ""
	if im.resumed || im.o.Save != nil && !im.o.DryRun {
		var err error
		if secret, err = im.Secret(ctx); err != nil {
			return "", err
		}
	}
	mapped, ignored := maps.Clone(im.o.Map), slices.Sorted(slices.Values(im.o.Ignore))
	delete(mapped, "")             // nil and empty are one
	text, _ := json.Marshal([]any{ // texts cannot fail
		secret, im.Config.NS.String(), im.o.Type, im.o.CSV, im.o.From, im.o.FromParams, len(mapped), mapped, ignored,
	})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// understand finds out what the options say about the input.
func (im *importer) parseOptions() (err error) {
	_, known := productsByName[im.o.From]
	switch {
	case im.o.From == "" && im.o.FromParams == "":
	case im.o.From == "":
		return fmt.Errorf("%w: parameters of a project are for an export of firebase", ErrInput)
	case !known:
		return fmt.Errorf("%w: exports of %s cannot be read, but those of %s", ErrInput, records.Quoted(im.o.From), strings.Join(Products(), ", "))
	case im.o.CSV:
		return fmt.Errorf("%w: an export of %s is no CSV", ErrInput, im.o.From)
	case im.o.FromParams != "" && im.o.From != "firebase":
		return fmt.Errorf("%w: hashes of %s have no parameters of a project", ErrInput, im.o.From)
	case im.o.FromParams != "":
		if im.firebase, err = firebaseParams(im.o.FromParams); err != nil {
			return fmt.Errorf("%w: the parameters of the project: %w", ErrInput, err)
		}
	}
	primary := ""
	if known {
		t, err := im.typeInForce(im.o.Type)
		if err != nil {
			return err
		}
		primary = t.Schema.Primary
	}
	im.columns, err = newColumns(im.o, primary)
	return err
}

// open begins to read an input.
func (im *importer) openSource(r io.Reader) (source, error) {
	in, before := bufio.NewReaderSize(r, 1<<20), 0
	mark, err := in.Peek(len(byteOrderMark))
	switch {
	case err != nil && err != io.EOF:
		return nil, &ReadError{Line: 1, Err: err}
	case strings.HasPrefix(string(mark), "\xff\xfe"), strings.HasPrefix(string(mark), "\xfe\xff"):
		return nil, fmt.Errorf("%w: it is UTF-16: save it as UTF-8", ErrInput)
	case string(mark) == byteOrderMark:
		before, _ = in.Discard(len(mark)) // they are there
	}
	im.headerBytes = int64(before)
	switch {
	case im.o.From != "":
		return newProductUsers(in, im.headerBytes, im.o.From, im.firebase, &im.model), nil
	case !im.o.CSV:
		return &jsonLines{r: in, size: im.headerBytes, columns: im.columns}, nil
	}
	s, err := newCSVRows(in, im.headerBytes, im.resumed && im.state.Report.Refused > 0)
	if err == nil {
		im.headerBytes += s.size
		err = im.resolveHeader(s)
	}
	return s, err
}

// byteOrderMark stands at the beginning of texts that some programs write.
const byteOrderMark = "\ufeff"

// run reads and begins batches in one goroutine, and concludes them in the caller's, in the order of the input.
func (im *importer) run(ctx context.Context) error {
	if err := im.skipDone(); err != nil {
		return err
	}
	startCtx, stop := context.WithCancel(ctx)
	defer stop()
	started, finished := make(chan *batch, maxConcurrent), make(chan *batch, maxConcurrent)
	var readErr error // of the input: what was read before is written all the same
	go func() {
		defer close(started)
		readErr = im.startBatches(startCtx, started, finished)
	}()
	var failed error
	for b := range started {
		if failed = im.finishBatch(context.WithoutCancel(ctx), b, failed); failed != nil {
			stop()
		}
		finished <- b
	}
	return cmp.Or(failed, context.Cause(ctx), readErr)
}

// lead reads batches, prepares them and begins them, several at once. Its error is why the input could not be read.
func (im *importer) startBatches(ctx context.Context, started chan<- *batch, finished <-chan *batch) error {
	var before []*batch // begun, but not concluded
	concurrent := 1     // the first batch stores the schema, without which there is no short way
	for most := im.firstSize; ; most = im.batchSize {
		b := im.newBatch()
		more, readErr := im.fillBatch(b, most)
		im.prepare(ctx, b)
		shares := func(o *batch) bool { return o.needs.Meets(b.needs) } // a key that the one may take or give back
		for len(before) >= concurrent || slices.ContainsFunc(before, shares) {
			select {
			case done := <-finished:
				before, im.freeBatches, concurrent = before[1:], append(im.freeBatches, done), im.concurrent
			case <-ctx.Done():
				return nil
			}
		}
		if ctx.Err() != nil { // b may be cut off
			return nil
		}
		if len(b.lines) > 0 {
			im.startBatch(context.WithoutCancel(ctx), b)
			before = append(before, b)
			started <- b
		}
		if !more && readErr == nil && !im.namesChecked && im.bytes > 0 {
			readErr = im.columns.checkUnused()
		}
		if !more || readErr != nil {
			return readErr
		}
	}
}

// skip reads over what an interrupted import has done. Of an input that is too short the checksum differs.
func (im *importer) skipDone() error {
	for more, lines := true, im.state.Lines; more && lines > 0; lines-- {
		var l line
		var err error
		if more, err = im.src.next(&l); err != nil {
			return err
		}
		im.addToSum(&l)
	}
	if im.state.Lines > 0 && im.checksum() != im.state.Sum {
		return fmt.Errorf("%w: it is not the input whose import was interrupted, or it was changed since", ErrInput)
	}
	return nil
}

// digest adds a line to the checksum of the input.
func (im *importer) addToSum(l *line) {
	im.sumBuffer = append(im.sumBuffer[:0], l.raw...)
	im.sum.Write(im.sumBuffer)
	im.bytes += l.size
}

func (im *importer) checksum() string { return hex.EncodeToString(im.sum.Sum(nil)) }

// fill puts lines into a batch. An error is what ends the input after them.
func (im *importer) fillBatch(b *batch, most int) (more bool, err error) {
	more = true
	for size := int64(0); len(b.lines) < most && size < maxBatchBytes; {
		b.lines = append(b.lines, line{})
		l := &b.lines[len(b.lines)-1]
		if more, err = im.src.next(l); !more || err != nil {
			b.lines = b.lines[:len(b.lines)-1]
			break
		}
		if !im.namesChecked {
			if err = im.checkNames(im.src, l); err != nil {
				b.lines = b.lines[:len(b.lines)-1]
				err = &ReadError{Line: l.no, Offset: im.headerBytes + im.bytes, Err: err}
				break
			}
		}
		im.addToSum(l)
		if size += l.size; most > clearBatch && (im.clearPasswords || im.src.mayBeClear(l)) {
			most = clearBatch
		}
	}
	b.sum = im.checksum()
	return more, err
}

// A source reads an input.
type source interface {
	// next reads the next line, and reports whether there is one. An error, a *ReadError, ends the input.
	next(l *line) (more bool, err error)
	// mayBeClear reports whether a line may hold a clear password.
	mayBeClear(l *line) bool
	// parse reads what a line says.
	parse(l *line, r *reading) error
	// reject writes a refused line in the form of the input, so that it can be corrected and imported again.
	reject(w io.Writer, l *line) error
}
