package password

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

func TestPolicyCheck(t *testing.T) {
	own := []string{"Alice", "alice.b@Hotmail.com", "+49 30 1234567", ""}
	full := Policy{Min: 8, Blocklist: true, Strength: 3}
	min8 := Policy{Min: 8}
	list := Policy{Blocklist: true}
	const (
		short   = "password refused: 7 characters are fewer than 8"
		common  = "password refused: it is one of the most common passwords, which are tried first"
		owners  = "password refused: it is a name, address or other identifier of its owner"
		weak    = "password refused: its strength 0 is less than 3: add another word or two, preferably unusual"
		tooLong = "password refused: over 1024 bytes"
	)
	for _, tt := range []struct {
		p        Policy
		password string
		rule     string
		err      string
	}{
		{Policy{}, "", "", ""},
		{Policy{}, "123456", "", ""},
		{Policy{}, "alice", "", ""},

		{min8, "1234567", ruleMin, short},
		{min8, "12345678", "", ""},
		{min8, "ääääääää", "", ""},
		{min8, "äääääää", ruleMin, short}, // 14 bytes
		{min8, "😀😀😀😀😀😀😀", ruleMin, short},
		{min8, "😀😀😀😀😀😀😀😀", "", ""},
		{min8, "e\u0301e\u0301e\u0301e\u0301", "", ""}, // code points count, not visible characters
		{min8, "", ruleMin, "password refused: 0 characters are fewer than 8"},
		{min8, "\xff\xff\xff\xff\xff\xff\xff", ruleMin, short},
		{min8, strings.Repeat("x", 1024), "", ""},
		{min8, strings.Repeat("x", 1025), ruleMax, tooLong},

		{list, "123456", ruleBlocklist, common},
		{list, "geekboy", ruleBlocklist, common}, // the last on the list
		{list, "PassWord", ruleBlocklist, common},
		{list, "ｐａｓｓｗｏｒｄ", ruleBlocklist, common},
		{list, "㎩ssword", ruleBlocklist, common}, // the first character decomposes to "Pa"
		{list, " password ", ruleBlocklist, common},
		{list, "123456\npassword", "", ""},
		{list, "", "", ""},
		{list, "correct horse battery", "", ""},

		{min8, "alice.b@hotmail.com", ruleIdentifier, owners},
		{min8, "ALICE.B@HOTMAIL.COM", ruleIdentifier, owners},
		{min8, "+49 30 1234567", ruleIdentifier, owners},
		{list, "aLiCe", ruleIdentifier, owners},
		{Policy{Min: 1}, "aLiCe", ruleIdentifier, owners},
		{Policy{Min: 1}, "alice.B", ruleIdentifier, owners},
		{Policy{Min: 1}, "alice.b@", "", ""},
		{min8, "alice and the rabbit", "", ""},
		{list, "hotmail.com", "", ""},

		{full, "abcabcabc", ruleStrength, weak},
		{full, "alice.b@hotmail.com1", ruleStrength, "password refused: its strength 1 is less than 3: add another word or two, preferably unusual"},
		{full, "fjord umbrella 91 quilts", "", ""},
		{full, "qwertyuiop", ruleBlocklist, common}, // the first rule that it violates
		{Policy{Strength: 4}, "fjord umbrella 91 quilts", "", ""},
		{Policy{Strength: -1}, "1", "", ""},
	} {
		err := tt.p.Check(tt.password, own...)
		checkError(t, tt.password, err, tt.err)
		var refused *PolicyError
		if err != nil && (!errors.Is(err, ErrPolicy) || !errors.As(err, &refused) || refused.Rule != tt.rule) {
			t.Errorf("%.20q: got %#v, want rule %q", tt.password, err, tt.rule)
		}
	}
}

// TestPolicyErrorDoesNotContainPassword checks that the reason for a refusal never contains the
// password.
func TestPolicyErrorDoesNotContainPassword(t *testing.T) {
	p := Policy{Min: 12, Blocklist: true, Strength: 4}
	words := rapid.SampledFrom([]string{"xyzzy", "qwertz", "Rumpelstiltskin", "19.11.1999", "😀ß", "zxcvbn"})
	rapid.Check(t, func(r *rapid.T) {
		password := strings.Join(rapid.SliceOfN(words, 1, 4).Draw(r, "words"), "")
		if err := p.Check(password, password); err != nil && strings.Contains(err.Error(), password) {
			r.Fatalf("the error reveals the password %q: %q", password, err)
		}
	})
}

// TestBlocklistIsComplete checks that the embedded list equals its source.
func TestBlocklistIsComplete(t *testing.T) {
	text, err := unpack(packed)
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(words) != 30_000 {
		t.Fatalf("%d words, want 30000", len(words))
	}
	for rank, want := range map[int]string{1: "123456", 2: "password", 10: "dragon", 29_999: "rebon", 30_000: "geekboy"} {
		if got := words[rank-1]; got != want {
			t.Errorf("rank %d is %q, want %q", rank, got, want)
		}
	}
	sum := sha256.Sum256([]byte(text))
	if got, want := hex.EncodeToString(sum[:]), "a9746c337c6c07a0e439d492a5e15238e799eff05ec52d60f6a4b3dfdc893265"; got != want {
		t.Errorf("SHA-256 of the list is %s, want %s", got, want)
	}
	for _, w := range words {
		if fold(w) != w || strings.ContainsFunc(w, unicode.IsSpace) {
			t.Errorf("%q is not in the form that passwords are compared in", w)
		}
		if found, err := isCommon(w); err != nil || !found {
			t.Errorf("%q is on the list and not found: %v", w, err)
		}
	}
}

// TestBlocklistIsExact checks that isCommon agrees with a linear search of the list, also for
// passwords that nearly equal one on the list.
func TestBlocklistIsExact(t *testing.T) {
	text, err := unpack(packed)
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(text)
	rapid.Check(t, func(r *rapid.T) {
		w := rapid.SampledFrom(words).Draw(r, "word")
		at := rapid.IntRange(0, len(w)).Draw(r, "at")
		w = w[:at] + rapid.SampledFrom([]string{"", "a", "0", "\n", "\x00"}).Draw(r, "insert") + w[at:]
		got, err := isCommon(w)
		if want := slices.Contains(words, w); err != nil || got != want {
			r.Fatalf("isCommon(%q) = %v, %v, want %v", w, got, err, want)
		}
	})
}

// TestDamagedBlocklist checks that a damaged list is an error, not an empty list.
func TestDamagedBlocklist(t *testing.T) {
	for _, tt := range []struct {
		packed []byte
		err    string
	}{
		{nil, "reading the common passwords: EOF"},
		{[]byte("123456\npassword\n"), "reading the common passwords: gzip: invalid header"},
		{packed[:1000], "reading the common passwords: unexpected EOF"},
	} {
		text, err := unpack(tt.packed)
		checkError(t, "unpack", err, tt.err)
		if text != "" {
			t.Errorf("unpack returns %d bytes with its error, want 0", len(text))
		}
	}
}

func BenchmarkBlocklist(b *testing.B) {
	for b.Loop() {
		if found, err := isCommon("correct horse battery"); err != nil || found {
			b.Fatal(found, err)
		}
	}
}
