package single

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// expectedArg is where change.lua reads the version that is expected; a create expects none.
const expectedArg = 8

// adjudications is how often a change looks again at SRKs that others hold before it gives up.
const adjudications = 20

// Apply implements [store.Engine]: one short script in the usual case, or one for many callers' creates;
// else, after it, the whole one, and that once more where an SRK is occupied.
func (e *Engine) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	token := store.NewToken()
	done, unsure, err := e.applySoon(ctx, c, token)
	switch {
	case err != nil:
		return store.Version{}, fmt.Errorf("changing %s: %w", c.Key, err)
	case done:
		return store.Version{Rev: token}, nil
	}
	return e.applyAny(ctx, c, token, unsure)
}

// applySoon makes a change in one of the short ways, or not at all; unsure as of applyUsual.
func (e *Engine) applySoon(ctx context.Context, c store.Change, token string) (done, unsure bool, err error) {
	if plain(&c) {
		crowded := e.joint.underWay.Enter()
		defer e.joint.underWay.Leave()
		if crowded {
			if done, unsure, err = e.joint.apply(ctx, c, token); err != nil {
				return false, unsure, ended(err, unsure)
			}
			if done || unsure {
				return done, unsure, nil
			}
		}
	}
	if usual(c) {
		return e.applyUsual(ctx, c, token)
	}
	return false, false, nil
}

// ended is the error of a context that ended while a change waited.
func ended(err error, unsure bool) error {
	if unsure {
		return fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, err)
	}
	return redisx.Fail(err)
}

// applyAny makes any change. unsure says that it may have been made already.
func (e *Engine) applyAny(ctx context.Context, c store.Change, token string, unsure bool) (store.Version, error) {
	var owners []owner
	c = e.withNamed(c)
	may, looked := c.Schema.Exact, false
	for range adjudications {
		known, err := e.knownMembers(ctx, c.Drop)
		if err != nil {
			return store.Version{}, err
		}
		keys, args := changeArgs(c, token, may, known, owners)
		mark := -1
		if c.Create {
			if mark = expectedArg; unsure {
				args[mark] = resent
			}
		}
		answer, doubt, err := e.writeMarked(ctx, changeScript, keys, args, mark)
		if redisx.WrongType(err) {
			return store.Version{}, &store.CorruptError{Key: c.Key.String(), Reason: "it, or a record that goes with it, is of another Redis type (WRONGTYPE)"}
		}
		if err != nil {
			return store.Version{}, fmt.Errorf("changing %s: %w", c.Key, err)
		}
		reply := redisx.Items(answer)
		unsure = unsure || doubt
		switch redisx.Text(reply, 0) {
		case "ok":
			return store.Version{Rev: token}, nil
		case "occupied":
			if owners, err = ownersOf(c, reply[1:]); err != nil {
				return store.Version{}, err
			}
		case "members":
		case "names":
			before := len(c.Drop)
			if c = e.learn(c, reply); len(c.Drop) == before && len(reply) > 2 {
				return store.Version{}, &store.CorruptError{Key: c.Schema.Key.String(), Reason: "a field that names no tertiary record"}
			}
		case "unstored":
			// Entries may come from a first write just now, which stored the schema: look once more.
			err := store.NoEntries(ctx, e, c.Schema.Entries)
			if err != nil && (looked || !errors.Is(err, store.ErrSchemaMismatch)) {
				return store.Version{}, err
			}
			may, looked = err == nil, true
		default:
			return store.Version{}, refusal(c, reply, unsure)
		}
	}
	return store.Version{}, store.ErrConflict
}

// withNamed adds to a delete what it must drop besides what its schema declares, as far as that is known.
func (e *Engine) withNamed(c store.Change) store.Change {
	last, _ := e.stored.Load(c.Schema.Key)
	if s, is := last.(store.Stored); is && c.Delete {
		c.Drop = append(slices.Clip(c.Drop), s.Drops(c)...)
		c.Schema.JSON = s.JSON // says to the script that it was looked at
	}
	return c
}

// learn keeps what a delete was told of the stored schema, and adds it.
func (e *Engine) learn(c store.Change, reply []any) store.Change {
	e.stored.Store(c.Schema.Key, store.Stored{JSON: redisx.Text(reply, 1), Named: redisx.Texts(reply[min(2, len(reply)):])})
	return e.withNamed(c)
}

// refusal makes an error of an answer that nothing was written.
func refusal(c store.Change, reply []any, unsure bool) error {
	what, detail := redisx.Text(reply, 0), redisx.Text(reply, 1)
	reply = append(reply, nil) // a short one has no number either
	if unsure && what != "duplicate" && !store.Accounts(detail, c.Version.Rev) {
		return fmt.Errorf("changing %s: %w", c.Key, store.ErrOutcomeUnknown)
	}
	switch what {
	case "exists":
		return &store.DuplicateError{Field: c.Key.Field(), Primary: true}
	case "absent", "token":
		return store.ErrNotFound
	case "conflict":
		return store.ErrConflict
	case "schema":
		return &store.MismatchError{Stored: detail}
	case "damaged":
		return &store.CorruptError{Key: c.Key.String(), Reason: "a hash without ~isa"}
	case "duplicate":
		if i, ok := srkNumber(c, reply[1]); ok {
			return store.Duplicate(c, srkAt(c, i))
		}
	}
	return fmt.Errorf("changing %s: %w: %w", c.Key, store.ErrOutcomeUnknown, redisx.Unknown(what))
}

// An owner is an entry that an SRK of a change names, to be looked at by the next call.
type owner struct {
	at   int    // index of the SRK among claims and asides, from 1
	seen string // its value
}

// ownersOf takes the answer that SRKs are occupied.
func ownersOf(c store.Change, pairs []any) ([]owner, error) {
	var owners []owner
	for i := 0; i+1 < len(pairs); i += 2 {
		n, ok := srkNumber(c, pairs[i])
		seen, is := pairs[i+1].(string)
		if !ok || !is {
			return nil, redisx.Fail(redisx.Unknown("occupied"))
		}
		owners = append(owners, owner{n, seen})
	}
	return owners, nil
}

// srkNumber takes the number of an SRK of a change.
func srkNumber(c store.Change, item any) (int, bool) {
	n, is := item.(int64)
	return int(n), is && n >= 1 && n <= int64(len(c.Claim)+len(c.Aside))
}

func srkAt(c store.Change, i int) recordkey.Key {
	if i <= len(c.Claim) {
		return c.Claim[i-1]
	}
	return c.Aside[i-1-len(c.Claim)]
}

// knownMembers reads the members of indexed sets that go with the entry, so that the script can
// declare the index sets that hold it.
func (e *Engine) knownMembers(ctx context.Context, drop []store.Container) ([][]string, error) {
	known := make([][]string, len(drop))
	for i, d := range drop {
		if !d.Indexed {
			continue
		}
		members, err := e.client.SMembers(ctx, d.Key.String()).Result()
		if redisx.WrongType(err) {
			continue
		}
		if err != nil {
			return nil, redisx.Fail(err)
		}
		known[i] = members
	}
	return known, nil
}

// changeArgs lays a change out as change.lua reads it.
func changeArgs(c store.Change, token string, may bool, known [][]string, owners []owner) (keys, args []string) {
	tokens, _ := store.TokenKey(c.Key) // every PRK has one
	keys = []string{c.Key.String(), c.Schema.Key.String(), c.Schema.Types.String(), tokens.String()}
	args = guardArgs(c.Key, c.Schema, token, may)
	args = append(args, verb(c), c.Version.Rev)
	for _, n := range []int{
		len(c.Claim), len(c.Aside), len(c.Release), len(c.Index), len(c.Unindex),
		len(c.Rank), len(c.Unrank), len(c.Add), len(c.Drop), len(owners),
	} {
		args = append(args, strconv.Itoa(n))
	}
	args = append(args, strconv.Itoa(2*len(c.Set)))
	for _, f := range c.Set {
		args = append(args, f.Field, f.Wire)
	}
	args = appendList(args, c.Unset)
	rankKeys, ranks := rankLists(c.Rank)
	unrankKeys, unranks := rankLists(c.Unrank)
	args = appendList(appendList(appendList(args, ranks), unranks), c.Tokens.Args())
	for _, ks := range [][]recordkey.Key{c.Claim, c.Aside, c.Release, c.Index, c.Unindex, rankKeys, unrankKeys} {
		keys = appendKeys(keys, ks)
	}
	for _, m := range c.Add {
		args = append(appendList(args, m.Values), flag(len(m.Index) > 0), m.Command(), flag(c.Replaces(m)))
		keys = appendKeys(append(keys, m.Key.String()), m.Index)
	}
	for i, d := range c.Drop {
		members, index := memberIndexes(d, known[i])
		keys = appendKeys(append(keys, d.Key.String()), index)
		args = appendList(append(args, flag(d.Indexed)), members)
	}
	ns := c.Key.Namespace().String()
	for _, o := range owners {
		srk := srkAt(c, o.at)
		keys = append(keys, ns+store.Owner(o.seen))
		args = append(args, strconv.Itoa(o.at), o.seen, srk.Field(), srk.Value())
	}
	return keys, args
}

func verb(c store.Change) string {
	switch {
	case c.Delete:
		return "delete"
	case c.Create:
		return "create"
	case c.Mend:
		return "mend"
	}
	return "update"
}
