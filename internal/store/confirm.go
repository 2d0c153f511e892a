package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrUnconfirmed is a change that was made, but not known to be on as many replicas as asked for.
var ErrUnconfirmed = errors.New("committed, not confirmed")

// A Confirmer waits until a change that was made is on replicas, too.
type Confirmer interface {
	// Confirm waits for n replicas of each server that has records of the change; ErrUnconfirmed if
	// they do not have them in time.
	Confirm(ctx context.Context, c Change, v Version, n int, most time.Duration) error
}

// rewriteRev writes what is there once more: WAIT waits for the writes of its own connection, and with
// this one for all that were made on the server before it. A server that took over meanwhile, and has
// not the change, does not know the token.
//
// KEYS[1] the entry, ARGV[1] the token of the change. Reply: 1 if it has the change.
const rewriteRev = `local past = redis.call('HGET', KEYS[1], '~rev')
if not past then return 0 end
for i = 1, #past, 12 do
  if string.sub(past, i, i + 11) == ARGV[1] then
    redis.call('HSET', KEYS[1], '~rev', past)
    return 1
  end
end
return 0`

// rewriteSRV does the same for an SRK. KEYS[1] the SRK, ARGV[1] its value.
const rewriteSRV = `if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1`

// ConfirmEntry waits for n replicas of the server behind c that has an entry.
func ConfirmEntry(ctx context.Context, c redis.Cmdable, key string, v Version, n int, most time.Duration) error {
	return confirm(ctx, c, rewriteRev, key, v.Rev, n, most)
}

// ConfirmSRK waits for n replicas of the server behind c that has an SRK.
func ConfirmSRK(ctx context.Context, c redis.Cmdable, key, srv string, n int, most time.Duration) error {
	return confirm(ctx, c, rewriteSRV, key, srv, n, most)
}

func confirm(ctx context.Context, c redis.Cmdable, script, key, seen string, n int, most time.Duration) error {
	pipe := c.Pipeline()
	has := pipe.Eval(ctx, script, []string{key}, seen)
	replicas := pipe.Do(ctx, "wait", n, max(most.Milliseconds(), 1))
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrUnconfirmed, err)
	}
	if is, _ := has.Int(); is != 1 {
		return fmt.Errorf("%w: the server does not have it any more", ErrUnconfirmed)
	}
	if got, _ := replicas.Int(); got < n {
		return fmt.Errorf("%w: on %d of %d replicas after %v", ErrUnconfirmed, got, n, most)
	}
	return nil
}
