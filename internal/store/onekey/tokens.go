package onekey

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// TokensLua is what every script begins with that has to do with tokens; and the scripts of Issue and Peek.
var (
	TokensLua   = redisx.Source(scripts, "tokens")
	IssueScript = redisx.NewScript(scripts, "issue", redisx.IsVerdict, TokensLua)
	PeekScript  = redisx.NewScript(scripts, "peek", redisx.IsTexts, TokensLua)
)

// mostTokens is how many tokens of an entry are good at a time: the newest.
const mostTokens = 16

// Issue implements [store.Engine]: one script, harmless when sent again.
func (ks *Keys) Issue(ctx context.Context, i store.Issue) error {
	key, err := store.TokenKey(i.PRK)
	if err != nil {
		return err
	}
	fields := make([]string, len(i.Fields))
	for j, f := range i.Fields {
		fields[j] = hex.EncodeToString([]byte(f))
	}
	reply, _, err := ks.client.Write(ctx, IssueScript, []string{i.PRK.String(), key.String()}, []string{
		i.PRK.Type(), i.Rev, i.Hash, recordkey.Escape(i.Purpose), strings.Join(fields, "/"), recordkey.Escape(i.Value),
		strconv.FormatInt(i.Life.Milliseconds(), 10), strconv.Itoa(mostTokens), millis(i.Now),
	})
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

// Peek implements [store.Engine]: one script, which only reads and may arrive twice.
func (ks *Keys) Peek(ctx context.Context, prk recordkey.Key, hash string, now time.Time) (store.Token, error) {
	key, err := store.TokenKey(prk)
	if err != nil {
		return store.Token{}, err
	}
	reply, _, err := ks.client.Write(ctx, PeekScript, []string{key.String()}, []string{hash, millis(now)})
	if err != nil {
		return store.Token{}, redisx.Harmless(err)
	}
	if t, ok := parseToken(hash, redisx.Text(redisx.Items(reply), 0)); ok {
		return t, nil
	}
	return store.Token{}, store.ErrNotFound
}

// EndingArgs lays an ending out as scripts read it: all, now, spend, purpose.
func EndingArgs(e store.Ending) []string {
	return []string{Flag(e.All), millis(e.Now), e.Spend, recordkey.Escape(e.Purpose)}
}

// millis is a time as scripts read it; "" for the zero time.
func millis(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return strconv.FormatInt(at.UnixMilli(), 10)
}

// parseToken reads a member of the record as issue.lua writes it; false for another text.
func parseToken(hash, text string) (store.Token, bool) {
	words := strings.Split(text, " ")
	if len(words) != 5 {
		return store.Token{}, false
	}
	t := store.Token{Hash: hash}
	for field := range strings.SplitSeq(words[3], "/") {
		name, err := hex.DecodeString(field)
		if err != nil {
			return store.Token{}, false
		}
		if len(name) > 0 {
			t.Fields = append(t.Fields, string(name))
		}
	}
	var err1, err2 error
	t.Purpose, err1 = recordkey.Unescape(words[2])
	t.Value, err2 = recordkey.Unescape(words[4])
	return t, err1 == nil && err2 == nil
}
