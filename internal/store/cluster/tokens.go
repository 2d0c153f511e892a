package cluster

import (
	"context"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// Issue implements [store.Tokener]: the tokens of an entry lie in its slot. While that is being migrated, the first
// one of an entry may have to wait for the end of it.
func (e *Engine) Issue(ctx context.Context, i store.Issue) error {
	keys, args, err := i.Call()
	if err != nil {
		return err
	}
	r, err := e.run(ctx, step{issueScript, keys, args})
	if err != nil {
		return err
	}
	reply, _ := r.value.([]any)
	return store.Issued(item(reply, 0))
}

// Peek implements [store.Tokener].
func (e *Engine) Peek(ctx context.Context, prk recordkey.Key, hash string, now time.Time) (store.Token, error) {
	key, err := store.TokenKey(prk)
	if err != nil {
		return store.Token{}, err
	}
	r, err := e.run(ctx, on(peekScript, key.String(), hash, store.Millis(now)))
	if err != nil {
		return store.Token{}, harmless(err)
	}
	reply, _ := r.value.([]any)
	if t, ok := store.ParseToken(hash, item(reply, 0)); ok {
		return t, nil
	}
	return store.Token{}, store.ErrNotFound
}
