package password

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"slices"
)

const (
	leastPepper = 16 // bytes; NIST SP 800-63B-4 asks for 112 bits
	mostPepper  = 1024
	markLen     = 4 // with it a bcrypt string has the 64 bytes that Redis keeps compact
)

// pepper is a secret key and the three characters that name it.
type pepper struct {
	id  string
	key []byte
}

func newPeppers(keys [][]byte) ([]pepper, error) {
	var all []pepper
	for i, key := range keys {
		if len(key) < leastPepper || len(key) > mostPepper {
			return nil, fmt.Errorf("%w: pepper %d has %d bytes, not %d to %d",
				ErrOptions, i+1, len(key), leastPepper, mostPepper)
		}
		p := pepper{id: pepperID(key), key: slices.Clone(key)}
		if j := slices.IndexFunc(all, func(q pepper) bool { return q.id == p.id }); j >= 0 {
			return nil, fmt.Errorf("%w: peppers %d and %d have the same name: replace one", ErrOptions, j+1, i+1)
		}
		all = append(all, p)
	}
	return all, nil
}

// pepperID names a key by 18 bits of a MAC of its own: nobody gets from them to the
// key, and it is another function than the one that passwords go through.
func pepperID(key []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("name of this pepper"))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))[:markLen-1]
}

// mark is what stands before a hash made with p; nothing, where p is nil.
func (p *pepper) mark() string {
	if p == nil {
		return ""
	}
	return "p" + p.id
}

// apply turns a password into the 64 characters that bcrypt gets.
func (p *pepper) apply(password []byte) []byte {
	mac := hmac.New(sha512.New384, p.key)
	mac.Write(password)
	return base64.StdEncoding.AppendEncode(nil, mac.Sum(nil))
}
