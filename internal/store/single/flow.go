package single

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// crowd is how many commands are under way when further ones begin to travel together: measured, a
// lone caller loses half its speed to a pipeline, and sixteen gain from two to five times.
const crowd = 8

// A flow sends single commands: each by itself while few are under way, and in one pipeline with
// others when many are. That is decided by what is under way and not by a setting.
type flow struct {
	client   redis.UniversalClient
	underWay atomic.Int32
	together func() *redis.AutoPipeliner // nil: the client has none
}

func newFlow(c redis.UniversalClient) *flow {
	return &flow{client: c, together: sync.OnceValue(func() *redis.AutoPipeliner {
		piped, ok := c.(interface {
			AsyncAutoPipeline() (*redis.AutoPipeliner, error)
		})
		if !ok {
			return nil
		}
		ap, err := piped.AsyncAutoPipeline()
		if err != nil {
			return nil
		}
		return ap
	})}
}

// alone has every command travel by itself.
func (f *flow) alone() { f.together = func() *redis.AutoPipeliner { return nil } }

// process runs one command. After an error of ctx the command may still be under way, and must not
// be looked at.
func (f *flow) process(ctx context.Context, cmd redis.Cmder) error {
	n := f.underWay.Add(1)
	defer f.underWay.Add(-1)
	if n > crowd {
		if ap := f.together(); ap != nil {
			return abandoned(ctx, ap.Submit(ctx, cmd).WaitContext(ctx))
		}
	}
	return f.client.Process(ctx, cmd)
}

// errAbandoned: the context ended while the command was under way; the server may run it.
var errAbandoned = errors.New("no answer before the end of the context")

// abandoned tells a command that was given up from one that was never sent.
func abandoned(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: %w", errAbandoned, err)
	}
	return err
}
