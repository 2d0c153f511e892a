package single

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

var (
	lookupScript = redisx.NewScript(scripts, "lookup", redisx.IsList)
	followScript = redisx.NewScript(scripts, "follow", 0) // it is read into a map
)

// Find implements [store.Engine]: one round trip for all lookups.
func (e *Engine) Find(ctx context.Context, lookups []store.Lookup) (found []store.Found, err error) {
	switch {
	case len(lookups) == 0:
		return nil, nil
	case e.strict.Load():
		found, err = e.FindByCommands(ctx, lookups)
	case len(lookups) == 1:
		found = make([]store.Found, 1)
		found[0], err = e.findOne(ctx, lookups[0])
	default:
		found, err = e.findMany(ctx, lookups)
	}
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		if fill := f.Record.Fields[store.FieldFill]; fill != "" {
			_ = e.completeEntry(ctx, f.Record.Key, fill) // the entry itself was read; its records will say what is wrong
		}
	}
	return found, nil
}

// findMany sends every lookup at once. One that the server has no script for is answered by itself.
func (e *Engine) findMany(ctx context.Context, lookups []store.Lookup) ([]store.Found, error) {
	pipe := e.client.Pipeline()
	for _, l := range lookups {
		if l.PRK.IsValid() {
			pipe.HGetAll(ctx, l.PRK.String())
		} else {
			pipe.Do(ctx, lookupScript.Call(lookupArgs(l))...)
		}
	}
	cmds, err := pipe.Exec(ctx)
	if err != nil && !redisx.IsAnswer(err) {
		return nil, redisx.Fail(err)
	}
	found := make([]store.Found, len(lookups))
	for i, l := range lookups {
		var err error
		switch cmd := cmds[i].(type) {
		case *redis.MapStringStringCmd:
			found[i] = redisx.FoundAt(l.PRK, cmd.Val(), cmd.Err())
		case *redis.Cmd:
			if cmd.Err() != nil {
				found[i], err = e.findOne(ctx, l)
			} else {
				found[i], err = believed(l, cmd.Val())
			}
		}
		if err = cmp.Or(err, store.NotOfEntry(found[i].Err)); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// findOne answers one lookup: one by SRKs in one batch with those of other callers, where many come at the same time.
func (e *Engine) findOne(ctx context.Context, l store.Lookup) (store.Found, error) {
	if l.PRK.IsValid() {
		cmd := redis.NewMapStringStringCmd(ctx, "hgetall", l.PRK.String())
		if err := e.client.Process(ctx, cmd); err != nil {
			found := redisx.FoundAt(l.PRK, nil, err)
			return found, store.NotOfEntry(found.Err)
		}
		return redisx.FoundAt(l.PRK, cmd.Val(), nil), nil
	}
	busy := e.finding.Enter()
	defer e.finding.Leave()
	if busy && !l.All && e.options.Bulk == nil {
		found, sure, err := e.FindBatched(ctx, l)
		if err != nil || sure {
			return found, redisx.Fail(err)
		}
	}
	look := e.lookUp
	if len(l.SRKs) == 1 {
		look = e.follow
	}
	found, err := look(ctx, l)
	if !undeclared(err) {
		return found, err
	}
	e.strict.Store(true)
	all, err := e.FindByCommands(ctx, []store.Lookup{l})
	if err != nil {
		return store.Found{}, err
	}
	return all[0], nil
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
	keys, args := lookupArgs(l)
	reply, err := lookupScript.Read(ctx, e.client.Process, keys, args)
	if err != nil {
		return store.Found{}, redisx.Fail(err)
	}
	return believed(l, reply)
}

func lookupArgs(l store.Lookup) (keys, args []string) {
	return appendKeys(make([]string, 0, len(l.SRKs)), l.SRKs), []string{l.SRKs[0].Namespace().String()}
}

// believed is what the lookup script's reply says, if it is one: what each SRK led to.
func believed(l store.Lookup, reply any) (store.Found, error) {
	items := redisx.Items(reply)
	if err := redisx.AsMany(len(items), len(l.SRKs)); err != nil {
		return store.Found{}, redisx.Fail(err)
	}
	cs := make([]store.Candidate, 0, len(items))
	for i, item := range items {
		if item == nil {
			continue
		}
		if err := redisx.IsTexts.Check(item); err != nil {
			return store.Found{}, redisx.Fail(err)
		}
		texts := redisx.Items(item)
		c := store.Candidate{SRK: l.SRKs[i], Owner: redisx.Text(texts, 0)}
		if c.Owner == "" {
			c.Problem = redisx.Text(texts, 1)
		} else {
			c.Fields = fieldsOf(texts[1:])
		}
		cs = append(cs, c)
	}
	return store.Believe(l, cs), nil
}

func fieldsOf(flat []any) map[string]string {
	fields := make(map[string]string, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		fields[redisx.Text(flat, i)] = redisx.Text(flat, i+1)
	}
	return fields
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
