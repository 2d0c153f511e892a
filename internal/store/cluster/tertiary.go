package cluster

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// Tertiary implements [store.Engine]: single-key commands, between two looks at the entry for those
// that write. A record that was written to while its entry died is never shown, and goes again.
func (e *Engine) Tertiary(ctx context.Context, op store.Op) (store.Reply, error) {
	if !op.Write {
		return e.readTertiary(ctx, op)
	}
	if _, err := e.guard(ctx, op.Schema); err != nil {
		return store.Reply{}, err
	}
	if _, err := e.mustLive(ctx, op.PRK); err != nil {
		return store.Reply{}, err
	}
	reply, err := e.command(ctx, op)
	if err != nil {
		return store.Reply{}, err
	}
	for {
		live, err := e.alignOp(ctx, op)
		if redisx.WrongType(err) {
			return reply, &store.CorruptError{Key: op.Key.String(), Reason: "an index of its members is not a set (WRONGTYPE)"}
		}
		if err != nil {
			return store.Reply{}, &doneError{err}
		}
		if live {
			return reply, nil
		}
		if e.dropOf(ctx, op) {
			return store.Reply{}, store.ErrNotFound
		}
	}
}

// A doneError is about a command that was carried out: what came behind it failed, so that it is not known whether the
// entry was live.
type doneError struct{ cause error }

func (d *doneError) Error() string {
	return store.ErrOutcomeUnknown.Error() + ": it was carried out, but the look behind it failed: " + d.cause.Error()
}

// Is makes the error an ErrOutcomeUnknown, and not what its cause says of a command that was not sent.
func (d *doneError) Is(target error) bool {
	return target == store.ErrOutcomeUnknown || target != store.ErrUnavailable && errors.Is(d.cause, target)
}

// alignOp brings index members in line with what a command did, and says whether the entry was live
// behind that.
func (e *Engine) alignOp(ctx context.Context, op store.Op) (live bool, err error) {
	if len(op.Index)+len(op.Unindex) == 0 {
		return e.live(ctx, op.PRK)
	}
	for i, keys := range [][]recordkey.Key{op.Unindex, op.Index} {
		members := make([]string, len(keys))
		for j, k := range keys {
			members[j] = k.Value()
		}
		if len(keys) == 0 {
			continue
		}
		if live, err = e.alignMembers(ctx, op.Key, members, i == 1); err != nil {
			return false, err
		}
	}
	return live, nil
}

// dropOf removes what was written to a record whose entry died meanwhile; false where it is live again.
func (e *Engine) dropOf(ctx context.Context, op store.Op) bool {
	var again atomic.Bool
	afterwards(ctx, finishTime, func(ctx context.Context) {
		dead, err := e.ifDead(ctx, op.PRK, "", func(ctx context.Context) error {
			return e.drop(ctx, store.Container{Key: op.Key, Indexed: len(op.Index)+len(op.Unindex) > 0})
		})
		again.Store(err == nil && !dead)
	})
	return !again.Load()
}

// readTertiary asks for the record and for its entry at the same time; the entry is what counts. Where nothing was
// found it asks once more: what was born with the entry may have come into its place between the two.
func (e *Engine) readTertiary(ctx context.Context, op store.Op) (store.Reply, error) {
	var reply store.Reply
	filled := false
	err := together(2, func(i int) (err error) {
		if i == 0 {
			filled, err = e.mustLive(ctx, op.PRK)
			return err
		}
		reply, err = e.command(ctx, op)
		return err
	})
	if err == nil && (filled || reply.Empty()) {
		return e.command(ctx, op)
	}
	return reply, err
}

// command sends a tertiary command; one that must not be done twice is sent once.
func (e *Engine) command(ctx context.Context, op store.Op) (reply store.Reply, err error) {
	all := append(make([]any, 0, len(op.Args)+2), op.Command, op.Key.String())
	for _, a := range op.Args {
		all = append(all, a)
	}
	send := func() (any, error) {
		cmd := redisx.NewOnce(ctx, all)
		err := e.client.UniversalClient.Process(ctx, cmd)
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, err
		}
		reply, err = redisx.ParseReply(op.Command, cmd.Val())
		return nil, err
	}
	if op.Once {
		if _, err = send(); err != nil && redisx.Sent(err) {
			return store.Reply{}, &redisx.UnknownError{Cause: err}
		}
		err = redisx.Fail(err)
	} else {
		_, err = e.again(ctx, send)
	}
	switch {
	case redisx.WrongType(err):
		return store.Reply{}, &store.CorruptError{Key: op.Key.String(), Reason: "another Redis type than the schema says (WRONGTYPE)"}
	case err != nil && op.Write:
		return store.Reply{}, err
	case err != nil:
		return store.Reply{}, redisx.Harmless(err)
	}
	return reply, nil
}
