package check

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// Options say what Run looks at. The zero Options are for all records.
type Options struct {
	// Only is one entry, or what is left of one: the entry, the SRKs of its values, and all SRKs,
	// index members and tertiary records that name it. Finding those takes a SCAN, too. That another
	// entry has one of its values is reported if that one has an SRK for it; else it is a problem of
	// the other. Where a hint may mean several entries, it is all of them. Zero: all records.
	Only hints.Hint
	// Repair mends what needs no human decision, each problem by one step that is made whole or not
	// at all, and only if the problem is still there. It may be stopped at any moment and run again.
	// Warnings stay. No facet is ever deleted. Zero: report only.
	Repair bool
	// Keep decides where entries have one value: each is the PRK, as in Problem.Choices, of the entry
	// that keeps all it shares with others; of those, the facet moves to ~lost:FIELD, a field of the
	// store's own. Only with Repair.
	Keep []recordkey.Key
	// Restate stores the view's schema again where what is stored of it at ~/schema/TYPE is lost or cannot be
	// read, and nothing is left that says which one it was. Then it must be the one that the entries were
	// written by: that all records fit it, which is looked at first, does not prove it (a fold that no value tells
	// apart, say). Only with Repair. False: only where the stored fingerprint is that of the view's schema.
	Restate bool
	// Progress is told, now and then, how many records have been gone through, and of how many
	// about: both count the whole database. A repair that finds something begins again, up to five
	// times. Nil: nobody is.
	Progress func(done, about int64)
}

// Run yields what is wrong with the records of the view's namespace. If it yields nothing, I1 to I5
// hold. An error ends it: the store's own, userdb.ErrSchemaMismatch where the schema in the database lays records out
// in another way, or a hint that means nothing (hints.ErrHint).
//
// Without Repair it writes nothing. It may run while the system does. A problem is yielded only if it is still
// there when it is looked at again, with every entry that it is about at the same revision, so writers cause no
// false alarm, but what they change behind its back may be missed. On a cluster, where a change is made in several
// steps, it must stay so for as long as a writer may take for them: a check that finds something takes
// 17 seconds more there. It reads all records by SCAN, in batches, so that memory stays flat; a problem
// may be yielded twice if the server's tables grow or shrink meanwhile, and they come in no order. Where two entries have a
// value and neither an SRK, srk_missing of both stands for value_shared.
func Run(ctx context.Context, db *userdb.DB, o Options) iter.Seq2[Problem, error] {
	return func(yield func(Problem, error) bool) {
		c := newChecker(db, o, yield)
		if err := c.check(ctx, o); err != nil && err != errStopped {
			yield(Problem{}, err)
		}
	}
}

func newChecker(db *userdb.DB, o Options, yield func(Problem, error) bool) *checker {
	c := &checker{View: view.Of(db), whole: o.Only.IsZero(), coded: coded(db.Schema())}
	c.emit = func(ps []Problem, err error) error {
		for _, p := range ps {
			if !yield(p, nil) {
				return errStopped
			}
		}
		return err
	}
	return c
}

// errStopped is how a checker learns that nobody wants more problems.
var errStopped = errors.New("stopped")

// A checker looks at the records of one view.
type checker struct {
	*view.View
	whole bool // all records are looked at: what two entries show is reported at one of them
	coded map[string][]string
	emit  func([]Problem, error) error
	fix   *repair // nil: report only

	steps  bool // changes are made in several steps, between which records look damaged
	doubts *doubts
}

func (c *checker) check(ctx context.Context, o Options) error {
	if readable, err := c.own(ctx, o); err != nil || !readable {
		return err
	}
	others, err := c.inForce(ctx)
	if err == nil && len(others) > 0 {
		err = c.otherForms(ctx, o, others)
	}
	if err != nil {
		return err
	}
	if o.Repair {
		return c.repair(ctx, o)
	}
	return c.look(ctx, o)
}

// look goes once over what shall be looked at.
func (c *checker) look(ctx context.Context, o Options) error {
	c.steps, c.doubts = c.Engine.InSteps(), &doubts{}
	var err error
	if c.whole {
		err = c.stream(ctx, recordkey.Glob(c.NS.String())+"*", o.Progress, (*checker).batch)
	} else {
		err = c.one(ctx, o)
	}
	if err != nil {
		return err
	}
	return c.doubts.resolve(ctx, c)
}

// inForce refuses a schema by which the records were not written: all would seem damaged. Types whose
// records have but another version of the canonical form it returns.
func (c *checker) inForce(ctx context.Context) ([]otherForm, error) {
	names := c.Schema.Names()
	keys := make([]string, len(names))
	types := make([]*change.Type, len(names))
	for i, name := range names {
		t, err := c.Type(name)
		if err != nil {
			return nil, err
		}
		types[i] = t
		keys[i] = t.Guard().Key.String()
	}
	hashes, err := store.Hashes(ctx, c.Engine, keys)
	if err != nil {
		return nil, err
	}
	var others []otherForm
	for i, h := range hashes {
		fingerprint, is := h.Fields[records.FieldFingerprint]
		if !is || fingerprint == types[i].Guard().Fingerprint {
			continue
		}
		t := types[i]
		s, err := records.ParseSchema(map[string]string{t.Name: h.Fields[records.FieldSchema]})
		if err != nil {
			return nil, fmt.Errorf("%w: type %s: %w", store.ErrSchemaMismatch, records.Quoted(t.Name), err)
		}
		stored := s.Types[t.Name]
		if !t.Schema.OtherForm(stored) || fingerprint != stored.Fingerprint() {
			return nil, mismatch(t, stored)
		}
		others = append(others, otherForm{t, stored})
	}
	return others, nil
}

func mismatch(t *change.Type, stored schema.Type) error {
	difference := t.Schema.Difference(stored)
	if difference == "" || t.Schema.OtherForm(stored) {
		return fmt.Errorf("%w: type %s: a change of the schema is under way; finish it with 'userdb schema apply'", store.ErrSchemaMismatch, records.Quoted(t.Name))
	}
	return fmt.Errorf("%w: type %s: %s; check with the stored schema ('userdb schema show')",
		store.ErrSchemaMismatch, records.Quoted(t.Name), difference)
}

// batch judges some of the keys that SCAN found.
func (c *checker) batch(ctx context.Context, keys []string) error {
	slices.Sort(keys)
	return c.judge(ctx, c.sort(slices.Compact(keys)))
}

// judge looks at records of every kind, some at a time.
func (c *checker) judge(ctx context.Context, s sorted) error {
	if err := chunks(ctx, c, s.unparsable, c.lookAtUnparsable, c.mendUnparsable); err != nil {
		return err
	}
	if err := chunks(ctx, c, s.strangers, c.lookAtStrangers, nil); err != nil {
		return err
	}
	if err := chunks(ctx, c, s.throttles, c.lookAtThrottles, c.mendThrottle); err != nil {
		return err
	}
	if err := chunks(ctx, c, s.staged, c.lookAtStaged, c.mendStaged); err != nil {
		return err
	}
	for _, look := range []struct {
		at   []recordkey.Key
		look func(context.Context, []recordkey.Key) (findings, error)
		mend func(context.Context, recordkey.Key, findings) error
	}{
		{s.entries, c.lookAtEntries, c.mendEntry},
		{s.srks, c.lookAtSRKs, c.mendSRK},
		{s.tertiary, c.lookAtTertiary, c.mendTertiary},
		{s.indexes, c.lookAtIndexes, c.mendIndex},
	} {
		if err := chunks(ctx, c, look.at, look.look, look.mend); err != nil {
			return err
		}
	}
	if err := c.members(ctx, c.indexed(s.tertiary), c.lookAtMembers, c.mendMember); err != nil {
		return err
	}
	if err := c.members(ctx, s.indexes, c.lookAtIndexMembers, c.mendIndexMember); err != nil {
		return err
	}
	return c.orders(ctx, s.orders, nil)
}

// chunks looks at records of one kind.
func chunks[T any](ctx context.Context, c *checker, items []T, look func(context.Context, []T) (findings, error), mend func(context.Context, T, findings) error) error {
	for some := range slices.Chunk(items, records.LookBatch) {
		if err := settle(ctx, c, some, look, mend); err != nil {
			return err
		}
	}
	return nil
}

// sorted are keys by what they name.
type sorted struct {
	entries, strangers, srks, tertiary, indexes []recordkey.Key
	unparsable                                  []string
	orders, throttles                           []recordkey.Key // the store's own: of ordered fields, and counters
	staged                                      []staged
}

// sort leaves out what is not the view's: namespaces inside it, the store's own records, and keys of
// other programs.
func (c *checker) sort(keys []string) (s sorted) {
	prefix := c.NS.String()
	s.orders, s.staged, s.throttles = c.ordersAmong(keys), c.stagedAmong(keys), c.throttlesAmong(keys)
	for _, raw := range keys {
		if strings.HasPrefix(raw[len(prefix):], "~") {
			continue
		}
		key, err := recordkey.Parse(raw)
		_, declared := c.Schema.Types[key.Type()]
		switch {
		case err != nil:
			if likeOurs(raw[len(prefix):], c.Schema) {
				s.unparsable = append(s.unparsable, raw)
			}
		case !declared && key.Kind() == recordkey.KindPRK:
			s.strangers = append(s.strangers, key)
		case !declared:
		case key.Kind() == recordkey.KindPRK:
			s.entries = append(s.entries, key)
		case key.Kind() == recordkey.KindSRK:
			s.srks = append(s.srks, key)
		case key.Kind() == recordkey.KindTertiary:
			s.tertiary = append(s.tertiary, key)
		case key.Kind() == recordkey.KindIndex:
			s.indexes = append(s.indexes, key)
		}
	}
	return s
}

// likeOurs says whether a key that does not parse begins TYPE/FIELD: with a declared type, escaped as
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

// originalEscape is how the original escapes crumbs.
var originalEscape = strings.NewReplacer("+", "++", " ", "+_", "/", "+,", ":", "+.")

func (c *checker) lookAtUnparsable(ctx context.Context, keys []string) (findings, error) {
	kinds, err := store.Kinds(ctx, c.Engine, keys)
	var fs findings
	for i, kind := range kinds {
		if kind == store.KindNone {
			continue
		}
		_, err := recordkey.Parse(keys[i])
		var syntax *recordkey.SyntaxError
		reason := ""
		if errors.As(err, &syntax) {
			reason = syntax.Reason
		}
		if kind == "hash" {
			reason += "; if an entry is in it, 'userdb dump' shows it, 'userdb create' makes it anew, and then 'userdb remove' takes this record away"
		}
		key := strings.TrimPrefix(keys[i], c.NS.String())
		fs.addRaw(i, codeKeyUnparsable, key, "", "not a key that this store can have written, and not found by it: %s", reason)
	}
	return fs, err
}

// lookAtStrangers looks for entries of types that the schema does not declare.
func (c *checker) lookAtStrangers(ctx context.Context, keys []recordkey.Key) (findings, error) {
	reads := make([]store.FacetRead, len(keys))
	for i, k := range keys {
		reads[i] = store.FacetRead{Key: k.String(), Field: store.FieldType}
	}
	isas, err := store.Facets(ctx, c.Engine, reads)
	var fs findings
	for i, isa := range isas {
		if isa.Wire != "" {
			fs.add(i, codeSchemaMissing, keys[i], "", "the schema declares no type %s; nothing that belongs to this entry was checked", records.Quoted(keys[i].Type()))
		}
	}
	return fs, err
}
