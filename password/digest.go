package password

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/crypto/bcrypt"
)

// longestHash is more than any hash within the caps has.
const longestHash = 512

// digest is a stored hash, read, and what is known about its making.
type digest struct {
	hasher   *Hasher
	hash     string  // value bcrypt
	cost     int     // value bcrypt
	foreign  matcher // value another algorithm, else nil
	max      int     // max bytes of a password that it can be the hash of
	pepper   *pepper // nil: none
	original bool    // may be a hash of the original's
	renew    string  // name speaks for a new hash once the password was right

	prehash   func([]byte) []byte // name another product does before bcrypt; nil: nothing
	wordpress bool                // may be a hash of WordPress
}

// parse reads what is stored.
func (h *Hasher) parse(stored string) (digest, error) {
	if len(stored) > longestHash {
		return digest{}, &HashError{Reason: fmt.Sprintf("%d bytes are over %d", len(stored), longestHash)}
	}
	if mark, hash, ok := cutBcrypt(stored); ok {
		return h.parseBcrypt(mark, hash)
	}
	if d, ok, err := h.parseProduct(stored); ok {
		return d, err
	}
	text := normalize(stored)
	for _, s := range schemes {
		if m := s.shape.FindStringSubmatch(text); m != nil {
			return h.parseForeign(s, text, m)
		}
	}
	return digest{}, &HashError{Reason: unsupportedReason(stored)}
}

const bcryptLen = 60

// cutBcrypt cuts a bcrypt string, $2a$10$ with 53 characters of salt and hash, from the mark of its pepper. A regular
// expression would take longer, which an import would notice.
func cutBcrypt(stored string) (mark, hash string, ok bool) {
	mark, hash = stored[:max(0, len(stored)-bcryptLen)], stored[max(0, len(stored)-bcryptLen):]
	if len(hash) != bcryptLen || hash[:2] != "$2" || hash[3] != '$' || hash[6] != '$' {
		return "", "", false
	}
	_, unnumbered := strconv.ParseUint(hash[4:6], 10, 8)
	marked := len(mark) == markLen && mark[0] == 'p' && !strings.ContainsFunc(mark, notAlnum("-_"))
	return mark, hash, (mark == "" || marked) && strings.Contains("aby", hash[2:3]) && unnumbered == nil &&
		!strings.ContainsFunc(hash[7:], notAlnum("./"))
}

// notAlnum reports what is neither an ASCII letter or digit nor one of others.
func notAlnum(others string) func(rune) bool {
	return func(r rune) bool {
		return !('0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' || strings.ContainsRune(others, r))
	}
}

func (h *Hasher) parseBcrypt(mark, hash string) (digest, error) {
	cost, _ := strconv.Atoi(hash[4:6])
	if cost < bcrypt.MinCost || cost > maxCost {
		return digest{}, &HashError{Reason: fmt.Sprintf("bcrypt cost %d is not between %d and %d", cost, bcrypt.MinCost, maxCost)}
	}
	d := digest{hasher: h, hash: hash, cost: cost, max: maxBytes, original: hash[2] == 'a' && mark == ""}
	if mark != "" {
		i := slices.IndexFunc(h.peppers, func(p pepper) bool { return p.id == mark[1:] })
		if i < 0 {
			return digest{}, &HashError{Reason: "its pepper is not configured"}
		}
		d.pepper, d.max = &h.peppers[i], maxPepperedBytes
	}
	switch {
	case hash[2] != 'a':
		d.renew = renewAlgorithm
	case d.pepper != h.newDigest().pepper:
		d.renew = renewPepper
	case cost != h.cost:
		d.renew = renewCost
	}
	return d, nil
}

// try does the work of comparing in any case. There may be no secret, but an error: then nothing matches.
func (d digest) try(secret []byte, err error) bool {
	if d.foreign != nil {
		d.hasher.foreign.Add(1)
		right, failed := d.foreign.MatchBytesAdvanced(secret)
		return right && failed == nil && err == nil
	}
	right := d.hasher.compare(d.hash, d.cost, secret)
	// What a hash of a lower cost leaves of the work of one at the hasher's own, where each cost is twice the one
	// before, is made up for: with another of the same cost it is that of the next.
	for cost := d.cost; cost < d.hasher.cost; cost++ {
		d.hasher.compare(unmatched(cost), cost, nil)
	}
	return right && err == nil
}

// compare does the work of a bcrypt hash, and counts it.
func (h *Hasher) compare(hash string, cost int, secret []byte) bool {
	h.rounds.Add(1 << cost)
	return bcrypt.CompareHashAndPassword([]byte(hash), secret) == nil
}

// unmatched is a hash that no password matches.
func unmatched(cost int) string {
	return fmt.Sprintf("$2a$%02d$%s", cost, strings.Repeat(".", 53))
}

// secret is what the hash function gets for a password, or why it gets none.
func (d digest) secret(password string) ([]byte, error) {
	if len(password) > d.max {
		return nil, tooLong(d.max)
	}
	if d.pepper != nil {
		return d.pepper.apply([]byte(password)), nil
	}
	if d.prehash != nil {
		return d.prehash([]byte(password)), nil
	}
	return d.checkRepeats([]byte(password))
}

// legacySecret is what the original gave to bcrypt for a password.
func (d digest) legacySecret(password string) ([]byte, error) {
	// A unit of UTF-16 has up to three bytes in UTF-8, and one here at least.
	if d.original && len(password) <= 3*maxBytes {
		if b, ok := legacyBytes(password); ok && len(b) <= maxBytes {
			return d.checkRepeats(b)
		}
	}
	return nil, ErrHash
}

// checkRepeats refuses what bcrypt takes for a shorter password.
func (d digest) checkRepeats(secret []byte) ([]byte, error) {
	if d.foreign == nil && repeats(secret) {
		return nil, &PolicyError{ruleNUL, "it repeats itself after a NUL byte, which bcrypt cannot tell from its first part"}
	}
	return secret, nil
}

func tooLong(most int) *PolicyError {
	return &PolicyError{ruleMax, fmt.Sprintf("over %d bytes", most)}
}

// repeats reports whether a shorter password has the same bcrypt hashes: "ab" and "ab\x00ab" are one.
func repeats(secret []byte) bool {
	for i, c := range secret {
		if c == 0 && bytes.Equal(bcryptInput(secret[:i]), bcryptInput(secret)) {
			return true
		}
	}
	return false
}

// bcryptInput is a password as bcrypt reads it: with a NUL at its end, again and again up to 72 bytes.
func bcryptInput(secret []byte) []byte {
	ended := append(slices.Clip(secret), 0)
	return bytes.Repeat(ended, maxBytes/len(ended)+1)[:maxBytes]
}

// legacyBytes is text as the original gave it to bcrypt: of every UTF-16 unit the low byte, and before it the high byte
// where that is not zero. It is not unique: "日" and "eå" are the same. Text that is not UTF-8 has no such form.
//
// A lone surrogate, which JavaScript can hold, is taken in the three bytes that WTF-8 has for it.
func legacyBytes(text string) (b []byte, ok bool) {
	units := make([]uint16, 0, 2)
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		units = utf16.AppendRune(units[:0], r)
		if r == utf8.RuneError && size == 1 {
			if units[0], size = loneSurrogate(text), 3; units[0] == 0 {
				return nil, false
			}
		}
		text = text[size:]
		for _, unit := range units {
			if unit > 0xff {
				b = append(b, byte(unit>>8))
			}
			b = append(b, byte(unit))
		}
	}
	return b, true
}

// loneSurrogate reads one in the form of three UTF-8 bytes from the start of text, which UTF-8 itself forbids; 0 if
// text begins otherwise.
func loneSurrogate(text string) uint16 {
	if len(text) < 3 || text[0] != 0xed || text[1]&0xe0 != 0xa0 || text[2]&0xc0 != 0x80 {
		return 0
	}
	return 0xd000 | uint16(text[1]&0x3f)<<6 | uint16(text[2]&0x3f)
}
