package check

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// An owner is an entry that another record names. The zero owner stands for no entry.
type owner struct {
	t     *change.Type
	key   recordkey.Key // zero if there is nothing to read
	field string        // the field that usually suffices to judge the owner
	// fits reports whether the facet is as it should be. has is false if a live owner lacks the
	// facet. If fits is nil, the whole entry is read at once.
	fits func(facet string, has bool) bool
	// further, if not nil, reports whether a further value of the entry fits. It needs the whole
	// entry.
	further func(fields map[string]string) bool

	matched bool // the facet fits, and nothing else was read
	live    bool // possibly damaged; false if absent, a tombstone or not a hash
	fields  map[string]string
}

// matches reports whether the entry is live and one of its values, or the lack of a value, fits.
func (o owner) matches() bool {
	facet, has := o.fields[o.field]
	return o.matched || o.live && (o.fits(facet, has) || o.further != nil && o.further(o.fields))
}

// has returns the field in which the owner has the value of an SRK that another entry claims. The
// whole entry must have been read.
func (o owner) has(claim recordkey.Key) (field string, has bool) {
	for _, field := range o.t.SettledRivals(claim.Field()) {
		if o.live && o.t.HasCanonical(o.fields, field, claim.Value()) {
			return field, true
		}
	}
	return "", false
}

// keyAndRev returns the key and the rev of the owner.
func (o owner) keyAndRev() string { return records.Relative(o.key) + " " + o.fields[store.FieldRev] }

func notEmpty(isa string, _ bool) bool { return isa != "" }

// readOwners reads one facet of each owner, and the whole entry if that facet is absent or does not
// fit.
func (c *checker) readOwners(ctx context.Context, r *report, owners []owner) {
	var reads []store.RawRead
	var asked, toRead []*owner
	for i := range owners {
		switch o := &owners[i]; {
		case !o.key.IsValid() || o.key.Field() != o.t.Schema.Primary:
		case o.fits == nil:
			toRead = append(toRead, o)
		default:
			reads, asked = append(reads, store.RawRead{Key: o.key.String(), As: store.RawField, Field: o.field}), append(asked, o)
		}
	}
	for i, facet := range read(ctx, r, c.Engine, reads, readFields) {
		o := asked[i]
		fits := facet.Exists && o.fits(facet.Wire, true)
		if o.matched, o.live = fits, fits; !fits {
			toRead = append(toRead, o)
		}
	}
	hashes := read(ctx, r, c.Engine, records.Map(toRead, func(o *owner) string { return o.key.String() }), store.Hashes)
	for i, h := range hashes {
		toRead[i].fields, toRead[i].live = h.Fields, !h.WrongType && !records.Gone(h.Fields)
	}
}

// parseOwner returns the entry that an SRV (the value of an SRK) or a member of an index set names,
// or the code of its problem.
func parseOwner(t *change.Type, ns recordkey.Namespace, srv string) (key recordkey.Key, wrong *code) {
	key, err := recordkey.Parse(store.Owner(srv))
	switch {
	case err != nil, key.Kind() != recordkey.KindPRK, key.Namespace() != recordkey.Namespace{}:
		return recordkey.Key{}, srvUnparsable
	case key.Type() != t.Name, key.Field() != t.Schema.Primary:
		return recordkey.Key{}, srvType
	}
	return key.In(ns), nil
}

// checkSRKs checks SRKs against the entries that they name (I4).
func (c *checker) checkSRKs(ctx context.Context, r *report, items []item) {
	srvs := read(ctx, r, c.Engine, rawKeys(items), store.Texts)
	owners := make([]owner, len(items))
	var others []int
	for i, it := range items {
		if srvs[i].Exists {
			owners[i] = c.ownerOfSRK(r, i, it, srvs[i].Text)
		} else {
			others = append(others, i)
		}
	}
	c.readOwners(ctx, r, owners)
	ending := c.endingSRKs(ctx, r, items, owners)
	for i, o := range owners {
		if o.key.IsValid() && !ending[i] {
			checkSRK(r, i, items[i], o, srvs[i].Text)
		}
	}
	kinds := read(ctx, r, c.Engine, records.Map(others, func(i int) string { return items[i].raw }), store.Kinds)
	for j, kind := range kinds {
		if it := items[others[j]]; kind != store.KindNone && kind != "string" {
			r.add(others[j], srkKind, it.key, "", records.Quoted(kind)).step = store.Remove{Key: it.raw, Kind: "string"}
		}
	}
}

// endingSRKs returns the positions, in items, of the SRKs that only hold a value, which their owner
// gave up: the owner lists the hold, or the hold has just ended and the SRK is about to expire.
func (c *checker) endingSRKs(ctx context.Context, r *report, items []item, owners []owner) map[int]bool {
	ending := map[int]bool{}
	var unmatched []int
	for i, o := range owners {
		switch key := items[i].key; {
		case !o.key.IsValid() || o.matches():
		case holdsValue(o.fields, key.Field(), key.Value()):
			ending[i] = true
		default:
			unmatched = append(unmatched, i)
		}
	}
	raws := read(ctx, r, c.Engine, records.Map(unmatched, func(i int) string { return items[i].raw }), readRaw)
	for j, raw := range raws {
		if raw.TTL > 0 {
			ending[unmatched[j]] = true
		}
	}
	return ending
}

// holdsValue reports whether an entry, or a tombstone, holds a value that it gave up.
func holdsValue(fields map[string]string, field, canonical string) bool {
	return slices.ContainsFunc(store.HeldIn(fields), func(h store.HeldValue) bool {
		return h.Field == field && h.Canonical == canonical && h.Until.After(time.Now())
	})
}

// ownerOfSRK returns the entry that an SRK names. If it names none, ownerOfSRK reports that.
func (c *checker) ownerOfSRK(r *report, at int, it item, srv store.Text) owner {
	t := c.ByName[it.key.Type()]
	key, wrong := parseOwner(t, it.key.Namespace(), srv.Wire)
	if wrong != nil {
		words := []any{records.Quoted(store.Owner(srv.Wire)), records.Quoted(t.Name)}
		if wrong == srvUnparsable {
			words = words[:1]
		}
		r.add(at, wrong, it.key, srv.Wire, words...).step = store.Remove{Key: it.raw, Seen: srv}
	}
	return expectedOwner(t, key, it.key.Field(), it.key.Value())
}

// expectedOwner returns an owner that should have the canonical value in field.
func expectedOwner(t *change.Type, key recordkey.Key, field, value string) owner {
	return owner{
		t: t, key: key, field: field,
		fits:    func(facet string, has bool) bool { return has && t.Schema.Canonical(facet) == value },
		further: func(fields map[string]string) bool { return t.HasCanonical(fields, field, value) },
	}
}

// checkSRK checks an SRK against its owner. The whole SRV is part of what identifies a finding,
// because on a cluster each attempt to create an entry has its own SRV, and an entry that does not
// exist has no rev.
func checkSRK(r *report, at int, it item, o owner, srv store.Text) {
	prk, field, seen := records.Printable(records.Relative(o.key)), it.key.Field(), o.keyAndRev()+" "+srv.Wire
	remove := store.Remove{Key: it.raw, Seen: srv, Owner: o.key.String(), Field: field, Value: it.key.Value()}
	switch {
	case !o.live:
		r.add(at, srkOrphan, it.key, seen, prk).step = remove
	case !o.matches():
		r.add(at, srkStale, it.key, seen, prk, records.Quoted(field)).step = remove
	case !slices.Contains(o.t.Secondary, field):
		r.add(at, srkUndeclared, it.key, seen, records.Quoted(field))
	}
}

// CoffeeNode UserDB, the original program, escapes only four characters in key parts. Its records
// must remain readable. Both replacers work in one pass from the left.
var (
	originalEscape   = strings.NewReplacer("+", "++", " ", "+_", "/", "+,", ":", "+.")
	originalUnescape = strings.NewReplacer("++", "+", "+_", " ", "+,", "/", "+.", ":")
)

// looksLikeOurs reports whether a key that does not parse begins with a declared type, a slash, a
// field and a colon, escaped as this program or as the original does.
func looksLikeOurs(key string, s schema.Schema) bool {
	typ, rest, ok := strings.Cut(key, "/")
	if !ok || !strings.Contains(rest, ":") {
		return false
	}
	for name := range s.Types {
		if typ == name || typ == recordkey.Escape(name) || typ == originalEscape.Replace(name) {
			return true
		}
	}
	return false
}

// checkUnparsable reports keys that begin like ours but do not parse.
func (c *checker) checkUnparsable(ctx context.Context, r *report, items []item) {
	for i, kind := range read(ctx, r, c.Engine, rawKeys(items), store.Kinds) {
		if kind == store.KindNone {
			continue
		}
		raw, reason := items[i].raw, ""
		_, err := recordkey.Parse(raw)
		if syntax, ok := errors.AsType[*recordkey.SyntaxError](err); ok {
			reason = syntax.Reason
		}
		if kind == "hash" {
			reason += "; if it holds an entry, 'userdb dump' shows it: create it again with 'userdb create', " +
				"then remove this record with 'userdb remove'"
		}
		f := r.addRaw(i, keyUnparsable, strings.TrimPrefix(raw, c.NS.String()), "", reason)
		if c.fix != nil && kind == "string" {
			f.step = c.removeOriginalStep(ctx, r, raw)
		}
	}
}

// removeOriginalStep returns the step that removes an SRK whose key was written by the original. It
// returns nil unless the SRK is superseded: our SRK of the value names the same entry, or that
// entry does not have the value.
func (c *checker) removeOriginalStep(ctx context.Context, r *report, raw string) store.RepairStep {
	t, field, value, ok := c.originalSRK(strings.TrimPrefix(raw, c.NS.String()))
	if !ok {
		return nil
	}
	value = t.Schema.Canonical(value)
	srv := read(ctx, r, c.Engine, []string{raw}, store.Texts)[0]
	prk, _ := parseOwner(t, c.NS, srv.Wire) // the zero Key belongs to no entry
	named := []owner{expectedOwner(t, prk, field, value)}
	if c.readOwners(ctx, r, named); named[0].matches() {
		srk, ok := t.SRK(field, value)
		if !ok || store.Owner(read(ctx, r, c.Engine, []string{srk.String()}, store.Texts)[0].Wire) != records.Relative(prk) {
			return nil
		}
	}
	if !srv.Exists {
		return nil
	}
	return store.Remove{Key: raw, Seen: srv.Text}
}

// originalSRK parses the key of an SRK as the original writes it.
func (c *checker) originalSRK(key string) (t *change.Type, field, value string, ok bool) {
	rest, ok := strings.CutSuffix(key, "/~prk")
	if !ok {
		return nil, "", "", false
	}
	typ, rest, _ := strings.Cut(rest, "/")
	field, value, ok = strings.Cut(rest, ":")
	t, declared := c.ByName[originalUnescape.Replace(typ)]
	if field = originalUnescape.Replace(field); !declared || !ok || !slices.Contains(t.Secondary, field) {
		return nil, "", "", false
	}
	return t, field, originalUnescape.Replace(value), true
}
