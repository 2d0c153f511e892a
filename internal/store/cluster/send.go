package cluster

import (
	"context"
	_ "embed"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

var (
	//go:embed scripts/claim.lua
	claimLua string
	//go:embed scripts/swap.lua
	swapLua string
	//go:embed scripts/fence.lua
	fenceLua string
	//go:embed scripts/prepare.lua
	prepareLua string
	//go:embed scripts/commit.lua
	commitLua string
	//go:embed scripts/bury.lua
	buryLua string
	//go:embed scripts/ready.lua
	readyLua string
	//go:embed scripts/promote.lua
	promoteLua string
	//go:embed scripts/filled.lua
	filledLua string
	//go:embed scripts/schema.lua
	schemaLua string
)

var (
	claimScript   = newScript(claimLua, redisx.IsNumber|redisx.IsText)
	swapScript    = newScript(swapLua, redisx.IsNumber)
	fenceScript   = newScript(fenceLua, redisx.IsNumber)
	prepareScript = newScript(prepareLua, redisx.IsTexts)
	commitScript  = newScript(store.TokensLua+commitLua, redisx.IsVerdict)
	buryScript    = newScript(buryLua, redisx.IsNumber)
	readyScript   = newScript(readyLua, redisx.IsNumber)
	promoteScript = newScript(promoteLua, redisx.IsNumber)
	filledScript  = newScript(filledLua, redisx.IsNumber)
	schemaScript  = newScript(schemaLua, redisx.IsVerdict)
	issueScript   = newScript(store.TokensLua+store.IssueLua, redisx.IsVerdict)
	peekScript    = newScript(store.TokensLua+store.PeekLua, redisx.IsTexts)
)

var allScripts = []script{
	claimScript, swapScript, fenceScript, prepareScript, commitScript, buryScript,
	readyScript, promoteScript, filledScript, schemaScript, issueScript, peekScript,
}

// A script is Lua source, the name under which a server keeps it, and of which kind its replies are.
type script struct {
	source, sha string
	reply       redisx.Shape
}

func newScript(source string, reply redisx.Shape) script {
	return script{source, redis.NewScript(source).Hash(), reply}
}

// A step is one script of the protocol, on keys of one slot.
type step struct {
	script script
	keys   []string
	args   []string
}

func on(s script, key string, args ...string) step { return step{s, []string{key}, args} }

// once keeps the client from repeating a command: the engine does it, and so knows that it did.
type once struct{ *redis.Cmd }

// NoRetry is asked by the client.
func (once) NoRetry() bool { return true }

// A result is the answer to a step.
type result struct {
	value  any
	unsure bool // an earlier sending of it may have been carried out
}

// yes says whether a script answered 1.
func (r result) yes() bool { return r.value == int64(1) }

const (
	attempts  = 8
	firstWait = 10 * time.Millisecond
)

// run sends one step until it is answered: every step may arrive twice. The error keeps whether it
// may have been carried out (ErrOutcomeUnknown) or certainly was not.
func (e *Engine) run(ctx context.Context, s step) (result, error) {
	return e.again(ctx, func() (any, error) { return e.send(ctx, s) })
}

// plain sends a command that may arrive twice.
func (e *Engine) plain(ctx context.Context, reply redisx.Shape, args ...string) (any, error) {
	all := make([]any, len(args))
	for i, a := range args {
		all[i] = a
	}
	r, err := e.again(ctx, func() (any, error) {
		cmd := once{redis.NewCmd(ctx, all...)}
		return answer(cmd, e.client.Process(ctx, cmd), reply)
	})
	return r.value, err
}

// again does something until the server answers, as long as it makes sense.
func (e *Engine) again(ctx context.Context, send func() (any, error)) (result, error) {
	var unsure bool
	var err error
	for attempt := range attempts {
		var value any
		begin := time.Now()
		if value, err = send(); err == nil {
			e.trips.took(time.Since(begin))
			return result{value, unsure}, nil
		}
		unsure = unsure || redisx.Sent(err)
		if !redisx.Passing(err) || ctx.Err() != nil {
			break
		}
		e.reload(ctx, err)
		if e.pause(ctx, firstWait<<attempt) != nil {
			break
		}
	}
	if unsure {
		return result{}, &unknownError{err}
	}
	return result{}, failed(err)
}

// An unknownError is about something that may have been done.
type unknownError struct{ cause error }

func (u *unknownError) Error() string {
	return store.ErrOutcomeUnknown.Error() + ": " + u.cause.Error()
}

func (u *unknownError) Unwrap() []error { return []error{store.ErrOutcomeUnknown, u.cause} }

// harmless is the error of a step that may have been done as well: it is garbage at worst.
func harmless(err error) error {
	var u *unknownError
	if errors.As(err, &u) {
		return failed(u.cause)
	}
	return err
}

func failed(err error) error {
	if errors.Is(err, store.ErrUnavailable) {
		return err
	}
	return redisx.Fail(err)
}

// send sends a script once, and once more in full where the server did not have it.
func (e *Engine) send(ctx context.Context, s step) (any, error) {
	cmd := once{redis.NewCmd(ctx, evalArgs("evalsha", s.script.sha, s)...)}
	err := e.client.Process(ctx, cmd)
	if noScript(err) {
		cmd = once{redis.NewCmd(ctx, evalArgs("eval", s.script.source, s)...)}
		err = e.client.Process(ctx, cmd)
	}
	return answer(cmd, err, s.script.reply)
}

// answer is what a command was answered, if that is of a kind it has: anything else is no answer.
func answer(cmd once, err error, reply redisx.Shape) (any, error) {
	if errors.Is(err, redis.Nil) {
		return nil, reply.Check(nil)
	}
	if err == nil {
		err = reply.Check(cmd.Val())
	}
	return cmd.Val(), err
}

// evalArgs are the arguments of a script's call: pointers, since each text would be copied to be one.
func evalArgs(command, what string, s step) []any {
	all := append(make([]any, 0, 3+len(s.keys)+len(s.args)), command, what, len(s.keys))
	for i := range s.keys {
		all = append(all, &s.keys[i])
	}
	for i := range s.args {
		all = append(all, &s.args[i])
	}
	return all
}

func noScript(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && strings.HasPrefix(answer.Error(), "NOSCRIPT")
}
