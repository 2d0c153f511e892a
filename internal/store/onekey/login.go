package onekey

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// ThrottleScript counts login attempts.
var ThrottleScript = redisx.NewScript(scripts, "throttle", redisx.IsList)

// Admit implements [store.Engine] with one script for both counters.
func (ks *Keys) Admit(ctx context.Context, a store.Counters) (store.Admission, error) {
	return ks.admission(ctx, "admit", a)
}

func (ks *Keys) admission(ctx context.Context, verb string, a store.Counters) (store.Admission, error) {
	reply, err := ks.throttle(ctx, verb, a, store.Admission{})
	if err != nil {
		return store.Admission{}, err
	}
	return store.Admission{
		Wait: time.Duration(reply[0]) * time.Millisecond, OwnBudget: reply[1] == 1, AtOrigin: reply[2] == 1,
	}, nil
}

// LoginWait implements [store.Engine].
func (ks *Keys) LoginWait(ctx context.Context, a store.Counters) (time.Duration, error) {
	admission, err := ks.WouldAdmit(ctx, a)
	return admission.Wait, err
}

// WouldAdmit returns the result that Admit would return, and counts nothing.
func (ks *Keys) WouldAdmit(ctx context.Context, a store.Counters) (store.Admission, error) {
	return ks.admission(ctx, "ask", a)
}

// Undo implements [store.Engine].
func (ks *Keys) Undo(ctx context.Context, a store.Counters, admission store.Admission) error {
	_, err := ks.throttle(ctx, "forgive", a, admission)
	return err
}

// Withdraw takes back an admission whose attempt did not take place. On a cluster, each call
// changes only the counters of the account or only those of the origin.
func (ks *Keys) Withdraw(ctx context.Context, a store.Counters, admission store.Admission) error {
	_, err := ks.throttle(ctx, "withdraw", a, admission)
	return err
}

// Reset implements [store.Engine].
func (ks *Keys) Reset(ctx context.Context, a store.Counters) error {
	_, err := ks.throttle(ctx, "reset", store.Counters{Account: a.Account, Now: a.Now}, store.Admission{})
	return err
}

// resendLimit limits the time during which a call is sent again. It is less than the minute for
// which the counters remember a call.
const resendLimit = 30 * time.Second

// throttle sends the throttle script until it is answered. The script recognizes a call that it has
// already carried out (I7).
func (ks *Keys) throttle(ctx context.Context, verb string, a store.Counters, admission store.Admission) ([]int64, error) {
	if verb != "admit" && verb != "ask" && !admission.AtOrigin {
		a.Origin = recordkey.Key{}
	}
	keys, args := throttleArgs(verb, a, admission)
	if len(keys) == 0 {
		return nil, nil
	}
	begin, retry := time.Now(), ks.client.Retry
	retry.Retryable = func(err error) bool { return ks.client.Retry.Retryable(err) && time.Since(begin) <= resendLimit }
	reply, _, err := retry.Do(ctx, func(unsure bool) (any, error) {
		if unsure {
			args[sinceArg] = strconv.FormatInt(time.Since(begin).Milliseconds(), 10)
		}
		return ThrottleScript.Write(ctx, ks.client.Process, keys, args)
	})
	if err != nil && verb != "reset" {
		err = redisx.IgnoreUnknownOutcome(err)
	}
	if err != nil {
		return nil, fmt.Errorf("counting attempts: %w", err)
	}
	counts, err := parseCounts(keys, reply)
	switch {
	case errors.Is(err, store.ErrCorrupt):
		return nil, err
	case err != nil:
	case len(counts) == 1:
		err = errMaybeCounted
	default:
		err = redisx.CheckLength(len(counts), 3)
	}
	if err != nil {
		return nil, fmt.Errorf("counting attempts: %w", redisx.Fail(err))
	}
	return counts, nil
}

// parseCounts parses a reply of throttle.lua. It returns ErrCorrupt for a record that does not hold
// counters.
func parseCounts(keys []string, reply any) ([]int64, error) {
	counts, err := redisx.Numbers(reply)
	if len(counts) == 2 && counts[0] == -2 && 1 <= counts[1] && int(counts[1]) <= len(keys) {
		return nil, &store.CorruptError{Key: keys[counts[1]-1], Reason: "not a record of login counters"}
	}
	return counts, err
}

// stateHeader is the number of items in a reply to "look" that precede those of familiar origins.
const stateHeader = 5

// ThrottleState implements [store.Engine] with the same script as Admit, so that the rules are in
// one place. The verb "look" only reads, so the script may arrive twice.
func (ks *Keys) ThrottleState(ctx context.Context, a store.Counters) (store.ThrottleState, error) {
	keys, args := throttleArgs("look", store.Counters{Account: a.Account, Now: a.Now}, store.Admission{})
	reply, _, err := ks.client.Write(ctx, ThrottleScript, keys, args)
	if err != nil {
		return store.ThrottleState{}, fmt.Errorf("reading the counted attempts: %w", redisx.IgnoreUnknownOutcome(err))
	}
	n, err := parseCounts(keys, reply)
	switch {
	case errors.Is(err, store.ErrCorrupt):
		return store.ThrottleState{}, err
	case err == nil && (len(n) < stateHeader || len(n)%2 != stateHeader%2):
		err = redisx.CheckLength(len(n), stateHeader)
	}
	if err != nil {
		return store.ThrottleState{}, fmt.Errorf("reading the counted attempts: %w", redisx.Fail(err))
	}
	state := store.ThrottleState{Now: time.UnixMilli(n[1]), Wait: time.Duration(n[2]) * time.Millisecond, Failures: int(n[3])}
	if n[4] > 0 {
		state.Until = time.UnixMilli(n[4])
	}
	for pair := range slices.Chunk(n[stateHeader:], 2) {
		state.Familiar = append(state.Familiar, store.FamiliarOrigin{LastLogin: time.UnixMilli(pair[0]), Failures: int(pair[1])})
	}
	slices.SortFunc(state.Familiar, func(a, b store.FamiliarOrigin) int {
		return cmp.Or(b.LastLogin.Compare(a.LastLogin), a.Failures-b.Failures)
	})
	return state, nil
}

// errMaybeCounted reports that the reply to a call was lost, and that so many other calls were
// counted since that the counters no longer remember this one.
var errMaybeCounted = errors.New("a reply was lost, and it is unknown whether the attempt was counted")

// sinceArg is the index of the argument that tells throttle.lua how long ago the call was first
// sent.
const sinceArg = 14

func throttleArgs(verb string, a store.Counters, admission store.Admission) (keys, args []string) {
	args = []string{verb, MillisArg(a.Now), a.Name, BoolArg(admission.OwnBudget)}
	for _, n := range []int64{
		store.ThrottleWindow.Milliseconds(), store.StrangerFree, store.StrangerMax,
		store.FamiliarMax, store.FamiliarOrigins, store.FamiliarLife.Milliseconds(),
		store.OriginWindow.Milliseconds(), store.OriginFree, store.MaxDelay.Milliseconds(),
	} {
		args = append(args, strconv.FormatInt(n, 10))
	}
	args = append(args, store.NewRev(), "")
	if a.Account.IsValid() {
		keys, args = append(keys, a.Account.String()), append(args, "account")
	}
	if a.Origin.IsValid() {
		keys, args = append(keys, a.Origin.String()), append(args, "origin")
	}
	return keys, args
}

// Secret implements [store.Engine].
func (ks *Keys) Secret(ctx context.Context, key recordkey.Key, fresh string) (string, error) {
	secret, err := ks.client.Get(ctx, key.String()).Result()
	// A lock that is stored as a secret may be removed again before it is read.
	for left := 3; left > 0 && errors.Is(err, redis.Nil); left-- {
		if err := ks.client.SetNX(ctx, key.String(), fresh, 0).Err(); err != nil {
			return "", redisx.Fail(err)
		}
		secret, err = ks.client.Get(ctx, key.String()).Result()
	}
	return secret, readError(key, err, "not a string (WRONGTYPE)")
}

// TokensLua precedes every script that uses tokens. The other variables are the scripts of Issue,
// Peek, Invite and Limit.
var (
	TokensLua   = redisx.Source(scripts, "tokens")
	IssueScript = redisx.NewScript(scripts, "issue", redisx.IsVerdict, TokensLua, HistoryLua)
	PeekScript  = redisx.NewScript(scripts, "peek", redisx.IsTexts, TokensLua)

	InviteScript = redisx.NewScript(scripts, "invite", redisx.IsVerdict, TokensLua)
	LimitScript  = redisx.NewScript(scripts, "limit", redisx.IsNumber)
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
	args := append(append([]string{i.PRK.Type(), i.Rev}, tokenArgs(i.Token)...), strconv.FormatInt(i.Life.Milliseconds(), 10), strconv.Itoa(maxTokens), MillisArg(i.Now))
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
		strconv.FormatInt(i.Life.Milliseconds(), 10), MillisArg(i.Now)))
	switch {
	case err != nil:
		return fmt.Errorf("issuing an invitation: %w", err)
	case redisx.Text(redisx.Items(reply), 0) != "ok":
		return store.DuplicateField(i.PRK.Field())
	}
	return nil
}

// Limit implements [store.Engine] with one script. If the script is sent again after a lost reply,
// it counts twice, which allows fewer uses, never more.
func (ks *Keys) Limit(ctx context.Context, l store.Limit) (time.Duration, error) {
	reply, _, err := ks.client.Write(ctx, LimitScript, []string{l.Counter.String()}, []string{
		strconv.Itoa(l.Max), strconv.FormatInt(l.Window.Milliseconds(), 10), MillisArg(l.Now),
	})
	if err != nil {
		return 0, fmt.Errorf("counting: %w", redisx.IgnoreUnknownOutcome(err))
	}
	wait, _ := reply.(int64)
	return time.Duration(wait) * time.Millisecond, nil
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
	reply, _, err := ks.client.Write(ctx, PeekScript, []string{key.String()}, []string{hash, MillisArg(now), where})
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
	return []string{BoolArg(e.All), MillisArg(e.Now), e.Spend, recordkey.Escape(e.Purpose)}
}

// MillisArg returns a time as an argument of scripts: in milliseconds, or "" for the zero time.
func MillisArg(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return strconv.FormatInt(at.UnixMilli(), 10)
}
