// Package transfer imports entries into an account store from JSON lines or CSV, and exports them
// as JSON lines.
//
// An import works batch by batch, in one direction. It reads lines (jsonlines.go, csvrows.go),
// turns each into an entry and the change that creates it (line.go), writes the changes, and
// reports the outcome of each line (write.go, duplicates.go).
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
	"unicode/utf8"

	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// An ImportState describes how far an import has come, so that ImportOptions.Resume can continue
// it. It is stored as JSON.
type ImportState struct {
	ID    string `json:"id"`    // ID of the import, from which generated UIDs are derived
	Lines int64  `json:"lines"` // number of lines processed
	Bytes int64  `json:"bytes"` // size of those lines in the input
	Sum   string `json:"sum"`   // checksum of those lines
	// How is a checksum of the store, the namespace and the options that affect reading.
	How string `json:"how"`
	// Servers is a checksum that changes when a server restarts or when a replica takes over, or ""
	// if the servers do not report what it needs.
	Servers string `json:"servers,omitzero"`
	Report  Report `json:"report"`
}

// ErrInput is the error for an input that Import cannot read, or for invalid options.
var ErrInput = coded.New(userdb.CodeUsage, "bad input")

// ErrLost means that a server restarted, or that a replica took over, while an import ran, so that
// imported lines may be missing.
var ErrLost = coded.New(userdb.CodeUnavailable, "imported lines may be missing")

// A ReadError reports that the input of an import could not be read to its end. All lines before
// Line have been processed.
type ReadError struct {
	Line   int64 // first line of text that was not read, counted from 1
	Offset int64 // offset of that line in bytes
	Err    error // the reason; an ErrInput unless the reader failed
}

func (e *ReadError) Error() string {
	if unknown, ok := errors.AsType[*ColumnError](e.Err); ok {
		return fmt.Sprintf("%v; this line and everything after it were not read", unknown)
	}
	return fmt.Sprintf("reading the input: line %d and everything after it were not read: %v", e.Line, e.Err)
}

// Unwrap returns the reason.
func (e *ReadError) Unwrap() error { return e.Err }

// Import adds entries from JSON lines as Export writes them, or from CSV with a header. It writes
// each entry with all its tertiary records or not at all, with the same rules and uniqueness
// guarantees as Create, except that it does not fill in "added". Passwords are either hashes that
// login can verify or clear passwords (clear_password). Clear passwords must follow the policy of
// the type; Import hashes as many at a time as there are workers. If a line has no UID, Import
// derives one from the import's ID and the number and text of the line.
//
// A line duplicates an entry that has the line's UID or, if the line has no UID, all identifiers of
// the line. DuplicateSkip skips such lines. It refuses a line that only shares an identifier with
// another entry.
//
// With DuplicateUpdate, a line updates the entry with its UID or, without a UID, the entry with its
// identifiers. The facets of the line are added to those of the entry or replace them, and a
// tertiary record in the line replaces the entry's. A different password has the same effect as
// SetPassword, and a line that disables the entry the same as Disable: PasswordChanged is now,
// tokens become void, failed logins are forgotten, and events are reported. A password that an
// earlier import set does not count as different, even if a login has replaced its hash since. A
// password that was set in this store, not by an import, stays unless password_changed of the line
// is later. The dates in the line apply to new entries only, and are never later than now.
//
// From CSV, flat JSON and other products, Import leaves out a user name that the rules refuse, or
// that is the entry's own address, if the entry has another identifier. It refuses a new entry
// without an identifier unless WithoutIdentifier is set.
//
// If a column, a facet or a tertiary record is not declared by the schema, Import returns a
// *ColumnError and imports nothing: it first reads an input that can Seek to its end. From any
// other input it imports the lines before the undeclared name. All names in Map must occur in the
// input, and in CSV also those in Ignore.
//
// A line about a held value or a retired UID of another store (see Export) keeps the value or UID
// from other entries of this store. Import refuses it if another entry has or holds the value or
// has the UID, or if the schema does not hold values of the field or retire UIDs. It skips a hold
// that has ended, and one of a value that the entry has again.
//
// Memory use stays flat: Import holds some thousand lines at a time. It finishes lines in the order
// of the input. The report counts all lines so far, including those before Resume. When ctx ends,
// Import hashes no more passwords, finishes and saves within 20 seconds what it has started, and
// returns the cause of ctx; it waits for a Read in progress. If the input cannot be read to its
// end, Import processes the lines before that and returns a *ReadError. Any other error that is not
// about a single line also ends the import; Resume then continues from the last saved state. If an
// interrupted import created entries after its last saved state, the next one recognizes them and
// counts them as created.
//
// A server that restarts, or a replica that takes over, may lack lines that were imported. If this
// happened since Resume, Import calls Restarted and starts again from the first line, as if no line
// had been saved; it recognizes the entries that exist. If it happens during the import, Import
// processes the whole input and then returns ErrLost. Both need servers that report their
// replication IDs in INFO.
//
// The start of an import is recorded as an event if the context names an actor (userdb.WithActor)
// or histories are kept.
func Import(ctx context.Context, db *userdb.DB, r io.Reader, o ImportOptions) (Report, error) {
	im, err := newImporter(ctx, db, r, o)
	if err != nil {
		return Report{}, err
	}
	if !o.DryRun {
		im.NoteWork(ctx, view.EventImport, recordkey.Key{}, im.o.Type)
	}
	if err = im.run(ctx); err == nil {
		err = im.checkKept(ctx)
	}
	return im.state.Report, err
}

type importer struct {
	*view.View     // the view at the start of the import; see typeInForce
	db             *userdb.DB
	o              ImportOptions
	columns        columns
	src            source
	firebase       password.FirebaseScrypt
	model          string    // see productUsers
	clearPasswords bool      // Map names clear_password, so clear passwords can have any name
	sum            hash.Hash // checksum of the input
	sumBuffer      []byte    // buffer for the line added to sum last
	reading        reading   // the line that was parsed last
	state          ImportState
	resumed        bool
	namesChecked   bool // every name in the input is known to be valid
	// headerBytes is the size of the input before its lines: a byte order mark and a header.
	headerBytes  int64
	bytes        int64            // size of the lines read so far
	seen         map[uint64]int64 // the keys that a dry run has seen, by digest; see linesBefore
	trialRefused bool             // the line of the trial would be refused
	schemaStored []string         // types whose schema is known to be stored; see storeSchema
	// freeBatches are reused, since most of the memory of an import is in its batches.
	freeBatches []*batch
	firstSize   int // number of lines in the first batch
	batchSize   int // number of lines in later batches
	concurrent  int // number of batches in progress, after the first
}

const (
	firstBatch    = 100     // lines in the first batch
	importBatch   = 500     // lines in later batches
	bulkBatch     = 1000    // lines in later batches if each batch waits for a disk
	maxBatchBytes = 1 << 20 // input bytes in a batch, but for its last line
	maxConcurrent = 4       // batches in progress, so that the server has work meanwhile
)

// clearBatch is the number of lines with clear passwords in a batch. It is small because hashing is
// slow.
var clearBatch = max(16, runtime.GOMAXPROCS(0))

func newImporter(ctx context.Context, db *userdb.DB, r io.Reader, o ImportOptions) (*importer, error) {
	o.OnDuplicate, o.Type = cmp.Or(o.OnDuplicate, DuplicateFail), cmp.Or(o.Type, "user")
	if !slices.Contains([]string{DuplicateFail, DuplicateSkip, DuplicateUpdate}, o.OnDuplicate) {
		return nil, fmt.Errorf("%w: unknown action for duplicates: %s; want fail, skip or update", ErrInput, records.Quoted(o.OnDuplicate))
	}
	im := &importer{
		View: view.Of(db), db: db, o: o, sum: sha256.New(), state: o.Resume, resumed: o.Resume.ID != "", seen: map[uint64]int64{},
		clearPasswords: slices.Contains(slices.Collect(maps.Values(o.Map)), columnClear), firstSize: firstBatch, batchSize: importBatch, concurrent: maxConcurrent, reading: reading{own: map[string]string{}},
	}
	fingerprint, err := im.fingerprint(ctx)
	switch {
	case err != nil:
		return nil, err
	case !im.resumed:
		im.state = ImportState{ID: rand.Text(), How: fingerprint}
	case im.state.How != fingerprint:
		return nil, fmt.Errorf("%w: the import was started in another store or namespace, or with another type, form or mapping of its input", ErrInput)
	}
	if err := im.parseOptions(); err != nil {
		return nil, err
	}
	survey, err := im.Engine.Survey(ctx, false)
	if err != nil {
		return nil, err
	}
	im.checkServers(survey)
	if survey.SerialBulks {
		im.batchSize = bulkBatch
	}
	if survey.SerialBulks || o.DryRun {
		im.concurrent = 1
	}
	if err := im.checkInput(ctx, r); err != nil {
		return nil, err
	}
	im.src, err = im.openSource(r)
	return im, err
}

// checkServers starts an import again from the first line if the servers may have lost lines since
// it was interrupted.
func (im *importer) checkServers(s store.Survey) {
	now := s.ReplIDs()
	if !im.resumed || im.state.Servers == "" || now == "" {
		im.state.Servers = cmp.Or(im.state.Servers, now)
		return
	}
	if im.state.Servers == now {
		return
	}
	im.state = ImportState{ID: im.state.ID, How: im.state.How, Servers: now}
	if im.o.Restarted != nil {
		im.o.Restarted()
	}
}

// checkKept returns ErrLost if the servers may have lost lines while the import ran.
func (im *importer) checkKept(ctx context.Context) error {
	if im.o.DryRun || im.state.Servers == "" {
		return nil
	}
	s, err := im.Engine.Survey(ctx, false)
	if err != nil {
		return err
	}
	if now := s.ReplIDs(); now != "" && now != im.state.Servers {
		return fmt.Errorf("%w: a server restarted, or a replica took over, during the import", ErrLost)
	}
	return nil
}

// fingerprint returns a checksum of everything that determines what the lines of the input mean and
// where they go. It includes the secret of the store, which no other store has. An import that
// cannot be resumed leaves the secret out, so as not to create one.
func (im *importer) fingerprint(ctx context.Context) (string, error) {
	secret := ""
	if im.resumed || im.o.Save != nil && !im.o.DryRun {
		var err error
		if secret, err = im.Secret(ctx, ""); err != nil {
			return "", err
		}
	}
	mapped, ignored := maps.Clone(im.o.Map), slices.Sorted(slices.Values(im.o.Ignore))
	delete(mapped, "") // nil and empty maps are the same
	how := []any{
		secret, im.Config.NS.String(), im.o.Type, im.o.CSV, im.o.From, im.o.FromParams, len(mapped), mapped, ignored,
		im.o.Prepared, im.o.Pepper, im.o.WithoutPassword, im.o.WithoutIdentifier,
		im.o.Delimiter, im.o.Null, im.o.Zone != nil, im.o.Zone.String(), im.o.KeepIDs,
	}
	if len(im.o.Split) > 0 { // an older program may have begun an import without it
		how = append(how, im.o.Split)
	}
	text, _ := json.Marshal(how) // marshaling strings cannot fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// checkFormat checks the options that depend on the format of the input, and prepares the importer
// to verify hashes of a product.
func (im *importer) checkFormat() (err error) {
	_, known := productsByName[im.o.From]
	switch {
	case im.o.KeepIDs && im.o.From != "auth0":
		return fmt.Errorf("%w: only an export of auth0 has IDs with a prefix that can be kept", ErrInput)
	case !im.o.CSV && len(im.o.Split) > 0:
		return fmt.Errorf("%w: only cells of CSV are split; in JSON, \"values\" has all values of a field", ErrInput)
	case !im.o.CSV && (im.o.Delimiter != 0 || im.o.Null != ""):
		return fmt.Errorf("%w: a delimiter and a text for no value are only for CSV", ErrInput)
	case im.o.Delimiter != 0 && !validDelimiter(im.o.Delimiter):
		return fmt.Errorf("%w: the delimiter must be one character, and neither a quote nor a line break", ErrInput)
	case im.o.From == "" && im.o.FromParams == "":
	case im.o.From == "":
		return fmt.Errorf("%w: the parameters of a project are only for an export of firebase", ErrInput)
	case !known:
		return fmt.Errorf("%w: cannot read exports of %s; want one of %s", ErrInput, records.Quoted(im.o.From), strings.Join(Products(), ", "))
	case im.o.CSV:
		return fmt.Errorf("%w: an export of %s is JSON: export it as JSON, or import the table without naming a product", ErrInput, im.o.From)
	case im.o.FromParams != "" && im.o.From != "firebase":
		return fmt.Errorf("%w: hashes of %s have no parameters of a project", ErrInput, im.o.From)
	case im.o.FromParams != "":
		if im.firebase, err = firebaseParams(im.o.FromParams); err != nil {
			return fmt.Errorf("%w: the parameters of the project: %w", ErrInput, err)
		}
	}
	return nil
}

// parseOptions validates the options and prepares the importer to read.
func (im *importer) parseOptions() (err error) {
	if err := im.checkFormat(); err != nil {
		return err
	}
	primary := ""
	if im.o.From != "" {
		t, err := im.typeInForce(im.o.Type)
		if err != nil {
			return err
		}
		primary = t.Schema.Primary
	}
	if im.o.Prepared != "" || im.o.Pepper != "" {
		if _, err := password.Prepared(im.o.Prepared, im.o.Pepper, ""); err != nil {
			return fmt.Errorf("%w: %w", ErrInput, err)
		}
	}
	for field, separator := range im.o.Split {
		if !validSeparator(separator) {
			return fmt.Errorf("%w: the character that separates values of %s must be neither a quote nor a carriage return", ErrInput, records.Quoted(field))
		}
	}
	if im.o.Trial != nil && !im.o.DryRun {
		return fmt.Errorf("%w: only a dry run can try an account", ErrInput)
	}
	for _, name := range slices.Sorted(maps.Values(im.o.Map)) {
		if err := im.checkVerified(name); err != nil {
			return err
		}
	}
	im.columns, err = newColumns(im.o, primary)
	return err
}

// openSource starts to read an input.
func (im *importer) openSource(r io.Reader) (source, error) {
	in := bufio.NewReaderSize(r, 1<<20)
	markSize, err := skipMark(in)
	if err != nil {
		return nil, err
	}
	im.headerBytes = markSize
	if im.o.From != "" {
		return newProductUsers(in, im.headerBytes, im), nil
	}
	form, err := detectForm(in, im.o)
	lines := &jsonLines{r: in, size: im.headerBytes, columns: im.columns}
	switch {
	case err != nil:
		return nil, err
	case form == formList:
		return jsonList{newProductUsers(in, im.headerBytes, im), lines}, nil
	case form == formLines:
		return lines, nil
	}
	s, err := openCSV(in, im.o, markSize, im.resumed && im.state.Report.Refused > 0)
	if err == nil {
		im.headerBytes = s.offset + s.size
		err = im.resolveHeader(s)
	}
	return s, err
}

// skipMark skips the byte order mark of an input, and returns its size. It returns an error if the
// input is in another encoding, or in a form that no import reads.
func skipMark(in *bufio.Reader) (size int64, err error) {
	mark, err := in.Peek(len(byteOrderMark))
	switch {
	case err != nil && err != io.EOF:
		return 0, &ReadError{Line: 1, Err: err}
	case strings.HasPrefix(string(mark), "\xff\xfe"), strings.HasPrefix(string(mark), "\xfe\xff"), strings.Contains(string(mark), "\x00"):
		return 0, fmt.Errorf("%w: it is UTF-16: save it as UTF-8", ErrInput)
	case string(mark) == byteOrderMark:
		n, _ := in.Discard(len(mark)) // cannot fail: the bytes are buffered
		size = int64(n)
	}
	return size, otherForm(in)
}

// openCSV reads the header of an input of CSV, which begins at offset.
func openCSV(in *bufio.Reader, o ImportOptions, offset int64, headerWritten bool) (*csvRows, error) {
	sep, delimiter := cutSepLine(in)
	return newCSVRows(in, csvOptions{
		delimiter: cmp.Or(o.Delimiter, delimiter, ','), null: o.Null, sep: sep,
		offset: offset + int64(len(sep)), headerWritten: headerWritten,
	})
}

// validDelimiter reports whether a character can separate columns.
func validDelimiter(r rune) bool {
	return r != '"' && r != '\r' && r != '\n' && utf8.ValidRune(r) && r != utf8.RuneError
}

// byteOrderMark is at the start of texts that some programs write.
const byteOrderMark = "\ufeff"

// run reads and starts batches in one goroutine, and finishes them in the caller's, in the order of
// the input.
func (im *importer) run(ctx context.Context) error {
	if err := im.skipDone(); err != nil {
		return err
	}
	startCtx, stop := context.WithCancel(ctx)
	defer stop()
	finishing, cancel := withFinishTimeout(ctx)
	defer cancel()
	started, finished := make(chan *batch, maxConcurrent), make(chan *batch, maxConcurrent)
	var readErr error // from the input; what was read before is still written
	go func() {
		defer close(started)
		readErr = im.startBatches(startCtx, finishing, started, finished)
	}()
	var failed error
	for b := range started {
		if failed = im.finishBatch(finishing, b, failed); failed != nil {
			stop()
		}
		finished <- b
	}
	if ctx.Err() != nil && endsImport(failed) { // it failed because ctx ended
		failed = nil
	}
	return cmp.Or(failed, context.Cause(ctx), readErr)
}

// startBatches reads batches, prepares them and starts them, several at once. It returns an error
// only if the input could not be read. When ctx ends, it starts no more batches; those that it has
// started continue until finishing ends.
func (im *importer) startBatches(ctx, finishing context.Context, started chan<- *batch, finished <-chan *batch) error {
	var unfinished []*batch // of the started ones
	concurrent := 1         // the first batch stores the schema, which faster writes require
	for limit := im.firstSize; ; limit = im.batchSize {
		b := im.newBatch()
		more, readErr := im.fillBatch(b, limit)
		im.prepare(ctx, b)
		for len(unfinished) >= concurrent || slices.ContainsFunc(unfinished, b.conflicts) {
			select {
			case done := <-finished:
				unfinished, concurrent = unfinished[1:], im.concurrent
				if !done.isLong { // else its memory is not kept
					im.freeBatches = append(im.freeBatches, done)
				}
			case <-ctx.Done():
				return nil
			}
		}
		if ctx.Err() != nil { // b may be incomplete
			return nil
		}
		if len(b.lines) > 0 {
			b.comparing = ctx
			im.startBatch(finishing, b)
			unfinished = append(unfinished, b)
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

// conflicts reports whether two batches cannot be written at the same time: both need the same key,
// which either may claim or release, or both have a long line, which may take much memory.
func (b *batch) conflicts(o *batch) bool {
	return o.isLong && b.isLong || o.needs.Intersects(b.needs)
}

// skipDone skips the lines that the interrupted import processed. If the input is too short, the
// checksum differs.
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

// addToSum adds a line to the checksum of the input.
func (im *importer) addToSum(l *line) {
	im.sumBuffer = append(im.sumBuffer[:0], l.raw...)
	im.sum.Write(im.sumBuffer)
	im.bytes += l.size
}

func (im *importer) checksum() string { return hex.EncodeToString(im.sum.Sum(nil)) }

// A source reads the lines of an input.
type source interface {
	// next reads the next line and reports whether there is one. An error, which is a *ReadError,
	// ends the input.
	next(l *line) (more bool, err error)
	// mayHaveClearPassword reports whether a line may hold a clear password.
	mayHaveClearPassword(l *line) bool
	// parse reads the content of a line into r.
	parse(l *line, r *reading) error
	// reject writes a refused line in the form of the input, so that it can be corrected and
	// imported again.
	reject(w io.Writer, l *line) error
}
