package sealed_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/sealed"
)

// keyOf returns a key that consists of one letter.
func keyOf(letter string) []byte { return []byte(strings.Repeat(letter, sealed.KeySize)) }

func newRing(t *testing.T, keys ...[]byte) sealed.Ring {
	t.Helper()
	r, err := sealed.New(keys)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRotation checks that the first key encrypts and that all keys decrypt.
func TestRotation(t *testing.T) {
	a, b := newRing(t, keyOf("a")), newRing(t, keyOf("b"))
	both := newRing(t, keyOf("b"), keyOf("a"))
	text := a.Seal([]byte("secret"), "ns", "prk")
	if again := a.Seal([]byte("secret"), "ns", "prk"); again == text || strings.ContainsAny(text, " ,\n") {
		t.Errorf("sealed as %q and again as %q; want different texts without spaces, commas and newlines", text, again)
	}
	if got, err := both.Open(text, "ns", "prk"); err != nil || string(got) != "secret" {
		t.Errorf("the second key: got %q, error %v; want secret", got, err)
	}
	if _, err := b.Open(text, "ns", "prk"); !errors.Is(err, sealed.ErrKey) {
		t.Errorf("another key: got error %v, want ErrKey", err)
	}
	if !a.Current(text) || both.Current(text) || (sealed.Ring{}).Current(text) {
		t.Error("Current does not tell the first key from the others")
	}
	moved := both.Seal([]byte("secret"), "ns", "prk")
	if got, err := b.Open(moved, "ns", "prk"); err != nil || !bytes.Equal(got, []byte("secret")) {
		t.Errorf("after the rotation: got %q, error %v; want secret", got, err)
	}
}

// TestPlaces checks that a text cannot be opened in another place, or if it is damaged.
func TestPlaces(t *testing.T) {
	r := newRing(t, keyOf("a"))
	text := r.Seal([]byte("secret"), "ns", "prk")
	for _, place := range [][]string{nil, {"ns"}, {"nsp", "rk"}, {"ns", "prk", ""}, {"prk", "ns"}} {
		if got, err := r.Open(text, place...); err == nil {
			t.Errorf("opened at %q as %q, want an error", place, got)
		}
	}
	for _, damaged := range []string{"", ".", text[:len(text)-1], text + "A", text[:17], "x" + text, strings.Replace(text, ".", ".A", 1)} {
		if got, err := r.Open(damaged, "ns", "prk"); err == nil {
			t.Errorf("%q was opened as %q, want an error", damaged, got)
		}
	}
}

// TestKeys checks which keys New refuses.
func TestKeys(t *testing.T) {
	for _, keys := range [][][]byte{{nil}, {keyOf("a")[1:]}, {keyOf("a"), keyOf("a")}} {
		if _, err := sealed.New(keys); err == nil {
			t.Errorf("New accepts %q", keys)
		}
	}
	if newRing(t).Any() || !newRing(t, keyOf("a")).Any() {
		t.Error("Any does not tell whether there are keys")
	}
}
