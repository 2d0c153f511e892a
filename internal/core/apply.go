package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// ErrSchemaMismatch is a schema that lays records out in another way than the one in the database.
var ErrSchemaMismatch = store.ErrSchemaMismatch

// Apply lets the engine make a change, and says what a schema mismatch consists of.
func (c *Core) Apply(ctx context.Context, t *Type, change store.Change) (store.Version, error) {
	c.Spare()
	change.Tokens.Now = c.clock()
	v, err := c.Engine.Apply(ctx, change)
	if guard, may := t.givesUp(change, err); may {
		change.Schema = guard
		v, err = c.Engine.Apply(ctx, change)
	}
	if err == nil && c.Replicas > 0 {
		err = c.confirm(ctx, change, v)
	}
	return v, t.explain(err)
}

// givesUp reports whether a change that was refused because the records have another canonical form does
// nothing but take values away, as they were written: that is right by any form (I1, I2), and the way out
// where two entries would have one value by this program's. The guard is that of the records.
func (t *Type) givesUp(c store.Change, err error) (store.Guard, bool) {
	var mismatch *store.MismatchError
	if !errors.As(err, &mismatch) || !c.Delete && (len(c.Release) == 0 || len(c.Claim)+len(c.Set) > 0) {
		return store.Guard{}, false
	}
	var stored schema.Type
	if json.Unmarshal([]byte(mismatch.Stored), &stored) != nil {
		return store.Guard{}, false
	}
	stored = stored.FromStore()
	guard := t.guard
	guard.Fingerprint, guard.JSON = stored.Fingerprint(), mismatch.Stored
	return guard, t.Schema.OtherForm(stored)
}

// clock is the time that tokens go by; zero: the server's.
func (c *Core) clock() time.Time {
	if c.OwnClock {
		return c.Now()
	}
	return time.Time{}
}

// confirm waits for replicas. What cannot be asked for them is not confirmed.
func (c *Core) confirm(ctx context.Context, change store.Change, v store.Version) error {
	if e, ok := c.Engine.(store.Confirmer); ok {
		return e.Confirm(ctx, change, v, c.Replicas, c.ReplicaTime)
	}
	return store.ErrUnconfirmed
}

// Tertiary runs a command on a tertiary record.
func (c *Core) Tertiary(ctx context.Context, t *Type, op store.Op) (store.Reply, error) {
	op.Schema = t.guard
	c.Spare()
	reply, err := c.Engine.Tertiary(ctx, op)
	return reply, t.explain(err)
}

// explain names the difference behind a schema mismatch, and what mends it.
func (t *Type) explain(err error) error {
	if err == nil {
		return nil
	}
	var mismatch *store.MismatchError
	if !errors.As(err, &mismatch) {
		return err
	}
	if mismatch.Stored == "" {
		return fmt.Errorf("%w: type %s: the database has entries that no stored schema describes, and only one with fold %q may write to them; "+
			"write with that, or bring them over with 'userdb schema apply'", ErrSchemaMismatch, t.Name, schema.FoldExact)
	}
	var stored schema.Type
	if json.Unmarshal([]byte(mismatch.Stored), &stored) != nil {
		return fmt.Errorf("%w: type %s: the stored schema cannot be read", ErrSchemaMismatch, t.Name)
	}
	stored = stored.FromStore()
	difference := t.Schema.Difference(stored)
	if difference == "" {
		return fmt.Errorf("%w: type %s: a change of the schema is under way; 'userdb schema apply' goes on with it", ErrSchemaMismatch, t.Name)
	}
	mends := "use the stored schema ('userdb schema show'), or bring the records over with 'userdb schema apply'"
	if t.Schema.OtherForm(stored) {
		mends = "bring the records over with 'userdb schema apply' while no other program writes"
	}
	return fmt.Errorf("%w: type %s: %s; %s", ErrSchemaMismatch, t.Name, difference, mends)
}

// FindUndeclared searches for the value of a sought `*` under fields that the schema does not have.
func (c *Core) FindUndeclared(ctx context.Context, s Sought) (store.Record, error) {
	if s.Target.Pattern == "" {
		return store.Record{}, store.ErrNotFound
	}
	p := recordkey.Pattern{Namespace: c.NS, Kind: recordkey.KindSRK, Type: s.Type.Name, Value: s.Target.Value}
	for cursor := ""; ; {
		keys, next, err := c.Engine.Scan(ctx, p.String(), cursor, 1000)
		if err != nil {
			return store.Record{}, err
		}
		for _, k := range keys {
			srk, err := recordkey.Parse(k)
			if err != nil || !p.Match(srk) {
				continue
			}
			r, err := c.Read(ctx, store.Lookup{SRKs: []recordkey.Key{srk}})
			if !errors.Is(err, store.ErrNotFound) {
				return r, err
			}
		}
		if cursor = next; cursor == "" {
			return store.Record{}, store.ErrNotFound
		}
	}
}
