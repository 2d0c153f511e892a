package cluster

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// Tertiary records that are born with an entry must be there with it or not at all (I7), and no create that
// comes to nothing may touch those of a live entry. So they are laid ready in a place of the attempt's own
// (store.StageKey), in the slot of the record; the commit writes ~fill, and then they are moved over, in one
// step. Who reads the entry does not wait for that: their slot may be another one, which cannot be written to for a
// while. Who reads or writes the records does. What was laid ready and never committed is for a check to remove.

var stageLife = strconv.Itoa(int(store.StageLife / time.Second))

// fill is what ~fill says.
func (a *attempt) fill() string {
	f := store.Fill{Rev: a.token}
	for _, m := range a.c.Add {
		f.Parts = append(f.Parts, store.FillPart{Set: m.Key, Indexed: len(m.Index) > 0, Replaces: a.c.Replaces(m)})
	}
	return f.String()
}

func (a *attempt) layReady(ctx context.Context, m store.Members) error {
	args := append([]string{stageLife, m.Command()}, m.Values...)
	_, err := a.e.run(ctx, on(readyScript, store.StageKey(m.Key, a.token), args...))
	return err
}

// complete puts in place what a ~fill field says. Anybody may do it, any number of times.
func (e *Engine) complete(ctx context.Context, entry recordkey.Key, fill string) error {
	f := store.ParseFill(entry, fill)
	for _, p := range f.Parts {
		if err := e.promote(ctx, p, f.Rev); err != nil {
			return err
		}
	}
	_, err := e.run(ctx, on(filledScript, entry.String(), fill))
	return redisx.Harmless(err)
}

// promote reads the members first: an answer that is lost would take them with it.
func (e *Engine) promote(ctx context.Context, p store.FillPart, token string) error {
	stage, how := store.StageKey(p.Set, token), "join"
	if p.Replaces {
		how = "replace"
	}
	var members []string
	if p.Indexed {
		var err error
		if members, err = e.members(ctx, stage); err != nil {
			return err
		}
	}
	_, err := e.run(ctx, step{promoteScript, []string{stage, p.Set.String()}, []string{how}})
	if err == nil && len(members) > 0 {
		_, err = e.alignMembers(ctx, p.Set, members, true)
	}
	return redisx.Harmless(err)
}

// completions are those that readers have begun.
type completions struct {
	mu sync.Mutex
	of map[string]bool // by ~fill
}

// mostCompletions are under way at once: while a slot is open, each tries for some seconds.
const mostCompletions = 16

// begin reports whether somebody shall complete what a ~fill says.
func (c *completions) begin(fill string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[fill] || len(c.of) >= mostCompletions {
		return false
	}
	if c.of == nil {
		c.of = map[string]bool{}
	}
	c.of[fill] = true
	return true
}

func (c *completions) end(fill string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, fill)
}

// read has what was laid ready for an entry that was read put in place, and does not wait for it.
func (e *Engine) read(ctx context.Context, entry recordkey.Key, fields map[string]string) {
	fill := fields[store.FieldFill]
	if fill == "" || fields[store.FieldType] == "" {
		return
	}
	delete(fields, store.FieldFill)
	if !e.completions.begin(fill) {
		return
	}
	e.aside(ctx, func(ctx context.Context) {
		defer e.completions.end(fill)
		_ = e.complete(ctx, entry, fill)
	})
}

// aside does something while the caller goes on, for as long as a verb goes on with what is left to do.
func aside(ctx context.Context, do func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	go func() {
		defer cancel()
		do(ctx)
	}()
}
