// Package token owns the single-use tokens of entries, and invitations: their key, scripts, values
// and limits. It sends no commands.
//
// The tokens are a hash beside their entry, in the entry's slot:
//
//	~/token/{PRK}    HASH: UNTIL NUMBER PURPOSE FIELDS VALUE
//
// HASH is the hash of the token's secret. UNTIL is the time in milliseconds at which the token
// expires. NUMBER is greater for newer tokens. FIELDS are the facets, and the single values of
// facets, that the token is bound to, in hexadecimal digits with slashes between them. PURPOSE and
// VALUE are escaped. An invitation is a token at the PRK that its entry will have.
//
// A token expires at its time, and ends earlier if it is spent, if a value that it is bound to is
// changed, or if a change of its entry ends all tokens. A token that has ended is not valid.
//
// The entry's field ~tokens, a [Mark], says which members are valid:
//
//	~tokens          1XXXXXX HASH...    the newest token, and tokens that have ended
//	                 HASH MEMBER        a token that waits in the entry, a line each
//
// Without the field, no member is valid. tokens.lua describes both records.
//
// A single-use value that belongs to no entry, such as the answer of another provider, is marked as
// spent when it is used:
//
//	~/spent/HASH    the name of the call that spent it, until it would have expired
package token

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/store/arg"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/recordkey"
)

// Lua precedes every script that uses tokens. [history.Lua] must also precede IssueLua.
var (
	//go:embed tokens.lua
	Lua string
	//go:embed issue.lua
	IssueLua string
	//go:embed peek.lua
	PeekLua string
	//go:embed invite.lua
	InviteLua string
	//go:embed spent.lua
	SpentLua string // runs on its own
)

// FieldTokens is the field of an entry that holds its [Mark].
const FieldTokens = "~tokens"

// maxTokens is the maximum number of valid tokens of an entry. If there are more, the oldest one of
// the most frequent kind is removed; issue.lua says what a kind is.
const maxTokens = 16

// Key returns the key of the hash that holds an entry's tokens, in the entry's slot.
func Key(prk recordkey.Key) (recordkey.Key, error) { return prk.Own("token") }

// SpentKey returns the key of the record that says that a hash is spent.
func SpentKey(ns recordkey.Namespace, hash string) (recordkey.Key, error) {
	k, err := recordkey.Own("spent", hash)
	return k.In(ns), err
}

// A Token describes a single-use token.
type Token struct {
	Hash    string // hash of the secret, without spaces
	Purpose string // not empty
	// Fields lists the facets that the token is bound to, and values by their Bond. The token ends
	// when one of the facets is set or unset, or when the entry loses one of the values.
	Fields []string
	Value  string
}

// args returns the token as arguments of scripts: hash, purpose, fields and value.
func (t Token) args() []string {
	return []string{t.Hash, recordkey.Escape(t.Purpose), hexNames(t.Fields), recordkey.Escape(t.Value)}
}

// A Stored describes a token as it is stored.
type Stored struct {
	Token
	Until  time.Time // when it expires
	Number uint64    // greater for newer tokens
}

// Parse parses a member of the record of an entry's tokens, in the format of tokens.lua. It returns
// false for any other text.
func Parse(hash, text string) (t Stored, ok bool) {
	words := strings.Split(text, " ")
	if len(words) != 5 {
		return Stored{}, false
	}
	t.Hash = hash
	for field := range strings.SplitSeq(words[3], "/") {
		name, err := hex.DecodeString(field)
		if err != nil {
			return Stored{}, false
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

// An Issue asks to store a token.
type Issue struct {
	Token
	PRK  recordkey.Key
	Rev  string // the entry's rev
	Life time.Duration
	Note history.Note
	Now  time.Time // zero: the server's clock
}

// Args returns the arguments of issue.lua. Those of [history.Lua] follow them.
func (i Issue) Args() []string {
	args := append([]string{i.PRK.Type(), i.Rev}, i.args()...)
	return append(args, arg.Millis(i.Life), strconv.Itoa(maxTokens), arg.Time(i.Now))
}

// An Invitation describes a token for a future entry, stored at the PRK that the entry will have.
type Invitation struct {
	Token
	PRK  recordkey.Key
	Life time.Duration
	Now  time.Time // zero: the server's clock
}

// Args returns the arguments of invite.lua.
func (i Invitation) Args() []string {
	return append(i.args(), arg.Millis(i.Life), arg.Time(i.Now))
}

// PeekArgs returns the arguments of peek.lua. waiting says that the script's key is the entry, in
// which a token may wait, instead of the record of the tokens.
func PeekArgs(hash string, now time.Time, waiting bool) []string {
	where := ""
	if waiting {
		where = "waiting"
	}
	return []string{hash, arg.Time(now), where}
}

// ParsePeek parses a reply of peek.lua. left is how long the token remains valid. ok is false if
// there is no such token.
func ParsePeek(hash string, reply []string) (t Token, left time.Duration, ok bool) {
	if len(reply) < 2 {
		return Token{}, 0, false
	}
	open, ok := Parse(hash, reply[0])
	ms, err := strconv.ParseInt(reply[1], 10, 64)
	if !ok || err != nil {
		return Token{}, 0, false
	}
	return open.Token, time.Duration(ms) * time.Millisecond, true
}

// An Ending says what a change does to the tokens of its entry. In any case, tokens bound to a
// facet that the change sets or unsets end, and a delete ends all tokens.
type Ending struct {
	Known bool // the entry may have tokens
	All   bool // all tokens end
	// Spend is the hash of a token that must be valid, or "" for none. If it is not valid, the
	// change fails with ErrNotFound. For a create it is the hash of an invitation.
	Spend string
	// Purpose is that token's purpose. All tokens with this purpose end.
	Purpose string
	// Gone holds the values that the entry loses, to which tokens may be bound.
	Gone []Value
	Now  time.Time // zero: the server's clock
}

// Args returns the ending as arguments of scripts: all, now, spend, purpose and gone.
func (e Ending) Args() []string {
	gone := make([]string, len(e.Gone))
	for i, v := range e.Gone {
		gone[i] = v.Bond()
	}
	return []string{arg.Bool(e.All), arg.Time(e.Now), e.Spend, recordkey.Escape(e.Purpose), hexNames(gone)}
}

// A Value is one value of a field, as it is written.
type Value struct{ Field, Written string }

// BondPrefix begins the names that Bond returns.
const BondPrefix = "~value:"

// Bond returns the name by which a token is bound to the value, instead of to the whole field.
func (v Value) Bond() string { return BondPrefix + v.Field + ":" + Digest(v.Written) }

// Digest returns the digest by which records name a value.
func Digest(written string) string {
	sum := sha256.Sum256([]byte(written))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// hexNames returns names in hexadecimal digits, separated by slashes.
func hexNames(names []string) string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = hex.EncodeToString([]byte(name))
	}
	return strings.Join(all, "/")
}

// Lines returns the members of a record that was read earlier, in the form that tokens.lua expects.
func Lines(members map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(members)) {
		// No token has a line break.
		if line := name + " " + members[name]; !strings.Contains(line, "\n") {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// A Mark holds the value of an entry's FieldTokens when the entry was read.
type Mark string

// Any reports whether the entry may have tokens. Without a mark, no token of the entry is valid.
func (m Mark) Any() bool { return m != "" }

// Allows reports whether the entry allows the use of a token with that hash. It does not check that
// such a token exists or has not expired.
func (m Mark) Allows(hash string) bool {
	if _, waits := m.waiting()[hash]; waits {
		return true
	}
	line, _, _ := strings.Cut(string(m), "\n")
	return line != "" && line[0] != '0' && !slices.Contains(strings.Fields(line), hash)
}

// Ended reports whether the token with that hash was spent, or ended by a change, and may still be
// in the record.
func (m Mark) Ended(hash string) bool {
	line, _, _ := strings.Cut(string(m), "\n")
	return slices.Contains(strings.Fields(line), hash)
}

// Open returns the tokens that are valid at now, newest first. members is the record at Key. Open
// does not check whether the entry is disabled.
func (m Mark) Open(members map[string]string, now time.Time) (open []Stored) {
	all := m.waiting()
	for hash, text := range members {
		if all[hash] == "" {
			all[hash] = text
		}
	}
	for hash, text := range all {
		if t, ok := Parse(hash, text); ok && m.Allows(hash) && t.Until.After(now) {
			open = append(open, t)
		}
	}
	slices.SortFunc(open, func(a, b Stored) int {
		return cmp.Or(cmp.Compare(b.Number, a.Number), cmp.Compare(a.Hash, b.Hash))
	})
	return open
}

// waiting returns the tokens that are stored in the entry itself, by hash.
func (m Mark) waiting() map[string]string {
	all := map[string]string{}
	_, lines, _ := strings.Cut(string(m), "\n")
	for line := range strings.SplitSeq(lines, "\n") {
		if hash, member, ok := strings.Cut(line, " "); ok {
			all[hash] = member
		}
	}
	return all
}
