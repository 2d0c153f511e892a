package transfer

import (
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"slices"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
)

// A batch is some lines in a row.
type batch struct {
	lines []*line
	held  []line // what lines point to
	sum   string // of the input up to here

	due   []*line     // those that are to be written
	needs store.Needs // what creating their entries needs to be absent

	bulk    context.Context
	end     func(context.Context) error // of bulk
	created chan struct{}               // closed when the lines that stand alone are
	err     error                       // what kept them from it, and ends the import
}

// blank is a batch without lines.
func (im *importer) blank() *batch {
	b, is := im.batches.Get().(*batch)
	if !is {
		b = &batch{held: make([]line, 0, max(im.first, im.most)), needs: store.Needs{}}
	}
	clear(b.needs)
	clear(b.held)
	b.lines, b.held, b.due, b.err = b.lines[:0], b.held[:0], b.due[:0], nil
	return b
}

// room is where the next line goes.
func (b *batch) room() *line {
	b.held = append(b.held, line{})
	return &b.held[len(b.held)-1]
}

// mostUnderWay is how many batches are under way at once, so that the server never waits for us.
const mostUnderWay = 4

// write begins batches, several at once, and brings each to its end, in their order.
func (im *importer) write(ctx context.Context, prepared <-chan *batch) error {
	var next *batch
	var under []*batch // under way, in order
	most, begun := 1, context.WithoutCancel(ctx)
	for prepared != nil || next != nil || len(under) > 0 {
		if ctx.Err() != nil {
			break
		}
		if next != nil && len(under) < most && !meets(under, next) {
			im.begin(begun, next)
			under, next = append(under, next), nil
			continue
		}
		from, created := prepared, (chan struct{})(nil)
		if next != nil {
			from = nil
		}
		if len(under) > 0 {
			created = under[0].created
		}
		select {
		case <-ctx.Done():
		case b, more := <-from:
			if next = b; !more {
				prepared = nil
			}
		case <-created:
			if err := im.conclude(begun, under[0]); err != nil {
				return im.abandon(begun, under[1:], err)
			}
			if under = under[1:]; !im.bulks && !im.o.DryRun {
				most = mostUnderWay // the first batch has stored the schema, without which there is no short way
			}
		}
	}
	for i, b := range under {
		if err := im.conclude(begun, b); err != nil {
			return im.abandon(begun, under[i+1:], err)
		}
	}
	return nil
}

// meets reports whether a batch needs a key that one under way may take or give back.
func meets(under []*batch, next *batch) bool {
	for _, b := range under {
		if b.needs.Meets(next.needs) {
			return true
		}
	}
	return false
}

// begin creates the entries of those lines of a batch that no line before them in it can exclude. What keeps one of
// them from it may be gone when the batches before are concluded: see resolve.
func (im *importer) begin(ctx context.Context, b *batch) {
	b.bulk, b.end = im.Engine.Bulk(ctx)
	b.created = make(chan struct{})
	go func() {
		defer close(b.created)
		if !im.o.DryRun {
			b.err = im.create(b.bulk, b.due, true)
		}
	}()
}

// conclude brings a batch to its end, when those before it have come to theirs.
func (im *importer) conclude(ctx context.Context, b *batch) error {
	<-b.created
	err := b.err
	switch {
	case err != nil:
	case im.o.DryRun:
		err = im.rehearse(b.bulk, b.due)
	default:
		err = im.resolve(b.bulk, b.due)
	}
	if saved := b.end(ctx); saved != nil {
		return saved
	}
	im.follow(ctx, b)
	if err != nil {
		return err
	}
	return im.record(b)
}

// abandon ends batches that were begun, without more of them, and returns why.
func (im *importer) abandon(ctx context.Context, under []*batch, err error) error {
	for _, b := range under {
		<-b.created
		if saved := b.end(ctx); saved != nil {
			err = saved
		}
	}
	return err
}

// create creates the entries of those lines that stand alone, or of the others.
func (im *importer) create(ctx context.Context, lines []*line, alone bool) error {
	for t, lines := range byType(lines) {
		var of []*line
		var changes []store.Change
		for _, l := range lines {
			if l.alone == alone {
				of, changes = append(of, l), append(changes, l.create)
			}
		}
		_, errs := im.ApplyAll(ctx, t, changes)
		for i, l := range of {
			if err := l.created(errs[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// byType parts lines by the types of their entries.
func byType(lines []*line) map[*change.Type][]*line {
	types := map[*change.Type][]*line{}
	for _, l := range lines {
		types[l.t] = append(types[l.t], l)
	}
	return types
}

// created notes what became of the change that creates the entry of a line. It returns an error that ends the import.
func (l *line) created(err error) error {
	switch {
	case err == nil:
		l.finish(createdLine)
	case errors.Is(err, store.ErrDuplicate):
		l.taken, l.err = true, duplicate(err)
	case aboutLine(err):
		l.refuse(err)
	default:
		return err
	}
	return nil
}

// duplicate is what a line is told of a taken UID or identifier.
func duplicate(err error) error {
	var taken *store.DuplicateError
	if errors.As(err, &taken) {
		return &change.FieldError{Err: store.ErrDuplicate, Field: taken.Field}
	}
	return err
}

// aboutLine reports whether an error concerns one entry, so that the import goes on.
func aboutLine(err error) bool {
	return errors.Is(err, change.ErrInvalid) || errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrConflict) ||
		errors.Is(err, store.ErrNotFound)
}

// rehearse finds out what would become of lines, and writes nothing.
func (im *importer) rehearse(ctx context.Context, lines []*line) error {
	for _, l := range lines {
		lookups := []store.Lookup{{PRK: l.create.Key}}
		if srks := slices.Concat(l.create.Claim, l.create.Elsewhere); len(srks) > 0 {
			lookups = append(lookups, store.Lookup{SRKs: srks})
		}
		found, err := im.Engine.Find(ctx, lookups)
		if err != nil {
			return err
		}
		if im.foresee(l, found); l.done == updatedLine {
			if err := im.judgeUpdate(ctx, l, found); err != nil {
				l.refuse(err)
			}
		}
	}
	return nil
}

// foresee judges a line by what is there.
func (im *importer) foresee(l *line, found []store.Found) {
	there := ""
	for i, f := range found {
		switch {
		case f.Err == nil && i == 0:
			there = l.create.Key.Field()
		case f.Err == nil && there == "":
			there = "identifier"
		case f.Err != nil && !errors.Is(f.Err, store.ErrNotFound):
			l.refuse(f.Err)
			return
		}
	}
	if im.seen.meet("entry", l.create.Key.String()) && there == "" {
		there = l.create.Key.Field()
	}
	for _, srk := range l.create.Claim {
		if im.seen.meet(srk.Type(), srk.Value()) && there == "" {
			there = srk.Field()
		}
	}
	switch {
	case there == "":
		l.finish(createdLine)
	case im.o.OnDuplicate == DuplicateSkip:
		l.finish(skippedLine)
	case im.o.OnDuplicate == DuplicateUpdate:
		l.finish(updatedLine)
	default:
		l.refuse(&change.FieldError{Err: store.ErrDuplicate, Field: there})
	}
}

// judgeUpdate returns why the entry that a line means would not take its clear password.
func (im *importer) judgeUpdate(ctx context.Context, l *line, found []store.Found) error {
	for _, f := range found {
		if f.Err == nil {
			facets := change.Bare(f.Record)
			uid := facets[l.t.Schema.Primary] // the line's may be made up
			maps.Copy(facets, l.draft.Facets)
			facets[l.t.Schema.Primary] = uid
			return im.judgeClear(ctx, l.t, l, facets)
		}
	}
	return nil
}

// sightings are the keys that a dry run has seen in its input, as digests.
type sightings struct {
	seed maphash.Seed
	seen map[uint64]bool
}

// mostSightings bounds the memory of a dry run: duplicates inside the input are found among the first
// half million of its keys.
const mostSightings = 500_000

func newSightings() *sightings { return &sightings{maphash.MakeSeed(), map[uint64]bool{}} }

// meet notes an entry, or a value of a type, and reports whether it was met before.
func (s *sightings) meet(kind, value string) bool {
	d := maphash.Comparable(s.seed, [2]string{kind, value})
	met := s.seen[d]
	if len(s.seen) < mostSightings {
		s.seen[d] = true
	}
	return met
}
