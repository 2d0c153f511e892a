package transfer

import (
	"context"
	"errors"
	"hash/maphash"
	"maps"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// sightings are the keys that a dry run has seen in its input, as digests.
type sightings struct {
	seed maphash.Seed
	seen map[uint64]bool
}

// mostSightings bounds the memory of a dry run: duplicates inside the input are found among the first
// half million of its keys.
const mostSightings = 500_000

func newSightings() *sightings { return &sightings{maphash.MakeSeed(), map[uint64]bool{}} }

// meet notes an entry, or a value of a type, and says whether it was met before.
func (s *sightings) meet(kind, value string) bool {
	d := maphash.Comparable(s.seed, [2]string{kind, value})
	met := s.seen[d]
	if len(s.seen) < mostSightings {
		s.seen[d] = true
	}
	return met
}

// rehearse says what would become of lines, and writes nothing.
func (im *importer) rehearse(ctx context.Context, lines []*line) error {
	for _, l := range lines {
		c, err := im.creation(l, 0)
		if err != nil {
			l.refuse(err)
			continue
		}
		srks := append(append([]recordkey.Key{}, c.Claim...), c.Aside...)
		lookups := []store.Lookup{{PRK: c.Key}, {SRKs: srks}}
		if len(srks) == 0 {
			lookups = lookups[:1]
		}
		found, err := im.Engine.Find(ctx, lookups)
		if err != nil {
			return err
		}
		if im.foresee(l, c, found); l.done == updatedLine {
			if err := im.judgeUpdate(ctx, l, found); err != nil {
				l.refuse(err)
			}
		}
	}
	return nil
}

// foresee judges a line by what is there.
func (im *importer) foresee(l *line, c store.Change, found []store.Found) {
	there := ""
	for i, f := range found {
		switch {
		case f.Err == nil && i == 0:
			there = c.Key.Field()
		case f.Err == nil && there == "":
			there = "identifier"
		case f.Err != nil && !errors.Is(f.Err, store.ErrNotFound):
			l.refuse(f.Err)
			return
		}
	}
	if im.seen.meet("entry", c.Key.String()) && there == "" {
		there = c.Key.Field()
	}
	for _, srk := range c.Claim {
		if im.seen.meet(srk.Type(), srk.Value()) && there == "" {
			there = srk.Field()
		}
	}
	switch {
	case there == "":
		l.done = createdLine
	case im.o.OnDuplicate == DuplicateSkip:
		l.done = skippedLine
	case im.o.OnDuplicate == DuplicateUpdate:
		l.done = updatedLine
	default:
		l.refuse(&change.FieldError{Err: store.ErrDuplicate, Field: there})
	}
}

// judgeUpdate says why the entry that a line means would not take its clear password.
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
