package password

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"

	"golang.org/x/crypto/scrypt"
)

// FirebaseScrypt holds the password hash parameters of a Firebase project, as shown in its console.
// Its method Stored converts the accounts of an export to hashes that a Hasher verifies.
type FirebaseScrypt struct {
	SignerKey     string // base64_signer_key, a secret of the project
	SaltSeparator string // base64_salt_separator; may be empty
	Rounds        int    // rounds: 1 to 32
	MemCost       int    // mem_cost: 1 to 20
}

// Format writes the two numbers for every verb, so that no key is printed.
func (p FirebaseScrypt) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "password.FirebaseScrypt{Rounds: %d, MemCost: %d}", p.Rounds, p.MemCost)
}

// LogValue returns the same text as Format, for logs.
func (p FirebaseScrypt) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(p)) }

// MarshalText returns the same text as Format, for JSON and other encodings.
func (p FirebaseScrypt) MarshalText() ([]byte, error) { return fmt.Append(nil, p), nil }

// Stored returns the text to store for an exported account with the given passwordHash and salt,
// which may be in either alphabet of base64, with or without padding. The text has the form
//
//	$firebase-scrypt$ln=14,r=8,p=1$<salt and separator>$<key>
//
// Firebase encrypts the signer key with AES in counter mode, under a key that scrypt derives from
// the password: it XORs each byte of the signer key with a byte of a key stream. The text contains
// that stream instead of the result, so that a password can be checked without the signer key,
// which stays out of the database. A stored hash and the account's line of the export together
// reveal the signer key, so delete the export after the import.
//
// The error matches ErrHash if a part is not base64, if the lengths do not fit, or if the cost
// exceeds the limits.
func (p FirebaseScrypt) Stored(passwordHash, salt string) (string, error) {
	var parts [4][]byte
	for i, part := range []struct{ name, text string }{
		{"the signer key", p.SignerKey}, {"the salt separator", p.SaltSeparator}, {"the hash", passwordHash}, {"the salt", salt},
	} {
		var err error
		if parts[i], err = eitherBase64(part.text); err != nil {
			return "", &HashError{Reason: "firebase-scrypt: " + part.name + " is not base64"}
		}
	}
	signer, separator, hash, saltBytes := parts[0], parts[1], parts[2], parts[3]
	if len(hash) != len(signer) {
		return "", &HashError{Reason: fmt.Sprintf("firebase-scrypt: the hash has %d bytes and the signer key %d", len(hash), len(signer))}
	}
	if p.MemCost < 1 || p.Rounds < 1 {
		return "", &HashError{Reason: fmt.Sprintf("firebase-scrypt: mem_cost %d or rounds %d is less than 1", p.MemCost, p.Rounds)}
	}
	subtle.XORBytes(hash, hash, signer)
	b64 := base64.RawStdEncoding
	stored := fmt.Sprintf("$firebase-scrypt$ln=%d,r=%d,p=1$%s$%s", p.MemCost, p.Rounds,
		b64.EncodeToString(append(saltBytes, separator...)), b64.EncodeToString(hash))
	if err := (&Hasher{}).Usable(stored); err != nil {
		return "", err
	}
	return stored, nil
}

// eitherBase64 decodes both alphabets of base64. Firebase's export uses one, and its API the other.
func eitherBase64(text string) ([]byte, error) {
	text = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "="))
	return base64.RawStdEncoding.DecodeString(text)
}

// A firebase holds a parsed hash in the form that FirebaseScrypt.Stored returns.
type firebase struct {
	ln, r     int
	salt, key []byte
}

func decodeFirebase(stored string, n numbers) (matcher, error) {
	parts := strings.Split(stored, "$")
	salt, err := base64.RawStdEncoding.Strict().DecodeString(parts[3])
	if err != nil {
		return nil, err
	}
	key, err := base64.RawStdEncoding.Strict().DecodeString(parts[4])
	return firebase{ln: n["ln"], r: n["r"], salt: salt, key: key}, err
}

func (f firebase) MatchBytesAdvanced(password []byte) (bool, error) {
	derived, err := scrypt.Key(password, f.salt, 1<<f.ln, f.r, 1, 32)
	if err != nil {
		return false, err
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return false, err
	}
	stream := make([]byte, len(f.key))
	cipher.NewCTR(block, make([]byte, aes.BlockSize)).XORKeyStream(stream, stream)
	return subtle.ConstantTimeCompare(stream, f.key) == 1, nil
}
