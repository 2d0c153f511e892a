package transfer

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/storedschema"
	"github.com/coffeenode/userdb/internal/strictjson"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// ExportOptions say what Export writes. The zero ExportOptions export all entries without secrets.
type ExportOptions struct {
	// Only selects one entry with everything stored about it, including tertiary records under
	// names that the schema no longer declares, or that another program's schema declares. The zero
	// Hint selects all entries of all types that the schema declares.
	Only hints.Hint
	// Type is the type for Only if the hint names none.
	Type string
	// Secrets includes password hashes.
	Secrets bool
	// Progress, if not nil, is called from time to time with the number of entries written.
	Progress func(done int64)
	// Unreadable, if not nil, is called for entries that cannot be read. If nil, they are only
	// counted.
	Unreadable func(error)
}

// Export writes entries for Import as JSON lines, one entry a line, in no particular order:
//
//	{"type":"user","facets":{"name":"Bob","uid":"…"},"tertiary":{"tags":{"kind":"set","value":["a"]}}}
//
// Facets have the form of Entry.MarshalJSON. A line also has, if they exist, "password" (a hash,
// only with Secrets), "factors" (second factors, encrypted with the first of Options.Keys, only
// with Secrets; otherwise "second_factor" says that there are some), "password_changed" and
// "disabled" (ISO dates), "unproven" (true for a self-registered entry whose address is not
// verified yet), and "wire" with facets, in base64, that JSON cannot express exactly. Unprintable
// characters are escaped. Values that a repair removed from their fields are among the facets, as
// ~lost:FIELD.
//
// Held values and retired UIDs, including those of deleted entries, have their own lines, so that a
// store that is made from the export gives them to nobody else:
//
//	{"type":"user","held":{"uid":"…","field":"name","value":"ada","until":"2027-02-01T…"}}
//	{"type":"user","retired":{"uid":"…","at":"2026-11-29T…"}}
//
// An entry and its tertiary records are read at one moment. Entries that are created or deleted
// during the export may be left out, and one may be written twice if the server's tables grow or
// shrink; Import notices that. Memory use stays flat. Export leaves out versions (~rev), tokens and
// counters, which are void elsewhere.
//
// The stored schema decides what is exported, including what the program's own schema lacks. If a
// program without a schema of its own exports all entries, and the stored schema of a type cannot
// be read, Export writes the entries of all other types and returns ErrCorrupt.
//
// The Report counts the entries written (Read) and those that cannot be read (Refused), and the
// lines about held values and retired UIDs.
//
// The start of an export is recorded as an event, as in Import, unless it finds nothing.
func Export(ctx context.Context, db *userdb.DB, w io.Writer, o ExportOptions) (Report, error) {
	v := view.Of(db)
	stored, err := v.Follow(ctx, view.IgnoreExtension, v.Schema.Names()...)
	switch {
	case err == nil:
		v = stored
	case !errors.Is(err, userdb.ErrSchemaMismatch): // on a mismatch, use the program's own schema
		return Report{}, err
	}
	x := exporter{View: v, o: o, w: bufio.NewWriterSize(w, 64<<10), atOnce: 1}
	err = cmp.Or(x.export(ctx), x.w.Flush())
	if err == nil {
		err = x.unreadableTypes(ctx)
	}
	return x.report, err
}

// unreadableTypes returns an error if the export left out types because their stored schemas cannot
// be read. That happens only if a program without a schema of its own exports all entries.
func (x *exporter) unreadableTypes(ctx context.Context) error {
	if !x.Config.Builtin || !x.o.Only.IsZero() {
		return nil
	}
	_, unreadable, err := storedschema.Readable(ctx, x.Engine, x.NS)
	return cmp.Or(err, errors.Join(unreadable...))
}

type exporter struct {
	*view.View
	o      ExportOptions
	w      *bufio.Writer
	report Report
	begun  bool
	atOnce int // number of entries to read next; see adapt
}

// An export reads at most exportBatch entries at a time, and about exportBytes bytes if they are as
// large as those before them.
const (
	exportBatch = 100
	exportBytes = 8 << 20
)

// begin records the start of the export, of one entry or, for the zero key, of all. It is called
// whenever entries are found, and does nothing after the first call.
func (x *exporter) begin(ctx context.Context, only recordkey.Key) {
	about := ""
	if names := x.Schema.Names(); len(names) == 1 && !only.IsValid() {
		about = names[0]
	}
	if !x.begun {
		x.begun = true
		x.NoteWork(ctx, view.EventExport, only, about)
	}
}

func (x *exporter) export(ctx context.Context) error {
	if !x.o.Only.IsZero() {
		return x.writeOne(ctx)
	}
	for _, name := range x.Schema.Names() {
		t, err := x.Type(name)
		if err == nil {
			err = x.writeType(ctx, t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeOne writes the entry that a hint points to.
func (x *exporter) writeOne(ctx context.Context) error {
	t, r, err := x.Find(ctx, x.o.Only, x.o.Type)
	if err != nil {
		return err
	}
	x.begin(ctx, r.Key)
	names, err := x.tertiaryNames(ctx, t)
	if err != nil {
		return err
	}
	keys := make([]recordkey.Key, len(names))
	for i, name := range names {
		if keys[i], err = r.Key.Tertiary(name); err != nil {
			return err
		}
	}
	kinds, err := store.Kinds(ctx, x.Engine, records.Map(keys, recordkey.Key.String))
	if err != nil {
		return err
	}
	read := store.EntryRead{PRK: r.Key}
	for i, kind := range kinds {
		if kind != store.KindNone {
			read.Keys, read.Kinds = append(read.Keys, keys[i]), append(read.Kinds, kind)
		}
	}
	return x.write(ctx, t, []store.EntryRead{read})
}

// tertiaryNames returns the names of all tertiary records that entries of a type may have: those
// that the schema declares, and those that any program ever used, which are kept with the schema.
func (x *exporter) tertiaryNames(ctx context.Context, t *change.Type) ([]string, error) {
	found, err := store.Hashes(ctx, x.Engine, []string{t.Guard.Key.String()})
	if err != nil {
		return nil, err
	}
	names := store.TertiaryNames(found[0].Fields)
	for _, name := range t.Schema.TertiaryNames() {
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// writeType writes all entries of a type.
func (x *exporter) writeType(ctx context.Context, t *change.Type) error {
	w := records.Walk{Pattern: t.Guard.Entries, Size: exportBatch, AtOnce: 1}
	names := t.Schema.TertiaryNames()
	kinds := records.Map(names, func(name string) string { return t.Schema.Tertiary[name].Kind })
	return w.Each(ctx, x.View, func(ctx context.Context, keys []string) error {
		var reads []store.EntryRead
		for _, prk := range x.PRKs(t, keys) {
			read := store.EntryRead{PRK: prk, Kinds: kinds}
			for _, name := range names {
				key, err := prk.Tertiary(name)
				if err != nil {
					return err
				}
				read.Keys = append(read.Keys, key)
			}
			reads = append(reads, read)
		}
		if len(reads) > 0 {
			x.begin(ctx, recordkey.Key{})
		}
		if err := x.write(ctx, t, reads); err != nil || x.o.Progress == nil {
			return err
		}
		x.o.Progress(x.report.Read)
		return nil
	})
}

// write writes entries, each read at one moment.
func (x *exporter) write(ctx context.Context, t *change.Type, reads []store.EntryRead) error {
	for len(reads) > 0 {
		some := reads[:min(x.atOnce, len(reads))]
		var gone []recordkey.Key
		entries, err := x.Engine.Read(ctx, some)
		if err != nil {
			return err
		}
		for i, entry := range entries {
			if entry.Err == store.ErrNotFound {
				gone = append(gone, some[i].PRK)
				continue
			}
			if err := x.writeEntry(ctx, t, some[i], entry); err != nil {
				return err
			}
		}
		if x.o.Only.IsZero() && len(gone) > 0 {
			if err := x.writeTombstones(ctx, t, gone); err != nil {
				return err
			}
		}
		x.adapt(entries)
		reads = reads[len(some):]
	}
	return nil
}

// adapt sets how many entries are read next: as many of the size of those read last as fit in
// exportBytes, but at most twice as many as before.
func (x *exporter) adapt(last []store.Entry) {
	size := 1
	for _, e := range last {
		for field, wire := range e.Record.Fields {
			size += len(field) + len(wire)
		}
		for _, part := range e.Parts {
			for _, v := range part.Values {
				size += len(v)
			}
		}
	}
	x.atOnce = max(1, min(2*x.atOnce, exportBatch, len(last)*exportBytes/size))
}

func (x *exporter) writeEntry(ctx context.Context, t *change.Type, read store.EntryRead, entry store.Entry) error {
	err := entry.Err
	for i, part := range entry.Parts {
		if err == nil && part.Kind != store.KindNone && part.Kind != read.Kinds[i] {
			err = records.Corrupt(read.Keys[i], "of another Redis type than the schema says: "+records.Quoted(part.Kind))
		}
	}
	var factors map[string]string
	if err == nil && x.o.Secrets && entry.Record.Factors().Any() {
		if factors, err = x.factorsOf(ctx, entry.Record); errors.Is(err, store.ErrUnavailable) {
			return err
		}
	}
	var line exportLine
	if err == nil {
		if line, err = newExportLine(t, read, entry, x.o.Secrets, factors); err != nil {
			err = fmt.Errorf("%w: %s: %w", store.ErrCorrupt, records.Relative(read.PRK), err)
		}
	}
	if err != nil {
		x.report.Refused++
		if x.o.Unreadable != nil {
			x.o.Unreadable(err)
		}
		return nil
	}
	x.report.Read++
	text, err := strictjson.Marshal(line)
	if err == nil {
		_, err = x.w.Write(text)
	}
	if err == nil {
		err = x.writePreserved(t, entry.Record)
	}
	return err
}

// PasswordHash returns the stored password hash of the entry that h points to, or "" if it has
// none. It is also "" for an entry with a second factor, because the factor would not protect the
// hash elsewhere. It is for operators who move entries elsewhere; nothing else reveals hashes. typ
// is the type for h if the hint names none. The errors are those of userdb.Type.Find.
func PasswordHash(ctx context.Context, db *userdb.DB, typ string, h hints.Hint) (string, error) {
	_, r, err := view.Of(db).Find(ctx, h, typ)
	if err != nil {
		return "", err
	}
	if r.Factors().Any() {
		return "", nil
	}
	return r.Fields[store.FieldPassword], nil
}
