package store

import (
	"cmp"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/recordkey"
)

// A Token describes a single-use token.
type Token struct {
	Hash    string   // hash of the secret, without spaces
	Purpose string   // not empty
	Fields  []string // facets that it is bound to; it ends when one of them is set or unset
	Value   string
}

// An OpenToken is a valid token as it is stored beside its entry.
type OpenToken struct {
	Token
	Until  time.Time // when it expires
	Number uint64    // greater for newer tokens
}

// ParseToken parses a member of the record of an entry's tokens, in the format of
// onekey/scripts/tokens.lua. It returns false for any other text.
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

// OpenTokens returns the tokens of an entry that are valid at now, newest first. members is the
// record at TokenKey.
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

// An Issue asks to store a token.
type Issue struct {
	Token
	PRK  recordkey.Key
	Rev  string // the entry's rev
	Life time.Duration
	Note history.Note
	Now  time.Time // zero: the server's clock
}

// An Invitation is a token for an entry that does not exist yet, at the PRK that it will have.
type Invitation struct {
	Token
	PRK  recordkey.Key
	Life time.Duration
	Now  time.Time // zero: the server's clock
}

// A TokenEnding says what a change does to the tokens of its entry. In any case, tokens bound to a
// facet that the change sets or unsets end, and a delete ends all tokens.
type TokenEnding struct {
	Known bool // the entry was read together with its tokens
	All   bool // all tokens end
	// Spend is the hash of a token that must be valid, or "" for none. If it is not valid, the
	// change fails with ErrNotFound. For a create it is the hash of an invitation.
	Spend string
	// Purpose is that token's purpose. All tokens with this purpose end.
	Purpose string
	Now     time.Time // zero: the server's clock
}

// TokenKey returns the key of the hash that holds an entry's tokens, in the entry's slot. See
// onekey/scripts/tokens.lua.
func TokenKey(prk recordkey.Key) (recordkey.Key, error) { return prk.Own("token") }

// HasTokens reports whether the entry had a FieldTokens when it was read. Without it, no token of
// the entry is valid.
func (r Record) HasTokens() bool { return r.Fields[FieldTokens] != "" }

// HasToken reports whether the entry, when it was read, allowed a token with that hash to be used.
// It does not check that such a token exists or has not expired.
func (r Record) HasToken(hash string) bool {
	if _, waits := r.waitingTokens()[hash]; waits {
		return true
	}
	mark, _, _ := strings.Cut(r.Fields[FieldTokens], "\n")
	return mark != "" && mark[0] != '0' && !slices.Contains(strings.Fields(mark), hash)
}

// TokenEnded reports whether the token with that hash had been spent or ended by a change when the
// entry was read, and had not been removed yet.
func (r Record) TokenEnded(hash string) bool {
	mark, _, _ := strings.Cut(r.Fields[FieldTokens], "\n")
	return slices.Contains(strings.Fields(mark), hash)
}

// waitingTokens returns the tokens that are stored in the entry itself, by hash. See
// onekey/scripts/tokens.lua.
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
