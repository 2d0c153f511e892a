package passkey

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/coffeenode/userdb/userdb"
)

// TestStoredKeySize checks that no answer is verified with a stored key that Register would refuse.
func TestStoredKeySize(t *testing.T) {
	for n, want := range map[int]error{512: nil, 513: userdb.ErrCorrupt} {
		key := append([]byte("\xa4\x01\x03\x03\x38\x24\x20\x59"), byte(n>>8), byte(n))
		for range n {
			key = append(key, 0xff)
		}
		key = append(key, "\x21\x43\x01\x00\x01"...)
		text, err := json.Marshal(stored{ID: []byte("id"), Key: key, Handle: []byte("handle")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseUser(text); !errors.Is(err, want) {
			t.Errorf("a modulus of %d bytes: got %v, want %v", n, err, want)
		}
	}
}
