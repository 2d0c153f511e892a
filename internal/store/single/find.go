package single

import (
	"context"
	_ "embed"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

var (
	//go:embed scripts/lookup.lua
	lookupLua string
	//go:embed scripts/follow.lua
	followLua string
)

var (
	lookupScript = redisx.NewScript(lookupLua, redisx.IsList)
	followScript = redisx.NewScript(followLua, 0) // it is read into a map
)

// Find implements [store.Engine]: one round trip for all lookups.
func (e *Engine) Find(ctx context.Context, lookups []store.Lookup) ([]store.Found, error) {
	found, err := e.find(ctx, lookups)
	return e.completed(ctx, found), err
}

func (e *Engine) find(ctx context.Context, lookups []store.Lookup) ([]store.Found, error) {
	if len(lookups) == 0 {
		return nil, nil
	}
	if e.strict.Load() {
		return e.FindByCommands(ctx, lookups)
	}
	if len(lookups) == 1 {
		return e.findOne(ctx, lookups[0])
	}
	cmds, err := e.pipeline(ctx, lookups)
	if err != nil {
		return nil, err
	}
	found := make([]store.Found, len(lookups))
	for i, l := range lookups {
		switch cmd := cmds[i].(type) {
		case *redis.MapStringStringCmd:
			found[i] = redisx.FoundAt(l.PRK, cmd.Val(), cmd.Err())
		case *redis.Cmd:
			found[i], err = e.answered(ctx, l, cmd)
		}
		if err == nil {
			err = store.NotOfEntry(found[i].Err)
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// pipeline sends every lookup at once. An error of one command stands in that command.
func (e *Engine) pipeline(ctx context.Context, lookups []store.Lookup) ([]redis.Cmder, error) {
	pipe := e.client.Pipeline()
	for _, l := range lookups {
		if l.PRK.IsValid() {
			pipe.HGetAll(ctx, l.PRK.String())
		} else {
			pipe.Do(ctx, lookupScript.Call(keysOf(l.SRKs), prefixOf(l))...)
		}
	}
	cmds, err := pipe.Exec(ctx)
	if err != nil && !redisx.IsAnswer(err) {
		return nil, redisx.Fail(err)
	}
	return cmds, nil
}

// answered reads what the lookup script answered, and runs it again where the server did not have it.
func (e *Engine) answered(ctx context.Context, l store.Lookup, cmd *redis.Cmd) (store.Found, error) {
	if cmd.Err() != nil {
		found, err := e.findOne(ctx, l)
		if err != nil {
			return store.Found{}, err
		}
		return found[0], nil
	}
	reply, err := cmd.Slice()
	if err != nil {
		return store.Found{}, redisx.Fail(err)
	}
	return believed(l, reply)
}

// findOne answers one lookup: one by SRKs in one batch with those of other callers, where many come at the same time.
func (e *Engine) findOne(ctx context.Context, l store.Lookup) ([]store.Found, error) {
	if l.PRK.IsValid() {
		return e.findAlone(ctx, l)
	}
	busy := e.finding.Enter()
	defer e.finding.Leave()
	if busy && !l.All && e.options.Bulk == nil {
		found, sure, err := e.FindBatched(ctx, l)
		if err != nil {
			return nil, redisx.Fail(err)
		}
		if sure {
			return []store.Found{found}, nil
		}
	}
	return e.findAlone(ctx, l)
}

// findAlone answers one lookup: by HGETALL at a PRK, else by a script.
func (e *Engine) findAlone(ctx context.Context, l store.Lookup) ([]store.Found, error) {
	var found store.Found
	var err error
	switch {
	case l.PRK.IsValid():
		cmd := redis.NewMapStringStringCmd(ctx, "hgetall", l.PRK.String())
		if err = e.client.Process(ctx, cmd); err == nil {
			return []store.Found{redisx.FoundAt(l.PRK, cmd.Val(), nil)}, nil
		}
		found = redisx.FoundAt(l.PRK, nil, err)
		err = store.NotOfEntry(found.Err)
	case len(l.SRKs) == 1:
		found, err = e.follow(ctx, l)
	default:
		found, err = e.lookUp(ctx, l)
	}
	if undeclared(err) {
		e.strict.Store(true)
		return e.FindByCommands(ctx, []store.Lookup{l})
	}
	return []store.Found{found}, err
}

// ownerField is the name under which follow.lua puts the PRK among the entry's fields.
const ownerField = "~srv"

// follow reads the entry that one SRK names. The reply is read into the map that the record keeps.
func (e *Engine) follow(ctx context.Context, l store.Lookup) (store.Found, error) {
	srk, prefix := l.SRKs[0].String(), l.SRKs[0].Namespace().String()
	cmd := redis.NewMapStringStringCmd(ctx, "evalsha", followScript.SHA, 1, srk, prefix)
	err := e.client.Process(ctx, cmd)
	if redisx.NoScript(err) {
		cmd = redis.NewMapStringStringCmd(ctx, "eval", followScript.Source, 1, srk, prefix)
		err = e.client.Process(ctx, cmd)
	}
	switch {
	case errors.Is(err, redis.Nil):
		return store.Found{Err: store.ErrNotFound}, nil
	case redisx.WrongType(err):
		return store.Believe(l, []store.Candidate{{SRK: l.SRKs[0], Problem: err.Error()}}), nil
	case err != nil:
		return store.Found{}, redisx.Fail(err)
	}
	fields := cmd.Val()
	owner, is := fields[ownerField]
	if !is {
		return store.Found{}, redisx.Fail(redisx.IsList.Check(nil))
	}
	delete(fields, ownerField)
	return store.Believe(l, []store.Candidate{{SRK: l.SRKs[0], Owner: owner, Fields: fields}}), nil
}

// lookUp reads the entries that several SRKs name.
func (e *Engine) lookUp(ctx context.Context, l store.Lookup) (store.Found, error) {
	reply, err := lookupScript.Read(ctx, e.client.Process, keysOf(l.SRKs), prefixOf(l))
	if err != nil {
		return store.Found{}, redisx.Fail(err)
	}
	return believed(l, redisx.Items(reply))
}

// believed is what the lookup script's reply says, if it is one.
func believed(l store.Lookup, reply []any) (store.Found, error) {
	cs, err := candidates(l, reply)
	if err != nil {
		return store.Found{}, redisx.Fail(err)
	}
	return store.Believe(l, cs), nil
}

// undeclared reports whether err is the answer of a server that forbids scripts the keys that they do not declare.
func undeclared(err error) bool {
	if err == nil || !redisx.IsAnswer(err) {
		return false
	}
	text := strings.ToLower(err.Error())
	for _, word := range []string{"undeclared", "non declared", "not declared", "non local", "non-local"} {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

// candidates makes of the script's reply what each SRK led to.
func candidates(l store.Lookup, reply []any) ([]store.Candidate, error) {
	if err := redisx.AsMany(len(reply), len(l.SRKs)); err != nil {
		return nil, err
	}
	cs := make([]store.Candidate, 0, len(reply))
	for i, item := range reply {
		if item == nil {
			continue
		}
		if err := redisx.IsTexts.Check(item); err != nil {
			return nil, err
		}
		flat, _ := item.([]any)
		c := store.Candidate{SRK: l.SRKs[i], Owner: redisx.Text(flat, 0)}
		if c.Owner == "" {
			c.Problem = redisx.Text(flat, 1)
		} else {
			c.Fields = fieldsOf(flat[1:])
		}
		cs = append(cs, c)
	}
	return cs, nil
}

func fieldsOf(flat []any) map[string]string {
	fields := make(map[string]string, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		fields[redisx.Text(flat, i)] = redisx.Text(flat, i+1)
	}
	return fields
}

func keysOf(ks []recordkey.Key) []string { return appendKeys(make([]string, 0, len(ks)), ks) }

func prefixOf(l store.Lookup) []string { return []string{l.SRKs[0].Namespace().String()} }
