package store

import (
	"time"

	"github.com/coffeenode/userdb/recordkey"
)

// A Session describes a session as it is stored: see scripts/session.lua.
type Session struct {
	ID         string // hash of its secret
	Generation string // the entry's Bond when the session began
	Begun      time.Time
	Seen       time.Time // when it was last seen, to the minute
	Verified   time.Time // when the owner last gave the password
	Ends       time.Time // when it ends even if it is used
	// Idle is the time after Seen at which the session ends if it is not used.
	Idle   time.Duration
	Origin string
	Agent  string
}

// A SessionStart asks to store a session of an entry as a login has read it.
type SessionStart struct {
	PRK  recordkey.Key
	Seen map[string]string // the entry's fields at that time
	// FirstEpoch is a value of NewFirstEpoch: the entry's epoch from now on, if it has none.
	FirstEpoch string
	ID         string
	Life, Idle time.Duration
	Origin     string
	Agent      string
	Note       Note
	Now        time.Time // zero: the server's clock
}

// MaxSessions is the maximum number of sessions of an entry. The newest ones stay.
const MaxSessions = 100

// SessionsKey returns the key of an entry's sessions, a hash in the entry's slot.
func SessionsKey(prk recordkey.Key) (recordkey.Key, error) { return prk.Own("session") }

// NewFirstEpoch returns the epoch for an entry that has none. Unlike all others, it begins with a
// hyphen.
func NewFirstEpoch() string { return "-" + NewRev()[1:] }

// Generation returns what sessions of an entry are bound to. A session is valid while the entry has
// the same Bond. The Bond changes when sessions end: either the epoch changes or, if the password
// was set by a program that does not know sessions, the time of the password.
func Generation(fields map[string]string) string {
	return recordkey.Escape(fields[FieldEpoch]) + "/" + recordkey.Escape(fields[FieldChanged])
}

// Live reports whether the session is still valid at now. The zero Session is not.
func (s Session) Live(now time.Time) bool { return s.Ends.After(now) && s.Seen.Add(s.Idle).After(now) }

// ValidFor reports whether the session, if it belongs to the record's entry, is valid for it.
func (s Session) ValidFor(r Record) bool {
	return s.Generation == Generation(r.Fields) && r.Fields[FieldEpoch] != "" && r.Fields[FieldDisabled] == ""
}
