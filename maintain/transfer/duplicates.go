package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/recordkey"
)

// uidAttempts limits how many UIDs are generated for a line before the line is refused.
const uidAttempts = 16

// resolve decides the outcome of those lines of a batch that failed because a UID or an identifier
// is taken.
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
			if err := im.skip(ctx, taken); err != nil {
				return err
			}
		case DuplicateUpdate:
			if err := im.update(ctx, b.comparing, taken); err != nil {
				return err
			}
		}
		if len(again) == 0 {
			return nil
		}
		for _, l := range again {
			if l.err = im.build(l, attempt); attempt == uidAttempts {
				l.err = errors.New("all UIDs generated for it are taken")
			}
		}
		lines = slices.DeleteFunc(again, func(l *line) bool { return l.err != nil })
		if err := im.create(ctx, b, lines); err != nil {
			return err
		}
	}
}

// recognizeCreated marks lines whose entries this import created before it was interrupted. It
// divides the other lines into those whose identifiers or given UID are taken and those whose
// generated UID is taken.
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
		case live && im.resumed && l.incomplete == nil && createdBy(l.create, found[i].Record):
			l.finish(createdLine)
		case live && l.draft.UID == "":
			again = append(again, l)
		default:
			taken = append(taken, l)
		}
	}
	return taken, again, nil
}

// createdBy reports whether a record is the result of a create, possibly with later additions.
func createdBy(c store.Change, r store.Record) bool {
	volatileFields := []string{store.FieldChanged, store.FieldPassword, store.FieldImported, store.FieldDisabled, store.FieldUnproven, factor.FieldMark, factor.FieldHash}
	return !slices.ContainsFunc(c.Set, func(f store.Facet) bool {
		return !slices.Contains(volatileFields, f.Field) && r.Fields[f.Field] != f.Wire
	})
}

// skip skips the lines that are about an existing entry. The others stay refused, because another
// entry has one of their identifiers.
func (im *importer) skip(ctx context.Context, lines []*line) error {
	var unclear []*line
	for _, l := range lines {
		taken, _ := errors.AsType[*store.FieldError](l.err)
		switch {
		case l.draft.UID == "" || l.incomplete != nil:
			unclear = append(unclear, l)
		case taken != nil && taken.Field == l.t.Schema.Primary:
			l.finish(skippedLine)
		}
	}
	existing, err := im.findExisting(ctx, unclear)
	if err != nil {
		return err
	}
	for i, l := range unclear {
		switch e := existing[i]; {
		case e.complete():
			l.finish(skippedLine)
		case l.incomplete != nil:
			l.refuse(l.incomplete)
		}
	}
	return nil
}

// updateRounds limits the rounds of an update in which no line makes progress.
const updateRounds = 20

// update updates entries in rounds. A line waits for the next round if a line before it claims or
// releases a key that it needs, or if somebody else changed its entry meanwhile. Passwords are
// compared until the context comparing ends.
func (im *importer) update(ctx, comparing context.Context, lines []*line) error {
	for idle := 0; idle < updateRounds && len(lines) > 0; {
		existing, err := im.findExisting(ctx, lines)
		if err != nil {
			return err
		}
		if err := im.compareClear(comparing, lines, existing); err != nil {
			return err
		}
		needs := store.KeySet{}
		var now, later []*line
		var changes []store.Change
		for i, l := range lines {
			c, changed, err := im.changeForLine(comparing, l, existing[i].Found)
			own := store.KeySet{}
			own.Add(&l.create)
			own.Add(&c)
			waits := own.Intersects(needs)
			maps.Copy(needs, own)
			switch {
			case waits:
				later = append(later, l)
			case endsImport(err):
				return err
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

// changeForLine returns the change for a line: it creates the entry or, if the line means an
// existing entry, updates that. A new password (see passwordIn) has the same effect as SetPassword,
// and a line that disables the entry the same as Disable. The dates in the line are stored in new
// entries only.
func (im *importer) changeForLine(ctx context.Context, l *line, existing store.Found) (c store.Change, changed bool, err error) {
	r := existing.Record
	if existing.Err != nil || r.Fields == nil {
		return l.create, true, cmp.Or(existing.Err, l.incomplete)
	}
	facets, own := l.mergedFacets(r), map[string]string{}
	switch l.passwordIn(r, im.hidesPasswords()) {
	case otherPassword:
		if err := im.checkClearPassword(ctx, l, change.WithFurther(r, facets, nil)); err != nil {
			return c, false, err
		}
		change.SetPassword(r, im.Now(), l.draft.Facets[store.FieldPassword], facets, own)
		own[store.FieldImported] = l.mark
	case ownPassword:
		l.leftOut.replacement = true
	}
	l.leftOut.password = facets[store.FieldPassword] == "" && l.clearPassword == ""
	l.secondFactor = l.secondFactor || l.draft.Own[factor.FieldMark] != string(r.Factors()) && len(l.factors) > 0
	if l.draft.Own[store.FieldDisabled] != "" {
		change.Disable(r, im.Now(), own)
	}
	for name, wire := range l.draft.Own {
		field := store.FieldOfVerified(name)
		if field != "" && wire == store.Verified(l.draft.Facets[field]) || store.IsLost(name) {
			own[name] = wire
		}
	}
	if err := l.setValues(r, facets, own, im.Now()); err != nil {
		return c, false, err
	}
	if c, changed, err = l.t.Update(r, facets, own); err == nil {
		l.t.Hold(&c, r, im.Now())
		err = l.t.SetTertiary(&c, l.draft.Tertiary)
	}
	changed = changed || len(l.draft.Tertiary) > 0
	if err == nil && changed && r.Fields[store.FieldUnproven] != "" && l.draft.Own[store.FieldUnproven] == "" && !c.OnlyDisables() {
		err = errUnproven
	}
	return c, changed, err
}

// errUnproven refuses a line about an account that somebody registered without verifying its
// address: that person may not be the one whom the line means. Lines that only disable the account
// are allowed, and so are those of an export that say that it is unproven.
var errUnproven = fmt.Errorf("%w: somebody registered this account and did not verify its address; delete it, or let its owner verify the address first", change.ErrUnproven)

// A passwordChoice says which password an entry has after an update.
type passwordChoice int

const (
	samePassword  passwordChoice = iota // the line has none, or it is that of the entry
	otherPassword                       // that of the line
	ownPassword                         // that of the entry, because it was set in this store
)

// passwordIn returns which password an entry has after the line has updated it. A login may have
// replaced the hash that an import has set, so the mark of the import is also compared. A password
// that no import has set stays, unless the line says that its password was set later. If hide is
// set, the password of the line counts as another one.
func (l *line) passwordIn(r store.Record, hide bool) passwordChoice {
	hash, mark := l.draft.Facets[store.FieldPassword], r.Fields[store.FieldImported]
	set := r.Fields[store.FieldChanged] != "" && mark == ""
	switch current := r.PasswordHash(); {
	case hash == "" && l.clearPassword == "":
		return samePassword
	case current == "":
		return otherPassword
	case l.clearPassword != "" && l.sameClear:
		return samePassword
	case !hide && l.clearPassword == "" && (hash == current || mark != "" && mark == l.mark):
		return samePassword
	case set && !l.statedChange.After(change.PasswordChangedAt(r)):
		return ownPassword
	}
	return otherPassword
}

// compareClear compares the clear passwords of lines with those of the entries that they mean. An
// error ends the import.
func (im *importer) compareClear(ctx context.Context, lines []*line, existing []existingEntry) error {
	comparing := newHashGroup()
	for i, l := range lines {
		r := existing[i].Record
		if l.clearPassword == "" || r.PasswordHash() == "" || im.hidesPasswords() {
			continue
		}
		comparing.Go(func() (err error) {
			l.sameClear, err = im.isPassword(ctx, l.t, r.PasswordHash(), r.HashImported(), l.clearPassword)
			return err
		})
	}
	return comparing.Wait()
}

// hidesPasswords reports whether the import compares no passwords with those of entries.
func (im *importer) hidesPasswords() bool { return im.o.DryRun && im.o.HidePasswords }

// isPassword reports whether text is the password of a hash, which an import may have written.
func (im *importer) isPassword(ctx context.Context, t *change.Type, hash string, imported bool, text string) (same bool, err error) {
	err = whenFree(ctx, func() error {
		same, err = im.Config.Hashing.Matches(ctx, t, hash, imported, text)
		return err
	})
	return same, err
}

// mergedFacets returns the facets of an entry, overridden by those of the line. It keeps the
// entry's UID, since that of the line may be generated. It leaves out the password hash of the
// line, which changeForLine sets in the same way as SetPassword.
func (l *line) mergedFacets(r store.Record) map[string]string {
	facets := change.Facets(r)
	for field, wire := range l.draft.Facets {
		if field != l.t.Schema.Primary && field != store.FieldPassword {
			facets[field] = wire
		}
	}
	return facets
}

// checkClearPassword checks a clear password against the policy again if the entry has identifiers
// that the line lacks.
func (im *importer) checkClearPassword(ctx context.Context, l *line, facets map[string]string) error {
	known, own := l.t.Identifiers(l.draft.Fields()), l.t.Identifiers(facets)
	if l.clearPassword == "" || !slices.ContainsFunc(own, func(id string) bool { return id != "" && !slices.Contains(known, id) }) {
		return nil
	}
	return im.checkPassword(ctx, l, own)
}

// concurrentFollowUps is the number of changes that are followed up at a time.
const concurrentFollowUps = 16

// runFollowUps does what SetPassword and Disable do after their change is stored, for the updated
// entries of a batch that is stored permanently.
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

// An existingEntry is the entry that a line is about. Its record has no fields if there is no such
// entry.
type existingEntry struct {
	store.Found
	missing bool // the line has a UID or an identifier that no entry has
}

// complete reports whether an entry has the line's UID or, if the line has none, all its
// identifiers.
func (e existingEntry) complete() bool { return e.Err == nil && e.Record.Fields != nil && !e.missing }

// findExisting reads the entries that lines mean: by UID, or by identifiers that all lead to one
// entry.
func (im *importer) findExisting(ctx context.Context, lines []*line) ([]existingEntry, error) {
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
	existing := make([]existingEntry, len(lines))
	if len(lookups) == 0 {
		return existing, nil
	}
	found, err := im.Engine.Find(ctx, lookups)
	if err != nil {
		return nil, err
	}
	for j, f := range found {
		switch m := &existing[of[j]]; {
		case m.Err != nil:
		case errors.Is(f.Err, store.ErrNotFound):
			m.missing = true
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
