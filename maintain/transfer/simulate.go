package transfer

import (
	"context"
	"errors"
	"slices"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// simulateLines determines the outcome of lines without writing anything.
func (im *importer) simulateLines(ctx context.Context, lines []*line) error {
	existing, err := im.findExisting(ctx, lines)
	if err != nil {
		return err
	}
	if err := im.compareClear(ctx, lines, existing); err != nil {
		return err
	}
	taken, err := im.findTaken(ctx, lines)
	if err != nil {
		return err
	}
	for i, l := range lines {
		if err := im.simulate(ctx, l, existing[i], taken[i]); err != nil {
			return err
		}
	}
	return nil
}

// findTaken returns for each line the error for the first of its keys that an entry has, or nil.
func (im *importer) findTaken(ctx context.Context, lines []*line) ([]error, error) {
	var lookups []store.Lookup
	var of []int
	for i, l := range lines {
		lookups, of = append(lookups, store.Lookup{PRK: l.create.Key}), append(of, i)
		for _, srks := range [][]recordkey.Key{l.create.Claim, l.create.Elsewhere} {
			for _, srk := range srks {
				lookups, of = append(lookups, store.Lookup{SRKs: []recordkey.Key{srk}}), append(of, i)
			}
		}
	}
	taken := make([]error, len(lines))
	if len(lookups) == 0 {
		return taken, nil
	}
	found, err := im.Engine.Find(ctx, lookups)
	if err != nil {
		return nil, err
	}
	for j, f := range found {
		c := &lines[of[j]].create
		switch srks := lookups[j].SRKs; {
		case taken[of[j]] != nil || errors.Is(f.Err, store.ErrNotFound):
		case f.Err != nil:
			taken[of[j]] = f.Err
		case len(srks) == 0:
			taken[of[j]] = store.DuplicateField(c.Key.Field())
		default:
			taken[of[j]] = store.DuplicateOf(*c, srks[0])
		}
	}
	return taken, nil
}

// simulate determines the outcome of a line from the entry that it is about, and from the error for
// a key that is taken. Lines before it have taken keys as well. An error ends the import.
func (im *importer) simulate(ctx context.Context, l *line, existing existingEntry, taken error) error {
	before, same := im.linesBefore(l)
	if before != nil && taken == nil {
		taken = before
	}
	about := same || existing.complete()
	switch {
	case taken != nil && !errors.Is(taken, store.ErrDuplicate):
		l.refuse(taken)
	case l.incomplete != nil && !about:
		l.refuse(l.incomplete)
	case taken == nil && !about:
		l.finish(createdLine)
	case im.o.OnDuplicate == DuplicateSkip && about:
		l.finish(skippedLine)
	case im.o.OnDuplicate == DuplicateUpdate && (existing.Err != nil || existing.Record.Fields != nil):
		switch _, changed, err := im.changeForLine(ctx, l, existing.Found); {
		case endsImport(err):
			return err
		case err != nil:
			l.refuse(err)
		case changed:
			l.finish(updatedLine)
		default:
			l.finish(skippedLine)
		}
	case im.o.OnDuplicate == DuplicateUpdate && same:
		l.finish(updatedLine)
	default:
		l.refuse(taken)
	}
	return nil
}

// linesBefore records the keys of a line. It returns the error for a key that lines before it have
// taken, or nil, and reports whether one of them is about the same entry.
func (im *importer) linesBefore(l *line) (taken error, same bool) {
	if im.seenInInput("", l.create.Key.String(), l.no) > 0 && l.draft.UID != "" {
		taken, same = store.DuplicateField(l.create.Key.Field()), true
	}
	first, all := int64(0), l.draft.UID == "" && len(l.create.Claim) > 0
	for i, srk := range l.create.Claim {
		no := im.seenInInput(srk.Type(), srk.Value(), l.no)
		if i == 0 {
			first = no
		}
		if all = all && no > 0 && no == first; no > 0 && taken == nil {
			taken = store.DuplicateField(srk.Field())
		}
	}
	return taken, same || all
}

// maxSeen bounds the memory of a dry run. Duplicates within the input are found among its first
// half million keys.
const maxSeen = 500_000

// seenInInput records that a line has an entry, or a value of a type. It returns the number of the
// first line that has it, or 0 if none before has.
func (im *importer) seenInInput(typ, value string, no int64) int64 {
	d := records.Digest(typ, value)
	before := im.seen[d]
	if before == 0 && len(im.seen) < maxSeen {
		im.seen[d] = no
	}
	return before
}

// count adds to the report what was left out of a line.
func (im *importer) count(l *line) {
	r := &im.state.Report
	add := func(to *int64, is bool) {
		if is {
			*to++
		}
	}
	if l.done == createdLine || l.done == updatedLine {
		add(&r.NoPassword, l.leftOut.password && len(l.t.Secondary) > 0)
		add(&r.SecondFactor, l.secondFactor)
		add(&r.RequiredAction, l.requiredAction)
		add(&r.NameLeftOut, l.leftOut.name)
	}
	add(&r.NoIdentifier, l.done == createdLine && len(l.t.Secondary) > 0 && len(l.create.Claim) == 0)
	add(&r.PasswordKept, l.done != refusedLine && l.replacement)
}

// try checks the account of a trial, if it is in a line. A line that would be imported counts more
// than one that would be refused. An error ends the import.
func (im *importer) try(ctx context.Context, l *line, t *Trial) (err error) {
	values, wanted := l.t.SecondaryValues(l.draft.Fields()), l.t.Schema.Canonical(t.Identifier)
	if _, is := slices.BinarySearch(values, wanted); !is || t.Line > 0 && (l.done == refusedLine || !im.trialRefused) {
		return nil
	}
	hash, same := l.draft.Facets[store.FieldPassword], l.clearPassword == t.Password
	t.Line, t.OK, t.Reason, im.trialRefused = l.no, false, "", l.done == refusedLine
	switch {
	case l.done == refusedLine:
		t.Reason = "the line would be refused: " + l.err.Error()
	case im.o.OnDuplicate == DuplicateSkip && l.done == skippedLine:
		t.Reason = "the entry exists, and the line would be skipped"
	case l.draft.Own[store.FieldDisabled] != "":
		t.Reason = "the account is disabled"
	case l.replacement:
		t.Reason = "the password of the line would be left out, because another one was set here"
	case hash == "" && l.clearPassword == "":
		t.Reason = "the account has no password"
	default:
		if hash != "" {
			same, err = im.isPassword(ctx, l.t, hash, true, t.Password)
		}
		if t.OK = same; !same {
			t.Reason = "the password is wrong"
		}
	}
	return err
}
