package password

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-crypt/crypt/algorithm"
	"github.com/go-crypt/crypt/algorithm/argon2"
	"github.com/go-crypt/crypt/algorithm/pbkdf2"
	"github.com/go-crypt/crypt/algorithm/scrypt"
	"github.com/go-crypt/crypt/algorithm/shacrypt"
)

// A scheme is an algorithm of imported hashes. The package checks the shape and the limits before
// it calls decode, because go-crypt, the library that decodes most hashes, accepts any cost.
type scheme struct {
	name   string
	shape  *regexp.Regexp // groups: numbers, and salt and key in base64
	limits []limit        // checked in this order, because a limit may rely on those before it
	max    int            // maximum length of a password in bytes
	decode func(string, numbers) (matcher, error)
	// wordpress says that WordPress may have written the hash; it changes passwords before it
	// hashes them.
	wordpress bool
}

// A matcher checks a password. A wrong password takes the same work as a right one.
type matcher interface {
	MatchBytesAdvanced(password []byte) (bool, error)
}

// library adapts a decoder of go-crypt to the type that a scheme needs.
func library(decode func(string) (algorithm.Digest, error)) func(string, numbers) (matcher, error) {
	return func(stored string, _ numbers) (matcher, error) { return decode(stored) }
}

// A limit bounds a number on which the cost of a hash depends.
type limit struct {
	name     string
	value    func(numbers) int
	min, max int
}

// numbers holds the parameters of a hash by name, and the lengths of its salt and key in bytes.
type numbers map[string]int

func parameter(name string) func(numbers) int {
	return func(n numbers) int { return n[name] }
}

// schemes lists the algorithms of imported hashes. The highest accepted cost of each takes at most
// two seconds and 256 MiB.
var schemes = []scheme{
	{
		name: "argon2id",
		shape: regexp.MustCompile(`^\$argon2id\$v=19\$m=(?<m>[1-9]\d{0,8}),t=(?<t>[1-9]\d{0,8}),p=(?<p>[1-9]\d{0,8})` +
			`\$(?<salt>[A-Za-z0-9+/]+)\$(?<key>[A-Za-z0-9+/]+)$`),
		limits: []limit{
			{"memory in KiB", parameter("m"), 8, 256 << 10},
			{"passes", parameter("t"), 1, 64},
			{"lanes", parameter("p"), 1, 16},
			{"memory in KiB times passes", func(n numbers) int { return n["m"] * n["t"] }, 8, 1 << 20},
			{"salt in bytes", parameter("salt"), 8, 64},
			{"key in bytes", parameter("key"), 16, 64},
		},
		max:    maxPepperedBytes,
		decode: library(argon2.DecodeVariant(argon2.VariantID)),
	},
	{
		name: "scrypt",
		shape: regexp.MustCompile(`^\$scrypt\$ln=(?<ln>[1-9]\d{0,8}),r=(?<r>[1-9]\d{0,8}),p=(?<p>[1-9]\d{0,8})` +
			`\$(?<salt>[A-Za-z0-9+/]+)\$(?<key>[A-Za-z0-9+/]+)$`),
		limits: []limit{
			{"ln", parameter("ln"), 1, 20},
			{"r", parameter("r"), 1, 32},
			{"p", parameter("p"), 1, 16},
			{"memory in bytes", func(n numbers) int { return 128 * n["r"] << n["ln"] }, 0, 256 << 20},
			{"memory in bytes times p", func(n numbers) int { return 128 * n["r"] * n["p"] << n["ln"] }, 0, 512 << 20},
			{"salt in bytes", parameter("salt"), 8, 64},
			{"key in bytes", parameter("key"), 16, 64},
		},
		max:    maxPepperedBytes,
		decode: library(scrypt.DecodeVariant(scrypt.VariantScrypt)),
	},
	pbkdf2Scheme("pbkdf2-sha1", `\$pbkdf2(?:-sha1)?`, 20, pbkdf2.VariantSHA1),
	pbkdf2Scheme("pbkdf2-sha256", `\$pbkdf2-sha256`, 32, pbkdf2.VariantSHA256),
	pbkdf2Scheme("pbkdf2-sha512", `\$pbkdf2-sha512`, 64, pbkdf2.VariantSHA512),
	shaCryptScheme("sha256-crypt", "5", 43, shacrypt.VariantSHA256),
	shaCryptScheme("sha512-crypt", "6", 86, shacrypt.VariantSHA512),
	{
		name: "firebase-scrypt",
		shape: regexp.MustCompile(`^\$firebase-scrypt\$ln=(?<ln>[1-9]\d{0,8}),r=(?<r>[1-9]\d{0,8}),p=1` +
			`\$(?<salt>[A-Za-z0-9+/]+)\$(?<key>[A-Za-z0-9+/]+)$`),
		limits: []limit{
			{"ln", parameter("ln"), 1, 20},
			{"r", parameter("r"), 1, 32},
			{"memory in bytes", func(n numbers) int { return 128 * n["r"] << n["ln"] }, 0, 256 << 20},
			{"salt and separator in bytes", parameter("salt"), 1, 128},
			{"key in bytes", parameter("key"), 16, 128},
		},
		max:    maxPepperedBytes,
		decode: decodeFirebase,
	},
	phpassScheme("P", true),
	phpassScheme("H", false),
	{
		name:   "Drupal's phpass",
		shape:  regexp.MustCompile(`^\$S\$(?<log>[./0-9A-Za-z])[./0-9A-Za-z]{8}[./0-9A-Za-z]{43}$`),
		limits: []limit{{"binary logarithm of the rounds", parameter("log"), 7, 20}},
		max:    phpassMax,
		decode: decodePHPass,
	},
}

// phpassScheme returns the scheme of phpass with the prefix $P$ (WordPress and others) or $H$
// (phpBB). The last digit of a hash has only two significant bits.
func phpassScheme(id string, wordpress bool) scheme {
	return scheme{
		name:      "phpass",
		shape:     regexp.MustCompile(`^\$` + id + `\$(?<log>[./0-9A-Za-z])[./0-9A-Za-z]{8}[./0-9A-Za-z]{21}[./01]$`),
		limits:    []limit{{"binary logarithm of the rounds", parameter("log"), 7, 20}},
		max:       phpassMax,
		decode:    decodePHPass,
		wordpress: wordpress,
	}
}

// pbkdf2Scheme returns the scheme of PBKDF2 with a hash function whose result has size bytes. For
// each block of size bytes in the key, even an incomplete one, PBKDF2 does all iterations again.
func pbkdf2Scheme(name, prefix string, size int, v pbkdf2.Variant) scheme {
	blocks := func(n numbers) int { return (n["key"] + size - 1) / size * n["i"] }
	return scheme{
		name: name,
		shape: regexp.MustCompile(`^` + prefix + `\$(?<i>[1-9]\d{0,8})` +
			`\$(?<salt>[A-Za-z0-9./]+)\$(?<key>[A-Za-z0-9./]+)$`),
		limits: []limit{
			{"iterations", parameter("i"), 1, 2_000_000},
			{"salt in bytes", parameter("salt"), 8, 64},
			{"key in bytes", parameter("key"), 16, 64},
			{"iterations times blocks", blocks, 1, 2_000_000},
		},
		max:    maxPepperedBytes,
		decode: library(pbkdf2.DecodeVariant(v)),
	}
}

// shaCryptScheme returns a scheme of sha-crypt. Its salt has at most 16 characters, and each round
// reads the password again.
func shaCryptScheme(name, id string, key int, v shacrypt.Variant) scheme {
	rounds := func(n numbers) int { return cmp.Or(n["rounds"], shacrypt.IterationsDefaultOmitted) }
	return scheme{
		name: name,
		shape: regexp.MustCompile(`^\$` + id + `(?:\$rounds=(?<rounds>[1-9]\d{0,8}))?` +
			`\$[A-Za-z0-9./]{1,16}\$[A-Za-z0-9./]{` + strconv.Itoa(key) + `}$`),
		limits: []limit{{"rounds", rounds, 1000, 1_000_000}},
		max:    256,
		decode: library(shacrypt.DecodeVariant(v)),
	}
}

// parseForeign parses a hash with the shape of s; m holds the groups of the match.
func (h *Hasher) parseForeign(s scheme, stored string, m []string) (digest, error) {
	n := s.numbers(m)
	for _, l := range s.limits {
		if v := l.value(n); v < l.min || v > l.max {
			return digest{}, &HashError{Reason: fmt.Sprintf("%s: %s: %d is not between %d and %d", s.name, l.name, v, l.min, l.max)}
		}
	}
	found, err := s.decode(stored, n)
	if err != nil {
		// The library's error may quote the hash.
		return digest{}, &HashError{Reason: s.name + ", but malformed"}
	}
	return digest{hasher: h, foreign: found, max: s.max, renew: renewAlgorithm, wordpress: s.wordpress}, nil
}

func (s scheme) numbers(m []string) numbers {
	n := numbers{}
	for i, name := range s.shape.SubexpNames() {
		switch name {
		case "salt", "key":
			n[name] = base64.RawStdEncoding.DecodedLen(len(m[i]))
		case "log":
			n[name] = strings.Index(phpassDigits, m[i])
		default:
			n[name], _ = strconv.Atoi(m[i]) // at most nine digits; 0 if the group is empty
		}
	}
	return n
}

// unsupported lists prefixes of hashes that are not supported or malformed, with the reasons. The
// first prefix that matches counts.
var unsupported = []struct{ prefix, why string }{
	{"$2x$", "$2x$ is a faulty bcrypt, which gives different passwords the same hash"},
	{"$2", "bcrypt, but malformed"},
	{"$argon2id$", "argon2id, but malformed"},
	{"$argon2", "argon2: only argon2id is supported"},
	{"$scrypt$", "scrypt, but malformed"},
	{"$pbkdf2", "PBKDF2, but malformed or not with SHA-1, SHA-256 or SHA-512"},
	{"$5$", "sha-crypt, but malformed"},
	{"$6$", "sha-crypt, but malformed"},
	{"$1$", "md5 is too weak"},
	{"$apr1$", "md5 is too weak"},
	{"$md5", "md5 is too weak"},
	{"$firebase-scrypt$", "Firebase's scrypt, but malformed"},
	{"$P$", "phpass, but malformed"},
	{"$H$", "phpass, but malformed"},
	{"$S$", "Drupal's phpass, but malformed"},
	{"U$S$", "too weak: Drupal's phpass over MD5"},
	{"$y$", "yescrypt is not supported"},
	{"$gy$", "yescrypt is not supported"},
	{"$7$", "the scrypt of crypt(3) is not supported"},
	{"$sha1$", "the SHA-1 of crypt(3) is not supported"},
	{"$wp", "WordPress's bcrypt, but malformed"},
	{"$bcrypt-sha256$", "passlib's bcrypt over SHA-256, but malformed"},
	{"bcrypt_sha256$", "Django's bcrypt, but malformed"},
	{"bcrypt$", "Django's bcrypt, but malformed"},
	{"pbkdf2_", "Django's PBKDF2, but malformed or not with SHA-1 or SHA-256"},
	{"scrypt$", "Django's scrypt, but malformed"},
	{"argon2$argon2id$", "Django's argon2id, but malformed"},
	{"argon2$", "argon2: only argon2id is supported"},
	{"pbkdf2:", "Werkzeug's PBKDF2, but malformed, without its iterations, or not with SHA-1, SHA-256 or SHA-512"},
	{"scrypt:", "Werkzeug's scrypt, but malformed"},
	{"s2:", "Lucia's scrypt, but malformed"},
	{"PBKDF2$", "PBKDF2 of mosquitto-go-auth, which does not say how to read its salt"},
	{":pbkdf2:", "PBKDF2 of MediaWiki, but malformed or not with SHA-1, SHA-256 or SHA-512"},
	{":pbkdf2-", "PBKDF2 of MediaWiki over one of its earlier hashes, which is not supported"},
	{":A:", "too weak: MD5, with a salt or without"},
	{":B:", "too weak: MD5, with a salt or without"},
	{"{PKCS5S2}", "PBKDF2 of Atlassian, but malformed"},
	{"{noop}", "a clear password, which belongs in clear_password"},
	{"{PLAIN}", "a clear password, which belongs in clear_password"},
	{"{CLEARTEXT}", "a clear password, which belongs in clear_password"},
	{"{SHA256-CRYPT}", "sha-crypt, but malformed"},
	{"{SHA512-CRYPT}", "sha-crypt, but malformed"},
	{"{sha256}", "too weak: a single round of SHA-256, or Spring Security's 1024"},
	{"{SSHA", "too weak: a single round of SHA-1 or SHA-2"},
	{"{SHA", "too weak: a single round of SHA-1 or SHA-2"},
	{"{SMD5}", "too weak: MD5, with a salt or without"},
	{"{MD", "too weak: MD5, with a salt or without"},
	{"{LDAP}", "too weak: a single round of SHA-1 or SHA-2"},
	{"{bcrypt}", "bcrypt, but malformed"},
	{"{BLF-CRYPT}", "bcrypt, but malformed"},
	{"{argon2", "argon2, but malformed or not argon2id"},
	{"{scrypt", "Spring Security's scrypt, but malformed"},
	{"{PBKDF2", "PBKDF2, but malformed, or of a scheme that is not supported"},
	{"md5$", "too weak: MD5, with a salt or without"},
	{"sha1$", "too weak: SHA-1, with a salt or without"},
	{"crypt$", "too weak: crypt, which reads eight characters"},
	{"!", "Django's mark of an account without a password"},
	{aspNetHead, "ASP.NET Identity's PBKDF2, but malformed or not with SHA-1, SHA-256 or SHA-512"},
}

// unsupportedShapes maps shapes of hashes without a prefix to the reason.
var unsupportedShapes = []struct {
	shape *regexp.Regexp
	why   string
}{
	{regexp.MustCompile(`^[0-9A-Fa-f]{32}$`), "too weak: 32 hexadecimal digits are MD5 without a salt"},
	{regexp.MustCompile(`^\*?[0-9A-Fa-f]{40}$`), "too weak: 40 hexadecimal digits are SHA-1 without a salt"},
	{regexp.MustCompile(`^(?:[0-9A-Fa-f]{64}|[0-9A-Fa-f]{128})$`), "too weak: hexadecimal digits alone are a hash without a salt"},
	{regexp.MustCompile(`^[0-9A-Fa-f]{32}:[0-9A-Za-z]{1,64}$`), "too weak: 32 hexadecimal digits and a salt are MD5, as in Joomla before 3.2"},
	{regexp.MustCompile(`^a:\d+:\{s:4:"hash";`), "XenForo's hash, but malformed or with a single round, which is too weak"},
	// The base64 of a zero byte, 16 bytes of salt and 32 bytes of key.
	{regexp.MustCompile(`^A[A-P][A-Za-z0-9+/]{64}==$`), "too weak: ASP.NET Identity's second version has 1000 rounds of SHA-1"},
}

// unsupportedReason returns why stored is not a usable hash.
func unsupportedReason(stored string) string {
	for _, wrapper := range []string{"{CRYPT}", "1|", "2|", "3|"} {
		if n := len(wrapper); len(stored) > n && strings.EqualFold(stored[:n], wrapper) {
			stored = stored[n:]
		}
	}
	for _, r := range unsupported {
		n := len(r.prefix)
		if strings.HasPrefix(stored, r.prefix) || n <= len(stored) && r.prefix[0] == '{' && strings.EqualFold(stored[:n], r.prefix) {
			return r.why
		}
	}
	for _, r := range unsupportedShapes {
		if r.shape.MatchString(stored) {
			return r.why
		}
	}
	return "unknown algorithm"
}
