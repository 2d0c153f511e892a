package single

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

var (
	//go:embed scripts/align.lua
	alignLua string
	//go:embed scripts/sweep.lua
	sweepLua string
	//go:embed scripts/restate.lua
	restateLua string
)

var (
	alignScript   = redisx.NewScript(alignLua, redisx.IsNumber)
	sweepScript   = redisx.NewScript(sweepLua, redisx.IsNumber)
	restateScript = redisx.NewScript(restateLua, redisx.IsNumber)
)

// Align implements [store.Mender]: one script.
func (e *Engine) Align(ctx context.Context, m store.Membership) (bool, error) {
	keys := []string{m.Index.String(), m.Entry.String()}
	if !m.Entry.IsValid() {
		keys[1] = keys[0] // which is no entry
	}
	value := m.Facet.Wire
	if m.Set.IsValid() {
		keys, value = append(keys, m.Set.String()), m.Value
	}
	return e.yes(ctx, alignScript, keys, m.Member, m.Facet.Field, value)
}

// Sweep implements [store.Mender]: one script on one key.
func (e *Engine) Sweep(ctx context.Context, w store.Waste) (bool, error) {
	return e.yes(ctx, sweepScript, []string{w.Key}, w.Kind, w.Text)
}

// Restate implements [store.Mender]: every later change of another writer compares with the new state.
func (e *Engine) Restate(ctx context.Context, g store.Guard, seen string, state []store.Facet) (bool, error) {
	if err := e.client.SAdd(ctx, g.Types.String(), g.Key.Parts()[1]).Err(); err != nil {
		return false, redisx.Fail(err)
	}
	args := []string{seen}
	for _, f := range state {
		args = append(args, f.Field, f.Wire)
	}
	return e.yes(ctx, restateScript, []string{g.Key.String()}, args...)
}

// Settle implements [store.Mender]: every change compares.
func (e *Engine) Settle(context.Context) error { return nil }

// Copy implements [store.Mender]: one command of the server's.
func (e *Engine) Copy(ctx context.Context, from, to string) (bool, error) {
	n, err := e.client.Do(ctx, "copy", from, to, "replace").Int64()
	if err != nil {
		return false, fmt.Errorf("copying a record: %w", redisx.Fail(err))
	}
	return n == 1, nil
}
