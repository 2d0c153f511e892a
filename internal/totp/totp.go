// Package totp computes and verifies the time-based one-time passwords of RFC 6238: six digits, a
// new code every 30 seconds, HMAC-SHA-1, which is what authenticator apps implement. It keeps no
// state. To refuse a code that was used before, its caller must store the step that Match returns.
package totp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"net/url"
	"strings"
	"time"
)

const (
	period      = 30 // seconds
	digits      = 6
	secretBytes = 20 // as RFC 4226 recommends
	window      = 1  // steps before and after that of the clock
)

// NewSecret returns a new random secret.
func NewSecret() []byte {
	secret := make([]byte, secretBytes)
	rand.Read(secret) // never returns an error
	return secret
}

// Text returns a secret as people type it into an app: base32 without padding.
func Text(secret []byte) string {
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(secret)
}

// URI returns the otpauth address that apps read from a QR code. Its text contains the secret.
// issuer names the service, and account its user.
func URI(issuer, account string, secret []byte) string {
	label := url.PathEscape(issuer) + ":" + url.PathEscape(account)
	if issuer == "" {
		label = url.PathEscape(account)
	}
	text := "otpauth://totp/" + label + "?secret=" + Text(secret)
	if issuer != "" {
		// Apps show a plus sign as it is, so PathEscape writes a space as %20.
		text += "&issuer=" + strings.ReplaceAll(url.PathEscape(issuer), "&", "%26")
	}
	return text
}

// Step returns the number of the period that contains a time.
func Step(at time.Time) int64 {
	n := at.Unix()
	if n < 0 {
		return 0
	}
	return n / period
}

// Code returns the code of a step.
func Code(secret []byte, step int64) string {
	var counter [8]byte
	binary.BigEndian.PutUint64(counter[:], uint64(step))
	mac := hmac.New(sha1.New, secret)
	mac.Write(counter[:])
	sum := mac.Sum(nil)
	offset := sum[len(sum)-1] & 15
	n := binary.BigEndian.Uint32(sum[offset:]) & (1<<31 - 1)
	return fmt.Sprintf("%0*d", digits, n%1_000_000)
}

// Match returns the step whose code was entered, and reports whether there is one. It accepts the
// step of the time and the one on either side, if they are later than after. If several match, it
// returns the earliest. White space in the code does not count. Match takes equally long whichever
// step matches.
func Match(secret []byte, entered string, at time.Time, after int64) (step int64, ok bool) {
	entered = strings.Join(strings.Fields(entered), "")
	now := Step(at)
	for s := now + window; s >= now-window; s-- {
		// The comparison comes first, so that it is made for every step.
		if subtle.ConstantTimeCompare([]byte(Code(secret, s)), []byte(entered)) == 1 && s > after {
			step, ok = s, true
		}
	}
	return step, ok
}
