package token

import (
	"crypto/rand"
	"encoding/base64"
)

// MaxUID is the maximum length of a UID in a secret, in bytes. It keeps links short.
const MaxUID = 200

const secretBytes = 20 // random bytes in a secret

// secretText is the encoding of secrets. It is strict, so that every secret has exactly one text.
var secretText = base64.RawURLEncoding.Strict()

// NewSecret returns a new secret: random bytes followed by the UID, of at most MaxUID bytes, which
// says where the token, ticket or session is stored. A secret that begins with a hyphen would look
// like an option on a command line, so NewSecret draws another.
func NewSecret(uid string) string {
	var random [secretBytes]byte
	for {
		rand.Read(random[:]) // never returns an error
		if secret := secretText.EncodeToString(append(random[:], uid...)); secret[0] != '-' {
			return secret
		}
	}
}

// SecretUID returns the UID in a secret, and false if the text is not a secret. Anybody can make up
// a secret with any UID.
func SecretUID(secret string) (string, bool) {
	if len(secret) > secretText.EncodedLen(secretBytes+MaxUID) {
		return "", false
	}
	b, err := secretText.DecodeString(secret)
	// DecodeString ignores line ends, so compare the encodings.
	if err != nil || len(b) <= secretBytes || secretText.EncodeToString(b) != secret {
		return "", false
	}
	return string(b[secretBytes:]), true
}
