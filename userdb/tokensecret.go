package userdb

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"

	"github.com/coffeenode/userdb/internal/change"
)

const (
	secretBytes = 20  // random ones
	maxTokenUID = 200 // bytes of a UID: links are not to be longer
)

// secretText is how secrets are written. Beyond the alphabet no bit is free: a secret has one text.
var secretText = base64.RawURLEncoding.Strict()

// newSecret makes the secret of a token: random bytes, and the UID that tells where the token lies. One that
// begins with a hyphen would be an option to a command line, and is drawn again.
func newSecret(uid string) (string, error) {
	if len(uid) > maxTokenUID {
		return "", change.Invalid("uid", "size", "over 200 bytes: an entry with such a UID can have no token")
	}
	var random [secretBytes]byte
	for {
		rand.Read(random[:]) // never fails, says its documentation
		if secret := secretText.EncodeToString(append(random[:], uid...)); secret[0] != '-' {
			return secret, nil
		}
	}
}

// uidOf is the UID in a secret; false for a text that is none.
func uidOf(secret string) (string, bool) {
	if len(secret) > secretText.EncodedLen(secretBytes+maxTokenUID) {
		return "", false
	}
	b, err := secretText.DecodeString(secret)
	if err != nil || len(b) <= secretBytes || secretText.EncodeToString(b) != secret { // it passes over line ends
		return "", false
	}
	return string(b[secretBytes:]), true
}

// hashOf is what the store knows a secret by.
func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
