package password

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/bits"
	"regexp"
	"strconv"
	"strings"
)

// A spelling is a text form in which a product writes a hash that one of the schemes verifies.
type spelling struct {
	shape *regexp.Regexp
	// convert returns the hash in the form of a scheme, or "" if it is malformed; m holds the
	// groups of the match.
	convert func(m []string) string
	nfkc    bool // the product normalizes passwords to NFKC
}

// In the shapes, a salt that is text consists of printable ASCII characters other than $ and space.
var spellings = []spelling{
	// PHC string format: AdonisJS, @phc/pbkdf2 and others.
	{
		shape:   regexp.MustCompile(`^\$pbkdf2-(sha1|sha256|sha512)\$i=([1-9]\d{0,8})(?:,l=(\d{1,3}))?\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)$`),
		convert: phcPBKDF2,
	},
	{
		shape:   regexp.MustCompile(`^\$scrypt\$[nN]=([1-9]\d{0,8}),r=([1-9]\d{0,8}),p=([1-9]\d{0,8})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)$`),
		convert: func(m []string) string { return scryptText(m[1], m[2], m[3], m[4], m[5]) },
	},
	// Mattermost 11.
	{
		shape:   regexp.MustCompile(`^\$pbkdf2\$f=(SHA256|SHA512),w=([1-9]\d{0,8}),l=(\d{1,3})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)$`),
		convert: func(m []string) string { m[1] = strings.ToLower(m[1]); return phcPBKDF2(m) },
	},
	// MediaWiki. Its versions before 1.30 wrote keys of 128 bytes.
	{
		shape: regexp.MustCompile(`^:pbkdf2:(sha1|sha256|sha512):([1-9]\d{0,8}):(\d{1,3}):([A-Za-z0-9+/]+)(={0,2}):([A-Za-z0-9+/]+)(={0,2})$`),
		convert: func(m []string) string {
			if !padded(m[4], m[5]) || !padded(m[6], m[7]) {
				return ""
			}
			if length, _ := strconv.Atoi(m[3]); length != base64.RawStdEncoding.DecodedLen(len(m[6])) {
				return ""
			}
			return phcPBKDF2([]string{"", m[1], m[2], "", m[4], firstBlock(m[1], m[6])})
		},
	},
	// Jira, Confluence and others of Atlassian: 16 bytes of salt, and the key.
	{
		shape: regexp.MustCompile(`^\{PKCS5S2\}([A-Za-z0-9+/]{64})$`),
		convert: func(m []string) string {
			b, _ := base64.StdEncoding.DecodeString(m[1]) // the shape allows nothing else
			return pbkdf2Text("sha1", "10000", b[:16], b[16:])
		},
	},
	// ZITADEL: the form of passlib, but with the padding of base64.
	{
		shape: regexp.MustCompile(`^(\$pbkdf2(?:-sha1|-sha256|-sha512)?\$[1-9]\d{0,8}\$)([A-Za-z0-9+/]+)(={0,2})\$([A-Za-z0-9+/]+)(={0,2})$`),
		convert: func(m []string) string {
			if !padded(m[2], m[3]) || !padded(m[4], m[5]) {
				return ""
			}
			return m[1] + strings.ReplaceAll(m[2]+"$"+m[4], "+", ".")
		},
	},
	// OpenLDAP's module pw-pbkdf2.
	{
		shape: regexp.MustCompile(`^(?i:\{PBKDF2(-SHA1|-SHA256|-SHA512)?\})([1-9]\d{0,8}\$[A-Za-z0-9./]+\$[A-Za-z0-9./]+)$`),
		convert: func(m []string) string {
			return "$pbkdf2" + strings.ToLower(m[1]) + "$" + m[2]
		},
	},
	// Dovecot.
	{
		shape: regexp.MustCompile(`^(?i:\{PBKDF2\})\$1\$([!-#%-~]{1,64})\$([1-9]\d{0,8})\$([0-9a-f]{40})$`),
		convert: func(m []string) string {
			return pbkdf2Text("sha1", m[2], []byte(m[1]), fromHex(m[3]))
		},
	},
	// Werkzeug.
	{
		shape: regexp.MustCompile(`^pbkdf2:(sha1|sha256|sha512):([1-9]\d{0,8})\$([!-#%-~]{1,64})\$((?:[0-9a-f]{2})+)$`),
		convert: func(m []string) string {
			return pbkdf2Text(m[1], m[2], []byte(m[3]), fromHex(m[4]))
		},
	},
	{
		shape: regexp.MustCompile(`^scrypt:([1-9]\d{0,8}):([1-9]\d{0,8}):([1-9]\d{0,8})\$([!-#%-~]{1,64})\$((?:[0-9a-f]{2})+)$`),
		convert: func(m []string) string {
			return scryptText(m[1], m[2], m[3], rawBase64([]byte(m[4])), rawBase64(fromHex(m[5])))
		},
	},
	// Better Auth and Lucia 3; Lucia 2 puts "s2:" in front. The salt is the text of the digits.
	{
		shape: regexp.MustCompile(`^(?:s2:)?([0-9a-f]{32}):([0-9a-f]{128})$`),
		convert: func(m []string) string {
			return scryptText("16384", "16", "1", rawBase64([]byte(m[1])), rawBase64(fromHex(m[2])))
		},
		nfkc: true,
	},
	// Spring Security. {scrypt} writes log2(N), r and p as one hexadecimal number.
	{
		shape:   regexp.MustCompile(`^\{scrypt(?:@SpringSecurity_v5_8)?\}\$([0-9a-f]{1,2})([0-9a-f]{2})([0-9a-f]{2})\$([A-Za-z0-9+/]+)(={0,2})\$([A-Za-z0-9+/]+)(={0,2})$`),
		convert: springScrypt,
	},
	{
		shape: regexp.MustCompile(`^\{pbkdf2\}([0-9a-f]{16})([0-9a-f]{64})$`),
		convert: func(m []string) string {
			return pbkdf2Text("sha1", "185000", fromHex(m[1]), fromHex(m[2]))
		},
	},
	{
		shape: regexp.MustCompile(`^\{pbkdf2@SpringSecurity_v5_8\}([0-9a-f]{32})([0-9a-f]{64})$`),
		convert: func(m []string) string {
			return pbkdf2Text("sha256", "310000", fromHex(m[1]), fromHex(m[2]))
		},
	},
	// A hash of crypt(3) or argon2 after the name of its scheme (LDAP, Dovecot, Spring Security) or
	// after the version of Nextcloud's hasher.
	{
		shape: regexp.MustCompile(`^(?i:\{CRYPT\}|\{SHA256-CRYPT\}|\{SHA512-CRYPT\}|\{ARGON2(?:ID|@SpringSecurity_v5_8)?\}|[1-3]\|)(\$(?:5|6|argon2id)\$.*)$`),
		convert: func(m []string) string {
			return m[1]
		},
	},
}

// convertSpelling converts a hash in a product's spelling to the form of a scheme. It returns any
// other text unchanged. nfkc reports whether the product normalizes passwords to NFKC.
func convertSpelling(stored string) (text string, nfkc bool) {
	for _, s := range spellings {
		if m := s.shape.FindStringSubmatch(stored); m != nil {
			if text := s.convert(m); text != "" {
				return text, s.nfkc
			}
		}
	}
	return normalize(stored), false
}

func phcPBKDF2(m []string) string {
	if length, _ := strconv.Atoi(m[3]); m[3] != "" && length != base64.RawStdEncoding.DecodedLen(len(m[5])) {
		return ""
	}
	return "$pbkdf2-" + m[1] + "$" + m[2] + "$" + strings.ReplaceAll(m[4]+"$"+m[5], "+", ".")
}

// firstBlock cuts a key of over 64 bytes to the first block of PBKDF2, which suffices to verify a
// password.
func firstBlock(hash, key string) string {
	b, err := base64.RawStdEncoding.DecodeString(key)
	if err != nil || len(b) <= 64 {
		return key
	}
	return rawBase64(b[:map[string]int{"sha1": 20, "sha256": 32, "sha512": 64}[hash]])
}

// scryptText returns a hash in the form that the scheme of scrypt parses, or "" if n is not a power
// of two. Salt and key are in base64 without padding.
func scryptText(n, r, p, salt, key string) string {
	number, _ := strconv.Atoi(n) // at most nine digits
	if bits.OnesCount(uint(number)) != 1 {
		return ""
	}
	return fmt.Sprintf("$scrypt$ln=%d,r=%s,p=%s$%s$%s", bits.Len(uint(number))-1, r, p, salt, key)
}

func springScrypt(m []string) string {
	if !padded(m[4], m[5]) || !padded(m[6], m[7]) {
		return ""
	}
	var n [3]uint64
	for i := range n {
		n[i], _ = strconv.ParseUint(m[i+1], 16, 8)
	}
	return fmt.Sprintf("$scrypt$ln=%d,r=%d,p=%d$%s$%s", n[0], n[1], n[2], m[4], m[6])
}

// padded reports whether text is followed by the padding that base64 requires.
func padded(text, padding string) bool { return (len(text)+len(padding))%4 == 0 }

func rawBase64(b []byte) string { return base64.RawStdEncoding.EncodeToString(b) }

// fromHex decodes hexadecimal digits that a shape has accepted.
func fromHex(digits string) []byte {
	b, _ := hex.DecodeString(digits)
	return b
}
