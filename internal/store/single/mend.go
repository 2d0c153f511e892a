package single

import (
	"context"
	"fmt"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

var (
	alignScript = redisx.NewScript(scripts, "align", redisx.IsNumber)
	orderScript = redisx.NewScript(scripts, "order", redisx.IsVerdict)
)

// Mend implements [store.Engine].
func (e *Engine) Mend(ctx context.Context, s store.Step) (bool, error) {
	switch s := s.(type) {
	case store.Align:
		if s.Ordered() {
			return true, e.rank(ctx, s)
		}
		return e.alignIndex(ctx, s)
	case store.Complete:
		return true, e.completeEntry(ctx, s.Entry, s.Fill)
	case store.Copy:
		return e.copy(ctx, s)
	case store.AwaitSchema:
		return true, nil // every change compares
	}
	return e.Keys.Mend(ctx, s)
}

func (e *Engine) alignIndex(ctx context.Context, a store.Align) (bool, error) {
	keys := []string{a.At.Key.String(), a.Entry.String()}
	if !a.Entry.IsValid() {
		keys[1] = keys[0] // which is no entry
	}
	if a.Set.IsValid() {
		keys = append(keys, a.Set.String())
	}
	return e.Yes(ctx, alignScript, keys, a.At.Member, a.At.Facet.Field, a.At.Facet.Wire)
}

func (e *Engine) rank(ctx context.Context, r store.Align) error {
	keys, how := []string{r.At.Key.String()}, "take"
	if r.Entry.IsValid() {
		keys = append(keys, r.Entry.String())
	}
	if r.Free {
		how = "free"
	}
	_, _, err := e.client.Write(ctx, orderScript, keys, []string{r.At.Member, r.At.Facet.Field, r.At.Facet.Wire, how})
	if redisx.WrongType(err) {
		return &store.CorruptError{Key: r.At.Key.String(), Reason: onekey.NotSortedSet}
	}
	if err != nil {
		return fmt.Errorf("mending %s: %w", r.At.Key, err)
	}
	return nil
}

// copy is one command of the server's.
func (e *Engine) copy(ctx context.Context, c store.Copy) (bool, error) {
	n, err := e.client.Do(ctx, "copy", c.From, c.To, "replace").Int64()
	if err != nil {
		return false, fmt.Errorf("copying a record: %w", redisx.Fail(err))
	}
	return n == 1, nil
}

// completeEntry puts in place what a ~fill field says, for entries that were moved here from a cluster before that was
// done there.
func (e *Engine) completeEntry(ctx context.Context, entry recordkey.Key, fill string) error {
	prk := entry.In(recordkey.Namespace{}).String()
	return e.Complete(ctx, entry, fill, func(set recordkey.Key, members []string) error {
		for i, index := range memberIndexes(set, members) {
			if index == set {
				continue
			}
			at := store.Ranked{Key: index, Member: prk, Facet: store.Facet{Wire: members[i]}}
			if _, err := e.alignIndex(ctx, store.Align{Entry: entry, At: at, Set: set}); err != nil {
				return err
			}
		}
		return nil
	})
}
