package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// rewriters is how many entries are rewritten at once.
const rewriters = 16

// Apply makes the change. Where values collide, nothing is changed: that is an ErrCollision. It may be
// stopped at any moment; the same Plan and Apply go on where it was. progress is told how many records
// were gone through of how many about, anew for each pass; nil: nobody is.
//
// From its first to its last step nobody else can write entries of a type that changes: ErrSchemaMismatch. Those who look for entries find them as by the old schema until all were brought
// over, then as by the new one; by the new one they find each as soon as it was brought over. The stored
// fingerprint changes last.
func (ch Change) Apply(ctx context.Context, progress func(done, about int64)) error {
	for _, tc := range ch.Types {
		if err := tc.refused(); err != nil {
			return err
		}
	}
	c := view.Of(ch.db)
	for i := range ch.Types {
		p, err := stepOf(ctx, c, ch.Types[i].Type)
		if err != nil {
			return err
		}
		if err := p.apply(ctx, c, progress); err != nil {
			return fmt.Errorf("changing the schema of type %s: %w", records.Quoted(ch.Types[i].Type), err)
		}
	}
	return nil
}

func (tc TypeChange) refused() error {
	if n := len(tc.Collisions); n > 0 {
		return fmt.Errorf("%w: type %s: %s", ErrCollision, records.Quoted(tc.Type), tc.Collisions[0].Reason)
	}
	return nil
}

func (p *step) apply(ctx context.Context, c *view.View, progress func(done, about int64)) error {
	last := []store.Facet{
		{Field: store.FieldFingerprint, Wire: p.t.Schema.Fingerprint()},
		{Field: store.FieldSchema, Wire: storedForm(p.t.Schema)},
	}
	if !p.moves() {
		return p.restate(ctx, c, p.fields[store.FieldFingerprint], last)
	}
	if err := p.begin(ctx, c, progress); err != nil {
		return err
	}
	for _, pass := range []func(context.Context, *view.View, func(done, about int64)) error{p.build, p.tidy, p.removeObsolete} {
		bulk, end := c.Engine.Bulk(ctx)
		if err := cmp.Or(pass(bulk, c, progress), end(context.WithoutCancel(ctx))); err != nil {
			return err
		}
	}
	return p.restate(ctx, c, p.under().Fingerprint, last)
}

func (p *step) restate(ctx context.Context, c *view.View, seen string, to []store.Facet) error {
	is, err := c.Engine.Mend(ctx, store.Restate{Guard: p.t.Guard(), Seen: seen, State: to})
	if err == nil && !is {
		err = store.ErrConflict
	}
	return err
}

// begin stops all other writers, and then makes sure that nothing collides. If something does, and
// nothing was changed, they may go on.
func (p *step) begin(ctx context.Context, c *view.View, progress func(done, about int64)) error {
	under := p.under().Fingerprint
	if !p.changing {
		from := p.fields[store.FieldSchema]
		if !p.stored {
			from = storedForm(p.from)
		}
		err := p.restate(ctx, c, p.fields[store.FieldFingerprint], []store.Facet{
			{Field: store.FieldFingerprint, Wire: under}, {Field: store.FieldSchema, Wire: from}, {Field: records.FieldNext, Wire: storedForm(p.t.Schema)},
		})
		if err != nil {
			return err
		}
	}
	if _, err := c.Engine.Mend(ctx, store.AwaitSchema{}); err != nil {
		return err
	}
	var tc TypeChange
	if err := p.survey(ctx, c, &tc, progress); err != nil {
		return err
	}
	tc.Type = p.t.Name
	collision := tc.refused()
	if collision == nil || p.changing {
		return collision
	}
	var before []store.Facet
	if p.stored {
		before = []store.Facet{
			{Field: store.FieldFingerprint, Wire: p.fields[store.FieldFingerprint]}, {Field: store.FieldSchema, Wire: p.fields[store.FieldSchema]},
		}
	}
	return errors.Join(collision, p.restate(ctx, c, under, before))
}

// build brings all entries over; what they were found by before stays.
func (p *step) build(ctx context.Context, c *view.View, progress func(done, about int64)) error {
	for _, field := range p.ordered {
		if err := discardOrder(ctx, c, p.t, field); err != nil {
			return err
		}
	}
	var late lateEntries
	err := p.eachLive(ctx, c, progress, func(ctx context.Context, t *change.Type, prk recordkey.Key) error {
		return late.postpone(prk, p.reshape(ctx, c, t, prk))
	})
	if err != nil {
		return err
	}
	return late.retry(func(prk recordkey.Key) error { return p.reshape(ctx, c, p.t.Under(p.under()), prk) })
}

func (p *step) reshape(ctx context.Context, c *view.View, t *change.Type, prk recordkey.Key) error {
	facets, err := records.Rewrite(ctx, c, t, prk, func(r store.Record) (store.Change, bool, error) {
		held, err := heldBy(ctx, c, r, t.Secondaries(p.facets(t, r)))
		if err != nil {
			return store.Change{}, false, err
		}
		change, due := t.Reshape(r, p.renames, held)
		return change, due && r.Live(), nil
	})
	if err != nil || facets == nil {
		return err
	}
	return p.index(ctx, c, t, store.Record{Key: prk, Fields: facets})
}

// tidy removes from the entries what they were found by before.
func (p *step) tidy(ctx context.Context, c *view.View, progress func(done, about int64)) error {
	return p.eachLive(ctx, c, progress, func(ctx context.Context, t *change.Type, prk recordkey.Key) error {
		_, err := records.Rewrite(ctx, c, t, prk, func(r store.Record) (store.Change, bool, error) {
			change, due := t.Tidy(r)
			return change, due && r.Live(), nil
		})
		return err
	})
}

// eachLive calls f for each live entry, several at once, with the type under the guard of the change.
func (p *step) eachLive(ctx context.Context, c *view.View, progress func(done, about int64), f func(context.Context, *change.Type, recordkey.Key) error) error {
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(rewriters)
	t := p.t.Under(p.under())
	err := records.EachEntry(gctx, c, []string{t.Name}, progress, func(_ *change.Type, r store.Record) error {
		if r.Live() {
			group.Go(func() error { return f(gctx, t, r.Key) })
		}
		return gctx.Err()
	})
	return cmp.Or(group.Wait(), err)
}

// heldBy tells which SRKs name a record.
func heldBy(ctx context.Context, c *view.View, r store.Record, srks []recordkey.Key) (func(recordkey.Key) bool, error) {
	srvs, err := store.Texts(ctx, c.Engine, records.Texts(srks))
	if err != nil {
		return nil, err
	}
	held := map[recordkey.Key]bool{}
	for i, srk := range srks {
		held[srk] = srvs[i].Is && store.Owner(srvs[i].Wire) == records.Relative(r.Key)
	}
	return func(k recordkey.Key) bool { return held[k] }, nil
}

// lateEntries are entries that get a value which another one has by the old schema and not by the new one:
// they can be brought over only after that one was.
type lateEntries struct {
	mu   sync.Mutex
	prks []recordkey.Key
	why  error // the last duplicate
}

// postpone notes an entry that met a duplicate, and passes other errors on.
func (l *lateEntries) postpone(prk recordkey.Key, err error) error {
	if !errors.Is(err, store.ErrDuplicate) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prks, l.why = append(l.prks, prk), err
	return nil
}

// retry does what was postponed, one after another, until nothing is left or nothing more can be done.
func (l *lateEntries) retry(do func(recordkey.Key) error) error {
	for len(l.prks) > 0 {
		waiting := l.prks
		l.prks = nil
		for _, prk := range waiting {
			if err := l.postpone(prk, do(prk)); err != nil {
				return err
			}
		}
		if len(l.prks) == len(waiting) {
			return l.why
		}
	}
	return nil
}

// index puts an entry that was brought over into the indexes that are new.
func (p *step) index(ctx context.Context, c *view.View, t *change.Type, r store.Record) error {
	for _, name := range p.indexed {
		var err error
		if wire, has := r.Fields[name]; slices.Contains(t.Indexed, name) && has {
			err = p.join(ctx, c, t, name, wire, store.Align{Entry: r.Key, Facet: store.Facet{Field: name, Wire: wire}})
		} else if t.Schema.Tertiary[name].Indexed {
			err = p.indexMembers(ctx, c, t, r.Key, name)
		}
		if err != nil {
			return err
		}
	}
	return p.rank(ctx, c, t, r)
}

func (p *step) join(ctx context.Context, c *view.View, t *change.Type, name, value string, m store.Align) error {
	index, err := recordkey.Index(t.Name, name, value)
	if err != nil {
		return nil // no index can have it: check says so
	}
	m.Index, m.Member = index.In(c.NS), records.Relative(m.Entry)
	_, err = c.Engine.Mend(ctx, m)
	return err
}

// indexMembers puts an entry into the index sets of all members of one of its sets.
func (p *step) indexMembers(ctx context.Context, c *view.View, t *change.Type, prk recordkey.Key, name string) error {
	set, err := prk.Tertiary(name)
	if err != nil {
		return err
	}
	for members, err := range records.Scan(ctx, c, store.Scan{Index: set, Count: memberBatch}) {
		if store.IsEntryError(err) {
			return nil // another Redis type: check says so
		}
		if err != nil {
			return err
		}
		for _, m := range members {
			if err := p.join(ctx, c, t, name, m, store.Align{Entry: prk, Set: set, Value: m}); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeObsolete removes the SRKs and the index sets that the old schema had and the new one has not.
func (p *step) removeObsolete(ctx context.Context, c *view.View, progress func(done, about int64)) error {
	for _, field := range p.obsolete.orders {
		if err := discardOrder(ctx, c, p.t, field); err != nil {
			return err
		}
	}
	about, err := store.Records(ctx, c.Engine)
	if err != nil {
		return err
	}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(removers)
	done := int64(0)
	err = eachKey(gctx, c, c.NS.String()+recordkey.Escape(p.t.Name)+"/", func(keys []string) error {
		group.Go(func() error { return p.removeAmong(gctx, c, keys) })
		if done = min(done+records.ScanBatch, about); progress != nil {
			progress(done, about)
		}
		return gctx.Err()
	})
	return cmp.Or(group.Wait(), err)
}

// memberBatch is how many members of a set are read at a time, about.
const memberBatch = 500

// removers is how many batches of keys are gone through at once.
const removers = 3

// removeAmong removes what is obsolete among some keys of the type.
func (p *step) removeAmong(ctx context.Context, c *view.View, keys []string) error {
	var srks []recordkey.Key
	for _, raw := range keys {
		k, err := recordkey.Parse(raw)
		switch {
		case err != nil:
		case k.Kind() == recordkey.KindSRK:
			srks = append(srks, k)
		case k.Kind() == recordkey.KindIndex && slices.Contains(p.obsolete.indexes, k.Field()):
			if _, err := c.Engine.Mend(ctx, store.Remove{Key: raw}); err != nil {
				return err
			}
		}
	}
	for some := range slices.Chunk(srks, records.LookBatch) {
		if err := p.removeSRKs(ctx, c, some); err != nil {
			return err
		}
	}
	return nil
}

// removeSRKs removes, of some SRKs, those of fields that are no keys any more, and those that by the new
// schema name an entry without the value.
func (p *step) removeSRKs(ctx context.Context, c *view.View, srks []recordkey.Key) error {
	srvs, err := store.Texts(ctx, c.Engine, records.Texts(srks))
	if err != nil {
		return err
	}
	var named []store.Remove
	var owners []string
	for i, srk := range srks {
		owner := c.NS.String() + store.Owner(srvs[i].Wire)
		switch key, err := recordkey.Parse(owner); {
		case !srvs[i].Is:
		case slices.Contains(p.obsolete.srks, srk.Field()):
			if _, err := c.Engine.Mend(ctx, store.Remove{Key: srk.String(), Seen: srvs[i]}); err != nil {
				return err
			}
		case err == nil && key.Kind() == recordkey.KindPRK && key.Type() == p.t.Name && slices.Contains(p.t.Secondary, srk.Field()):
			named = append(named, store.Remove{Key: srk.String(), Seen: srvs[i], Owner: owner, Field: srk.Field(), Value: srk.Value()})
			owners = append(owners, owner)
		}
	}
	hashes, err := store.Hashes(ctx, c.Engine, owners)
	for i, h := range hashes {
		facet, has := h.Fields[named[i].Field]
		if h.Other || records.Gone(h.Fields) || has && p.t.Schema.Canonical(facet) == named[i].Value {
			continue
		}
		if _, err := c.Engine.Mend(ctx, named[i]); err != nil {
			return err
		}
	}
	return err
}

// rank puts an entry at its places in the ordered indexes that are new.
func (p *step) rank(ctx context.Context, c *view.View, t *change.Type, r store.Record) error {
	if len(p.ordered) == 0 {
		return nil
	}
	places, _ := t.Places(r) // check tells of entries that have none
	for _, place := range places {
		if !slices.Contains(p.ordered, place.Facet.Field) {
			continue
		}
		if _, err := c.Engine.Mend(ctx, store.Rank{Entry: r.Key, At: place}); err != nil {
			return err
		}
	}
	return nil
}

// discardOrder removes the ordered index of a field.
func discardOrder(ctx context.Context, c *view.View, t *change.Type, field string) error {
	key, err := t.OrderKey(field)
	if err != nil {
		return err
	}
	_, err = c.Engine.Mend(ctx, store.Remove{Key: key.String()})
	return err
}
