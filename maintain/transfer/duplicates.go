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

// resolve goes on with the lines that do not stand alone, and with those of which something is taken.
func (im *importer) resolve(ctx context.Context, lines []*line) error {
	if im.o.OnDuplicate != DuplicateUpdate {
		if err := im.create(ctx, lines, false); err != nil {
			return err
		}
	}
	for attempt := 1; ; attempt++ {
		var again []*line
		for t, lines := range byType(im.takenAmong(lines)) {
			some, err := im.resolveTaken(ctx, t, lines)
			if err != nil {
				return err
			}
			again = append(again, some...)
		}
		if lines = again; len(lines) == 0 {
			return nil
		}
		for _, l := range lines {
			if attempt == uidAttempts {
				l.refuse(errors.New("all UIDs that were made up for it are taken"))
			} else if err := im.build(l, attempt); err != nil {
				l.refuse(err)
			}
		}
		lines = slices.DeleteFunc(lines, func(l *line) bool { return l.err != nil })
		if err := im.create(ctx, lines, false); err != nil {
			return err
		}
	}
}

// takenAmong are the lines of which something is taken. Where lines may update entries, those that share a key with an
// earlier one are among them: what becomes of them is seen when that is done.
func (im *importer) takenAmong(lines []*line) (taken []*line) {
	for _, l := range lines {
		if im.o.OnDuplicate == DuplicateUpdate && !l.alone && l.err == nil && l.done != createdLine {
			l.taken, l.err = true, &change.FieldError{Err: store.ErrDuplicate, Field: l.t.Schema.Primary}
		}
		if l.taken {
			taken = append(taken, l)
		}
		l.taken, l.alone = false, false
	}
	return taken
}

// resolveTaken finds out what becomes of lines whose UID or identifiers are taken. It returns those of which only the UID
// is, and that was made up.
func (im *importer) resolveTaken(ctx context.Context, t *change.Type, lines []*line) (again []*line, err error) {
	if im.resumed || im.o.OnDuplicate == DuplicateUpdate || slices.ContainsFunc(lines, func(l *line) bool { return l.draft.UID == "" }) {
		if lines, again, err = im.recognise(ctx, lines); err != nil {
			return nil, err
		}
	}
	switch im.o.OnDuplicate {
	case DuplicateSkip:
		for _, l := range lines {
			l.finish(skippedLine)
		}
	case DuplicateUpdate:
		return again, im.update(ctx, t, lines)
	}
	return again, nil
}

// recognise counts entries that this import has made before it was cut off, and parts the others: those
// that are taken, and those of which only the made-up UID is.
func (im *importer) recognise(ctx context.Context, lines []*line) (taken, again []*line, err error) {
	lookups := make([]store.Lookup, len(lines))
	for i, l := range lines {
		lookups[i] = store.Lookup{PRK: l.create.Key}
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
			l.err = nil
			again = append(again, l)
		default:
			taken = append(taken, l)
		}
	}
	return taken, again, nil
}

// createdBy reports whether a record is what a change makes of nothing, whatever else was added to it.
func createdBy(c store.Change, r store.Record) bool {
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

// updateRounds is how often entries that others are changing are brought up to date anew.
const updateRounds = 20

// update brings entries up to date, in rounds: a line waits for those before it that take or give back a key
// which it needs, and for others who change its entry.
func (im *importer) update(ctx context.Context, t *change.Type, lines []*line) error {
	for attempt := 0; attempt < updateRounds && len(lines) > 0; {
		u := updates{im: im, t: t, needs: store.Needs{}}
		meant, err := im.meant(ctx, lines)
		if err != nil {
			return err
		}
		for i, l := range lines {
			u.add(ctx, l, meant[i])
		}
		_, errs := im.ApplyAll(ctx, t, u.changes)
		again, err := u.judge(errs)
		if err != nil {
			return err
		}
		before := len(lines)
		lines = append(again, u.later...)
		slices.SortFunc(lines, func(a, b *line) int { return cmp.Compare(a.no, b.no) })
		if len(lines) == before {
			attempt++
		}
	}
	return nil
}

// updates are the changes of one round.
type updates struct {
	im      *importer
	t       *change.Type
	needs   store.Needs
	changes []store.Change
	of      []*line
	later   []*line
}

// add adds what a line means: a change of an entry or, where it means none that is there, a new one.
func (u *updates) add(ctx context.Context, l *line, m meaning) {
	c, changed := l.create, true
	if m.err == nil && m.record.Fields != nil {
		c, changed, m.err = u.im.updating(ctx, u.t, l, m.record)
	}
	own := store.Needs{}
	own.Add(&l.create)
	own.Add(&c)
	waits := own.Meets(u.needs)
	maps.Copy(u.needs, own)
	switch {
	case waits:
		u.later = append(u.later, l)
	case m.err != nil:
		l.refuse(m.err)
	case !changed:
		l.finish(skippedLine)
	default:
		u.changes, u.of = append(u.changes, c), append(u.of, l)
	}
}

// judge notes what became of the lines, and returns those whose entries somebody else changed meanwhile.
func (u *updates) judge(errs []error) (again []*line, err error) {
	for i, l := range u.of {
		err := errs[i]
		if !u.changes[i].Create && (err == nil || errors.Is(err, store.ErrUnconfirmed)) {
			l.update = &u.changes[i]
		}
		switch {
		case err == nil && u.changes[i].Create:
			l.finish(createdLine)
		case err == nil:
			l.finish(updatedLine)
		case errors.Is(err, store.ErrDuplicate):
			l.refuse(duplicate(err))
		case errors.Is(err, store.ErrConflict):
			l.refuse(err)
			again = append(again, l)
		case aboutLine(err):
			l.refuse(err)
		default:
			return nil, err
		}
	}
	return again, nil
}

// updating is the change that brings an entry up to date. A hash, and that it is disabled, do to it what
// SetPassword and Disable do: what the line says of when that was holds for a new entry alone.
func (im *importer) updating(ctx context.Context, t *change.Type, l *line, r store.Record) (store.Change, bool, error) {
	facets, own := change.Bare(r), map[string]string{}
	for field, wire := range l.draft.Facets {
		if field != t.Schema.Primary && field != store.FieldPassword { // the primary one may be made up, and cannot change
			facets[field] = wire
		}
	}
	if err := im.judgeClear(ctx, t, l, facets); err != nil {
		return store.Change{}, false, err
	}
	if hash := l.draft.Facets[store.FieldPassword]; hash != "" && hash != r.Fields[store.FieldPassword] {
		change.SetPassword(r, im.Now(), hash, facets, own)
	}
	if l.draft.Own[store.FieldDisabled] != "" {
		change.Disable(r, im.Now(), own)
	}
	c, changed, err := t.Update(r, facets, own)
	if err == nil {
		err = t.Replace(&c, l.draft.Tertiary)
	}
	return c, changed || len(l.draft.Tertiary) > 0, err
}

// judgeClear holds a clear password to the policy once more, where the entry has identifiers that the line lacks.
func (im *importer) judgeClear(ctx context.Context, t *change.Type, l *line, facets map[string]string) error {
	if l.clear == "" {
		return nil
	}
	known, own := l.identifiers(), []string{facets[t.Schema.Primary]}
	for _, field := range t.Secondary {
		own = append(own, facets[field])
	}
	if !slices.ContainsFunc(own, func(id string) bool { return id != "" && !slices.Contains(known, id) }) {
		return nil
	}
	return im.Hashing.Judge(ctx, t, l.clear, own)
}

// atOnce is how many changes are followed at a time.
const atOnce = 16

// follow does for the lines of a batch, when their changes are there for good, what follows SetPassword and Disable.
func (im *importer) follow(ctx context.Context, b *batch) {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, l := range b.lines {
		if l.update == nil {
			continue
		}
		sets := func(field string) bool {
			return slices.ContainsFunc(l.update.Set, func(f store.Facet) bool { return f.Field == field })
		}
		r := store.Record{Key: l.update.Key}
		if sets(store.FieldChanged) {
			group.Go(func() error { im.Hashing.PasswordSet(ctx, l.t, r); return nil })
		}
		if sets(store.FieldDisabled) {
			group.Go(func() error { im.Hashing.Disabled(ctx, r); return nil })
		}
	}
	_ = group.Wait()
}

// A meaning is the entry that a line means, with no fields where there is none, or why that cannot be said.
type meaning struct {
	record store.Record
	err    error
}

// meant reads the entries that lines mean: by UID, or by identifiers that all lead to one entry.
func (im *importer) meant(ctx context.Context, lines []*line) ([]meaning, error) {
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
	meant := make([]meaning, len(lines))
	for j, f := range found {
		switch m := &meant[of[j]]; {
		case m.err != nil || errors.Is(f.Err, store.ErrNotFound):
		case f.Err != nil:
			m.err = f.Err
		case m.record.Fields != nil && m.record.Key != f.Record.Key:
			m.err = errSeveral
		default:
			m.record = f.Record
		}
	}
	return meant, nil
}

var errSeveral = errors.New("its identifiers belong to several entries")
