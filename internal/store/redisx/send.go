package redisx

import (
	"context"
	"embed"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
)

// A Client is a client with what engines need beyond it: retries, and batches of single commands. Those go each by
// itself while few callers are under way, and in one pipeline with others when many are.
type Client struct {
	redis.UniversalClient
	Retry   Retry
	alone   bool
	callers atomic.Int32 // that are under way
	server  batchers     // of the one server
	nodes   sync.Map     // batchers by the address of a node of a cluster: one that does not answer keeps only its own callers waiting
}

// batchers send commands to one server. The client repeats a pipeline only if it may repeat all of it.
type batchers struct{ repeated, once *Batcher[redis.Cmder] }

func (c *Client) newBatchers() batchers {
	flush := func(ctx context.Context, cmds []redis.Cmder) { _ = c.together(ctx, cmds) }
	return batchers{NewBatcher(BatchMost, flush), NewBatcher(BatchMost, flush)}
}

// NewClient returns a client; alone: every command is sent by itself.
func NewClient(c redis.UniversalClient, r Retry, alone bool) *Client {
	s := &Client{UniversalClient: c, Retry: r, alone: alone}
	s.server = s.newBatchers()
	return s
}

// batchersOf are those of the server that a command goes to.
func (c *Client) batchersOf(ctx context.Context, cmd redis.Cmder) (batchers, error) {
	cluster, is := c.UniversalClient.(*redis.ClusterClient)
	if !is {
		return c.server, nil
	}
	key, args := 1, cmd.Args()
	if name := cmd.Name(); name == "evalsha" || name == "eval" {
		key = 3
	}
	text, _ := args[min(key, len(args)-1)].(string)
	node, err := cluster.MasterForKey(ctx, text)
	if err != nil {
		return batchers{}, err
	}
	addr := node.Options().Addr
	known, is := c.nodes.Load(addr)
	if !is {
		known, _ = c.nodes.LoadOrStore(addr, c.newBatchers())
	}
	return known.(batchers), nil
}

// Process sends one command. After an error of ctx the command may still be under way, and must not be looked at.
func (c *Client) Process(ctx context.Context, cmd redis.Cmder) error {
	defer c.callers.Add(-1)
	if callers := c.callers.Add(1); callers <= Busy || c.alone {
		return c.UniversalClient.Process(ctx, cmd)
	}
	if err := c.withOthers(ctx, cmd); err != nil {
		return err
	}
	return cmd.Err()
}

// OfOneSlot sends commands on keys of one slot in one round trip, as Process sends one. An error is one of ctx, or of a command:
// those stand in them.
func (c *Client) OfOneSlot(ctx context.Context, cmds ...redis.Cmder) error {
	defer c.callers.Add(-1)
	if callers := c.callers.Add(1); callers <= Busy || c.alone {
		return c.together(ctx, cmds)
	}
	return c.withOthers(ctx, cmds...)
}

// withOthers sends commands on keys of one slot in a batch of many callers.
func (c *Client) withOthers(ctx context.Context, cmds ...redis.Cmder) error {
	to, err := c.batchersOf(ctx, cmds[0])
	if err != nil {
		return c.together(ctx, cmds) // which says what is wrong
	}
	batcher := to.repeated
	if slices.ContainsFunc(cmds, redis.Cmder.NoRetry) {
		batcher = to.once
	}
	return batcher.Do(ctx, cmds...)
}

// All sends commands in one round trip. The error of each stands in it, and the first is returned. After an error of ctx they are
// not to be looked at.
func (c *Client) All(ctx context.Context, cmds []redis.Cmder) error {
	switch len(cmds) {
	case 0:
		return nil
	case 1:
		return c.Process(ctx, cmds[0])
	}
	return c.together(ctx, cmds)
}

func (c *Client) together(ctx context.Context, cmds []redis.Cmder) error {
	if len(cmds) == 1 { // on a cluster a pipeline costs twice as much
		return c.UniversalClient.Process(ctx, cmds[0])
	}
	pipe := c.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...)
	_, err := pipe.Exec(ctx)
	if err != nil && !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) { // a hook of the client says so
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
	}
	return err
}

// Write runs a script until its outcome is known: one that may arrive twice, or knows itself by a mark (I7). unsure
// reports whether an earlier attempt may have been carried out: then the caller decides what an answer proves.
func (c *Client) Write(ctx context.Context, s Script, keys, args []string) (reply any, unsure bool, err error) {
	return c.Retry.Do(ctx, func(bool) (any, error) { return s.Write(ctx, c.Process, keys, args) })
}

// Exec sends a pipeline whose commands are judged one by one. An error is about all of them.
func Exec(ctx context.Context, pipe redis.Pipeliner) error {
	cmds, err := pipe.Exec(ctx)
	return Answered(cmds, err)
}

// Answered is the error of commands that were not all answered; what one of them was answered stands there.
func Answered(cmds []redis.Cmder, err error) error {
	if err != nil && !IsAnswer(err) {
		return Fail(err)
	}
	for _, cmd := range cmds {
		if has(cmd.Err(), refused) {
			return Fail(cmd.Err())
		}
	}
	return nil
}

// firstWait is the wait before something is sent for the second time. Each further wait is twice as long.
const firstWait = 10 * time.Millisecond

// A Retry sends something again until a server answers, as long as that makes sense.
type Retry struct {
	Attempts int
	Passing  func(error) bool                           // another attempt may succeed
	Sent     func(error) bool                           // the server may have carried it out
	Pause    func(context.Context, time.Duration) error // waits, with jitter
	Before   func(context.Context, error)               // is called before each further attempt; nil: nothing
}

// Do sends something that may arrive twice. unsure reports whether an earlier attempt may have been carried out:
// then an answer may be about the second time.
func (r *Retry) Do(ctx context.Context, send func(unsure bool) (any, error)) (value any, unsure bool, err error) {
	for attempt := range r.Attempts {
		if value, err = send(unsure); err == nil {
			return value, unsure, nil
		}
		unsure = unsure || r.Sent(err)
		if !r.Passing(err) || ctx.Err() != nil {
			break
		}
		if r.Before != nil {
			r.Before(ctx, err)
		}
		if r.Pause(ctx, firstWait<<attempt) != nil {
			break
		}
	}
	if unsure {
		return nil, true, &UnknownError{err}
	}
	return nil, false, Fail(err)
}

// An UnknownError is about something that may have been done.
type UnknownError struct{ Cause error }

func (u *UnknownError) Error() string {
	return store.ErrOutcomeUnknown.Error() + ": " + u.Cause.Error()
}

// Unwrap makes the error an ErrOutcomeUnknown besides what its cause is.
func (u *UnknownError) Unwrap() []error { return []error{store.ErrOutcomeUnknown, u.Cause} }

// Harmless is the error of something that may be done any number of times: whether it was does not matter.
func Harmless(err error) error {
	if u, is := errors.AsType[*UnknownError](err); is {
		return Fail(u.Cause)
	}
	return err
}

// Pause waits for d, give or take half of it.
func Pause(ctx context.Context, d time.Duration) error { return Sleep(ctx, d/2+rand.N(d)) }

// Sleep waits for d, or until the context ends.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// A Script is Lua source, the name under which a server keeps it, and the kinds that its replies may be of.
type Script struct {
	Source, SHA string
	Reply       Shape
}

// NewScript returns a script of a package, with what all its scripts of that kind begin with.
func NewScript(scripts embed.FS, name string, reply Shape, before ...string) Script {
	source := strings.Join(before, "") + Source(scripts, name)
	return Script{source, redis.NewScript(source).Hash(), reply}
}

// Source is one file of a package's scripts.
func Source(scripts embed.FS, name string) string {
	source, err := scripts.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(source)
}

// Once is a command that the client does not repeat: a write whose reply was lost is sent again by the
// engine, which then knows that it was.
type Once struct{ *redis.Cmd }

// NewOnce returns such a command.
func NewOnce(ctx context.Context, call []any) Once { return Once{redis.NewCmd(ctx, call...)} }

// NoRetry is asked by the client.
func (Once) NoRetry() bool { return true }

// A Process sends one command, as a client's Process does.
type Process func(ctx context.Context, cmd redis.Cmder) error

// Read runs a script, in full where the server did not have it.
func (s Script) Read(ctx context.Context, process Process, keys, args []string) (any, error) {
	cmd := redis.NewCmd(ctx, s.Call(keys, args)...)
	err := process(ctx, cmd)
	if NoScript(err) {
		cmd = redis.NewCmd(ctx, s.CallInFull(keys, args)...)
		err = process(ctx, cmd)
	}
	return Answer(cmd, err, s.Reply)
}

// Write is Read for a script that writes, which the client must not repeat.
func (s Script) Write(ctx context.Context, process Process, keys, args []string) (any, error) {
	once := func(ctx context.Context, cmd redis.Cmder) error { return process(ctx, Once{cmd.(*redis.Cmd)}) }
	return s.Read(ctx, once, keys, args)
}

// Call is the command that runs the script by its name.
func (s Script) Call(keys, args []string) []any { return evalArgs("evalsha", s.SHA, keys, args) }

// CallInFull is the command for a server that does not have the script.
func (s Script) CallInFull(keys, args []string) []any { return evalArgs("eval", s.Source, keys, args) }

func evalArgs(command, what string, keys, args []string) []any {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, command, what, len(keys))
	return AppendWords(AppendWords(all, keys), args)
}

// AppendWords appends pointers to texts: each text would be copied to become an argument.
func AppendWords(all []any, texts []string) []any {
	for i := range texts {
		all = append(all, &texts[i])
	}
	return all
}

// Load gives a server scripts, in one round trip. Those that it does not have are sent in full later.
func Load(ctx context.Context, server redis.Cmdable, scripts []Script) error {
	pipe := server.Pipeline()
	for _, s := range scripts {
		pipe.ScriptLoad(ctx, s.Source)
	}
	if _, err := pipe.Exec(ctx); err != nil && !IsAnswer(err) { // it may forbid that, and run them
		return Fail(err)
	}
	return nil
}
