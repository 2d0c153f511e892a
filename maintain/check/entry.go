package check

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// An entry holds the hash under a PRK, sound or damaged.
type entry struct {
	at     int // index of the checked item
	key    recordkey.Key
	prk    string // relative to the namespace
	t      *change.Type
	fields map[string]string
	claims []recordkey.Key // the SRKs that I1 requires for its values
}

func (e *entry) add(r *report, c *code, key recordkey.Key, args ...any) *finding {
	return r.add(e.at, c, key, e.prk+" "+e.fields[store.FieldRev], args...)
}

// checkEntries checks entries by themselves (I3), against the SRKs of their values (I1, I2) and
// against the indexes of their facets (I5). It returns the entries that it checked.
func (c *checker) checkEntries(ctx context.Context, r *report, items []item) (es []*entry) {
	var dead []int
	var holds []hold
	for i, h := range read(ctx, r, c.Engine, rawKeys(items), store.Hashes) {
		if e := entryAt(r, c.ByName[items[i].key.Type()], i, items[i].key, h); e != nil {
			e.check(r)
			es = append(es, e)
			holds = append(holds, e.holds()...)
		} else if len(h.Fields) > 0 && records.Gone(h.Fields) {
			dead = append(dead, i)
			e := &entry{at: i, key: items[i].key, prk: records.Relative(items[i].key), t: c.ByName[items[i].key.Type()], fields: h.Fields}
			holds = append(holds, e.holds()...)
		}
		if c.fix != nil && !h.WrongType {
			c.sweepHolds(ctx, r, items[i].key, h.Fields)
		}
	}
	c.checkTombstones(ctx, r, items, dead)
	c.checkHolds(ctx, r, holds)
	c.checkClaims(ctx, r, es)
	c.checkMemberships(ctx, r, es)
	c.checkFactors(ctx, r, es)
	return es
}

// checkTombstones checks that deleted entries (I4) have no facets, that they stay forever if and
// only if their UIDs are retired, and that they stay as long as they hold values.
func (c *checker) checkTombstones(ctx context.Context, r *report, items []item, dead []int) {
	keys := records.Map(dead, func(i int) string { return items[i].raw })
	for j, raw := range read(ctx, r, c.Engine, keys, readRaw) {
		i := dead[j]
		fields := map[string]string{}
		for _, p := range raw.Pairs {
			fields[p.Field] = p.Wire
		}
		what := tombstoneEndless
		switch {
		case !records.Gone(fields) || len(fields) == 0:
			continue
		case store.HalfDeleted(fields):
			what = deleteUnfinished
		case fields[store.FieldRetired] != "":
			if what = retiredEnding; raw.TTL == -1 {
				continue
			}
		case raw.TTL != -1:
			if what = heldEnding; !endsBefore(raw.TTL, store.HeldIn(fields)) {
				continue
			}
		}
		r.add(i, what, items[i].key, fields[store.FieldRev]).step = store.FinishDelete{Entry: items[i].key}
	}
}

// endsBefore reports whether a record that has life milliseconds to live ends before the last of
// its holds. The clocks may differ by store.HeldMargin.
func endsBefore(life int64, all []store.HeldValue) bool {
	end := time.Now().Add(store.HeldMargin).UnixMilli() + life
	return slices.ContainsFunc(all, func(h store.HeldValue) bool { return h.Until.UnixMilli() > end })
}

// entryAt returns the entry to check at a PRK. It returns nil if there is no record or only a
// tombstone. If the record cannot be an entry, entryAt reports that and returns nil.
func entryAt(r *report, t *change.Type, at int, key recordkey.Key, h store.Raw) *entry {
	switch {
	case !h.WrongType && records.Gone(h.Fields):
		return nil
	case key.Field() != t.Schema.Primary:
		r.add(at, keyField, key, "", records.Quoted(t.Name), records.Quoted(t.Schema.Primary))
		return nil
	case h.WrongType:
		r.add(at, prkKind, key, "")
		return nil
	}
	return &entry{at: at, key: key, prk: records.Relative(key), t: t, fields: h.Fields}
}

// check reports problems of the entry itself, and collects the claims of its values.
func (e *entry) check(r *report) {
	switch isa := e.fields[store.FieldType]; isa {
	case e.t.Name:
	case "":
		e.add(r, isaMissing, e.key).values = e.digests()
	default:
		e.add(r, typeMismatch, e.key, records.Quoted(isa)).values = e.digests()
	}
	if prk := e.fields[store.FieldPRK]; prk != e.prk {
		e.add(r, prkWrong, e.key, e.quoted(store.FieldPRK))
	}
	if primary := e.t.Schema.Primary; e.fields[primary] != e.key.Value() {
		e.add(r, primaryWrong, e.key, records.Quoted(primary), e.quoted(primary))
	}
	for _, field := range e.t.Secondary {
		if !e.t.Building.Has(field, schema.RoleSecondary) {
			e.checkSecondary(r, field)
		}
	}
	e.checkFurther(r)
	e.checkPasswordHash(r)
	e.checkPasskeys(r)
	for _, field := range e.t.Required {
		if _, has := e.fields[field]; !has && !e.t.Building.Requires(field) {
			e.add(r, requiredMissing, e.key, records.Quoted(field)).seen += " " + field
		}
	}
	for field, wire := range e.fields {
		if codec := e.t.Schema.Codec(field); codec != schema.CodecText {
			if _, err := schema.Decode(codec, wire); err != nil {
				e.add(r, facetUndecodable, e.key, records.Quoted(field), err).seen += " " + field
			}
		}
	}
}

// quoted returns a facet in quotes, or "missing".
func (e *entry) quoted(field string) string {
	if text, ok := e.fields[field]; ok {
		return records.Quoted(text)
	}
	return "missing"
}

// digests returns the digests of all values that the entry would have if it were live.
func (e *entry) digests() []uint64 {
	return records.Map(e.t.UniqueTexts(e.fields), func(text string) uint64 { return records.Digest(e.t.Name, text) })
}

func (e *entry) checkSecondary(r *report, field string) {
	facet, has := e.fields[field]
	skv, kept := e.fields[store.FieldSKV(field)]
	if !has {
		if slices.Contains(e.t.Typed, field) {
			e.add(r, fieldMissing, e.key, records.Quoted(field))
		}
		if kept {
			e.add(r, skvWrong, e.key, records.Quoted(field), "kept without a facet")
		}
		return
	}
	value := e.t.Schema.Canonical(facet)
	if kept && skv != value || !kept && facet != value {
		e.add(r, skvWrong, e.key, records.Quoted(field), e.quoted(store.FieldSKV(field))+", want "+records.Quoted(value))
	}
	if srk, ok := e.t.SRK(field, value); ok {
		e.claims = append(e.claims, srk)
	} else {
		e.add(r, valueUnkeyable, e.key, records.Quoted(field), records.Unkeyable(value))
	}
}

// checkFurther checks the further values of secondary fields, and adds their claims.
func (e *entry) checkFurther(r *report) {
	count := map[string]int{}
	for _, f := range store.FurtherIn(e.fields, "") {
		first, has := e.fields[f.Field]
		value := e.t.Schema.Canonical(f.Written)
		if count[f.Field]++; !slices.Contains(e.t.Secondary, f.Field) {
			continue
		}
		if e.t.Building.Has(f.Field, schema.RoleSecondary) {
			continue
		}
		why := ""
		_, sound := store.ParseFurther(f.Name(), e.fields[f.Name()])
		switch {
		case !sound:
			why = "its text cannot be read"
		case !has:
			why = "the field has no first value"
		case e.t.Schema.Canonical(first) == f.Canonical:
			why = "it repeats the first value"
		case value != f.Canonical:
			why = "it is kept under another canonical form than " + records.Quoted(value)
		}
		if why != "" {
			e.add(r, furtherWrong, e.key, records.Quoted(f.Canonical), records.Quoted(f.Field), why).seen += " " + f.Name()
		}
		srk, ok := e.t.SRK(f.Field, value)
		if !ok {
			e.add(r, valueUnkeyable, e.key, records.Quoted(f.Field), records.Unkeyable(value))
		} else if !slices.Contains(e.claims, srk) {
			e.claims = append(e.claims, srk)
		}
	}
	for name, text := range e.fields {
		if !store.IsFurther(name) {
			continue
		}
		if f, _ := store.ParseFurther(name, text); f.Canonical == "" {
			why := "the name of its field lacks the value"
			e.add(r, furtherWrong, e.key, records.Quoted(text), records.Quoted(f.Field), why).seen += " " + name
		}
	}
	for field, n := range count {
		if limit := e.t.Schema.Fields[field].MaxValues(); 1+n > limit {
			e.add(r, furtherMany, e.key, 1+n, records.Quoted(field), limit).seen += " " + field
		}
	}
}

// An observation is an SRK to read because an entry has its value: either the SRK that the entry
// claims, or an SRK of the same value in another field in which no other entry may have it (I2).
type observation struct {
	*entry
	claim   recordkey.Key
	record  recordkey.Key // the SRK to read
	srv     string        // the value of that SRK
	claimed bool          // the claimed SRK names the entry
}

func (s observation) isClaim() bool { return s.record == s.claim }

// observations returns the SRKs to read in order to check the claims of entries. For each value the
// claimed SRK comes first. An SRK that is itself a claim of the entry appears only once.
func observations(es []*entry) (all []observation) {
	for _, e := range es {
		for _, claim := range e.claims {
			all = append(all, observation{entry: e, claim: claim, record: claim})
			for _, field := range e.t.SettledRivals(claim.Field()) {
				if srk, ok := e.t.SRK(field, claim.Value()); ok && !slices.Contains(e.claims, srk) {
					all = append(all, observation{entry: e, claim: claim, record: srk})
				}
			}
		}
	}
	return all
}

func srksOf(all []observation) []string {
	return records.Map(all, func(s observation) string { return s.record.String() })
}

// checkClaims checks the SRKs of all secondary values of entries. An SRK that names another entry
// is judged by the values of that entry.
func (c *checker) checkClaims(ctx context.Context, r *report, es []*entry) {
	all := observations(es)
	srvs := read(ctx, r, c.Engine, srksOf(all), store.Texts)
	var absent, rivals []observation
	claimed := false
	for i, s := range all {
		s.srv = srvs[i].Wire
		if s.isClaim() {
			claimed = srvs[i].Exists && store.Owner(s.srv) == s.prk
		}
		s.claimed = claimed
		switch {
		case !srvs[i].Exists && s.isClaim():
			absent = append(absent, s)
		case srvs[i].Exists && store.Owner(s.srv) != s.prk:
			rivals = append(rivals, s)
		}
	}
	for i, kind := range read(ctx, r, c.Engine, srksOf(absent), store.Kinds) {
		if s := absent[i]; kind == store.KindNone || kind == "string" {
			s.addValue(r, srkMissing, records.Printable(s.prk))
		} else {
			s.addValue(r, srkWrong, records.Printable(s.prk), "is a "+records.Quoted(kind))
		}
	}
	c.checkRivals(ctx, r, rivals)
}

// addValue adds a problem of the claimed value to the report.
func (s observation) addValue(r *report, what *code, args ...any) *finding {
	f := s.add(r, what, s.claim, args...)
	f.values = []uint64{records.Digest(s.t.Name, s.t.UniqueText(s.claim))}
	return f
}

// checkRivals checks SRKs that name an entry other than the one that claims their value. If the
// named entry also has the value, two entries share it (I2). If not, the SRK of the claiming entry
// is wrong (I1).
func (c *checker) checkRivals(ctx context.Context, r *report, rivals []observation) {
	owners := records.Map(rivals, func(s observation) owner {
		key, _ := parseOwner(s.t, s.record.Namespace(), s.srv)
		return owner{t: s.t, key: key}
	})
	c.readOwners(ctx, r, owners)
	type pair struct {
		prk, unique string
		other       recordkey.Key
	}
	reported := map[pair]bool{}
	for i, s := range rivals {
		other := owners[i]
		p := pair{s.prk, s.t.UniqueText(s.claim), other.key}
		field, has := other.has(s.claim)
		// If each of two entries has its own SRK, both checks find the problem; only one reports
		// it.
		byOther := c.checksAll && s.claimed && s.prk < records.Relative(other.key)
		switch {
		case has && !reported[p] && !byOther:
			reported[p] = true
			s.addShared(r, other, field)
		case !has && s.isClaim():
			f := s.addValue(r, srkWrong, records.Printable(s.prk), "names "+records.Quoted(store.Owner(s.srv))+", which does not")
			f.seen += " " + s.srv + " " + other.keyAndRev()
		}
	}
}

// addShared reports that another entry has the claimed value in field.
func (s observation) addShared(r *report, other owner, field string) {
	a, b := s.key.In(recordkey.Namespace{}), other.key.In(recordkey.Namespace{})
	f := s.addValue(r, valueShared, records.Printable(a.String())+" has this value in "+records.Quoted(s.claim.Field())+
		", and "+records.Printable(b.String())+" in "+records.Quoted(field))
	f.seen += " " + other.keyAndRev()
	f.Choices = []recordkey.Key{a, b}
	slices.SortFunc(f.Choices, recordkey.Key.Compare)
}

// repairEntry repairs an entry and claims the SRKs that missingClaims returns, in one change. If
// one of them cannot be claimed, repairEntry claims them one by one.
func (c *checker) repairEntry(ctx context.Context, prk recordkey.Key) error {
	var missing []recordkey.Key
	err := c.changeEntry(ctx, prk, func(r store.Record) (m change.RepairLimits, may bool, err error) {
		missing, may, err = c.missingClaims(ctx, r)
		return change.RepairLimits{Claim: missing}, may, err
	})
	if !errors.Is(err, store.ErrDuplicate) {
		return err
	}
	for _, srks := range append([][]recordkey.Key{nil}, slices.Collect(slices.Chunk(missing, 1))...) {
		m := change.RepairLimits{Claim: srks}
		err := c.changeEntry(ctx, prk, func(r store.Record) (change.RepairLimits, bool, error) { return m, r.Live(), nil })
		if err != nil && !leavesProblem(err) {
			return err
		}
	}
	return nil
}

// changeEntry makes one change of an entry, based on its current state.
func (c *checker) changeEntry(ctx context.Context, prk recordkey.Key, how func(store.Record) (change.RepairLimits, bool, error)) error {
	t := c.ByName[prk.Type()]
	_, err := records.Rewrite(ctx, c.View, t, prk, func(r store.Record) (store.Change, bool, error) {
		m, may, err := how(r)
		if err != nil || !may {
			return store.Change{}, false, err
		}
		todo, due := t.Repair(r, m)
		return todo, due, nil
	})
	return err
}

// missingClaims returns the SRKs that the entry should claim: the SRKs of its values, except those
// that already name the entry and those of contested values, which another entry also has. It
// returns false if ~isa does not name the entry's type and a value is contested, because a repair
// must not make such an entry live.
func (c *checker) missingClaims(ctx context.Context, r store.Record) (srks []recordkey.Key, may bool, err error) {
	t := c.ByName[r.Key.Type()]
	all := t.SRKs(r.Fields)
	srvs, err := store.Texts(ctx, c.Engine, records.Map(all, recordkey.Key.String))
	if err != nil {
		return nil, false, err
	}
	for i, srk := range all {
		switch contested := c.fix.contested[records.Digest(t.Name, t.UniqueText(srk))]; {
		case contested && r.Fields[store.FieldType] != t.Name:
			return nil, false, nil
		case contested || srvs[i].Exists && store.Owner(srvs[i].Wire) == records.Relative(r.Key):
			continue
		}
		// This removes a record of another Redis type, which would prevent the claim.
		if err := c.applyStep(ctx, store.Remove{Key: srk.String(), Kind: "string"}); err != nil {
			return nil, false, err
		}
		srks = append(srks, srk)
	}
	return srks, true, nil
}
