package onekey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/arg"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// ChangesLua precedes every script that checks whether a command would change a tertiary record.
var ChangesLua = source("changes")

// NoteScript adds lines to an entry's history. FeedLineScript adds lines to a feed only. FeedScript
// copies to a cluster's feed those lines of a history that the feed lacks. TrimScript trims a feed.
var (
	NoteScript     = redisx.NewScript(redisx.IsNumber, history.Lua, history.NoteLua)
	TrimScript     = redisx.NewScript(redisx.IsNumber, history.TrimLua)
	FeedLineScript = redisx.NewScript(redisx.IsNumber, history.Lua, history.FeedLineLua)
	FeedScript     = redisx.NewScript(redisx.IsNumber, history.Lua, history.FeedLua)
)

// AppendNote appends the keys and arguments that history.lua expects to those of a script. where is
// history.InEntry, InRecord, InBoth or InFeed.
func (ks *OneSlot) AppendNote(keys, args []string, where string, prk recordkey.Key, n history.Note) ([]string, []string) {
	if len(n.Lines) == 0 {
		return keys, append(args, "")
	}
	feed := cmp.Or(n.Feed, history.FeedChanges)
	if where == history.InBoth && feed == history.FeedNone {
		where = history.InRecord
	}
	if where == history.InRecord || where == history.InBoth {
		record, _ := history.Key(prk) // every PRK has one
		keys = append(keys, record.String())
	}
	if where == history.InBoth || where == history.InFeed {
		keys = append(keys, ks.FeedKey(prk.Namespace(), feed, prk))
	}
	return keys, append(args, n.Args(where, ks.FeedEntries(feed), prk)...)
}

// FeedEntries implements [store.Engine].
func (ks *OneSlot) FeedEntries(feed string) int64 {
	if ks.options.FeedEntries > 0 {
		return ks.options.FeedEntries
	}
	return history.FeedLimits[feed].Entries
}

// MaxFeedEntries returns FeedEntries as an argument of a script.
func (ks *OneSlot) MaxFeedEntries(feed string) string {
	return strconv.FormatInt(ks.FeedEntries(feed), 10)
}

// FeedKey returns the key of the stream of a feed that has the lines of an entry.
func (ks *OneSlot) FeedKey(ns recordkey.Namespace, feed string, prk recordkey.Key) string {
	part := 0
	if ks.options.PartitionedFeed {
		part = history.FeedPart(prk)
	}
	key, _ := history.FeedKey(ns, feed, part) // the names are valid
	return key.String()
}

// writeNoted runs a script that also adds lines to the history. changed reports, for the script's
// reply, whether the script changed anything. In a slot that is being migrated, there may be no
// node that serves all keys of the script. If the entry is the first key, writeNoted then runs the
// script on the entry only, and the lines wait in the entry. Otherwise it runs the script without
// the lines, and adds them afterwards.
func (ks *OneSlot) writeNoted(
	ctx context.Context, s redisx.Script, keys, args []string, prk recordkey.Key, n history.Note, changed func(reply any) bool,
) (reply any, err error) {
	entry, own := prk.String(), slices.Clip(keys)
	switch {
	case keys[0] == entry:
		own = own[:1]
	case len(n.Lines) > 0:
		keys = append(own, entry)
	}
	n = ks.withMarks(n)
	noteKeys, noteArgs := ks.AppendNote(slices.Clip(keys), slices.Clip(args), ks.options.Notes, prk, n)
	reply, unsure, err := ks.writeTogether(ctx, s, noteKeys, noteArgs)
	if redisx.TryAgain(err) {
		reply, err = ks.writeSeparately(ctx, s, own, args, prk, n, changed)
		if err != nil && unsure {
			err = &redisx.UnknownError{Cause: err}
		}
	}
	if err == nil && changed(reply) {
		ks.AfterNote(ctx, prk, n)
	}
	return reply, err
}

// writeSeparately does the work of writeNoted if no node serves all the keys. keys holds those that
// a node serves.
func (ks *OneSlot) writeSeparately(
	ctx context.Context, s redisx.Script, keys, args []string, prk recordkey.Key, n history.Note, changed func(reply any) bool,
) (any, error) {
	if keys[0] == prk.String() {
		keys, args = ks.AppendNote(keys, args, history.InEntry, prk, n)
		reply, _, err := ks.client.Write(ctx, s, keys, args)
		return reply, err
	}
	reply, _, err := ks.client.Write(ctx, s, keys, append(args, ""))
	if err == nil && len(n.Lines) > 0 && changed(reply) {
		err = ks.AppendHistory(ctx, prk, n)
		if err != nil {
			err = fmt.Errorf("%w: the change was made, but could not be added to the history: %v", store.ErrOutcomeUnknown, err)
		}
	}
	return reply, err
}

// withMarks returns n with a Call, which marks its lines, if this is a cluster. There, several
// commands may send the same line.
func (ks *OneSlot) withMarks(n history.Note) history.Note {
	if n.Call == "" && ks.options.Notes == history.InRecord {
		n.Call = ks.options.NewRev()
	}
	return n
}

// AfterNote must be called after lines were added. It calls Options.AfterNote or, if that is nil,
// sometimes trims the feed.
func (ks *OneSlot) AfterNote(ctx context.Context, prk recordkey.Key, n history.Note) {
	switch {
	case len(n.Lines) == 0 || n.Feed == history.FeedNone:
	case ks.options.AfterNote != nil:
		ks.options.AfterNote(ctx, prk, n)
	default:
		feed := cmp.Or(n.Feed, history.FeedChanges)
		ks.TrimOccasionally(ctx, feed, ks.FeedKey(prk.Namespace(), feed, prk))
	}
}

// writeTogether runs a script. It does not repeat the script if a node does not serve all its keys.
func (ks *OneSlot) writeTogether(ctx context.Context, s redisx.Script, keys, args []string) (reply any, unsure bool, err error) {
	retry := ks.client.Retry
	retry.Retryable = func(err error) bool { return ks.client.Retry.Retryable(err) && !redisx.TryAgain(err) }
	return retry.Do(ctx, func(bool) (any, error) { return s.Write(ctx, ks.client.Process, keys, args) })
}

// AppendHistory adds lines to the history of a live entry, together with the lines that wait in the
// entry. If no node serves both records, it adds the new lines to the waiting ones in the entry.
// Without new lines, it only moves waiting lines to the history.
func (ks *OneSlot) AppendHistory(ctx context.Context, prk recordkey.Key, n history.Note) error {
	record, err := history.Key(prk)
	if err != nil {
		return err
	}
	n = ks.withMarks(n)
	_, _, err = ks.writeTogether(ctx, NoteScript, []string{prk.String(), record.String()}, n.Args(history.InRecord, ks.FeedEntries(history.FeedChanges), prk))
	if redisx.TryAgain(err) && len(n.Lines) > 0 {
		_, _, err = ks.client.Write(ctx, NoteScript, []string{prk.String()}, n.Args(history.InEntry, ks.FeedEntries(history.FeedChanges), prk))
	}
	return redisx.IgnoreUnknownOutcome(err)
}

// trimTimeout limits how long a trim may take.
const trimTimeout = 10 * time.Second

// TrimOccasionally trims a feed about once in a thousand calls. It does not wait for the result.
func (ks *OneSlot) TrimOccasionally(ctx context.Context, feed, stream string) {
	if time.Now().UnixMicro()%1000 != 7 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), trimTimeout)
	go func() {
		defer cancel()
		_, _ = ks.Trim(ctx, stream, history.FeedLimits[feed])
	}()
}

// Trim removes some of the oldest entries of a stream that exceeds a limit. It returns how many
// entries are left.
func (ks *OneSlot) Trim(ctx context.Context, stream string, l history.FeedLimit) (int64, error) {
	reply, _, err := ks.client.Write(ctx, TrimScript, []string{stream}, l.TrimArgs())
	n, _ := reply.(int64)
	return n, redisx.IgnoreUnknownOutcome(err)
}

// History implements [store.Engine].
func (ks *OneSlot) History(ctx context.Context, prk recordkey.Key) ([]string, error) {
	all, err := ks.HistoryLines(ctx, prk)
	return history.OfLatest(all), err
}

// HistoryLines returns the history of an entry, and of an earlier entry with the same key, in
// order. It reads the lines that wait in the entry first, so that no line is missing while its
// successor is present.
func (ks *OneSlot) HistoryLines(ctx context.Context, prk recordkey.Key) ([]string, error) {
	key, err := history.Key(prk)
	if err != nil {
		return nil, err
	}
	waiting, err := ks.linesAt(ctx, "hget", prk.String(), history.FieldNote)
	if err != nil {
		return nil, err
	}
	record, err := ks.linesAt(ctx, "get", key.String())
	if err != nil {
		return nil, err
	}
	return history.Lines(record, waiting), nil
}

// linesAt reads lines with a command. It returns "" for a record that does not exist or has another
// Redis type.
func (ks *OneSlot) linesAt(ctx context.Context, args ...any) (string, error) {
	reply, _, err := ks.client.Retry.Do(ctx, func(bool) (any, error) {
		cmd := redisx.NewNoRetryCmd(ctx, args)
		return redisx.Answer(cmd.Cmd, ks.client.Process(ctx, cmd), redisx.IsText|redisx.IsNil)
	})
	if err != nil && !redisx.WrongType(err) {
		return "", redisx.IgnoreUnknownOutcome(err)
	}
	text, _ := reply.(string)
	return text, nil
}

// AppendFeed implements [store.Engine]. A line that is sent again is recognized by its mark.
func (ks *OneSlot) AppendFeed(ctx context.Context, ns recordkey.Namespace, feed string, prk recordkey.Key, n history.Note) error {
	n.Call = ks.options.NewRev()
	stream, begin := ks.FeedKey(ns, feed, prk), time.Now()
	args := n.FeedLineArgs(ks.FeedEntries(feed), prk)
	_, _, err := ks.client.Retry.Do(ctx, func(unsure bool) (any, error) {
		if unsure {
			args[history.ResentArg] = arg.Millis(time.Since(begin))
		}
		return FeedLineScript.Write(ctx, ks.client.Process, []string{stream}, args)
	})
	ks.TrimOccasionally(ctx, feed, stream)
	return redisx.IgnoreUnknownOutcome(err)
}

// Feed implements [store.Engine] with one command for each part, in one round trip. It needs a
// second one if a part has a gap.
func (ks *OneSlot) Feed(ctx context.Context, f history.Feed) (page history.FeedPage, err error) {
	var parts []int
	var cmds []redis.Cmder
	for _, part := range f.Parts {
		key, err := history.FeedKey(f.NS, f.Name, part)
		if err != nil {
			return page, err
		}
		from, _ := history.SplitPosition(f.After[part])
		switch {
		case !f.Reverse:
			cmds = append(cmds, redis.NewXMessageSliceCmd(ctx, "xrange", key.String(), cmp.Or(from, "-"), "+", "count", f.Count+1))
		case from != "":
			cmds = append(cmds, redis.NewXMessageSliceCmd(ctx, "xrevrange", key.String(), from, "-", "count", f.Count+1))
		default:
			continue
		}
		parts = append(parts, part)
	}
	if err := redisx.CheckAnswered(cmds, ks.client.ProcessAll(ctx, cmds)); err != nil {
		return page, err
	}
	for i, cmd := range cmds {
		found, err := cmd.(*redis.XMessageSliceCmd).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return page, redisx.Fail(err)
		}
		entries := make([]history.StreamEntry, len(found))
		for j, m := range found {
			entries[j] = streamEntry(m)
		}
		var lines []history.FeedLine
		part := parts[i]
		if f.Reverse {
			lines = history.LinesBefore(part, entries, f.After[part])
		} else {
			lines, page.Gap[part] = history.LinesAfter(part, entries, f.After[part])
		}
		page.Lines = append(page.Lines, lines...)
	}
	return page, ks.findContinuations(ctx, f, &page)
}

// findContinuations finds the position from which a reader continues in each part that lost the
// reader's position by trimming or a failover.
func (ks *OneSlot) findContinuations(ctx context.Context, f history.Feed, page *history.FeedPage) error {
	var parts []int
	var cmds []redis.Cmder
	for i, gap := range page.Gap {
		if gap {
			key, _ := history.FeedKey(f.NS, f.Name, i) // Feed has checked the names
			after, _ := history.SplitPosition(f.After[i])
			parts, cmds = append(parts, i), append(cmds, redis.NewXMessageSliceCmd(ctx, "xrevrange", key.String(), after, "-", "count", 1))
		}
	}
	if err := redisx.CheckAnswered(cmds, ks.client.ProcessAll(ctx, cmds)); err != nil {
		return err
	}
	for i, cmd := range cmds {
		page.At[parts[i]] = positionAfter(cmd)
	}
	return nil
}

func streamEntry(m redis.XMessage) history.StreamEntry {
	text, _ := m.Values["e"].(string)
	return history.StreamEntry{ID: m.ID, Text: text}
}

// FeedEnd implements [store.Engine].
func (ks *OneSlot) FeedEnd(ctx context.Context, ns recordkey.Namespace, name string, parts []int) (after [history.FeedParts]string, err error) {
	cmds := make([]redis.Cmder, len(parts))
	for i, part := range parts {
		key, err := history.FeedKey(ns, name, part)
		if err != nil {
			return after, err
		}
		cmds[i] = redis.NewXMessageSliceCmd(ctx, "xrevrange", key.String(), "+", "-", "count", 1)
	}
	if err := redisx.CheckAnswered(cmds, ks.client.ProcessAll(ctx, cmds)); err != nil {
		return after, err
	}
	for i, cmd := range cmds {
		after[parts[i]] = positionAfter(cmd)
	}
	return after, nil
}

// positionAfter returns the position after the stream entry that a command found, or "" if it found
// none.
func positionAfter(cmd redis.Cmder) string {
	last := cmd.(*redis.XMessageSliceCmd).Val()
	if len(last) == 0 {
		return ""
	}
	return streamEntry(last[0]).Position()
}
