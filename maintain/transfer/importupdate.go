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

// updateRounds is how often entries that others are changing are brought up to date anew.
const updateRounds = 20

// update brings entries up to date, in rounds: a line waits for those before it that take or give back a key
// which it needs, and for others who change its entry.
func (im *importer) update(ctx context.Context, t *change.Type, lines []*line) error {
	for attempt := 0; attempt < updateRounds && len(lines) > 0; {
		u := updates{im: im, t: t, needs: store.Needs{}}
		meant, err := im.meant(ctx, t, lines)
		if err != nil {
			return err
		}
		for i, l := range lines {
			if err := u.add(ctx, l, meant[i]); err != nil {
				return err
			}
		}
		_, errs := im.ApplyAll(ctx, t, u.changes)
		again, err := u.judge(errs)
		if err != nil {
			return err
		}
		before := len(lines)
		if lines = inOrder(append(again, u.later...)); len(lines) == before {
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
func (u *updates) add(ctx context.Context, l *line, m meaning) error {
	create, err := u.im.creation(l, 0)
	if err != nil {
		return err
	}
	c, changed := create, true
	if m.err == nil && m.record.Fields != nil {
		c, changed, m.err = u.im.updating(ctx, u.t, l, m.record)
	}
	own := store.Needs{}
	own.Add(&create)
	own.Add(&c)
	waits := own.Meets(u.needs)
	maps.Copy(u.needs, own)
	switch {
	case waits:
		u.later = append(u.later, l)
	case m.err != nil:
		l.refuse(m.err)
	case !changed:
		l.err, l.done = nil, skippedLine
	default:
		u.changes, u.of = append(u.changes, c), append(u.of, l)
	}
	return nil
}

// judge says what became of the lines, and returns those whose entries somebody else changed meanwhile.
func (u *updates) judge(errs []error) (again []*line, err error) {
	for i, l := range u.of {
		err := errs[i]
		if !u.changes[i].Create && (err == nil || errors.Is(err, store.ErrUnconfirmed)) {
			l.followed(u.changes[i])
		}
		switch {
		case err == nil && u.changes[i].Create:
			l.err, l.done = nil, createdLine
		case err == nil:
			l.err, l.done = nil, updatedLine
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
		err = t.Replace(&c, l.draft.More)
	}
	return c, changed || len(l.draft.More) > 0, err
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

// followed notes what belongs behind a change, when it is there for good.
func (l *line) followed(c store.Change) {
	l.changed = store.Record{Key: c.Key}
	has := func(field string) bool {
		return slices.ContainsFunc(c.Set, func(f store.Facet) bool { return f.Field == field })
	}
	l.setPassword, l.disabled = has(store.FieldChanged), has(store.FieldDisabled)
}

// atOnce is how many changes are followed at a time.
const atOnce = 16

// follow does for the lines of a batch what follows SetPassword and Disable.
func (im *importer) follow(ctx context.Context, b *batch) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, l := range b.lines {
		if l.setPassword {
			group.Go(func() error { im.Hashing.PasswordSet(ctx, l.t, l.changed); return nil })
		}
		if l.disabled {
			group.Go(func() error { im.Hashing.Disabled(ctx, l.changed); return nil })
		}
	}
	return group.Wait()
}

// A meaning is the entry that a line means, with no fields where there is none, or why that cannot be said.
type meaning struct {
	record store.Record
	err    error
}

// meant reads the entries that lines mean: by UID, or by identifiers that all lead to one entry.
func (im *importer) meant(ctx context.Context, t *change.Type, lines []*line) ([]meaning, error) {
	var lookups []store.Lookup
	var of []int
	for i, l := range lines {
		c, err := im.creation(l, 0)
		if err != nil {
			return nil, err
		}
		if l.draft.UID != "" {
			lookups, of = append(lookups, store.Lookup{PRK: c.Key}), append(of, i)
			continue
		}
		for _, srk := range c.Claim {
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

func inOrder(lines []*line) []*line {
	slices.SortFunc(lines, func(a, b *line) int { return cmp.Compare(a.no, b.no) })
	return lines
}
