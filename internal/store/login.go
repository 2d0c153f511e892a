package store

import (
	"cmp"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
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

// Guesses are the attempts to log in that count against an account.
type Guesses struct {
	Now      time.Time     // when that was so, by the clock that counts
	Wait     time.Duration // until an attempt from an origin that is not familiar is admitted; zero: it is
	Failures int           // of strangers, in a window
	Until    time.Time     // the end of the window; zero: there is none
	Familiar []Familiar    // origins that logged in, the latest first
}

// A Familiar origin logged in before.
type Familiar struct {
	LastLogin time.Time
	Failures  int // on its own budget
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

// An OpenToken is a token as it lies beside its entry.
type OpenToken struct {
	Token
	Until  time.Time // it is good before that
	Number uint64    // greater for a newer one
}

// ParseToken reads a member of the record of an entry's tokens, as scripts/tokens.lua says; false for another text.
func ParseToken(hash, text string) (t OpenToken, ok bool) {
	words := strings.Split(text, " ")
	if len(words) != 5 {
		return OpenToken{}, false
	}
	t.Hash = hash
	for field := range strings.SplitSeq(words[3], "/") {
		name, err := hex.DecodeString(field)
		if err != nil {
			return OpenToken{}, false
		}
		if len(name) > 0 {
			t.Fields = append(t.Fields, string(name))
		}
	}
	until, err1 := strconv.ParseInt(words[0], 10, 64)
	number, err2 := strconv.ParseUint(words[1], 10, 64)
	purpose, err3 := recordkey.Unescape(words[2])
	value, err4 := recordkey.Unescape(words[4])
	t.Until, t.Number, t.Purpose, t.Value = time.UnixMilli(until), number, purpose, value
	return t, cmp.Or(err1, err2, err3, err4) == nil
}

// OpenTokens are the tokens of an entry that are good at a time, the newest first. members are the record at TokenKey.
func (r Record) OpenTokens(members map[string]string, now time.Time) (open []OpenToken) {
	if r.Fields[FieldDisabled] != "" {
		return nil
	}
	members = maps.Clone(members)
	if members == nil {
		members = map[string]string{}
	}
	maps.Copy(members, r.waitingTokens())
	for hash, text := range members {
		if t, ok := ParseToken(hash, text); ok && r.HasToken(hash) && t.Until.After(now) {
			open = append(open, t)
		}
	}
	slices.SortFunc(open, func(a, b OpenToken) int {
		return cmp.Or(cmp.Compare(b.Number, a.Number), cmp.Compare(a.Hash, b.Hash))
	})
	return open
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

// CountersKey is where the failed logins of an entry are counted.
func CountersKey(prk recordkey.Key) (recordkey.Key, error) {
	key, err := recordkey.Own("throttle", prk.Type(), "uid", prk.Value())
	return key.In(prk.Namespace()), err
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
	if _, waits := r.waitingTokens()[hash]; waits {
		return true
	}
	says, _, _ := strings.Cut(r.Fields[FieldTokens], "\n")
	return says != "" && says[0] != '0' && !slices.Contains(strings.Fields(says), hash)
}

// EndedToken reports whether the token of that hash was spent or ended by a change of the entry,
// as it was read, and is not removed yet.
func (r Record) EndedToken(hash string) bool {
	says, _, _ := strings.Cut(r.Fields[FieldTokens], "\n")
	return slices.Contains(strings.Fields(says), hash)
}

// waitingTokens returns the members that wait in the entry, by their hashes: see
// scripts/tokens.lua.
func (r Record) waitingTokens() map[string]string {
	all := map[string]string{}
	_, lines, _ := strings.Cut(r.Fields[FieldTokens], "\n")
	for line := range strings.SplitSeq(lines, "\n") {
		if hash, member, ok := strings.Cut(line, " "); ok {
			all[hash] = member
		}
	}
	return all
}
