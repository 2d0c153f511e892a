package single

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// Admit implements [store.Throttler]: one script for both counters.
func (e *Engine) Admit(ctx context.Context, a store.Attempt) (store.Admission, error) {
	cmd, err := e.throttle(ctx, "admit", a, store.Admission{})
	if err != nil {
		return store.Admission{}, err
	}
	reply, err := cmd.Int64Slice()
	if err != nil || len(reply) != 3 {
		return store.Admission{}, fmt.Errorf("counting attempts: unknown answer of %d numbers: %w", len(reply), err)
	}
	return store.Admission{
		Wait: time.Duration(reply[0]) * time.Millisecond, Own: reply[1] == 1, At: reply[2] == 1,
	}, nil
}

// Forgive implements [store.Throttler].
func (e *Engine) Forgive(ctx context.Context, a store.Attempt, as store.Admission) error {
	_, err := e.throttle(ctx, "forgive", a, as)
	return err
}

// Withdraw implements [store.Throttler].
func (e *Engine) Withdraw(ctx context.Context, a store.Attempt, as store.Admission) error {
	_, err := e.throttle(ctx, "withdraw", a, as)
	return err
}

// Reset implements [store.Throttler].
func (e *Engine) Reset(ctx context.Context, a store.Attempt) error {
	_, err := e.throttle(ctx, "reset", store.Attempt{Account: a.Account, Now: a.Now}, store.Admission{})
	return err
}

// throttle is not sent again: an attempt whose admission nobody heard of stays counted.
func (e *Engine) throttle(ctx context.Context, verb string, a store.Attempt, as store.Admission) (*redis.Cmd, error) {
	if verb != "admit" && !as.At {
		a.Origin = recordkey.Key{}
	}
	keys, args := throttleArgs(verb, a, as)
	if len(keys) == 0 {
		return nil, nil
	}
	cmd, err := e.do(ctx, throttleScript, keys, args)
	if err != nil {
		return nil, fmt.Errorf("counting attempts: %w", store.Fail(err))
	}
	return cmd, nil
}

func throttleArgs(verb string, a store.Attempt, as store.Admission) (keys, args []string) {
	now := ""
	if !a.Now.IsZero() {
		now = strconv.FormatInt(a.Now.UnixMilli(), 10)
	}
	args = []string{verb, now, a.Name, flag(as.Own)}
	for _, n := range []int64{
		store.ThrottleWindow.Milliseconds(), store.StrangerFree, store.StrangerMost,
		store.FamiliarMost, store.FamiliarOrigins, store.FamiliarLife.Milliseconds(),
		store.OriginWindow.Milliseconds(), store.OriginFree, store.LongestDelay.Milliseconds(),
	} {
		args = append(args, strconv.FormatInt(n, 10))
	}
	if a.Account.IsValid() {
		keys, args = append(keys, a.Account.String()), append(args, "account")
	}
	if a.Origin.IsValid() {
		keys, args = append(keys, a.Origin.String()), append(args, "origin")
	}
	return keys, args
}

// Keep implements [store.Throttler].
func (e *Engine) Keep(ctx context.Context, key recordkey.Key, value string, life time.Duration) error {
	return store.Fail(e.client.Set(ctx, key.String(), value, life).Err())
}

// Take implements [store.Throttler]. It is sent once: a reply that is lost takes the string with it.
func (e *Engine) Take(ctx context.Context, key recordkey.Key) (string, error) {
	cmd := once{redis.NewCmd(ctx, "getdel", key.String())}
	err := e.client.Process(ctx, cmd)
	switch {
	case errors.Is(err, redis.Nil):
		return "", nil
	case err != nil && e.sent(err):
		return "", fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, err)
	case err != nil:
		return "", store.Fail(err)
	}
	return cmd.Text()
}

// Secret implements [store.Throttler].
func (e *Engine) Secret(ctx context.Context, key recordkey.Key, fresh string) (string, error) {
	if err := e.client.SetNX(ctx, key.String(), fresh, 0).Err(); err != nil {
		return "", store.Fail(err)
	}
	secret, err := e.client.Get(ctx, key.String()).Result()
	return secret, store.Fail(err)
}
