// Package passkeys defines the values that package passkey and package userdb exchange. It is
// internal, so that only package passkey can pass an answer to package userdb. Package userdb, not
// its caller, has the answer verified with the stored key.
package passkeys

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// DefaultField is the field for digests if an application does not name another one.
const DefaultField = "passkeys"

// A Credential describes a passkey to enrol. The answer that contained it has been verified.
type Credential struct {
	Field   string // the secondary field whose values are digests
	Digest  string // the SHA-256 of relying party and credential ID, in hexadecimal digits
	Name    string // given by its owner
	Counter uint32
	For     string // what the challenge was made for: a Binding to a session
	Stored  []byte // what later answers are verified with; it is stored encrypted
}

// MaxName limits the name of a factor, in bytes.
const MaxName = 64

// MaxStored limits the length of Credential.Stored.
const MaxStored = 8 << 10

// An Answer is the answer of a passkey to a challenge that has not expired. Nobody has verified its
// signature yet.
type Answer struct {
	Field, Digest string // as in Credential
	For           string // what the challenge was made for: a Binding; "" for a sign-in
	Challenge     string // a hash of the challenge, without spaces
	Until         time.Time

	// Verify returns the counter of the answer. It returns an error unless the answer is signed
	// with the key in Stored, for this challenge, relying party and origin, by a user whom the
	// authenticator has verified.
	Verify func(stored []byte) (counter uint32, err error)
}

// What a challenge is made for.
const (
	ForTicket   = "ticket"   // the second step of a login
	ForSession  = "session"  // raising a session
	ForRegister = "register" // enrolling a passkey in a session
)

// Binding returns a text that binds a challenge to a purpose and to the holder of a secret.
func Binding(purpose, secret string) string {
	sum := sha256.Sum256([]byte("userdb passkey\x00" + purpose + "\x00" + secret))
	return purpose + " " + hex.EncodeToString(sum[:16])
}
