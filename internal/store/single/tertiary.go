package single

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

var (
	//go:embed scripts/tertiary.lua
	tertiaryLua string
	//go:embed scripts/read.lua
	readLua string
)

var (
	tertiaryScript = redisx.NewScript(guardLua+tertiaryLua, redisx.IsVerdict)
	readScript     = redisx.NewScript(readLua, redisx.IsList)
)

// Tertiary implements [store.Engine]: one script.
func (e *Engine) Tertiary(ctx context.Context, op store.Op) (store.Reply, error) {
	may := op.Schema.Exact || !op.Write
	for range 3 {
		reply, err := e.tertiary(ctx, op, may)
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
			if err := e.complete(ctx, op.PRK); err != nil {
				return store.Reply{}, err
			}
		case "absent":
			return store.Reply{}, store.ErrNotFound
		case "schema":
			return store.Reply{}, &store.MismatchError{Stored: redisx.Text(reply, 1)}
		case "unstored":
			if err := store.NoEntries(ctx, e, op.Schema.Entries); err != nil {
				return store.Reply{}, err
			}
			may = true
		default:
			return store.Reply{}, redisx.Fail(redisx.Unknown(redisx.Text(reply, 0)))
		}
	}
	return store.Reply{}, store.ErrConflict
}

// tertiary sends the script: again and again like every write, or only once for a command that
// would be done twice, or as a read, which the client itself may repeat.
func (e *Engine) tertiary(ctx context.Context, op store.Op, may bool) ([]any, error) {
	keys, args := tertiaryArgs(op, may)
	if op.Write && !op.Once {
		reply, _, err := e.client.Write(ctx, tertiaryScript, keys, args)
		return redisx.Items(reply), wrongType(op, err)
	}
	send := tertiaryScript.Read
	if op.Write {
		send = tertiaryScript.Write
	}
	reply, err := send(ctx, e.client.Process, keys, args)
	switch {
	case err != nil && op.Write && e.sent(err):
		return nil, fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, err)
	case err != nil:
		return nil, wrongType(op, redisx.Fail(err))
	}
	return redisx.Items(reply), nil
}

func wrongType(op store.Op, err error) error {
	if redisx.WrongType(err) {
		return &store.CorruptError{Key: op.Key.String(), Reason: "another Redis type than the schema says (WRONGTYPE)"}
	}
	return err
}

func tertiaryArgs(op store.Op, may bool) (keys, args []string) {
	keys = []string{op.PRK.String(), op.Schema.Key.String(), op.Schema.Types.String(), op.Key.String()}
	keys = appendKeys(appendKeys(keys, op.Index), op.Unindex)
	args = guardArgs(op.PRK, op.Schema, "", may)
	args = append(args, onekey.Flag(op.Write), strconv.Itoa(len(op.Index)), op.Command)
	return keys, append(args, op.Args...)
}

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
	w := store.Entry{Found: redisx.FoundAt(r.PRK, fieldsOf(redisx.Items(reply[0])), nil), Parts: make([]store.Part, len(reply)-1)}
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
