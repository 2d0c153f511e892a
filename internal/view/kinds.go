package view

import (
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/store/history"
)

// An EventKind is a kind of event. Package userdb exports it under the same name.
type EventKind string

// Kinds of events that happen to an entry. Those of logins (see IsLogin) are only in feeds, the
// others also in histories.
const (
	EventCreate       EventKind = "create"
	EventUpdate       EventKind = "update"
	EventDelete       EventKind = "delete"
	EventIdentifier   EventKind = "identifier"
	EventTags         EventKind = "tags"
	EventPassword     EventKind = "password"
	EventDisable      EventKind = "disable"
	EventEnable       EventKind = "enable"
	EventLogin        EventKind = "login"
	EventLoginFailed  EventKind = "login_failed"
	EventThrottle     EventKind = "throttle"
	EventSessionStart EventKind = "session_start"
	EventSessionEnd   EventKind = "session_end"
	EventIssue        EventKind = "issue"
	EventRedeem       EventKind = "redeem"
	EventRelease      EventKind = "release"
	EventFactors      EventKind = "factors"
	EventFactorLock   EventKind = "factor_lock"
	EventPasskeyClone EventKind = "passkey_clone"
)

// Kinds of events that describe actions of operators, commands and programs with an API key. They
// are recorded only in feeds, whether or not histories are kept.
const (
	EventWaits               EventKind = "waits" // the failed logins of an account were cleared
	EventKeyCreate           EventKind = "key_create"
	EventKeyRevoke           EventKind = "key_revoke"
	EventImport              EventKind = "import"
	EventExport              EventKind = "export"
	EventRepair              EventKind = "repair"
	EventOperatorAdd         EventKind = "operator_add"
	EventOperatorDisable     EventKind = "operator_disable"
	EventOperatorEnable      EventKind = "operator_enable"
	EventOperatorPassword    EventKind = "operator_password"
	EventOperatorLink        EventKind = "operator_factor_link"
	EventOperatorFactor      EventKind = "operator_factor_add"
	EventOperatorNoFactor    EventKind = "operator_factor_remove"
	EventOperatorCodes       EventKind = "operator_codes"
	EventOperatorLogin       EventKind = "operator_login"
	EventOperatorLoginFailed EventKind = "operator_login_failed"
)

// Kinds lists all kinds of events in histories and feeds, those of operators last. A new kind also
// needs a case in FeedOf unless it belongs in the feed of changes, a constant and a line in the
// comment of HistoryEvent in package userdb, a row in docs/history.md, and words in
// serve/console/words.go.
var Kinds = []EventKind{
	EventCreate, EventUpdate, EventDelete, EventIdentifier, EventTags, EventPassword, EventDisable, EventEnable, EventLogin, EventLoginFailed, EventThrottle,
	EventSessionStart, EventSessionEnd, EventIssue, EventRedeem, EventRelease, EventFactors, EventFactorLock, EventPasskeyClone,
	EventWaits, EventKeyCreate, EventKeyRevoke, EventImport, EventExport, EventRepair,
	EventOperatorAdd, EventOperatorDisable, EventOperatorEnable, EventOperatorPassword,
	EventOperatorLink, EventOperatorFactor, EventOperatorNoFactor, EventOperatorCodes, EventOperatorLogin, EventOperatorLoginFailed,
}

// KindList returns all kinds, separated by commas.
func KindList() string {
	all := make([]string, len(Kinds))
	for i, k := range Kinds {
		all[i] = string(k)
	}
	return strings.Join(all, ", ")
}

// IsOperator reports whether events of a kind describe actions of operators, commands and programs
// with an API key.
func (k EventKind) IsOperator() bool {
	return slices.Index(Kinds, k) >= slices.Index(Kinds, EventWaits)
}

// isWork reports whether not only operators but also API keys and programs can cause events of a
// kind.
func (k EventKind) isWork() bool {
	return k == EventWaits || k == EventImport || k == EventExport || k == EventRepair
}

// IsLogin reports whether events of a kind are about attempts to log in, successful or not.
func (k EventKind) IsLogin() bool {
	switch k {
	case EventLogin, EventLoginFailed, EventThrottle, EventFactorLock, EventPasskeyClone, EventOperatorLogin, EventOperatorLoginFailed:
		return true
	}
	return false
}

// FeedOf returns the feed for events of a kind by an actor. It depends on who can cause them, so
// that nobody displaces the events of others.
func FeedOf(k EventKind, by Actor) string {
	switch {
	case k.isWork() && !by.isTrusted():
		return history.FeedChanges
	case k == EventOperatorLoginFailed:
		return history.FeedGuesses
	case k.IsOperator():
		return history.FeedOperators
	case k == EventLoginFailed || k == EventThrottle || k == EventFactorLock || k == EventPasskeyClone:
		return history.FeedFailures
	case k == EventLogin || k == EventSessionStart || k == EventSessionEnd:
		return history.FeedLogins
	}
	return history.FeedChanges
}

// FeedsOf returns the feeds that may have events of a kind.
func FeedsOf(k EventKind) []string {
	return []string{FeedOf(k, Actor{}), FeedOf(k, Actor{Name: CommandName})}
}
