package cluster

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// Whoever removes what belonged to a dead entry has the entry's ~dying say so, under a token of his own: until
// he takes it out, the entry is not created anew, or the new one would have tags of the old one, or lose its
// own to a late removal. He sends nothing more finishTime after he sent that. So a token that has been there
// for burialTime, by the clock of the entry's node, is that of somebody who has died, and whoever
// wants to create the entry does his work and takes the token out with his own. Only tertiary records
// hang on that clock: SRKs are compared with what was seen, and commits with versions.
const (
	burialTime   = finishTime + 5*time.Second
	longestPause = 200 * time.Millisecond
)

// isOver says whether a burial that began so many seconds ago is none any more.
func isOver(age string) bool {
	n, err := strconv.ParseInt(age, 10, 64)
	return err != nil || n > int64(burialTime/time.Second)
}

// bury begins or ends a burial under a token, and ends with it those of others, who have died. False says
// that the entry is live.
func (e *Engine) bury(ctx context.Context, entry recordkey.Key, token, what, others string) (bool, error) {
	r, err := e.run(ctx, on(buryScript, entry.String(), token, what, tombstoneLife, others))
	return r.yes(), redisx.Harmless(err)
}

// ifDead does something that must not meet a live entry. False says that the entry is live.
func (e *Engine) ifDead(ctx context.Context, entry recordkey.Key, others string, do func(context.Context) error) (bool, error) {
	token := e.token()
	ctx, cancel := context.WithTimeout(ctx, finishTime)
	defer cancel()
	dead, err := e.bury(ctx, entry, token, "begin", "")
	if redisx.WrongType(err) {
		return true, do(ctx) // a record of another Redis type: no entry can come to life there
	}
	if err != nil || !dead {
		return dead, err
	}
	if err := do(ctx); err != nil {
		return true, err
	}
	_, err = e.bury(ctx, entry, token, "end", others)
	return true, err
}

// takeOver ends the burials of those who have died: what they left undone is done again. Index members for
// facets, which a tombstone does not know any more, are left to a check: nobody is shown them.
func (e *Engine) takeOver(ctx context.Context, c store.Change, dying string) error {
	dead := store.Change{Key: c.Key, Delete: true, Schema: c.Schema}
	for _, name := range slices.Sorted(maps.Keys(c.Schema.Tertiary)) {
		if key, err := c.Key.Tertiary(name); err == nil { // else no record can have that name
			dead.Drop = append(dead.Drop, store.Container{Key: key, Indexed: c.Schema.Tertiary[name]})
		}
	}
	_, err := e.ifDead(ctx, c.Key, dying, func(ctx context.Context) error {
		return together(2, func(i int) error {
			if i == 0 {
				return e.dropNamed(ctx, dead)
			}
			return together(len(dead.Drop), func(i int) error { return e.drop(ctx, dead.Drop[i]) })
		})
	})
	return err
}

// dropNamed removes the tertiary records of a dead entry that a delete does not know of. The stored schema is read when
// the entry is dead: who wrote to it before had said under which name, and who writes later finds it dead.
func (e *Engine) dropNamed(ctx context.Context, c store.Change) error {
	if !c.Delete {
		return nil
	}
	fields := map[string]string{}
	_, err := e.again(ctx, func() (_ any, err error) {
		if fields, err = e.client.HGetAll(ctx, c.Schema.Key.String()).Result(); redisx.WrongType(err) {
			return nil, nil
		}
		return nil, err
	})
	if err != nil {
		return redisx.Harmless(err)
	}
	more := store.StoredIn(fields).Drops(c)
	return together(len(more), func(i int) error { return e.drop(ctx, more[i]) })
}

// stillDying gives a delete, whose commit may have taken long, time to finish: counted from before that, or
// from a burial of its own that begins now. False: another has finished it.
func (a *attempt) stillDying(ctx context.Context) (context.Context, context.CancelFunc, bool) {
	begin := a.began
	if a.e.now().Sub(begin) > finishTime/4 {
		begin = a.e.now()
		if dead, err := a.e.bury(ctx, a.c.Key, a.token, "begin", ""); err != nil || !dead {
			return ctx, func() {}, false
		}
	}
	ctx, cancel := context.WithTimeout(ctx, finishTime-a.e.now().Sub(begin))
	return ctx, cancel, true
}

// drop removes a tertiary record of a dead entry, with the index members that stand for its members. It ends
// when it finds nothing there: a member that somebody put in meanwhile, before the index member that
// stands for it went, would otherwise be without one if the entry comes to life.
func (e *Engine) drop(ctx context.Context, d store.Container) error {
	if !d.Indexed {
		return e.write(ctx, "unlink", d.Key.String())
	}
	for {
		members, isSet, err := e.elements(ctx, d.Key.String())
		if err != nil || isSet && len(members) == 0 {
			return err
		}
		if err := e.write(ctx, "unlink", d.Key.String()); err != nil || !isSet {
			return err
		}
		if _, err = e.alignMembers(ctx, d.Key, members, false); err != nil {
			return err
		}
	}
}

// members reads a set; a record of another Redis type has none.
func (e *Engine) members(ctx context.Context, set string) ([]string, error) {
	members, _, err := e.elements(ctx, set)
	return members, err
}

// elements reads a set, absent or not, and says whether it is no record of another Redis type.
func (e *Engine) elements(ctx context.Context, set string) (members []string, isSet bool, err error) {
	_, err = e.again(ctx, func() (_ any, err error) {
		members, err = e.client.SMembers(ctx, set).Result()
		if isSet = !redisx.WrongType(err); !isSet {
			return nil, nil
		}
		return nil, err
	})
	return members, isSet, redisx.Harmless(err)
}
