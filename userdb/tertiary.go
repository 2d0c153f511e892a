package userdb

import (
	"context"
	"slices"
	"strconv"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/schema"
)

// Tertiary records hang on an entry: each has a name that the schema declares with its Redis type.
// They are made by the first write and gone with the last element, as in Redis. Every method costs
// one round trip where the hint is a PRK or a UID, and two otherwise; ErrNotFound says that the
// entry is not live, *schema.Error that the name is not declared with this type, ErrCorrupt that the
// record is of another Redis type. Writes do not change the entry's Rev.
type tertiary struct {
	t    *Type
	h    hints.Hint
	name string
	kind string
}

// do runs a command. Index members are kept for sets that the schema declares as indexed (I5).
func (r tertiary) do(ctx context.Context, op store.Op, join, leave []string) (store.Reply, error) {
	if len(op.Args) > change.MaxMembers {
		return store.Reply{}, change.Invalid(r.name, "size", "over 10,000 elements in one call")
	}
	for _, arg := range op.Args {
		if len(arg) > schema.MaxFacet {
			return store.Reply{}, change.Invalid(r.name, "size", "an element of over 64 KiB")
		}
	}
	s, err := r.t.db.view.Resolve(r.h, r.t.t.Name)
	if err != nil {
		return store.Reply{}, err
	}
	op.PRK = s.Lookup.PRK
	if !op.PRK.IsValid() {
		e, err := r.t.db.view.Read(ctx, s.Lookup)
		if err != nil {
			return store.Reply{}, err
		}
		op.PRK = e.Key
	}
	if op.Key, op.Index, err = r.t.t.Tertiary(op.PRK, r.name, r.kind, join); err != nil {
		return store.Reply{}, err
	}
	if _, op.Unindex, err = r.t.t.Tertiary(op.PRK, r.name, r.kind, leave); err != nil {
		return store.Reply{}, err
	}
	return r.t.db.view.Tertiary(ctx, r.t.t, op)
}

func (r tertiary) read(ctx context.Context, command string, args ...string) (store.Reply, error) {
	return r.do(ctx, store.Op{Command: command, Args: args}, nil, nil)
}

func (r tertiary) write(ctx context.Context, command string, args ...string) (store.Reply, error) {
	return r.do(ctx, store.Op{Command: command, Args: args, Write: true}, nil, nil)
}

// writeOnce is for commands that would be done twice if they were sent again: a lost reply is
// ErrOutcomeUnknown.
func (r tertiary) writeOnce(ctx context.Context, command string, args ...string) (store.Reply, error) {
	return r.do(ctx, store.Op{Command: command, Args: args, Write: true, Once: true}, nil, nil)
}

// Set is a tertiary record that holds a set, such as an entry's tags.
type Set struct{ r tertiary }

// Set names the tertiary set of the entry that a hint points at.
func (t *Type) Set(h hints.Hint, name string) Set { return Set{tertiary{t, h, name, "set"}} }

// Tags is the tertiary set "tags".
func (t *Type) Tags(h hints.Hint) Set { return t.Set(h, change.TagsName) }

// Add puts members in and says how many are new.
func (s Set) Add(ctx context.Context, members ...string) (int64, error) {
	if len(members) == 0 {
		return 0, nil
	}
	members = slices.Compact(slices.Sorted(slices.Values(members)))
	reply, err := s.r.do(ctx, store.Op{Command: "SADD", Args: members, Write: true}, members, nil)
	return reply.Int, err
}

// Remove takes members out and says how many were there.
func (s Set) Remove(ctx context.Context, members ...string) (int64, error) {
	if len(members) == 0 {
		return 0, nil
	}
	members = slices.Compact(slices.Sorted(slices.Values(members)))
	reply, err := s.r.do(ctx, store.Op{Command: "SREM", Args: members, Write: true}, nil, members)
	return reply.Int, err
}

// Has says whether member is in the set.
func (s Set) Has(ctx context.Context, member string) (bool, error) {
	reply, err := s.r.read(ctx, "SISMEMBER", member)
	return reply.Int == 1, err
}

// Members returns all members, sorted; none where there is no record.
func (s Set) Members(ctx context.Context) ([]string, error) {
	reply, err := s.r.read(ctx, "SMEMBERS")
	slices.Sort(reply.Items)
	return reply.Items, err
}

// Len says how many members there are.
func (s Set) Len(ctx context.Context) (int64, error) {
	reply, err := s.r.read(ctx, "SCARD")
	return reply.Int, err
}

// List is a tertiary record that holds a list.
type List struct{ r tertiary }

// List names the tertiary list of the entry that a hint points at.
func (t *Type) List(h hints.Hint, name string) List { return List{tertiary{t, h, name, "list"}} }

// Append puts items at the end and says how long the list is then. A lost reply is ErrOutcomeUnknown.
func (l List) Append(ctx context.Context, items ...string) (int64, error) {
	if len(items) == 0 {
		return l.Len(ctx)
	}
	reply, err := l.r.writeOnce(ctx, "RPUSH", items...)
	return reply.Int, err
}

// Prepend puts items at the front, the last one foremost. A lost reply is ErrOutcomeUnknown.
func (l List) Prepend(ctx context.Context, items ...string) (int64, error) {
	if len(items) == 0 {
		return l.Len(ctx)
	}
	reply, err := l.r.writeOnce(ctx, "LPUSH", items...)
	return reply.Int, err
}

// First takes the first item out; false for an empty list. A lost reply is ErrOutcomeUnknown.
func (l List) First(ctx context.Context) (string, bool, error) {
	reply, err := l.r.writeOnce(ctx, "LPOP")
	return reply.Text, !reply.Nil && err == nil, err
}

// Last takes the last item out; false for an empty list. A lost reply is ErrOutcomeUnknown.
func (l List) Last(ctx context.Context) (string, bool, error) {
	reply, err := l.r.writeOnce(ctx, "RPOP")
	return reply.Text, !reply.Nil && err == nil, err
}

// Items returns the items from start to stop, both included, from 0; negative ones count from the end.
func (l List) Items(ctx context.Context, start, stop int64) ([]string, error) {
	reply, err := l.r.read(ctx, "LRANGE", itoa(start), itoa(stop))
	return reply.Items, err
}

// Remove takes out every item that equals item and says how many there were.
func (l List) Remove(ctx context.Context, item string) (int64, error) {
	reply, err := l.r.write(ctx, "LREM", "0", item)
	return reply.Int, err
}

// Len says how long the list is.
func (l List) Len(ctx context.Context) (int64, error) {
	reply, err := l.r.read(ctx, "LLEN")
	return reply.Int, err
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
