package single

import (
	"context"
	_ "embed"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

//go:embed scripts/creates.lua
var createsLua string

var createsScript = redisx.NewScript(createsLua, redisx.IsVerdict)

// Bulk implements [store.Engine].
func (e *Engine) Bulk(ctx context.Context) (context.Context, func(context.Context) error) {
	if e.options.Bulk == nil {
		return ctx, func(context.Context) error { return nil }
	}
	bulk, end := e.options.Bulk(ctx)
	return bulk, func(ctx context.Context) error { return redisx.Fail(end(ctx)) }
}

// Overlaps implements [store.Engine]: one bulk is to be saved before the next begins.
func (e *Engine) Overlaps() bool { return e.options.Bulk == nil }

// concurrent is how many changes are made at once that need scripts of their own.
const concurrent = 16

// ApplyAll implements [store.Engine].
func (e *Engine) ApplyAll(ctx context.Context, cs []store.Change, tried []store.Tried) ([]store.Version, []error) {
	versions, errs := make([]store.Version, len(cs)), make([]error, len(cs))
	if tried == nil {
		tried = make([]store.Tried, len(cs))
	}
	var rest []store.Change
	var of []int
	for i, t := range tried {
		if t.Done {
			versions[i] = store.Version{Rev: t.Token}
			continue
		}
		rest, of = append(rest, cs[i]), append(of, i)
	}
	store.Each(rest, concurrent, func(j int) {
		i := of[j]
		token := tried[i].Token
		if token == "" {
			token = store.NewToken()
		}
		versions[i], errs[i] = e.applyAny(ctx, cs[i], token, tried[i].Maybe)
	})
	return versions, errs
}

// A creation is a change in a run of many.
type creation struct {
	c     *store.Change
	token string
	maybe bool // it may have been made
	done  bool
}

// CreateAll implements [store.Engine]: many entries to a script, all scripts in one pipeline.
func (e *Engine) CreateAll(ctx context.Context, cs []store.Change) []store.Tried {
	held, all := make([]creation, len(cs)), make([]*creation, 0, len(cs))
	for i := range cs {
		if held[i] = (creation{c: &cs[i], token: store.NewToken()}); plain(&cs[i]) {
			all = append(all, &held[i])
		}
	}
	e.create(ctx, groups(all))
	tried := make([]store.Tried, len(cs))
	for i, c := range held {
		tried[i] = store.Tried{Token: c.token, Done: c.done, Maybe: c.maybe}
	}
	return tried
}

// create sends the scripts that make many entries, and marks what they have made.
func (e *Engine) create(ctx context.Context, gs []*createGroup) {
	for again := range 2 {
		if len(gs) == 0 {
			return
		}
		pipe := e.client.Pipeline()
		cmds := make([]redisx.Once, len(gs))
		for i, g := range gs {
			cmds[i] = redisx.NewOnce(ctx, g.command())
			_ = pipe.Process(ctx, cmds[i])
		}
		_, _ = pipe.Exec(ctx)
		var missing []*createGroup
		for i, g := range gs {
			if again == 0 && redisx.NoScript(cmds[i].Err()) {
				missing = append(missing, g)
				continue
			}
			g.take(cmds[i].Cmd, e.sent)
		}
		if gs = missing; len(gs) > 0 && e.client.ScriptLoad(ctx, createsScript.Source).Err() != nil {
			return
		}
	}
}

// take marks the entries of a group by what the script answered.
func (g *createGroup) take(cmd *redis.Cmd, sent func(error) bool) {
	reply, err := cmd.Slice()
	what := redisx.Text(reply, 0)
	if err == nil && what != "ok" && what != "other" {
		err = redisx.Unknown(what)
	}
	for _, c := range g.of {
		c.done = err == nil && what == "ok"
		c.maybe = err != nil && sent(err)
	}
}
