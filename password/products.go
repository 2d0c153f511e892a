package password

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

// A bcryptText describes the text form in which a product stores bcrypt hashes.
type bcryptText struct {
	prefix    string
	prehash   func([]byte) []byte // applied to a password before bcrypt; may be nil
	wordpress bool
}

var bcryptTexts = []bcryptText{
	{prefix: "$wp", prehash: wordPressSecret, wordpress: true},
	{prefix: "bcrypt_sha256$", prehash: djangoSecret},
	{prefix: "bcrypt$"},
	{prefix: "{bcrypt}"},    // Spring Security
	{prefix: "{BLF-CRYPT}"}, // Dovecot
	{prefix: "{CRYPT}"},     // LDAP
	{prefix: "1|"},          // Nextcloud
}

// parseProduct parses a product's text form of bcrypt. ok reports whether stored has such a form.
func (h *Hasher) parseProduct(stored string) (d digest, ok bool, err error) {
	if m := passlibShape.FindStringSubmatch(stored); m != nil {
		if d, err = h.parseBcrypt("", fmt.Sprintf("$%s$%02s$%s%s", m[2], m[3], m[4], m[5])); err != nil {
			return digest{}, true, err
		}
		d.original, d.renew, d.max, d.prehash = false, renewAlgorithm, maxPepperedBytes, passlibSecret(m[1] != "", m[4])
		return d, true, nil
	}
	for _, t := range bcryptTexts {
		n := min(len(t.prefix), len(stored))
		if !strings.EqualFold(stored[:n], t.prefix) {
			continue
		}
		mark, hash, ok := cutBcrypt(stored[n:])
		if !ok || mark != "" {
			continue
		}
		if d, err = h.parseBcrypt("", hash); err != nil {
			return digest{}, true, err
		}
		d.original, d.renew, d.prehash, d.wordpress = false, renewAlgorithm, t.prehash, t.wordpress
		if t.prehash != nil {
			d.max = maxPepperedBytes
		}
		return d, true, nil
	}
	return digest{}, false, nil
}

// passlibShape matches passlib's bcrypt_sha256 in both versions: the second, such as
// $bcrypt-sha256$v=2,t=2b,r=12$SALT$HASH, and the first, such as $bcrypt-sha256$2b,12$SALT$HASH.
var passlibShape = regexp.MustCompile(`^\$bcrypt-sha256\$(v=2,t=)?(2[ab]),(?:r=)?(\d{1,2})\$([A-Za-z0-9./]{22})\$([A-Za-z0-9./]{31})$`)

// passlibSecret returns a function that prepares a password for bcrypt as passlib does.
func passlibSecret(second bool, salt string) func([]byte) []byte {
	return func(password []byte) []byte {
		sum := sha256.New()
		if second {
			sum = hmac.New(sha256.New, []byte(salt))
		}
		sum.Write(password) // cannot fail
		return base64.StdEncoding.AppendEncode(nil, sum.Sum(nil))
	}
}

// djangoSecret returns the bytes that Django's bcrypt_sha256 passes to bcrypt.
func djangoSecret(password []byte) []byte {
	sum := sha256.Sum256(password)
	return hex.AppendEncode(nil, sum[:])
}

// normalize converts a text of Django or ASP.NET Identity to the form that one of the schemes
// parses. It returns any other text unchanged.
func normalize(stored string) string {
	switch head, _, _ := strings.Cut(stored, "$"); {
	case head == "pbkdf2_sha256" || head == "pbkdf2_sha1":
		return djangoPBKDF2(stored)
	case head == "scrypt":
		return djangoScrypt(stored)
	case head == "argon2" && strings.HasPrefix(stored, "argon2$argon2id$"):
		return strings.TrimPrefix(stored, "argon2")
	case strings.HasPrefix(stored, aspNetHead):
		return aspNet(stored)
	}
	return stored
}

// Django does not decode the text of a salt, but uses its bytes. Its keys are in base64 with
// padding.
var (
	djangoPBKDF2Shape = regexp.MustCompile(`^pbkdf2_(sha1|sha256)\$([1-9]\d{0,8})\$([!-#%-~]{1,64})\$([A-Za-z0-9+/]+={0,2})$`)
	djangoScryptShape = regexp.MustCompile(`^scrypt\$([1-9]\d{0,8})\$([!-#%-~]{1,64})\$([1-9]\d{0,8})\$([1-9]\d{0,8})` +
		`\$([A-Za-z0-9+/]+={0,2})$`)
)

func djangoPBKDF2(stored string) string {
	m := djangoPBKDF2Shape.FindStringSubmatch(stored)
	if m == nil {
		return stored
	}
	key, err := base64.StdEncoding.Strict().DecodeString(m[4])
	if err != nil {
		return stored
	}
	return pbkdf2Text(m[1], m[2], []byte(m[3]), key)
}

// djangoScrypt converts scrypt$N$SALT$R$P$KEY.
func djangoScrypt(stored string) string {
	m := djangoScryptShape.FindStringSubmatch(stored)
	if m == nil {
		return stored
	}
	key, err := base64.StdEncoding.Strict().DecodeString(m[5])
	if err != nil {
		return stored
	}
	return cmp.Or(scryptText(m[1], m[3], m[4], rawBase64([]byte(m[2])), rawBase64(key)), stored)
}

// pbkdf2Text returns a hash in the form that the PBKDF2 schemes parse. Its base64 has dots in place
// of plus signs.
func pbkdf2Text(hash, iterations string, salt, key []byte) string {
	return "$pbkdf2-" + hash + "$" + iterations + "$" + strings.ReplaceAll(rawBase64(salt)+"$"+rawBase64(key), "+", ".")
}

// A hash of version 3 of ASP.NET Identity consists of the following, in base64: a byte 1; the hash
// function, the iterations and the length of the salt as big-endian 32-bit numbers; the salt; the
// key.
const (
	aspNetHead   = "AQAAAA" // 1, and a hash function below 16
	aspNetHeader = 13       // bytes before the salt
)

func aspNet(stored string) string {
	b, err := base64.StdEncoding.Strict().DecodeString(stored)
	if err != nil || len(b) < aspNetHeader || strings.ContainsAny(stored, "\r\n") {
		return stored
	}
	hash, iterations := binary.BigEndian.Uint32(b[1:]), binary.BigEndian.Uint32(b[5:])
	salt := uint64(binary.BigEndian.Uint32(b[9:]))
	if hash > 2 || aspNetHeader+salt > uint64(len(b)) {
		return stored
	}
	name := []string{"sha1", "sha256", "sha512"}[hash]
	return pbkdf2Text(name, fmt.Sprint(iterations), b[aspNetHeader:aspNetHeader+salt], b[aspNetHeader+salt:])
}
