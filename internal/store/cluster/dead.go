package cluster

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// A process that removes the records of a dead entry first adds a mark of its own to the entry's
// ~dying. Until the mark is removed, the entry cannot be created again: the new entry would inherit
// tags of the old one, or lose its own to a late removal. The process sends nothing once finishTime
// has passed since it sent the mark. A mark that is older than dyingTime, by the clock of the
// entry's node, therefore belongs to a process that has died. A create then does the rest of that
// process's work, and removes the mark. Only tertiary records depend on that clock: SRKs are
// compared with the value that was read, and commits check the rev.
const (
	dyingTime    = finishTime + 5*time.Second
	longestPause = 200 * time.Millisecond // between two looks at an entry that is being deleted
)

// markDying begins or ends a removal under a mark. what is "begin" or "end". When markDying ends a
// removal, it also removes deadMarks, the marks of processes that have died. It reports whether the
// entry is dead.
func (e *Engine) markDying(ctx context.Context, entry recordkey.Key, mark, what, deadMarks string) (bool, error) {
	return e.runBool(ctx, dyingScript, entry.String(), mark, what, tombstoneLife, deadMarks)
}

// runWhileDead calls do if the entry is dead, and keeps the entry from being created until do has
// succeeded. It then also removes deadMarks, the marks of processes that have died. If do fails,
// the mark of this removal stays, so that a later create does the rest. runWhileDead reports
// whether the entry is dead.
func (e *Engine) runWhileDead(ctx context.Context, entry recordkey.Key, deadMarks string, do func(context.Context) error) (bool, error) {
	mark := e.newRev()
	ctx, cancel := context.WithTimeout(ctx, finishTime)
	defer cancel()
	dead, err := e.markDying(ctx, entry, mark, "begin", "")
	if redisx.WrongType(err) {
		return true, do(ctx) // a record of another Redis type: no entry can be created there
	}
	if err != nil || !dead {
		return dead, err
	}
	if err := do(ctx); err != nil {
		return true, err
	}
	_, err = e.markDying(ctx, entry, mark, "end", deadMarks)
	return true, err
}

// withoutHistory returns the records that a delete drops, except the history. A delete that adds a
// line to the history must keep it, because the feed is written from it; its commit makes the
// history expire in a day.
func withoutHistory(c store.Change) []store.Container {
	historyKey, _ := history.Key(c.Key) // every PRK has one
	return slices.DeleteFunc(slices.Clone(c.Drop), func(d store.Container) bool { return d.Key == historyKey })
}

// finishDelete repeats the work of processes that died before they finished it, and removes their
// marks, which are listed in dying. A history that the delete left for the feed stays for a day.
// finishDelete does not remove the entry from the indexes of its facets, because a tombstone no
// longer has the facets. A check does that, and readers never see such members.
func (e *Engine) finishDelete(ctx context.Context, c store.Change, dying string) error {
	_, err := e.runWhileDead(ctx, c.Key, dying, func(ctx context.Context) error {
		dead := store.Change{Key: c.Key, Delete: true, Schema: c.Schema, Drop: c.Leftovers()}
		lines, err := e.HistoryLines(ctx, c.Key)
		if err != nil {
			return err
		}
		if history.EndsWithDelete(strings.Join(lines, "\n")) {
			if err := e.expireHistory(ctx, c.Key); err != nil {
				return err
			}
		} else {
			historyKey, _ := history.Key(c.Key) // every PRK has one
			dead.Drop = append(dead.Drop, store.Container{Key: historyKey})
		}
		return e.dropAll(ctx, dead)
	})
	return err
}

// expireHistory makes the history of a deleted entry expire in a day. The commit of a delete does
// so itself, unless it had to write its lines into the entry instead of the history.
func (e *Engine) expireHistory(ctx context.Context, prk recordkey.Key) error {
	historyKey, _ := history.Key(prk) // every PRK has one
	_, err := e.do(ctx, redisx.IsNumber, "expire", historyKey.String(), tombstoneLife)
	return err
}

// hasLeftovers reports whether an earlier entry with the key of a create left records behind. A
// process wrote them while that entry was being deleted, and then died.
func (e *Engine) hasLeftovers(ctx context.Context, c store.Change) (bool, error) {
	all := c.Leftovers()
	found := make([]bool, len(all))
	err := parallel(len(all), func(i int) error {
		n, err := e.query(ctx, redisx.IsNumber, "exists", all[i].Key.String())
		found[i] = n == int64(1)
		return err
	})
	return slices.Contains(found, true), err
}

// checkDamage returns an error for a hash that has facets but no ~isa. It is unknown whether such
// an entry was deleted, so its records must stay.
func (e *Engine) checkDamage(ctx context.Context, entry recordkey.Key) error {
	found, err := store.Hashes(ctx, e, []string{entry.String()})
	if err != nil {
		return err
	}
	if _, hasType := found[0].Fields[store.FieldType]; hasType {
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

// dropAll removes the tertiary records of a deleted entry. The stored schema names the records that
// the delete does not know. dropAll reads it after the entry has died, and so misses none: an
// earlier writer stored the name before it wrote the record, and a later one finds the entry dead.
func (e *Engine) dropAll(ctx context.Context, c store.Change) error {
	stored, err := store.Hashes(ctx, e, []string{c.Schema.Key.String()})
	if err != nil {
		return err
	}
	fields := stored[0].Fields
	drops := slices.Concat(c.Drop, store.StoredSchema{JSON: fields[store.FieldSchema], Fields: slices.Collect(maps.Keys(fields))}.MoreDrops(c))
	return parallel(len(drops), func(i int) error { return e.drop(ctx, drops[i]) })
}

// drop removes a tertiary record of a dead entry, and takes the entry out of the index sets of its
// members. It repeats that until the record is absent: a member that is added after its index set
// was handled would be missing from the index if the entry is created again.
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
			if err := e.dropBatches(ctx, d); err != nil {
				return err
			}
			continue
		}
		if _, err := e.do(ctx, redisx.IsNumber, "unlink", d.Key.String()); err != nil || !isSet {
			return err
		}
		if _, err := e.alignMembers(ctx, d.Key, members, false, true); err != nil {
			return err
		}
	}
}

// dropBatches removes the members of a large set of a dead entry in batches. For each batch, it
// first takes the entry out of the index sets of the members.
func (e *Engine) dropBatches(ctx context.Context, d store.Container) error {
	return e.EachPage(ctx, d.Key.String(), func(members []string) error {
		if _, err := e.alignMembers(ctx, d.Key, members, false, true); err != nil {
			return err
		}
		_, err := e.do(ctx, redisx.IsNumber, redisx.AppendWords([]any{"srem", d.Key.String()}, members)...)
		return err
	})
}
