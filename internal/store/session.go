package store

import (
	"time"

	"github.com/coffeenode/userdb/recordkey"
)

// A Session is what the store knows of one: see scripts/session.lua.
type Session struct {
	ID       string // the hash of its secret
	Bond     string // the Bond of the entry when it began
	Begun    time.Time
	Seen     time.Time // to the minute
	Verified time.Time // when its owner last gave the password
	Ends     time.Time // whatever is done until then
	Idle     time.Duration
	Origin   string
	Agent    string
}

// A Start is a session to be kept, of an entry as a login has seen it.
type Start struct {
	PRK        recordkey.Key
	Seen       map[string]string // the fields of the entry then
	First      string            // of NewFirstEpoch: the epoch of the entry from now on, if it has none
	ID         string
	Life, Idle time.Duration
	Origin     string
	Agent      string
	Note       Note
	Now        time.Time // zero: the server's clock
}

// What is done to the sessions of an entry.
const (
	SessionsList   = "list"   // all that have the Bond
	SessionsClear  = "clear"  // those that have the Bond go
	SessionsEnd    = "end"    // the one with the ID ends
	SessionsVerify = "verify" // the owner of the one with the ID gave the password
)

// A SessionsOp is something to be done to the sessions of an entry.
type SessionsOp struct {
	PRK  recordkey.Key
	What string
	ID   string
	Bond string
	Note Note      // where one ends
	Now  time.Time // zero: the server's clock
}

// MostSessions is how many sessions an entry has at a time: the newest.
const MostSessions = 100

// SessionsKey is where the sessions of an entry lie: a hash in its slot.
func SessionsKey(prk recordkey.Key) (recordkey.Key, error) { return prk.Own("session") }

// NewFirstEpoch returns the epoch for an entry that has none yet. It begins with a hyphen, as no other does.
func NewFirstEpoch() string { return "-" + NewRev()[1:] }

// Bond is what sessions are bound to: those of an entry are good while it has the same one. It is new when sessions end: the
// epoch is, and the time of a password also where a program set it that knows no sessions.
func Bond(fields map[string]string) string {
	return recordkey.Escape(fields[FieldEpoch]) + "/" + recordkey.Escape(fields[FieldChanged])
}

// Live reports whether the session, if it is one, has not ended by then.
func (s Session) Live(now time.Time) bool { return s.Ends.After(now) && s.Seen.Add(s.Idle).After(now) }

// Admits reports whether the session, if it is one of the record's entry, is good for it.
func (s Session) Admits(r Record) bool {
	return s.Bond == Bond(r.Fields) && r.Fields[FieldEpoch] != "" && r.Fields[FieldDisabled] == ""
}
