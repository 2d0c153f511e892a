package check

import (
	"context"
	"errors"
	"iter"
	"regexp"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// Codes of problems with the store's own records, without which verbs or logins stop.
const (
	codeOwnSchema   = "own_schema"
	codeOwnSecret   = "own_secret"
	codeOwnThrottle = "own_throttle"
	codeOwnTypes    = "own_types"
)

func init() {
	for _, code := range []string{codeOwnSchema, codeOwnSecret, codeOwnThrottle, codeOwnTypes} {
		facts[code] = struct {
			invariant int
			warning   bool
		}{}
	}
	classes[codeOwnThrottle] = classRecord
}

// Own yields what is wrong with those of the store's own records that all verbs go by: ~/types, ~/schema/TYPE
// and ~/secret. Run does that first, and ends there where the first two stay broken. It is for whoever
// cannot read the stored schema, and so has none to check the records by. Of o only Repair and Restate count.
func Own(ctx context.Context, db *userdb.DB, o Options) iter.Seq2[Problem, error] {
	return func(yield func(Problem, error) bool) {
		c := newChecker(db, o, yield)
		if _, err := c.own(ctx, o); err != nil && err != errStopped {
			yield(Problem{}, err)
		}
	}
}

// An ownDamage is one of those records that is broken; mend is nil where a person must decide.
type ownDamage struct {
	key        recordkey.Key
	code, text string
	mend       func(context.Context) error
}

// own reports them, and reports whether the schemas can be read then.
func (c *checker) own(ctx context.Context, o Options) (readable bool, err error) {
	found, err := c.lookAtOwn(ctx, o)
	if err != nil || len(found) == 0 {
		return true, err
	}
	left := found
	if o.Repair {
		for _, d := range found {
			if d.mend == nil {
				continue
			}
			if err := d.mend(ctx); err != nil && !passing(err) {
				return false, err
			}
		}
		if left, err = c.lookAtOwn(ctx, o); err != nil {
			return false, err
		}
	}
	readable = true
	var fs findings
	for _, d := range found {
		still := slices.ContainsFunc(left, func(l ownDamage) bool { return l.key == d.key && l.code == d.code })
		fs.add(0, d.code, d.key, "", "%s", d.text).Repaired = !still
		readable = readable && (!still || d.code == codeOwnSecret)
	}
	return readable, c.emit(problems(fs), nil)
}

func (c *checker) lookAtOwn(ctx context.Context, o Options) ([]ownDamage, error) {
	names, found, err := c.lookAtTypes(ctx)
	if err != nil {
		return nil, err
	}
	more, err := c.lookAtSchemas(ctx, names, o)
	if err != nil {
		return nil, err
	}
	secret, err := c.lookAtSecret(ctx)
	return append(append(found, more...), secret...), err
}

func (c *checker) ownKey(parts ...string) (recordkey.Key, error) {
	key, err := recordkey.Own(parts...)
	return key.In(c.NS), err
}

// lookAtTypes judges ~/types, and returns the types that it names or that the schema declares.
func (c *checker) lookAtTypes(ctx context.Context) (names []string, found []ownDamage, err error) {
	key, err := c.ownKey("types")
	if err != nil {
		return nil, nil, err
	}
	raws, err := store.Inspect(ctx, c.Engine, []string{key.String()}, 0)
	if err != nil {
		return nil, nil, err
	}
	names = c.Schema.Names()
	if kind := raws[0].Type; kind != "set" && kind != store.KindNone {
		found = append(found, ownDamage{key, codeOwnTypes, "the names of the types are a set, and this a " + records.Quoted(kind), c.rebuildTypes})
		return names, found, nil
	}
	for _, name := range raws[0].Items {
		if _, err := c.ownKey("schema", name); err != nil {
			found = append(found, ownDamage{key, codeOwnTypes, "no key can name a type " + records.Quoted(name), c.rebuildTypes})
		} else if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range c.Schema.Names() {
		t, err := c.Type(name)
		if err != nil {
			return nil, nil, err
		}
		kinds, err := store.Kinds(ctx, c.Engine, []string{t.Guard().Key.String()})
		if err != nil {
			return nil, nil, err
		}
		if kinds[0] != store.KindNone && !slices.Contains(raws[0].Items, name) {
			found = append(found, ownDamage{key, codeOwnTypes, "type " + records.Quoted(name) + " has a schema, and is not in it", c.rebuildTypes})
		}
	}
	return names, found, nil
}

// rebuildTypes makes ~/types anew, of the schemas that are there.
func (c *checker) rebuildTypes(ctx context.Context) error {
	types, err := c.ownKey("types")
	if err != nil {
		return err
	}
	if _, err := c.Engine.Mend(ctx, store.Remove{Key: types.String(), Kind: "set"}); err != nil {
		return err
	}
	raws, err := store.Inspect(ctx, c.Engine, []string{types.String()}, 0)
	if err != nil {
		return err
	}
	for _, name := range raws[0].Items {
		if _, err := c.ownKey("schema", name); err != nil {
			if _, err := c.Engine.Mend(ctx, store.Remove{Key: types.String(), Member: name}); err != nil {
				return err
			}
		}
	}
	pattern := recordkey.Glob(c.NS.String()) + "~/schema/*"
	for cursor := ""; ; {
		raw, next, err := c.Engine.Scan(ctx, pattern, cursor, records.ScanBatch)
		if err != nil {
			return err
		}
		for _, k := range raw {
			if key, err := recordkey.Parse(k); err == nil && key.Kind() == recordkey.KindOwn && key.Namespace() == c.NS && len(key.Parts()) == 2 {
				if err := c.nameType(ctx, store.Guard{Key: key, Types: types}); err != nil {
					return err
				}
			}
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}

// nameType puts a type among the types, with what is stored of it as it is.
func (c *checker) nameType(ctx context.Context, g store.Guard) error {
	hashes, err := store.Hashes(ctx, c.Engine, []string{g.Key.String()})
	if err != nil {
		return err
	}
	state := []store.Facet{{Field: records.FieldFingerprint, Wire: hashes[0].Fields[records.FieldFingerprint]}}
	for field, wire := range hashes[0].Fields {
		if field != records.FieldFingerprint {
			state = append(state, store.Facet{Field: field, Wire: wire})
		}
	}
	if _, err = c.Engine.Mend(ctx, store.Restate{Guard: g, Seen: state[0].Wire, State: state}); redisx.WrongType(err) {
		return nil // the type is named, and its schema is the next thing to mend
	}
	return err
}

// lookAtSchemas judges ~/schema/TYPE.
func (c *checker) lookAtSchemas(ctx context.Context, names []string, o Options) (found []ownDamage, err error) {
	for _, name := range names {
		key, err := c.ownKey("schema", name)
		if err != nil {
			return nil, err
		}
		hashes, err := store.Hashes(ctx, c.Engine, []string{key.String()})
		if err != nil {
			return nil, err
		}
		h := hashes[0]
		reason := unreadable(name, h)
		if reason == "" && len(h.Fields) == 0 {
			if reason, err = c.lost(ctx, name); err != nil {
				return nil, err
			}
		}
		if reason == "" {
			continue
		}
		mend := c.restating(name, h, o)
		if mend == nil {
			reason += "; writers are refused, or would go by another one. If FILE is the schema that its entries were written by, 'userdb check --repair --schema FILE' stores it again"
		}
		found = append(found, ownDamage{key, codeOwnSchema, reason, mend})
	}
	return found, nil
}

// unreadable says why what is stored of a type's schema cannot be what was stored; "" where it can.
func unreadable(name string, h store.Hash) string {
	if h.Other {
		return "the schema of a type is a hash, and this is none"
	}
	if len(h.Fields) == 0 {
		return ""
	}
	if h.Fields[records.FieldFingerprint] == "" {
		return "the schema of the type has no fingerprint"
	}
	for _, field := range []string{records.FieldSchema, records.FieldNext} {
		text, is := h.Fields[field]
		if !is && field == records.FieldNext {
			continue
		}
		s, err := records.ParseSchema(map[string]string{name: text})
		if err != nil {
			return "it cannot be read, or was written by a newer version: " + err.Error()
		}
		if records.IsAnother(s.Types[name], h.Fields) {
			return records.AnotherSchema
		}
	}
	return ""
}

// lost tells of a type that is named and has entries, and no schema any more.
func (c *checker) lost(ctx context.Context, name string) (string, error) {
	t, err := c.Type(name)
	if err != nil {
		return "", nil // nobody knows what its entries look like
	}
	types := t.Guard().Types.String()
	raws, err := store.Inspect(ctx, c.Engine, []string{types}, 0)
	if err != nil || !slices.Contains(raws[0].Items, name) {
		return "", err
	}
	err = store.NoEntries(ctx, c.Engine, t.Guard().Entries)
	if errors.Is(err, store.ErrSchemaMismatch) {
		return "the schema of the type is lost, and there are entries", nil
	}
	return "", err
}

// restating stores the schema in hand in place of a broken one: where the fingerprint that is left says that it is
// the same, or where it was named for that and all records fit it. Nothing else proves that it is.
func (c *checker) restating(name string, h store.Hash, o Options) func(context.Context) error {
	t, err := c.Type(name)
	if err != nil {
		return nil
	}
	seen := h.Fields[records.FieldFingerprint]
	same := seen == t.Guard().Fingerprint && h.Fields[records.FieldNext] == ""
	if !same && !o.Restate {
		return nil
	}
	return func(ctx context.Context) error {
		if !same {
			if fit, err := c.recordsFit(ctx, o); err != nil || !fit {
				return err
			}
		}
		return c.restate(ctx, t, seen)
	}
}

func (c *checker) restate(ctx context.Context, t *change.Type, seen string) error {
	g := t.Guard()
	if _, err := c.Engine.Mend(ctx, store.Remove{Key: g.Key.String(), Kind: "hash"}); err != nil {
		return err
	}
	state := []store.Facet{{Field: records.FieldFingerprint, Wire: g.Fingerprint}, {Field: records.FieldSchema, Wire: g.JSON}}
	for _, field := range g.Named() {
		state = append(state, store.Facet{Field: field, Wire: "1"})
	}
	_, err := c.Engine.Mend(ctx, store.Restate{Guard: g, Seen: seen, State: state})
	return err
}

// recordsFit reports whether a check by the schema in hand finds no error.
func (c *checker) recordsFit(ctx context.Context, o Options) (bool, error) {
	alone, fit := *c, true
	alone.whole, alone.fix = true, nil
	alone.emit = func(ps []Problem, err error) error {
		fit = fit && !slices.ContainsFunc(ps, func(p Problem) bool { return !p.Warning && p.Code != codeOwnThrottle })
		return err
	}
	err := alone.look(ctx, Options{Progress: o.Progress})
	return fit, err
}

var secretForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// lookAtSecret judges ~/secret. A new one is made by the next login; counters that lie under a hash with the old one
// (of origins, and of identifiers that nobody has) begin anew then.
func (c *checker) lookAtSecret(ctx context.Context) ([]ownDamage, error) {
	key, err := c.ownKey("secret")
	if err != nil {
		return nil, err
	}
	kinds, err := store.Kinds(ctx, c.Engine, []string{key.String()})
	if err != nil || kinds[0] == store.KindNone {
		return nil, err
	}
	texts, err := store.Texts(ctx, c.Engine, []string{key.String()})
	if err != nil {
		return nil, err
	}
	remove := store.Remove{Key: key.String(), Kind: "string"}
	switch {
	case kinds[0] == "string" && secretForm.MatchString(texts[0].Wire):
		return nil, nil
	case kinds[0] == "string":
		remove = store.Remove{Key: key.String(), Seen: store.Text{Wire: texts[0].Wire, Is: true}}
	}
	return []ownDamage{{key, codeOwnSecret, "the secret of the namespace is not one that this store has made; the next login makes another", func(ctx context.Context) error {
		_, err := c.Engine.Mend(ctx, remove)
		return err
	}}}, nil
}

// throttlesAmong are those of some keys that name counters of logins in the view.
func (c *checker) throttlesAmong(keys []string) (some []recordkey.Key) {
	prefix := c.NS.String() + "~/throttle/"
	for _, raw := range keys {
		if !strings.HasPrefix(raw, prefix) {
			continue
		}
		if key, err := recordkey.Parse(raw); err == nil && len(key.Parts()) == 4 { // ~/throttle/TYPE/WHAT/WHOSE
			some = append(some, key)
		}
	}
	return some
}

// lookAtThrottles judges counters of logins: with one that cannot be read its account, or its origin, is shut out.
func (c *checker) lookAtThrottles(ctx context.Context, keys []recordkey.Key) (findings, error) {
	hashes, err := store.Hashes(ctx, c.Engine, records.Texts(keys))
	var fs findings
	for i, h := range hashes {
		if h.Other || !countable(h.Fields) {
			fs.add(i, codeOwnThrottle, keys[i], "", "not counters that this store can have written; its logins are refused until they go, and then counted from none")
		}
	}
	return fs, err
}

var counterForm = regexp.MustCompile(`^[0-9]{1,15}$`)

// countable reports whether the script that counts takes them (sound in throttle.lua). The list of calls is k.
func countable(fields map[string]string) bool {
	for field, wire := range fields {
		switch {
		case field == "k" && !isCalls(wire):
			return false
		case (len(field) == 2 || strings.HasPrefix(field, "n:") || strings.HasPrefix(field, "o:")) && !counterForm.MatchString(wire):
			return false
		}
	}
	return true
}

// isCalls reports whether a text lists calls: each a token of twelve bytes, and eleven digits.
func isCalls(text string) bool {
	const token, call = 12, 12 + 11
	for ; len(text) >= call; text = text[call:] {
		if !counterForm.MatchString(text[token:call]) {
			return false
		}
	}
	return text == ""
}

func (c *checker) mendThrottle(ctx context.Context, key recordkey.Key, _ findings) error {
	if still, err := c.lookAtThrottles(ctx, []recordkey.Key{key}); err != nil || len(still) == 0 {
		return err
	}
	_, err := c.Engine.Mend(ctx, store.Remove{Key: key.String()})
	return err
}
