package password

import (
	"crypto/md5"
	"crypto/subtle"
)

// A phpass holds a portable phpass hash: $P$ or $H$, a digit for the binary logarithm of the
// rounds, eight characters of salt, and 22 of hash. MD5 is weak, but its many rounds make up for
// that, and the first login replaces the hash.
type phpass struct {
	log  int
	salt string
	key  string
}

const (
	phpassDigits = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	phpassMax    = 256 // bytes of a password, which each round reads again
)

func decodePHPass(stored string, n numbers) (matcher, error) {
	return phpass{log: n["log"], salt: stored[4:12], key: stored[12:]}, nil
}

func (p phpass) MatchBytesAdvanced(password []byte) (bool, error) {
	return subtle.ConstantTimeCompare(p.sum(password), []byte(p.key)) == 1, nil
}

func (p phpass) sum(password []byte) []byte {
	sum := md5.Sum(append([]byte(p.salt), password...))
	text := append(sum[:], password...)
	for range 1 << p.log {
		sum = md5.Sum(text)
		copy(text, sum[:])
	}
	return phpassText(sum)
}

// phpassText writes sum with six bits in each digit, the lowest first.
func phpassText(sum [md5.Size]byte) []byte {
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
