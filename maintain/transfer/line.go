package transfer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A line is an entry of the input: its text, its parsed form, and its outcome.
type line struct {
	no    int64 // number of its first line of text, counted from 1
	size  int64 // in bytes, with its line ending
	raw   string
	cells []string // of a CSV row

	t             *change.Type
	draft         change.Draft
	clearPassword string
	create        store.Change // creates the entry if it does not exist
	attempt       int          // number of UIDs generated for it so far
	updating      bool         // the last change sent updates an existing entry
	sharesKey     bool         // a line before it in the batch needs one of its keys

	done   outcome
	err    error         // why it is refused; a duplicate may still be resolved
	update *store.Change // the change made to an existing entry
}

// An outcome says what became of a line.
type outcome uint8

const (
	refusedLine outcome = iota
	createdLine
	updatedLine
	skippedLine
)

func (l *line) refuse(err error) { l.done, l.err = refusedLine, err }

func (l *line) finish(done outcome) { l.done, l.err = done, nil }

// isBlank reports whether a line is empty.
func (l *line) isBlank() bool {
	return l.cells == nil && l.err == nil && strings.TrimSpace(l.raw) == ""
}

// prepare makes a draft of each line of a batch, hashes clear passwords, and builds the changes
// that create the entries.
func (im *importer) prepare(ctx context.Context, b *batch) {
	var hashing errgroup.Group
	hashing.SetLimit(clearBatch)
	for i := range b.lines {
		l := &b.lines[i]
		if l.err != nil || l.isBlank() || ctx.Err() != nil {
			continue
		}
		if l.err = im.draft(l); l.err == nil && l.clearPassword != "" {
			hashing.Go(func() error { return im.hash(ctx, l) })
		}
	}
	b.failed = hashing.Wait()
	for i := range b.lines {
		l := &b.lines[i]
		if l.t == nil || l.err != nil {
			continue
		}
		if l.err = im.build(l, 0); l.err == nil {
			l.sharesKey = !b.needs.Add(&l.create)
			b.toWrite = append(b.toWrite, l)
		}
	}
	// The engine creates entries of one type together.
	slices.SortStableFunc(b.toWrite, func(l, m *line) int { return strings.Compare(l.t.Name, m.t.Name) })
}

// hash hashes the clear password of a line. A dry run only checks whether the password would be
// refused. An error ends the import; other errors are those of the line.
func (im *importer) hash(ctx context.Context, l *line) error {
	own := append(l.t.Identifiers(l.draft.Facets), l.draft.UID)
	if im.o.DryRun {
		l.err = im.checkPassword(ctx, l, own)
	} else {
		l.err = whenFree(ctx, func() error {
			hash, err := im.Config.Hashing.Hash(ctx, l.t, l.clearPassword, own)
			if err == nil {
				l.draft.Facets[store.FieldPassword] = hash
			}
			return err
		})
	}
	if endsImport(l.err) {
		return l.err
	}
	return nil
}

// checkPassword returns an error if the policy refuses the clear password of a line.
func (im *importer) checkPassword(ctx context.Context, l *line, own []string) error {
	return whenFree(ctx, func() error { return im.Config.Hashing.Check(ctx, l.t, l.clearPassword, own) })
}

// An import waits while logins use all processors for passwords. After maxBusy it ends, so that it
// can be resumed.
const (
	maxBusy     = 10 * time.Minute
	minBusyWait = 100 * time.Millisecond
	maxBusyWait = 5 * time.Second
)

// whenFree calls do again, after a while, as long as it returns a *userdb.BusyError.
func whenFree(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, maxBusy)
	defer cancel()
	for {
		err := do()
		busy, is := errors.AsType[*userdb.BusyError](err)
		if !is {
			return err
		}
		select {
		case <-time.After(min(max(busy.Wait, minBusyWait), maxBusyWait)):
		case <-ctx.Done():
			return err
		}
	}
}

// endsImport reports whether an error is about the store or the import, not about one line.
func endsImport(err error) bool {
	return errors.Is(err, userdb.ErrUnavailable) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// build builds the change that creates the entry of a line.
func (im *importer) build(l *line, attempt int) (err error) {
	d := l.draft
	l.attempt = attempt
	if d.UID == "" {
		d.UID = im.makeUID(l, attempt)
	}
	l.create, err = l.t.Create(d)
	return err
}

// typeInForce returns a declared type under the latest schema that the import knows of. The schema
// may change while the import runs.
func (im *importer) typeInForce(name string) (*change.Type, error) { return view.Of(im.db).Type(name) }

// rebuildForSchema rebuilds lines under the schema in force after changes built under an older one
// were refused. If no newer schema exists, it returns refusal, which ends the import.
func (im *importer) rebuildForSchema(ctx context.Context, lines []*line, refusal error) error {
	for _, l := range lines {
		now, err := im.typeInForce(l.t.Name)
		if err == nil && now == l.t {
			if _, err = view.HooksOf(im.db).Refresh(ctx, view.Of(im.db), l.t.Name); err == nil {
				now, err = im.typeInForce(l.t.Name)
			}
		}
		if err == nil && now == l.t {
			err = refusal
		}
		if err != nil {
			return err
		}
		l.err = im.rebuild(l, now)
	}
	return nil
}

// rebuild builds the change that creates the entry of a line under another schema of its type.
func (im *importer) rebuild(l *line, t *change.Type) error {
	facets := make(map[string]string, len(l.draft.Facets)+1)
	for field, wire := range l.draft.Facets {
		v, err := schema.Decode(l.t.Schema.Codec(field), wire)
		switch {
		case field == store.FieldPassword || field == t.Schema.Primary:
			facets[field] = wire
		case err != nil:
			return err
		default:
			if err := t.EncodeFacet(facets, field, v, nil); err != nil {
				return err
			}
		}
	}
	l.t, l.draft.Facets = t, facets
	return im.build(l, l.attempt)
}

// makeUID generates a UID. The same line of the same import gets the same UID again.
func (im *importer) makeUID(l *line, attempt int) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %d %d\n", im.state.ID, l.no, attempt)
	io.WriteString(h, l.raw)
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// A reading holds the content of a line before the schema gives it meaning.
type reading struct {
	own      map[string]string // content that is not a facet, by CSV column name
	facets   []facet
	tertiary []tertiaryRecord
	verified []string // facets that the line calls verified
}

// A facet holds the text of a facet in a line, and how to parse it.
type facet struct {
	name, text string // the name in the line
	parse      func(schema.Codec, string) (schema.Value, error)
	field      string // the field that the name is mapped to
	flat       bool   // it was a key of the JSON line itself, not of its facets
}

// resetReading clears the previous reading and returns it.
func (im *importer) resetReading() *reading {
	r := &im.reading
	clear(r.own)
	r.facets, r.tertiary, r.verified = r.facets[:0], nil, nil
	return r
}

// draft makes the draft of an entry from a line.
func (im *importer) draft(l *line) error {
	r := im.resetReading()
	t, err := im.read(im.src, l, r)
	if err != nil {
		return err
	}
	l.t = t
	l.draft = change.Draft{Facets: make(map[string]string, len(r.facets)+1)}
	for _, f := range r.facets {
		if err := l.addFacet(f); err != nil {
			return err
		}
	}
	slices.SortFunc(r.tertiary, func(a, b tertiaryRecord) int { return strings.Compare(a.name, b.name) })
	for _, x := range r.tertiary {
		content, err := x.content()
		if err != nil {
			return err
		}
		l.draft.Tertiary = append(l.draft.Tertiary, content)
	}
	return im.addOwnFields(l, r)
}

// addFacet adds a facet to the draft. A CSV cell may also hold a tertiary record.
func (l *line) addFacet(f facet) error {
	if kind := l.t.Schema.Tertiary[f.field].Kind; l.cells != nil && kind != "" {
		content, err := cellContent(f.field, kind, f.text)
		l.draft.Tertiary = append(l.draft.Tertiary, content)
		return err
	}
	v, err := f.parse(l.t.Schema.Codec(f.field), f.text)
	if err != nil {
		reason := err.Error()
		if value, is := errors.AsType[*schema.ValueError](err); is {
			reason = "cannot be read as " + string(value.Codec) + ": " + value.Reason
		}
		return change.Invalid(f.field, "codec", reason)
	}
	_, again := l.draft.Facets[f.field]
	switch {
	case again || f.field == l.t.Schema.Primary && l.draft.UID != "":
		return duplicateName(f.field)
	case f.field != l.t.Schema.Primary:
		return l.t.EncodeFacet(l.draft.Facets, f.field, v, nil)
	}
	if l.draft.UID = v.Wire(); l.draft.UID == "" || v.IsNull() {
		return change.Invalid(f.field, "non-empty", "it is empty; leave it out to have one generated")
	}
	return nil
}

// addOwnFields adds everything to the draft that is not a facet.
func (im *importer) addOwnFields(l *line, r *reading) error {
	if err := l.markVerified(r.verified); err != nil {
		return err
	}
	now, hash, changed, disabled := im.Now(), r.own[columnHash], r.own[columnChanged], r.own[columnDisabled]
	l.clearPassword = r.own[columnClear]
	switch flag := r.own[columnFlag]; {
	case flag != "" && flag != "true" && flag != "false":
		return fmt.Errorf("%s is neither true nor false", columnFlag)
	case flag == "false" && disabled != "":
		return errors.New("both disabled and not disabled")
	case flag == "true":
		disabled = cmp.Or(disabled, schema.Date(now).Wire())
	}
	if l.clearPassword != "" && hash == "" {
		changed = cmp.Or(changed, schema.Date(now).Wire())
	}
	if err := cmp.Or(l.setOwnDate(store.FieldChanged, changed, now), l.setOwnDate(store.FieldDisabled, disabled, now)); err != nil || hash == "" {
		return err
	}
	if l.clearPassword != "" {
		return errors.New("both a password hash and a clear password")
	}
	if err := im.Config.Hashing.HasherFor(l.t).Usable(hash); err != nil {
		advice := " (a clear password goes into clear_password)"
		if im.o.From != "" {
			advice = ""
		}
		return fmt.Errorf("password: %w%s", err, advice)
	}
	l.draft.Facets[store.FieldPassword] = hash
	return nil
}

// markVerified marks facets as verified.
func (l *line) markVerified(fields []string) error {
	for _, field := range fields {
		wire, has := l.draft.Facets[field]
		if !has || field == l.t.Schema.Primary {
			return change.Invalid(field, "verified", "the line has no such facet")
		}
		if l.draft.Own == nil {
			l.draft.Own = map[string]string{}
		}
		change.Verify(field, wire, l.draft.Own)
	}
	return nil
}

// setOwnDate sets a field of the store's own to a date; an empty date leaves it out. A future date
// becomes now, since otherwise every session would seem older than its password.
func (l *line) setOwnDate(field, date string, now time.Time) error {
	if date == "" {
		return nil
	}
	v, err := schema.ParseText(schema.CodecDate, date)
	at, isDate := v.Time()
	if err != nil || !isDate {
		return fmt.Errorf("%s is not a date", records.Quoted(date[:min(len(date), 40)]))
	}
	if at.After(now) {
		at = now
	}
	if l.draft.Own == nil {
		l.draft.Own = map[string]string{}
	}
	l.draft.Own[field] = schema.Date(at).Wire()
	return nil
}
