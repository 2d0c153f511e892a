package transfer

import (
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
)

// A line is an entry of an input: as it stands there, as it is understood, and what became of it.
type line struct {
	no    int64 // of the first line of text that it takes, from 1
	size  int64 // in bytes, with its end
	raw   string
	cells []string // of a CSV row

	t      *change.Type
	draft  change.Draft
	clear  string       // password
	create store.Change // makes the entry, where nothing is there yet
	waits  bool         // a line before it in the batch needs one of its keys

	done   outcome
	err    error         // why it is refused; a duplicate may yet be resolved
	update *store.Change // was made of an entry that was there
}

// An outcome is what became of a line.
type outcome uint8

const (
	refusedLine outcome = iota
	createdLine
	updatedLine
	skippedLine
)

func (l *line) refuse(err error) { l.done, l.err = refusedLine, err }

func (l *line) finish(done outcome) { l.done, l.err = done, nil }

// blank reports whether a line has nothing on it.
func (l *line) blank() bool {
	return l.cells == nil && l.err == nil && strings.TrimSpace(l.raw) == ""
}

// prepare makes a draft of each line of a batch, hashes clear passwords, and builds the changes that create the entries.
func (im *importer) prepare(ctx context.Context, b *batch) {
	var hashing errgroup.Group
	hashing.SetLimit(clearBatch)
	for i := range b.lines {
		l := &b.lines[i]
		if l.err != nil || l.blank() || ctx.Err() != nil {
			continue
		}
		if l.err = im.src.parse(im.View, l); l.err == nil && l.clear != "" {
			hashing.Go(func() error { im.hash(ctx, l); return nil })
		}
	}
	_ = hashing.Wait()
	for i := range b.lines {
		l := &b.lines[i]
		if l.t == nil || l.err != nil {
			continue
		}
		if l.err = im.build(l, 0); l.err == nil {
			l.waits = !b.needs.Add(&l.create)
			b.due = append(b.due, l)
		}
	}
	// The engine creates entries of one type together.
	slices.SortStableFunc(b.due, func(l, m *line) int { return strings.Compare(l.t.Name, m.t.Name) })
}

// hash hashes a line's clear password; a dry run only finds out whether that would be refused.
func (im *importer) hash(ctx context.Context, l *line) {
	if im.o.DryRun {
		l.err = im.Hashing.Judge(ctx, l.t, l.clear, identifiers(l.t, l.draft.Facets))
		return
	}
	hash, err := im.Hashing.Hash(ctx, l.t, l.clear, identifiers(l.t, l.draft.Facets))
	if l.err = err; err == nil {
		l.draft.Facets[store.FieldPassword] = hash
	}
}

// build builds the change that creates the entry of a line.
func (im *importer) build(l *line, attempt int) (err error) {
	d := l.draft
	if d.UID == "" {
		d.UID = im.uid(l, attempt)
		d.Facets[l.t.Schema.Primary] = d.UID
	}
	l.create, err = l.t.Create(d)
	return err
}

// uid makes a UID up. The same line of the same import gets the same one again.
func (im *importer) uid(l *line, attempt int) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %d %d\n", im.state.ID, l.no, attempt)
	io.WriteString(h, l.raw)
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// begin begins the draft of an entry with about so many facets.
func (l *line) begin(t *change.Type, facets int) {
	l.t = t
	l.draft = change.Draft{Facets: make(map[string]string, facets+1)}
}

// put puts a facet into the draft.
func (l *line) put(field string, v schema.Value) error {
	if field == l.t.Schema.Primary {
		if l.draft.UID = v.Wire(); l.draft.UID == "" {
			return change.Invalid(field, "non-empty", "it is empty; leave it out to have one made up")
		}
		l.draft.Facets[field] = l.draft.UID
		return nil
	}
	return l.t.EncodeFacet(l.draft.Facets, field, v, nil)
}

func unreadableFacet(field string, err error) error {
	reason := err.Error()
	var value *schema.ValueError
	if errors.As(err, &value) {
		reason = "no " + string(value.Codec) + ": " + value.Reason
	}
	return change.Invalid(field, "codec", reason)
}

// secrets are what is kept of an entry besides its facets: a hash or a clear password, dates, and a flag for it being
// disabled where no date is known.
type secrets struct{ hash, clear, changed, disabled, flag string }

// take adds to the draft what is no facet.
func (l *line) take(c *view.View, s secrets) error {
	now := c.Now()
	switch {
	case s.flag != "" && s.flag != "true" && s.flag != "false":
		return fmt.Errorf("%s is neither true nor false", columnFlag)
	case s.flag == "false" && s.disabled != "":
		return errors.New("both disabled and not")
	case s.flag == "true" && s.disabled == "":
		s.disabled = schema.Date(now).Wire()
	}
	if err := l.own(store.FieldChanged, s.changed, now); err != nil {
		return err
	}
	if err := l.own(store.FieldDisabled, s.disabled, now); err != nil {
		return err
	}
	l.clear = s.clear
	switch {
	case s.hash != "" && s.clear != "":
		return errors.New("both a password's hash and a clear password")
	case s.hash != "":
		if err := c.Hashing.Usable(l.t, s.hash); err != nil {
			return fmt.Errorf("password: %w (a clear password is called clear_password)", err)
		}
		l.draft.Facets[store.FieldPassword] = s.hash
	case s.clear != "" && s.changed == "":
		return l.own(store.FieldChanged, schema.Date(now).Wire(), now)
	}
	return nil
}

// own sets a field of the store's own to a date; "" leaves it out. What is to come is now: by a time far ahead no
// session would ever be younger than its password.
func (l *line) own(field, date string, now time.Time) error {
	if date == "" {
		return nil
	}
	v, err := schema.ParseText(schema.CodecDate, date)
	at, isDate := v.Time()
	if err != nil || !isDate {
		return fmt.Errorf("%s is no date", records.Quoted(date[:min(len(date), 40)]))
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

// identifiers are the values of facets by which an entry is found: no password may be one of them.
func identifiers(t *change.Type, facets map[string]string) []string {
	own := []string{facets[t.Schema.Primary]}
	for _, field := range t.Secondary {
		own = append(own, facets[field])
	}
	return own
}
