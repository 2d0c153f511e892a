package store

import (
	"crypto/rand"
	"encoding/base64"
	"strings"
)

// versions is how versions are written: without a hyphen, since a shell's user gives them as arguments,
// and one that begins with a hyphen is an option there.
var versions = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.").WithPadding(base64.NoPadding)

// NewToken returns a fresh version: 72 random bits in TokenLen characters.
func NewToken() string {
	var b [TokenLen / 4 * 3]byte
	rand.Read(b[:]) // never fails, says its documentation
	return versions.EncodeToString(b[:])
}

// pastLen is the length of a ~rev field that may have forgotten versions.
const pastLen = 4 * TokenLen

// Accounts says whether the ~rev field past tells all that happened to an entry since version rev:
// then a token that is not in it was never committed (I7).
func Accounts(past, rev string) bool {
	if len(past) < pastLen {
		return true
	}
	for i := 0; i+TokenLen <= len(past); i += TokenLen {
		if rev != "" && past[i:i+TokenLen] == rev {
			return true
		}
	}
	return false
}

// Remembers says whether a ~rev field has the token.
func Remembers(past, token string) bool {
	return token != "" && strings.Contains(past, token)
}
