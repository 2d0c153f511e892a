package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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
	case store.Complete:
		return true, e.complete(ctx, s.Entry, s.Fill)
	case store.Drain:
		return true, e.Drain(ctx, store.DropKey(s.Record, s.Rev), s.Record, e.realign)
	case store.Publish:
		return true, e.publish(ctx, s.Entry)
	case store.Copy:
		return e.copy(ctx, s)
	case store.AwaitSchema:
		return true, redisx.Fail(e.sleep(ctx, changeWait))
	}
	return e.Keys.Mend(ctx, s)
}

// changeWait is longer than a handle goes on by a schema that it could not compare: after it, every writer has looked at
// the schema again, or has stopped.
const changeWait = 15 * time.Second

// copy takes a dump from one slot to the other.
func (e *Engine) copy(ctx context.Context, c store.Copy) (bool, error) {
	pipe := e.client.Pipeline()
	dump, life := pipe.Dump(ctx, c.From), pipe.PTTL(ctx, c.From)
	_, err := pipe.Exec(ctx)
	if errors.Is(dump.Err(), redis.Nil) || err == nil && life.Val() == -2 {
		return false, nil
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
func (e *Engine) remove(ctx context.Context, r store.Remove) (gone bool, err error) {
	owner, err := recordkey.Parse(r.Owner)
	owned := err == nil && owner.Kind() == recordkey.KindPRK
	field, value := r.Field, r.Value
	if r.Owner != "" { // which may lie in another slot
		r.Owner, r.Field, r.Value = "", "", ""
	}
	until := ""
	if r.Schema.Key.IsValid() { // whose own slot is another one, too
		at, err := e.stillStored(ctx, r.Schema)
		if err != nil {
			return false, err
		}
		until, r.Schema = strconv.FormatInt(at, 10), store.Guard{}
	}
	discard := func(ctx context.Context) (err error) {
		gone, err = e.RemoveUntil(ctx, r, []string{r.Key}, until)
		return err
	}
	if owned && field == "" {
		_, err = e.ifDead(ctx, owner, "", discard)
		return gone, err
	}
	if srk, err := recordkey.SRK(owner.Type(), field, value); owned && err == nil { // else no entry can hold it
		if held, err := e.holds(ctx, owner, srk, orFence); err != nil || held {
			return false, err
		}
	}
	err = discard(ctx)
	return gone, err
}
