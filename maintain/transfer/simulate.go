package transfer

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

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
	taken, err := im.findTaken(ctx, lines, existing)
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

// A takenKeys says which keys of a line are taken.
type takenKeys struct {
	first   error                  // for the first key that an entry has, or nil
	byOther error                  // for the first value that another entry has, or nil
	own     map[recordkey.Key]bool // the values that the entry of the line has
}

// findTaken finds out for each line which of its keys are taken. existing has the entries that the
// lines are about.
func (im *importer) findTaken(ctx context.Context, lines []*line, existing []existingEntry) ([]takenKeys, error) {
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
	taken := make([]takenKeys, len(lines))
	if len(lookups) == 0 {
		return taken, nil
	}
	found, err := im.Engine.Find(ctx, lookups)
	if err != nil {
		return nil, err
	}
	for j, f := range found {
		if errors.Is(f.Err, store.ErrNotFound) {
			continue
		}
		k, c, srks := &taken[of[j]], &lines[of[j]].create, lookups[j].SRKs
		err := f.Err
		switch {
		case err != nil:
		case len(srks) == 0:
			err = store.DuplicateField(c.Key.Field())
		default:
			err = store.DuplicateOf(*c, srks[0])
		}
		k.first = cmp.Or(k.first, err)
		switch about := existing[of[j]].Record; {
		case len(srks) == 0:
		case f.Err == nil && about.Fields != nil && about.Key == f.Record.Key:
			if k.own == nil {
				k.own = map[recordkey.Key]bool{}
			}
			k.own[srks[0]] = true
		default:
			k.byOther = cmp.Or(k.byOther, err)
		}
	}
	return taken, im.findPreserved(ctx, lines, lookups, found, of, taken)
}

// findPreserved marks as taken the keys that no entry has, but that are not free: UIDs that are
// retired and values that are held. of holds, for each lookup, the index of its line.
func (im *importer) findPreserved(ctx context.Context, lines []*line, lookups []store.Lookup, found []store.Found, of []int, taken []takenKeys) error {
	var reads []store.RawRead
	var at []int // the lookups
	for j, f := range found {
		if !errors.Is(f.Err, store.ErrNotFound) {
			continue
		}
		read := store.RawRead{Key: lookups[j].PRK.String(), As: store.RawField, Field: store.FieldRetired}
		if srks := lookups[j].SRKs; len(srks) > 0 {
			read = store.RawRead{Key: srks[0].String(), As: store.RawText}
		}
		reads, at = append(reads, read), append(at, j)
	}
	raws, err := im.Engine.ReadRaw(ctx, reads)
	if err != nil {
		return err
	}
	for i, raw := range raws {
		k, c, srks := &taken[of[at[i]]], &lines[of[at[i]]].create, lookups[at[i]].SRKs
		switch {
		case raw.Wire == "":
		case len(srks) == 0:
			k.first = cmp.Or(k.first, store.RetiredUID(c.Key.Field()))
		default:
			key, err := recordkey.Parse(im.NS.String() + store.Owner(raw.Wire))
			if err != nil || key.Kind() != recordkey.KindPRK || key == c.Key {
				continue
			}
			owner, err := im.rawRecord(ctx, key)
			if err != nil {
				return err
			}
			if owner.Holds(srks[0].Field(), srks[0].Value(), time.Now()) {
				err := store.HeldOf(*c, srks[0])
				k.first, k.byOther = cmp.Or(k.first, err), cmp.Or(k.byOther, err)
			}
		}
	}
	return nil
}

// simulate determines the outcome of a line from the entry that it is about, and from the keys that
// entries or lines before it have taken. An error ends the import.
func (im *importer) simulate(ctx context.Context, l *line, existing existingEntry, k takenKeys) error {
	before, contested, same := im.linesBefore(l, k.own)
	taken, byOther := cmp.Or(k.first, before), cmp.Or(k.byOther, contested)
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
		case cmp.Or(err, byOther) != nil:
			l.refuse(cmp.Or(err, byOther))
		case changed:
			l.finish(updatedLine)
		default:
			l.finish(skippedLine)
		}
	case im.o.OnDuplicate == DuplicateUpdate && same && byOther != nil:
		l.refuse(byOther)
	case im.o.OnDuplicate == DuplicateUpdate && same:
		l.finish(updatedLine)
	default:
		l.refuse(taken)
	}
	return nil
}

// linesBefore records the keys of a line under the number of the first line that is about the same
// entry. own has the values that the entry of the line already has. taken is the error for a key
// that lines before this one have taken, or nil. contested is the error for a value, not in own,
// that such a line gives to another entry, or nil. same reports whether a line before this one is
// about the same entry.
func (im *importer) linesBefore(l *line, own map[recordkey.Key]bool) (taken, contested error, same bool) {
	no, claims := im.seenInInput("", l.create.Key.String()), l.create.Claim
	if l.draft.UID == "" {
		no = 0
		for i, srk := range claims {
			switch first := im.seenInInput(srk.Type(), l.t.UniqueText(srk)); {
			case i == 0:
				no = first
			case first != no:
				no = 0
			}
		}
	}
	if same = no > 0; same {
		field := l.create.Key.Field()
		if l.draft.UID == "" {
			field = claims[0].Field()
		}
		taken = store.DuplicateField(field)
	} else {
		no = l.no
	}
	im.addSeen("", l.create.Key.String(), no)
	for _, srk := range claims {
		first := im.seenInInput(srk.Type(), l.t.UniqueText(srk))
		im.addSeen(srk.Type(), l.t.UniqueText(srk), no)
		if first > 0 && first != no {
			taken = cmp.Or(taken, store.DuplicateField(srk.Field()))
			if !own[srk] {
				contested = cmp.Or(contested, store.DuplicateField(srk.Field()))
			}
		}
	}
	return taken, contested, same
}

// maxSeen bounds the memory of a dry run. Duplicates within the input are found among its first
// half million keys.
const maxSeen = 500_000

// seenInInput returns the number under which earlier lines have recorded an entry, or a value of a
// type. It returns 0 if none has.
func (im *importer) seenInInput(typ, value string) int64 { return im.seen[records.Digest(typ, value)] }

// addSeen records an entry, or a value of a type, unless an earlier line has done so.
func (im *importer) addSeen(typ, value string, no int64) {
	if d := records.Digest(typ, value); im.seen[d] == 0 && len(im.seen) < maxSeen {
		im.seen[d] = no
	}
}

// count adds the parts that were left out of a line to the report.
func (im *importer) count(l *line) {
	r := &im.state.Report
	add := func(to *int64, applies bool) {
		if applies {
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

// try checks the password of a trial if the line holds its account. A line that would be imported
// takes precedence over one that would be refused. An error ends the import.
func (im *importer) try(ctx context.Context, l *line, t *Trial) (err error) {
	wanted := l.t.Schema.Canonical(t.Identifier)
	matches := slices.ContainsFunc(l.t.SRKs(l.draft.Fields()), func(srk recordkey.Key) bool {
		return slices.Contains(l.t.Typed, srk.Field()) && srk.Value() == wanted
	})
	if !matches || t.Line > 0 && (l.done == refusedLine || !im.trialRefused) {
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
	case l.done == createdLine && !l.signsIn(wanted):
		t.Reason = "nobody can log in with a further address that is not verified"
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

// signsIn reports whether the owner of a new entry may log in with one of its identifiers. A
// further mail address must be verified first.
func (l *line) signsIn(canonical string) bool {
	fields := maps.Clone(l.draft.Own)
	if fields == nil {
		fields = map[string]string{}
	}
	maps.Copy(fields, l.draft.Facets)
	r := store.Record{Fields: fields}
	return slices.ContainsFunc(l.t.Typed, func(field string) bool {
		needsProof := l.t.Schema.Fields[field].HasAddresses()
		if facet, has := fields[field]; has && l.t.Schema.Canonical(facet) == canonical {
			return !needsProof || !r.FacetUnverified(field)
		}
		f, has := r.FurtherValue(field, canonical)
		return has && (!needsProof || f.Verified > 0)
	})
}
