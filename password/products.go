package password

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
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
}

// parseProduct parses a product's text form of bcrypt. ok reports whether stored has such a form.
func (h *Hasher) parseProduct(stored string) (d digest, ok bool, err error) {
	for _, t := range bcryptTexts {
		rest, prefixed := strings.CutPrefix(stored, t.prefix)
		if !prefixed {
			continue
		}
		mark, hash, ok := cutBcrypt(rest)
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

// Django uses the text of a salt as its bytes. Its keys are in base64 with padding.
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
	var n uint
	fmt.Sscan(m[1], &n)
	key, err := base64.StdEncoding.Strict().DecodeString(m[5])
	if err != nil || bits.OnesCount(n) != 1 {
		return stored
	}
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$scrypt$ln=%d,r=%s,p=%s$%s$%s", bits.Len(n)-1, m[3], m[4],
		b64.EncodeToString([]byte(m[2])), b64.EncodeToString(key))
}

// pbkdf2Text returns a hash in the form that the PBKDF2 schemes parse. Its base64 has dots in place
// of plus signs.
func pbkdf2Text(hash, iterations string, salt, key []byte) string {
	b64 := base64.RawStdEncoding
	return "$pbkdf2-" + hash + "$" + iterations + "$" +
		strings.ReplaceAll(b64.EncodeToString(salt)+"$"+b64.EncodeToString(key), "+", ".")
}

// Version 3 of ASP.NET Identity consists of the following, in base64: a byte 1; the hash function,
// the iterations and the length of the salt as big-endian 32-bit numbers; the salt; the key.
const (
	aspNetHead   = "AQAAAA" // 1, and a hash function below 4
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
