package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// Mend implements [store.Engine].
func (e *Engine) Mend(ctx context.Context, s store.Step) (bool, error) {
	switch s := s.(type) {
	case store.Align:
		return e.alignIndex(ctx, s)
	case store.Remove:
		return e.remove(ctx, s)
	case store.Rank:
		return true, e.rank(ctx, s)
	case store.Complete:
		return true, e.complete(ctx, s.Entry, s.Fill)
	case store.Copy:
		return e.copy(ctx, s)
	case store.AwaitSchema:
		return true, e.awaitSchema(ctx)
	}
	return e.Keys.Mend(ctx, s)
}

// alignIndex goes on as changes do: a membership is brought about, and looked at again until it is what the entry
// demands.
func (e *Engine) alignIndex(ctx context.Context, m store.Align) (bool, error) {
	if _, err := e.remove(ctx, store.Remove{Key: m.Index.String(), Kind: "set"}); err != nil {
		return false, err
	}
	if !m.Entry.IsValid() {
		return false, e.write(ctx, "srem", m.Index.String(), m.Member)
	}
	if m.Set.IsValid() {
		has, err := e.has(ctx, m.Set.String(), []string{m.Value})
		if err != nil {
			return false, err
		}
		live, err := e.alignMembers(ctx, m.Set, []string{m.Value}, has[m.Value])
		return live && has[m.Value], err
	}
	wire, err := e.Look(ctx, []store.LookAt{{Key: m.Entry.String(), As: store.LookField, Field: m.Facet.Field}})
	if err != nil {
		return false, err
	}
	in := wire[0].Is && wire[0].Wire == m.Facet.Wire
	p := membership{key: m.Index.String(), member: m.Member, facet: m.Facet, in: in}
	return in, e.alignFacets(ctx, m.Entry, []membership{p})
}

// changeWait is longer than a handle goes on by a schema that it could not compare.
const changeWait = 15 * time.Second

// awaitSchema waits until every writer has looked at the schema again, as each does now and then, or has stopped.
func (e *Engine) awaitSchema(ctx context.Context) error {
	if err := e.sleep(ctx, changeWait); err != nil {
		return redisx.Fail(err)
	}
	return nil
}

// copy takes a dump from one slot to the other.
func (e *Engine) copy(ctx context.Context, c store.Copy) (bool, error) {
	pipe := e.client.Pipeline()
	dump, life := pipe.Dump(ctx, c.From), pipe.PTTL(ctx, c.From)
	_, err := pipe.Exec(ctx)
	if err == nil || redisx.IsAnswer(err) {
		err = dump.Err()
	}
	if errors.Is(err, redis.Nil) || err == nil && life.Val() == -2 {
		return false, nil
	}
	if err == nil {
		err = life.Err()
	}
	if err == nil {
		err = e.client.RestoreReplace(ctx, c.To, max(0, life.Val()), dump.Val()).Err()
	}
	if err != nil {
		return false, fmt.Errorf("copying a record: %w", redisx.Fail(err))
	}
	return true, nil
}

// remove takes an SRK away as in step 2: after its entry is fenced, and only if it is still exactly what was seen.
func (e *Engine) remove(ctx context.Context, l store.Remove) (bool, error) {
	if l.Owner == "" && (l.Kind != "" || l.Seen.Is) {
		return e.Keys.Mend(ctx, l) // one script on one key
	}
	owner, err := recordkey.Parse(l.Owner)
	owned := err == nil && owner.Kind() == recordkey.KindPRK
	switch {
	case owned && l.Field != "":
		held, err := e.holds(ctx, owner, l)
		if err != nil || held {
			return false, err
		}
		return e.discard(ctx, l)
	case owned:
		gone := false
		_, err := e.ifDead(ctx, owner, "", func(ctx context.Context) (err error) {
			gone, err = e.discard(ctx, l)
			return err
		})
		return gone, err
	}
	return e.discard(ctx, l)
}

func (e *Engine) discard(ctx context.Context, l store.Remove) (bool, error) {
	if l.Seen.Is {
		r, err := e.run(ctx, on(swapScript, l.Key, l.Seen.Wire, ""))
		return r.yes(), redisx.Harmless(err)
	}
	command := []string{"unlink", l.Key}
	if l.Member != "" {
		command = []string{"srem", l.Key, l.Member}
	}
	n, err := e.command(ctx, redisx.IsNumber, command...)
	return n != int64(0) && err == nil, redisx.Harmless(err)
}

// holds fences an entry unless it holds the value of what is to be removed.
func (e *Engine) holds(ctx context.Context, owner recordkey.Key, l store.Remove) (bool, error) {
	srk, err := recordkey.SRK(owner.Type(), l.Field, l.Value)
	if err != nil {
		return false, nil
	}
	return e.fence(ctx, owner, srk, false)
}
