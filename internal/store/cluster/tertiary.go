package cluster

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
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
	reply, err := e.runNoted(ctx, op)
	if err != nil {
		return store.Reply{}, err
	}
	members, err := e.indexedMembers(ctx, op)
	if err != nil {
		return store.Reply{}, &doneError{err}
	}
	for {
		live, err := e.alignMembers(ctx, op.Key, members, op.Command == "SADD")
		if redisx.WrongType(err) {
			return reply, &store.CorruptError{Key: op.Key.String(), Reason: "an index of its members is not a set (WRONGTYPE)"}
		}
		if err != nil {
			return store.Reply{}, &doneError{err}
		}
		if live {
			return reply, nil
		}
		if e.dropOf(ctx, op, len(members) > 0) {
			return store.Reply{}, store.ErrNotFound
		}
	}
}

// runNoted runs a command, and notes it if it changed the record, which lies in another slot than
// the history.
func (e *Engine) runNoted(ctx context.Context, op store.Op) (store.Reply, error) {
	if len(op.Note.Lines) == 0 {
		reply, _, err := e.runOp(ctx, op)
		return reply, err
	}
	reply, changed, err := e.act(ctx, op)
	if err != nil || !changed {
		return reply, err
	}
	if err := e.NoteAlone(ctx, op.PRK, op.Note); err != nil {
		return store.Reply{}, &doneError{err}
	}
	e.feedLater(ctx, op.PRK, op.Note)
	return reply, nil
}

// act runs a command, and reports whether it changed the record. Sent again, it knows what it did:
// beside the record it leaves the name of the call for some minutes.
func (e *Engine) act(ctx context.Context, op store.Op) (reply store.Reply, did bool, err error) {
	if op.Once {
		return e.actApart(ctx, op)
	}
	call := e.newRev()
	args := append([]string{call, strconv.Itoa(op.Most), op.Command}, op.Args...)
	answer, unsure, err := e.runOnce(ctx, actScript, []string{op.Key.String(), store.CallsKey(op.Key)}, args...)
	switch {
	case redisx.TryAgain(err) && unsure:
		if reply, did, err = e.answered(ctx, op, call); err == nil && !did {
			reply, did, err = e.actApart(ctx, op)
		}
		if err != nil {
			err = &redisx.UnknownError{Cause: err}
		}
		return reply, did, err
	case redisx.TryAgain(err):
		return e.actApart(ctx, op)
	case redisx.WrongType(err):
		return reply, false, &store.CorruptError{Key: op.Key.String(), Reason: "another Redis type than the schema says (WRONGTYPE)"}
	case err != nil:
		return reply, false, err
	}
	words := redisx.Items(answer)
	if redisx.Text(words, 0) == "full" {
		if unsure { // an earlier sending may have filled it
			return reply, false, store.ErrOutcomeUnknown
		}
		return reply, false, store.ErrFull
	}
	n, err := redisx.Numbers(words[min(1, len(words)):])
	if err != nil || len(n) != 1 {
		return reply, false, &redisx.UnknownError{Cause: redisx.Unknown(redisx.Text(words, 0))}
	}
	return store.Reply{Int: n[0]}, redisx.Text(words, 0) == "changed", nil
}

// answered returns what a call was answered that has changed the record, by what it has left beside
// it.
func (e *Engine) answered(ctx context.Context, op store.Op, call string) (reply store.Reply, did bool, err error) {
	calls, err := e.read(ctx, redisx.IsText|redisx.IsNil, "get", store.CallsKey(op.Key))
	text, _ := calls.(string)
	for word := range strings.FieldsSeq(text) {
		if n, is := strings.CutPrefix(word, call+"="); is {
			reply.Int, err = strconv.ParseInt(n, 10, 64)
			return reply, err == nil, err
		}
	}
	return reply, false, err
}

// actApart is act for a command that is sent once, and for a slot that is being migrated, in which
// no node may serve the record with what calls leave beside it. It asks before it whether the
// command would change the record: where an answer is lost, or tells nothing of that, nothing else
// says so.
func (e *Engine) actApart(ctx context.Context, op store.Op) (store.Reply, bool, error) {
	would, err := e.yes(ctx, wouldScript, op.Key.String(), append([]string{op.Command}, op.Args...)...)
	if err != nil {
		return store.Reply{}, false, err
	}
	reply, lost, err := e.runOp(ctx, op)
	return reply, err == nil && changed(op.Command, reply, would, lost), err
}

// changed reports whether a command changed its record, by its reply, and by whether it would have before it was sent.
func changed(command string, reply store.Reply, would, unsure bool) bool {
	switch command {
	case "SADD", "SREM", "HDEL", "ZREM", "LREM", "UNLINK":
		return reply.Int > 0 || unsure && would
	case "LPOP", "RPOP":
		return !reply.Nil
	case "HSET", "ZADD", "SET":
		return reply.Int > 0 || would
	}
	return true
}

// indexedMembers are those members that a command put into a set, or took out, of which index sets are kept. No script compares the
// schema with such a command, which may have come late: so the schema is looked at once more after it, and where it is another one by
// now, that decides.
func (e *Engine) indexedMembers(ctx context.Context, op store.Op) (members []string, err error) {
	if op.Command != "SADD" && op.Command != "SREM" {
		return nil, nil
	}
	indexed := len(op.Index)+len(op.Unindex) > 0
	_, err = e.guard(ctx, op.Schema)
	if errors.Is(err, store.ErrSchemaMismatch) {
		var now []store.Raw
		if now, err = store.Hashes(ctx, e, []string{op.Schema.Key.String()}); err == nil {
			indexed = store.Indexes(now[0].Fields, op.Key.Name())
		}
	}
	if err != nil || !indexed {
		return nil, err
	}
	return slices.Clone(op.Args), nil
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

// dropOf removes what was written to a record whose entry died meanwhile; false where it is live again.
func (e *Engine) dropOf(ctx context.Context, op store.Op, indexed bool) bool {
	var again atomic.Bool
	afterwards(ctx, finishTime, func(ctx context.Context) {
		dead, err := e.ifDead(ctx, op.PRK, "", func(ctx context.Context) error {
			return e.drop(ctx, store.Container{Key: op.Key, Indexed: indexed})
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
		reply, err = e.runRead(ctx, op)
		return err
	})
	if err == nil && (filled || reply.Empty()) {
		reply, err = e.runRead(ctx, op)
	}
	return reply, err
}

// runRead runs a command that reads, page by page where it reads much.
func (e *Engine) runRead(ctx context.Context, op store.Op) (store.Reply, error) {
	return e.ReadPages(op, func(op store.Op) (store.Reply, error) {
		reply, _, err := e.runOp(ctx, op)
		return reply, err
	})
}

// runOp sends a tertiary command; one that must not be done twice is sent once. unsure reports whether it may have been
// carried out before it was answered.
func (e *Engine) runOp(ctx context.Context, op store.Op) (reply store.Reply, unsure bool, err error) {
	retry := e.client.Retry
	if op.Once {
		retry.Passing = func(error) bool { return false }
	}
	full := false
	_, unsure, err = retry.Do(ctx, func(bool) (any, error) {
		if op.Most > 0 && op.Write {
			words := append([]string{strconv.Itoa(op.Most), op.Command}, op.Args...)
			value, err := addScript.Write(ctx, e.client.UniversalClient.Process, []string{op.Key.String()}, words)
			answer := redisx.Items(value)
			full = err == nil && redisx.Text(answer, 0) == "full"
			switch {
			case err != nil || full:
			case redisx.Text(answer, 0) != "ok" || len(answer) != 2:
				err = redisx.Unknown(redisx.Text(answer, 0))
			default:
				reply, err = redisx.ParseReply(op.Command, answer[1])
			}
			return nil, err
		}
		cmd := redisx.NewOnce(ctx, redisx.AppendWords([]any{op.Command, op.Key.String()}, op.Args))
		err := e.client.UniversalClient.Process(ctx, cmd)
		if err == nil || errors.Is(err, redis.Nil) {
			reply, err = redisx.ParseReply(op.Command, cmd.Val())
		}
		return nil, err
	})
	switch {
	case full && unsure: // an earlier sending may have filled it
		return store.Reply{}, true, store.ErrOutcomeUnknown
	case full:
		return store.Reply{}, false, store.ErrFull
	case redisx.WrongType(err):
		return store.Reply{}, unsure, &store.CorruptError{Key: op.Key.String(), Reason: "another Redis type than the schema says (WRONGTYPE)"}
	case err != nil && op.Write:
		return store.Reply{}, unsure, err
	case err != nil:
		return store.Reply{}, unsure, redisx.Harmless(err)
	}
	return reply, unsure, nil
}

// Tertiary records that a change makes, replaces or drops must change with the entry or not at all
// (I7), and no change that comes to nothing may touch those of a live entry. So they are laid ready
// under a key of the attempt's own (store.StageKey), in the slot of the record; for one that only
// goes, that is an empty string. The commit writes ~fill, and then they are moved over, each in one
// step. A commit that writes ~fill is refused while an earlier ~fill is there: what that says is
// put in place first. Readers of the entry do not wait for that: their slot may not be written to
// for a while. Readers and writers of the records do. What was laid ready and never committed is
// for a check to remove.

var stageLife = strconv.Itoa(int(store.StageLife / time.Second))

// A stage is a tertiary record that is laid ready, and how it is put in place.
type stage struct {
	store.FillPart
	from store.Members
}

// stagesOf returns what a change lays ready. A delete has nothing to put in place: its records go
// when the entry is dead.
func stagesOf(c store.Change) (all []stage) {
	for _, m := range c.Add {
		how := store.FillJoin
		if c.Replaces(m) {
			how = store.FillReplace
		}
		all = append(all, stage{store.FillPart{Set: m.Key, Indexed: len(m.Index) > 0, How: how}, m})
	}
	for _, d := range c.Drop {
		if !c.Delete && !slices.ContainsFunc(c.Add, func(m store.Members) bool { return m.Key == d.Key }) {
			part := store.FillPart{Set: d.Key, Indexed: d.Indexed, How: store.FillDrop}
			all = append(all, stage{part, store.Members{Kind: "string", Values: []string{""}}})
		}
	}
	return all
}

// fill is what ~fill says.
func (a *attempt) fill() string {
	f := store.Fill{Rev: a.rev}
	for _, s := range a.stages {
		f.Parts = append(f.Parts, s.FillPart)
	}
	return f.String()
}

// layReady lays a record ready, some of its members at a time: but for a list, whose items have an
// order.
func (a *attempt) layReady(ctx context.Context, s stage) error {
	most := 2 * a.e.batch
	if s.from.Command() == "RPUSH" {
		most = len(s.from.Values)
	}
	for some := range slices.Chunk(s.from.Values, most) {
		args := append([]string{stageLife, s.from.Command()}, some...)
		if _, err := a.e.yes(ctx, readyScript, store.StageKey(s.Set, a.rev), args...); err != nil {
			return err
		}
	}
	return nil
}

// complete moves over what a ~fill field says.
func (e *Engine) complete(ctx context.Context, entry recordkey.Key, fill string) error {
	return e.Complete(ctx, entry, fill, e.realign)
}

// realign brings the index sets of members in line with the set that they are, or were, in.
func (e *Engine) realign(ctx context.Context, set recordkey.Key, members []string) error {
	_, err := e.alignMembers(ctx, set, members, true) // which takes out what is not due
	return err
}

// mustLive is ErrNotFound for an entry that is not live. It completes a live one, and reports whether it had to.
func (e *Engine) mustLive(ctx context.Context, prk recordkey.Key) (filled bool, err error) {
	live, fill, err := e.field(ctx, prk, store.FieldFill)
	switch {
	case err != nil:
		return false, err
	case !live:
		return false, store.ErrNotFound
	case fill.Wire == "":
		return false, nil
	}
	return true, e.complete(ctx, prk, fill.Wire)
}

// mostCompleters are under way at once: while a slot is open, each tries for some seconds.
const mostCompleters = 16

// completeLater completes an entry that was read, and its history, and does not wait for it.
func (e *Engine) completeLater(ctx context.Context, entry recordkey.Key, fields map[string]string) {
	fill, note := fields[store.FieldFill], fields[store.FieldNote]
	if fill == "" && store.Settled(note) || fields[store.FieldType] == "" {
		return
	}
	delete(fields, store.FieldFill)
	select {
	case e.completers <- struct{}{}:
	default:
		return
	}
	e.background(ctx, finishTime, func(ctx context.Context) {
		defer func() { <-e.completers }()
		if fill != "" {
			_ = e.complete(ctx, entry, fill)
		}
		if !store.Settled(note) {
			_, _ = e.Mend(ctx, store.Publish{Entry: entry})
		}
	})
}
