package password

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// refusedPasswords lists passwords that CoffeeNode UserDB, the original of this store, hashed but
// that do not verify here, and why.
var refusedPasswords = map[string]string{
	"create_user#108 password 73":  "over 72 bytes: the original reads only the first 72, and accepts any text after them",
	"create_user#109 password 300": "over 72 bytes: the original reads only the first 72, and accepts any text after them",
}

// legacyOnly lists passwords that verify only in the original's encoding.
var legacyOnly = map[string]bool{"create_user#105 password unicode": true}

// plain matches simple passwords, of which the fixture has many. With the race detector, it would
// take minutes to verify them.
var plain = regexp.MustCompile(`^"pw[0-9]*"$`)

// TestOriginalFixture verifies every password that the original hashed or, with the race detector,
// those that are not plain.
func TestOriginalFixture(t *testing.T) {
	h, err := New(Options{Cost: 10})
	if err != nil {
		t.Fatal(err)
	}
	type record struct {
		From  string
		Value json.RawMessage
		Clear json.RawMessage `json:"password_clear"`
	}
	seen, skipped := map[string]bool{}, 0
	eachLine(t, "../test/testdata/original/original_fixture.jsonl", func(r record) {
		if r.Clear == nil {
			return
		}
		if slow && plain.Match(r.Clear) {
			skipped++
			return
		}
		var value struct{ Password string }
		if err := json.Unmarshal(r.Value, &value); err != nil {
			t.Fatalf("%s: %v", r.From, err)
		}
		seen[r.From] = true
		want := Result{OK: true}
		if legacyOnly[r.From] {
			want.Renew = renewEncoding
		}
		if _, refused := refusedPasswords[r.From]; refused {
			want = Result{}
		}
		got, err := h.VerifyOriginal(value.Password, javaScriptText(t, r.Clear))
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", r.From, got, err, want)
		}
	})
	if n := len(seen) + skipped; n != 74 {
		t.Errorf("the fixture holds %d passwords, want 74", n)
	}
	for from := range refusedPasswords {
		if !seen[from] {
			t.Errorf("%s is not in the fixture", from)
		}
	}
}

// javaScriptText returns the text to which the original converted a password before it hashed it.
func javaScriptText(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	switch v := v.(type) {
	case string:
		return v
	case []any: // the members joined by commas; the fixture has only one member
		return v[0].(string)
	case map[string]any:
		return "[object Object]"
	default:
		return string(raw) // a number
	}
}

// openwallDeviations lists test vectors of Openwall's crypt_blowfish that do not verify here, and
// why. The keys are the first 40 bytes of the passwords.
var openwallDeviations = map[string]string{
	"0123456789abcdefghijklmnopqrstuvwxyzABCD": "over 72 bytes: crypt_blowfish ignores the rest",
	strings.Repeat("\xaa", 40):                 "over 72 bytes: crypt_blowfish ignores the rest",
}

// openwallSafe lists $2a$ hashes that only crypt_blowfish computes in this way: it makes them
// differ from those of the faulty $2x$.
var openwallSafe = map[string]bool{
	"$2a$05$/OK.fbVrR/bpIqNJ5ianF.nqd1wy.pTMdcvrRWxyiGL2eMz.2a85.": true,
	"$2a$05$/OK.fbVrR/bpIqNJ5ianF.ZC1JEJ8Z4gPfpe1JOr/oyPXTWl9EFd.": true,
}

func TestOpenwallVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/bcrypt-openwall-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Hash, Setting, Expect string
		Hex                   string `json:"password_hex"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	h := cheap(t)
	found := map[string]int{}
	for _, v := range all {
		secret, err := hex.DecodeString(v.Hex)
		if err != nil {
			t.Fatal(err)
		}
		want := openwallOutcome(v.Hash, v.Expect, string(secret))
		got, err := h.Verify(v.Hash+v.Setting, string(secret))
		found[want]++
		if outcome(got, err) != want {
			t.Errorf("%s%s, password %s: got %+v, %v, want %s", v.Hash, v.Setting, v.Hex, got, err, want)
		}
	}
	if found["right"] != 16 || found["wrong"] != 4 || found["unusable"] != 15 || len(all) != 35 {
		t.Errorf("%d vectors: got %v, want 35: 16 right, 4 wrong, 15 unusable", len(all), found)
	}
}

func openwallOutcome(hash, expect, secret string) string {
	switch {
	case expect == "fail" || strings.HasPrefix(hash, "$2x$"):
		return "unusable"
	case openwallSafe[hash] || openwallDeviations[secret[:min(len(secret), 40)]] != "" && len(secret) > maxBytes:
		return "wrong"
	default:
		return "right"
	}
}

func outcome(r Result, err error) string {
	switch {
	case err != nil:
		return "unusable"
	case r.OK:
		return "right"
	default:
		return "wrong"
	}
}
