package single

import (
	"context"
	_ "embed"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

//go:embed scripts/read.lua
var readLua string

var readScript = redisx.NewScript(readLua, redisx.IsList)

// Read implements [store.Engine]: one script an entry, all in one round trip.
func (e *Engine) Read(ctx context.Context, reads []store.EntryRead) ([]store.Entry, error) {
	pipe := e.client.Pipeline()
	cmds := make([]*redis.Cmd, len(reads))
	for i, r := range reads {
		cmds[i] = pipe.Do(ctx, readScript.Call(readKeys(r), r.Kind)...)
	}
	if err := redisx.Exec(ctx, pipe); err != nil {
		return nil, err
	}
	entries := make([]store.Entry, len(reads))
	for i, cmd := range cmds {
		if redisx.NoScript(cmd.Err()) {
			cmd = e.client.Do(ctx, readScript.CallInFull(readKeys(reads[i]), reads[i].Kind)...)
		}
		entries[i] = entryOf(reads[i], cmd)
		if fill := entries[i].Record.Fields[store.FieldFill]; fill != "" {
			if err := e.completeEntry(ctx, reads[i].PRK, fill); err != nil {
				return nil, err
			}
			entries[i] = entryOf(reads[i], e.client.Do(ctx, readScript.CallInFull(readKeys(reads[i]), reads[i].Kind)...))
		}
		if err := store.NotOfEntry(entries[i].Err); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

func readKeys(r store.EntryRead) []string { return appendKeys([]string{r.PRK.String()}, r.Keys) }

func entryOf(r store.EntryRead, cmd *redis.Cmd) store.Entry {
	reply, err := cmd.Slice()
	if err == nil {
		err = redisx.AsMany(len(reply), 1+len(r.Keys))
	}
	if err == nil {
		err = redisx.IsTexts.Check(reply[0])
	}
	if err != nil {
		return store.Entry{Found: redisx.FoundAt(r.PRK, nil, err)}
	}
	fields := map[string]string{}
	flat := redisx.Texts(reply[0])
	for i := 0; i+1 < len(flat); i += 2 {
		fields[flat[i]] = flat[i+1]
	}
	w := store.Entry{Found: redisx.FoundAt(r.PRK, fields, nil), Parts: make([]store.Part, len(reply)-1)}
	for i, part := range reply[1:] {
		pair, _ := part.([]any)
		if redisx.IsVerdict.Check(part) != nil || len(pair) != 2 || redisx.IsTexts.Check(pair[1]) != nil {
			return store.Entry{Found: redisx.FoundAt(r.PRK, nil, redisx.IsTexts.Check(part))}
		}
		w.Parts[i] = store.Part{Kind: redisx.Text(pair, 0), Values: redisx.Texts(pair[1])}
		if w.Parts[i].Kind == "zset" {
			swap(w.Parts[i].Values)
		}
	}
	return w
}

// swap puts each score before its member.
func swap(pairs []string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		pairs[i], pairs[i+1] = pairs[i+1], pairs[i]
	}
}
