package userdb

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/internal/store/token"
)

// TestSecretText checks that secrets never begin with a hyphen and lead back to their UID.
func TestSecretText(t *testing.T) {
	for i := range 4000 {
		uid := strings.Repeat("u", 1+i%200)
		secret, err := newSecret(uid)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Trim(secret, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") != "" || secret[0] == '-' {
			t.Errorf("the secret %q begins with a hyphen or has a character that is not allowed", secret)
		}
		if got, ok := token.SecretUID(secret); !ok || got != uid {
			t.Errorf("UID of %q = %q, want %q", secret, got, uid)
		}
	}
	if _, err := newSecret(strings.Repeat("u", 201)); !errors.Is(err, ErrInvalid) {
		t.Errorf("newSecret with a UID of 201 bytes: got %v, want ErrInvalid", err)
	}
}

// TestSecretUID checks that token.SecretUID accepts only the canonical base64 text of 21 to 220
// bytes, and returns the bytes after the first 20.
func TestSecretUID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching("[A-Za-z0-9_-]{0,400}"), rapid.StringMatching("[A-Za-z0-9_-]{30,40}[\r\n=+/]?[A-Za-z0-9_-]{0,3}")).Draw(t, "text")
		uid, ok := token.SecretUID(text)
		b, err := base64.RawURLEncoding.DecodeString(text)
		if want := err == nil && base64.RawURLEncoding.EncodeToString(b) == text && len(b) > 20 && len(b) <= 220; ok != want {
			t.Fatalf("token.SecretUID(%q) = %v, want %v", text, ok, want)
		}
		if ok && uid != string(b[20:]) {
			t.Fatalf("UID of %q = %q, want %q", text, uid, b[20:])
		}
	})
}
