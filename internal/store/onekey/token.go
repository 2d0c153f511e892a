package onekey

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/arg"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/recordkey"
)

// The scripts of Issue, Peek, Invite and Spend.
var (
	IssueScript  = redisx.NewScript(redisx.IsVerdict, token.Lua, history.Lua, token.IssueLua)
	PeekScript   = redisx.NewScript(redisx.IsTexts, token.Lua, token.PeekLua)
	InviteScript = redisx.NewScript(redisx.IsVerdict, token.Lua, token.InviteLua)
	SpentScript  = redisx.NewScript(redisx.IsNumber, token.SpentLua)
)

// Spend implements [store.Tokens] with one script, which may be sent again.
func (ks *OneSlot) Spend(ctx context.Context, ns recordkey.Namespace, hash string, life time.Duration) (bool, error) {
	key, err := token.SpentKey(ns, hash)
	if err != nil {
		return false, err
	}
	reply, _, err := ks.client.Write(ctx, SpentScript, []string{key.String()}, []string{ks.options.NewRev(), arg.Millis(life)})
	if err != nil {
		return false, fmt.Errorf("marking as spent: %w", redisx.Fail(err))
	}
	return reply == int64(1), nil
}

// Issue implements [store.Engine] with one script, which may be sent again.
func (ks *OneSlot) Issue(ctx context.Context, i token.Issue) error {
	key, err := token.Key(i.PRK)
	if err != nil {
		return err
	}
	issued := func(reply any) bool { return redisx.Text(redisx.Items(reply), 0) == "ok" }
	reply, err := ks.writeNoted(ctx, IssueScript, []string{i.PRK.String(), key.String()}, i.Args(), i.PRK, i.Note, issued)
	if err != nil {
		return fmt.Errorf("issuing a token: %w", err)
	}
	switch redisx.Text(redisx.Items(reply), 0) {
	case "ok":
		return nil
	case "conflict":
		return store.ErrConflict
	}
	return store.ErrNotFound
}

// Invite implements [store.Engine] with one script, which may be sent again.
func (ks *OneSlot) Invite(ctx context.Context, i token.Invitation) (token.Token, error) {
	key, err := token.Key(i.PRK)
	if err != nil {
		return token.Token{}, err
	}
	reply, _, err := ks.client.Write(ctx, InviteScript, []string{key.String()}, i.Args())
	if err != nil {
		return token.Token{}, fmt.Errorf("issuing an invitation: %w", err)
	}
	words := redisx.Items(reply)
	if redisx.Text(words, 0) != "ok" {
		return token.Token{}, store.DuplicateField(i.PRK.Field())
	}
	t, ok := token.Parse(i.Hash, redisx.Text(words, 1))
	if !ok {
		return token.Token{}, &store.CorruptError{Key: key.String(), Reason: "not a token"}
	}
	return t.Token, nil
}

// Peek implements [store.Engine] with one script, which only reads and therefore may arrive twice.
func (ks *OneSlot) Peek(ctx context.Context, prk recordkey.Key, hash string, now time.Time) (token.Token, time.Duration, error) {
	key, err := token.Key(prk)
	if err != nil {
		return token.Token{}, 0, err
	}
	return ks.peek(ctx, key, hash, now, false)
}

// PeekIssued implements [store.Engine]. If the token is not in the record, it also looks in the
// entry.
func (ks *OneSlot) PeekIssued(ctx context.Context, prk recordkey.Key, hash string, now time.Time) (token.Token, error) {
	t, _, err := ks.Peek(ctx, prk, hash, now)
	if errors.Is(err, store.ErrNotFound) {
		t, _, err = ks.peek(ctx, prk, hash, now, true)
	}
	return t, err
}

func (ks *OneSlot) peek(ctx context.Context, key recordkey.Key, hash string, now time.Time, waiting bool) (token.Token, time.Duration, error) {
	reply, _, err := ks.client.Write(ctx, PeekScript, []string{key.String()}, token.PeekArgs(hash, now, waiting))
	if err != nil {
		return token.Token{}, 0, redisx.IgnoreUnknownOutcome(err)
	}
	t, left, ok := token.ParsePeek(hash, redisx.Texts(reply))
	if !ok {
		return token.Token{}, 0, store.ErrNotFound
	}
	return t, left, nil
}
