package store

import (
	"time"

	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/recordkey"
)

// A Session describes a session as it is stored. See onekey/scripts/session.lua.
type Session struct {
	ID         string // hash of its secret
	Generation string // the entry's Generation when the session began
	Begun      time.Time
	Seen       time.Time // when it was last seen, to the minute
	Verified   time.Time // when the owner last gave the password
	Ends       time.Time // when it ends at the latest, however often it is used
	// Idle is how long after Seen the session ends if it is not used.
	Idle   time.Duration
	Origin string
	Agent  string
}

// A SessionStart asks to store a session for an entry that a login has read.
type SessionStart struct {
	PRK  recordkey.Key
	Seen map[string]string // the entry's fields at that time
	// FirstEpoch is a result of NewFirstEpoch. It becomes the entry's epoch if the entry has none.
	FirstEpoch string
	ID         string
	Life, Idle time.Duration
	Origin     string
	Agent      string
	Note       history.Note
	Now        time.Time // zero: the server's clock
}

// MaxSessions is the maximum number of sessions of an entry. The newest ones stay.
const MaxSessions = 100

// SessionsKey returns the key of an entry's sessions, a hash in the entry's slot.
func SessionsKey(prk recordkey.Key) (recordkey.Key, error) { return prk.Own("session") }

// NewFirstEpoch returns the epoch for an entry that has none. Unlike all others, it begins with a
// hyphen.
func NewFirstEpoch() string { return "-" + NewRev()[1:] }

// Generation returns the text that sessions of an entry are bound to. A session is valid while the
// entry has the same generation. The generation changes when all sessions end: either the epoch
// changes or, if the password was set by a program that does not know sessions, the time of the
// password.
func Generation(fields map[string]string) string {
	return recordkey.Escape(fields[FieldEpoch]) + "/" + recordkey.Escape(fields[FieldChanged])
}

// Live reports whether the session is still valid at now. The zero Session is not.
func (s Session) Live(now time.Time) bool { return s.Ends.After(now) && s.Seen.Add(s.Idle).After(now) }

// ValidFor reports whether the session, if it belongs to the record's entry, is valid for it.
func (s Session) ValidFor(r Record) bool {
	return s.Generation == Generation(r.Fields) && r.Fields[FieldEpoch] != "" && r.Fields[FieldDisabled] == ""
}
