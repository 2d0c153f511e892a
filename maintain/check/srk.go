package check

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// An ownerRead asks for an entry that another record names. The zero one asks for nothing.
type ownerRead struct {
	t     *change.Type
	key   recordkey.Key
	field string                  // by which most owners are seen to be as they should
	fine  func(facet string) bool // what it must be for that; nil: the entry is read at once
}

// An owner is such an entry: either fine, or read whole.
type owner struct {
	key    recordkey.Key
	fine   bool
	there  bool // live, or damaged; false for one that is absent, a tombstone, or no hash
	fields map[string]string
}

// live reports whether there is an entry.
func (o owner) live() bool { return o.fine || o.there }

// has returns the secondary field in which an owner that was read whole has a canonical value.
func (o owner) has(t *change.Type, value string) (string, bool) {
	i := slices.IndexFunc(t.Secondary, func(field string) bool { return o.hasIn(t, field, value) })
	if i < 0 {
		return "", false
	}
	return t.Secondary[i], true
}

func (o owner) hasIn(t *change.Type, field, value string) bool {
	facet, has := o.fields[field]
	return o.there && has && t.Schema.Canonical(facet) == value
}

// seen is the revision of the owner.
func (o owner) seen() string { return records.Relative(o.key) + " " + o.fields[store.FieldRev] }

func notEmpty(isa string) bool { return isa != "" }

// owners reads the entries that records name: one facet of each, and those whole that are not fine.
func (c *checker) owners(ctx context.Context, asked []ownerRead) ([]owner, error) {
	owners := make([]owner, len(asked))
	var reads []store.LookAt
	var read, whole []int
	for i, a := range asked {
		owners[i].key = a.key
		switch {
		case !a.key.IsValid() || a.key.Field() != a.t.Schema.Primary:
		case a.fine == nil:
			whole = append(whole, i)
		default:
			reads, read = append(reads, store.LookAt{Key: a.key.String(), As: store.LookField, Field: a.field}), append(read, i)
		}
	}
	facets, err := c.Engine.Look(ctx, reads)
	if err != nil {
		return nil, err
	}
	for j, i := range read {
		if owners[i].fine = facets[j].Is && asked[i].fine(facets[j].Wire); !owners[i].fine {
			whole = append(whole, i)
		}
	}
	keys := make([]string, len(whole))
	for j, i := range whole {
		keys[j] = owners[i].key.String()
	}
	hashes, err := store.Hashes(ctx, c.Engine, keys)
	for j, h := range hashes {
		o := &owners[whole[j]]
		o.fields, o.there = h.Fields, !h.Other && !records.Gone(h.Fields)
	}
	return owners, err
}

// ownerOf is the entry that an SRV, or the member of an index set, names; else the code of what is
// wrong with it.
func ownerOf(t *change.Type, ns recordkey.Namespace, srv string) (key recordkey.Key, wrong *code) {
	key, err := recordkey.Parse(store.Owner(srv))
	switch {
	case err != nil, key.Kind() != recordkey.KindPRK, key.Namespace() != recordkey.Namespace{}:
		return recordkey.Key{}, srvUnparsable
	case key.Type() != t.Name, key.Field() != t.Schema.Primary:
		return recordkey.Key{}, srvType
	}
	return key.In(ns), nil
}

// exactly is a string that a record must still be.
func exactly(wire string) store.Text { return store.Text{Wire: wire, Is: true} }

// lookAtSRKs judges SRKs by the entries that they name (I4).
func (c *checker) lookAtSRKs(ctx context.Context, items []item) (fs findings, err error) {
	srvs, err := store.Texts(ctx, c.Engine, raws(items))
	if err != nil {
		return nil, err
	}
	asked := make([]ownerRead, len(items))
	var others []int
	for i, it := range items {
		if srvs[i].Is {
			asked[i] = c.namedBy(&fs, i, it, srvs[i].Wire)
		} else {
			others = append(others, i)
		}
	}
	owners, err := c.owners(ctx, asked)
	if err != nil {
		return nil, err
	}
	for i, o := range owners {
		if o.key.IsValid() {
			judgeSRK(&fs, i, items[i], asked[i].t, o, srvs[i].Wire)
		}
	}
	return fs, c.lookAtKinds(ctx, &fs, items, others)
}

// namedBy asks for the entry that an SRK names, or reports that it names none.
func (c *checker) namedBy(fs *findings, at int, it item, srv string) ownerRead {
	t := c.types[it.key.Type()]
	key, wrong := ownerOf(t, it.key.Namespace(), srv)
	if wrong == nil {
		fine := func(facet string) bool { return t.Schema.Canonical(facet) == it.key.Value() }
		return ownerRead{t: t, key: key, field: it.key.Field(), fine: fine}
	}
	words := []any{records.Quoted(store.Owner(srv)), records.Quoted(t.Name)}
	if wrong == srvUnparsable {
		words = words[:1]
	}
	fs.add(at, wrong, it.key, srv, words...).step = store.Remove{Key: it.raw, Seen: exactly(srv)}
	return ownerRead{}
}

// lookAtKinds reports those SRKs that are there, but no strings.
func (c *checker) lookAtKinds(ctx context.Context, fs *findings, items []item, which []int) error {
	keys := make([]string, len(which))
	for j, i := range which {
		keys[j] = items[i].raw
	}
	kinds, err := store.Kinds(ctx, c.Engine, keys)
	for j, kind := range kinds {
		if i := which[j]; kind != store.KindNone && kind != "string" {
			fs.add(i, srkKind, items[i].key, "", records.Quoted(kind)).step = store.Remove{Key: items[i].raw, Kind: "string"}
		}
	}
	return err
}

// judgeSRK goes by the SRV, too: on a cluster each attempt to make an entry has one of its own, and an entry
// that does not exist has no revision.
func judgeSRK(fs *findings, at int, it item, t *change.Type, o owner, srv string) {
	prk, field, seen := records.Printable(records.Relative(o.key)), it.key.Field(), o.seen()+" "+srv
	remove := store.Remove{Key: it.raw, Seen: exactly(srv), Owner: o.key.String(), Field: field, Value: it.key.Value()}
	switch {
	case !o.fine && !o.there:
		fs.add(at, srkOrphan, it.key, seen, prk).step = remove
	case !o.fine && !o.hasIn(t, field, it.key.Value()):
		fs.add(at, srkStale, it.key, seen, prk, records.Quoted(field)).step = remove
	case !slices.Contains(t.Secondary, field):
		fs.add(at, srkUndeclared, it.key, seen, records.Quoted(field))
	}
}

// How the original escapes crumbs, four characters and no others, and how that is undone in one pass from the left.
var (
	originalEscape   = strings.NewReplacer("+", "++", " ", "+_", "/", "+,", ":", "+.")
	originalUnescape = strings.NewReplacer("++", "+", "+_", " ", "+,", "/", "+.", ":")
)

// likeOurs reports whether a key that does not parse begins TYPE/FIELD: with a declared type, escaped as
// here or as in the original.
func likeOurs(key string, s schema.Schema) bool {
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

// lookAtUnparsable reports keys that begin as ours do, and do not parse.
func (c *checker) lookAtUnparsable(ctx context.Context, items []item) (fs findings, err error) {
	kinds, err := store.Kinds(ctx, c.Engine, raws(items))
	for i, kind := range kinds {
		if kind == store.KindNone {
			continue
		}
		raw, reason := items[i].raw, ""
		var syntax *recordkey.SyntaxError
		if _, err := recordkey.Parse(raw); errors.As(err, &syntax) {
			reason = syntax.Reason
		}
		if kind == "hash" {
			reason += "; if an entry is in it, 'userdb dump' shows it, 'userdb create' makes it anew, " +
				"and then 'userdb remove' takes this record away"
		}
		f := fs.addRaw(i, keyUnparsable, strings.TrimPrefix(raw, c.NS.String()), "", reason)
		if c.fix != nil && kind == "string" {
			if f.step, err = c.unparsable(ctx, raw); err != nil {
				return nil, err
			}
		}
	}
	return fs, err
}

// unparsable is the step that removes an SRK whose key was written in the original's way, where ours is in force:
// the same value has its SRK under our key, or nobody has it.
func (c *checker) unparsable(ctx context.Context, raw string) (store.Step, error) {
	t, field, value, ok := c.originalSRK(strings.TrimPrefix(raw, c.NS.String()))
	if !ok {
		return nil, nil
	}
	srvs, err := store.Texts(ctx, c.Engine, []string{raw})
	if err != nil || !srvs[0].Is {
		return nil, err
	}
	if key, wrong := ownerOf(t, c.NS, srvs[0].Wire); wrong == nil {
		needed, err := c.needed(ctx, t, key, field, t.Schema.Canonical(value))
		if err != nil || needed {
			return nil, err
		}
	}
	return store.Remove{Key: raw, Seen: srvs[0].Text}, nil
}

// needed reports whether an entry has a value, and no SRK of ours for it.
func (c *checker) needed(ctx context.Context, t *change.Type, prk recordkey.Key, field, value string) (bool, error) {
	owners, err := c.owners(ctx, []ownerRead{{t: t, key: prk}})
	if err != nil || !owners[0].hasIn(t, field, value) {
		return false, err
	}
	srk, err := recordkey.SRK(t.Name, field, value)
	if err != nil {
		return true, nil
	}
	srvs, err := store.Texts(ctx, c.Engine, []string{srk.In(c.NS).String()})
	return err != nil || store.Owner(srvs[0].Wire) != records.Relative(prk), err
}

// originalSRK takes apart an SRK as the original writes it.
func (c *checker) originalSRK(key string) (t *change.Type, field, value string, ok bool) {
	rest, ok := strings.CutSuffix(key, "/~prk")
	if !ok {
		return nil, "", "", false
	}
	typ, rest, _ := strings.Cut(rest, "/")
	field, value, ok = strings.Cut(rest, ":")
	t, declared := c.types[originalUnescape.Replace(typ)]
	if field = originalUnescape.Replace(field); !declared || !ok || !slices.Contains(t.Secondary, field) {
		return nil, "", "", false
	}
	return t, field, originalUnescape.Replace(value), true
}
