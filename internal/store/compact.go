package store

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// CompactLimits say which hashes a server keeps compact, as a listpack (before Redis 7: a ziplist): those of
// at most so many fields, of which neither a name nor a value has more than so many bytes.
type CompactLimits struct {
	Fields, Bytes int64
	Told          bool // by every server; false: where one did not, the usual limits stand
}

// UsualLimits are those of Redis and Valkey where nobody set others.
var UsualLimits = CompactLimits{Fields: 512, Bytes: 64}

// AskCompact asks one server for its limits. The embedded one knows no CONFIG, and managed ones may forbid it.
func AskCompact(ctx context.Context, c redis.Cmdable) (CompactLimits, error) {
	said, err := c.ConfigGet(ctx, "hash-max-*").Result()
	if err != nil && !IsAnswer(err) {
		return UsualLimits, Fail(err)
	}
	fields, told := limit(said, "entries", UsualLimits.Fields)
	bytes, too := limit(said, "value", UsualLimits.Bytes)
	return CompactLimits{Fields: fields, Bytes: bytes, Told: told && too}, nil
}

// limit reads one limit by its name of today, else by the one before Redis 7.
func limit(said map[string]string, name string, usual int64) (int64, bool) {
	for _, form := range []string{"hash-max-listpack-", "hash-max-ziplist-"} {
		if n, err := strconv.ParseInt(said[form+name], 10, 64); err == nil {
			return n, true
		}
	}
	return usual, false
}

// Least are the limits that keep a hash compact on both of two servers.
func (l CompactLimits) Least(m CompactLimits) CompactLimits {
	return CompactLimits{Fields: min(l.Fields, m.Fields), Bytes: min(l.Bytes, m.Bytes), Told: l.Told && m.Told}
}
