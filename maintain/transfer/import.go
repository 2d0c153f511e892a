// Package transfer brings entries into an account store and out of it: as JSON lines, or from CSV.
package transfer

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"runtime"
	"strings"
	"sync"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/userdb"
)

// What an import does about an entry that is there already, or of whose identifiers one is taken.
const (
	DuplicateFail   = "fail"   // it refuses the line
	DuplicateSkip   = "skip"   // it passes over the line
	DuplicateUpdate = "update" // it brings the entry up to date
)

// ImportOptions say what Import reads, and how. The zero ImportOptions are for JSON lines of entries that are
// new.
type ImportOptions struct {
	Type        string // of lines that name none; "": user
	CSV         bool   // the input is CSV with a header, not JSON lines
	OnDuplicate string // DuplicateFail (also ""), DuplicateSkip or DuplicateUpdate
	DryRun      bool   // write nothing, and say what would come of it
	// Rejects takes the refused lines, in the form of the input, with their numbers and the reasons. Nil:
	// they are only counted.
	Rejects io.Writer
	// Resume goes on with an import of the same input that was interrupted. Zero: from the beginning.
	Resume ImportState
	// Save is told how far the import came, after each batch that is in the store for good. Nil: nobody is.
	Save func(ImportState) error
	// Refused is told of refused lines. Nil: nobody is.
	Refused func(line int64, reason string)
}

// Import brings in entries: JSON lines as Export writes them, or CSV with a header. Each entry is written
// whole, with its tertiary records, or not at all, and all rules and all uniqueness hold as for Create; but
// "added" is not filled in. Passwords come as hashes that login verifies, or clear (clear_password), and are
// hashed then, as many at a time as there are workers, under the policy of the type. A UID that is left
// out is made up from the import's ID, the number and the text of the line.
//
// With DuplicateUpdate the entry that a line means by its UID, else by its identifiers, gets the facets
// of the line, besides those that it has; a tertiary record in the line takes the place of the entry's. Another hash
// or a clear password does what SetPassword does, and disabled what Disable does: PasswordChanged is now, tokens are
// void, failed logins are forgotten, events are told. The dates in the line are for new entries, and not later than now.
//
// Memory stays flat: some thousand lines are held at a time. Lines are done with in their order. The
// report counts all lines so far, also those before Resume. When ctx ends, what was begun is finished and
// saved, and the error is ctx's; a Read that is under way is waited for. An input that cannot be read to its
// end is a *ReadError, and the lines before that are done with. Any other error that is not about one line ends
// it, too; the last state that was saved is where Resume goes on. An entry that an import has created before it was cut off, and
// does not know of, is recognised and counted as created.
func Import(ctx context.Context, db *userdb.DB, r io.Reader, o ImportOptions) (Report, error) {
	im, err := newImporter(ctx, view.Of(db), r, o)
	if err != nil {
		return Report{}, err
	}
	err = im.run(ctx)
	return im.state.Report, err
}

type importer struct {
	*view.View
	o       ImportOptions
	src     lineSource
	rejects rejects
	state   ImportState
	resumed bool
	seen    *sightings // in a dry run
	free    chan *batch
	first   int  // lines of the first batch
	most    int  // and of the others
	bulks   bool // one batch is over before the next begins
	parsing sync.Mutex

	// Of the one who reads.
	sum  hash.Hash
	text []byte
}

func newImporter(ctx context.Context, c *view.View, r io.Reader, o ImportOptions) (*importer, error) {
	switch o.OnDuplicate {
	case "":
		o.OnDuplicate = DuplicateFail
	case DuplicateFail, DuplicateSkip, DuplicateUpdate:
	default:
		return nil, fmt.Errorf("%w: on a duplicate %s; want fail, skip or update", ErrInput, records.Quoted(o.OnDuplicate))
	}
	if o.Type == "" {
		o.Type = "user"
	}
	im := &importer{View: c, o: o, sum: sha256.New(), free: make(chan *batch, 2*mostAhead), state: o.Resume, resumed: o.Resume.ID != ""}
	if !im.resumed {
		im.state = ImportState{ID: newImportID()}
	}
	survey, err := c.Engine.Survey(ctx)
	if err != nil {
		return nil, err
	}
	im.bulks = survey.Bulks
	if im.first, im.most = firstBatch, bulkBatch; !im.bulks {
		im.most = importBatch
	}
	if o.DryRun {
		im.seen = newSightings()
	}
	return im, im.open(r)
}

func newImportID() string {
	var b [12]byte
	rand.Read(b[:]) // never fails, says its documentation
	return hex.EncodeToString(b[:])
}

// open chooses the form of the input.
func (im *importer) open(r io.Reader) error {
	if !im.o.CSV {
		im.src = &jsonLines{r: bufio.NewReaderSize(r, 1<<20), kind: im.o.Type}
		if im.o.Rejects != nil {
			im.rejects = jsonRejects{im.o.Rejects}
		}
		return nil
	}
	rows, err := newCSVRows(r, im.o.Type)
	if err != nil {
		return err
	}
	im.src = rows
	if im.o.Rejects != nil {
		im.rejects = &csvRejects{w: csv.NewWriter(im.o.Rejects), header: rows.header, begun: im.resumed && im.state.Report.Refused > 0}
	}
	return nil
}

const (
	firstBatch  = 100     // lines that are written together
	importBatch = 500     // and later
	bulkBatch   = 1000    // where each batch waits for a disk
	importBytes = 4 << 20 // or so much of the input
	clearBatch  = 16      // with clear passwords, which take their time
)

// run reads in one goroutine, parses in others, and writes in the caller's, in order.
func (im *importer) run(ctx context.Context) error {
	if err := im.skip(); err != nil {
		return err
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	parsers := runtime.GOMAXPROCS(0)
	todo, order := make(chan *batch), make(chan *batch, parsers)
	var unread error // of the input: what was read before is written all the same
	var group sync.WaitGroup
	group.Go(func() {
		defer close(todo)
		defer close(order)
		unread = im.read(reading, todo, order)
	})
	for range parsers {
		group.Go(func() {
			for b := range todo {
				im.parse(reading, b)
				close(b.ready)
			}
		})
	}
	err := im.write(ctx, order)
	stop()
	for range order { // the reader may wait to hand one over
	}
	group.Wait()
	return cmp.Or(err, context.Cause(ctx), unread)
}

// read cuts the input into batches.
func (im *importer) read(ctx context.Context, todo, order chan<- *batch) error {
	for most := im.first; ; most = im.most {
		b := im.blank()
		more, err := im.fill(b, most)
		if len(b.lines) > 0 && !hand(ctx, b, order, todo) {
			return nil
		}
		if !more || err != nil {
			return err
		}
	}
}

// hand hands a batch over, and reports whether all wanted it.
func hand(ctx context.Context, b *batch, to ...chan<- *batch) bool {
	for _, c := range to {
		select {
		case c <- b:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// fill puts lines into a batch. An error is what ends the input behind them.
func (im *importer) fill(b *batch, most int) (more bool, err error) {
	more = true
	for size := int64(0); len(b.lines) < most && size < importBytes; {
		l := b.room()
		if more, err = im.src.next(l); !more || err != nil {
			break
		}
		b.lines = append(b.lines, l)
		im.digest(l)
		if size += l.size; most > clearBatch && mayBeClear(im.src, l) {
			most = clearBatch
		}
	}
	b.sum = hex.EncodeToString(im.sum.Sum(nil))
	return more, err
}

// digest notes a line that was read.
func (im *importer) digest(l *line) {
	im.text = append(im.text[:0], l.raw...)
	im.sum.Write(im.text)
}

func mayBeClear(src lineSource, l *line) bool {
	if rows, is := src.(*csvRows); is {
		for _, name := range rows.header {
			if name == columnClear {
				return true
			}
		}
	}
	return strings.Contains(l.raw, `"`+columnClear+`"`)
}

// skip reads over what an interrupted import has done.
func (im *importer) skip() error {
	for lines := im.state.Lines; lines > 0; lines-- {
		var l line
		more, err := im.src.next(&l)
		if err != nil {
			return err
		}
		if !more {
			return errOther
		}
		im.digest(&l)
	}
	if im.state.Lines > 0 && hex.EncodeToString(im.sum.Sum(nil)) != im.state.Sum {
		return errOther
	}
	return nil
}

var errOther = fmt.Errorf("%w: it is not the input whose import was interrupted, or it was changed since", ErrInput)

// record counts what became of a batch, and has that saved.
func (im *importer) record(b *batch) error {
	s := &im.state
	for _, l := range b.lines {
		s.Lines++
		s.Bytes += l.size
		if l.blank() {
			continue
		}
		s.Report.Read++
		switch l.done {
		case createdLine:
			s.Report.Created++
		case updatedLine:
			s.Report.Updated++
		case skippedLine:
			s.Report.Skipped++
		case refusedLine:
			s.Report.Refused++
			if err := im.refuse(l); err != nil {
				return err
			}
		}
	}
	s.Sum = b.sum
	im.again(b)
	if im.o.Save == nil {
		return nil
	}
	return im.o.Save(*s)
}

func (im *importer) refuse(l *line) error {
	if im.o.Refused != nil {
		im.o.Refused(l.no, l.err.Error())
	}
	if im.rejects == nil {
		return nil
	}
	if err := im.rejects.write(l); err != nil {
		return fmt.Errorf("writing a refused line: %w", err)
	}
	return nil
}

// parse makes drafts of the lines of a batch, hashes clear passwords, and lays out what creates the entries.
// But for hashing, one at a time does that: it is faster than any server, and a processor is left for those
// who keep the server busy.
func (im *importer) parse(ctx context.Context, b *batch) {
	im.parsing.Lock()
	defer im.parsing.Unlock()
	clear := im.draft(ctx, b)
	if len(clear) > 0 {
		im.parsing.Unlock()
		for _, l := range clear {
			im.hash(ctx, l)
		}
		im.parsing.Lock()
	}
	for _, l := range b.lines {
		if l.t != nil && l.err == nil {
			b.due = append(b.due, l)
		}
	}
	if !im.o.DryRun {
		b.parts = im.parts(b.parts, b.due, 0)
		b.choose()
	}
}

// draft makes drafts, and returns the lines with clear passwords.
func (im *importer) draft(ctx context.Context, b *batch) (clear []*line) {
	for _, l := range b.lines {
		if l.err != nil || l.blank() || ctx.Err() != nil {
			continue
		}
		if l.err = im.src.parse(im.View, l, &b.scratch); l.err == nil && l.clear != "" {
			clear = append(clear, l)
		}
	}
	return clear
}

// hash hashes a line's clear password; a dry run only says whether that would be refused.
func (im *importer) hash(ctx context.Context, l *line) {
	if im.o.DryRun {
		l.err = im.Hashing.Judge(ctx, l.t, l.clear, l.identifiers())
		return
	}
	hash, err := im.Hashing.Hash(ctx, l.t, l.clear, l.identifiers())
	if l.err = err; err == nil {
		l.draft.Facets[store.FieldPassword] = hash
	}
}
