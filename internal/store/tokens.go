package store

import (
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/recordkey"
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
	Now  time.Time // zero: the server's clock
}

// An Ending says what a change does to the tokens of its entry. Whatever it says, those that are bound to a
// facet which the change sets or unsets end, and with a delete all.
type Ending struct {
	Known   bool      // the entry was read with tokens
	All     bool      // all end
	Spend   string    // the hash of a token that must be good, or else the change is ErrNotFound; "": none
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
