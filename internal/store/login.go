package store

import (
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/recordkey"
)

// Counters names those that one attempt to log in is counted by.
type Counters struct {
	Account recordkey.Key // counters of one account, or of one identifier that no entry has
	Origin  recordkey.Key // counters of one origin; the zero key: the origin is not known
	Name    string        // the origin's name inside the account's counters
	Now     time.Time     // zero: the server's clock
}

// An Admission says how an attempt was counted.
type Admission struct {
	Wait time.Duration // until the next attempt; zero: this one is admitted
	Own  bool          // on the own budget of an origin that logged in before, not on that of strangers
	At   bool          // at its origin, too
}

// Parts are the counters of the account and those of the origin, each by themselves: on a cluster they lie in two slots.
func (a Counters) Parts() [2]Counters {
	account, origin := a, a
	account.Origin, origin.Account = recordkey.Key{}, recordkey.Key{}
	return [2]Counters{account, origin}
}

// Limits of throttling. Failures are counted in a window that begins with the first of them. Each of an account's
// familiar origins, those that logged in before, has a budget of its own, which no other origin can use up; whatever
// goes beyond it counts among the failures of strangers. So strangers cannot lock the owner out, and between two good
// logins an account stands no more than StrangerMost + FamiliarOrigins * FamiliarMost = 100 failures in a window.
const (
	ThrottleWindow  = 24 * time.Hour
	StrangerFree    = 10 // failures before delays begin, which double from a second
	StrangerMost    = 60 // failures in a window
	FamiliarMost    = 8  // failures of one familiar origin in a window
	FamiliarOrigins = 5  // how many are remembered, the latest
	FamiliarLife    = 90 * 24 * time.Hour
	OriginWindow    = time.Hour
	OriginFree      = 30 // failures of one origin, over all accounts, before delays begin
	LongestDelay    = 15 * time.Minute
)

// A Token is what the store knows of a single-use token.
type Token struct {
	Hash    string   // of the secret, without spaces
	Purpose string   // not empty
	Fields  []string // facets that it is bound to: it ends when one of them is set or unset
	Value   string
}

// An Issue is a token to be kept.
type Issue struct {
	Token
	PRK  recordkey.Key
	Rev  string // of the entry
	Life time.Duration
	Note Note
	Now  time.Time // zero: the server's clock
}

// An Invitation is a token for an entry that does not exist yet, at the PRK that it will have.
type Invitation struct {
	Token
	PRK  recordkey.Key
	Life time.Duration
	Now  time.Time // zero: the server's clock
}

// A Limit is how often something may be done in a time.
type Limit struct {
	Counter recordkey.Key
	Most    int
	Window  time.Duration
	Now     time.Time // zero: the server's clock
}

// An Ending says what a change does to the tokens of its entry. Whatever it says, those that are bound to a facet which
// the change sets or unsets end, and with a delete all.
type Ending struct {
	Known   bool      // the entry was read with tokens
	All     bool      // all end
	Spend   string    // the hash of a token that must be good, or else the change is ErrNotFound; of a create, of an invitation; "": none
	Purpose string    // of that one: it ends, and all others of the purpose
	Now     time.Time // zero: the server's clock
}

// TokenKey is where the tokens of an entry lie: a hash in its slot, as scripts/tokens.lua says.
func TokenKey(prk recordkey.Key) (recordkey.Key, error) { return prk.Own("token") }

// HasTokens reports whether tokens of the entry count, as it was read.
func (r Record) HasTokens() bool { return r.Fields[FieldTokens] != "" }

// HasToken reports whether the token of that hash counts, as the entry was read, if there is one.
func (r Record) HasToken(hash string) bool {
	return r.HasTokens() && !slices.Contains(strings.Fields(r.Fields[FieldTokens]), hash)
}
