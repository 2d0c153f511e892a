// Package sealed encrypts secrets, such as those of second factors, with AES-256-GCM and keys that
// the program provides. A key has an identifier, which is derived from it and stored with what it
// encrypts, so that old keys can decrypt while a new one encrypts.
package sealed

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// KeySize is the size of a key in bytes.
const KeySize = 32

// ErrKey means that none of the keys encrypted a text.
var ErrKey = errors.New("none of the keys decrypts it")

// errDamaged means that a text was changed, or sealed for another place.
var errDamaged = errors.New("a sealed text is damaged or in the wrong place")

// A Ring holds keys. The first encrypts, and all decrypt. The zero Ring has no keys.
type Ring struct {
	keys []key
}

type key struct {
	id   string
	aead cipher.AEAD
	root []byte // from which Derive derives keys
}

// New returns a Ring of keys, each of KeySize bytes.
func New(keys [][]byte) (Ring, error) {
	var r Ring
	for i, k := range keys {
		if len(k) != KeySize {
			return Ring{}, fmt.Errorf("key %d has %d bytes, not %d", i+1, len(k), KeySize)
		}
		block, err := aes.NewCipher(k)
		if err != nil {
			return Ring{}, err
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return Ring{}, err
		}
		sum := sha256.Sum256(append([]byte("userdb key\x00"), k...))
		id := hex.EncodeToString(sum[:8])
		if r.key(id) != nil {
			return Ring{}, fmt.Errorf("key %d appears twice", i+1)
		}
		mac := hmac.New(sha256.New, k)
		mac.Write([]byte("userdb derived keys"))
		r.keys = append(r.keys, key{id, aead, mac.Sum(nil)})
	}
	return r, nil
}

// Any reports whether the ring has a key.
func (r Ring) Any() bool { return len(r.keys) > 0 }

func (r Ring) key(id string) cipher.AEAD {
	for _, k := range r.keys {
		if k.id == id {
			return k.aead
		}
	}
	return nil
}

// Derive returns a key of KeySize bytes for each key of the ring, derived from it for a purpose.
func (r Ring) Derive(purpose string) (all [][]byte) {
	for _, k := range r.keys {
		mac := hmac.New(sha256.New, k.root)
		mac.Write([]byte(purpose))
		all = append(all, mac.Sum(nil))
	}
	return all
}

// Seal encrypts a secret with the first key. place says where the text will be stored: only Open
// with the same place decrypts it. The text consists of letters, digits, '.', '-' and '_'. Seal
// panics if the ring has no key.
func (r Ring) Seal(secret []byte, place ...string) string {
	k := r.keys[0]
	return k.id + "." + base64.RawURLEncoding.EncodeToString(k.aead.Seal(nil, nil, secret, associated(k.id, place)))
}

// Open decrypts a text. The error is ErrKey if none of the keys encrypted it.
func (r Ring) Open(text string, place ...string) ([]byte, error) {
	id, encoded, _ := strings.Cut(text, ".")
	aead := r.key(id)
	if aead == nil {
		return nil, ErrKey
	}
	data, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return nil, errDamaged
	}
	secret, err := aead.Open(nil, nil, data, associated(id, place))
	if err != nil {
		return nil, errDamaged
	}
	return secret, nil
}

// Reseal opens a text that was sealed for one place, and seals what it holds for another.
func (r Ring) Reseal(text string, from, to []string) (string, error) {
	secret, err := r.Open(text, from...)
	if err != nil {
		return "", err
	}
	return r.Seal(secret, to...), nil
}

// Current reports whether the first key encrypted a text.
func (r Ring) Current(text string) bool {
	return len(r.keys) > 0 && strings.HasPrefix(text, r.keys[0].id+".")
}

// associated returns the data that is authenticated with a secret: each text with its length before
// it.
func associated(id string, place []string) (data []byte) {
	for _, text := range append([]string{id}, place...) {
		data = binary.BigEndian.AppendUint32(data, uint32(len(text)))
		data = append(data, text...)
	}
	return data
}
