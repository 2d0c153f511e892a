package onekey

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// TokensLua is what every script begins with that has to do with tokens.
//
//go:embed scripts/tokens.lua
var TokensLua string

var (
	//go:embed scripts/issue.lua
	issueLua string
	//go:embed scripts/peek.lua
	peekLua string
)

// The scripts of Issue and Peek.
var (
	IssueScript = redisx.NewScript(TokensLua+issueLua, redisx.IsVerdict)
	PeekScript  = redisx.NewScript(TokensLua+peekLua, redisx.IsTexts)
)

// Issue implements [store.Engine]: one script, harmless when sent again.
func (ks *Keys) Issue(ctx context.Context, i store.Issue) error {
	keys, args, err := i.Call()
	if err != nil {
		return err
	}
	reply, _, err := ks.client.Write(ctx, IssueScript, keys, args)
	if err != nil {
		return fmt.Errorf("issuing a token: %w", err)
	}
	return store.Issued(redisx.Text(redisx.Items(reply), 0))
}

// Peek implements [store.Engine]: one script, which only reads and may arrive twice.
func (ks *Keys) Peek(ctx context.Context, prk recordkey.Key, hash string, now time.Time) (store.Token, error) {
	key, err := store.TokenKey(prk)
	if err != nil {
		return store.Token{}, err
	}
	reply, _, err := ks.client.Write(ctx, PeekScript, []string{key.String()}, []string{hash, store.Millis(now)})
	if err != nil {
		return store.Token{}, redisx.Harmless(err)
	}
	if t, ok := store.ParseToken(hash, redisx.Text(redisx.Items(reply), 0)); ok {
		return t, nil
	}
	return store.Token{}, store.ErrNotFound
}
