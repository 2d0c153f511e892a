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
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
)

// A Session lets the holder of its secret act as an entry until it ends. It ends when it expires,
// by EndSession, EndSessionID or EndSessions, and by changes such as a new password, a removed
// second factor, Disable and Delete. An entry has at most 100 sessions; starting another ends the
// oldest.
type Session struct {
	// ID identifies the session among those of its entry. The secret cannot be derived from it.
	ID string

	// All times are those of the server's clock.

	Started  time.Time
	LastSeen time.Time // when Session last returned it, to the minute
	Verified time.Time // when the owner last took one step of a login, such as a password
	Expires  time.Time // when it expires even if it is used

	// VerifiedLevel2 is when the owner last took both steps of a login, or signed in with a
	// passkey, which counts as both. It is zero if the session has level 1. A password alone does
	// not renew it.
	VerifiedLevel2 time.Time

	Origin string // from SessionOptions
	Agent  string // from SessionOptions
}

// Level returns 2 if the owner took both steps of a login (a passkey alone counts as both), 1 if
// they took one, and 0 for the zero Session. Sessions that earlier versions began have level 1.
func (s Session) Level() int {
	switch {
	case !s.VerifiedLevel2.IsZero():
		return 2
	case s.ID != "":
		return 1
	}
	return 0
}

// VerifiedAt returns when the owner was last verified on a level, or the zero time if the session
// does not have that level.
func (s Session) VerifiedAt(level int) time.Time {
	switch level {
	case 1:
		return s.Verified
	case 2:
		return s.VerifiedLevel2
	}
	return time.Time{}
}

// SessionOptions says how long a session lives and where it comes from.
type SessionOptions struct {
	// Lifetime is how long the session lives. If zero, it is 30 days. The maximum is 400 days.
	Lifetime time.Duration

	// IdleTimeout is how long the session may be unused before it ends. If zero, it is 7 days. It
	// must be at least two minutes unless Lifetime is less. More than Lifetime has no effect.
	IdleTimeout time.Duration

	// Origin is where the session comes from, as in Attempt, cut to 256 bytes.
	Origin string

	// Level is 2 if the application itself has verified that the owner took two steps of a login.
	// If zero, the session has the level of the steps that this package verified: 2 if the entry
	// comes from a method that checks both, such as Prove or LoginPasskey, and otherwise 1.
	Level int

	// Agent tells the owner which device the session is on, such as the User-Agent header, cut to
	// 256 bytes.
	Agent string
}

const (
	defaultSessionLife = 30 * 24 * time.Hour
	maxSessionLife     = 400 * 24 * time.Hour
	defaultIdle        = 7 * 24 * time.Hour
	minIdle            = 2 * time.Minute // Session.LastSeen is only accurate to the minute
)

// Check returns the error that StartSession would return for the options, so that callers can
// validate them first.
func (o SessionOptions) Check() error {
	_, err := o.withDefaults()
	return err
}

// withDefaults returns the options with defaults filled in and texts cut to length, or an
// ErrInvalid.
func (o SessionOptions) withDefaults() (SessionOptions, error) {
	o.Lifetime = cmp.Or(o.Lifetime, defaultSessionLife)
	o.IdleTimeout = min(cmp.Or(o.IdleTimeout, defaultIdle), o.Lifetime)
	o.Origin, o.Agent = truncate(o.Origin), truncate(o.Agent)
	switch {
	case o.Lifetime < time.Millisecond || o.Lifetime > maxSessionLife:
		return o, invalid("life", "range", "not between a millisecond and 400 days")
	case o.Level < 0 || o.Level > 2:
		return o, invalid("level", "range", "not 0, 1 or 2")
	case o.IdleTimeout < min(minIdle, o.Lifetime):
		return o, invalid("idle", "range", "under two minutes")
	}
	return o, nil
}

// truncate returns a text as valid UTF-8, cut to maxEventText bytes.
func truncate(text string) string { return truncateTo(text, maxEventText) }

// truncateTo returns a text as valid UTF-8, cut to a maximum number of bytes.
func truncateTo(text string, maximum int) string {
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\ufffd")
	}
	if len(text) <= maximum {
		return text
	}
	n := maximum
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// StartSession starts a session of an entry that Login, SetPassword, Redeem, Create or another
// method has just returned. The secret holds 160 random bits and the UID, and consists of letters,
// digits, hyphens and underscores. Only a hash of it is stored. The revision of the entry does not
// change.
//
// The error is
//
//   - ErrFactor with a *FactorError if the entry has a second factor and was not returned by Prove
//     or another method that checks both steps.
//   - ErrConflict if all sessions of the entry have ended since it was read: its password was set,
//     a second factor was added, or it was disabled and enabled, or deleted and created again. For
//     an entry that CreateOnce returned again, sessions that ended since the first request count.
//     The error is also ErrConflict if the entry changed more than three times before its first
//     session. The user must log in again.
//   - ErrNotFound if the entry was deleted or is disabled.
//   - ErrInvalid if an option is out of range or the UID has over 200 bytes.
func (t *Type) StartSession(ctx context.Context, e Entry, o SessionOptions) (s Session, secret string, err error) {
	ctx, v := t.db.begin(ctx, "StartSession", &err)
	defer v.end(&err)
	return t.startSession(ctx, e, o)
}

func (t *Type) startSession(ctx context.Context, e Entry, o SessionOptions) (Session, string, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Session{}, "", err
	}
	if !e.key.IsValid() || e.Type() != t.Name() {
		return Session{}, "", invalid(store.FieldType, "type", "not an entry of type "+t.Name())
	}
	if e.ended {
		if e.Disabled() {
			return Session{}, "", ErrNotFound
		}
		return Session{}, "", ErrConflict
	}
	t = t.current()
	secret, err := newSecret(e.UID())
	if err != nil {
		return Session{}, "", err
	}
	prk := e.key.In(t.view.NS)
	level := max(o.Level, 1)
	if r := (store.Record{Key: prk, Fields: e.fields}); r.Factors().Any() {
		if !e.proved && level < 2 {
			return Session{}, "", t.requireFactor(ctx, r, stepApplication, o.Origin)
		}
		level = 2
	}
	var s session.Session
	t.db.recordLimited(ctx, t.db.loginLimit(prk), func(ctx context.Context) bool {
		s, err = t.view.Engine.StartSession(ctx, session.Start{
			PRK: prk, Seen: store.Record{Fields: e.fields}.ForSessions(), FirstEpoch: session.FirstEpoch(store.NewRev()),
			ID: hashSecret(secret), Life: o.Lifetime, Idle: o.IdleTimeout, Level: level, Origin: o.Origin, Agent: o.Agent, Now: t.view.StoreTime(),
			Verified: e.verified, VerifiedLevel2: e.verifiedLevel2,
			Note: t.view.Note(view.WithActor(ctx, view.Actor{Origin: o.Origin}), EventSessionStart, ""),
		})
		return err == nil
	})
	if err != nil {
		return Session{}, "", err
	}
	t.db.emit(ctx, Event{Kind: EventStart, Key: prk, Origin: o.Origin, Session: s.ID})
	return sessionOf(s), secret, nil
}

func sessionOf(s session.Session) Session {
	return Session{ID: s.ID, Started: s.Begun, LastSeen: s.Seen, Verified: s.Verified, VerifiedLevel2: s.VerifiedLevel2, Expires: s.Ends, Origin: s.Origin, Agent: s.Agent}
}

// Session returns the session that has the secret, and its entry. It takes one round trip, and once
// a minute a second one to record that the session was seen. After a method that ends the session
// has returned, no process gets it anymore. The error is ErrNotFound if the session has ended or
// the secret is invalid; it does not say which.
func (t *Type) Session(ctx context.Context, secret string) (e Entry, session Session, err error) {
	ctx, v := t.db.begin(ctx, "Session", &err)
	defer v.end(&err)
	t = t.current()
	r, s, err := t.session(ctx, secret)
	if err != nil {
		return Entry{}, Session{}, err
	}
	e, err = t.entry(r, nil)
	return e, sessionOf(s), err
}

// session returns the record and the session of a secret.
func (t *Type) session(ctx context.Context, secret string) (store.Record, session.Session, error) {
	prk, ok := t.secretOwner(secret)
	if !ok {
		return store.Record{}, session.Session{}, ErrNotFound
	}
	r, s, err := t.view.Engine.FindSession(ctx, prk, hashSecret(secret), t.view.StoreTime())
	if err == nil && !s.ValidFor(r.ForSessions()) {
		err = ErrNotFound
	}
	return r, s, err
}

// secretOwner returns the key of the entry that a secret belongs to, and reports whether the text
// has the form of a secret.
func (t *Type) secretOwner(secret string) (recordkey.Key, bool) {
	uid, ok := token.SecretUID(secret)
	prk, err := t.declared.PRK(uid)
	return prk, ok && err == nil
}

// VerifySession checks the password of a session's owner again, for example before an address is
// changed, and records the time in Session.Verified. A wrong password is ErrLogin and counts as a
// failed login, and ErrTooManyAttempts is returned as by Login. The error is ErrNotFound if the
// session has ended.
func (t *Type) VerifySession(ctx context.Context, secret, pw string, a Attempt) (e Entry, session Session, err error) {
	ctx, v := t.db.begin(ctx, "VerifySession", &err)
	defer v.end(&err)
	t = t.current()
	r, s, err := t.session(ctx, secret)
	if err != nil {
		return Entry{}, Session{}, err
	}
	p := proof{t: t, r: r, origin: a.Origin}
	if _, err := p.prove(ctx, pw); err != nil {
		return Entry{}, Session{}, err
	}
	verified, err := t.view.Engine.VerifySession(ctx, r.Key, s.ID, p.r.ForSessions().Generation(), t.view.StoreTime())
	if err != nil {
		return Entry{}, Session{}, err
	}
	e, err = t.entry(p.r, nil)
	return e, sessionOf(verified), err
}

// EndSession ends the session that has the secret. It returns no error if there is no such session.
func (t *Type) EndSession(ctx context.Context, secret string) (err error) {
	ctx, v := t.db.begin(ctx, "EndSession", &err)
	defer v.end(&err)
	t = t.current()
	prk, ok := t.secretOwner(secret)
	if !ok {
		return nil
	}
	_, err = t.endSession(ctx, prk, hashSecret(secret))
	return err
}

// EndSessionID ends the session of an entry that has the ID. The error is ErrNotFound if there is
// no such session or entry.
func (t *Type) EndSessionID(ctx context.Context, h hints.Hint, id string) (err error) {
	ctx, v := t.db.begin(ctx, "EndSessionID", &err)
	defer v.end(&err)
	t = t.current()
	r, err := t.record(ctx, h)
	if err != nil {
		return publicError(err)
	}
	ended, err := t.endSession(ctx, r.Key, id)
	if err == nil && !ended {
		err = ErrNotFound
	}
	return err
}

// endSession ends the session with an ID and reports whether there was one.
func (t *Type) endSession(ctx context.Context, prk recordkey.Key, id string) (found bool, err error) {
	t.db.recordLimited(ctx, t.db.loginLimit(prk), func(ctx context.Context) bool {
		found, err = t.view.Engine.EndSession(ctx, prk, id, t.view.Note(ctx, EventSessionEnd, ""), t.view.StoreTime())
		return found
	})
	if found {
		t.db.emit(ctx, Event{Kind: EventEnd, Key: prk, Session: id})
	}
	return found, err
}

// EndSessions ends all sessions of an entry, and prevents StartSession with an entry that an
// earlier login returned. It changes the entry and returns it, so that the caller can start a new
// session. The error is ErrNotFound if there is no such entry.
func (t *Type) EndSessions(ctx context.Context, h hints.Hint) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "EndSessions", &err)
	defer v.end(&err)
	r, err := t.record(ctx, h)
	if err != nil {
		return Entry{}, publicError(err)
	}
	before := r
	t.db.recordLimited(ctx, t.db.loginLimit(r.Key), func(ctx context.Context) bool {
		before, r, err = t.rewriteInForce(ctx, r, func(t *Type, current store.Record) (store.Change, bool, error) {
			own := map[string]string{}
			change.EndSessions(own)
			return t.declared.Update(current, change.Facets(current), own)
		})
		return committed(err)
	})
	if committed(err) {
		t.current().clearSessions(ctx, before, r)
		t.db.emit(ctx, Event{Kind: EventEnd, Key: r.Key})
	}
	return t.current().entry(r, err)
}

// clearSessions removes the records of the sessions that a change has ended. The sessions are
// already invalid, but their records hold addresses and devices. Records that cannot be removed
// stay until they expire.
func (t *Type) clearSessions(ctx context.Context, before, after store.Record) {
	generation := before.ForSessions().Generation()
	if before.Fields[session.FieldEpoch] == "" || generation == after.ForSessions().Generation() {
		return
	}
	if err := t.view.Engine.ClearSessions(ctx, before.Key, generation, t.view.StoreTime()); err != nil {
		t.warn(ctx, "cannot remove the records of ended sessions", before, err)
	}
}

// Sessions yields the sessions of an entry, the most recently seen first. The error is ErrNotFound
// if there is no such entry.
func (t *Type) Sessions(ctx context.Context, h hints.Hint) iter.Seq2[Session, error] {
	return func(yield func(Session, error) bool) {
		var err error
		ctx, v := t.db.begin(ctx, "Sessions", &err)
		defer v.end(&err)
		all, err := t.current().listSessions(ctx, h)
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

// listSessions returns the sessions of an entry, the most recently seen first.
func (t *Type) listSessions(ctx context.Context, h hints.Hint) ([]session.Session, error) {
	r, err := t.record(ctx, h)
	if err != nil {
		return nil, publicError(err)
	}
	if r.Fields[session.FieldEpoch] == "" || r.Fields[store.FieldDisabled] != "" {
		return nil, nil
	}
	all, err := t.view.Engine.ListSessions(ctx, r.Key, r.ForSessions().Generation(), t.view.StoreTime())
	all = slices.DeleteFunc(all, func(s session.Session) bool { return !s.ValidFor(r.ForSessions()) })
	slices.SortFunc(all, func(a, b session.Session) int {
		return cmp.Or(b.Seen.Compare(a.Seen), b.Begun.Compare(a.Begun), cmp.Compare(a.ID, b.ID))
	})
	return all, err
}
