package transfer

import (
	"context"
	"errors"
	"slices"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/storedschema"
	"github.com/coffeenode/userdb/internal/strictjson"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A preservedLine is a line of an export that describes a held value or a retired UID, not an
// entry. Texts that are not UTF-8 are in base64.
type preservedLine struct {
	Type    string         `json:"type"`
	Held    *preservedText `json:"held,omitempty"`
	Retired *preservedText `json:"retired,omitempty"`
}

// A preservedText is a held value or a retired UID in an export.
type preservedText struct {
	UID     string `json:"uid,omitempty"`
	UID64   []byte `json:"uid64,omitempty"`
	Field   string `json:"field,omitempty"`
	Value   string `json:"value,omitempty"`
	Value64 []byte `json:"value64,omitempty"`
	Until   string `json:"until,omitempty"`
	At      string `json:"at,omitempty"`
}

// Keys of JSON lines that describe no entry.
const keyHeld, keyRetired = "held", "retired"

// preservedLines returns the lines for the values that an entry, or a tombstone, holds, and for its
// UID if that is retired.
func preservedLines(t *change.Type, r store.Record) (all []preservedLine) {
	uid := preservedText{UID: r.Key.Value()}
	if !utf8.ValidString(uid.UID) {
		uid = preservedText{UID64: []byte(uid.UID)}
	}
	if wire := r.Fields[store.FieldRetired]; wire != "" && !r.Live() {
		retired := uid
		retired.At = wire
		all = append(all, preservedLine{Type: t.Name, Retired: &retired})
	}
	for _, h := range store.HeldIn(r.Fields) {
		if !h.Until.After(time.Now()) || !slices.Contains(t.Secondary, h.Field) || r.Live() && r.HasValue(h.Field, h.Canonical) {
			continue
		}
		held := uid
		held.Field, held.Value, held.Until = h.Field, h.Canonical, schema.Date(h.Until).Wire()
		if !utf8.ValidString(held.Value) {
			held.Value, held.Value64 = "", []byte(h.Canonical)
		}
		all = append(all, preservedLine{Type: t.Name, Held: &held})
	}
	return all
}

// writePreserved writes the lines for the held values and the retired UID of an entry or a
// tombstone.
func (x *exporter) writePreserved(t *change.Type, r store.Record) error {
	for _, line := range preservedLines(t, r) {
		if line.Held != nil {
			x.report.Held++
		} else {
			x.report.Retired++
		}
		text, err := strictjson.Marshal(line)
		if err == nil {
			_, err = x.w.Write(text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeTombstones writes the lines for the held values and retired UIDs of deleted entries.
func (x *exporter) writeTombstones(ctx context.Context, t *change.Type, prks []recordkey.Key) error {
	hashes, err := store.Hashes(ctx, x.Engine, records.Map(prks, recordkey.Key.String))
	for i, h := range hashes {
		if r := (store.Record{Key: prks[i], Fields: h.Fields}); err == nil && records.Gone(h.Fields) {
			err = x.writePreserved(t, r)
		}
	}
	return err
}

// preserved reads the value of keyHeld or keyRetired.
func (s *scanner) preserved(name string) *preservedText {
	var p preservedText
	s.objectOf(name, func(member string) {
		switch member {
		case "uid":
			p.UID = s.string(member)
		case "uid64":
			p.UID = string(decodeAs[[]byte](s, member, s.value()))
		case "field":
			p.Field = s.string(member)
		case "value":
			p.Value = s.string(member)
		case "value64":
			p.Value = string(decodeAs[[]byte](s, member, s.value()))
		case "until":
			p.Until = s.string(member)
		case "at":
			p.At = s.string(member)
		default:
			s.fail(unknownMember(member))
		}
	})
	return &p
}

// A preserved holds the held value of a line, or its retired UID if hold is the zero HeldValue.
type preserved struct {
	entry   recordkey.Key
	hold    store.HeldValue
	retired string // the time of the delete, in wire form
	ignored bool   // the options leave it out
}

// preserve parses a line that describes no entry.
func (im *importer) preserve(l *line, r *reading) error {
	if len(r.facets)+len(r.tertiary)+len(r.values)+len(r.verified) > 0 || r.held != nil && r.retired != nil {
		return errors.New("a line with a held value or a retired UID must have nothing else")
	}
	text := r.retired
	if r.held != nil {
		text = r.held
	}
	var err error
	p := &preserved{}
	if p.entry, err = l.t.PRK(text.UID); err != nil || text.UID == "" {
		return change.Invalid(l.t.Schema.Primary, "key", "not a value that a record key can hold")
	}
	if r.retired != nil {
		at, err := ownDate(text.At, nil)
		switch {
		case err != nil || at.IsZero():
			return errors.New("at is not a date")
		case !l.t.Schema.Retire:
			return change.Invalid(l.t.Schema.Primary, "retire", "the schema retires no UIDs")
		}
		p.retired = schema.Date(at).Wire()
		l.preserved = p
		return nil
	}
	if p.hold.Field = im.columns.target(text.Field); p.hold.Field == "" {
		p.ignored = true
		l.preserved = p
		return nil
	}
	p.hold.Canonical = l.t.Schema.Canonical(text.Value)
	if p.hold.Until, err = ownDate(text.Until, nil); err != nil || p.hold.Until.IsZero() {
		return errors.New("until is not a date")
	}
	switch _, ok := l.t.SRK(p.hold.Field, p.hold.Canonical); {
	case l.t.Schema.Fields[p.hold.Field].Hold == 0:
		return change.Invalid(p.hold.Field, "hold", "the schema holds no values of this field")
	case !ok || p.hold.Canonical == "":
		return change.Invalid(p.hold.Field, "key", "not a value that a record key can hold")
	case time.Until(p.hold.Until) > store.MaxHold:
		return change.Invalid(p.hold.Field, "hold", "no value is held for so long")
	}
	l.preserved = p
	return nil
}

// concurrentPreserves limits the held and retired lines that an import writes at a time.
const concurrentPreserves = 16

// writePreserved writes the held values and retired UIDs of a batch. A dry run only checks whether
// it could. An error ends the import.
func (im *importer) writePreserved(ctx context.Context, b *batch) error {
	var g errgroup.Group
	g.SetLimit(concurrentPreserves)
	for i := range b.lines {
		l := &b.lines[i]
		if l.preserved == nil || l.err != nil {
			continue
		}
		if err := im.storeSchema(ctx, l.t); err != nil {
			return errors.Join(err, g.Wait())
		}
		g.Go(func() error {
			err := im.writeOnePreserved(ctx, l)
			if errors.Is(err, store.ErrDuplicate) || errors.Is(err, change.ErrInvalid) {
				l.refuse(err)
				err = nil
			}
			return err
		})
	}
	return g.Wait()
}

// storeSchema stores the schema of a type, if none is stored, as the first create does. In a dry
// run it does nothing.
func (im *importer) storeSchema(ctx context.Context, t *change.Type) error {
	if im.o.DryRun || slices.Contains(im.schemaStored, t.Name) {
		return nil
	}
	stored, err := storedschema.InForce(ctx, im.Engine, im.NS)
	if err != nil {
		return err
	}
	if _, has := stored.Types[t.Name]; !has {
		state := []store.Facet{{Field: store.FieldFingerprint, Wire: t.Guard.Fingerprint}, {Field: store.FieldSchema, Wire: t.Guard.JSON}}
		if _, err := im.Engine.Repair(ctx, store.ReplaceSchema{Guard: t.Guard, Fields: state}); err != nil {
			return err
		}
	}
	im.schemaStored = append(im.schemaStored, t.Name)
	return nil
}

// writeOnePreserved writes the held value or retired UID of a line. The error is ErrDuplicate if an
// entry has the UID, or if another entry has or holds the value.
func (im *importer) writeOnePreserved(ctx context.Context, l *line) error {
	p := l.preserved
	if p.ignored {
		l.finish(skippedLine)
		return nil
	}
	r, err := im.rawRecord(ctx, p.entry)
	switch {
	case err != nil:
		return err
	case p.retired != "":
		return im.retire(ctx, l, r)
	case !p.hold.Until.After(time.Now()), r.Live() && r.HasValue(p.hold.Field, p.hold.Canonical):
		l.finish(skippedLine)
		return nil
	}
	h := l.holding(r)
	err = store.CheckHold(ctx, im.Engine, h)
	if err == nil && !im.o.DryRun {
		var kept bool
		if kept, err = store.Hold(ctx, im.Engine, h); err == nil && !kept {
			err = change.Invalid(h.Field, "hold", "the entry holds too many values")
		}
	}
	if err == nil {
		l.finish(heldLine)
	}
	return err
}

// retire retires the UID of a line. r is the record that is stored there.
func (im *importer) retire(ctx context.Context, l *line, r store.Record) (err error) {
	retired := !r.Live()
	if retired && !im.o.DryRun {
		facet := store.Facet{Field: store.FieldRetired, Wire: l.preserved.retired}
		retired, err = im.Engine.Repair(ctx, store.Preserve{Entry: r.Key, Facet: facet})
	}
	switch {
	case err != nil:
		return err
	case !retired:
		return store.DuplicateField(l.t.Schema.Primary)
	}
	l.finish(retiredLine)
	return nil
}

// holding returns the value that the entry of a line is to hold, until the time in the line or that
// in the stored record r, whichever is later.
func (l *line) holding(r store.Record) store.Holding {
	h := store.Holding{Entry: l.preserved.entry, HeldValue: l.preserved.hold}
	for _, held := range store.HeldIn(r.Fields) {
		if held.Name() == h.Name() && held.Until.After(h.Until) {
			h.HeldValue = held
		}
	}
	for _, field := range l.t.Rivals(h.Field) {
		srk, ok := l.t.SRK(field, h.Canonical)
		switch {
		case field == h.Field:
			h.SRK = srk // preserve has checked it
		case ok:
			h.Rivals = append(h.Rivals, srk)
		}
	}
	return h
}

// rawRecord returns the record of an entry or a tombstone, or one without fields if there is none.
func (im *importer) rawRecord(ctx context.Context, prk recordkey.Key) (store.Record, error) {
	hashes, err := store.Hashes(ctx, im.Engine, []string{prk.String()})
	if err != nil {
		return store.Record{}, err
	}
	return store.Record{Key: prk, Fields: hashes[0].Fields}, nil
}
