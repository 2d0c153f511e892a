package single

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// A flow sends single commands: each by itself while few are under way, and in one pipeline with
// others when many are. That is decided by what is under way and not by a setting.
type flow struct {
	client   redis.UniversalClient
	underWay counter
	lone     bool // every command travels by itself
	// The client repeats a pipeline only if it may repeat all of it.
	repeated, once shared[redis.Cmder]
}

func newFlow(c redis.UniversalClient, lone bool) *flow {
	f := &flow{client: c, lone: lone}
	for _, way := range []*shared[redis.Cmder]{&f.repeated, &f.once} {
		way.send, way.most = f.share, tripsMost
	}
	return f
}

// process runs one command. After an error of ctx the command may still be under way, and must not
// be looked at.
func (f *flow) process(ctx context.Context, cmd redis.Cmder) error {
	defer f.underWay.leave()
	if crowded := f.underWay.enter(); !crowded || f.lone {
		return f.client.Process(ctx, cmd)
	}
	way := &f.repeated
	if cmd.NoRetry() {
		way = &f.once
	}
	if err := way.take(ctx, cmd); err != nil {
		return err
	}
	return cmd.Err()
}

// share sends the commands of many callers.
func (f *flow) share(ctx context.Context, cmds []redis.Cmder) { _ = f.send(ctx, cmds) }

// send sends commands in one round trip. The error of each stands in it, and the first is returned.
func (f *flow) send(ctx context.Context, cmds []redis.Cmder) error {
	if len(cmds) == 1 { // on a cluster a pipeline costs twice as much
		return f.client.Process(ctx, cmds[0])
	}
	if len(cmds) == 0 {
		return nil
	}
	pipe := f.client.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd)
	}
	_, err := pipe.Exec(ctx)
	return err
}
