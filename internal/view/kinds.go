package view

import (
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/store"
)

// An EventKind is a userdb.EventKind.
type EventKind string

// What happens to an entry, as histories and feeds have it.
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
)

// What operators do, and what is done about them. It stands in feeds alone, whether or not histories are kept.
const (
	EventWaits               EventKind = "waits"
	EventKeyCreate           EventKind = "key_create"
	EventKeyRevoke           EventKind = "key_revoke"
	EventImport              EventKind = "import"
	EventExport              EventKind = "export"
	EventRepair              EventKind = "repair"
	EventOperatorAdd         EventKind = "operator_add"
	EventOperatorDisable     EventKind = "operator_disable"
	EventOperatorEnable      EventKind = "operator_enable"
	EventOperatorPassword    EventKind = "operator_password"
	EventOperatorLogin       EventKind = "operator_login"
	EventOperatorLoginFailed EventKind = "operator_login_failed"
)

// Kinds are all that histories and feeds tell of.
var Kinds = []EventKind{
	EventCreate, EventUpdate, EventDelete, EventIdentifier, EventTags, EventPassword, EventDisable, EventEnable, EventLogin, EventLoginFailed, EventThrottle,
	EventSessionStart, EventSessionEnd, EventIssue, EventRedeem, EventWaits, EventKeyCreate, EventKeyRevoke, EventImport, EventExport, EventRepair,
	EventOperatorAdd, EventOperatorDisable, EventOperatorEnable, EventOperatorPassword, EventOperatorLogin, EventOperatorLoginFailed,
}

// KindList returns all kinds as a text.
func KindList() string {
	all := make([]string, len(Kinds))
	for i, k := range Kinds {
		all[i] = string(k)
	}
	return strings.Join(all, ", ")
}

// OfOperator reports whether a kind is something that an operator did, or that was done about one.
func (k EventKind) OfOperator() bool {
	return slices.Index(Kinds, k) >= slices.Index(Kinds, EventWaits)
}

// OfLogin reports whether a kind is a login, or the failure of one.
func (k EventKind) OfLogin() bool {
	switch k {
	case EventLogin, EventLoginFailed, EventThrottle, EventOperatorLogin, EventOperatorLoginFailed:
		return true
	}
	return false
}

// FeedOf returns the feed in which events of a kind stand. Those that anybody can make, without an
// account, have one of their own: however many there are, no other event makes room for them.
func FeedOf(k EventKind) string {
	switch k {
	case EventLogin, EventOperatorLogin:
		return store.FeedLogins
	case EventLoginFailed, EventThrottle, EventOperatorLoginFailed:
		return store.FeedFailures
	}
	return store.FeedChanges
}
