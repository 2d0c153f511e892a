package cluster

import (
	"cmp"
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// A membership describes the position of an entry in one index (I5).
type membership struct {
	key    string
	member string
	ranked bool        // in an ordered index
	facet  store.Facet // makes the entry a member; without a Field, the change decides
	unset  bool        // the lack of facet.Field makes the entry a member
	in     bool        // the entry was last written as a member
}

// membershipsOf returns the memberships that a change adds or removes.
func membershipsOf(c store.Change) []membership {
	prk := c.Key.In(recordkey.Namespace{}).String()
	var ms []membership
	add := func(keys []recordkey.Key, ranks []store.Ranked, in bool) {
		for _, k := range keys {
			ms = append(ms, membership{key: k.String(), member: prk, facet: store.Facet{Field: k.Field(), Wire: k.Value()}, in: in})
		}
		for _, r := range ranks {
			ms = append(ms, membership{r.Key.String(), r.Member, true, r.Facet, r.Unset, in})
		}
	}
	add(c.Unindex, c.Unrank, false)
	add(c.Index, c.Rank, true)
	return ms
}

// maxMemberships limits the memberships that are written in one pipeline.
const maxMemberships = 1000

// align writes memberships, calls look to find out which of them the entry should have now, and
// repeats both until the result agrees with the written memberships. If several callers align the
// same membership, the last one to look is right.
func (e *Engine) align(ctx context.Context, ms []membership, look func() (due func(membership) bool, err error)) error {
	for len(ms) > 0 {
		for some := range slices.Chunk(ms, maxMemberships) {
			if err := e.writeMemberships(ctx, some); err != nil {
				return redisx.IgnoreUnknownOutcome(err)
			}
		}
		due, err := look()
		if err != nil {
			return err
		}
		var wrong []membership
		for _, m := range ms {
			if in := due(m); in != m.in {
				m.in = in
				wrong = append(wrong, m)
			}
		}
		ms = wrong
	}
	return nil
}

// alignAfterLook does what align does after a change that may not have been made. It calls look
// before it writes anything, so that memberships that are right stay as they are.
func (e *Engine) alignAfterLook(ctx context.Context, ms []membership, look func() (due func(membership) bool, err error)) error {
	due, err := look()
	if err != nil {
		return err
	}
	for i := range ms {
		ms[i].in = due(ms[i])
	}
	return e.align(ctx, ms, look)
}

// writeMemberships writes memberships in one pipeline.
func (e *Engine) writeMemberships(ctx context.Context, ms []membership) error {
	_, _, err := sendUntilAnswered(ctx, e, func() (any, error) {
		pipe := e.client.Pipeline()
		for _, m := range ms {
			m.queue(ctx, pipe)
		}
		_, err := pipe.Exec(ctx)
		return nil, err
	})
	return err
}

// dueTo reports whether the values of a live entry make it a member. An entry is in an index set
// for each value of the field, but in an ordered index only for the first.
func (m membership) dueTo(r store.Record) bool {
	if !m.ranked {
		return r.HasWritten(m.facet.Field, m.facet.Wire)
	}
	wire, has := r.Fields[m.facet.Field]
	return has != m.unset && wire == m.facet.Wire
}

// queue queues the command that writes the membership.
func (m membership) queue(ctx context.Context, pipe redis.Pipeliner) {
	switch {
	case m.ranked && m.in:
		pipe.ZAdd(ctx, m.key, redis.Z{Member: m.member})
	case m.ranked:
		pipe.ZRem(ctx, m.key, m.member)
	case m.in:
		pipe.SAdd(ctx, m.key, m.member)
	default:
		pipe.SRem(ctx, m.key, m.member)
	}
}

// alignFacets brings memberships in line with an entry's facets.
func (e *Engine) alignFacets(ctx context.Context, entry recordkey.Key, ms []membership) error {
	return e.align(ctx, ms, e.lookAtFacets(ctx, entry))
}

// lookAtFacets returns a function that reads an entry and returns which memberships it should have.
func (e *Engine) lookAtFacets(ctx context.Context, entry recordkey.Key) func() (due func(membership) bool, err error) {
	return func() (func(membership) bool, error) {
		now, err := e.ReadRaw(ctx, []store.RawRead{{Key: entry.String(), As: store.RawHash}})
		if err != nil {
			return nil, err
		}
		r := store.Record{Key: entry, Fields: now[0].Fields}
		return func(m membership) bool {
			return r.Live() && m.dueTo(r) || m.facet.Field == "" && m.in
		}, nil
	}
}

// alignMembers updates the index sets of members that were added to an indexed set of an entry, or
// removed from it. If the command is known to have been carried out, it begins by adding the entry
// to them if in is true, and by removing it otherwise. Otherwise it begins by reading the set. It
// reports whether the entry was live when it was last read.
func (e *Engine) alignMembers(ctx context.Context, set recordkey.Key, members []string, in, known bool) (live bool, err error) {
	for len(members) > e.batch && err == nil {
		live, err = e.alignBatch(ctx, set, members[:e.batch], in, known)
		members = members[e.batch:]
	}
	if err != nil {
		return live, err
	}
	return e.alignBatch(ctx, set, members, in, known)
}

func (e *Engine) alignBatch(ctx context.Context, set recordkey.Key, members []string, in, known bool) (live bool, err error) {
	entry := set.PRK()
	prk := entry.In(recordkey.Namespace{}).String()
	var ms []membership
	var asked []string
	for _, member := range members {
		index, err := recordkey.Index(set.Type(), set.Name(), member)
		if err != nil {
			continue // no index set can have that name
		}
		asked = append(asked, member)
		ms = append(ms, membership{key: index.In(set.Namespace()).String(), member: prk, facet: store.Facet{Field: set.Name(), Wire: member}, in: in})
	}
	if len(ms) == 0 {
		return e.isLive(ctx, entry)
	}
	align := e.alignAfterLook
	if known {
		align = e.align
	}
	err = align(ctx, ms, func() (func(membership) bool, error) {
		var has map[string]bool
		err := parallel(2, func(i int) (err error) {
			if i == 0 {
				live, err = e.isLive(ctx, entry)
			} else {
				has, err = e.membersIn(ctx, set.String(), asked)
			}
			return err
		})
		return func(m membership) bool { return live && has[m.facet.Wire] }, err
	})
	return live, err
}

// membersIn reports for each member whether it is in a set.
func (e *Engine) membersIn(ctx context.Context, set string, members []string) (map[string]bool, error) {
	slices.Sort(members)
	reply, err := e.queryOrNil(ctx, redisx.IsList, redisx.AppendWords([]any{"smismember", set}, members)...)
	if err != nil || reply == nil {
		return nil, err
	}
	flags, err := redisx.Numbers(reply)
	if err = cmp.Or(err, redisx.CheckLength(len(flags), len(members))); err != nil {
		return nil, redisx.Fail(err)
	}
	has := map[string]bool{}
	for i, flag := range flags {
		has[members[i]] = flag == 1
	}
	return has, nil
}

// alignIndex aligns one membership as a change does: it writes the membership and reads the entry
// again until both agree. With Vacate, it changes nothing if the entry's value has changed.
func (e *Engine) alignIndex(ctx context.Context, a store.Align) (in bool, err error) {
	ordered := a.Ordered()
	if !ordered {
		if _, err := e.remove(ctx, store.Remove{Key: a.At.Key.String(), Kind: "set"}); err != nil {
			return false, err
		}
	}
	look := func() (func(membership) bool, error) {
		in, err = e.isDue(ctx, a)
		return func(membership) bool { return in }, err
	}
	if _, err := look(); err != nil || in && a.Vacate {
		return in, err
	}
	err = e.align(ctx, []membership{{key: a.At.Key.String(), member: a.At.Member, ranked: ordered, in: in}}, look)
	if ordered && redisx.WrongType(err) {
		return false, &store.CorruptError{Key: a.At.Key.String(), Reason: "not a sorted set (WRONGTYPE)"}
	}
	return in || ordered, err
}

// isDue reports whether the entry belongs at the position that a describes or, with Vacate, whether
// it may belong there because its value has changed.
func (e *Engine) isDue(ctx context.Context, a store.Align) (bool, error) {
	if !a.Set.IsValid() {
		live, now, err := e.readField(ctx, a.Entry, a.At.Facet.Field)
		same := now.Exists != a.At.Unset && now.Wire == a.At.Facet.Wire
		if live && !same && err == nil && !a.Ordered() { // it may be a further value
			var whole []store.Raw
			if whole, err = store.Hashes(ctx, e, []string{a.Entry.String()}); err == nil {
				same = store.Record{Fields: whole[0].Fields}.HasWritten(a.At.Facet.Field, a.At.Facet.Wire)
			}
		}
		return live && same != a.Vacate, err
	}
	has, err := e.membersIn(ctx, a.Set.String(), []string{a.At.Facet.Wire})
	if err != nil || !has[a.At.Facet.Wire] {
		return false, err
	}
	return e.isLive(ctx, a.Set.PRK())
}
