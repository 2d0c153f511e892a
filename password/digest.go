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
	"golang.org/x/text/unicode/norm"
)

// longestHash limits the length of a stored hash, in bytes.
const longestHash = 512

// A digest holds a parsed hash and its properties.
type digest struct {
	hasher   *Hasher
	hash     string  // of bcrypt
	cost     int     // of bcrypt
	foreign  matcher // for other algorithms; nil for bcrypt
	max      int     // maximum length of a password in bytes
	pepper   *pepper // may be nil
	original bool    // CoffeeNode UserDB, the original of this store, may have written the hash
	renew    string  // why a correct password should replace the hash; "" if it should not

	prehash   func([]byte) []byte // what another product does to a password first; may be nil
	wordpress bool                // WordPress may have written the hash
	cuts      bool                // only the first 72 bytes of a password count
	nfkc      bool                // the product normalizes passwords to NFKC
}

// parse parses a stored hash.
func (h *Hasher) parse(stored string) (digest, error) {
	if len(stored) > longestHash {
		return digest{}, &HashError{Reason: fmt.Sprintf("longer than %d bytes", longestHash)}
	}
	if mark, hash, ok := cutBcrypt(stored); ok {
		return h.parseBcrypt(mark, hash)
	}
	if rest, ok := strings.CutPrefix(stored, preparedPrefix); ok {
		return h.parsePrepared(rest)
	}
	if d, ok, err := h.parseProduct(stored); ok {
		return d, err
	}
	text, nfkc := convertSpelling(stored)
	for _, s := range schemes {
		if m := s.shape.FindStringSubmatch(text); m != nil {
			d, err := h.parseForeign(s, text, m)
			d.nfkc = nfkc
			return d, err
		}
	}
	return digest{}, &HashError{Reason: unsupportedReason(stored)}
}

const bcryptLen = 60

// cutBcrypt splits stored into the mark of a pepper, which may be missing, and a bcrypt hash:
// $2a$10$ and 53 characters of salt and hash. A regular expression would be slow enough to delay
// imports.
func cutBcrypt(stored string) (mark, hash string, ok bool) {
	mark, hash = stored[:max(0, len(stored)-bcryptLen)], stored[max(0, len(stored)-bcryptLen):]
	if len(hash) != bcryptLen || hash[:2] != "$2" || hash[3] != '$' || hash[6] != '$' {
		return "", "", false
	}
	_, costErr := strconv.ParseUint(hash[4:6], 10, 8)
	marked := len(mark) == markLen && mark[0] == 'p' && !strings.ContainsFunc(mark, notAlnum("-_"))
	return mark, hash, (mark == "" || marked) && strings.Contains("aby", hash[2:3]) && costErr == nil &&
		!strings.ContainsFunc(hash[7:], notAlnum("./"))
}

// notAlnum returns a function that reports whether a character is neither an ASCII letter or digit
// nor in extra.
func notAlnum(extra string) func(rune) bool {
	return func(r rune) bool {
		return !('0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' || strings.ContainsRune(extra, r))
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
	case d.pepper != h.newDigest().pepper:
		d.renew = renewPepper
	case cost != h.cost:
		d.renew = renewCost
	}
	return d, nil
}

// try compares a secret with the hash. If err is not nil, there is no secret: try then returns
// false, but does the same work.
func (d digest) try(secret []byte, err error) bool {
	if d.foreign != nil {
		d.hasher.foreign.Add(1)
		right, failed := d.foreign.MatchBytesAdvanced(secret)
		return right && failed == nil && err == nil
	}
	right := d.hasher.compare(d.hash, d.cost, secret)
	// Make up for a stored hash of a lower cost. Each step of the cost doubles the work, so a
	// second hash of the same cost brings the total to the work of the next step.
	for cost := d.cost; cost < d.hasher.cost; cost++ {
		d.hasher.compare(unmatchableHash(cost), cost, nil)
	}
	return right && err == nil
}

// compare compares a secret with a bcrypt hash and counts the work.
func (h *Hasher) compare(hash string, cost int, secret []byte) bool {
	h.rounds.Add(1 << cost)
	return bcrypt.CompareHashAndPassword([]byte(hash), secret) == nil
}

// unmatchableHash returns a hash that no password matches.
func unmatchableHash(cost int) string {
	return fmt.Sprintf("$2a$%02d$%s", cost, strings.Repeat(".", 53))
}

// secret returns the input of the hash function for a password, or an error if it is not hashable.
func (d digest) secret(password string) ([]byte, error) {
	if d.cuts {
		password = password[:min(len(password), maxBytes)]
	}
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

// maxNormalized limits the texts that are normalized. A password that is short enough for a hash
// has at most three times as many bytes in its other form, composed or decomposed.
const maxNormalized = 3 * maxPepperedBytes

// secretOfOther calls prepare with the other Unicode form of a password, and returns the input of
// the hash function for the result. It returns an error if the password has no other form.
func (d digest) secretOfOther(password string, prepare func(string) string) ([]byte, error) {
	if len(password) > maxNormalized {
		return nil, ErrHash
	}
	other := norm.NFC.String(password)
	if other == password {
		other = norm.NFD.String(password)
	}
	if other == password {
		return nil, ErrHash
	}
	return d.secret(prepare(other))
}

// legacySecret returns the bytes that the original passed to bcrypt for a password.
func (d digest) legacySecret(password string) ([]byte, error) {
	// A UTF-16 unit takes up to three bytes in UTF-8, and at least one in the result of
	// legacyBytes.
	if d.original && len(password) <= 3*maxBytes {
		if b, ok := legacyBytes(password); ok && len(b) <= maxBytes {
			return d.checkRepeats(b)
		}
	}
	return nil, ErrHash
}

// checkRepeats refuses a secret that bcrypt cannot distinguish from a shorter one.
func (d digest) checkRepeats(secret []byte) ([]byte, error) {
	if d.foreign == nil && repeats(secret) {
		return nil, &PolicyError{Rule: ruleNUL, Reason: "it repeats itself after a NUL byte, which bcrypt cannot tell from its first part"}
	}
	return secret, nil
}

func tooLong(limit int) *PolicyError {
	return &PolicyError{Rule: ruleMax, Reason: fmt.Sprintf("over %d bytes", limit)}
}

// repeats reports whether a shorter password has the same bcrypt hashes, as "ab" has for
// "ab\x00ab".
func repeats(secret []byte) bool {
	for i, c := range secret {
		if c == 0 && bytes.Equal(bcryptInput(secret[:i]), bcryptInput(secret)) {
			return true
		}
	}
	return false
}

// bcryptInput returns the bytes that bcrypt reads: the password with a final NUL, repeated up to 72
// bytes.
func bcryptInput(secret []byte) []byte {
	ended := append(slices.Clip(secret), 0)
	return bytes.Repeat(ended, maxBytes/len(ended)+1)[:maxBytes]
}

// legacyBytes returns text in the encoding that the original passed to bcrypt: the low byte of
// every UTF-16 unit, preceded by its high byte if that is not zero. The encoding is ambiguous: "日"
// and "eå" have the same bytes. ok is false if text is not UTF-8.
//
// legacyBytes also accepts a lone surrogate, which JavaScript strings may contain, in the three
// bytes that WTF-8 uses for it.
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

// loneSurrogate returns the surrogate at the start of text, encoded in three bytes, which UTF-8
// forbids. It returns 0 if there is none.
func loneSurrogate(text string) uint16 {
	if len(text) < 3 || text[0] != 0xed || text[1]&0xe0 != 0xa0 || text[2]&0xc0 != 0x80 {
		return 0
	}
	return 0xd000 | uint16(text[1]&0x3f)<<6 | uint16(text[2]&0x3f)
}
