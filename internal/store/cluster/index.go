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

// A membership is an entry's membership in an index (I5).
type membership struct {
	key    string
	member string
	ranked bool        // in an ordered index
	facet  store.Facet // what the entry holds if it is a member
	in     bool        // as it was last brought about
	stays  bool        // the entry does not tell whether it is right
}

// membershipsOf are the memberships that a change decides.
func membershipsOf(c store.Change) []membership {
	prk := c.Key.In(recordkey.Namespace{}).String()
	var ps []membership
	for i, keys := range [][]recordkey.Key{c.Unindex, c.Index} {
		for _, k := range keys {
			ps = append(ps, membership{key: k.String(), member: prk, facet: store.Facet{Field: k.Field(), Wire: k.Value()}, in: i == 1})
		}
	}
	for i, ranks := range [][]store.Ranked{c.Unrank, c.Rank} {
		for _, r := range ranks {
			ps = append(ps, membership{
				key: r.Key.String(), member: r.Member, ranked: true,
				facet: r.Facet, in: i == 1, stays: r.Facet.Field == "",
			})
		}
	}
	return ps
}

// align brings memberships about, and looks again at what they must be, until both agree. Of several callers that do this
// for one membership, the last to look is right.
func (e *Engine) align(ctx context.Context, ps []membership, look func() (func(membership) bool, error)) error {
	for len(ps) > 0 {
		err := e.pipeline(ctx, len(ps), func(p redis.Pipeliner, i int) { ps[i].queue(ctx, p) })
		if err != nil {
			return err
		}
		must, err := look()
		if err != nil {
			return err
		}
		var wrong []membership
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

func (p membership) queue(ctx context.Context, pipe redis.Pipeliner) {
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
func (e *Engine) alignFacets(ctx context.Context, entry recordkey.Key, ps []membership) error {
	return e.align(ctx, ps, func() (func(membership) bool, error) {
		r := store.Record{Key: entry}
		err := e.read(ctx, func() (err error) {
			r.Fields, err = e.client.HGetAll(ctx, entry.String()).Result()
			if err == nil && r.Fields == nil {
				err = redisx.IsList.Check(nil)
			}
			return err
		})
		return func(p membership) bool {
			wire, has := r.Fields[p.facet.Field]
			return r.Live() && has && wire == p.facet.Wire
		}, err
	})
}

// alignMembers brings the index members of an entry in line with the members of its indexed set,
// which were put in or taken out. It reports whether the entry was live at the last look.
func (e *Engine) alignMembers(ctx context.Context, set recordkey.Key, members []string, in bool) (live bool, err error) {
	entry := set.PRK()
	prk := entry.In(recordkey.Namespace{}).String()
	at := map[string]string{} // index set → member
	var ps []membership
	for _, m := range members {
		index, err := recordkey.Index(set.Type(), set.Name(), m)
		if err != nil {
			continue // no index set can have that name
		}
		key := index.In(set.Namespace()).String()
		at[key] = m
		ps = append(ps, membership{key: key, member: prk, in: in})
	}
	if len(ps) == 0 {
		return e.live(ctx, entry)
	}
	err = e.align(ctx, ps, func() (func(membership) bool, error) {
		var has map[string]bool
		err := parallel(2, func(i int) (err error) {
			if i == 0 {
				live, err = e.live(ctx, entry)
			} else {
				has, err = e.has(ctx, set.String(), slices.Collect(maps.Values(at)))
			}
			return err
		})
		return func(p membership) bool { return live && has[at[p.key]] }, err
	})
	return live, err
}

// has returns which of some members a set has.
func (e *Engine) has(ctx context.Context, set string, members []string) (map[string]bool, error) {
	slices.Sort(members)
	args := make([]any, len(members))
	for i, m := range members {
		args[i] = m
	}
	has := map[string]bool{}
	err := e.read(ctx, func() error {
		are, err := e.client.SMIsMember(ctx, set, args...).Result()
		if err = cmp.Or(err, redisx.AsMany(len(are), len(members))); err != nil {
			return err
		}
		for i, is := range are {
			has[members[i]] = is
		}
		return nil
	})
	return has, err
}

// live reports whether there is such an entry.
func (e *Engine) live(ctx context.Context, entry recordkey.Key) (live bool, err error) {
	err = e.read(ctx, func() error {
		isa, err := e.client.HGet(ctx, entry.String(), store.FieldType).Result()
		if live = isa != ""; errors.Is(err, redis.Nil) {
			return nil
		}
		return err
	})
	return live, err
}

// rank takes or frees a place in an ordered index, and looks at the entry after that, until both agree.
func (e *Engine) rank(ctx context.Context, r store.Rank) error {
	if r.Free {
		return e.free(ctx, r.Entry, r.At)
	}
	at := membership{key: r.At.Key.String(), member: r.At.Member, ranked: true, facet: r.At.Facet}
	return misplaced(r.At, e.alignFacets(ctx, r.Entry, []membership{at}))
}

// misplaced is the error of a place in what is no ordered index.
func misplaced(p store.Ranked, err error) error {
	if redisx.WrongType(err) {
		return &store.CorruptError{Key: p.Key.String(), Reason: "not a sorted set (WRONGTYPE)"}
	}
	return err
}

// free frees a place. If the entry's value changes meanwhile, it takes the place again: then it may be the entry's own.
func (e *Engine) free(ctx context.Context, entry recordkey.Key, p store.Ranked) error {
	at := membership{key: p.Key.String(), member: p.Member, ranked: true}
	other, err := e.hasOther(ctx, entry, p.Facet)
	if err != nil || other {
		return err
	}
	return misplaced(p, e.align(ctx, []membership{at}, func() (func(membership) bool, error) {
		other, err := e.hasOther(ctx, entry, p.Facet)
		return func(membership) bool { return other }, err
	}))
}

// hasOther reports whether an entry is live and has another value than this one.
func (e *Engine) hasOther(ctx context.Context, entry recordkey.Key, f store.Facet) (bool, error) {
	if !entry.IsValid() {
		return false, nil
	}
	var other bool
	err := e.read(ctx, func() error {
		head, err := redisx.List(e.client.Do(ctx, "hmget", entry.String(), store.FieldType, f.Field), 2)
		wire, has := "", false
		if err == nil && redisx.Text(head, 0) != "" {
			wire, has = head[1].(string)
		}
		other = has && wire != f.Wire
		return err
	})
	return other, err
}
