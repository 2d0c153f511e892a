package maintain

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/coffeenode/userdb/internal/core"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// update brings entries up to date, in rounds: a line waits for those before it that take or give back a key
// which it needs, and for others who change its entry.
func (im *importer) update(ctx context.Context, t *core.Type, lines []*line) error {
	for attempt := 0; attempt < tries && len(lines) > 0; {
		u := updates{im: im, t: t}
		meant, err := im.meant(ctx, t, lines)
		if err != nil {
			return err
		}
		for i, l := range lines {
			if err := u.add(l, meant[i]); err != nil {
				return err
			}
		}
		_, errs := im.ApplyAll(ctx, t, u.changes, nil)
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
	t       *core.Type
	needs   store.Needs
	changes []store.Change
	of      []*line
	later   []*line
}

// add adds what a line means: a change of an entry or, where it means none that is there, a new one.
func (u *updates) add(l *line, m meaning) error {
	create, err := u.im.creation(l, 0)
	if err != nil {
		return err
	}
	c, changed := create, true
	if m.err == nil && m.record.Fields != nil {
		c, changed, m.err = updating(u.t, l, m.record)
	}
	waits := u.needs.Has(&create) || u.needs.Has(&c)
	u.needs.Add(&create)
	u.needs.Add(&c)
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
		switch err := errs[i]; {
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

// updating is the change that brings an entry up to date.
func updating(t *core.Type, l *line, r store.Record) (store.Change, bool, error) {
	facets := core.Bare(r)
	for field, wire := range l.draft.Facets {
		if field != t.Schema.Primary { // it may be made up, and cannot change
			facets[field] = wire
		}
	}
	own := map[string]string{}
	for field, wire := range l.draft.Own {
		own[field] = wire
	}
	if facets[store.FieldPassword] != r.Fields[store.FieldPassword] {
		own[store.FieldKey] = "" // tokens are void with a new password
	} else {
		delete(own, store.FieldChanged)
	}
	c, changed, err := t.Update(r, facets, own)
	if err == nil {
		err = t.Replace(&c, l.draft.More)
	}
	return c, changed || len(l.draft.More) > 0, err
}

// A meaning is the entry that a line means, with no fields where there is none, or why that cannot be said.
type meaning struct {
	record store.Record
	err    error
}

// meant reads the entries that lines mean: by UID, or by identifiers that all lead to one entry.
func (im *importer) meant(ctx context.Context, t *core.Type, lines []*line) ([]meaning, error) {
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
