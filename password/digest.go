package password

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/crypto/bcrypt"
)

// longestHash is more than any hash within the caps has.
const longestHash = 512

// digest is a stored hash, read, and what is known about its making.
type digest struct {
	match    func(secret []byte) bool
	max      int     // most bytes of a password that it can be the hash of
	bcrypt   bool    // of whatever cost
	cost     int     // of bcrypt
	pepper   *pepper // nil: none
	original bool    // may be a hash of the original's
	renew    string  // what speaks for a new hash once the password was right
}

// parse reads what is stored.
func (h *Hasher) parse(stored string) (digest, error) {
	if len(stored) > longestHash {
		return digest{}, &HashError{Reason: fmt.Sprintf("%d bytes are over %d", len(stored), longestHash)}
	}
	if m := bcryptShape.FindStringSubmatch(stored); m != nil {
		return h.parseBcrypt(m[1], m[2], m[3], m[4])
	}
	for _, s := range schemes {
		if m := s.shape.FindStringSubmatch(stored); m != nil {
			return s.parse(stored, m, &h.foreign)
		}
	}
	return digest{}, &HashError{Reason: refusal(stored)}
}

// bcryptShape: mark of a pepper, variant, cost, salt and hash.
var bcryptShape = regexp.MustCompile(`^(p[A-Za-z0-9_-]{3})?\$2([aby])\$([0-9]{2})\$([./A-Za-z0-9]{53})$`)

// acceptable reports of most bcrypt strings that parse takes them, with a twentieth of
// the work. 15 is maxCost.
func acceptable(stored string) bool {
	const form = "$2a$10$"
	if len(stored) != len(form)+53 || stored[:2] != "$2" || stored[3] != '$' || stored[6] != '$' {
		return false
	}
	for i := len(form); i < len(stored); i++ {
		if c := stored[i]; !('.' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z') {
			return false
		}
	}
	variant, cost := stored[2], stored[4:6]
	return strings.IndexByte("aby", variant) >= 0 && "04" <= cost && cost <= "15" && '0' <= cost[1] && cost[1] <= '9'
}

func (h *Hasher) parseBcrypt(mark, variant, cost, rest string) (digest, error) {
	n, _ := strconv.Atoi(cost)
	if n < bcrypt.MinCost || n > maxCost {
		return digest{}, &HashError{Reason: fmt.Sprintf("bcrypt cost %d is not between %d and %d", n, bcrypt.MinCost, maxCost)}
	}
	d := digest{max: maxBytes, bcrypt: true, cost: n, original: variant == "a" && mark == ""}
	if mark != "" {
		if d.pepper = h.pepperOf(mark); d.pepper == nil {
			return digest{}, &HashError{Reason: "its pepper is not configured"}
		}
		d.max = maxPepperedBytes
	}
	hash := []byte("$2" + variant + "$" + cost + "$" + rest)
	d.match = func(secret []byte) bool {
		right := h.compare(hash, n, secret)
		h.makeUp(n)
		return right
	}
	d.renew = h.renewal(d, variant)
	return d, nil
}

func (h *Hasher) pepperOf(mark string) *pepper {
	for i := range h.peppers {
		if h.peppers[i].mark() == mark {
			return &h.peppers[i]
		}
	}
	return nil
}

// renewal is why a bcrypt hash is to be replaced.
func (h *Hasher) renewal(d digest, variant string) string {
	switch {
	case variant != "a":
		return renewAlgorithm
	case len(h.peppers) > 0 && d.pepper != &h.peppers[0]:
		return renewPepper
	case d.cost != h.cost:
		return renewCost
	default:
		return ""
	}
}

// compare does the work of a bcrypt hash, and counts it.
func (h *Hasher) compare(hash []byte, cost int, secret []byte) bool {
	h.rounds.Add(1 << cost)
	return bcrypt.CompareHashAndPassword(hash, secret) == nil
}

// makeUp does what a hash of a lower cost leaves of the work of one at h's own, where each cost
// is twice the one before: with another of the same cost it is that of the next.
func (h *Hasher) makeUp(cost int) {
	for ; cost < h.cost; cost++ {
		h.compare(unmatched(cost), cost, nil)
	}
}

// unmatched is a hash that no password matches.
func unmatched(cost int) []byte {
	return fmt.Appendf(nil, "$2a$%02d$%s", cost, strings.Repeat(".", 53))
}

// dummy does the work of a hash, and matches no password.
func (h *Hasher) dummy() digest {
	return digest{max: maxBytes, bcrypt: true, cost: h.cost, match: func(secret []byte) bool {
		h.compare(unmatched(h.cost), h.cost, secret)
		return false
	}}
}

// secret is what the hash function gets for a password, or why it gets none.
func (d digest) secret(password string) ([]byte, error) {
	if len(password) > d.max {
		return nil, tooLong(d.max)
	}
	if d.pepper != nil {
		return d.pepper.apply([]byte(password)), nil
	}
	return d.checked([]byte(password))
}

// legacySecret is what the original gave to bcrypt for a password.
func (d digest) legacySecret(password string) ([]byte, error) {
	// A unit of UTF-16 has up to three bytes in UTF-8, and one here at least.
	if len(password) > 3*maxBytes {
		return nil, tooLong(maxBytes)
	}
	b, ok := legacyBytes(password)
	if !ok || !d.original {
		return nil, ErrHash
	}
	if len(b) > maxBytes {
		return nil, tooLong(maxBytes)
	}
	return d.checked(b)
}

// checked refuses what bcrypt takes for a shorter password.
func (d digest) checked(secret []byte) ([]byte, error) {
	if d.bcrypt && repeats(secret) {
		return nil, &PolicyError{ruleNUL, "it repeats itself around a NUL byte, which bcrypt takes for its first part"}
	}
	return secret, nil
}

func tooLong(most int) *PolicyError {
	return &PolicyError{ruleMax, fmt.Sprintf("over %d bytes", most)}
}

// repeats reports whether a shorter password has the same bcrypt hashes. bcrypt
// appends a NUL and repeats that up to 72 bytes: "ab" and "ab\x00ab" are one.
func repeats(secret []byte) bool {
	for i, c := range secret {
		if c == 0 && hasPeriod(secret, i+1) {
			return true
		}
	}
	return false
}

// hasPeriod reports whether secret, extended as bcrypt does, repeats every n bytes.
func hasPeriod(secret []byte, n int) bool {
	extended := append(secret[:len(secret):len(secret)], 0)
	for i := range maxBytes {
		if extended[i%len(extended)] != extended[i%n] {
			return false
		}
	}
	return true
}

// typed reports whether bytes are text that a person may have typed: UTF-8 without control characters.
func typed(b []byte) bool {
	return utf8.Valid(b) && !bytes.ContainsFunc(b, unicode.IsControl)
}

// legacyBytes is text as the original gave it to bcrypt: of every UTF-16 unit the
// low byte, and before it the high byte where that is not zero. It is not unique:
// "日" and "eå" are the same. Text that is not UTF-8 has no such form.
//
// A lone surrogate, which JavaScript can hold, is taken in the three bytes that
// WTF-8 has for it.
func legacyBytes(text string) (b []byte, ok bool) {
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if r == utf8.RuneError && size == 1 {
			if r, size = loneSurrogate(text), 3; r == 0 {
				return nil, false
			}
		}
		text = text[size:]
		if hi, lo := utf16.EncodeRune(r); r > 0xffff {
			b = appendUnit(appendUnit(b, hi), lo)
		} else {
			b = appendUnit(b, r)
		}
	}
	return b, true
}

// loneSurrogate reads one in the form of three UTF-8 bytes from the start of text,
// which UTF-8 itself forbids; 0 if text begins otherwise.
func loneSurrogate(text string) rune {
	if len(text) < 3 || text[0] != 0xed || text[1]&0xe0 != 0xa0 || text[2]&0xc0 != 0x80 {
		return 0
	}
	return 0xd000 | rune(text[1]&0x3f)<<6 | rune(text[2]&0x3f)
}

func appendUnit(b []byte, unit rune) []byte {
	if unit > 0xff {
		b = append(b, byte(unit>>8))
	}
	return append(b, byte(unit))
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
}
