package password

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Some products change a password before they hash it: Meteor passes the hexadecimal SHA-256 of the
// password to bcrypt, and Devise appends a pepper. Such a hash is stored as prepared:FORM:HASH, or
// as prepared:append:PEPPER:HASH with the pepper in base64, so that one store can hold several
// forms.
const preparedPrefix = "prepared:"

// formAppend is the form that appends a pepper, which is part of the stored text.
const formAppend = "append"

// maxAppended is the maximum length of an appended pepper in bytes. Devise generates 128.
const maxAppended = 128

// digestForms maps the other forms to the function that prepares a password.
var digestForms = map[string]func([]byte) []byte{
	"md5-hex":       inHex(func(b []byte) []byte { sum := md5.Sum(b); return sum[:] }),
	"sha1-hex":      inHex(func(b []byte) []byte { sum := sha1.Sum(b); return sum[:] }),
	"sha256-hex":    inHex(sha256Sum),
	"sha384-hex":    inHex(sha384Sum),
	"sha512-hex":    inHex(sha512Sum),
	"sha256-base64": inBase64(sha256Sum),
	"sha384-base64": inBase64(sha384Sum),
	"sha512-base64": inBase64(sha512Sum),
}

func sha256Sum(b []byte) []byte { sum := sha256.Sum256(b); return sum[:] }
func sha384Sum(b []byte) []byte { sum := sha512.Sum384(b); return sum[:] }
func sha512Sum(b []byte) []byte { sum := sha512.Sum512(b); return sum[:] }

func inHex(sum func([]byte) []byte) func([]byte) []byte {
	return func(b []byte) []byte { return hex.AppendEncode(nil, sum(b)) }
}

func inBase64(sum func([]byte) []byte) func([]byte) []byte {
	return func(b []byte) []byte { return base64.StdEncoding.AppendEncode(nil, sum(b)) }
}

// PreparedForms returns the forms that Prepared accepts, sorted.
func PreparedForms() []string {
	return slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(digestForms)), formAppend)))
}

// Prepared returns the text to store for a hash of another product that changes a password before
// it hashes it. The form says how: "md5-hex", "sha1-hex", "sha256-hex", "sha384-hex" or
// "sha512-hex" replaces the password with its digest in lower-case hexadecimal, "sha256-base64",
// "sha384-base64" or "sha512-base64" with its digest in padded base64, and "append" appends the
// pepper, of at most 128 bytes. The other forms take no pepper.
//
// The pepper of "append" is part of the returned text. An attacker who reads the stored text can
// guess passwords at the cost of the hash alone, as if there were no pepper, until the first login
// replaces the text.
//
// If hash begins with "prepared:", Prepared returns it unchanged. The error matches ErrOptions.
// Hasher.Usable reports whether the hash itself can be verified.
func Prepared(form, pepper, hash string) (string, error) {
	_, known := digestForms[form]
	switch {
	case !known && form != formAppend:
		return "", fmt.Errorf("%w: there is no form %q of prepared passwords; want one of %s", ErrOptions, form, strings.Join(PreparedForms(), ", "))
	case form == formAppend && (pepper == "" || len(pepper) > maxAppended):
		return "", fmt.Errorf("%w: the appended pepper has %d bytes; want 1 to %d", ErrOptions, len(pepper), maxAppended)
	case form != formAppend && pepper != "":
		return "", fmt.Errorf("%w: the form %s has no pepper", ErrOptions, form)
	case strings.HasPrefix(hash, preparedPrefix):
		return hash, nil
	case form == formAppend:
		form += ":" + base64.RawURLEncoding.EncodeToString([]byte(pepper))
	}
	return preparedPrefix + form + ":" + hash, nil
}

// parsePrepared parses what follows preparedPrefix.
func (h *Hasher) parsePrepared(stored string) (digest, error) {
	form, hash, _ := strings.Cut(stored, ":")
	prepare, pepper := digestForms[form], []byte(nil)
	if form == formAppend {
		text, rest, _ := strings.Cut(hash, ":")
		var err error
		pepper, err = base64.RawURLEncoding.Strict().DecodeString(text)
		if err != nil || len(pepper) == 0 || len(pepper) > maxAppended {
			return digest{}, &HashError{Reason: "prepared, but with a malformed pepper"}
		}
		hash, prepare = rest, func(b []byte) []byte { return append(slices.Clip(b), pepper...) }
	}
	if prepare == nil {
		return digest{}, &HashError{Reason: "prepared, but in an unknown form"}
	}
	if strings.HasPrefix(hash, preparedPrefix) {
		return digest{}, &HashError{Reason: "prepared twice"}
	}
	d, err := h.parse(hash)
	switch {
	case err != nil:
		return digest{}, err
	case d.prehash != nil || d.pepper != nil || d.wordpress:
		return digest{}, &HashError{Reason: "prepared, but its algorithm already changes passwords"}
	}
	d.original, d.renew, d.prehash = false, renewAlgorithm, prepare
	if d.foreign == nil {
		d.max, d.prehash = maxPepperedBytes, func(b []byte) []byte { b = prepare(b); return b[:min(len(b), maxBytes)] }
	} else {
		d.max -= len(pepper)
	}
	return d, nil
}
