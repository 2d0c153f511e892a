package transfer

import (
	"context"
	"errors"
	"fmt"
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

// A preservedLine is a line of an export that describes no entry, but what an entry has left
// behind: a value that it holds, or its UID, which is retired. Texts that are not UTF-8 are in
// base64.
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

// writePreserved writes what entries, or tombstones, have left behind.
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

// writeTombstones writes what is left of entries that were deleted.
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

// A preserved is what a line preserves: a held value, or a retired UID if hold is the zero Held.
type preserved struct {
	entry   recordkey.Key
	hold    store.Held
	retired string // the time of the delete, in wire form
	ignored bool   // the options leave it out
}

// preserve parses a line that describes no entry.
func (im *importer) preserve(l *line, r *reading) error {
	if len(r.facets)+len(r.tertiary)+len(r.values)+len(r.verified) > 0 || r.held != nil && r.retired != nil {
		return errors.New("a line with a held value or a retired UID has nothing else")
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

// writePreserved writes what the lines of a batch preserve. A dry run only finds out whether it
// can. An error ends the import.
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

// storeSchema stores the schema of a type, if none is stored, as the first create does.
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

// writeOnePreserved writes what a line preserves. The error is ErrDuplicate if a UID to retire is
// in use, or if another entry has or holds the value.
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
	err = im.checkHoldable(ctx, l)
	if err == nil && !im.o.DryRun {
		err = im.hold(ctx, l, r)
	}
	if err == nil {
		l.finish(heldLine)
	}
	return err
}

// retire retires the UID of a line. r is what is stored there.
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

// hold makes an entry, or a tombstone, hold the value of a line. r is what is stored there. The
// error is ErrDuplicate if another entry takes the value meanwhile.
func (im *importer) hold(ctx context.Context, l *line, r store.Record) error {
	p, held := l.preserved, false
	for _, h := range store.HeldIn(r.Fields) {
		if h.Name() == p.hold.Name() && !h.Until.Before(p.hold.Until) {
			p.hold, held = h, true
		}
	}
	kept, err := im.Engine.Repair(ctx, store.Preserve{Entry: p.entry, Facet: store.Facet{Field: p.hold.Name(), Wire: p.hold.Text()}})
	if err == nil && !kept {
		err = change.Invalid(p.hold.Field, "hold", "the entry holds too many values")
	}
	if err == nil {
		err = im.pointToHold(ctx, l, held)
	}
	if errors.Is(err, store.ErrDuplicate) {
		if _, undo := im.Engine.Repair(ctx, store.MoveHeld{Entry: p.entry, From: p.hold}); undo != nil {
			return undo
		}
	}
	return err
}

// rawRecord returns the record of an entry or a tombstone. It has no fields if there is none.
func (im *importer) rawRecord(ctx context.Context, prk recordkey.Key) (store.Record, error) {
	hashes, err := store.Hashes(ctx, im.Engine, []string{prk.String()})
	if err != nil {
		return store.Record{}, err
	}
	return store.Record{Key: prk, Fields: hashes[0].Fields}, nil
}

// checkHoldable returns ErrDuplicate if another entry has or holds the value of a line, in any
// field in which nobody else may have it.
func (im *importer) checkHoldable(ctx context.Context, l *line) error {
	p := l.preserved
	for _, field := range l.t.Rivals(p.hold.Field) {
		srk, ok := l.t.SRK(field, p.hold.Canonical)
		if !ok {
			continue
		}
		owner, _, err := im.ownerOf(ctx, srk)
		switch {
		case err != nil:
			return err
		case owner.Key == p.entry:
		case owner.Live() && owner.HasValue(field, p.hold.Canonical):
			return store.DuplicateField(p.hold.Field)
		case holds(owner, field, p.hold.Canonical):
			return &store.FieldError{Err: store.ErrDuplicate, Field: p.hold.Field, Rule: store.RuleHeld}
		}
	}
	return nil
}

// holds reports whether an entry, or a tombstone, holds a value.
func holds(r store.Record, field, canonical string) bool {
	return slices.ContainsFunc(store.HeldIn(r.Fields), func(h store.Held) bool {
		return h.Field == field && h.Canonical == canonical && h.Until.After(time.Now())
	})
}

// ownerOf returns the record of the entry, or of the tombstone, that an SRK names, and the SRK as
// it is. The record has the zero Key if the SRK names none.
func (im *importer) ownerOf(ctx context.Context, srk recordkey.Key) (r store.Record, srv store.Text, err error) {
	srvs, err := store.Texts(ctx, im.Engine, []string{srk.String()})
	if err != nil || !srvs[0].Exists {
		return r, srv, err
	}
	key, err := recordkey.Parse(im.NS.String() + store.Owner(srvs[0].Wire))
	if err != nil || key.Kind() != recordkey.KindPRK {
		return r, srvs[0].Text, nil
	}
	r, err = im.rawRecord(ctx, key)
	return r, srvs[0].Text, err
}

// pointToHold makes the SRK of a value name the entry that holds it, and live as long as the hold.
// An SRK that names the entry already stays if the entry held the value before. The error is
// ErrDuplicate if another entry takes the value meanwhile.
func (im *importer) pointToHold(ctx context.Context, l *line, held bool) error {
	p := l.preserved
	srk, _ := l.t.SRK(p.hold.Field, p.hold.Canonical) // preserve has checked it
	for range maxRebuilds {
		owner, srv, err := im.ownerOf(ctx, srk)
		if err != nil || held && owner.Key == p.entry {
			return err
		}
		// An SRK of another entry may be what is left of it. One that names this entry may be its
		// claim, made since the entry was read.
		if srv.Exists && owner.Key != p.entry {
			remove := store.Remove{Key: srk.String(), Seen: srv}
			if owner.Key.IsValid() {
				remove.Owner, remove.Field, remove.Value = owner.Key.String(), srk.Field(), srk.Value()
			}
			if _, err := im.Engine.Repair(ctx, remove); err != nil {
				return err
			}
		}
		if _, err := im.Engine.Repair(ctx, store.RestoreHeld{Entry: p.entry, SRK: srk, Until: p.hold.Until}); err != nil {
			return err
		}
		if err := im.checkHoldable(ctx, l); err != nil {
			return err
		}
		held = true
	}
	return fmt.Errorf("%w: others want a value that is held", store.ErrConflict)
}
