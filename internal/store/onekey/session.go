package onekey

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/recordkey"
)

// EpochScript runs on an entry, and SessionScript on the record of the entry's sessions.
var (
	EpochScript   = redisx.NewScript(redisx.IsVerdict, session.EpochLua)
	SessionScript = redisx.NewScript(redisx.IsTexts, history.Lua, session.Lua)
)

// StartSession implements [store.Engine] with two scripts, each of which may be sent again. If all
// sessions of the entry are ended between the two, the session that the second script stores is
// bound to an old epoch and therefore invalid.
func (ks *OneSlot) StartSession(ctx context.Context, s session.Start) (session.Session, error) {
	epoch, err := ks.sessionEpoch(ctx, s)
	if err != nil {
		return session.Session{}, err
	}
	texts, err := ks.runSessions(ctx, s.PRK, s.Note, s.Args(epoch))
	if err != nil {
		return session.Session{}, fmt.Errorf("starting a session: %w", err)
	}
	if found := session.ParseAll(texts); len(found) > 0 {
		return found[0], nil
	}
	return session.Session{}, store.ErrConflict // the session ended before the reply came
}

// sessionEpoch returns the epoch to which a session of the entry is bound, if a session may begin.
func (ks *OneSlot) sessionEpoch(ctx context.Context, s session.Start) (string, error) {
	reply, _, err := ks.client.Write(ctx, EpochScript, []string{s.PRK.String()}, s.EpochArgs())
	if err != nil {
		return "", fmt.Errorf("starting a session: %w", redisx.IgnoreUnknownOutcome(err))
	}
	words := redisx.Items(reply)
	switch redisx.Text(words, 0) {
	case "ok":
		return redisx.Text(words, 1), nil
	case "conflict":
		return "", store.ErrConflict
	}
	return "", store.ErrNotFound
}

// ListSessions implements [store.Sessions].
func (ks *OneSlot) ListSessions(ctx context.Context, prk recordkey.Key, generation string, now time.Time) ([]session.Session, error) {
	texts, err := ks.runSessions(ctx, prk, history.Note{}, session.Args(session.List, now, "", generation))
	return session.ParseAll(texts), redisx.IgnoreUnknownOutcome(err)
}

// VerifySession implements [store.Sessions] with one script, which may be sent again.
func (ks *OneSlot) VerifySession(ctx context.Context, prk recordkey.Key, id, generation string, now time.Time) (session.Session, error) {
	texts, err := ks.runSessions(ctx, prk, history.Note{}, session.Args(session.Verify, now, id, generation))
	if err != nil {
		return session.Session{}, err
	}
	if verified := session.ParseAll(texts); len(verified) > 0 {
		return verified[0], nil
	}
	return session.Session{}, store.ErrNotFound
}

// EndSession implements [store.Sessions] with one script, which may be sent again: the session
// records the call that ended it.
func (ks *OneSlot) EndSession(ctx context.Context, prk recordkey.Key, id string, n history.Note, now time.Time) (bool, error) {
	texts, err := ks.runSessions(ctx, prk, n, session.Args(session.End, now, id, ks.options.NewRev()))
	return len(texts) > 0, err
}

// ClearSessions implements [store.Sessions] with one script, which may be sent again.
func (ks *OneSlot) ClearSessions(ctx context.Context, prk recordkey.Key, generation string, now time.Time) error {
	_, err := ks.runSessions(ctx, prk, history.Note{}, session.Args(session.Clear, now, "", generation))
	return err
}

// runSessions runs the session script, and returns its reply. If the script changed anything, n is
// added to the history.
func (ks *OneSlot) runSessions(ctx context.Context, prk recordkey.Key, n history.Note, args []string) ([]string, error) {
	key, err := session.Key(prk)
	if err != nil {
		return nil, err
	}
	reply, err := ks.writeNoted(ctx, SessionScript, []string{key.String()}, args, prk, n,
		func(reply any) bool { return len(redisx.Texts(reply)) > 0 })
	if err != nil {
		return nil, err
	}
	return redisx.Texts(reply), nil
}

// FindSession implements [store.Engine]. It reads the session, the entry and, if it has to, the
// time in one round trip. The order of these reads does not matter, because neither an ended
// session nor an old epoch becomes valid again, unless a server was full when the session ended;
// see session.lua.
func (ks *OneSlot) FindSession(ctx context.Context, prk recordkey.Key, id string, now time.Time) (store.Record, session.Session, error) {
	key, err := session.Key(prk)
	if err != nil {
		return store.Record{}, session.Session{}, err
	}
	var q sessionQuery
	_, _, err = ks.client.Retry.Do(ctx, func(bool) (any, error) {
		q = ks.newSessionQuery(ctx, prk, key.String(), id, now)
		return nil, q.firstError(ks.client.ProcessOneSlot(ctx, q.cmds...))
	})
	if err != nil {
		return store.Record{}, session.Session{}, redisx.IgnoreUnknownOutcome(err)
	}
	found, s, now := redisx.FoundAt(prk, q.entry.Val(), q.entry.Err()), q.session(id), ks.timeOf(q)
	switch {
	case found.Err != nil:
		return store.Record{}, session.Session{}, found.Err
	case !s.Live(now):
		return store.Record{}, session.Session{}, store.ErrNotFound
	case now.Sub(s.Seen) < session.SeenInterval:
		return found.Record, s.AsOf(now), nil
	}
	// A crash may lose this write without harm.
	if ks.options.Lazy != nil {
		ctx = ks.options.Lazy(ctx)
	}
	reply, _, err := ks.client.Write(ctx, SessionScript, []string{key.String()}, session.Args(session.Seen, now, id, ""))
	if err != nil {
		// Only the stored time stays old. Callers compute from Seen how long ago Verified is.
		s.Seen = now
		return found.Record, s.AsOf(now), nil
	}
	seen := session.ParseAll(redisx.Texts(reply))
	if len(seen) == 0 {
		return store.Record{}, session.Session{}, store.ErrNotFound
	}
	return found.Record, seen[0].AsOf(now), nil
}

// A sessionQuery holds the commands that find a session.
type sessionQuery struct {
	member redisx.NoRetryCmd // not repeated by the client, because Retry does that
	entry  *redis.MapStringStringCmd
	cmds   []redis.Cmder
	// One of these says what time it is.
	callerTime time.Time
	reply      *timeReply // the last one of the server
	clock      *redis.TimeCmd
	sent       time.Time // when the query was made, if keepsTime
}

func (ks *OneSlot) newSessionQuery(ctx context.Context, prk recordkey.Key, key, id string, now time.Time) sessionQuery {
	q := sessionQuery{
		member: redisx.NewNoRetryCmd(ctx, []any{"hget", key, id}), entry: redis.NewMapStringStringCmd(ctx, "hgetall", prk.String()), callerTime: now,
	}
	q.cmds = append(make([]redis.Cmder, 0, 3), q.member, q.entry)
	if !now.IsZero() {
		return q
	}
	if ks.keepsTime() {
		q.sent = time.Now()
		q.reply = ks.clock.replyFor(q.sent)
	}
	if q.reply == nil {
		q.clock = redis.NewTimeCmd(ctx, ks.timeCommand(key)...)
		q.cmds = append(q.cmds, q.clock)
	}
	return q
}

// keepsTime reports whether the engine computes the time from earlier replies. It does not do so on
// a cluster, whose nodes have clocks of their own, or in an embedded store, whose clock costs
// nothing to read and may be set by a test.
func (ks *OneSlot) keepsTime() bool { return ks.options.OneSlot && !ks.options.Sorted }

// timeOf returns the time at which the commands of a query were answered.
func (ks *OneSlot) timeOf(q sessionQuery) time.Time {
	switch {
	case q.clock != nil:
		if ks.keepsTime() {
			ks.clock.set(q.clock.Val(), q.sent)
		}
		return q.clock.Val()
	case q.reply != nil:
		return q.reply.at(time.Now())
	}
	return q.callerTime
}

// timeCommand returns the command that asks the server of a key for its time. On a cluster, TIME
// without a key goes to any node.
func (ks *OneSlot) timeCommand(key string) []any {
	if ks.options.OneSlot {
		return []any{"time"}
	}
	return []any{"eval", "return redis.call('TIME')", 1, key}
}

// Time implements [store.Engine].
func (ks *OneSlot) Time(ctx context.Context, key recordkey.Key) (time.Time, error) {
	reply, _, err := ks.client.Retry.Do(ctx, func(bool) (any, error) {
		cmd := redisx.NewNoRetryCmd(ctx, ks.timeCommand(key.String()))
		return redisx.Answer(cmd.Cmd, ks.client.Process(ctx, cmd), redisx.IsTexts)
	})
	if err != nil {
		return time.Time{}, redisx.IgnoreUnknownOutcome(err)
	}
	words := redisx.Items(reply)
	seconds, err1 := strconv.ParseInt(redisx.Text(words, 0), 10, 64)
	micros, err2 := strconv.ParseInt(redisx.Text(words, 1), 10, 64)
	if err1 != nil || err2 != nil {
		return time.Time{}, fmt.Errorf("%w: not a time", store.ErrReply)
	}
	return time.Unix(seconds, micros*1000), nil
}

// firstError returns the first error of the commands. err is the error that the client returned for
// all of them. A record of another Redis type is not an error. If err is an error of the context,
// the commands may still be under way, and firstError does not read them.
func (q *sessionQuery) firstError(err error) error {
	if err != nil && !redisx.IsServerReply(err) && !errors.Is(err, redis.Nil) {
		return err
	}
	for _, cmd := range q.cmds {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) && !redisx.WrongType(err) {
			return err
		}
	}
	return nil
}

// session returns the session that was found, or the zero Session.
func (q *sessionQuery) session(id string) session.Session {
	text, _ := q.member.Val().(string)
	s, err := session.Parse(id, text)
	if err != nil {
		return session.Session{}
	}
	return s
}
