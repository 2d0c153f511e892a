package onekey

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/arg"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// TokensLua precedes every script that uses tokens. The other variables are the scripts of Issue,
// Peek and Invite.
var (
	TokensLua   = source("tokens")
	IssueScript = redisx.NewScript(redisx.IsVerdict, TokensLua, history.Lua, source("issue"))
	PeekScript  = redisx.NewScript(redisx.IsTexts, TokensLua, source("peek"))

	InviteScript = redisx.NewScript(redisx.IsVerdict, TokensLua, source("invite"))
)

// maxTokens is the maximum number of valid tokens of an entry. If there are more, the oldest one of
// the most frequent kind goes; see issue.lua.
const maxTokens = 16

// Issue implements [store.Engine] with one script, which may be sent again.
func (ks *Keys) Issue(ctx context.Context, i store.Issue) error {
	key, err := store.TokenKey(i.PRK)
	if err != nil {
		return err
	}
	args := append(append([]string{i.PRK.Type(), i.Rev}, tokenArgs(i.Token)...), strconv.FormatInt(i.Life.Milliseconds(), 10), strconv.Itoa(maxTokens), arg.Time(i.Now))
	issued := func(reply any) bool { return redisx.Text(redisx.Items(reply), 0) == "ok" }
	reply, err := ks.writeNoted(ctx, IssueScript, []string{i.PRK.String(), key.String()}, args, i.PRK, i.Note, issued)
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

// tokenArgs returns a token as arguments of scripts: hash, purpose, facets and value.
func tokenArgs(t store.Token) []string {
	fields := make([]string, len(t.Fields))
	for i, f := range t.Fields {
		fields[i] = hex.EncodeToString([]byte(f))
	}
	return []string{t.Hash, recordkey.Escape(t.Purpose), strings.Join(fields, "/"), recordkey.Escape(t.Value)}
}

// Invite implements [store.Engine] with one script, which may be sent again.
func (ks *Keys) Invite(ctx context.Context, i store.Invitation) error {
	key, err := store.TokenKey(i.PRK)
	if err != nil {
		return err
	}
	reply, _, err := ks.client.Write(ctx, InviteScript, []string{key.String()}, append(tokenArgs(i.Token),
		strconv.FormatInt(i.Life.Milliseconds(), 10), arg.Time(i.Now)))
	switch {
	case err != nil:
		return fmt.Errorf("issuing an invitation: %w", err)
	case redisx.Text(redisx.Items(reply), 0) != "ok":
		return store.DuplicateField(i.PRK.Field())
	}
	return nil
}

// Peek implements [store.Engine] with one script, which only reads and so may arrive twice.
func (ks *Keys) Peek(ctx context.Context, prk recordkey.Key, hash string, now time.Time) (store.Token, time.Duration, error) {
	key, err := store.TokenKey(prk)
	if err != nil {
		return store.Token{}, 0, err
	}
	return ks.peek(ctx, key, hash, now, "")
}

// PeekIssued implements [store.Engine]. It calls Peek, and runs a second script if the token is not
// in the record.
func (ks *Keys) PeekIssued(ctx context.Context, prk recordkey.Key, hash string, now time.Time) (store.Token, error) {
	t, _, err := ks.Peek(ctx, prk, hash, now)
	if errors.Is(err, store.ErrNotFound) {
		t, _, err = ks.peek(ctx, prk, hash, now, "waiting")
	}
	return t, err
}

func (ks *Keys) peek(ctx context.Context, key recordkey.Key, hash string, now time.Time, where string) (store.Token, time.Duration, error) {
	reply, _, err := ks.client.Write(ctx, PeekScript, []string{key.String()}, []string{hash, arg.Time(now), where})
	if err != nil {
		return store.Token{}, 0, redisx.IgnoreUnknownOutcome(err)
	}
	words := redisx.Items(reply)
	t, ok := store.ParseToken(hash, redisx.Text(words, 0))
	left, parseErr := strconv.ParseInt(redisx.Text(words, 1), 10, 64)
	if !ok || parseErr != nil {
		return store.Token{}, 0, store.ErrNotFound
	}
	return t.Token, time.Duration(left) * time.Millisecond, nil
}

// EndingArgs returns a TokenEnding as arguments of scripts: all, now, spend and purpose.
func EndingArgs(e store.TokenEnding) []string {
	return []string{arg.Bool(e.All), arg.Time(e.Now), e.Spend, recordkey.Escape(e.Purpose)}
}
