package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A Place is where a SCAN goes on: a cursor, and the process that it is of. The tables of a server that has begun anew,
// or of the replica in its place, are in another order, in which an old cursor means nothing.
//
//	42_9f0c3a1e
type Place struct {
	At      uint64
	Process string // of a server that does not say it: ""
}

// ParsePlace reads what String made; "" is the beginning.
func ParsePlace(text string) (Place, error) {
	if text == "" {
		return Place{}, nil
	}
	number, process, _ := strings.Cut(text, "_")
	at, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return Place{}, ErrCursor
	}
	return Place{at, process}, nil
}

// String is "" at the end.
func (p Place) String() string {
	switch {
	case p.At == 0:
		return ""
	case p.Process == "":
		return strconv.FormatUint(p.At, 10)
	}
	return fmt.Sprintf("%d_%s", p.At, p.Process)
}

// Scan takes one step of a SCAN on a server, from its beginning where the place is another process's: then keys come
// twice, and none is missed.
func Scan(ctx context.Context, server redis.Cmdable, p Place, queue func(pipe redis.Pipeliner, at uint64) *redis.ScanCmd) ([]string, Place, error) {
	for {
		pipe := server.Pipeline()
		info, step := pipe.Info(ctx, "server"), queue(pipe, p.At)
		if _, err := pipe.Exec(ctx); err != nil && !IsAnswer(err) {
			return nil, Place{}, err
		}
		keys, next, err := step.Result()
		if err != nil {
			return nil, Place{}, err
		}
		process := field(info.Val(), "run_id")
		process = process[:min(8, len(process))]
		if p.At == 0 || p.Process == "" || process == "" || p.Process == process {
			return keys, Place{next, process}, nil
		}
		p = Place{}
	}
}
