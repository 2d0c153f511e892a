package transfer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/userdb"
)

// A batch holds consecutive lines of the input.
type batch struct {
	lines   []line
	sum     string         // checksum of the input up to the end of the batch
	toWrite []*line        // lines to write, ordered by type
	needs   store.KeySet   // the keys that must be free to create the entries
	changes []store.Change // buffer for the changes that create the entries
	failed  error          // of preparing the batch; it ends the import
	isLong  bool           // its last line is longer than maxBatchBytes

	ctx     context.Context
	endBulk func(context.Context) error // ends the bulk write of ctx
	// comparing is the context for comparing passwords. It is the caller's context, which can end
	// before ctx does.
	comparing context.Context
	// created receives one error or nil once the lines that depend on no others are done. An error
	// ends the import.
	created chan error
}

// newBatch returns a batch without lines.
func (im *importer) newBatch() *batch {
	if len(im.freeBatches) == 0 {
		return &batch{lines: make([]line, 0, max(im.firstSize, im.batchSize)), needs: store.KeySet{}}
	}
	b := im.freeBatches[len(im.freeBatches)-1]
	im.freeBatches = im.freeBatches[:len(im.freeBatches)-1]
	clear(b.needs)
	clear(b.lines)
	b.lines, b.toWrite, b.failed = b.lines[:0], b.toWrite[:0], nil
	return b
}

// fillBatch reads lines into a batch. If it returns an error, the lines before the error are in the
// batch and no more can be read.
func (im *importer) fillBatch(b *batch, limit int) (more bool, err error) {
	more = true
	for size := int64(0); len(b.lines) < limit && size < maxBatchBytes; {
		b.lines = append(b.lines, line{})
		l := &b.lines[len(b.lines)-1]
		if more, err = im.src.next(l); !more || err != nil {
			b.lines = b.lines[:len(b.lines)-1]
			break
		}
		if !im.namesChecked {
			if _, err = im.checkNames(im.src, l); err != nil {
				b.lines = b.lines[:len(b.lines)-1]
				err = &ReadError{Line: l.no, Offset: im.headerBytes + im.bytes, Err: err}
				break
			}
		}
		im.addToSum(l)
		b.isLong = b.isLong || l.size > maxBatchBytes
		if size += l.size; limit > clearBatch && (im.clearPasswords || im.src.mayHaveClearPassword(l)) {
			limit = clearBatch
		}
	}
	b.sum = im.checksum()
	return more, err
}

// startBatch creates the entries of a batch, except those of lines that depend on other lines. A
// line that fails because a key is taken may succeed after the batches before it are finished; see
// resolve.
func (im *importer) startBatch(ctx context.Context, b *batch) {
	b.ctx, b.endBulk = im.Engine.Bulk(ctx)
	b.created = make(chan error, 1)
	if im.o.DryRun || b.failed != nil {
		b.created <- b.failed
		return
	}
	go func() { b.created <- im.create(b.ctx, b, b.toWrite) }()
}

// finishBatch completes a batch after all batches before it. If one of those failed, it only waits
// for the batch, ends its bulk write and follows up its changes, and returns that error.
func (im *importer) finishBatch(ctx context.Context, b *batch, failed error) error {
	err := cmp.Or(failed, <-b.created)
	switch {
	case err != nil:
	case im.o.DryRun:
		err = im.simulateLines(b.comparing, b.toWrite)
	default:
		err = im.resolve(b.ctx, b)
	}
	if err == nil {
		err = im.writePreserved(b.ctx, b)
	}
	if endErr := b.endBulk(context.WithoutCancel(ctx)); endErr != nil {
		return endErr
	}
	im.runFollowUps(ctx, b)
	if err = cmp.Or(err, im.storeFactors(ctx, b)); err != nil {
		return err
	}
	return im.recordBatch(ctx, b)
}

// recordBatch counts the outcomes of a batch, reports the refused lines, and saves the state.
func (im *importer) recordBatch(ctx context.Context, b *batch) error {
	s, r := &im.state, &im.state.Report
	counts := [...]*int64{refusedLine: &r.Refused, createdLine: &r.Created, updatedLine: &r.Updated, skippedLine: &r.Skipped, heldLine: &r.Held, retiredLine: &r.Retired}
	for i := range b.lines {
		l := &b.lines[i]
		s.Lines++
		s.Bytes += l.size
		if l.isBlank() {
			continue
		}
		r.Read++
		*counts[l.done]++
		im.count(l)
		if im.o.Trial != nil && l.t != nil && l.preserved == nil {
			if err := im.try(ctx, l, im.o.Trial); err != nil {
				return err
			}
		}
		if l.done == refusedLine && im.o.Refused != nil {
			im.o.Refused(l.no, l.err.Error())
		}
		if l.done == refusedLine && im.o.Rejects != nil {
			if err := im.reject(l); err != nil {
				return fmt.Errorf("writing a refused line: %w", err)
			}
		}
	}
	if s.Sum = b.sum; im.o.Save == nil {
		return nil
	}
	return im.o.Save(*s)
}

// reject writes a refused line to Rejects, with one call of Write.
func (im *importer) reject(l *line) error {
	var text bytes.Buffer
	if err := im.src.reject(&text, l); err != nil {
		return err
	}
	_, err := im.o.Rejects.Write(text.Bytes())
	return err
}

// finishTimeout limits how long an import goes on after its context ended. Tests lower it.
var finishTimeout = 20 * time.Second

// withFinishTimeout returns a context that ends finishTimeout after ctx. The caller must call
// cancel.
func withFinishTimeout(ctx context.Context) (later context.Context, cancel func()) {
	later, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(finishTimeout)
		defer timer.Stop()
		select {
		case <-timer.C:
			end(context.Cause(ctx))
		case <-later.Done():
		}
	})
	return later, func() { stop(); end(nil) }
}

// create creates the entries of lines. If lines may update entries, a line that shares a key with a
// line before it is only marked as taken; its outcome is decided after that line. A line that
// cannot create an entry is marked in the same way. An error ends the import.
func (im *importer) create(ctx context.Context, b *batch, lines []*line) error {
	var toApply []*line
	b.changes = b.changes[:0]
	for _, l := range lines {
		if im.o.OnDuplicate == DuplicateUpdate && l.sharesKey || l.incomplete != nil {
			l.err = store.DuplicateField(l.t.Schema.Primary)
			continue
		}
		toApply, b.changes = append(toApply, l), append(b.changes, l.create)
	}
	_, err := im.apply(ctx, toApply, b.changes)
	return err
}

// maxRebuilds limits how often lines are rebuilt because the schema in force has changed.
const maxRebuilds = 16

// apply writes the changes of lines. It returns the lines that must be tried again: those whose
// entries were changed by others meanwhile, and those whose updates were built under a schema that
// is no longer in force. An error ends the import.
func (im *importer) apply(ctx context.Context, lines []*line, changes []store.Change) (again []*line, err error) {
	for range maxRebuilds {
		some, stale, refusal := im.applyOnce(ctx, lines, changes)
		again = append(again, some...)
		if len(stale) > 0 {
			refusal = im.rebuildForSchema(ctx, stale, refusal)
		}
		if refusal != nil || len(stale) == 0 {
			return again, refusal
		}
		lines, changes = nil, nil
		for _, l := range stale {
			switch {
			case l.err != nil:
				l.refuse(l.err)
			case l.updating:
				again = append(again, l)
			default:
				lines, changes = append(lines, l), append(changes, l.create)
			}
		}
	}
	return again, store.ErrConflict
}

// oneEntryCodes holds the codes of errors that concern one entry, after which the import continues.
var oneEntryCodes = []userdb.Code{userdb.CodeDuplicate, userdb.CodeInvalid, userdb.CodeCorrupt, userdb.CodeNotFound}

// applyOnce writes the changes of lines without rebuilding any. It returns as stale the lines that
// were built under a schema that is no longer in force, together with the error of one of them.
func (im *importer) applyOnce(ctx context.Context, lines []*line, changes []store.Change) (again, stale []*line, err error) {
	var refusal error
	for i, err := range im.ApplyAll(ctx, changes) {
		l, c := lines[i], &changes[i]
		if !c.Create && (err == nil || errors.Is(err, store.ErrUnconfirmed)) {
			l.update = c
		}
		l.updating = !c.Create
		switch code := userdb.CodeOf(err); {
		case view.IsSchemaChanged(err):
			stale, refusal = append(stale, l), err
		case err == nil && c.Create:
			l.finish(createdLine)
		case err == nil:
			l.finish(updatedLine)
		case code == userdb.CodeConflict:
			again = append(again, l)
			l.refuse(err)
		case slices.Contains(oneEntryCodes, code):
			l.refuse(err)
		default:
			return nil, nil, err
		}
	}
	return again, stale, refusal
}
