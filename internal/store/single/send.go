package single

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
)

// A once command is not repeated by the client: a write whose reply was lost is sent again by the
// engine, which then knows that it was.
type once struct{ *redis.Cmd }

// NoRetry is asked by the client.
func (once) NoRetry() bool { return true }

const (
	resent    = "again"
	attempts  = 6
	firstWait = 10 * time.Millisecond
)

// write runs a script until its outcome is known. The token in its arguments makes it safe to send
// again (I7). unsure says that an earlier attempt may have been carried out: then only {"ok"} is
// certain, and the caller decides what another answer proves.
func (e *Engine) write(ctx context.Context, s script, keys []string, args []string) (reply any, unsure bool, err error) {
	return e.writeMarked(ctx, s, keys, args, -1)
}

// writeMarked is write for a script that must know when it may have run before: then the argument at
// mark becomes resent.
func (e *Engine) writeMarked(ctx context.Context, s script, keys, args []string, mark int) (reply any, unsure bool, err error) {
	for attempt := range attempts {
		if unsure && mark >= 0 {
			args[mark] = resent
		}
		var cmd *redis.Cmd
		if cmd, err = e.do(ctx, s, keys, args); err == nil {
			return cmd.Val(), unsure, nil
		}
		unsure = unsure || e.sent(err)
		if !e.passing(err) || ctx.Err() != nil || pause(ctx, firstWait<<attempt) != nil {
			break
		}
	}
	if unsure {
		return nil, true, fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, err)
	}
	return nil, false, store.Fail(err)
}

// items are those of a reply that is a list.
func items(reply any) []any {
	list, _ := reply.([]any)
	return list
}

// do runs a script once, and once more where the server did not have it.
func (e *Engine) do(ctx context.Context, s script, keys []string, args []string) (*redis.Cmd, error) {
	cmd := once{redis.NewCmd(ctx, evalArgs("evalsha", s.sha, keys, args)...)}
	err := e.flow.process(ctx, cmd)
	if noScript(err) {
		cmd = once{redis.NewCmd(ctx, evalArgs("eval", s.source, keys, args)...)}
		err = e.flow.process(ctx, cmd)
	}
	return cmd.Cmd, s.judged(cmd.Cmd, err)
}

// ask runs a script that only reads, which the client itself may repeat.
func (e *Engine) ask(ctx context.Context, s script, keys []string, args []string) (*redis.Cmd, error) {
	cmd := redis.NewCmd(ctx, evalArgs("evalsha", s.sha, keys, args)...)
	err := e.flow.process(ctx, cmd)
	if noScript(err) {
		cmd = redis.NewCmd(ctx, evalArgs("eval", s.source, keys, args)...)
		err = e.flow.process(ctx, cmd)
	}
	return cmd, s.judged(cmd, err)
}

// judged is the error of a reply, also of one that is of no kind that the script has. Where the context ended the
// command may still be under way, and is not looked at.
func (s script) judged(cmd *redis.Cmd, err error) error {
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	return s.reply.Check(cmd.Val()) // nil is an answer of no script, and says nothing of what was done
}

// evalArgs are the arguments of a script's call: pointers, since each text would be copied to be one.
func evalArgs(command, what string, keys, args []string) []any {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, command, what, len(keys))
	return appendPointers(appendPointers(all, keys), args)
}

func appendPointers(all []any, texts []string) []any {
	for i := range texts {
		all = append(all, &texts[i])
	}
	return all
}

func noScript(err error) bool {
	if err == nil {
		return false
	}
	var answer redis.Error
	return errors.As(err, &answer) && strings.HasPrefix(answer.Error(), "NOSCRIPT")
}

// pause waits for d, give or take half of it.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d/2 + rand.N(d))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
