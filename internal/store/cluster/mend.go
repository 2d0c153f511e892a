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

// Repair implements [store.Engine].
func (e *Engine) Repair(ctx context.Context, s store.RepairStep) (bool, error) {
	switch s := s.(type) {
	case store.Align:
		return e.alignIndex(ctx, s)
	case store.Remove:
		return e.remove(ctx, s)
	case store.PlacePrepared:
		return true, e.complete(ctx, s.Entry, s.Fill)
	case store.Drain:
		return true, e.Drain(ctx, store.DropKey(s.Record, s.Rev), s.Record, e.realign)
	case store.Publish:
		return true, e.publish(ctx, s.Entry)
	case store.Copy:
		return e.copyRecord(ctx, s)
	case store.AwaitSchema:
		return true, redisx.Fail(e.sleep(ctx, schemaChangeWait))
	}
	return e.OneSlot.Repair(ctx, s)
}

// schemaChangeWait is longer than staleAfter, because an engine writes for that long without
// comparing its schema again. After the wait, every writer has compared its schema or stopped
// writing.
const schemaChangeWait = 15 * time.Second

// copyRecord copies a record, with its time to live, to a key that may lie in another slot. It
// reports false if there is no record.
func (e *Engine) copyRecord(ctx context.Context, c store.Copy) (bool, error) {
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
		return false, fmt.Errorf("copying %s to %s: %w", c.From, c.To, redisx.Fail(err))
	}
	return true, nil
}

// remove removes a record that should not be there, and reports whether it did. It removes an SRK
// as step 2 of the protocol in apply.go does: it fences the owner first, and the SRK must still be
// exactly as it was read. It removes any other record of an entry only while that entry is dead.
func (e *Engine) remove(ctx context.Context, r store.Remove) (gone bool, err error) {
	owner, err := recordkey.Parse(r.Owner)
	owned := err == nil && owner.Kind() == recordkey.KindPRK
	field, value := r.Field, r.Value
	if r.Owner != "" { // the script cannot check the owner, which may lie in another slot
		r.Owner, r.Field, r.Value = "", "", ""
	}
	until := ""
	if r.Schema.Key.IsValid() { // the schema lies in another slot as well
		at, err := e.requireSchema(ctx, r.Schema)
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
		_, err = e.runWhileDead(ctx, owner, "", discard)
		return gone, err
	}
	// If the field and the value make no SRK, no entry can have the value.
	if srk, err := recordkey.SRK(owner.Type(), field, value); owned && err == nil {
		if state, err := e.stateOf(ctx, owner, srk, modeFence); err != nil || state != lacksValue {
			return false, err
		}
	}
	err = discard(ctx)
	return gone, err
}
