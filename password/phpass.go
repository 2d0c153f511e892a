package password

import (
	"crypto/md5"
	"crypto/sha512"
	"crypto/subtle"
	"hash"
)

// A phpass holds a phpass hash: $P$ or $H$ for MD5 or $S$ for Drupal's SHA-512, a digit for the
// binary logarithm of the rounds, eight characters of salt, and 22 of MD5 or the first 43 of
// SHA-512. MD5 is weak, but its many rounds make up for that, and the first login replaces the
// hash.
type phpass struct {
	hash func() hash.Hash
	log  int
	salt string
	key  string
}

const (
	phpassDigits = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	phpassMax    = 256 // bytes of a password, which each round reads again
)

func decodePHPass(stored string, n numbers) (matcher, error) {
	p := phpass{hash: md5.New, log: n["log"], salt: stored[4:12], key: stored[12:]}
	if stored[1] == 'S' {
		p.hash = sha512.New
	}
	return p, nil
}

func (p phpass) MatchBytesAdvanced(password []byte) (bool, error) {
	return subtle.ConstantTimeCompare(p.sum(password)[:len(p.key)], []byte(p.key)) == 1, nil
}

func (p phpass) sum(password []byte) []byte {
	h := p.hash()
	h.Write([]byte(p.salt)) // writing to a hash cannot fail
	h.Write(password)
	text := append(h.Sum(nil), password...)
	for range 1 << p.log {
		h.Reset()
		h.Write(text)
		h.Sum(text[:0]) // replaces the sum before the password
	}
	return phpassText(text[:h.Size()])
}

// phpassText writes sum with six bits in each digit, the lowest first.
func phpassText(sum []byte) []byte {
	var text []byte
	for at := 0; at < len(sum); at += 3 {
		group, digits := 0, 1
		for i, b := range sum[at:min(at+3, len(sum))] {
			group, digits = group|int(b)<<(8*i), digits+1
		}
		for range digits {
			text, group = append(text, phpassDigits[group&63]), group>>6
		}
	}
	return text
}
