package cluster

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// A place is an entry's membership in an index (I5).
type place struct {
	key    string
	member string
	ranked bool        // in an ordered index
	facet  store.Facet // what the entry holds if it is a member
	in     bool        // as it was last brought about
	stays  bool        // nobody can say from the entry whether it is right
}

// placesOf are the memberships that a change decides.
func placesOf(c store.Change) []place {
	prk := c.Key.In(recordkey.Namespace{}).String()
	var ps []place
	for i, keys := range [][]recordkey.Key{c.Unindex, c.Index} {
		for _, k := range keys {
			ps = append(ps, place{key: k.String(), member: prk, facet: store.Facet{Field: k.Field(), Wire: k.Value()}, in: i == 1})
		}
	}
	for i, ranks := range [][]store.Ranked{c.Unrank, c.Rank} {
		for _, r := range ranks {
			ps = append(ps, place{
				key: r.Key.String(), member: r.Member, ranked: true,
				facet: r.Facet, in: i == 1, stays: r.Facet.Field == "",
			})
		}
	}
	return ps
}

// align brings memberships about, and looks again whether they are what they must be, until that is
// so. Of several that do this for one membership, the last to look is right.
func (e *Engine) align(ctx context.Context, ps []place, look func() (func(place) bool, error)) error {
	for len(ps) > 0 {
		err := e.pipeline(ctx, len(ps), func(p redis.Pipeliner, i int) { ps[i].queue(ctx, p) })
		if err != nil {
			return err
		}
		must, err := look()
		if err != nil {
			return err
		}
		var wrong []place
		for _, p := range ps {
			if is := must(p); is != p.in && !p.stays {
				p.in = is
				wrong = append(wrong, p)
			}
		}
		ps = wrong
	}
	return nil
}

func (p place) queue(ctx context.Context, pipe redis.Pipeliner) {
	switch {
	case p.ranked && p.in:
		pipe.ZAdd(ctx, p.key, redis.Z{Member: p.member})
	case p.ranked:
		pipe.ZRem(ctx, p.key, p.member)
	case p.in:
		pipe.SAdd(ctx, p.key, p.member)
	default:
		pipe.SRem(ctx, p.key, p.member)
	}
}

// alignFacets brings memberships in line with an entry's facets.
func (e *Engine) alignFacets(ctx context.Context, entry recordkey.Key, ps []place) error {
	return e.align(ctx, ps, func() (func(place) bool, error) {
		r := store.Record{Key: entry}
		_, err := e.again(ctx, func() (_ any, err error) {
			r.Fields, err = e.client.HGetAll(ctx, entry.String()).Result()
			if redisx.WrongType(err) {
				return nil, nil
			}
			if err == nil && r.Fields == nil {
				err = redisx.IsList.Check(nil)
			}
			return nil, err
		})
		return func(p place) bool {
			wire, has := r.Fields[p.facet.Field]
			return r.Live() && has && wire == p.facet.Wire
		}, redisx.Harmless(err)
	})
}

// alignMembers brings the index members of an entry in line with the members of its indexed set,
// which were put in or taken out. It says whether the entry was live at the last look.
func (e *Engine) alignMembers(ctx context.Context, set recordkey.Key, members []string, in bool) (live bool, err error) {
	entry := set.PRK()
	prk := entry.In(recordkey.Namespace{}).String()
	at := map[string]string{} // index set → member
	var ps []place
	for _, m := range members {
		index, err := recordkey.Index(set.Type(), set.Name(), m)
		if err != nil {
			continue // no index set can have that name
		}
		key := index.In(set.Namespace()).String()
		at[key] = m
		ps = append(ps, place{key: key, member: prk, in: in})
	}
	if len(ps) == 0 {
		return e.live(ctx, entry)
	}
	err = e.align(ctx, ps, func() (func(place) bool, error) {
		var has map[string]bool
		err := together(2, func(i int) (err error) {
			if i == 0 {
				live, err = e.live(ctx, entry)
			} else {
				has, err = e.has(ctx, set.String(), slices.Collect(maps.Values(at)))
			}
			return err
		})
		return func(p place) bool { return live && has[at[p.key]] }, err
	})
	return live, err
}

// has says which members a set has.
func (e *Engine) has(ctx context.Context, set string, members []string) (map[string]bool, error) {
	slices.Sort(members)
	args := make([]any, len(members))
	for i, m := range members {
		args[i] = m
	}
	has := map[string]bool{}
	_, err := e.again(ctx, func() (any, error) {
		are, err := e.client.SMIsMember(ctx, set, args...).Result()
		if redisx.WrongType(err) {
			return nil, nil
		}
		if err = cmp.Or(err, redisx.AsMany(len(are), len(members))); err != nil {
			return nil, err
		}
		for i, is := range are {
			has[members[i]] = is
		}
		return nil, nil
	})
	return has, redisx.Harmless(err)
}

func (e *Engine) live(ctx context.Context, entry recordkey.Key) (live bool, err error) {
	_, err = e.again(ctx, func() (_ any, err error) {
		isa, err := e.client.HGet(ctx, entry.String(), store.FieldType).Result()
		live = isa != ""
		if redisx.WrongType(err) || errors.Is(err, redis.Nil) {
			return nil, nil
		}
		return nil, err
	})
	return live, redisx.Harmless(err)
}
