package maintain

import (
	"context"
	"slices"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
)

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
	m.Index, m.Member = index.In(c.NS), relative(m.Entry)
	_, err = c.Engine.Mend(ctx, m)
	return err
}

// indexMembers puts an entry into the index sets of all members of one of its sets.
func (p *step) indexMembers(ctx context.Context, c *view.View, t *change.Type, prk recordkey.Key, name string) error {
	set, err := prk.Tertiary(name)
	if err != nil {
		return err
	}
	for cursor := ""; ; {
		members, next, err := c.Engine.ScanIndex(ctx, set, cursor, memberBatch)
		if err != nil {
			if store.IsEntryError(err) {
				return nil // another Redis type: check says so
			}
			return err
		}
		for _, m := range members {
			if err := p.join(ctx, c, t, name, m, store.Align{Entry: prk, Set: set, Value: m}); err != nil {
				return err
			}
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}

// undo removes the SRKs and the index sets that the old schema had and the new one has not.
func (p *step) undo(ctx context.Context, c *view.View, progress func(done, about int64)) error {
	for _, field := range p.undone.orders {
		if err := discardOrder(ctx, c, p.t, field); err != nil {
			return err
		}
	}
	u := &checker{View: c, whole: true}
	u.emit = func([]Problem, error) error { return nil }
	pattern := recordkey.Glob(c.NS.String()+recordkey.Escape(p.t.Name)) + "/*"
	return u.stream(ctx, pattern, progress, func(u *checker, ctx context.Context, keys []string) error {
		s := u.sort(keys)
		if err := p.undoSRKs(ctx, u, s.srks); err != nil {
			return err
		}
		for _, k := range s.indexes {
			if k.Type() != p.t.Name || !slices.Contains(p.undone.indexes, k.Field()) {
				continue
			}
			if _, err := u.Engine.Mend(ctx, store.Remove{Key: k.String()}); err != nil {
				return err
			}
		}
		return nil
	})
}

// undoSRKs removes, of some SRKs, those of fields that are no keys any more, and those that by the new
// schema name an entry without the value.
func (p *step) undoSRKs(ctx context.Context, u *checker, srks []recordkey.Key) error {
	srks = slices.DeleteFunc(srks, func(k recordkey.Key) bool { return k.Type() != p.t.Name })
	for some := range slices.Chunk(srks, lookBatch) {
		if err := p.sweepDropped(ctx, u, some); err != nil {
			return err
		}
		found, err := u.lookAtSRKs(ctx, some)
		if err != nil {
			return err
		}
		for _, f := range found {
			if f.Code != codeSRKStale || !slices.Contains(p.t.Secondary, some[f.at].Field()) {
				continue
			}
			if err := u.mendSRK(ctx, some[f.at], findings{f}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *step) sweepDropped(ctx context.Context, u *checker, srks []recordkey.Key) error {
	dropped := slices.DeleteFunc(slices.Clone(srks), func(k recordkey.Key) bool { return !slices.Contains(p.undone.srks, k.Field()) })
	srvs, err := store.Texts(ctx, u.Engine, texts(dropped))
	for i, srv := range srvs {
		if !srv.Is {
			continue
		}
		if _, err := u.Engine.Mend(ctx, store.Remove{Key: dropped[i].String(), Seen: store.Text{Wire: srv.Wire, Is: true}}); err != nil {
			return err
		}
	}
	return err
}
