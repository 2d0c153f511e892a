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
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// Tertiary implements [store.Engine]. It runs a command on one key. If the command writes, Tertiary
// checks before and after it that the entry is live. If the entry was deleted in between, Tertiary
// removes what it wrote and still returns the reply, as if it had written just before the delete:
// others may have read the record while the entry was live.
func (e *Engine) Tertiary(ctx context.Context, op store.Op) (store.Reply, error) {
	if !op.Write {
		return e.readTertiary(ctx, op)
	}
	if _, err := e.checkSchema(ctx, op.Schema); err != nil {
		return store.Reply{}, err
	}
	if _, err := e.requireLive(ctx, op.PRK); err != nil {
		return store.Reply{}, err
	}
	op.Args = slices.Clone(op.Args) // the caller may reuse its own while the command is finished
	call := e.newRev()
	reply, changed, err := e.runWrite(ctx, op, call)
	switch {
	case errors.Is(err, store.ErrOutcomeUnknown): // the caller may have given up
		e.finishLater(ctx, func(ctx context.Context) {
			if _, changed, err := e.recordedReply(ctx, op, call); err == nil {
				_ = e.finishTertiary(ctx, op, changed, changed)
			}
		})
		return store.Reply{}, err
	case err != nil:
		return store.Reply{}, err
	}
	finished := make(chan error, 1)
	e.detached.run(ctx, finishTime, func(ctx context.Context) { finished <- e.finishTertiary(ctx, op, changed, true) })
	select {
	case err := <-finished:
		return reply, err
	default: // ctx ended first
		return store.Reply{}, &executedError{ctx.Err()}
	}
}

// finishTertiary does what is due after a command. It adds a line to the history if the command
// changed the record, updates the index sets of members, and removes the record again if its entry
// is dead. known says that the command is known to have been carried out.
func (e *Engine) finishTertiary(ctx context.Context, op store.Op, changed, known bool) error {
	if changed && len(op.Note.Lines) > 0 {
		if err := e.AppendHistory(ctx, op.PRK, op.Note); err != nil {
			return &executedError{err}
		}
		e.feedLater(ctx, op.PRK, op.Note)
	}
	members, err := e.indexedMembers(ctx, op)
	if err != nil {
		return &executedError{err}
	}
	for {
		live, err := e.alignMembers(ctx, op.Key, members, op.Command == "SADD", known)
		if redisx.WrongType(err) {
			return &store.CorruptError{Key: op.Key.String(), Reason: "an index of its members is not a set (WRONGTYPE)"}
		}
		if err != nil {
			return &executedError{err}
		}
		if live {
			return nil
		}
		if err := e.checkDamage(ctx, op.PRK); errors.Is(err, store.ErrCorrupt) {
			return err
		} else if err != nil {
			return &executedError{err}
		}
		if e.dropIfDead(ctx, op, len(members) > 0) {
			return nil
		}
	}
}

// runWrite runs a command under the name call. If the command needs a line in the history, runWrite
// also reports whether it changed the record. The line is a second step, because the record and the
// history lie in different slots.
func (e *Engine) runWrite(ctx context.Context, op store.Op, call string) (reply store.Reply, changed bool, err error) {
	if len(op.Note.Lines) == 0 {
		reply, _, err = e.runOp(ctx, op)
		return reply, false, err
	}
	return e.runIdempotent(ctx, op, call)
}

// runIdempotent runs a command, and reports whether it changed the record. The script keeps the
// names of recent calls and their replies beside the record for some minutes. If the command is
// sent again, the script recognizes the call and does not run it twice.
func (e *Engine) runIdempotent(ctx context.Context, op store.Op, call string) (reply store.Reply, changed bool, err error) {
	if op.NoRetry {
		return e.runUnrecorded(ctx, op)
	}
	args := append([]string{call, strconv.Itoa(op.MaxMembers), op.Command}, op.Args...)
	answer, unsure, err := e.runMultiKey(ctx, actScript, []string{op.Key.String(), store.CallsKey(op.Key)}, args...)
	switch {
	case redisx.TryAgain(err) && unsure:
		if reply, changed, err = e.recordedReply(ctx, op, call); err == nil && !changed {
			reply, changed, err = e.runUnrecorded(ctx, op)
		}
		if err != nil {
			err = &redisx.UnknownError{Cause: err}
		}
		return reply, changed, err
	case redisx.TryAgain(err):
		return e.runUnrecorded(ctx, op)
	case redisx.WrongType(err):
		return reply, false, &store.CorruptError{Key: op.Key.String(), Reason: "its Redis type is not the one that the schema declares (WRONGTYPE)"}
	case err != nil:
		return reply, false, err
	}
	words := redisx.Items(answer)
	if redisx.Text(words, 0) == "full" {
		if unsure { // an earlier try may have filled it
			return reply, false, store.ErrOutcomeUnknown
		}
		return reply, false, store.ErrFull
	}
	n, err := redisx.Numbers(words[min(1, len(words)):])
	if err != nil || len(n) != 1 {
		return reply, false, &redisx.UnknownError{Cause: redisx.UnknownWord(redisx.Text(words, 0))}
	}
	return store.Reply{Int: n[0]}, redisx.Text(words, 0) == "changed", nil
}

// recordedReply returns the reply that was recorded beside the record when the call changed it. It
// reports false if none was recorded.
func (e *Engine) recordedReply(ctx context.Context, op store.Op, call string) (reply store.Reply, changed bool, err error) {
	calls, err := e.queryOrNil(ctx, redisx.IsText|redisx.IsNil, "get", store.CallsKey(op.Key))
	text, _ := calls.(string)
	for word := range strings.FieldsSeq(text) {
		if n, is := strings.CutPrefix(word, call+"="); is {
			reply.Int, err = strconv.ParseInt(n, 10, 64)
			return reply, err == nil, err
		}
	}
	return reply, false, err
}

// runUnrecorded works like runIdempotent, but does not record the call. It is for commands that are
// sent only once, and for records in a slot that is being migrated, where perhaps no node serves
// the record together with the recorded calls. It first asks whether the command would change the
// record, because the reply may be lost or may not say so.
func (e *Engine) runUnrecorded(ctx context.Context, op store.Op) (store.Reply, bool, error) {
	wouldChange, err := e.runBool(ctx, wouldChangeScript, op.Key.String(), append([]string{op.Command}, op.Args...)...)
	if err != nil {
		return store.Reply{}, false, err
	}
	reply, unsure, err := e.runOp(ctx, op)
	return reply, err == nil && didChange(op.Command, reply, wouldChange, unsure), err
}

// didChange reports whether a command changed its record. It judges by the reply and by
// wouldChange, which was determined before the command was sent.
func didChange(command string, reply store.Reply, wouldChange, unsure bool) bool {
	switch command {
	case "SADD", "SREM", "HDEL", "ZREM", "LREM", "UNLINK":
		return reply.Int > 0 || unsure && wouldChange
	case "LPOP", "RPOP":
		return !reply.Nil
	case "HSET", "ZADD", "SET":
		return reply.Int > 0 || wouldChange
	}
	return true
}

// indexedMembers returns the members that a command added to an indexed set, or removed from it.
// The command may have arrived long after the schema was checked, and no script compares the schema
// then. indexedMembers therefore compares it after the command. If another schema is stored now,
// that schema decides whether the set is indexed.
func (e *Engine) indexedMembers(ctx context.Context, op store.Op) (members []string, err error) {
	if op.Command != "SADD" && op.Command != "SREM" {
		return nil, nil
	}
	indexed := len(op.Index)+len(op.Unindex) > 0
	_, err = e.checkSchema(ctx, op.Schema)
	if errors.Is(err, store.ErrSchemaMismatch) {
		var now []store.Raw
		if now, err = store.Hashes(ctx, e, []string{op.Schema.Key.String()}); err == nil {
			indexed = store.IsIndexed(now[0].Fields, op.Key.Name())
		}
	}
	if err != nil || !indexed {
		return nil, err
	}
	return op.Args, nil
}

// An executedError reports that a command was carried out, but that a later step failed: writing
// the history, comparing the schema, or updating the index sets and checking that the entry is
// live.
type executedError struct{ cause error }

func (e *executedError) Error() string {
	return store.ErrOutcomeUnknown.Error() + ": the command was carried out, but a later step failed: " + e.cause.Error()
}

// Is reports whether target is ErrOutcomeUnknown or an error of the cause. It never matches
// ErrUnavailable, which would say that the command was not carried out.
func (e *executedError) Is(target error) bool {
	return target == store.ErrOutcomeUnknown || target != store.ErrUnavailable && errors.Is(e.cause, target)
}

// dropIfDead removes a record that was written while its entry was deleted. It reports false if the
// entry is live again.
func (e *Engine) dropIfDead(ctx context.Context, op store.Op, indexed bool) bool {
	var again atomic.Bool
	e.detached.run(ctx, finishTime, func(ctx context.Context) {
		dead, err := e.runWhileDead(ctx, op.PRK, "", func(ctx context.Context) error {
			return e.drop(ctx, store.Container{Key: op.Key, Indexed: indexed})
		})
		again.Store(err == nil && !dead)
	})
	return !again.Load()
}

// readTertiary reads the record and checks at the same time that its entry is live. If the check
// put staged records in place, or if the record is empty, readTertiary reads it once more, because
// staged members may have been put in place after the first read.
func (e *Engine) readTertiary(ctx context.Context, op store.Op) (store.Reply, error) {
	var reply store.Reply
	filled := false
	err := parallel(2, func(i int) (err error) {
		if i == 0 {
			filled, err = e.requireLive(ctx, op.PRK)
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

// runRead runs a command that reads, page by page if the record is large.
func (e *Engine) runRead(ctx context.Context, op store.Op) (store.Reply, error) {
	return e.ReadPages(op, func(op store.Op) (store.Reply, error) {
		reply, _, err := e.runOp(ctx, op)
		return reply, err
	})
}

// runOp sends a tertiary command. If op.NoRetry is set, it sends the command only once. unsure
// reports whether an earlier try may have been carried out.
func (e *Engine) runOp(ctx context.Context, op store.Op) (reply store.Reply, unsure bool, err error) {
	retry := e.client.Retry
	if op.NoRetry {
		retry.Retryable = func(error) bool { return false }
	}
	full := false
	_, unsure, err = retry.Do(ctx, func(bool) (any, error) {
		if op.MaxMembers > 0 && op.Write {
			words := append([]string{strconv.Itoa(op.MaxMembers), op.Command}, op.Args...)
			value, err := addScript.Write(ctx, e.client.UniversalClient.Process, []string{op.Key.String()}, words)
			answer := redisx.Items(value)
			full = err == nil && redisx.Text(answer, 0) == "full"
			switch {
			case err != nil || full:
			case redisx.Text(answer, 0) != "ok" || len(answer) != 2:
				err = redisx.UnknownWord(redisx.Text(answer, 0))
			default:
				reply, err = redisx.ParseReply(op.Command, answer[1])
			}
			return nil, err
		}
		cmd := redisx.NewNoRetryCmd(ctx, redisx.AppendWords([]any{op.Command, op.Key.String()}, op.Args))
		err := e.client.UniversalClient.Process(ctx, cmd)
		if err == nil || errors.Is(err, redis.Nil) {
			reply, err = redisx.ParseReply(op.Command, cmd.Val())
		}
		return nil, err
	})
	switch {
	case full && unsure: // an earlier try may have filled it
		return store.Reply{}, true, store.ErrOutcomeUnknown
	case full:
		return store.Reply{}, false, store.ErrFull
	case redisx.WrongType(err):
		return store.Reply{}, unsure, &store.CorruptError{Key: op.Key.String(), Reason: "its Redis type is not the one that the schema declares (WRONGTYPE)"}
	case err != nil && op.Write:
		return store.Reply{}, unsure, err
	case err != nil:
		return store.Reply{}, unsure, redisx.IgnoreUnknownOutcome(err)
	}
	return reply, unsure, nil
}

// Tertiary records that a change adds, replaces or drops must change with the entry or not at all
// (I7), and a change that fails must not touch those of a live entry. So an attempt stages them,
// that is, it prepares them under keys of its own (store.PreparedKey) in the slots of the records.
// For a record that is only dropped, it stages an empty string. The commit writes ~fill, which
// lists the staged records, and then each record is put in place in one step. While an entry has a
// ~fill, a commit that would write another one is refused. Readers of the entry do not wait until
// the records are in place, because a slot may not accept writes for a while. Readers and writers
// of the records do wait. A check removes records that were staged and never committed.

var stageLife = strconv.Itoa(int(store.PreparedLife / time.Second))

// A stage describes a tertiary record to stage and how to put it in place.
type stage struct {
	store.FillPart
	members store.Members
}

// stagesOf returns the records that a change stages. A delete stages none: its records are removed
// once the entry is dead.
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

// fillField returns the value of ~fill.
func (a *attempt) fillField() string {
	f := store.Fill{Rev: a.rev}
	for _, s := range a.stages {
		f.Parts = append(f.Parts, s.FillPart)
	}
	return f.String()
}

// stageRecord stages a record in batches of members. It stages a list in one batch, because a batch
// that arrives twice is recognized only by the length of the list.
func (a *attempt) stageRecord(ctx context.Context, s stage) error {
	size := 2 * a.e.batch
	if s.members.Command() == "RPUSH" {
		size = len(s.members.Values)
	}
	for batch := range slices.Chunk(s.members.Values, size) {
		args := append([]string{stageLife, s.members.Command()}, batch...)
		if _, err := a.e.runBool(ctx, stageScript, store.PreparedKey(s.Set, a.rev), args...); err != nil {
			return err
		}
	}
	return nil
}

// complete puts the staged records in place. fill is the value of ~fill, which lists them.
func (e *Engine) complete(ctx context.Context, entry recordkey.Key, fill string) error {
	return e.Complete(ctx, entry, fill, e.realign)
}

// realign makes the index sets of the given members agree with a set. It removes the entry from the
// index sets of members that the set does not have.
func (e *Engine) realign(ctx context.Context, set recordkey.Key, members []string) error {
	_, err := e.alignMembers(ctx, set, members, true, true)
	return err
}

// requireLive returns ErrNotFound if an entry is not live. If records of a live entry are still
// staged, it puts them in place and reports true.
func (e *Engine) requireLive(ctx context.Context, prk recordkey.Key) (filled bool, err error) {
	live, fill, err := e.readField(ctx, prk, store.FieldFill)
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

// maxCompleters limits the entries that are completed at once. In a slot that is being migrated,
// each may take some seconds.
const maxCompleters = 16

// completeLater finishes an earlier change of an entry in the background: it puts staged records in
// place, and moves waiting history lines to the history. It removes ~fill from fields. If
// maxCompleters entries are already being completed, it leaves the change unfinished.
func (e *Engine) completeLater(ctx context.Context, entry recordkey.Key, fields map[string]string) {
	fill, note := fields[store.FieldFill], fields[history.FieldNote]
	if fill == "" && history.MayStayInEntry(note) || fields[store.FieldType] == "" {
		return
	}
	delete(fields, store.FieldFill)
	select {
	case e.completers <- struct{}{}:
	default:
		return
	}
	e.goDetached(ctx, finishTime, func(ctx context.Context) {
		defer func() { <-e.completers }()
		if fill != "" {
			_ = e.complete(ctx, entry, fill)
		}
		if !history.MayStayInEntry(note) {
			_, _ = e.Repair(ctx, store.Publish{Entry: entry})
		}
	})
}
