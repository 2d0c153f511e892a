package onekey

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// FindWithoutScript answers lookups with two rounds of plain commands: first SRKs, then the entries
// that they name. It is for clusters, and for servers whose scripts may not read keys that the call
// does not name.
func (ks *OneSlot) FindWithoutScript(ctx context.Context, lookups []store.Lookup) ([]store.Found, error) {
	found, err := ks.findByCommands(ctx, lookups)
	for i := range found {
		if l := lookups[i]; len(l.SRKs) > 1 && !l.All {
			if found[i], err = ks.recheck(ctx, l, found[i]); err != nil {
				return nil, err
			}
		}
	}
	return found, err
}

// recheck repeats a lookup whose two reads may have seen different moments. If a value moves
// between the reads, it may be found nowhere, or both in the entry that gives it up and in the
// entry that takes it.
func (ks *OneSlot) recheck(ctx context.Context, l store.Lookup, f store.Found) (store.Found, error) {
	for range 2 {
		nowhere := errors.Is(f.Err, store.ErrNotFound)
		if !nowhere && !errors.Is(f.Err, store.ErrCorrupt) {
			break
		}
		again, err := ks.findByCommands(ctx, []store.Lookup{l})
		if err != nil {
			return f, err
		}
		if f = again[0]; nowhere && errors.Is(f.Err, store.ErrNotFound) {
			break
		}
	}
	return f, nil
}

func (ks *OneSlot) findByCommands(ctx context.Context, lookups []store.Lookup) ([]store.Found, error) {
	all, pending := make([]pendingLookup, len(lookups)), make([]*pendingLookup, len(lookups))
	for i, l := range lookups {
		all[i].Lookup, pending[i] = l, &all[i]
	}
	if err := ks.read(ctx, pending); err != nil {
		return nil, err
	}
	found := make([]store.Found, len(pending))
	for i, p := range pending {
		found[i] = p.found
		if err := store.StoreError(p.found.Err); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// FindBatched answers a lookup together with those of other callers, in one batch of plain
// commands. Many lookups cost the server less this way than with one script each. If consistent is
// false, the two reads may have seen different moments, and the caller must make the lookup again
// on its own. The only errors are those of the context.
func (ks *OneSlot) FindBatched(ctx context.Context, l store.Lookup) (found store.Found, consistent bool, err error) {
	p := &pendingLookup{Lookup: l}
	if err := ks.finds.Do(ctx, p); err != nil {
		return store.Found{}, false, err
	}
	return p.found, p.consistent, nil
}

// findBatch answers the lookups of many callers. If it cannot read them, it marks none as
// consistent, so that each caller makes its lookup again.
func (ks *OneSlot) findBatch(ctx context.Context, pending []*pendingLookup) {
	if ks.read(ctx, pending) != nil {
		return
	}
	for _, p := range pending {
		// With several SRKs, a value may have moved between them.
		p.consistent = p.found.Err == nil || len(p.srvs) == 1 && p.srvs[0].Err() == redis.Nil
	}
}

// A pendingLookup is a lookup in progress. It holds the commands that read its SRKs and the entries
// that they name, and later the answer.
type pendingLookup struct {
	store.Lookup
	entry      *redis.MapStringStringCmd
	srvs       []*redis.StringCmd
	entries    []*redis.MapStringStringCmd
	found      store.Found
	consistent bool // the answer describes a single moment
}

// read answers lookups in two round trips. An error concerns all of them.
func (ks *OneSlot) read(ctx context.Context, pending []*pendingLookup) error {
	var cmds []redis.Cmder
	for round := range 2 {
		cmds = cmds[:0]
		for _, p := range pending {
			cmds = p.appendCommands(ctx, round, cmds)
		}
		if err := redisx.CheckAnswered(cmds, ks.client.ProcessAll(ctx, cmds)); err != nil {
			return err
		}
	}
	for _, p := range pending {
		p.found = p.result()
	}
	return nil
}

// appendCommands appends the commands of a round. Round 0 reads the SRKs, or the entry at a PRK.
// Round 1 reads the entries that the SRKs name.
func (p *pendingLookup) appendCommands(ctx context.Context, round int, cmds []redis.Cmder) []redis.Cmder {
	switch {
	case round == 0 && p.PRK.IsValid():
		p.entry = redis.NewMapStringStringCmd(ctx, "hgetall", p.PRK.String())
		cmds = append(cmds, p.entry)
	case round == 0:
		p.srvs, p.entries = make([]*redis.StringCmd, len(p.SRKs)), make([]*redis.MapStringStringCmd, len(p.SRKs))
		for i, k := range p.SRKs {
			p.srvs[i] = redis.NewStringCmd(ctx, "get", k.String())
			cmds = append(cmds, p.srvs[i])
		}
	default:
		for i, cmd := range p.srvs {
			if owner := store.Owner(cmd.Val()); owner != "" {
				p.entries[i] = redis.NewMapStringStringCmd(ctx, "hgetall", p.SRKs[i].Namespace().String()+owner)
				cmds = append(cmds, p.entries[i])
			}
		}
	}
	return cmds
}

func (p *pendingLookup) result() store.Found {
	if p.entry != nil {
		return redisx.FoundAt(p.PRK, p.entry.Val(), p.entry.Err())
	}
	var cs []store.Candidate
	for i, cmd := range p.srvs {
		c, err := store.Candidate{SRK: p.SRKs[i], Owner: store.Owner(cmd.Val())}, cmd.Err()
		if entry := p.entries[i]; entry != nil {
			c.Fields, err = entry.Val(), entry.Err()
		}
		switch {
		case err != nil && !redisx.IsServerReply(err):
			return store.Found{Err: redisx.Fail(err)}
		case c.Owner == "" && (err == nil || errors.Is(err, redis.Nil)):
			continue
		case err != nil:
			c.Problem = err.Error()
		}
		cs = append(cs, c)
	}
	return store.Believe(p.Lookup, cs)
}
