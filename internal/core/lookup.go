package core

import (
	"cmp"
	"context"
	"slices"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// A Sought is a resolved hint: its type, and where the store shall look.
type Sought struct {
	Type   *Type
	Lookup store.Lookup
	Target hints.Target
}

// Resolve makes a lookup of a hint. typ "" is type-free.
func (c *Core) Resolve(h hints.Hint, typ string) (Sought, error) {
	target, err := h.Resolve(c.Schema, typ)
	if err != nil {
		return Sought{}, err
	}
	t, err := c.Type(target.Type)
	if err != nil {
		return Sought{}, err
	}
	return Sought{Type: t, Lookup: t.lookup(target), Target: target}, nil
}

// lookup puts a target into the view's namespace. A search under any field is narrowed to the fields
// where the value can be, if the schema's fields are orthogonal.
func (t *Type) lookup(target hints.Target) store.Lookup {
	if len(target.Keys) == 1 && target.Keys[0].Kind() == recordkey.KindPRK {
		return store.Lookup{PRK: target.Keys[0].In(t.ns)}
	}
	l := store.Lookup{All: target.All}
	var where []string
	if target.Pattern != "" {
		where = t.Rules.Candidates(target.Value)
	}
	for _, k := range target.Keys {
		if where == nil || slices.Contains(where, k.Field()) {
			l.SRKs = append(l.SRKs, k.In(t.ns))
		}
	}
	return l
}

// Find reads the entry that a hint points at.
func (c *Core) Find(ctx context.Context, h hints.Hint, typ string) (*Type, store.Record, error) {
	s, err := c.Resolve(h, typ)
	if err != nil {
		return nil, store.Record{}, err
	}
	r, err := c.Read(ctx, s.Lookup)
	return s.Type, r, err
}

// FindCached is Find for a reader whom an entry as it was a moment ago does no harm.
func (c *Core) FindCached(ctx context.Context, h hints.Hint, typ string) (*Type, store.Record, error) {
	s, err := c.Resolve(h, typ)
	if err != nil {
		return nil, store.Record{}, err
	}
	cacher, ok := c.Engine.(store.Cacher)
	if !ok || !s.Lookup.PRK.IsValid() {
		r, err := c.Read(ctx, s.Lookup)
		return s.Type, r, err
	}
	c.Spare()
	found, err := cacher.FindCached(ctx, s.Lookup.PRK)
	return s.Type, found.Record, cmp.Or(err, found.Err)
}

// Read answers one lookup.
func (c *Core) Read(ctx context.Context, l store.Lookup) (store.Record, error) {
	if !l.PRK.IsValid() && len(l.SRKs) == 0 {
		return store.Record{}, store.ErrNotFound
	}
	c.Spare()
	found, err := c.Engine.Find(ctx, []store.Lookup{l})
	if err != nil {
		return store.Record{}, err
	}
	return found[0].Record, found[0].Err
}
