package redisx

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// A Client is a client with what engines need beyond it: retries, and batches of single commands. Those go each by
// itself while few callers are under way, and in one pipeline with others when many are. That is decided by what is under
// way and not by a setting.
type Client struct {
	redis.UniversalClient
	Retry   Retry
	alone   bool
	callers Counter
	// The client repeats a pipeline only if it may repeat all of it.
	repeated, once *Batcher[redis.Cmder]
}

// NewClient returns a client; alone: every command is sent by itself.
func NewClient(c redis.UniversalClient, r Retry, alone bool) *Client {
	s := &Client{UniversalClient: c, Retry: r, alone: alone}
	flush := func(ctx context.Context, cmds []redis.Cmder) { _ = s.All(ctx, cmds) }
	s.repeated, s.once = NewBatcher(BatchMost, flush), NewBatcher(BatchMost, flush)
	return s
}

// Process sends one command. After an error of ctx the command may still be under way, and must not be looked at.
func (c *Client) Process(ctx context.Context, cmd redis.Cmder) error {
	defer c.callers.Leave()
	if busy := c.callers.Enter(); !busy || c.alone {
		return c.UniversalClient.Process(ctx, cmd)
	}
	batcher := c.repeated
	if cmd.NoRetry() {
		batcher = c.once
	}
	if err := batcher.Do(ctx, cmd); err != nil {
		return err
	}
	return cmd.Err()
}

// All sends commands in one round trip. The error of each stands in it, and the first is returned.
func (c *Client) All(ctx context.Context, cmds []redis.Cmder) error {
	if len(cmds) == 1 { // on a cluster a pipeline costs twice as much
		return c.UniversalClient.Process(ctx, cmds[0])
	}
	if len(cmds) == 0 {
		return nil
	}
	pipe := c.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd)
	}
	_, err := pipe.Exec(ctx)
	return err
}

// Write runs a script until its outcome is known: one that may arrive twice, or knows itself by a token (I7). unsure
// reports whether an earlier attempt may have been carried out: then the caller decides what an answer proves.
func (c *Client) Write(ctx context.Context, s Script, keys, args []string) (reply any, unsure bool, err error) {
	return c.Retry.Do(ctx, func(bool) (any, error) { return s.Write(ctx, c.Process, keys, args) })
}

// Exec sends a pipeline whose commands are judged one by one. An error is about all of them.
func Exec(ctx context.Context, pipe redis.Pipeliner) error {
	if pipe.Len() == 0 {
		return nil
	}
	cmds, err := pipe.Exec(ctx)
	return Answered(cmds, err)
}

// Answered is the error of commands that were not all answered; what one of them was answered stands there.
func Answered(cmds []redis.Cmder, err error) error {
	if err != nil && !IsAnswer(err) {
		return Fail(err)
	}
	for _, cmd := range cmds {
		if Refused(cmd.Err()) {
			return Fail(cmd.Err())
		}
	}
	return nil
}
