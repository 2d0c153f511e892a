package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/validate"
)

// A line is an entry of the input: its text, its parsed form, and its outcome.
type line struct {
	no    int64 // number of its first line of text, counted from 1
	size  int64 // in bytes, with its line ending
	raw   string
	cells []string // of a CSV row

	t             *change.Type
	draft         change.Draft
	values        []fieldValues // of fields that have several; setValues adds them to an entry
	clearPassword string
	mark          string       // of the imported password, for store.FieldImported; "" for none
	create        store.Change // creates the entry if it does not exist
	attempt       int          // number of UIDs generated for it so far
	updating      bool         // the last change sent updates an existing entry
	sharesKey     bool         // a line before it in the batch needs one of its keys
	table         bool         // it is not a line of an export
	statedChange  time.Time    // when the password was set, as the line says; zero if it does not
	sameClear     bool         // clearPassword is the password of the entry that the line updates
	// incomplete is the error of a line without an identifier, which cannot create an entry but may
	// update one. It is nil for other lines.
	incomplete error
	factors    []factor.Factor // sealed for the entry that the line creates
	leftOut

	preserved *preserved // instead of an entry; nil if the line describes an entry

	done   outcome
	err    error         // why it is refused; a duplicate may still be resolved
	update *store.Change // the change made to an existing entry
}

// A leftOut says which parts of a line its entry does not get.
type leftOut struct {
	password       bool // the entry has no password
	secondFactor   bool
	requiredAction bool
	name           bool
	replacement    bool // the line's password; the entry keeps its own
}

// An outcome says what became of a line.
type outcome uint8

const (
	refusedLine outcome = iota
	createdLine
	updatedLine
	skippedLine
	heldLine    // a value is held
	retiredLine // a UID is retired
)

func (l *line) refuse(err error) { l.done, l.err = refusedLine, err }

func (l *line) finish(done outcome) { l.done, l.err = done, nil }

// isBlank reports whether a line is empty, or a row of empty cells, as spreadsheets write them
// after the last row.
func (l *line) isBlank() bool {
	if l.err != nil {
		return false
	}
	if l.cells == nil {
		return strings.TrimSpace(l.raw) == ""
	}
	return !slices.ContainsFunc(l.cells, func(cell string) bool { return cell != "" })
}

// prepare makes a draft of each line of a batch, hashes clear passwords, and builds the changes
// that create the entries.
func (im *importer) prepare(ctx context.Context, b *batch) {
	hashing := newHashGroup()
	for i := range b.lines {
		l := &b.lines[i]
		if l.err != nil || l.isBlank() || ctx.Err() != nil {
			continue
		}
		if l.err = im.draft(l); l.err == nil && !im.mayUpdate(l) {
			l.err = l.incomplete
		}
		if l.err == nil && l.clearPassword != "" {
			hashing.Go(func() error { return im.hash(ctx, l) })
		}
	}
	b.failed = hashing.Wait()
	for i := range b.lines {
		l := &b.lines[i]
		if l.t == nil || l.err != nil || l.preserved != nil {
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

// newHashGroup returns a group for hashing passwords that runs enough jobs at a time to keep all
// processors busy.
func newHashGroup() *errgroup.Group {
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0) + 1)
	return &g
}

// hash hashes the clear password of a line. A dry run only checks whether the password would be
// refused. hash returns errors that end the import, and stores all others in the line.
func (im *importer) hash(ctx context.Context, l *line) error {
	own := append(l.t.Identifiers(l.draft.Fields()), l.draft.UID)
	hash := ""
	if im.o.DryRun {
		l.err = im.checkPassword(ctx, l, own)
	} else {
		l.err = whenFree(ctx, func() (err error) {
			hash, err = im.Config.Hashing.Hash(ctx, l.t, l.clearPassword, own)
			return err
		})
	}
	switch {
	case endsImport(l.err):
		return l.err
	case errors.Is(l.err, password.ErrPolicy) && im.o.WithoutPassword:
		l.err, l.clearPassword, l.mark, l.leftOut.password = nil, "", "", true
		delete(l.draft.Own, store.FieldChanged)
	case errors.Is(l.err, password.ErrPolicy):
		l.err = fmt.Errorf("%w%s", l.err, withoutPassword)
	case hash != "":
		l.draft.Facets[store.FieldPassword] = hash
	}
	return nil
}

// checkPassword returns an error if the policy refuses the clear password of a line.
func (im *importer) checkPassword(ctx context.Context, l *line, own []string) error {
	return whenFree(ctx, func() error { return im.Config.Hashing.Check(ctx, l.t, l.clearPassword, own) })
}

// An import waits while other imports fill their queue for hashing passwords. After maxBusy it
// ends, and can be resumed.
const (
	maxBusy     = 10 * time.Minute
	minBusyWait = 100 * time.Millisecond
	maxBusyWait = 5 * time.Second
)

// whenFree calls do, and repeats the call after a while as long as do returns a *userdb.BusyError.
func whenFree(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, maxBusy)
	defer cancel()
	for {
		err := do()
		busy, ok := errors.AsType[*userdb.BusyError](err)
		if !ok {
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
	if l.create, err = l.t.Create(d); l.mark != "" {
		l.create.Set = append(l.create.Set, store.Facet{Field: store.FieldImported, Wire: l.mark})
	}
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
	if err := l.addValues(im.Now()); err != nil {
		return err
	}
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
	own           map[string]string // content that is not a facet, by CSV column name
	facets        []facet
	tertiary      []tertiaryRecord
	values        []fieldValues
	verified      []string          // facets that the line calls verified
	factors       map[string]string // keyFactors
	held, retired *preservedText
	unproven      bool     // the line has keyUnproven with the value true
	flagged       []string // the names in own that begin with columnVerified
	flat          bool     // a facet was a key of the JSON line itself
	nested        bool     // the JSON line has facets, as in an export
	mark          string   // the value of keyImported
	marked        bool     // the line has keyImported
	hashErr       error    // why the line's password cannot be used
	leftOut                // what the product exported and an entry cannot hold
}

// set sets a special column.
func (r *reading) set(name, text string) {
	r.own[name] = text
	if strings.HasPrefix(name, columnVerified) {
		r.flagged = append(r.flagged, name)
	}
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
	*r = reading{own: r.own, facets: r.facets[:0], flagged: r.flagged[:0]}
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
	if r.held != nil || r.retired != nil {
		return im.preserve(l, r)
	}
	l.draft = change.Draft{Facets: make(map[string]string, len(r.facets)+1)}
	l.table = im.o.CSV || im.o.From != "" || r.flat && !r.nested
	l.leftOut = r.leftOut
	var unnamed error // why the user name was left out
	l.values = r.values
	for _, f := range r.facets {
		if separator := im.o.Split[f.field]; separator != 0 {
			values, err := splitCell(f.text, separator)
			if err != nil {
				return change.Invalid(f.field, "split", err.Error())
			}
			l.values = append(l.values, fieldValues{f.name, f.field, values})
			continue
		}
		err := l.addFacet(f, im.o.Zone)
		if err != nil && l.isName(f.field) && errors.Is(err, change.ErrInvalid) {
			unnamed, err = err, nil
		}
		if err != nil {
			return err
		}
	}
	if err := l.addValues(im.Now()); err != nil {
		return err
	}
	im.checkIdentifiers(l, unnamed)
	slices.SortFunc(r.tertiary, func(a, b tertiaryRecord) int { return strings.Compare(a.name, b.name) })
	for _, x := range r.tertiary {
		content, err := x.contentFor(t)
		if err != nil {
			return err
		}
		l.draft.Tertiary = append(l.draft.Tertiary, content)
	}
	return im.addOwnFields(l, r)
}

// addFacet adds a facet to the draft. A CSV cell may also hold a tertiary record. Times without a
// time zone are in zone.
func (l *line) addFacet(f facet, zone *time.Location) error {
	if kind := l.t.Schema.Tertiary[f.field].Kind; l.cells != nil && kind != "" {
		content, err := cellContent(l.t, f.field, kind, f.text)
		l.draft.Tertiary = append(l.draft.Tertiary, content)
		return err
	}
	codec := l.t.Schema.Codec(f.field)
	v, err := f.parse(codec, f.text)
	if err != nil && codec == schema.CodecDate {
		var reason string
		switch v, reason = dateValue(f.text, zone); {
		case reason != "":
			return change.Invalid(f.field, "codec", "cannot be read as date: "+reason)
		case v.IsNull():
			return nil
		}
	} else if err != nil {
		reason := err.Error()
		if value, ok := errors.AsType[*schema.ValueError](err); ok {
			reason = "cannot be read as " + string(value.Codec) + ": " + value.Reason
		}
		return change.Invalid(f.field, "codec", reason)
	}
	if store.IsLost(f.field) {
		return l.addLost(f.field, v)
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

// addLost adds a value that a repair has removed from its field. No rule of the field applies to
// it, since it identifies nobody, but it counts in the size of the entry.
func (l *line) addLost(field string, v schema.Value) error {
	if _, again := l.draft.Own[field]; again {
		return duplicateName(field)
	}
	undeclared := strings.TrimPrefix(field, "~") // no type declares it
	err := l.t.Rules.Facet(undeclared, v)
	if rule, ok := errors.AsType[*validate.Error](err); ok {
		return change.Invalid(field, rule.Rule, rule.Reason)
	}
	l.setOwn(field, v.Wire())
	return nil
}
