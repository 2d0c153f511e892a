package cluster

import (
	"context"
	_ "embed"
	"time"

	"github.com/coffeenode/userdb/internal/store/onekey"
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
	claimScript   = redisx.NewScript(claimLua, redisx.IsNumber|redisx.IsText)
	swapScript    = redisx.NewScript(swapLua, redisx.IsNumber)
	fenceScript   = redisx.NewScript(fenceLua, redisx.IsNumber)
	prepareScript = redisx.NewScript(prepareLua, redisx.IsTexts)
	commitScript  = redisx.NewScript(onekey.TokensLua+commitLua, redisx.IsVerdict)
	buryScript    = redisx.NewScript(buryLua, redisx.IsNumber)
	readyScript   = redisx.NewScript(readyLua, redisx.IsNumber)
	promoteScript = redisx.NewScript(promoteLua, redisx.IsNumber)
	filledScript  = redisx.NewScript(filledLua, redisx.IsNumber)
	schemaScript  = redisx.NewScript(schemaLua, redisx.IsVerdict)
)

var allScripts = []redisx.Script{
	claimScript, swapScript, fenceScript, prepareScript, commitScript, buryScript,
	readyScript, promoteScript, filledScript, schemaScript, onekey.IssueScript, onekey.PeekScript,
}

// A step is one script of the protocol, on keys of one slot.
type step struct {
	script redisx.Script
	keys   []string
	args   []string
}

func on(s redisx.Script, key string, args ...string) step { return step{s, []string{key}, args} }

// A result is the answer to a step.
type result struct {
	value  any
	unsure bool // an earlier sending of it may have been carried out
}

// yes says whether a script answered 1.
func (r result) yes() bool { return r.value == int64(1) }

const attempts = 8

// run sends one step until it is answered: every step may arrive twice. The error keeps whether it
// may have been carried out (ErrOutcomeUnknown) or certainly was not.
func (e *Engine) run(ctx context.Context, s step) (result, error) {
	return e.again(ctx, func() (any, error) {
		return s.script.Write(ctx, e.client.UniversalClient.Process, s.keys, s.args)
	})
}

// plain sends a command that may arrive twice.
func (e *Engine) plain(ctx context.Context, reply redisx.Shape, args ...string) (any, error) {
	call := make([]any, len(args))
	for i, a := range args {
		call[i] = a
	}
	r, err := e.again(ctx, func() (any, error) {
		cmd := redisx.NewOnce(ctx, call)
		return redisx.Answer(cmd.Cmd, e.client.UniversalClient.Process(ctx, cmd), reply)
	})
	return r.value, err
}

// again does something until the server answers, as long as it makes sense, and learns how long a round trip takes.
func (e *Engine) again(ctx context.Context, send func() (any, error)) (result, error) {
	value, unsure, err := e.client.Retry.Do(ctx, func(bool) (any, error) {
		begin := time.Now()
		value, err := send()
		if err == nil {
			e.trips.took(time.Since(begin))
		}
		return value, err
	})
	return result{value, unsure}, err
}
