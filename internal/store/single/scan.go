package single

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store/redisx"
)

// Scan implements [store.Engine].
func (e *Engine) Scan(ctx context.Context, pattern, cursor string, count int) ([]string, string, error) {
	at, err := redisx.ParseCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	if e.options.Match {
		keys, next, err := e.client.Scan(ctx, at.At, "", int64(count)).Result()
		keys = slices.DeleteFunc(keys, func(k string) bool { return !match(pattern, k) })
		return keys, redisx.Cursor{At: next}.String(), redisx.Fail(err)
	}
	keys, at, err := redisx.Scan(ctx, e.client, at, func(pipe redis.Pipeliner, at uint64) *redis.ScanCmd {
		return pipe.Scan(ctx, at, pattern, int64(count))
	})
	return keys, at.String(), redisx.Fail(err)
}
