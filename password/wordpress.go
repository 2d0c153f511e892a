package password

import (
	"crypto/hmac"
	"crypto/sha512"
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// WordPress removes white space around a password. If a password is entered into one of its forms,
// WordPress also puts a backslash before some characters, both when the password is set and when it
// is checked. Passwords from its commands or plugins get no backslashes. A password is therefore
// tried with and without backslashes if the two differ.
//
// If WordPress would also accept a different password, the given password is correct but the hash
// is not renewed: a new hash would lock out an owner who types the other password.

// phpSpace holds the characters that PHP's trim removes.
const phpSpace = " \t\n\r\x00\x0b"

var (
	addSlashes  = strings.NewReplacer(`'`, `\'`, `"`, `\"`, `\`, `\\`, "\x00", `\0`)
	cutSlashes  = strings.NewReplacer(`\'`, "", `\"`, "", `\\`, "", `\0`, "")
	wordPressID = []byte("wp-sha384")
)

// wordPressSecret returns the bytes that WordPress 6.8 passes to bcrypt.
func wordPressSecret(password []byte) []byte {
	mac := hmac.New(sha512.New384, wordPressID)
	mac.Write([]byte(strings.Trim(string(password), phpSpace)))
	return base64.StdEncoding.AppendEncode(nil, mac.Sum(nil))
}

// checkWordPress reports whether the password is right, and whether it is the only one that the
// owner can have set.
func (d digest) checkWordPress(password string) (right, only bool) {
	form := strings.Trim(addSlashes.Replace(password), phpSpace)
	right, only = d.try(d.secret(form)), strings.Trim(password, phpSpace) == password
	// Like every bcrypt hash, one of WordPress costs three hashes for a password beyond ASCII.
	twice := form != password || d.foreign == nil && !isASCII(password)
	if twice && d.try(d.secret(password)) && !right {
		// phpass hashes the password as given; wordPressSecret trims it.
		right, only = true, (only || d.foreign != nil) && !hasSlashes(password)
	}
	throughForm := func(other string) string { return strings.Trim(addSlashes.Replace(other), phpSpace) }
	if !isASCII(password) && d.try(d.secretOfOther(password, throughForm)) && !right {
		right, only = true, false
	}
	return right, only
}

// hasSlashes reports whether text may be a password with the backslashes that a form adds.
func hasSlashes(text string) bool {
	rest := cutSlashes.Replace(text)
	return rest != text && !strings.ContainsAny(rest, "'\"\\\x00")
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
}
