package single

import (
	"context"
	"fmt"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

var (
	issueScript = redisx.NewScript(store.TokensLua+store.IssueLua, redisx.IsVerdict)
	peekScript  = redisx.NewScript(store.TokensLua+store.PeekLua, redisx.IsTexts)
)

// Issue implements [store.Tokener]: one script, harmless when sent again.
func (e *Engine) Issue(ctx context.Context, i store.Issue) error {
	keys, args, err := i.Call()
	if err != nil {
		return err
	}
	reply, _, err := e.write(ctx, issueScript, keys, args)
	if err != nil {
		return fmt.Errorf("issuing a token: %w", err)
	}
	return store.Issued(text(items(reply), 0))
}

// Peek implements [store.Tokener]: one script, which only reads.
func (e *Engine) Peek(ctx context.Context, prk recordkey.Key, hash string, now time.Time) (store.Token, error) {
	key, err := store.TokenKey(prk)
	if err != nil {
		return store.Token{}, err
	}
	reply, err := peekScript.Read(ctx, e.sender.Process, []string{key.String()}, []string{hash, store.Millis(now)})
	if err != nil {
		return store.Token{}, redisx.Fail(err)
	}
	if t, ok := store.ParseToken(hash, text(items(reply), 0)); ok {
		return t, nil
	}
	return store.Token{}, store.ErrNotFound
}
