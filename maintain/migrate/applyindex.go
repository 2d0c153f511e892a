package migrate

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
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
	for cursor := ""; ; {
		members, next, err := c.Engine.Scan(ctx, store.Scan{Index: set, Cursor: cursor, Count: memberBatch})
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
	survey, err := c.Engine.Survey(ctx)
	if err != nil {
		return err
	}
	about := survey.Records
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(undoers)
	done := int64(0)
	err = eachKey(gctx, c, c.NS.String()+recordkey.Escape(p.t.Name)+"/", func(keys []string) error {
		group.Go(func() error { return p.undoAmong(gctx, c, keys) })
		if done = min(done+records.ScanBatch, about); progress != nil {
			progress(done, about)
		}
		return gctx.Err()
	})
	return firstError(group.Wait(), err)
}

// memberBatch is how many members of a set are read at a time, about.
const memberBatch = 500

// undoers is how many batches of keys are gone through at once.
const undoers = 3

// undoAmong removes what is undone among some keys of the type.
func (p *step) undoAmong(ctx context.Context, c *view.View, keys []string) error {
	var srks []recordkey.Key
	for _, raw := range keys {
		k, err := recordkey.Parse(raw)
		switch {
		case err != nil:
		case k.Kind() == recordkey.KindSRK:
			srks = append(srks, k)
		case k.Kind() == recordkey.KindIndex && slices.Contains(p.undone.indexes, k.Field()):
			if _, err := c.Engine.Mend(ctx, store.Remove{Key: raw}); err != nil {
				return err
			}
		}
	}
	for some := range slices.Chunk(srks, records.LookBatch) {
		if err := p.undoSRKs(ctx, c, some); err != nil {
			return err
		}
	}
	return nil
}

// undoSRKs removes, of some SRKs, those of fields that are no keys any more, and those that by the new
// schema name an entry without the value.
func (p *step) undoSRKs(ctx context.Context, c *view.View, srks []recordkey.Key) error {
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
		case slices.Contains(p.undone.srks, srk.Field()):
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
