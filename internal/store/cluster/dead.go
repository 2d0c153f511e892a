package cluster

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// A process that removes what belonged to a dead entry says so in the entry's ~dying, under a mark of its own. Until it
// takes the mark out, the entry is not created anew: the new one would have tags of the old one, or lose its own to a
// late removal. The process sends nothing more finishTime after it sent the mark. So a mark that is dyingTime old, by the
// clock of the entry's node, is that of a process that has died: a create does its work, and takes out its mark. Only
// tertiary records hang on that clock: SRKs are compared with what was seen, and commits with revs.
const (
	dyingTime    = finishTime + 5*time.Second
	longestPause = 200 * time.Millisecond
)

// markDying begins or ends a removal under a mark, and ends with it those of others, which have died. It reports whether
// the entry is dead.
func (e *Engine) markDying(ctx context.Context, entry recordkey.Key, mark, what, others string) (bool, error) {
	return e.yes(ctx, dyingScript, entry.String(), mark, what, tombstoneLife, others)
}

// ifDead does something that must not meet a live entry, and reports whether the entry is dead.
func (e *Engine) ifDead(ctx context.Context, entry recordkey.Key, others string, do func(context.Context) error) (bool, error) {
	mark := e.newRev()
	ctx, cancel := context.WithTimeout(ctx, finishTime)
	defer cancel()
	dead, err := e.markDying(ctx, entry, mark, "begin", "")
	if redisx.WrongType(err) {
		return true, do(ctx) // a record of another Redis type: no entry can come to life there
	}
	if err != nil || !dead {
		return dead, err
	}
	if err := do(ctx); err != nil {
		return true, err
	}
	_, err = e.markDying(ctx, entry, mark, "end", others)
	return true, err
}

// finishDelete does again what processes left undone that have died, those whose marks dying names
// among them. Index members for facets, which a tombstone does not know any more, are left to a
// check: no reader is shown them.
func (e *Engine) finishDelete(ctx context.Context, c store.Change, dying string) error {
	dead := store.Change{Key: c.Key, Delete: true, Schema: c.Schema, Drop: c.Before()}
	_, err := e.ifDead(ctx, c.Key, dying, func(ctx context.Context) error { return e.dropAll(ctx, dead) })
	return err
}

// leftBehind reports whether there are records of an entry that is to be created: a process has
// written them while an earlier entry died, and died itself.
func (e *Engine) leftBehind(ctx context.Context, c store.Change) (bool, error) {
	all := c.Before()
	found := make([]bool, len(all))
	err := parallel(len(all), func(i int) error {
		n, err := e.ask(ctx, redisx.IsNumber, "exists", all[i].Key.String())
		found[i] = n == int64(1)
		return err
	})
	return slices.Contains(found, true), err
}

// refuseDamaged returns an error for a hash that has facets but no ~isa: it is not known that the
// entry is dead, so the records at its key stay.
func (e *Engine) refuseDamaged(ctx context.Context, entry recordkey.Key) error {
	found, err := store.Hashes(ctx, e, []string{entry.String()})
	if err != nil {
		return err
	}
	if _, dead := found[0].Fields[store.FieldType]; dead {
		return nil
	}
	for field := range found[0].Fields {
		if !strings.HasPrefix(field, "~") {
			return damagedError(entry)
		}
	}
	return nil
}

// damagedError returns the error for a hash that has facets but no ~isa.
func damagedError(entry recordkey.Key) error {
	return &store.CorruptError{Key: entry.String(), Reason: "a hash without ~isa"}
}

// dropAll removes the tertiary records of an entry that was deleted. Those that the delete does not
// know of are named by the stored schema, which is read after the entry has died: an earlier writer
// had stored the name before it wrote, and a later one finds the entry dead.
func (e *Engine) dropAll(ctx context.Context, c store.Change) error {
	stored, err := store.Hashes(ctx, e, []string{c.Schema.Key.String()})
	if err != nil {
		return err
	}
	fields := stored[0].Fields
	going := slices.Concat(c.Drop, store.Stored{JSON: fields[store.FieldSchema], Named: slices.Collect(maps.Keys(fields))}.Drops(c))
	return parallel(len(going), func(i int) error { return e.drop(ctx, going[i]) })
}

// drop removes a tertiary record of a dead entry, with the index members that stand for its members. It ends
// when it finds nothing there: a member that was put in meanwhile, before its index member went, would otherwise be
// without one if the entry comes to life.
func (e *Engine) drop(ctx context.Context, d store.Container) error {
	for {
		var members []string
		whole, isSet := true, false
		if d.Indexed {
			var err error
			if members, whole, isSet, err = e.Members(ctx, d.Key.String()); err != nil || isSet && len(members) == 0 {
				return err
			}
		}
		if !whole {
			if err := e.dropSome(ctx, d); err != nil {
				return err
			}
			continue
		}
		if _, err := e.command(ctx, redisx.IsNumber, "unlink", d.Key.String()); err != nil || !isSet {
			return err
		}
		if _, err := e.alignMembers(ctx, d.Key, members, false); err != nil {
			return err
		}
	}
}

// dropSome takes the members of a large set of a dead entry out of it, in batches, each after its
// index members.
func (e *Engine) dropSome(ctx context.Context, d store.Container) error {
	return e.EachPage(ctx, d.Key.String(), func(members []string) error {
		if _, err := e.alignMembers(ctx, d.Key, members, false); err != nil {
			return err
		}
		_, err := e.command(ctx, redisx.IsNumber, redisx.AppendWords([]any{"srem", d.Key.String()}, members)...)
		return err
	})
}
