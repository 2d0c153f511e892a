package single

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/arg"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

var (
	tertiaryScript = redisx.NewScript(redisx.IsVerdict, history.Lua, onekey.ChangesLua, onekey.CommandLua, guardLua, source("tertiary"))
	readScript     = redisx.NewScript(redisx.IsList, source("read"))
)

// Tertiary implements [store.Engine]. It runs one script, or one for each page of a large record.
func (e *Engine) Tertiary(ctx context.Context, op store.Op) (store.Reply, error) {
	return e.ReadPages(op, func(op store.Op) (store.Reply, error) { return e.runOp(ctx, op) })
}

func (e *Engine) runOp(ctx context.Context, op store.Op) (store.Reply, error) {
	mayStore := op.Schema.MayStore || !op.Write
	for range 3 {
		reply, err := e.tertiary(ctx, op, mayStore)
		if err != nil {
			return store.Reply{}, fmt.Errorf("%s %s: %w", op.Command, op.Key, err)
		}
		switch redisx.Text(reply, 0) {
		case "ok":
			if len(reply) == 1 {
				return store.Reply{Nil: true}, nil
			}
			parsed, err := redisx.ParseReply(op.Command, reply[1])
			if err != nil && op.Write {
				err = fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, err)
			}
			return parsed, redisx.Fail(err)
		case "filling":
			if err := e.completeEntry(ctx, op.PRK, redisx.Text(reply, 1)); err != nil {
				return store.Reply{}, err
			}
		case "absent":
			return store.Reply{}, store.ErrNotFound
		case "full":
			return store.Reply{}, store.ErrFull
		case "schema":
			return store.Reply{}, &store.MismatchError{Stored: redisx.Text(reply, 1)}
		case "unstored":
			if err := store.CheckNoEntries(ctx, e, op.Schema.Entries); err != nil {
				return store.Reply{}, err
			}
			mayStore = true
		default:
			return store.Reply{}, redisx.Fail(redisx.UnknownWord(redisx.Text(reply, 0)))
		}
	}
	return store.Reply{}, store.ErrConflict
}

// tertiary runs the script for op. It repeats a write until the outcome is known, unless op may be
// sent only once. It sends a read once, because the client may repeat that itself.
func (e *Engine) tertiary(ctx context.Context, op store.Op, mayStore bool) ([]any, error) {
	keys := []string{op.PRK.String(), op.Schema.Key.String(), op.Schema.Types.String(), op.Key.String()}
	keys = appendKeys(appendKeys(keys, op.Index), op.Unindex)
	args := append(guardArgs(op.PRK, op.Schema, "", mayStore), arg.Bool(op.Write), strconv.Itoa(len(op.Index)), op.Command, strconv.Itoa(op.MaxMembers))
	args = append(args, op.Args...)
	keys, args = e.AppendNote(keys, args, history.InBoth, op.PRK, op.Note)
	var reply any
	var err error
	if op.Write {
		retry := e.client.Retry
		if op.NoRetry {
			retry.Retryable = func(error) bool { return false }
		}
		reply, _, err = retry.Do(ctx, func(bool) (any, error) { return tertiaryScript.Write(ctx, e.client.Process, keys, args) })
	} else {
		reply, err = tertiaryScript.Read(ctx, e.client.Process, keys, args)
		err = redisx.Fail(err)
	}
	if redisx.WrongType(err) {
		err = &store.CorruptError{Key: op.Key.String(), Reason: "not of the Redis type that the schema declares (WRONGTYPE)"}
	}
	return redisx.Items(reply), err
}

// Read implements [store.Engine]. It runs one script for each entry, all in one round trip. The
// rest of large records takes further round trips.
func (e *Engine) Read(ctx context.Context, reads []store.EntryRead) ([]store.Entry, error) {
	pipe := e.client.Pipeline()
	cmds := make([]*redis.Cmd, len(reads))
	for i, r := range reads {
		cmds[i] = pipe.Do(ctx, readScript.EvalSHAArgs(readKeys(r), e.readArgs(r))...)
	}
	if err := redisx.Exec(ctx, pipe); err != nil {
		return nil, err
	}
	entries := make([]store.Entry, len(reads))
	for i, r := range reads {
		readBySource := func() store.Entry {
			return e.parseEntry(ctx, r, e.client.Do(ctx, readScript.EvalArgs(readKeys(r), e.readArgs(r))...))
		}
		entries[i] = e.parseEntry(ctx, r, cmds[i])
		if redisx.NoScript(cmds[i].Err()) {
			entries[i] = readBySource()
		}
		if fill := entries[i].Record.Fields[store.FieldFill]; fill != "" {
			if err := e.completeEntry(ctx, r.PRK, fill); err != nil {
				return nil, err
			}
			entries[i] = readBySource()
		}
		if err := store.StoreError(entries[i].Err); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

func readKeys(r store.EntryRead) []string { return appendKeys([]string{r.PRK.String()}, r.Keys) }

func (e *Engine) readArgs(r store.EntryRead) []string {
	return append([]string{strconv.Itoa(e.PageSize())}, r.Kinds...)
}

// parseEntry returns the entry in a reply of read.lua, and reads the rest of large records.
func (e *Engine) parseEntry(ctx context.Context, r store.EntryRead, cmd *redis.Cmd) store.Entry {
	reply, err := cmd.Slice()
	if err == nil {
		err = redisx.CheckLength(len(reply), 1+len(r.Keys))
	}
	if err == nil {
		err = redisx.IsTexts.Check(reply[0])
	}
	if err != nil {
		return store.Entry{Found: redisx.FoundAt(r.PRK, nil, err)}
	}
	w := store.Entry{Found: redisx.FoundAt(r.PRK, fieldMap(redisx.Items(reply[0])), nil), Parts: make([]store.Part, len(reply)-1)}
	for i, part := range reply[1:] {
		items, _ := part.([]any)
		if redisx.IsVerdict.Check(part) != nil || len(items) != 3 || redisx.IsTexts.Check(items[1]) != nil {
			return store.Entry{Found: redisx.FoundAt(r.PRK, nil, redisx.IsTexts.Check(part))}
		}
		values := redisx.Texts(items[1])
		if rest := redisx.Text(items, 2); rest != "" {
			if values, err = e.ReadRest(ctx, r.Keys[i], r.Kinds[i], rest, values); err != nil {
				return store.Entry{Found: store.Found{Err: err}}
			}
		}
		w.Parts[i] = store.Part{Kind: redisx.Text(items, 0), Values: values}
		for j := 0; w.Parts[i].Kind == "zset" && j+1 < len(values); j += 2 {
			values[j], values[j+1] = values[j+1], values[j] // Part has scores before members
		}
	}
	return w
}
