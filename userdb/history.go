package userdb

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
)

// An Actor says who makes a call. Histories record it, and each name and each origin gets only a
// share of the queue of passwords to hash.
type Actor struct {
	// Name names the actor, such as "key:web" or "operator:Alice". Histories cut it to 80 bytes. If
	// it is "", they record "library", and the calls count towards no actor's share.
	Name string

	// Origin is the address that the request came from. Histories cut it to 80 bytes. Methods that
	// take an Attempt or SessionOptions use that origin instead.
	Origin string
}

// WithActor returns a copy of ctx for calls by the actor a. Empty fields of a keep their values
// from ctx.
func WithActor(ctx context.Context, a Actor) context.Context {
	return view.WithActor(ctx, view.Actor(a))
}

// A HistoryEvent describes something that was done to an entry. It holds names of fields, never
// values. Histories and feeds have these kinds:
//
//	create         the entry was created with Fields
//	update         Fields were changed
//	identifier     Fields, by which the entry can be found, were changed
//	delete         the entry was deleted
//	tags           the tertiary records in Fields were changed
//	password       the password was set or changed
//	disable        the entry was disabled: it may not log in
//	enable         the entry was enabled again
//	session_start  a session began
//	session_end    one session was ended, or all were
//	issue          a token for Purpose, bound to Fields, was issued
//	redeem         a token for Purpose was redeemed
//	release        values that the entry once had in Fields, or its UID, were freed early; the
//	               entry may have been deleted
//	factors        second factors were added or removed; Purpose lists the methods that the entry
//	               has now, such as "recovery,totp"; it is "" if there are none
//
// These are only in feeds:
//
//	login          a login succeeded
//	login_failed   the identifier (then Key is zero) or the password was wrong
//	throttle       nothing was checked, because of too many earlier failures
//	factor_lock    too many codes of the entry's second factor were wrong: for a day, codes from
//	               Origin are not checked; if Origin never signed in to the entry, codes from all
//	               such origins are not checked
//	passkey_clone  a passkey of the entry was refused, because its counter went back: somebody has
//	               a copy of it
//
// These describe the actions of operators of 'userdb serve', of commands, and of programs with an
// API key. They are recorded even if histories are not kept. Purpose names the object of the
// action:
//
//	waits                  the failed logins of an entry were cleared
//	key_create             an API key was created
//	key_revoke             an API key was revoked
//	import                 an import of entries of type Purpose began
//	export                 an export of entries of type Purpose began, of all types if "",
//	                       or of one entry if Key is set; if Purpose is JOB/FILE, an operator
//	                       downloaded a file of a job in the console
//	repair                 a repair began, with Purpose and Key as for export
//	operator_add           an operator was added
//	operator_disable       an operator was disabled: they may not sign in
//	operator_enable        an operator was enabled again
//	operator_password      the password of an operator was set
//	operator_factor_link   a link was made for an operator without a second factor to add one
//	operator_factor_add    an operator added a second factor
//	operator_factor_remove a second factor of an operator was removed, or all were
//	operator_codes         an operator replaced the recovery codes
//	operator_login         an operator signed in
//	operator_login_failed  a login as an operator failed
type HistoryEvent struct {
	ID      string // unique in the feed; "" in a history
	Next    string // EventQuery.After for the events that follow in the feed; "" in a history
	Kind    EventKind
	Time    time.Time
	Actor   string        // as in Actor
	Origin  string        // as in Actor
	Key     recordkey.Key // the key of the entry without a namespace
	Fields  []string      // sorted; the last is "…" if there was no room for more
	Purpose string
}

// An EventKind says what happened. The comments of [Event] and [HistoryEvent] list the kinds.
type EventKind = view.EventKind

// Kinds of events. The last four are not in histories and feeds, which use other kinds instead, or
// none; see [Event].
const (
	EventCreate       = view.EventCreate
	EventUpdate       = view.EventUpdate
	EventDelete       = view.EventDelete
	EventIdentifier   = view.EventIdentifier
	EventTags         = view.EventTags
	EventPassword     = view.EventPassword
	EventDisable      = view.EventDisable
	EventEnable       = view.EventEnable
	EventLogin        = view.EventLogin
	EventLoginFailed  = view.EventLoginFailed
	EventThrottle     = view.EventThrottle
	EventSessionStart = view.EventSessionStart
	EventSessionEnd   = view.EventSessionEnd
	EventIssue        = view.EventIssue
	EventRedeem       = view.EventRedeem
	EventRelease      = view.EventRelease
	EventFactors      = view.EventFactors
	EventFactorLock   = view.EventFactorLock
	EventPasskeyClone = view.EventPasskeyClone

	EventThrottleReset       = view.EventWaits
	EventKeyCreate           = view.EventKeyCreate
	EventKeyRevoke           = view.EventKeyRevoke
	EventImport              = view.EventImport
	EventExport              = view.EventExport
	EventRepair              = view.EventRepair
	EventOperatorAdd         = view.EventOperatorAdd
	EventOperatorDisable     = view.EventOperatorDisable
	EventOperatorEnable      = view.EventOperatorEnable
	EventOperatorPassword    = view.EventOperatorPassword
	EventOperatorLink        = view.EventOperatorLink
	EventOperatorFactor      = view.EventOperatorFactor
	EventOperatorNoFactor    = view.EventOperatorNoFactor
	EventOperatorCodes       = view.EventOperatorCodes
	EventOperatorLogin       = view.EventOperatorLogin
	EventOperatorLoginFailed = view.EventOperatorLoginFailed

	EventFailure EventKind = "failure"
	EventRefuse  EventKind = "refuse"
	EventStart   EventKind = "start"
	EventEnd     EventKind = "end"
)

// appendLogin appends an event of a login to its feed, unless a limit on such events is reached.
func (db *DB) appendLogin(ctx context.Context, e Event) {
	v := db.view()
	if !v.Config.History {
		return
	}
	kind := map[EventKind]EventKind{
		EventLogin: EventLogin, EventFailure: EventLoginFailed, EventThrottle: EventThrottle, EventFactorLock: EventFactorLock,
		EventPasskeyClone: EventPasskeyClone,
	}[e.Kind]
	switch {
	case kind == "":
		return
	case kind == EventLogin && !db.countEvent(db.loginLimit(e.Key)), kind == EventThrottle && !db.countEvent(db.cheapLimits("throttled", e)...):
		return
	}
	n := v.Note(view.WithActor(ctx, view.Actor{Origin: e.Origin}), kind, "")
	if err := v.Engine.AppendFeed(ctx, v.NS, view.FeedOf(kind, view.Actor{}), e.Key, n); err != nil {
		v.Config.Log.WarnContext(ctx, "a login is missing from the feed", "error", err)
	}
}

// History returns what was done to an entry since Options.History was set, the latest first: at
// most a hundred events of the last 90 days. Within these limits it holds every acknowledged change
// exactly once, and no change that was not made. On a cluster, a command on a tertiary record is
// recorded right after it is done; if the process crashes in between, the event is missing, but
// then the command was never acknowledged either. The error is ErrNotFound if there is no such
// entry, and ErrNoHistory if nothing was recorded because Options.History is not set.
func (t *Type) History(ctx context.Context, h hints.Hint) (all []HistoryEvent, err error) {
	ctx, v := t.db.begin(ctx, "History", &err)
	defer v.end(&err)
	r, err := t.record(ctx, h)
	if err != nil {
		return nil, publicError(err)
	}
	lines, err := t.view.Engine.History(ctx, r.Key)
	if err != nil {
		return nil, err
	}
	since := t.view.Now().Add(-history.Life)
	for _, line := range slices.Backward(lines) {
		l, ok := history.ParseLine(line)
		if !ok || l.Time.Before(since) {
			continue
		}
		e := eventOf(l)
		e.Key = r.Key.In(recordkey.Namespace{})
		all = append(all, e)
	}
	if len(all) == 0 && !t.view.Config.History {
		return nil, ErrNoHistory
	}
	return all, nil
}

// eventOf returns the event that a line of a history describes.
func eventOf(l history.Line) HistoryEvent {
	return HistoryEvent{
		Kind: EventKind(l.Kind), Time: l.Time, Actor: cmp.Or(l.Who, "library"), Origin: l.Origin, Fields: l.Fields, Purpose: l.Purpose,
	}
}
