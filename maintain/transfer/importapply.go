package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
)

// uidAttempts is how many UIDs are made up for a line before all are called taken.
const uidAttempts = 16

// finish makes what was not made ahead, and goes on with entries that are there already.
func (im *importer) finish(ctx context.Context, b *batch) error {
	if im.o.DryRun {
		return im.rehearse(ctx, b.due)
	}
	parts := b.parts
	for attempt := 1; ; attempt++ {
		var again []*line
		for _, p := range parts {
			taken, err := im.settle(ctx, p, attempt-1)
			if err != nil {
				return err
			}
			again = append(again, taken...)
		}
		if len(again) == 0 {
			return nil
		}
		if attempt == uidAttempts {
			for _, l := range again {
				l.refuse(errors.New("all UIDs that were made up for it are taken"))
			}
			return nil
		}
		parts = im.parts(nil, again, attempt)
	}
}

// settle makes entries of one type. It returns lines whose made-up UIDs are taken.
func (im *importer) settle(ctx context.Context, p *part, attempt int) (again []*line, err error) {
	there := im.putOff(p)
	if p.errs == nil || slices.Contains(p.alone, false) {
		im.apply(ctx, p, false)
	}
	for i, l := range p.lines {
		switch err := p.errs[i]; {
		case err == nil:
			l.done = createdLine
		case errors.Is(err, store.ErrDuplicate):
			l.err = duplicate(err)
			there = append(there, l)
		case aboutLine(err):
			l.refuse(err)
		default:
			return nil, err
		}
	}
	return im.settleTaken(ctx, p.t, inOrder(there), attempt)
}

// putOff takes lines out of a part that share keys with earlier ones, where those may update entries: what
// becomes of them is seen when that is done.
func (im *importer) putOff(p *part) (later []*line) {
	if im.o.OnDuplicate != DuplicateUpdate || !slices.Contains(p.alone, false) {
		return nil
	}
	rest := &part{t: p.t}
	for i, l := range p.lines {
		if !p.alone[i] {
			l.err = &change.FieldError{Err: store.ErrDuplicate, Field: p.t.Schema.Primary}
			later = append(later, l)
			continue
		}
		rest.lines, rest.changes = append(rest.lines, l), append(rest.changes, p.changes[i])
		rest.alone, rest.errs = append(rest.alone, true), append(rest.errs, p.errs[i])
	}
	*p = *rest
	return later
}

// duplicate is what a line is told of a taken UID or identifier.
func duplicate(err error) error {
	var taken *store.DuplicateError
	if errors.As(err, &taken) {
		return &change.FieldError{Err: store.ErrDuplicate, Field: taken.Field}
	}
	return err
}

// creation is the change that makes the entry of a line.
func (im *importer) creation(l *line, attempt int) (store.Change, error) {
	d := l.draft
	if d.UID == "" {
		d.UID = im.uid(l, attempt)
	}
	d.Facets[l.t.Schema.Primary] = d.UID
	return l.t.Create(d)
}

// uid makes a UID up. The same line of the same import gets the same one again.
func (im *importer) uid(l *line, attempt int) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %d %d\n", im.state.ID, l.no, attempt)
	io.WriteString(h, l.raw)
	return hex.EncodeToString(h.Sum(nil))[:12]
}

func (l *line) refuse(err error) { l.done, l.err = refusedLine, err }

// aboutLine says whether an error concerns one entry, so that the import goes on.
func aboutLine(err error) bool {
	return errors.Is(err, change.ErrInvalid) || errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrConflict) ||
		errors.Is(err, store.ErrNotFound)
}

// settleTaken says what becomes of lines whose UID or identifiers are taken.
func (im *importer) settleTaken(ctx context.Context, t *change.Type, lines []*line, attempt int) (again []*line, err error) {
	if len(lines) == 0 {
		return nil, nil
	}
	own := lines
	if im.resumed || im.o.OnDuplicate == DuplicateUpdate || slices.ContainsFunc(lines, func(l *line) bool { return l.draft.UID == "" }) {
		if own, again, err = im.recognise(ctx, lines, attempt); err != nil {
			return nil, err
		}
	}
	switch im.o.OnDuplicate {
	case DuplicateSkip:
		for _, l := range own {
			l.err, l.done = nil, skippedLine
		}
	case DuplicateUpdate:
		return again, im.update(ctx, t, own)
	}
	return again, nil
}

// recognise counts entries that this import has made before it was cut off, and parts the others: those
// that are taken, and those of which only the made-up UID is.
func (im *importer) recognise(ctx context.Context, lines []*line, attempt int) (taken, again []*line, err error) {
	lookups := make([]store.Lookup, len(lines))
	changes := make([]store.Change, len(lines))
	for i, l := range lines {
		if changes[i], err = im.creation(l, attempt); err != nil {
			return nil, nil, err
		}
		lookups[i] = store.Lookup{PRK: changes[i].Key}
	}
	found, err := im.Engine.Find(ctx, lookups)
	if err != nil {
		return nil, nil, err
	}
	for i, l := range lines {
		switch live := found[i].Err == nil; {
		case live && im.resumed && made(changes[i], found[i].Record):
			l.err, l.done = nil, createdLine
		case live && l.draft.UID == "":
			l.err = nil
			again = append(again, l)
		default:
			taken = append(taken, l)
		}
	}
	return taken, again, nil
}

// made says whether a record is what a change would make of nothing, whatever else was added to it.
func made(c store.Change, r store.Record) bool {
	for _, f := range c.Set {
		switch f.Field {
		case store.FieldChanged, store.FieldPassword, store.FieldDisabled: // of a moment
		default:
			if r.Fields[f.Field] != f.Wire {
				return false
			}
		}
	}
	return true
}
