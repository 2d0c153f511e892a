package cluster

import (
	"context"
	"slices"
	"strconv"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/internal/store/token"
)

// commit runs step 4 (see apply.go).
func (a *attempt) commit(ctx context.Context) error {
	a.began = a.e.now()
	reply, unsure, err := a.sendCommit(ctx)
	if err != nil {
		return err
	}
	words := redisx.Items(reply)
	// detail is the history line after "ok", and otherwise ~rev.
	verdict, detail := redisx.Text(words, 0), redisx.Text(words, 1)
	switch {
	case verdict == "ok":
		a.history = detail
		return nil
	case verdict == "tokens" && !a.c.Tokens.Known: // a token was issued since the entry was read
		a.c.Tokens.Known = true
		return a.commit(ctx)
	}
	if unsure && !store.RevsComplete(detail, a.c.Expected.Rev) {
		return store.ErrOutcomeUnknown
	}
	switch {
	case verdict == "late":
		return errExpired
	case verdict == "exists":
		return store.DuplicateField(a.c.Key.Field())
	case verdict == "retired":
		return store.RetiredUID(a.c.Key.Field())
	case verdict == "absent", verdict == "token":
		return store.ErrNotFound
	case verdict == "damaged":
		return damagedError(a.c.Key)
	case verdict == "conflict" && !a.c.Create && store.Rev(detail) != a.c.Expected.Rev:
		return store.ErrConflict
	case verdict == "conflict", verdict == "dying", verdict == "filling":
		return errRetry // the entry was fenced, is being removed or filled, or has a new token
	}
	return &redisx.UnknownError{Cause: redisx.UnknownWord(verdict)}
}

// sendCommit sends the commit script. In a slot that is being migrated, there may be no node that
// serves the entry together with its history or its tokens. In that case the entry keeps the
// history lines until the next change, and its tokens are read separately.
func (a *attempt) sendCommit(ctx context.Context) (reply any, unsure bool, err error) {
	where, note := history.InRecord, a.c.Note
	inEntry := a.c.Create && a.c.Expected == (store.Version{}) && note.StoredInEntry()
	if a.noteInEntry || inEntry {
		where = history.InEntry
	}
	if !inEntry { // the first line of an entry, which is kept in the entry, needs no mark
		note.Call = a.rev
	}
	keys, args := a.e.AppendNote(a.commitKeys(), a.commitArgs(), where, a.c.Key, note)
	switch {
	// A create may share a round trip. If it is sent late, its check of the schema has expired and
	// the script refuses it.
	case a.c.Create && where == history.InEntry, a.c.Create && len(a.c.Note.Lines) == 0:
		return a.e.runBatched(ctx, commitScript, keys, args...)
	case len(keys) == 1:
		return a.e.run(ctx, commitScript, keys, args...)
	}
	reply, unsure, err = a.e.runMultiKey(ctx, commitScript, keys, args...)
	switch {
	case !redisx.TryAgain(err) || unsure:
		return reply, unsure, err
	case where != history.InEntry && len(a.c.Note.Lines) > 0:
		a.noteInEntry = true
	default:
		if err := a.readTokens(ctx); err != nil {
			return nil, false, err
		}
	}
	return a.sendCommit(ctx)
}

// readTokens reads the record of the entry's tokens, for a commit that does not have it among its
// keys. It reads ~tokens first. Issuing a token changes ~tokens, so the commit can tell whether the
// record is out of date.
func (a *attempt) readTokens(ctx context.Context) error {
	_, mark, err := a.e.readField(ctx, a.c.Key, token.FieldTokens)
	if a.tokens.mark = mark.Wire; err != nil || mark.Wire == "" {
		a.c.Tokens.Known = false
		return err
	}
	key, err := token.Key(a.c.Key)
	if err != nil {
		return err
	}
	found, err := store.Hashes(ctx, a.e, []string{key.String()})
	if err != nil {
		return err
	}
	a.tokens.members = token.Lines(found[0].Fields)
	return nil
}

// commitKeys returns the keys of the commit script. The record of the entry's tokens is one of them
// only if it may exist and readTokens has not read it, because in a slot that is being migrated, no
// node serves two keys if one of them is absent.
func (a *attempt) commitKeys() []string {
	keys := []string{a.c.Key.String()}
	if a.c.Tokens.Known && a.tokens.mark == "" {
		tokens, _ := token.Key(a.c.Key) // every PRK has such a key
		keys = append(keys, tokens.String())
	}
	return keys
}

func (a *attempt) commitArgs() []string {
	verb, dying := "update", ""
	switch {
	case a.c.Create:
		verb = "create"
	case a.c.Repair:
		verb = "mend"
	case a.c.Delete:
		verb = "delete"
		if len(a.c.Drop)+len(a.c.Unindex)+len(a.c.Unrank) > 0 {
			dying = a.rev
		}
	case a.c.OnlyDisables():
		verb = "disable"
	}
	args := slices.Concat(
		[]string{a.rev, verb, a.c.Expected.Rev, a.c.Expected.Fence, tombstoneLife, dying, strconv.FormatInt(a.until, 10)},
		a.c.Tokens.Args(), []string{a.tokens.mark, a.tokens.members, strconv.Itoa(len(a.c.Unset))}, a.c.Unset,
	)
	args = slices.Grow(args, 2*len(a.c.Set)+2)
	for _, f := range a.c.Set {
		args = append(args, f.Field, f.Wire)
	}
	if len(a.stages) > 0 {
		args = append(args, store.FieldFill, a.fillField())
	}
	return args
}
