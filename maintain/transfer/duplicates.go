package transfer

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// uidAttempts is how many UIDs are made up for a line before all are called taken.
const uidAttempts = 16

// resolve goes on with the lines of a batch of which something is taken.
func (im *importer) resolve(ctx context.Context, b *batch) error {
	lines := b.toWrite
	for attempt := 1; ; attempt++ {
		taken := slices.DeleteFunc(slices.Clone(lines), func(l *line) bool { return !errors.Is(l.err, store.ErrDuplicate) })
		taken, again, err := im.recognizeCreated(ctx, taken)
		if err != nil {
			return err
		}
		switch im.o.OnDuplicate {
		case DuplicateSkip:
			for _, l := range taken {
				l.finish(skippedLine)
			}
		case DuplicateUpdate:
			if err := im.update(ctx, taken); err != nil {
				return err
			}
		}
		if len(again) == 0 {
			return nil
		}
		for _, l := range again {
			if l.err = im.build(l, attempt); attempt == uidAttempts {
				l.err = errors.New("all UIDs that were made up for it are taken")
			}
		}
		lines = slices.DeleteFunc(again, func(l *line) bool { return l.err != nil })
		if err := im.create(ctx, b, lines); err != nil {
			return err
		}
	}
}

// recognise counts entries that this import has created before it was cut off, and separates the others: those that are
// taken, and those of which only the made-up UID is.
func (im *importer) recognizeCreated(ctx context.Context, lines []*line) (taken, again []*line, err error) {
	if len(lines) == 0 || !im.resumed && !slices.ContainsFunc(lines, func(l *line) bool { return l.draft.UID == "" }) {
		return lines, nil, nil
	}
	lookups := make([]store.Lookup, len(lines))
	for i, l := range lines {
		lookups[i].PRK = l.create.Key
	}
	found, err := im.Engine.Find(ctx, lookups)
	if err != nil {
		return nil, nil, err
	}
	for i, l := range lines {
		switch live := found[i].Err == nil; {
		case live && im.resumed && createdBy(l.create, found[i].Record):
			l.finish(createdLine)
		case live && l.draft.UID == "":
			again = append(again, l)
		default:
			taken = append(taken, l)
		}
	}
	return taken, again, nil
}

// createdBy reports whether a record is what a change makes of nothing, whatever else was added to it.
func createdBy(c store.Change, r store.Record) bool {
	volatileFields := []string{store.FieldChanged, store.FieldPassword, store.FieldDisabled}
	return !slices.ContainsFunc(c.Set, func(f store.Facet) bool {
		return !slices.Contains(volatileFields, f.Field) && r.Fields[f.Field] != f.Wire
	})
}

// updateRounds is how often entries that others are changing are brought up to date anew.
const updateRounds = 20

// update brings entries up to date, in rounds: a line waits for those before it that take or give back a key which it
// needs, and for others who change its entry.
func (im *importer) update(ctx context.Context, lines []*line) error {
	for idle := 0; idle < updateRounds && len(lines) > 0; {
		existing, err := im.findExisting(ctx, lines)
		if err != nil {
			return err
		}
		needs := store.Needs{}
		var now, later []*line
		var changes []store.Change
		for i, l := range lines {
			c, changed, err := im.changeForLine(ctx, l, existing[i])
			own := store.Needs{}
			own.Add(&l.create)
			own.Add(&c)
			waits := own.Meets(needs)
			maps.Copy(needs, own)
			switch {
			case waits:
				later = append(later, l)
			case err != nil:
				l.refuse(err)
			case !changed:
				l.finish(skippedLine)
			default:
				now, changes = append(now, l), append(changes, c)
			}
		}
		again, err := im.apply(ctx, now, changes)
		if err != nil {
			return err
		}
		if again = append(again, later...); len(again) == len(lines) {
			idle++
		}
		lines = again
		slices.SortFunc(lines, func(a, b *line) int { return cmp.Compare(a.no, b.no) })
	}
	return nil
}

// changeOf is what a line does: it creates its entry or, where it means one that is there, brings that up to date. A hash,
// and that it is disabled, do to it what SetPassword and Disable do: what the line says of when that was holds for a new
// entry alone.
func (im *importer) changeForLine(ctx context.Context, l *line, existing store.Found) (c store.Change, changed bool, err error) {
	r := existing.Record
	if existing.Err != nil || r.Fields == nil {
		return l.create, true, existing.Err
	}
	facets, own := l.mergedFacets(r), map[string]string{}
	if err := im.checkClearPassword(ctx, l, facets); err != nil {
		return c, false, err
	}
	if hash := l.draft.Facets[store.FieldPassword]; hash != "" && hash != r.Fields[store.FieldPassword] {
		change.SetPassword(r, im.Now(), hash, facets, own)
	}
	if l.draft.Own[store.FieldDisabled] != "" {
		change.Disable(r, im.Now(), own)
	}
	for mark, of := range l.draft.Own {
		if store.VerifiedField(mark) != "" {
			own[mark] = of
		}
	}
	if c, changed, err = l.t.Update(r, facets, own); err == nil {
		err = l.t.Replace(&c, l.draft.Tertiary)
	}
	return c, changed || len(l.draft.Tertiary) > 0, err
}

// over are the facets of an entry with those of a line over them. Its UID stays, the line's may be made up; a hash is
// more than a facet.
func (l *line) mergedFacets(r store.Record) map[string]string {
	facets := change.Bare(r)
	for field, wire := range l.draft.Facets {
		if field != l.t.Schema.Primary && field != store.FieldPassword {
			facets[field] = wire
		}
	}
	return facets
}

// judgeClear holds a clear password to the policy once more, where the entry has identifiers that the line lacks.
func (im *importer) checkClearPassword(ctx context.Context, l *line, facets map[string]string) error {
	known, own := l.t.Identifiers(l.draft.Facets), l.t.Identifiers(facets)
	if l.clearPassword == "" || !slices.ContainsFunc(own, func(id string) bool { return id != "" && !slices.Contains(known, id) }) {
		return nil
	}
	return im.Config.Hashing.Judge(ctx, l.t, l.clearPassword, own)
}

// followed is how many changes are followed at a time.
const concurrentFollowUps = 16

// follow does for the lines of a batch, when their changes are there for good, what follows SetPassword and Disable.
func (im *importer) runFollowUps(ctx context.Context, b *batch) {
	var group errgroup.Group
	group.SetLimit(concurrentFollowUps)
	for _, l := range b.toWrite {
		if l.update == nil {
			continue
		}
		t, r := l.t, store.Record{Key: l.update.Key}
		for _, f := range l.update.Set {
			switch f.Field {
			case store.FieldChanged:
				group.Go(func() error { im.Config.Hashing.PasswordSet(ctx, t, r); return nil })
			case store.FieldDisabled:
				group.Go(func() error { im.Config.Hashing.Disabled(ctx, r); return nil })
			}
		}
	}
	_ = group.Wait()
}

// meant reads the entries that lines mean: by UID, or by identifiers that all lead to one entry. It has no fields where
// there is none.
func (im *importer) findExisting(ctx context.Context, lines []*line) ([]store.Found, error) {
	var lookups []store.Lookup
	var of []int
	for i, l := range lines {
		if l.draft.UID != "" {
			lookups, of = append(lookups, store.Lookup{PRK: l.create.Key}), append(of, i)
			continue
		}
		for _, srk := range l.create.Claim {
			lookups, of = append(lookups, store.Lookup{SRKs: []recordkey.Key{srk}}), append(of, i)
		}
	}
	found, err := im.Engine.Find(ctx, lookups)
	if err != nil {
		return nil, err
	}
	existing := make([]store.Found, len(lines))
	for j, f := range found {
		switch m := &existing[of[j]]; {
		case m.Err != nil || errors.Is(f.Err, store.ErrNotFound):
		case f.Err != nil:
			m.Err = f.Err
		case m.Record.Fields != nil && m.Record.Key != f.Record.Key:
			m.Err = errors.New("its identifiers belong to several entries")
		default:
			m.Record = f.Record
		}
	}
	return existing, nil
}
