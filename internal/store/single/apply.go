package single

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

var (
	//go:embed scripts/guard.lua
	guardLua string
	//go:embed scripts/change.lua
	changeLua string
	//go:embed scripts/create.lua
	createLua string
	//go:embed scripts/update.lua
	updateLua string
)

var (
	changeScript = redisx.NewScript(onekey.TokensLua+guardLua+changeLua, redisx.IsVerdict)
	createScript = redisx.NewScript(createLua, redisx.IsNumber)
	updateScript = redisx.NewScript(updateLua, redisx.IsNumber)
)

// An outcome is what became of a change in one of the quick ways.
type outcome struct {
	done  bool
	maybe bool // it is not known: change.lua finds the rev if it was done
}

// Apply implements [store.Engine]: one short script or, where many callers create, one for all of them; else, after it,
// the script for any change.
func (e *Engine) Apply(ctx context.Context, c store.Change) (string, error) {
	rev := store.NewRev()
	got, err := e.applyQuick(ctx, c, rev)
	switch {
	case err != nil:
		return "", fmt.Errorf("changing %s: %w", c.Key, err)
	case !got.done:
		err = e.applyAny(ctx, c, rev, got.maybe)
	}
	return rev, e.confirmed(ctx, c, rev, err)
}

// confirmed waits for the replicas that a change asks for: it is one script, so its entry stands for all of it.
func (e *Engine) confirmed(ctx context.Context, c store.Change, rev string, err error) error {
	if err != nil || c.Replicas == 0 {
		return err
	}
	return redisx.ConfirmEntry(ctx, e.client, c.Key.String(), rev, c.Replicas, c.ReplicaTime)
}

// applyQuick makes a change in one of the quick ways, or not at all.
func (e *Engine) applyQuick(ctx context.Context, c store.Change, rev string) (outcome, error) {
	if onlyCreates(&c) {
		busy := e.creating.Enter()
		defer e.creating.Leave()
		if busy {
			if got, err := e.createWithOthers(ctx, &c, rev); err != nil || got.done || got.maybe {
				return got, err
			}
		}
	}
	if isShort(&c) {
		return e.applyShort(ctx, &c, rev)
	}
	return outcome{}, nil
}

// shortFacets is how many facets the short scripts take: Lua unpacks no list of any length.
const shortFacets = 1000

// isShort reports whether the short scripts make a change: facets and secondary values alone.
func isShort(c *store.Change) bool {
	return !c.Delete && !c.Mend && len(c.Index)+len(c.Unindex)+len(c.Rank)+len(c.Unrank)+len(c.Add)+len(c.Drop) == 0 &&
		len(c.Set)+len(c.Unset) < shortFacets && c.Seen.Fence == "" && !c.Tokens.Known && c.Tokens.Spend == "" && (c.Create || c.Seen.Rev != "")
}

// applyShort sends a short script, which does everything or nothing.
func (e *Engine) applyShort(ctx context.Context, c *store.Change, rev string) (outcome, error) {
	keys := make([]string, 2, 2+len(c.Claim)+len(c.Elsewhere)+len(c.Release))
	keys[0], keys[1] = c.Key.String(), c.Schema.Key.String()
	keys = appendKeys(appendKeys(keys, c.Claim), c.Elsewhere)
	prk := c.Key.In(recordkey.Namespace{}).String()
	args := make([]string, 0, 10+2*len(c.Set)+len(c.Unset))
	args = append(args, c.Schema.Fingerprint, prk, strconv.Itoa(len(c.Claim)))
	s := createScript
	if c.Create {
		args = append(args, store.FieldRev, rev)
	} else {
		s = updateScript
		keys = appendKeys(keys, c.Release)
		args = append(args, strconv.Itoa(len(c.Elsewhere)), c.Seen.Rev, rev, strconv.Itoa(len(c.Unset)))
		args = append(args, c.Unset...)
	}
	for _, f := range c.Set {
		args = append(args, f.Field, f.Wire)
	}
	reply, unsure, err := e.client.Write(ctx, s, keys, args)
	return outcome{done: reply == int64(1), maybe: unsure}, err
}

// looks is how often a change looks again at SRKs that others hold before it gives up.
const looks = 20

// applyAny makes any change. unsure says that it may have been made already.
func (e *Engine) applyAny(ctx context.Context, c store.Change, rev string, unsure bool) error {
	a := attempt{e: e, c: e.withNamed(c), rev: rev, may: c.Schema.Exact, unsure: unsure}
	for range looks {
		reply, err := a.send(ctx)
		if err != nil {
			return err
		}
		if redisx.Text(reply, 0) == "ok" {
			return nil
		}
		if err := a.learn(ctx, reply); err != nil {
			return err
		}
	}
	return store.ErrConflict
}

// An attempt is a change on its way, with what the script asked for so far.
type attempt struct {
	e      *Engine
	c      store.Change
	rev    string
	may    bool // the schema may be stored where none is
	looked bool // whether there are entries that no stored schema describes
	unsure bool // it may have been made already
	owners []owner
}

// An owner is what an SRK names that is not the change's own.
type owner struct {
	at   int    // the SRK's number, claims first, from 1
	seen string // its value
}

// send runs the script once.
func (a *attempt) send(ctx context.Context) ([]any, error) {
	known, err := a.e.knownMembers(ctx, a.c.Drop)
	if err != nil {
		return nil, err
	}
	keys, args := changeArgs(a.c, a.rev, a.may, known, a.owners)
	mark := -1
	if a.c.Create {
		if mark = expectedArg; a.unsure {
			args[mark] = resent
		}
	}
	answer, unsure, err := a.e.client.Retry.Do(ctx, func(unsure bool) (any, error) {
		if unsure && mark >= 0 {
			args[mark] = resent
		}
		return changeScript.Write(ctx, a.e.client.Process, keys, args)
	})
	a.unsure = a.unsure || unsure
	if redisx.WrongType(err) {
		return nil, &store.CorruptError{Key: a.c.Key.String(), Reason: "it, or a record that goes with it, is of another Redis type (WRONGTYPE)"}
	}
	if err != nil {
		return nil, fmt.Errorf("changing %s: %w", a.c.Key, err)
	}
	return redisx.Items(answer), nil
}

// learn takes what the script has to know first, or returns why the change cannot be made.
func (a *attempt) learn(ctx context.Context, reply []any) (err error) {
	switch redisx.Text(reply, 0) {
	case "occupied":
		a.owners, err = ownersOf(a.c, reply[1:])
		return err
	case "members":
		return nil
	case "names":
		before := len(a.c.Drop)
		a.e.stored.Store(a.c.Schema.Key, store.Stored{JSON: redisx.Text(reply, 1), Named: redisx.Texts(reply[min(2, len(reply)):])})
		if a.c = a.e.withNamed(a.c); len(a.c.Drop) == before && len(reply) > 2 {
			return &store.CorruptError{Key: a.c.Schema.Key.String(), Reason: "a field that names no tertiary record"}
		}
		return nil
	case "unstored":
		// Entries may come from a first write just now, which stored the schema: look once more.
		err := store.NoEntries(ctx, a.e, a.c.Schema.Entries)
		if err != nil && (a.looked || !errors.Is(err, store.ErrSchemaMismatch)) {
			return err
		}
		a.may, a.looked = err == nil, true
		return nil
	}
	return a.refusal(reply)
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

// refusal makes an error of an answer that nothing was written.
func (a *attempt) refusal(reply []any) error {
	c, what, detail := a.c, redisx.Text(reply, 0), redisx.Text(reply, 1)
	reply = append(reply, nil) // a short one has no number either
	if a.unsure && what != "duplicate" && !store.Accounts(detail, c.Seen.Rev) {
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
	return int(n), is && n >= 1 && n <= int64(len(c.Claim)+len(c.Elsewhere))
}

func srkAt(c store.Change, i int) recordkey.Key {
	if i <= len(c.Claim) {
		return c.Claim[i-1]
	}
	return c.Elsewhere[i-1-len(c.Claim)]
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
