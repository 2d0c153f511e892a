package onekey

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/internal/store/throttle"
	"github.com/coffeenode/userdb/recordkey"
)

// ThrottleScript counts login attempts, and LimitScript other uses.
var (
	ThrottleScript = redisx.NewScript(redisx.IsList, throttle.Lua)
	LimitScript    = redisx.NewScript(redisx.IsNumber, throttle.LimitLua)
)

// Admit implements [store.Engine] with one script for both counters.
func (ks *OneSlot) Admit(ctx context.Context, c throttle.Counters) (throttle.Admission, error) {
	return ks.throttle(ctx, throttle.Admit, c, throttle.Admission{})
}

// LoginWait implements [store.Engine].
func (ks *OneSlot) LoginWait(ctx context.Context, c throttle.Counters) (time.Duration, error) {
	admission, err := ks.WouldAdmit(ctx, c)
	return admission.Wait, err
}

// WouldAdmit returns what Admit would return, without counting the attempt.
func (ks *OneSlot) WouldAdmit(ctx context.Context, c throttle.Counters) (throttle.Admission, error) {
	return ks.throttle(ctx, throttle.Ask, c, throttle.Admission{})
}

// Undo implements [store.Engine].
func (ks *OneSlot) Undo(ctx context.Context, c throttle.Counters, as throttle.Admission) error {
	return ks.undo(ctx, throttle.Forgive, c, as)
}

// Withdraw takes back an admission whose attempt did not take place. On a cluster, each call
// changes only the counters of the account or only those of the origin.
func (ks *OneSlot) Withdraw(ctx context.Context, c throttle.Counters, as throttle.Admission) error {
	return ks.undo(ctx, throttle.Withdraw, c, as)
}

// Reset implements [store.Engine].
func (ks *OneSlot) Reset(ctx context.Context, c throttle.Counters) error {
	return ks.undo(ctx, throttle.Reset, c, throttle.Admission{})
}

// undo changes counters, but those of the origin only if they counted the attempt.
func (ks *OneSlot) undo(ctx context.Context, verb throttle.Verb, c throttle.Counters, as throttle.Admission) error {
	if !as.AtOrigin {
		c.Origin = recordkey.Key{}
	}
	_, err := ks.throttle(ctx, verb, c, as)
	return err
}

// throttle runs the throttle script. It sends the script again after a lost reply, but no later
// than throttle.ResendLimit. The script recognizes a call that it has already carried out (I7).
func (ks *OneSlot) throttle(ctx context.Context, verb throttle.Verb, c throttle.Counters, as throttle.Admission) (throttle.Admission, error) {
	call := throttle.NewCall(verb, store.NewRev(), c, as)
	if len(call.Keys) == 0 {
		return throttle.Admission{}, nil
	}
	begin, retry := time.Now(), ks.client.Retry
	retry.Retryable = func(err error) bool {
		return ks.client.Retry.Retryable(err) && time.Since(begin) <= throttle.ResendLimit
	}
	reply, _, err := retry.Do(ctx, func(unsure bool) (any, error) {
		if unsure {
			call.Resend(time.Since(begin))
		}
		return ThrottleScript.Write(ctx, ks.client.Process, call.Keys, call.Args)
	})
	if err != nil && verb != throttle.Reset {
		err = redisx.IgnoreUnknownOutcome(err)
	}
	const doing = "counting attempts"
	if err != nil {
		return throttle.Admission{}, fmt.Errorf("%s: %w", doing, err)
	}
	return parseCounts(doing, call, reply, call.Admission)
}

// ThrottleState implements [store.Engine] with the same script as Admit, so that the rules are in
// one place. The verb Look only reads, so the script may arrive twice.
func (ks *OneSlot) ThrottleState(ctx context.Context, c throttle.Counters) (throttle.State, error) {
	c = throttle.Counters{Account: c.Account, Now: c.Now}
	call := throttle.NewCall(throttle.Look, store.NewRev(), c, throttle.Admission{})
	const doing = "reading the counted attempts"
	reply, _, err := ks.client.Write(ctx, ThrottleScript, call.Keys, call.Args)
	if err != nil {
		return throttle.State{}, fmt.Errorf("%s: %w", doing, redisx.IgnoreUnknownOutcome(err))
	}
	return parseCounts(doing, call, reply, call.State)
}

// parseCounts parses a reply to a call. The error is ErrCorrupt for a record that does not hold
// counters. Any other error begins with doing.
func parseCounts[T any](doing string, call throttle.Call, reply any, parse func([]int64) (T, error)) (T, error) {
	counts, err := redisx.Numbers(reply)
	var parsed T
	if err == nil {
		parsed, err = parse(counts)
	}
	damaged, is := errors.AsType[throttle.DamagedError](err)
	switch {
	case err == nil:
		return parsed, nil
	case is:
		return parsed, &store.CorruptError{Key: call.Keys[damaged], Reason: damaged.Error()}
	case !errors.Is(err, throttle.ErrMaybeCounted) && !errors.Is(err, store.ErrReply):
		err = fmt.Errorf("%w: %w", store.ErrReply, err)
	}
	return parsed, fmt.Errorf("%s: %w", doing, redisx.Fail(err))
}

// Limit implements [store.Engine] with one script. If the script is sent again after a lost reply,
// it counts twice, which allows fewer uses, never more.
func (ks *OneSlot) Limit(ctx context.Context, l throttle.Limit) (time.Duration, error) {
	reply, _, err := ks.client.Write(ctx, LimitScript, []string{l.Counter.String()}, l.Args())
	if err != nil {
		return 0, fmt.Errorf("counting: %w", redisx.IgnoreUnknownOutcome(err))
	}
	wait, _ := reply.(int64)
	return time.Duration(wait) * time.Millisecond, nil
}
