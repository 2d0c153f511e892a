package userdb

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
)

// An Event describes something that concerns an account or its security. It never holds a password,
// a hash, a token or the value of a facet. The kinds are:
//
//	create         an entry was created
//	update         the facets or tertiary records in Fields were changed
//	identifier     the facets in Fields, by which the entry can be found, were changed
//	delete         the entry was deleted
//	login          a login succeeded
//	failure        the identifier, the password or the proof of a second factor was wrong
//	throttle       nothing was checked, because of too many earlier failures
//	password       the password was set or changed
//	disable        the entry was disabled: it may not log in
//	enable         the entry was enabled again
//	issue          a token was issued
//	redeem         a token was redeemed
//	refuse         a token was refused
//	start          a session began
//	end            a session was ended, or all sessions of the entry if Session is ""
//	factors        second factors were added or removed
//	factor_lock    codes of authenticator apps are not checked for a day: too many were wrong
//	passkey_clone  the counter of a passkey went back: somebody has a copy of it
//
// An import reports only password and disable. Observers receive only the kind. In histories and
// feeds, the kinds failure, start and end are called login_failed, session_start and session_end;
// see [HistoryEvent].
type Event struct {
	Kind       EventKind
	Key        recordkey.Key // the entry; zero if no entry has the identifier
	Origin     string        // as given by the caller, cut to 256 bytes
	Identifier string        // a keyed hash of the identifier, if no entry has it
	Purpose    string        // the purpose of the token, cut to 256 bytes
	Session    string        // the ID of the session
	Fields     []string      // the sorted names of the changed fields, never their values
	Wait       time.Duration // for throttle, the time until the next attempt is checked

	// Renewed says why a login replaced the password hash: "algorithm", "encoding", "pepper" or
	// "cost". It is "" if the login did not replace it.
	Renewed string
}

// maxEventText is the maximum length of an origin and of a purpose in events, in bytes.
const maxEventText = 256

// emit passes an event to the caller's hook, the observers, the feed and the logger.
//
// A new kind of event must also be added to the comment of Event, to docs/security.md and to
// eventCases in userdb_test. If histories or feeds record it, see view.Kinds as well. If imports
// report it, it also needs a method of view.Hashing, implemented in password.go, and a case in
// maintain/transfer.
func (db *DB) emit(ctx context.Context, e Event) {
	e.Key = e.Key.In(recordkey.Namespace{})
	e.Origin, e.Purpose = truncate(e.Origin), truncate(e.Purpose)
	if db.options.OnEvent != nil {
		db.options.OnEvent(ctx, e)
	}
	for _, o := range db.options.Observers {
		o.Event(ctx, string(e.Kind))
	}
	db.appendLogin(ctx, e)
	if log := db.view().Config.Log; log.Enabled(ctx, slog.LevelInfo) {
		log.LogAttrs(ctx, slog.LevelInfo, "userdb "+string(e.Kind), e.attrs()...)
	}
}

func (e Event) attrs() []slog.Attr {
	var attrs []slog.Attr
	for _, a := range [][2]string{
		{"prk", relativeKey(e.Key)},
		{"origin", e.Origin},
		{"identifier", e.Identifier},
		{"purpose", e.Purpose},
		{"renewed", e.Renewed},
		{"session", e.Session},
	} {
		if a[1] != "" {
			attrs = append(attrs, slog.String(a[0], a[1]))
		}
	}
	if len(e.Fields) > 0 {
		attrs = append(attrs, slog.Any("fields", e.Fields))
	}
	if e.Wait > 0 {
		attrs = append(attrs, slog.Duration("wait", e.Wait))
	}
	return attrs
}

// hasListeners reports whether the caller's hook, an observer or the logger receives events.
func (db *DB) hasListeners(ctx context.Context) bool {
	return db.options.OnEvent != nil || len(db.options.Observers) > 0 || db.view().Config.Log.Enabled(ctx, slog.LevelInfo)
}

// emitChange emits the events for the fields and tertiary records that a change of a live entry
// concerns.
func (t *Type) emitChange(ctx context.Context, c store.Change) {
	if t.db.hasListeners(ctx) && !c.Delete {
		fields := slices.Concat(view.ChangedFacets(&c), view.TertiaryNames(&c))
		slices.Sort(fields)
		t.emitUpdate(ctx, c.Key, slices.Compact(fields))
	}
}

// emitUpdate emits the events for the changed fields of an entry, which must be sorted. It does
// nothing if there are none.
func (t *Type) emitUpdate(ctx context.Context, prk recordkey.Key, fields []string) {
	if len(fields) == 0 {
		return
	}
	t.db.emit(ctx, Event{Kind: EventUpdate, Key: prk, Fields: fields})
	identifiers := slices.DeleteFunc(slices.Clone(fields), func(f string) bool { return !slices.Contains(t.declared.Secondary, f) })
	if len(identifiers) > 0 {
		t.db.emit(ctx, Event{Kind: EventIdentifier, Key: prk, Fields: identifiers})
	}
}

// relativeKey returns a key without its namespace, and "" for the zero key.
func relativeKey(key recordkey.Key) string {
	if !key.IsValid() {
		return ""
	}
	return key.In(recordkey.Namespace{}).String()
}
