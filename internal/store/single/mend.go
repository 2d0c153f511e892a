package single

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

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
		return e.alignIndex(ctx, s)
	case store.Rank:
		return true, e.rank(ctx, s)
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
	keys := []string{a.Index.String(), a.Entry.String()}
	if !a.Entry.IsValid() {
		keys[1] = keys[0] // which is no entry
	}
	value := a.Facet.Wire
	if a.Set.IsValid() {
		keys, value = append(keys, a.Set.String()), a.Value
	}
	return e.Yes(ctx, alignScript, keys, a.Member, a.Facet.Field, value)
}

func (e *Engine) rank(ctx context.Context, r store.Rank) error {
	keys, how := []string{r.At.Key.String()}, "take"
	if r.Entry.IsValid() {
		keys = append(keys, r.Entry.String())
	}
	if r.Free {
		how = "free"
	}
	_, _, err := e.client.Write(ctx, orderScript, keys, []string{r.At.Member, r.At.Facet.Field, r.At.Facet.Wire, how})
	if redisx.WrongType(err) {
		return &store.CorruptError{Key: r.At.Key.String(), Reason: onekey.NotOrdered}
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
// done there. Each step may be done again.
func (e *Engine) completeEntry(ctx context.Context, entry recordkey.Key, fill string) error {
	f := store.ParseFill(entry, fill)
	for _, p := range f.Parts {
		if err := e.promote(ctx, entry, p, f.Rev); err != nil {
			return redisx.Fail(err)
		}
	}
	return redisx.Fail(e.client.HDel(ctx, entry.String(), store.FieldFill).Err())
}

func (e *Engine) promote(ctx context.Context, entry recordkey.Key, p store.FillPart, rev string) error {
	stage, set := store.StageKey(p.Set, rev), p.Set.String()
	var members []string
	var err error
	if p.Indexed {
		if members, err = e.client.SMembers(ctx, stage).Result(); err != nil && !redisx.WrongType(err) {
			return err
		}
	}
	if p.Replaces {
		err = e.replace(ctx, stage, set)
	} else if err = e.client.SUnionStore(ctx, set, set, stage).Err(); err == nil {
		err = e.client.Unlink(ctx, stage).Err()
	}
	for i, index := range memberIndexes(p.Set, members) {
		if err == nil && index != p.Set {
			prk := entry.In(recordkey.Namespace{}).String()
			_, err = e.alignIndex(ctx, store.Align{Index: index, Member: prk, Entry: entry, Set: p.Set, Value: members[i]})
		}
	}
	return err
}

// replace moves a record over another, unless that was done before.
func (e *Engine) replace(ctx context.Context, from, to string) error {
	if err := e.client.Persist(ctx, from).Err(); err != nil {
		return err
	}
	err := e.client.Rename(ctx, from, to).Err()
	if redisx.IsAnswer(err) && strings.Contains(err.Error(), "no such key") {
		return nil
	}
	return err
}

// complete completes an entry of which a record is asked for.
func (e *Engine) complete(ctx context.Context, entry recordkey.Key) error {
	fill, err := e.client.HGet(ctx, entry.String(), store.FieldFill).Result()
	if err == redis.Nil {
		return nil
	}
	if err != nil {
		return redisx.Fail(err)
	}
	return e.completeEntry(ctx, entry, fill)
}
