package cluster

import (
	"context"
	_ "embed"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// Tertiary implements [store.Engine]: commands on one key. Those that write come between two looks at the entry. A record
// that was written to while its entry died is never shown, and goes again.
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
	reply, err := e.runOp(ctx, op)
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

// A doneError is about a command that was carried out. The look at the entry after it failed, so that it is not known
// whether the entry was live.
type doneError struct{ cause error }

func (d *doneError) Error() string {
	return store.ErrOutcomeUnknown.Error() + ": it was carried out, but the look after it failed: " + d.cause.Error()
}

// Is makes the error an ErrOutcomeUnknown, and not what its cause says of a command that was not sent.
func (d *doneError) Is(target error) bool {
	return target == store.ErrOutcomeUnknown || target != store.ErrUnavailable && errors.Is(d.cause, target)
}

// alignOp brings index members in line with what a command did, and reports whether the entry was live after that.
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

// readTertiary asks for the record and for its entry at the same time; the entry decides. Where nothing was
// found it asks once more: what was born with the entry may have been moved there between the two.
func (e *Engine) readTertiary(ctx context.Context, op store.Op) (store.Reply, error) {
	var reply store.Reply
	filled := false
	err := parallel(2, func(i int) (err error) {
		if i == 0 {
			filled, err = e.mustLive(ctx, op.PRK)
			return err
		}
		reply, err = e.runOp(ctx, op)
		return err
	})
	if err == nil && (filled || reply.Empty()) {
		return e.runOp(ctx, op)
	}
	return reply, err
}

// runOp sends a tertiary command; one that must not be done twice is sent once.
func (e *Engine) runOp(ctx context.Context, op store.Op) (reply store.Reply, err error) {
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

// Tertiary records that are born with an entry must be there with it or not at all (I7), and no create that
// comes to nothing may touch those of a live entry. So they are laid ready under a key of the attempt's own
// (store.StageKey), in the slot of the record. The commit writes ~fill, and then they are moved over, in one
// step. Readers of the entry do not wait for that: their slot may be another one, which cannot be written to for a
// while. Readers and writers of the records do. What was laid ready and never committed is for a check to remove.

var (
	//go:embed scripts/ready.lua
	readyLua string
	//go:embed scripts/promote.lua
	promoteLua string
	//go:embed scripts/filled.lua
	filledLua string
)

var (
	readyScript   = redisx.NewScript(readyLua, redisx.IsNumber)
	promoteScript = redisx.NewScript(promoteLua, redisx.IsNumber)
	filledScript  = redisx.NewScript(filledLua, redisx.IsNumber)
)

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

// complete moves over what a ~fill field says. Any process may do it, any number of times.
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

// mostCompleters are under way at once: while a slot is open, each tries for some seconds.
const mostCompleters = 16

// completeLater completes an entry that was read, and does not wait for it.
func (e *Engine) completeLater(ctx context.Context, entry recordkey.Key, fields map[string]string) {
	fill := fields[store.FieldFill]
	if fill == "" || fields[store.FieldType] == "" {
		return
	}
	delete(fields, store.FieldFill)
	select {
	case e.completers <- struct{}{}:
	default:
		return
	}
	if _, is := e.completing.LoadOrStore(fill, true); is {
		<-e.completers
		return
	}
	e.background(ctx, func(ctx context.Context) {
		defer func() {
			e.completing.Delete(fill)
			<-e.completers
		}()
		_ = e.complete(ctx, entry, fill)
	})
}

// background does something while the caller goes on, for as long as a verb goes on with what is left to do.
func background(ctx context.Context, do func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	go func() {
		defer cancel()
		do(ctx)
	}()
}

// A change of a live entry may replace its tertiary records by others. These are laid ready like those that are born with
// an entry, and replace what was there in one step.

// goneMembers are those of an indexed set before it was replaced.
type goneMembers struct {
	set     recordkey.Key
	members []string
}

// replaced reports whether the change puts another record where it drops one.
func (a *attempt) replaced(d store.Container) bool {
	for _, m := range a.c.Add {
		if m.Key == d.Key {
			return true
		}
	}
	return false
}

// readReplaced reads what will be replaced, as it is before the commit. What was laid ready for the entry earlier is moved
// over first.
func (a *attempt) readReplaced(ctx context.Context) error {
	if a.c.Create || len(a.c.Add) == 0 {
		return nil
	}
	if _, err := a.e.mustLive(ctx, a.c.Key); err != nil {
		return err
	}
	a.gone = nil
	for _, d := range a.c.Drop {
		if !d.Indexed || !a.replaced(d) {
			continue
		}
		members, err := a.e.members(ctx, d.Key.String())
		if err != nil {
			return err
		}
		a.gone = append(a.gone, goneMembers{d.Key, members})
	}
	return nil
}

// drop removes a tertiary record, unless the change replaces it.
func (a *attempt) drop(ctx context.Context, d store.Container) error {
	if a.replaced(d) {
		return nil
	}
	return a.e.drop(ctx, d)
}
