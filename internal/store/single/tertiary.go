package single

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

//go:embed scripts/tertiary.lua
var tertiaryLua string

var tertiaryScript = redisx.NewScript(guardLua+tertiaryLua, redisx.IsVerdict)

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
	args = append(args, flag(op.Write), strconv.Itoa(len(op.Index)), op.Command)
	return keys, append(args, op.Args...)
}
