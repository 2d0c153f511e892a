package single

import (
	"context"
	"fmt"
	"slices"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/arg"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

var (
	alignScript   = redisx.NewScript(redisx.IsNumber, source("align"))
	realignScript = redisx.NewScript(redisx.IsNumber, source("realign"))
	orderScript   = redisx.NewScript(redisx.IsVerdict, source("order"))
)

// Repair implements [store.Engine].
func (e *Engine) Repair(ctx context.Context, s store.RepairStep) (bool, error) {
	switch s := s.(type) {
	case store.Align:
		if s.Ordered() {
			return true, e.alignOrder(ctx, s)
		}
		return e.alignIndex(ctx, s)
	case store.PlacePrepared:
		return true, e.completeEntry(ctx, s.Entry, s.Fill)
	case store.Drain:
		return true, e.Drain(ctx, store.DropKey(s.Record, s.Rev), s.Record, e.realign)
	case store.Copy:
		return e.copy(ctx, s)
	case store.AwaitSchema:
		return true, nil // every change compares the schema
	}
	return e.OneSlot.Repair(ctx, s)
}

func (e *Engine) alignIndex(ctx context.Context, a store.Align) (bool, error) {
	keys := []string{a.At.Key.String(), a.Entry.String()}
	if !a.Entry.IsValid() {
		keys[1] = keys[0] // not an entry, so the script finds none
	}
	if a.Set.IsValid() {
		keys = append(keys, a.Set.String())
	}
	return e.RunBool(ctx, alignScript, keys, a.At.Member, a.At.Facet.Field, a.At.Facet.Wire)
}

func (e *Engine) alignOrder(ctx context.Context, r store.Align) error {
	keys, how := []string{r.At.Key.String()}, "take"
	if r.Entry.IsValid() {
		keys = append(keys, r.Entry.String())
	}
	if r.Vacate {
		how = "free"
	}
	_, _, err := e.client.Write(ctx, orderScript, keys, []string{r.At.Member, r.At.Facet.Field, r.At.Facet.Wire, how, arg.Bool(r.At.Unset)})
	if redisx.WrongType(err) {
		return &store.CorruptError{Key: r.At.Key.String(), Reason: onekey.NotSortedSet}
	}
	if err != nil {
		return fmt.Errorf("repairing %s: %w", r.At.Key, err)
	}
	return nil
}

// copy copies a record by the server's own command.
func (e *Engine) copy(ctx context.Context, c store.Copy) (bool, error) {
	n, err := e.client.Do(ctx, "copy", c.From, c.To, "replace").Int64()
	if err != nil {
		return false, fmt.Errorf("copying %s to %s: %w", c.From, c.To, redisx.Fail(err))
	}
	return n == 1, nil
}

// completeEntry moves the records that a ~fill field names into place. An entry has such a field if
// it was copied here from a cluster that had not yet moved them.
func (e *Engine) completeEntry(ctx context.Context, entry recordkey.Key, fill string) error {
	return e.Complete(ctx, entry, fill, e.realign)
}

// realign updates the index sets of members of set, or of former members, so that they agree with
// set.
func (e *Engine) realign(ctx context.Context, set recordkey.Key, members []string) error {
	for some := range slices.Chunk(members, e.options.MemberBatch) {
		keys, args := []string{set.PRK().String(), set.String()}, []string{set.PRK().In(recordkey.Namespace{}).String()}
		for i, index := range memberIndexes(set, some) {
			if index != set {
				keys, args = append(keys, index.String()), append(args, some[i])
			}
		}
		if len(args) == 1 {
			continue
		}
		if _, err := e.RunBool(ctx, realignScript, keys, args...); err != nil {
			return err
		}
	}
	return nil
}

// dropMovedAside drops the records that a change moved aside and named in ~drop of the entry. It
// ignores failures, since the next change of the entry or a check continues where it stopped.
func (e *Engine) dropMovedAside(ctx context.Context, entry recordkey.Key, dropped string) {
	if dropped != "" {
		_ = e.DrainAll(ctx, entry, dropped, e.realign)
	}
}
