package redisx

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A Script is Lua source, the name under which a server keeps it, and the kinds that its replies may be of.
type Script struct {
	Source, SHA string
	Reply       Shape
}

// NewScript returns the script of some source.
func NewScript(source string, reply Shape) Script {
	return Script{source, redis.NewScript(source).Hash(), reply}
}

// Once is a command that the client does not repeat: a write whose reply was lost is sent again by the
// engine, which then knows that it was.
type Once struct{ *redis.Cmd }

// NewOnce returns such a command.
func NewOnce(ctx context.Context, call []any) Once { return Once{redis.NewCmd(ctx, call...)} }

// NoRetry is asked by the client.
func (Once) NoRetry() bool { return true }

// A Process sends one command, as a client's or a Sender's Process does.
type Process func(ctx context.Context, cmd redis.Cmder) error

// Write runs a script, in full where the server did not have it. The client does not repeat it.
func (s Script) Write(ctx context.Context, process Process, keys, args []string) (any, error) {
	return s.run(keys, args, func(call []any) (*redis.Cmd, error) {
		cmd := NewOnce(ctx, call)
		return cmd.Cmd, process(ctx, cmd)
	})
}

// Read is Write for a script that only reads, which the client itself may repeat.
func (s Script) Read(ctx context.Context, process Process, keys, args []string) (any, error) {
	return s.run(keys, args, func(call []any) (*redis.Cmd, error) {
		cmd := redis.NewCmd(ctx, call...)
		return cmd, process(ctx, cmd)
	})
}

func (s Script) run(keys, args []string, send func(call []any) (*redis.Cmd, error)) (any, error) {
	cmd, err := send(s.Call(keys, args))
	if NoScript(err) {
		cmd, err = send(s.CallInFull(keys, args))
	}
	return Answer(cmd, err, s.Reply)
}

// Answer is what a command was answered, if that is of a kind that its reply may be of. Where the context ended, the
// command may still be under way, and is not looked at.
func Answer(cmd *redis.Cmd, err error, reply Shape) (any, error) {
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	if err := reply.Check(cmd.Val()); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
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

// NoScript reports whether err is the answer of a server that does not have a script.
func NoScript(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && strings.HasPrefix(answer.Error(), "NOSCRIPT")
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
