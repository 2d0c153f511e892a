package store

import (
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/recordkey"
)

// MostTokens is how many tokens of an entry are good at a time: the newest.
const MostTokens = 16

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

// Call lays an issue out as issue.lua reads it.
func (i Issue) Call() (keys, args []string, err error) {
	key, err := TokenKey(i.PRK)
	if err != nil {
		return nil, nil, err
	}
	fields := make([]string, len(i.Fields))
	for j, f := range i.Fields {
		fields[j] = hex.EncodeToString([]byte(f))
	}
	return []string{i.PRK.String(), key.String()}, []string{
		i.PRK.Type(), i.Rev, i.Hash, recordkey.Escape(i.Purpose), strings.Join(fields, "/"), recordkey.Escape(i.Value),
		strconv.FormatInt(i.Life.Milliseconds(), 10), strconv.Itoa(MostTokens), Millis(i.Now),
	}, nil
}

// Issued makes an error of what issue.lua answers.
func Issued(verdict string) error {
	switch verdict {
	case "ok":
		return nil
	case "conflict":
		return ErrConflict
	}
	return ErrNotFound
}

// Args lays an ending out as scripts read it: all, now, spend, purpose.
func (e Ending) Args() []string {
	all := "0"
	if e.All {
		all = "1"
	}
	return []string{all, Millis(e.Now), e.Spend, recordkey.Escape(e.Purpose)}
}

// Millis is a time as scripts read it; "" for the zero time.
func Millis(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return strconv.FormatInt(at.UnixMilli(), 10)
}

// ParseToken reads a member of the record as issue.lua writes it; false for another text.
func ParseToken(hash, text string) (Token, bool) {
	words := strings.Split(text, " ")
	if len(words) != 5 {
		return Token{}, false
	}
	t := Token{Hash: hash}
	for field := range strings.SplitSeq(words[3], "/") {
		name, err := hex.DecodeString(field)
		if err != nil {
			return Token{}, false
		}
		if len(name) > 0 {
			t.Fields = append(t.Fields, string(name))
		}
	}
	var err1, err2 error
	t.Purpose, err1 = recordkey.Unescape(words[2])
	t.Value, err2 = recordkey.Unescape(words[4])
	return t, err1 == nil && err2 == nil
}
