package check

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/throttle"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// checkAndRepairOwn reports damage to the store's own records that stops operations or logins, and
// repairs it if asked to. It reports whether the check can go on: no damage is left, except to the
// secret.
func (c *checker) checkAndRepairOwn(ctx context.Context) (goOn bool, err error) {
	found, err := checkFunc(c.checkOwn).run(ctx, nil)
	left := found
	if c.o.Repair && len(found) > 0 {
		for _, f := range found {
			if err := c.repairOwn(ctx, f); err != nil && !leavesProblem(err) {
				return false, err
			}
		}
		left, err = checkFunc(c.checkOwn).run(ctx, nil)
	}
	if err != nil {
		return false, err
	}
	goOn = true
	for i, f := range found {
		still := slices.ContainsFunc(left, func(l finding) bool { return l.digest() == f.digest() })
		found[i].Repaired = !still
		goOn = goOn && (!still || f.code == ownSecret)
	}
	return goOn, c.send(ctx, update{found: found})
}

func (c *checker) repairOwn(ctx context.Context, f finding) error {
	if s, ok := f.step.(store.ReplaceSchema); ok {
		if err := c.applyStep(ctx, store.Remove{Key: s.Guard.Key.String(), Kind: "hash"}); err != nil {
			return err
		}
	}
	if err := c.applyStep(ctx, f.step); err != nil || f.code != ownTypes {
		return err
	}
	return c.rebuildTypes(ctx)
}

func (c *checker) checkOwn(ctx context.Context, r *report, _ []item) {
	c.checkSchemas(ctx, r, c.checkTypes(ctx, r))
	c.checkSecret(ctx, r)
	c.checkCopy(ctx, r)
}

// checkCopy reports records that are part of an unfinished copy.
func (c *checker) checkCopy(ctx context.Context, r *report) {
	mark := c.ownKey(records.CopyMark)
	if from := read(ctx, r, c.Engine, []string{mark.String()}, store.Texts)[0]; from.Exists {
		r.add(0, ownCopying, mark, "", records.Quoted(from.Wire))
	}
}

// ownKey returns the key of one of the store's own records, or the zero Key if parts make no valid
// key.
func (c *checker) ownKey(parts ...string) recordkey.Key {
	key, _ := recordkey.Own(parts...)
	return key.In(c.NS)
}

func (c *checker) schemaKeys(types []string) []string {
	return records.Map(types, func(name string) string { return c.ownKey("schema", name).String() })
}

// checkTypes checks ~/types and returns the types that it names.
func (c *checker) checkTypes(ctx context.Context, r *report) (named []string) {
	key := c.ownKey("types")
	types := read(ctx, r, c.Engine, []string{key.String()}, readRaw)[0]
	wrong := func(step store.RepairStep, text string) { r.add(0, ownTypes, key, "", text).step = step }
	if types.Type != "set" && types.Type != store.KindNone {
		wrong(store.Remove{Key: key.String(), Kind: "set"}, "the names of the types are a set, but this is a "+records.Quoted(types.Type))
		return nil
	}
	for _, name := range types.Items {
		if c.ownKey("schema", name).IsValid() {
			named = append(named, name)
		} else {
			wrong(store.Remove{Key: key.String(), Member: name}, "no key can hold the type name "+records.Quoted(name))
		}
	}
	declared := c.Schema.Names()
	for i, kind := range read(ctx, r, c.Engine, c.schemaKeys(declared), store.Kinds) {
		if kind != store.KindNone && !slices.Contains(named, declared[i]) {
			wrong(nil, "type "+records.Quoted(declared[i])+" has a schema but is not in this set")
		}
	}
	return named
}

// rebuildTypes adds every type that has a stored schema to ~/types. It leaves the schemas
// unchanged.
func (c *checker) rebuildTypes(ctx context.Context) error {
	pattern := recordkey.Glob(c.NS.String()) + "~/schema/*"
	for keys, err := range c.Engine.ScanAll(ctx, store.Scan{Pattern: pattern, Count: records.ScanBatch}) {
		if err != nil {
			return err
		}
		hashes, err := store.Hashes(ctx, c.Engine, keys)
		if err != nil {
			return err
		}
		for i, h := range hashes {
			key, err := recordkey.Parse(keys[i])
			if err != nil || key.Kind() != recordkey.KindOwn || key.Namespace() != c.NS || len(key.Parts()) != 2 {
				continue
			}
			var state []store.Facet
			// The fields are sorted, so that the fingerprint comes first.
			for _, field := range slices.Sorted(maps.Keys(h.Fields)) {
				state = append(state, store.Facet{Field: field, Wire: h.Fields[field]})
			}
			guard := store.Guard{Key: key, Types: c.ownKey("types")}
			err = c.applyStep(ctx, store.ReplaceSchema{Guard: guard, Seen: h.Fields[store.FieldFingerprint], Fields: state})
			// If the record is not a hash, the step has still added the name to ~/types, and the
			// record is repaired next.
			if err != nil && !store.IsWrongType(err) {
				return err
			}
		}
	}
	return nil
}

// checkSchemas checks ~/schema/TYPE of the types that are named or that the schema declares.
func (c *checker) checkSchemas(ctx context.Context, r *report, named []string) {
	names := append(c.Schema.Names(), named...)
	slices.Sort(names)
	names = slices.Compact(names)
	for i, h := range read(ctx, r, c.Engine, c.schemaKeys(names), store.Hashes) {
		// t is nil for types that only ~/types names: the layout of their entries is unknown.
		t, declared := c.ByName[names[i]]
		reason := unreadableReason(names[i], h)
		if r.err == nil && reason == "" && len(h.Fields) == 0 && declared && slices.Contains(named, names[i]) {
			if r.err = store.CheckNoEntries(ctx, c.Engine, t.Guard.Entries); errors.Is(r.err, store.ErrSchemaMismatch) {
				reason, r.err = "the schema of the type is lost, and there are entries", nil
			}
		}
		if r.err != nil || reason == "" {
			continue
		}
		var step store.RepairStep
		if step, r.err = c.restateStep(ctx, t, h); step == nil {
			reason += "; until it is restored, writers are refused or use another schema. If FILE holds the schema that the entries were written with, " +
				"'userdb check --repair --schema FILE' stores it again"
		}
		r.add(0, ownSchema, c.ownKey("schema", names[i]), "", reason).step = step
	}
}

// unreadableReason returns why the stored schema of a type cannot be valid, or "" if it can.
func unreadableReason(name string, h store.Raw) string {
	switch {
	case h.WrongType:
		return "the schema of a type is a hash, but this is not"
	case len(h.Fields) == 0:
		return ""
	case h.Fields[store.FieldFingerprint] == "":
		return "the schema of the type has no fingerprint"
	}
	stored, err := change.ParseStored(name, h.Fields)
	if err == nil && stored.ChangeUnderWay() {
		_, err = change.ParseType(name, stored.Next)
	}
	switch {
	case errors.Is(err, change.ErrFingerprint):
		return err.Error()
	case err != nil:
		return "it cannot be read, or was written by a newer version: " + err.Error()
	}
	return ""
}

// restateStep returns a step that replaces a broken stored schema with the view's schema. It does
// so if the remaining fingerprint is that of the view's schema and no change was under way, or if
// Options.Restate is set; a repair then also requires that all records fit. Otherwise nothing shows
// that the view's schema is the right one, and it returns nil.
func (c *checker) restateStep(ctx context.Context, t *change.Type, h store.Raw) (store.RepairStep, error) {
	if t == nil {
		return nil, nil
	}
	g, seen := t.Guard, h.Fields[store.FieldFingerprint]
	if seen != g.Fingerprint && seen != t.Schema.Fingerprint() || h.Fields[change.FieldNext] != "" {
		if !c.o.Restate {
			return nil, nil
		}
		if c.o.Repair {
			if fit, err := c.recordsFit(ctx); err != nil || !fit {
				return nil, err
			}
		}
	}
	state := []store.Facet{{Field: store.FieldFingerprint, Wire: g.Fingerprint}, {Field: store.FieldSchema, Wire: g.JSON}}
	for _, field := range g.TertiaryFields() {
		state = append(state, store.Facet{Field: field, Wire: "1"})
	}
	return store.ReplaceSchema{Guard: g, Seen: seen, Fields: state}, nil
}

// recordsFit reports whether a check with the view's schema finds no error. It ignores unreadable
// login counters, which do not depend on the schema.
func (c *checker) recordsFit(ctx context.Context) (bool, error) {
	progress := func(done, about int64) { c.reportProgress(ctx, done, about) }
	for p, err := range start(ctx, c.View, Options{Progress: progress}, (*checker).runRound) {
		if err != nil || p.Severity == SeverityError && p.Code != ownThrottle.name {
			return false, err
		}
	}
	return true, nil
}

var secretForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// checkSecret checks ~/secret. After a repair the next login creates a new secret. Counters stored
// under a hash made with the old one (those of origins, and of identifiers that no entry has) then
// start at zero.
func (c *checker) checkSecret(ctx context.Context, r *report) {
	key := c.ownKey("secret")
	switch raw := read(ctx, r, c.Engine, []string{key.String()}, readRaw)[0]; {
	case raw.Type == store.KindNone:
	case raw.Type != "string":
		r.add(0, ownSecret, key, "").step = store.Remove{Key: key.String(), Kind: "string"}
	case !secretForm.MatchString(raw.Wire):
		r.add(0, ownSecret, key, "").step = store.Remove{Key: key.String(), Seen: store.Text{Wire: raw.Wire, Exists: true}}
	}
}

// isHistory reports whether key is that of an entry's history.
func isHistory(key recordkey.Key) bool {
	prk := key.PRK()
	historyKey, err := history.Key(prk)
	return err == nil && key == historyKey
}

// checkHistories checks that each history belongs to a live entry. It accepts that of an entry that
// was deleted, as its last line or the note of the tombstone says: such a history expires within a
// day, and until then the feed of a cluster may need it.
func (c *checker) checkHistories(ctx context.Context, r *report, items []item) {
	var reads []store.RawRead
	for _, it := range items {
		for _, field := range []string{store.FieldType, history.FieldNote} {
			reads = append(reads, store.RawRead{Key: it.key.PRK().String(), As: store.RawField, Field: field})
		}
	}
	fields := read(ctx, r, c.Engine, reads, readFields)
	var dead []int
	for i := range items {
		isa, waiting := fields[2*i], fields[2*i+1]
		if isa.Wire == "" && !isa.WrongType && !history.EndsWithDelete(waiting.Wire) {
			dead = append(dead, i)
		}
	}
	keys := records.Map(dead, func(i int) string { return items[i].raw })
	for n, text := range read(ctx, r, c.Engine, keys, store.Texts) {
		it := items[dead[n]]
		if text.Exists && !history.EndsWithDelete(text.Wire) {
			prk := it.key.PRK()
			r.add(dead[n], historyOrphan, it.key, "", records.Quoted(records.Relative(prk))).step = store.Remove{Key: it.raw, Seen: text.Text, Owner: prk.String()}
		}
	}
}

// checkThrottles checks login counters. If a counter cannot be read, its account or origin is
// locked out.
func (c *checker) checkThrottles(ctx context.Context, r *report, items []item) {
	for i, h := range read(ctx, r, c.Engine, rawKeys(items), store.Hashes) {
		remove := store.Remove{Key: items[i].raw, Kind: "hash"}
		if !h.WrongType {
			field, value := throttle.Unreadable(h.Fields)
			if field == "" {
				continue
			}
			remove = store.Remove{Key: items[i].raw, Field: field, Value: value}
		}
		r.add(i, ownThrottle, items[i].key, "").step = remove
	}
}
