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

// A Client adds retries and batches to a redis client. A single command goes on its own while few
// callers are active, and in one pipeline with others while many are.
type Client struct {
	redis.UniversalClient
	Retry     Retry
	unbatched bool
	callers   atomic.Int32 // number of active callers
	server    batchers     // for the server of a client that is not a cluster's
	// nodes maps the address of a cluster node to its batchers, so that a node that does not answer
	// delays only its own callers.
	nodes sync.Map
}

// batchers send commands to one server. Commands that the client may repeat and those that it must
// send only once have separate batchers, because the client repeats a pipeline only if it may
// repeat all of it.
type batchers struct{ repeated, once *Batcher[redis.Cmder] }

func (c *Client) newBatchers() batchers {
	flush := func(ctx context.Context, cmds []redis.Cmder) { _ = c.processPipelined(ctx, cmds) }
	return batchers{NewBatcher(MaxBatch, flush), NewBatcher(MaxBatch, flush)}
}

// NewClient returns a Client. If unbatched is true, it sends every command on its own.
func NewClient(c redis.UniversalClient, r Retry, unbatched bool) *Client {
	s := &Client{UniversalClient: c, Retry: r, unbatched: unbatched}
	s.server = s.newBatchers()
	return s
}

// batchersFor returns the batchers for the server that a command goes to.
func (c *Client) batchersFor(ctx context.Context, cmd redis.Cmder) (batchers, error) {
	cluster, ok := c.UniversalClient.(*redis.ClusterClient)
	if !ok {
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
	loaded, ok := c.nodes.Load(addr)
	if !ok {
		loaded, _ = c.nodes.LoadOrStore(addr, c.newBatchers())
	}
	return loaded.(batchers), nil
}

// Process sends one command. If it returns an error of ctx, the command may still be under way and
// must not be used.
func (c *Client) Process(ctx context.Context, cmd redis.Cmder) error {
	defer c.callers.Add(-1)
	if callers := c.callers.Add(1); callers <= BatchThreshold || c.unbatched {
		return c.UniversalClient.Process(ctx, cmd)
	}
	if err := c.processBatched(ctx, cmd); err != nil {
		return err
	}
	return cmd.Err()
}

// ProcessOneSlot sends commands on keys of one slot in one round trip, as Process sends one. Each
// command holds its own error. ProcessOneSlot returns any error of ctx, after which the commands
// must not be used, and may return the error of a command.
func (c *Client) ProcessOneSlot(ctx context.Context, cmds ...redis.Cmder) error {
	defer c.callers.Add(-1)
	if callers := c.callers.Add(1); callers <= BatchThreshold || c.unbatched {
		return c.processPipelined(ctx, cmds)
	}
	return c.processBatched(ctx, cmds...)
}

// processBatched sends commands on keys of one slot in a batch of many callers.
func (c *Client) processBatched(ctx context.Context, cmds ...redis.Cmder) error {
	to, err := c.batchersFor(ctx, cmds[0])
	if err != nil {
		return c.processPipelined(ctx, cmds) // which returns the cause
	}
	batcher := to.repeated
	if slices.ContainsFunc(cmds, redis.Cmder.NoRetry) {
		batcher = to.once
	}
	return batcher.Do(ctx, cmds...)
}

// ProcessAll sends commands in one round trip. Each command holds its own error, and ProcessAll
// returns the first. If it returns an error of ctx, the commands must not be used.
func (c *Client) ProcessAll(ctx context.Context, cmds []redis.Cmder) error {
	switch len(cmds) {
	case 0:
		return nil
	case 1:
		return c.Process(ctx, cmds[0])
	}
	return c.processPipelined(ctx, cmds)
}

func (c *Client) processPipelined(ctx context.Context, cmds []redis.Cmder) error {
	if len(cmds) == 1 { // on a cluster a pipeline costs twice as much
		return c.UniversalClient.Process(ctx, cmds[0])
	}
	pipe := c.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...)
	_, err := pipe.Exec(ctx)
	// If no command has the error, it comes from a hook of the client.
	if err != nil && !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) {
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
	}
	return err
}

// Write sends a script until its outcome is known. The script must have the same effect if it
// arrives twice, or must recognize that it was sent before (I7). unsure reports whether an earlier
// attempt may have been carried out; the caller then decides what the reply proves.
func (c *Client) Write(ctx context.Context, s Script, keys, args []string) (reply any, unsure bool, err error) {
	return c.Retry.Do(ctx, func(bool) (any, error) { return s.Write(ctx, c.Process, keys, args) })
}

// Exec sends a pipeline. An error that it returns concerns all commands. Otherwise the caller must
// check the error of each command.
func Exec(ctx context.Context, pipe redis.Pipeliner) error {
	cmds, err := pipe.Exec(ctx)
	return CheckAnswered(cmds, err)
}

// Unanswered reports whether err, with which a pipeline ended, concerns all its commands. The
// commands do not have the error if the server refused the connection, for example because it has
// too many clients: then each looks like one that was answered with nothing.
func Unanswered(cmds []redis.Cmder, err error) bool {
	return err != nil && (!IsServerReply(err) || !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil }))
}

// CheckAnswered returns an error if a command was not answered, or was refused by a server that
// cannot serve it. Each command keeps its own reply or error.
func CheckAnswered(cmds []redis.Cmder, err error) error {
	if Unanswered(cmds, err) {
		return Fail(err)
	}
	for _, cmd := range cmds {
		if replyMeans(cmd.Err(), refused) {
			return Fail(cmd.Err())
		}
	}
	return nil
}

// firstWait is the wait before the second attempt. Each further wait is twice as long as the one
// before.
const firstWait = 10 * time.Millisecond

// A Retry repeats attempts until a server answers, another attempt is pointless, or the limit of
// Attempts is reached.
type Retry struct {
	Attempts int
	// Retryable reports whether another attempt may succeed.
	Retryable func(error) bool
	// Sent reports whether the server may have carried out the attempt.
	Sent func(error) bool
	// Pause waits for the given time, with jitter.
	Pause func(context.Context, time.Duration) error
	// Before is called before each further attempt. It may be nil.
	Before func(context.Context, error)
}

// Do calls send until it succeeds or another attempt is pointless. The server may carry out several
// of the attempts. unsure reports whether an earlier attempt may have been carried out; the reply
// may then be about the repetition.
func (r *Retry) Do(ctx context.Context, send func(unsure bool) (any, error)) (value any, unsure bool, err error) {
	for attempt := range r.Attempts {
		if value, err = send(unsure); err == nil {
			return value, unsure, nil
		}
		unsure = unsure || r.Sent(err)
		if !r.Retryable(err) || ctx.Err() != nil {
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

// An UnknownError reports that an operation may or may not have been carried out.
type UnknownError struct{ Cause error }

func (u *UnknownError) Error() string {
	return store.ErrOutcomeUnknown.Error() + ": " + u.Cause.Error()
}

// Unwrap returns ErrOutcomeUnknown and the cause.
func (u *UnknownError) Unwrap() []error { return []error{store.ErrOutcomeUnknown, u.Cause} }

// IgnoreUnknownOutcome returns the error of an operation that may be repeated any number of times.
// It replaces an UnknownError with its cause, because it does not matter whether the operation was
// carried out.
func IgnoreUnknownOutcome(err error) error {
	if u, ok := errors.AsType[*UnknownError](err); ok {
		return Fail(u.Cause)
	}
	return err
}

// SleepWithJitter waits for d, plus or minus up to half of it.
func SleepWithJitter(ctx context.Context, d time.Duration) error { return Sleep(ctx, d/2+rand.N(d)) }

// Sleep waits for d, or until the context ends.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// A Script holds Lua source, the hash by which a server knows it, and the kinds of its replies.
type Script struct {
	Source, SHA string
	Reply       Shape
}

// NewScript returns the script that consists of the sources, joined.
func NewScript(reply Shape, sources ...string) Script {
	source := strings.Join(sources, "")
	return Script{source, redis.NewScript(source).Hash(), reply}
}

// Source returns the file with that name in scripts.
func Source(scripts embed.FS, name string) string {
	source, err := scripts.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(source)
}

// NoRetryCmd is a command that the client does not repeat. If the reply to a write is lost, the
// engine itself sends the command again and therefore knows that it was repeated.
type NoRetryCmd struct{ *redis.Cmd }

// NewNoRetryCmd returns a NoRetryCmd for the words of a command.
func NewNoRetryCmd(ctx context.Context, call []any) NoRetryCmd {
	return NoRetryCmd{redis.NewCmd(ctx, call...)}
}

// NoRetry tells the client not to repeat the command.
func (NoRetryCmd) NoRetry() bool { return true }

// A Process sends one command, as a client's Process does.
type Process func(ctx context.Context, cmd redis.Cmder) error

// Read runs a script by its hash, or by its source if the server does not have it.
func (s Script) Read(ctx context.Context, process Process, keys, args []string) (any, error) {
	return s.run(ctx, process, s.EvalSHAArgs(keys, args))
}

// run sends a call of the script by its hash and, if the server does not have the script, by its
// source.
func (s Script) run(ctx context.Context, process Process, call []any) (any, error) {
	cmd := redis.NewCmd(ctx, call...)
	err := process(ctx, cmd)
	if NoScript(err) {
		cmd = redis.NewCmd(ctx, s.bySource(call)...)
		err = process(ctx, cmd)
	}
	return Answer(cmd, err, s.Reply)
}

// Write runs a script as Read does, except that the client does not repeat it, because it writes.
func (s Script) Write(ctx context.Context, process Process, keys, args []string) (any, error) {
	return s.WriteCall(ctx, process, s.EvalSHAArgs(keys, args))
}

// WriteCall does the same as Write for a command that begins with the result of Call.
func (s Script) WriteCall(ctx context.Context, process Process, call []any) (any, error) {
	once := func(ctx context.Context, cmd redis.Cmder) error { return process(ctx, NoRetryCmd{cmd.(*redis.Cmd)}) }
	return s.run(ctx, once, call)
}

// Call returns the beginning of the command that runs the script by its hash. The caller appends n
// words: the keys, and then the arguments.
func (s Script) Call(keys, n int) []any {
	return append(make([]any, 0, 3+n), "evalsha", s.SHA, keys)
}

// bySource returns the command that does by the source what call does by the hash.
func (s Script) bySource(call []any) []any { return append([]any{"eval", s.Source}, call[2:]...) }

// EvalSHAArgs returns the command that runs the script by its hash.
func (s Script) EvalSHAArgs(keys, args []string) []any {
	return AppendWords(AppendWords(s.Call(len(keys), len(keys)+len(args)), keys), args)
}

// EvalArgs returns the command that runs the script by its source.
func (s Script) EvalArgs(keys, args []string) []any { return s.bySource(s.EvalSHAArgs(keys, args)) }

// AppendWords appends pointers to texts, because each text itself would be copied when it becomes
// an argument.
func AppendWords(all []any, texts []string) []any {
	for i := range texts {
		all = append(all, &texts[i])
	}
	return all
}

// Load loads scripts into a server in one round trip. Scripts that the server lacks are sent in
// full later.
func Load(ctx context.Context, server redis.Cmdable, scripts []Script) error {
	pipe := server.Pipeline()
	for _, s := range scripts {
		pipe.ScriptLoad(ctx, s.Source)
	}
	// A server may forbid loading scripts but run them.
	if _, err := pipe.Exec(ctx); err != nil && !IsServerReply(err) {
		return Fail(err)
	}
	return nil
}
