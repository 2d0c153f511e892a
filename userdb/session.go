package userdb

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
)

// A Session lets the one who has its secret act as an entry, until it ends: with EndSession, EndSessionID or EndSessions, with a
// new password, with Disable and Delete, and when its time is over. An entry has 100 at most: beyond, the oldest goes.
type Session struct {
	ID       string    // names it among those of its entry; the secret does not follow from it
	Begun    time.Time // all times are the server's
	Seen     time.Time // when it was last asked for, to the minute
	Verified time.Time // when its owner last gave the password: at the beginning, and with VerifySession
	Ends     time.Time // whatever is done until then
	Origin   string
	Agent    string
}

// SessionOptions say how long a session lives, and from where it is.
type SessionOptions struct {
	Life   time.Duration // zero: 30 days; at most 400 days
	Idle   time.Duration // it ends when it was not seen for so long; zero: 7 days, or Life; at least two minutes
	Origin string        // as in Attempt; at most 256 bytes of it are kept
	Agent  string        // what tells its owner which device it is, such as the User-Agent; at most 256 bytes of it are kept
}

const (
	defaultSession = 30 * 24 * time.Hour
	longestSession = 400 * 24 * time.Hour
	defaultIdle    = 7 * 24 * time.Hour
	shortestIdle   = 2 * time.Minute // when a session was seen is kept to the minute
)

// Check is what StartSession would say of the options, before anything is done that comes with it.
func (o SessionOptions) Check() error {
	_, err := o.checked()
	return err
}

func (o SessionOptions) checked() (SessionOptions, error) {
	o.Life = cmp.Or(o.Life, defaultSession)
	o.Idle = min(cmp.Or(o.Idle, defaultIdle), o.Life)
	o.Origin, o.Agent = shortened(o.Origin), shortened(o.Agent)
	switch {
	case o.Life < time.Millisecond || o.Life > longestSession:
		return o, invalid("life", "range", "not between a millisecond and 400 days")
	case o.Idle < min(shortestIdle, o.Life):
		return o, invalid("idle", "range", "under two minutes")
	}
	return o, nil
}

// shortened is a text as it is kept beside a session.
func shortened(text string) string {
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\ufffd")
	}
	if len(text) <= longestOrigin {
		return text
	}
	n := longestOrigin
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// StartSession begins a session of an entry, as Login, SetPassword, Redeem, Create or another verb has just returned it, and
// returns its secret: 160 random bits and the UID, of the letters of a token. Only a hash of it is kept. It changes no Rev.
//
// ErrConflict: since the entry was read, all its sessions have ended (another password was set, it was disabled and enabled, or
// deleted and made anew) or it has changed more than three times before its first session; log in again. ErrNotFound: it is gone or
// disabled. ErrInvalid: options that cannot be, or a UID of over 200 bytes.
func (t *Type) StartSession(ctx context.Context, e Entry, o SessionOptions) (s Session, secret string, err error) {
	ctx, v := t.db.begin(ctx, "StartSession", &err)
	defer v.end(&err)
	return t.startSession(ctx, e, o)
}

func (t *Type) startSession(ctx context.Context, e Entry, o SessionOptions) (Session, string, error) {
	o, err := o.checked()
	if err != nil {
		return Session{}, "", err
	}
	if !e.key.IsValid() || e.Type() != t.Name() {
		return Session{}, "", invalid(store.FieldType, "type", "not an entry of type "+t.Name())
	}
	t = t.now()
	secret, err := newSecret(e.UID())
	if err != nil {
		return Session{}, "", err
	}
	prk := e.key.In(t.view.NS)
	s, err := t.view.Engine.StartSession(ctx, store.Start{
		PRK: prk, Seen: e.was, First: store.NewFirstEpoch(), ID: hashOf(secret), Life: o.Life, Idle: o.Idle,
		Origin: o.Origin, Agent: o.Agent, Now: t.view.StoreTime(),
		Note: t.view.Note(view.WithActor(ctx, view.Actor{Origin: o.Origin}), EventSessionStart, ""),
	})
	if err != nil {
		return Session{}, "", err
	}
	t.db.emit(ctx, Event{Kind: EventStart, PRK: prk, Origin: o.Origin, Session: s.ID})
	return sessionOf(s), secret, nil
}

func sessionOf(s store.Session) Session {
	return Session{ID: s.ID, Begun: s.Begun, Seen: s.Seen, Verified: s.Verified, Ends: s.Ends, Origin: s.Origin, Agent: s.Agent}
}

// Session returns the entry whose session has the secret, and the session, in one round trip; once a minute a second one keeps that
// it was seen. After the end of a session was acknowledged no process gets it. ErrNotFound is the one answer to a secret whose session
// has ended, and to one that is made up.
func (t *Type) Session(ctx context.Context, secret string) (e Entry, session Session, err error) {
	ctx, v := t.db.begin(ctx, "Session", &err)
	defer v.end(&err)
	t = t.now()
	r, s, err := t.session(ctx, secret)
	if err != nil {
		return Entry{}, Session{}, err
	}
	e, err = t.entry(r, nil)
	return e, sessionOf(s), err
}

// session returns the record and the session that a secret is good for.
func (t *Type) session(ctx context.Context, secret string) (store.Record, store.Session, error) {
	prk, ok := t.ownerOf(secret)
	if !ok {
		return store.Record{}, store.Session{}, ErrNotFound
	}
	r, s, err := t.view.Engine.FindSession(ctx, prk, hashOf(secret), t.view.StoreTime())
	if err == nil && !s.Admits(r) {
		err = ErrNotFound
	}
	return r, s, err
}

// ownerOf is the key of the entry that a secret names; false for a text that is no secret.
func (t *Type) ownerOf(secret string) (recordkey.Key, bool) {
	uid, ok := uidOf(secret)
	prk, err := t.declared.PRK(uid)
	return prk, ok && err == nil
}

// VerifySession notes in a session that its owner gave the password once more, as before a change of an address: Session.Verified
// tells when. A wrong password is ErrLogin, and counts as an attempt to log in, as do those of ErrTooManyAttempts. ErrNotFound
// says that the session has ended.
func (t *Type) VerifySession(ctx context.Context, secret, pw string, a Attempt) (e Entry, session Session, err error) {
	ctx, v := t.db.begin(ctx, "VerifySession", &err)
	defer v.end(&err)
	t = t.now()
	r, s, err := t.session(ctx, secret)
	if err != nil {
		return Entry{}, Session{}, err
	}
	p := proof{t: t, r: r, origin: a.Origin}
	if _, err := p.prove(ctx, pw); err != nil {
		return Entry{}, Session{}, err
	}
	done, err := t.view.Engine.Sessions(ctx, store.SessionsOp{
		PRK: r.Key, What: store.SessionsVerify, ID: s.ID, Bond: store.Bond(p.r.Fields), Now: t.view.StoreTime(),
	})
	if err == nil && len(done) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Entry{}, Session{}, err
	}
	e, err = t.entry(p.r, nil)
	return e, sessionOf(done[0]), err
}

// EndSession ends the session that has the secret. One that has ended before, or never began, is no error.
func (t *Type) EndSession(ctx context.Context, secret string) (err error) {
	ctx, v := t.db.begin(ctx, "EndSession", &err)
	defer v.end(&err)
	t = t.now()
	prk, ok := t.ownerOf(secret)
	if !ok {
		return nil
	}
	_, err = t.endSession(ctx, prk, hashOf(secret))
	return err
}

// abandonTime is how long an abandoned session is ended for.
const abandonTime = 10 * time.Second

// abandon ends a session whose secret nobody has. When the caller's time is over that goes on for a while, but the caller does not
// wait for it, and no event is told.
func (t *Type) abandon(ctx context.Context, secret string) error {
	t = t.now()
	prk, _ := t.ownerOf(secret)
	id := hashOf(secret)
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTime)
	var done bool
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		var err error
		done, err = t.sessions(late, store.SessionsOp{PRK: prk, What: store.SessionsEnd, ID: id, Note: t.view.Note(ctx, EventSessionEnd, "")})
		ended <- err
	}()
	select {
	case err := <-ended:
		if done {
			t.db.emit(ctx, Event{Kind: EventEnd, PRK: prk, Session: id})
		}
		return err
	case <-ctx.Done():
		return nil
	}
}

// EndSessionID ends the session of an entry that has the ID. ErrNotFound: it has no such session, or there is no such entry.
func (t *Type) EndSessionID(ctx context.Context, h hints.Hint, id string) (err error) {
	ctx, v := t.db.begin(ctx, "EndSessionID", &err)
	defer v.end(&err)
	t = t.now()
	r, err := t.record(ctx, h)
	if err != nil {
		return public(err)
	}
	ended, err := t.endSession(ctx, r.Key, id)
	if err == nil && !ended {
		err = ErrNotFound
	}
	return err
}

func (t *Type) endSession(ctx context.Context, prk recordkey.Key, id string) (bool, error) {
	done, err := t.sessions(ctx, store.SessionsOp{PRK: prk, What: store.SessionsEnd, ID: id, Note: t.view.Note(ctx, EventSessionEnd, "")})
	if done {
		t.db.emit(ctx, Event{Kind: EventEnd, PRK: prk, Session: id})
	}
	return done, err
}

// EndSessions ends all sessions of an entry, and begins of none that follow from an earlier login. It is a change of the
// entry, and returns it for a session of the caller's own.
func (t *Type) EndSessions(ctx context.Context, h hints.Hint) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "EndSessions", &err)
	defer v.end(&err)
	r, err := t.record(ctx, h)
	if err != nil {
		return Entry{}, public(err)
	}
	before := r
	err = t.following(ctx, func(t *Type) (err error) {
		r, err = t.rewriteRead(ctx, r, func(now store.Record) (store.Change, bool, error) {
			before = now
			own := map[string]string{}
			change.EndSessions(own)
			return t.declared.Update(now, change.Bare(now), own)
		})
		return err
	})
	if done(err) {
		t.now().clearSessions(ctx, before, r)
		t.db.emit(ctx, Event{Kind: EventEnd, PRK: r.Key})
	}
	return t.now().entry(r, err)
}

// clearSessions removes what is left of the sessions that the record had before a change ended them: they are not good any more,
// and name addresses and devices. What cannot be removed goes with its time.
func (t *Type) clearSessions(ctx context.Context, before, after store.Record) {
	op := store.SessionsOp{PRK: before.Key, What: store.SessionsClear, Bond: store.Bond(before.Fields)}
	if before.Fields[store.FieldEpoch] == "" || op.Bond == store.Bond(after.Fields) {
		return
	}
	if _, err := t.sessions(ctx, op); err != nil {
		t.warn(ctx, "the records of sessions that have ended are not removed", before, err)
	}
}

// Sessions yields the sessions of an entry, those first that were seen last: its devices. ErrNotFound: there is no such entry.
func (t *Type) Sessions(ctx context.Context, h hints.Hint) iter.Seq2[Session, error] {
	return func(yield func(Session, error) bool) {
		var err error
		ctx, v := t.db.begin(ctx, "Sessions", &err)
		defer v.end(&err)
		all, err := t.now().listSessions(ctx, h)
		if err != nil {
			yield(Session{}, err)
			return
		}
		for _, s := range all {
			if !yield(sessionOf(s), nil) {
				return
			}
		}
	}
}

func (t *Type) listSessions(ctx context.Context, h hints.Hint) ([]store.Session, error) {
	r, err := t.record(ctx, h)
	if err != nil {
		return nil, public(err)
	}
	if r.Fields[store.FieldEpoch] == "" || r.Fields[store.FieldDisabled] != "" {
		return nil, nil
	}
	all, err := t.view.Engine.Sessions(ctx, store.SessionsOp{
		PRK: r.Key, What: store.SessionsList, Bond: store.Bond(r.Fields), Now: t.view.StoreTime(),
	})
	slices.SortFunc(all, func(a, b store.Session) int {
		return cmp.Or(b.Seen.Compare(a.Seen), b.Begun.Compare(a.Begun), cmp.Compare(a.ID, b.ID))
	})
	return all, err
}

// sessions does something to sessions of an entry, and reports whether it was done to any.
func (t *Type) sessions(ctx context.Context, op store.SessionsOp) (bool, error) {
	op.Now = t.view.StoreTime()
	done, err := t.view.Engine.Sessions(ctx, op)
	return len(done) > 0, err
}
