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
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// EpochScript looks at the entry of a session, and SessionScript at the record of its sessions.
var (
	EpochScript   = redisx.NewScript(scripts, "epoch", redisx.IsVerdict)
	SessionScript = redisx.NewScript(scripts, "session", redisx.IsTexts, HistoryLua)
)

// StartSession implements [store.Engine]: two scripts, each harmless when sent again. Where the entry ends all its sessions
// between them, the session that the second one keeps is bound to an epoch that is over.
func (ks *Keys) StartSession(ctx context.Context, s store.Start) (store.Session, error) {
	bond, err := ks.bond(ctx, s)
	if err != nil {
		return store.Session{}, err
	}
	found, err := ks.sessions(ctx, s.PRK, "begin", s.Note, s.Now, s.ID, bond,
		strconv.FormatInt(s.Life.Milliseconds(), 10), strconv.FormatInt(s.Idle.Milliseconds(), 10),
		recordkey.Escape(s.Origin), recordkey.Escape(s.Agent), strconv.Itoa(store.MostSessions))
	switch {
	case err != nil:
		return store.Session{}, fmt.Errorf("beginning a session: %w", err)
	case len(found) == 0: // it was ended before it was answered
		return store.Session{}, store.ErrConflict
	}
	return found[0], nil
}

// bond is what a session of the entry is bound to, if one may begin.
func (ks *Keys) bond(ctx context.Context, s store.Start) (string, error) {
	reply, _, err := ks.client.Write(ctx, EpochScript, []string{s.PRK.String()}, []string{
		s.PRK.Type(), store.Rev(s.Seen[store.FieldRev]), s.Seen[store.FieldEpoch], s.Seen[store.FieldChanged], s.First,
	})
	if err != nil {
		return "", fmt.Errorf("beginning a session: %w", redisx.Harmless(err))
	}
	words := redisx.Items(reply)
	switch redisx.Text(words, 0) {
	case "ok":
		return store.Bond(map[string]string{store.FieldEpoch: redisx.Text(words, 1), store.FieldChanged: s.Seen[store.FieldChanged]}), nil
	case "conflict":
		return "", store.ErrConflict
	}
	return "", store.ErrNotFound
}

// Sessions implements [store.Engine]: one script, harmless when sent again.
func (ks *Keys) Sessions(ctx context.Context, op store.SessionsOp) ([]store.Session, error) {
	return ks.sessions(ctx, op.PRK, op.What, op.Note, op.Now, op.ID, op.Bond)
}

func (ks *Keys) sessions(ctx context.Context, prk recordkey.Key, what string, n store.Note, now time.Time, args ...string) ([]store.Session, error) {
	key, err := store.SessionsKey(prk)
	if err != nil {
		return nil, err
	}
	reply, err := ks.writeNoted(ctx, SessionScript, []string{key.String()}, append([]string{what, Millis(now)}, args...), prk, n)
	if err != nil {
		return nil, redisx.Harmless(err)
	}
	return parseSessions(redisx.Texts(reply)), nil
}

// FindSession implements [store.Engine]. The session and its entry are two commands of one round trip, in any order: a session
// that has ended does not come back, nor does an epoch.
func (ks *Keys) FindSession(ctx context.Context, prk recordkey.Key, id string, now time.Time) (store.Record, store.Session, error) {
	key, err := store.SessionsKey(prk)
	if err != nil {
		return store.Record{}, store.Session{}, err
	}
	var found store.Found
	reply, _, err := ks.client.Retry.Do(ctx, func(bool) (reply any, err error) {
		for _, verb := range []string{"check", "look"} { // where it cannot be kept that it was seen now, it was seen longer ago
			found, reply, err = ks.findSession(ctx, prk, []string{key.String()}, []string{verb, Millis(now), id, "", ""})
			if err == nil || !ks.options.Undone(err) {
				break
			}
		}
		return reply, err
	})
	if err != nil {
		return store.Record{}, store.Session{}, redisx.Harmless(err)
	}
	sessions := parseSessions(redisx.Texts(reply))
	switch {
	case found.Err != nil:
		return store.Record{}, store.Session{}, found.Err
	case len(sessions) == 0:
		return store.Record{}, store.Session{}, store.ErrNotFound
	}
	return found.Record, sessions[0], nil
}

// findSession asks once, or twice where the server does not have the script. The client does not repeat it, for the caller does.
func (ks *Keys) findSession(ctx context.Context, prk recordkey.Key, keys, args []string) (store.Found, any, error) {
	ask := func(call []any) (redisx.Once, *redis.MapStringStringCmd) {
		session, entry := redisx.NewOnce(ctx, call), redis.NewMapStringStringCmd(ctx, "hgetall", prk.String())
		if err := ks.client.All(ctx, []redis.Cmder{session, entry}); err != nil && session.Err() == nil && entry.Err() == nil {
			session.SetErr(err)
		}
		return session, entry
	}
	session, entry := ask(SessionScript.Call(keys, args))
	if redisx.NoScript(session.Err()) {
		session, entry = ask(SessionScript.CallInFull(keys, args))
	}
	reply, err := redisx.Answer(session.Cmd, session.Err(), SessionScript.Reply)
	if err == nil && entry.Err() != nil && !redisx.WrongType(entry.Err()) {
		err = entry.Err()
	}
	return redisx.FoundAt(prk, entry.Val(), entry.Err()), reply, err
}

// parseSessions reads members and their names as session.lua answers them; it passes over other texts.
func parseSessions(texts []string) (all []store.Session) {
	for i := 0; i+1 < len(texts); i += 2 {
		if s, err := parseSession(texts[i], texts[i+1]); err == nil {
			all = append(all, s)
		}
	}
	return all
}

var errSession = errors.New("not a session")

func parseSession(id, text string) (store.Session, error) {
	words := strings.Split(text, " ")
	if len(words) != 8 {
		return store.Session{}, errSession
	}
	var ms [5]int64
	for i := range ms {
		var err error
		if ms[i], err = strconv.ParseInt(words[i], 10, 64); err != nil {
			return store.Session{}, errSession
		}
	}
	origin, err1 := recordkey.Unescape(words[6])
	agent, err2 := recordkey.Unescape(words[7])
	return store.Session{
		ID: id, Ends: time.UnixMilli(ms[0]), Idle: time.Duration(ms[1]) * time.Millisecond, Seen: time.UnixMilli(ms[2]),
		Verified: time.UnixMilli(ms[3]), Begun: time.UnixMilli(ms[4]), Bond: words[5], Origin: origin, Agent: agent,
	}, errors.Join(err1, err2)
}
