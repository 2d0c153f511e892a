package onekey

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/arg"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// EpochScript runs on an entry, and SessionScript on the record of the entry's sessions.
var (
	EpochScript   = redisx.NewScript(redisx.IsVerdict, source("epoch"))
	SessionScript = redisx.NewScript(redisx.IsTexts, history.Lua, source("session"))
)

// StartSession implements [store.Engine] with two scripts, each of which may be sent again. If all
// sessions of the entry are ended between the two, the session that the second script stores is
// bound to an old epoch, and so is not valid.
func (ks *Keys) StartSession(ctx context.Context, s store.SessionStart) (store.Session, error) {
	generation, err := ks.sessionGeneration(ctx, s)
	if err != nil {
		return store.Session{}, err
	}
	texts, err := ks.runSessions(ctx, s.PRK, "begin", s.Note, s.Now, s.ID, generation,
		strconv.FormatInt(s.Life.Milliseconds(), 10), strconv.FormatInt(s.Idle.Milliseconds(), 10),
		recordkey.Escape(s.Origin), recordkey.Escape(s.Agent), strconv.Itoa(store.MaxSessions))
	if err != nil {
		return store.Session{}, fmt.Errorf("starting a session: %w", err)
	}
	if found := parseSessions(texts); len(found) > 0 {
		return found[0], nil
	}
	return store.Session{}, store.ErrConflict // the session ended before the reply came
}

// sessionGeneration returns the generation to which a session of the entry is bound, if a session
// may begin.
func (ks *Keys) sessionGeneration(ctx context.Context, s store.SessionStart) (string, error) {
	reply, _, err := ks.client.Write(ctx, EpochScript, []string{s.PRK.String()}, []string{
		s.PRK.Type(), store.Rev(s.Seen[store.FieldRev]), s.Seen[store.FieldEpoch], s.Seen[store.FieldChanged], s.FirstEpoch,
	})
	if err != nil {
		return "", fmt.Errorf("starting a session: %w", redisx.IgnoreUnknownOutcome(err))
	}
	words := redisx.Items(reply)
	switch redisx.Text(words, 0) {
	case "ok":
		return store.Generation(map[string]string{store.FieldEpoch: redisx.Text(words, 1), store.FieldChanged: s.Seen[store.FieldChanged]}), nil
	case "conflict":
		return "", store.ErrConflict
	}
	return "", store.ErrNotFound
}

// ListSessions implements [store.Sessions].
func (ks *Keys) ListSessions(ctx context.Context, prk recordkey.Key, generation string, now time.Time) ([]store.Session, error) {
	texts, err := ks.runSessions(ctx, prk, "list", history.Note{}, now, "", generation)
	return parseSessions(texts), redisx.IgnoreUnknownOutcome(err)
}

// VerifySession implements [store.Sessions] with one script, which may be sent again.
func (ks *Keys) VerifySession(ctx context.Context, prk recordkey.Key, id, generation string, now time.Time) (store.Session, error) {
	texts, err := ks.runSessions(ctx, prk, "verify", history.Note{}, now, id, generation)
	if err != nil {
		return store.Session{}, err
	}
	if verified := parseSessions(texts); len(verified) > 0 {
		return verified[0], nil
	}
	return store.Session{}, store.ErrNotFound
}

// EndSession implements [store.Sessions] with one script, which may be sent again: the session
// records the call that ended it.
func (ks *Keys) EndSession(ctx context.Context, prk recordkey.Key, id string, n history.Note, now time.Time) (bool, error) {
	texts, err := ks.runSessions(ctx, prk, "end", n, now, id, ks.options.NewRev())
	return len(texts) > 0, err
}

// ClearSessions implements [store.Sessions] with one script, which may be sent again.
func (ks *Keys) ClearSessions(ctx context.Context, prk recordkey.Key, generation string, now time.Time) error {
	_, err := ks.runSessions(ctx, prk, "clear", history.Note{}, now, "", generation)
	return err
}

// runSessions runs the session script, and returns its reply. If the script changed anything, n is
// added to the history.
func (ks *Keys) runSessions(ctx context.Context, prk recordkey.Key, verb string, n history.Note, now time.Time, args ...string) ([]string, error) {
	key, err := store.SessionsKey(prk)
	if err != nil {
		return nil, err
	}
	reply, err := ks.writeNoted(ctx, SessionScript, []string{key.String()}, append([]string{verb, arg.Time(now)}, args...), prk, n,
		func(reply any) bool { return len(redisx.Texts(reply)) > 0 })
	if err != nil {
		return nil, err
	}
	return redisx.Texts(reply), nil
}

// seenInterval limits how often the time at which a session was last seen is stored.
const seenInterval = time.Minute

// FindSession implements [store.Engine]. It reads the session, the time and the entry in one round
// trip. The order of these reads does not matter, because neither an ended session nor an old epoch
// ever becomes valid again.
func (ks *Keys) FindSession(ctx context.Context, prk recordkey.Key, id string, now time.Time) (store.Record, store.Session, error) {
	key, err := store.SessionsKey(prk)
	if err != nil {
		return store.Record{}, store.Session{}, err
	}
	var q sessionQuery
	_, _, err = ks.client.Retry.Do(ctx, func(bool) (any, error) {
		q = ks.newSessionQuery(ctx, prk, key.String(), id, now)
		return nil, q.firstError(ks.client.ProcessOneSlot(ctx, q.cmds...))
	})
	if err != nil {
		return store.Record{}, store.Session{}, redisx.IgnoreUnknownOutcome(err)
	}
	found, s, now := redisx.FoundAt(prk, q.entry.Val(), q.entry.Err()), q.session(id), q.now()
	switch {
	case found.Err != nil:
		return store.Record{}, store.Session{}, found.Err
	case !s.Live(now):
		return store.Record{}, store.Session{}, store.ErrNotFound
	case now.Sub(s.Seen) < seenInterval:
		return found.Record, s, nil
	}
	reply, _, err := ks.client.Write(ctx, SessionScript, []string{key.String()}, []string{"seen", arg.Time(now), id, ""})
	if err != nil { // the older time stays
		return found.Record, s, nil
	}
	seen := parseSessions(redisx.Texts(reply))
	if len(seen) == 0 {
		return store.Record{}, store.Session{}, store.ErrNotFound
	}
	return found.Record, seen[0], nil
}

// sessionQuery holds the commands that find a session.
type sessionQuery struct {
	member     redisx.NoRetryCmd // not repeated by the client, because Retry does that
	entry      *redis.MapStringStringCmd
	clock      *redis.TimeCmd
	callerTime time.Time // the time, if the caller gave it
	cmds       []redis.Cmder
}

func (ks *Keys) newSessionQuery(ctx context.Context, prk recordkey.Key, key, id string, now time.Time) sessionQuery {
	q := sessionQuery{
		member: redisx.NewNoRetryCmd(ctx, []any{"hget", key, id}), entry: redis.NewMapStringStringCmd(ctx, "hgetall", prk.String()), callerTime: now,
	}
	q.cmds = append(make([]redis.Cmder, 0, 3), q.member, q.entry)
	if now.IsZero() {
		q.clock = redis.NewTimeCmd(ctx, ks.timeCommand(key)...)
		q.cmds = append(q.cmds, q.clock)
	}
	return q
}

// timeCommand returns the command that asks the server of a key for its time. On a cluster, TIME
// without a key goes to any node.
func (ks *Keys) timeCommand(key string) []any {
	if ks.options.OneSlot {
		return []any{"time"}
	}
	return []any{"eval", "return redis.call('TIME')", 1, key}
}

// Time implements [store.Engine].
func (ks *Keys) Time(ctx context.Context, key recordkey.Key) (time.Time, error) {
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
func (q *sessionQuery) session(id string) store.Session {
	text, _ := q.member.Val().(string)
	s, err := parseSession(id, text)
	if err != nil {
		return store.Session{}
	}
	return s
}

func (q *sessionQuery) now() time.Time {
	if q.clock != nil {
		return q.clock.Val()
	}
	return q.callerTime
}

// parseSessions parses a reply of session.lua: members, each after its name. It ignores other
// texts.
func parseSessions(texts []string) (all []store.Session) {
	for i := 0; i+1 < len(texts); i += 2 {
		if s, err := parseSession(texts[i], texts[i+1]); err == nil {
			all = append(all, s)
		}
	}
	return all
}

var errSession = errors.New("not a session")

// maxDigits is the maximum length of a number in a member, here as in session.lua.
const maxDigits = 15

func parseSession(id, text string) (store.Session, error) {
	words := strings.Split(text, " ")
	if len(words) != 8 {
		return store.Session{}, errSession
	}
	var ms [5]int64
	for i := range ms {
		n, err := strconv.ParseUint(words[i], 10, 64)
		if err != nil || len(words[i]) > maxDigits {
			return store.Session{}, errSession
		}
		ms[i] = int64(n)
	}
	origin, err1 := recordkey.Unescape(words[6])
	agent, err2 := recordkey.Unescape(words[7])
	return store.Session{
		ID: id, Ends: time.UnixMilli(ms[0]), Idle: time.Duration(ms[1]) * time.Millisecond, Seen: time.UnixMilli(ms[2]),
		Verified: time.UnixMilli(ms[3]), Begun: time.UnixMilli(ms[4]), Generation: words[5], Origin: origin, Agent: agent,
	}, errors.Join(err1, err2)
}
