package single

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

var (
	lookupScript = redisx.NewScript(redisx.IsList, source("lookup"))
	followScript = redisx.NewScript(0, source("follow"))
)

// Find implements [store.Engine]. With scripts, it answers all lookups in one round trip.
func (e *Engine) Find(ctx context.Context, lookups []store.Lookup) (found []store.Found, err error) {
	switch {
	case len(lookups) == 0:
		return nil, nil
	case e.onlyDeclared.Load():
		found, err = e.FindWithoutScript(ctx, lookups)
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
			// Ignore the error, since the entry itself was read. A later read of its records will
			// report what is wrong with them.
			_ = e.completeEntry(ctx, f.Record.Key, fill)
		}
	}
	return found, nil
}

// findMany sends all lookups at once. If a script failed, for instance because the server did not
// have it, findMany sends that lookup again by itself.
func (e *Engine) findMany(ctx context.Context, lookups []store.Lookup) ([]store.Found, error) {
	cmds := make([]redis.Cmder, len(lookups))
	for i, l := range lookups {
		cmds[i] = lookupCommand(ctx, l, false)
	}
	if err := e.client.ProcessAll(ctx, cmds); err != nil && !redisx.IsServerReply(err) {
		return nil, redisx.Fail(err)
	}
	found := make([]store.Found, len(lookups))
	for i, l := range lookups {
		err := cmds[i].Err()
		if l.PRK.IsValid() || err == nil || errors.Is(err, redis.Nil) {
			found[i], err = parseReply(l, cmds[i], err)
		} else {
			found[i], err = e.findOne(ctx, l)
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// manyLookups is the number of concurrent lookups above which further ones use plain commands in
// place of scripts, batched into two round trips. In measurements, scripts were a tenth faster with
// 16 callers, and commands with 64.
const manyLookups = 32

// findOne answers one lookup.
func (e *Engine) findOne(ctx context.Context, l store.Lookup) (store.Found, error) {
	if !l.PRK.IsValid() {
		defer e.finding.Add(-1)
		if callers := e.finding.Add(1); callers > manyLookups && !l.All && e.options.Bulk == nil {
			if found, consistent, err := e.FindBatched(ctx, l); err != nil || consistent {
				return found, redisx.Fail(err)
			}
		}
	}
	cmd := lookupCommand(ctx, l, false)
	err := e.client.Process(ctx, cmd)
	if redisx.NoScript(err) {
		cmd = lookupCommand(ctx, l, true)
		err = e.client.Process(ctx, cmd)
	}
	if l.PRK.IsValid() || !isUndeclaredKey(err) {
		return parseReply(l, cmd, err)
	}
	e.onlyDeclared.Store(true)
	all, err := e.FindWithoutScript(ctx, []store.Lookup{l})
	if err != nil {
		return store.Found{}, err
	}
	return all[0], nil
}

// lookupCommand returns the command that reads the entry at a PRK, or the entries that SRKs name.
// For SRKs it runs a script, by its SHA or, with bySource, by its source.
func lookupCommand(ctx context.Context, l store.Lookup, bySource bool) redis.Cmder {
	if l.PRK.IsValid() {
		return redis.NewMapStringStringCmd(ctx, "hgetall", l.PRK.String())
	}
	script, prefix := &lookupScript, l.SRKs[0].Namespace().String()
	if len(l.SRKs) == 1 {
		script = &followScript
	}
	how, what := any("evalsha"), script.SHA
	if bySource {
		how, what = "eval", script.Source
	}
	if len(l.SRKs) == 1 { // go-redis parses the reply into the map that the record keeps
		return redis.NewMapStringStringCmd(ctx, how, what, 1, l.SRKs[0].String(), prefix)
	}
	args := append(make([]any, 0, 4+len(l.SRKs)), how, what, len(l.SRKs))
	for _, k := range l.SRKs {
		args = append(args, k.String())
	}
	return redis.NewCmd(ctx, append(args, prefix)...)
}

// ownerField is the field in which follow.lua returns the PRK among the fields of the entry.
const ownerField = "~srv"

// parseReply parses the reply to the command of a lookup. After an error of the context the command
// may still be under way, so parseReply does not touch it.
func parseReply(l store.Lookup, cmd redis.Cmder, err error) (store.Found, error) {
	if many, is := cmd.(*redis.Cmd); is {
		reply, err := redisx.Answer(many, err, redisx.IsList)
		if err != nil {
			return store.Found{}, redisx.Fail(err)
		}
		return parseLookup(l, reply)
	}
	var fields map[string]string
	if err == nil {
		fields = cmd.(*redis.MapStringStringCmd).Val()
	}
	switch {
	case l.PRK.IsValid():
		found := redisx.FoundAt(l.PRK, fields, err)
		return found, store.StoreError(found.Err)
	case errors.Is(err, redis.Nil):
		return store.Found{Err: store.ErrNotFound}, nil
	case redisx.WrongType(err):
		return store.Believe(l, []store.Candidate{{SRK: l.SRKs[0], Problem: err.Error()}}), nil
	case err != nil:
		return store.Found{}, redisx.Fail(err)
	}
	owner, is := fields[ownerField]
	if !is {
		return store.Found{}, redisx.Fail(redisx.IsList.Check(nil))
	}
	delete(fields, ownerField)
	return store.Believe(l, []store.Candidate{{SRK: l.SRKs[0], Owner: owner, Fields: fields}}), nil
}

// parseLookup parses the reply of lookup.lua, which holds the entry that each SRK led to, and
// returns the entry to believe (see store.Believe).
func parseLookup(l store.Lookup, reply any) (store.Found, error) {
	items := redisx.Items(reply)
	if err := redisx.CheckLength(len(items), len(l.SRKs)); err != nil {
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
			c.Fields = fieldMap(texts[1:])
		}
		cs = append(cs, c)
	}
	return store.Believe(l, cs), nil
}

func fieldMap(flat []any) map[string]string {
	fields := make(map[string]string, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		fields[redisx.Text(flat, i)] = redisx.Text(flat, i+1)
	}
	return fields
}

// isUndeclaredKey reports whether err comes from a server that rejects scripts that use undeclared
// keys.
func isUndeclaredKey(err error) bool {
	if err == nil || !redisx.IsServerReply(err) {
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
