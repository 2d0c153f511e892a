package password

import (
	"crypto/hmac"
	"crypto/sha512"
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// WordPress removes white space around a password, and puts a backslash before some characters of what comes through one
// of its forms, when it is set and when it is checked. What comes another way, by its commands or a plugin, is hashed
// without backslashes. So both forms are tried where they differ.
//
// A password that WordPress takes for another one as well is right here, too, but is not written as a new hash: that
// would lock out an owner who types the other one.

// phpSpace is what PHP's trim removes.
const phpSpace = " \t\n\r\x00\x0b"

var (
	addSlashes  = strings.NewReplacer(`'`, `\'`, `"`, `\"`, `\`, `\\`, "\x00", `\0`)
	cutSlashes  = strings.NewReplacer(`\'`, "", `\"`, "", `\\`, "", `\0`, "")
	wordPressID = []byte("wp-sha384")
)

// wordPressSecret is what WordPress 6.8 gives to bcrypt.
func wordPressSecret(password []byte) []byte {
	mac := hmac.New(sha512.New384, wordPressID)
	mac.Write([]byte(strings.Trim(string(password), phpSpace)))
	return base64.StdEncoding.AppendEncode(nil, mac.Sum(nil))
}

// checkWordPress reports whether the password is right, and whether it is the only one that its owner can mean.
func (d digest) checkWordPress(password string) (right, only bool) {
	form := strings.Trim(addSlashes.Replace(password), phpSpace)
	right, only = d.try(d.secret(form)), strings.Trim(password, phpSpace) == password
	// As every bcrypt hash, one of WordPress costs two for text that is not ASCII.
	if form == password && (d.foreign != nil || isASCII(password)) {
		return right, only
	}
	if d.try(d.secret(password)) && !right {
		// phpass hashes what it is given; wordPressSecret trims.
		right, only = true, (only || d.foreign != nil) && !slashed(password)
	}
	return right, only
}

// slashed reports whether text may be a password with the backslashes that a form adds.
func slashed(text string) bool {
	rest := cutSlashes.Replace(text)
	return rest != text && !strings.ContainsAny(rest, "'\"\\\x00")
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
}
