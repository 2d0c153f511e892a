// Package onekey holds the methods that both engines share. They need only single commands,
// pipelines of commands, and scripts on records of one slot.
package onekey

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/arg"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/recordkey"
)

var (
	//go:embed scripts
	scripts embed.FS

	RemoveScript          = redisx.NewScript(redisx.IsNumber, source("remove"))
	ReplaceSchemaScript   = redisx.NewScript(redisx.IsNumber, source("replaceschema"))
	TombstoneLua          = source("tombstone")
	FinishTombstoneScript = redisx.NewScript(redisx.IsNumber, token.Lua, TombstoneLua, source("finishtombstone"))
	ForgetScript          = redisx.NewScript(redisx.IsNumber, TombstoneLua, source("forget"))
	UnholdScript          = redisx.NewScript(redisx.IsNumber, source("forgetheld"))
	RestoreHeldScript     = redisx.NewScript(redisx.IsNumber, source("restoreheld"))
	PreserveScript        = redisx.NewScript(redisx.IsNumber, TombstoneLua, source("preserve"))
	MoveHoldScript        = redisx.NewScript(redisx.IsNumber, source("movehold"))
	PromoteScript         = redisx.NewScript(redisx.IsNumber, source("promote"))
	FilledScript          = redisx.NewScript(redisx.IsNumber, source("filled"))
)

func source(name string) string { return redisx.Source(scripts, name) }

// OneSlot implements the methods of an engine that need only one slot at a time.
type OneSlot struct {
	client  *redisx.Client
	finds   *redisx.Batcher[*pendingLookup]
	options Options
	clock   serverClock // of the server, if there is only one
}

// Options describes the server of a client and how the engine uses it.
type Options struct {
	// OneSlot says that all keys are on one server, so that any of them may be used together in a
	// command or a transaction.
	OneSlot bool
	// Sorted means that the server is the embedded store. It has commands of its own for scans
	// (ScanSorted), and returns a whole record at once for SSCAN and HSCAN.
	Sorted bool
	// MemberBatch replaces store.MemberBatch in tests. 0 means store.MemberBatch.
	MemberBatch int
	// TombstoneLife is the time to live of a tombstone in seconds.
	TombstoneLife string
	// Notes says which keys a script needs to write the history: history.InBoth or
	// history.InRecord.
	Notes string
	// PartitionedFeed says that a feed has history.FeedParts parts instead of one.
	PartitionedFeed bool
	// FeedEntries is the maximum number of entries in a feed. 0 means the limit of
	// history.FeedLimits.
	FeedEntries int64
	// NewRev returns a random text that identifies a call. nil means store.NewRev.
	NewRev func() string
	// AfterNote is called after lines were added to the history of an entry, unless it is nil.
	AfterNote func(ctx context.Context, prk recordkey.Key, n history.Note)
	// Bulk implements the method Bulk of an engine. nil means that each change is saved at once.
	Bulk func(ctx context.Context) (context.Context, func(context.Context) error)
	// Lazy returns a context whose changes need not be durable when they are answered. nil means
	// that all changes are durable.
	Lazy func(context.Context) context.Context
	// Close releases the resources that were opened for the engine. nil leaves the client open.
	Close func() error
}

// New returns the methods for a client.
func New(client *redisx.Client, o Options) *OneSlot {
	if o.Close == nil {
		o.Close = func() error { return nil }
	}
	o.Close = sync.OnceValue(o.Close)
	if o.NewRev == nil {
		o.NewRev = store.NewRev
	}
	o.MemberBatch = cmp.Or(o.MemberBatch, store.MemberBatch)
	ks := &OneSlot{client: client, options: o}
	ks.finds = redisx.NewBatcher(redisx.MaxBatch, ks.findBatch)
	return ks
}

// Client returns the client that the engine was given. Callers observe it, and tests use it to read
// records directly.
func (ks *OneSlot) Client() redis.UniversalClient { return ks.client.UniversalClient }

// Ping implements [store.Engine].
func (ks *OneSlot) Ping(ctx context.Context) error {
	err := ks.client.Ping(ctx).Err()
	if redis.HasErrorPrefix(err, "MISCONF") {
		return nil // a server that cannot save its data refuses PING, but not reads
	}
	return redisx.Fail(err)
}

// Close implements [store.Engine]. Further calls return the same error.
func (ks *OneSlot) Close() error { return ks.options.Close() }

// Bulk implements [store.Engine].
func (ks *OneSlot) Bulk(ctx context.Context) (context.Context, func(context.Context) error) {
	if ks.options.Bulk == nil {
		return ctx, func(context.Context) error { return nil }
	}
	bulk, end := ks.options.Bulk(ctx)
	return bulk, func(ctx context.Context) error { return redisx.Fail(end(ctx)) }
}

// Repair carries out the steps that need one slot: store.FinishDelete, store.ForgetUID,
// store.ForgetHeld, store.RestoreHeld, store.MoveHeld, store.Preserve, store.ReplaceSchema, and
// store.Remove, which on a cluster must have no owner. It does nothing for store.Publish.
func (ks *OneSlot) Repair(ctx context.Context, s store.RepairStep) (bool, error) {
	switch s := s.(type) {
	case store.Remove:
		return ks.remove(ctx, s)
	case store.ReplaceSchema:
		return ks.replaceSchema(ctx, s)
	case store.FinishDelete:
		return ks.finishTombstone(ctx, s.Entry)
	case store.RestoreHeld:
		return ks.restoreHeld(ctx, s)
	case store.ForgetHeld:
		return ks.forgetHeld(ctx, s)
	case store.MoveHeld:
		return ks.moveHeld(ctx, s)
	case store.Preserve:
		args := []string{s.Field, s.Wire, ks.options.TombstoneLife}
		return ks.RunBool(ctx, PreserveScript, []string{s.Entry.String()}, args...)
	case store.ForgetUID:
		return ks.forget(ctx, s.Entry)
	case store.Publish: // the script that wrote the line added it to the feed
		return true, nil
	}
	return false, fmt.Errorf("unknown repair step: %T", s)
}

// finishTombstone finishes a delete. It passes the record of tokens to the script only if the
// script has to remove something from it: in a slot that is being migrated, there may be no node
// that serves both keys.
func (ks *OneSlot) finishTombstone(ctx context.Context, entry recordkey.Key) (bool, error) {
	tokens, err := token.Key(entry)
	if err != nil {
		return false, err
	}
	args := []string{ks.options.TombstoneLife}
	reply, _, err := ks.client.Write(ctx, FinishTombstoneScript, []string{entry.String()}, args)
	if reply == int64(2) {
		reply, _, err = ks.client.Write(ctx, FinishTombstoneScript, []string{entry.String(), tokens.String()}, args)
	}
	return reply == int64(1), redisx.IgnoreUnknownOutcome(err)
}

// forget makes a retired UID free again.
func (ks *OneSlot) forget(ctx context.Context, entry recordkey.Key) (bool, error) {
	reply, unsure, err := ks.client.Write(ctx, ForgetScript, []string{entry.String()}, []string{ks.options.TombstoneLife})
	return reply == int64(1) || unsure, err
}

// restoreHeld writes the SRK of a held value, or lengthens the life of one that exists. On a
// cluster, a new SRK has a rev that no attempt has.
func (ks *OneSlot) restoreHeld(ctx context.Context, h store.RestoreHeld) (bool, error) {
	rest := ""
	if !ks.options.OneSlot {
		rest = " " + ks.options.NewRev()
	}
	until := h.Until
	if longest := time.Now().Add(store.MaxHold); until.After(longest) {
		until = longest
	}
	end := strconv.FormatInt(store.HeldKeyOf(h.SRK, until).End, 10)
	args := []string{h.Entry.In(recordkey.Namespace{}).String(), rest, end}
	return ks.RunBool(ctx, RestoreHeldScript, []string{h.SRK.String()}, args...)
}

// forgetHeld removes a held value from a tombstone.
func (ks *OneSlot) forgetHeld(ctx context.Context, f store.ForgetHeld) (bool, error) {
	reply, unsure, err := ks.client.Write(ctx, UnholdScript, []string{f.Entry.String()}, []string{store.FieldHeld(f.Field, f.Value)})
	return reply == int64(1) || unsure, err
}

// moveHeld moves a held value to another field or canonical form, or removes it.
func (ks *OneSlot) moveHeld(ctx context.Context, m store.MoveHeld) (bool, error) {
	to := ""
	if m.To != (store.HeldValue{}) {
		to = m.To.Name()
	}
	reply, unsure, err := ks.client.Write(ctx, MoveHoldScript, []string{m.Entry.String()}, []string{m.From.Name(), to, m.Seen})
	return reply == int64(1) || unsure, redisx.IgnoreUnknownOutcome(err)
}

func (ks *OneSlot) remove(ctx context.Context, r store.Remove) (bool, error) {
	keys := []string{r.Key}
	if r.Owner != "" {
		keys = append(keys, r.Owner)
	}
	if r.Schema.Key.IsValid() {
		keys = append(keys, r.Schema.Key.String())
	}
	return ks.RemoveUntil(ctx, r, keys, "")
}

// RemoveUntil removes a record as store.Remove describes. It returns ErrConflict if a schema other
// than r.Schema is stored, or after until, a time in milliseconds by the server's clock; "" means
// no limit.
func (ks *OneSlot) RemoveUntil(ctx context.Context, r store.Remove, keys []string, until string) (bool, error) {
	args := []string{r.Kind, arg.Bool(r.Seen.Exists), r.Seen.Wire, r.Member, r.Field, r.Value, r.Schema.Fingerprint, until}
	reply, _, err := ks.client.Write(ctx, RemoveScript, keys, args)
	if err == nil && reply == int64(-1) {
		err = store.ErrConflict
	}
	return reply == int64(1), redisx.IgnoreUnknownOutcome(err)
}

// replaceSchema replaces the stored schema. Every later change by another writer is checked against
// the new schema.
func (ks *OneSlot) replaceSchema(ctx context.Context, r store.ReplaceSchema) (bool, error) {
	g := r.Guard
	_, _, err := ks.client.Retry.Do(ctx, func(bool) (any, error) {
		cmd := redisx.NewNoRetryCmd(ctx, []any{"sadd", g.Types.String(), g.Key.Parts()[1]})
		return redisx.Answer(cmd.Cmd, ks.client.Process(ctx, cmd), redisx.IsNumber)
	})
	if err != nil {
		return false, redisx.IgnoreUnknownOutcome(err)
	}
	args := []string{r.Seen}
	for _, f := range r.Fields {
		args = append(args, f.Field, f.Wire)
	}
	return ks.RunBool(ctx, ReplaceSchemaScript, []string{g.Key.String()}, args...)
}

// Complete puts the records that a ~fill field names in their places. Any process may do so, any
// number of times.
func (ks *OneSlot) Complete(ctx context.Context, entry recordkey.Key, fill string, align Aligner) error {
	f := store.ParseFill(entry, fill)
	for _, p := range f.Parts {
		members, aside, err := ks.promote(ctx, p, f.Rev)
		if err == nil && len(members) > 0 {
			err = align(ctx, p.Set, members)
		}
		if err == nil && aside {
			err = ks.Drain(ctx, store.DropKey(p.Set, f.Rev), p.Set, align)
		}
		if err != nil {
			return err
		}
	}
	_, err := ks.RunBool(ctx, FilledScript, []string{entry.String()}, fill)
	return err
}

// promote puts one prepared record in its place, and returns the members whose index sets must be
// updated. It reads them before it moves the record, including those of a set that is replaced: if
// it got them from the reply to the move, a lost reply would lose them. aside reports whether the
// replaced set may lie at store.DropKey and must still be drained there, either because it was
// large, or because another call moved it there and died.
func (ks *OneSlot) promote(ctx context.Context, p store.FillPart, rev string) (members []string, aside bool, err error) {
	stage := store.PreparedKey(p.Set, rev)
	keys := []string{stage, p.Set.String()}
	if p.Indexed {
		var replaced []string
		isSet, whole := false, true
		if members, isSet, err = ks.allMembers(ctx, stage); err != nil {
			return nil, false, err
		}
		if p.How == store.FillReplace && len(members) > 0 || p.How == store.FillDrop && !isSet {
			if replaced, whole, _, err = ks.Members(ctx, p.Set.String()); err != nil {
				return nil, false, err
			}
		}
		if whole {
			members = append(members, replaced...)
		} else {
			keys, aside = append(keys, store.DropKey(p.Set, rev)), true
		}
	}
	promoted, err := ks.RunBool(ctx, PromoteScript, keys, p.How, arg.Bool(p.Indexed))
	return members, aside || !promoted && p.Indexed && p.How != store.FillJoin, err
}

// RunBool runs a script that may arrive twice, and reports whether it returned 1.
func (ks *OneSlot) RunBool(ctx context.Context, s redisx.Script, keys []string, args ...string) (bool, error) {
	reply, _, err := ks.client.Write(ctx, s, keys, args)
	return reply == int64(1), redisx.IgnoreUnknownOutcome(err)
}

// Secret implements [store.Engine].
func (ks *OneSlot) Secret(ctx context.Context, key recordkey.Key, fresh string) (string, error) {
	secret, err := ks.client.Get(ctx, key.String()).Result()
	// Some callers store locks, which may be removed again before they are read.
	for left := 3; left > 0 && errors.Is(err, redis.Nil); left-- {
		if err := ks.client.SetNX(ctx, key.String(), fresh, 0).Err(); err != nil {
			return "", redisx.Fail(err)
		}
		secret, err = ks.client.Get(ctx, key.String()).Result()
	}
	return secret, readError(key, err, "not a string (WRONGTYPE)")
}

// readError returns the error of reading a record. If the record has another Redis type, it is
// damaged for the given reason.
func readError(key recordkey.Key, err error, reason string) error {
	if redisx.WrongType(err) {
		return &store.CorruptError{Key: key.String(), Reason: reason}
	}
	return redisx.Fail(err)
}
