package password

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/internal/hashcost"
)

func TestNew(t *testing.T) {
	key := func(n int) []byte { return []byte(strings.Repeat("k", n)) }
	for _, tt := range []struct {
		o    Options
		cost int
		err  string
	}{
		{Options{}, 12, ""},
		{Options{Cost: 10}, 10, ""},
		{Options{Cost: 13}, 13, ""},
		{Options{Cost: 15}, 15, ""},
		{Options{Cost: 4}, 10, ""}, // the minimum
		{Options{Cost: 1}, 10, ""},
		{Options{Cost: 16}, 0, "password options: bcrypt cost 16 is not between 0 and 15"},
		{Options{Cost: -1}, 0, "password options: bcrypt cost -1 is not between 0 and 15"},
		{Options{Peppers: [][]byte{key(16), key(1024)}}, 12, ""},
		{Options{Peppers: [][]byte{key(15)}}, 0, "password options: pepper 1 has 15 bytes, not 16 to 1024"},
		{Options{Peppers: [][]byte{key(16), nil}}, 0, "password options: pepper 2 has 0 bytes, not 16 to 1024"},
		{Options{Peppers: [][]byte{key(1025)}}, 0, "password options: pepper 1 has 1025 bytes, not 16 to 1024"},
		{Options{Peppers: [][]byte{pepperA, pepperB, pepperA}}, 0, "password options: peppers 1 and 3 have the same name: replace one"},
	} {
		h, err := New(tt.o)
		checkError(t, fmt.Sprint(tt.o.Cost), err, tt.err)
		if err != nil && !errors.Is(err, ErrOptions) {
			t.Errorf("cost %d: %v is not ErrOptions", tt.o.Cost, err)
		}
		if err == nil && h.Cost() != tt.cost {
			t.Errorf("New with cost %d hashes with %d, want %d", tt.o.Cost, h.Cost(), tt.cost)
		}
	}
}

// testMain stands for a testing.M.
type testMain func()

func (f testMain) Run() int { f(); return 0 }

func TestNewInTestsOfOtherPackages(t *testing.T) {
	hashcost.Cheap(testMain(func() {
		for cost, want := range map[int]int{0: 4, 10: 4, 12: 4, 13: 5} {
			h, err := New(Options{Cost: cost})
			if err != nil || h.Cost() != want {
				t.Errorf("cost %d became %v, %v, want %d", cost, h, err, want)
			}
		}
	}))
}

// TestNewCopiesPeppers checks that the caller may clear or change the peppers after New.
func TestNewCopiesPeppers(t *testing.T) {
	key := []byte("a key that will be wiped")
	h := cheap(t, key)
	hash := h.mustHash(t, "secret")
	clear(key)
	if got, err := h.Verify(hash, "secret"); err != nil || !got.OK {
		t.Errorf("after the caller cleared the pepper, Verify returns %v, %v; want OK", got, err)
	}
}

// TestHashForm checks that hashes have the prefix $2a$ and the requested cost, that they are short
// enough for Redis to store compactly, and that other bcrypt programs can read them if they have no
// pepper. The name of a pepper must never change.
func TestHashForm(t *testing.T) {
	real, err := New(Options{Cost: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		h      *Hasher
		prefix string
		length int
	}{
		{real, "$2a$10$", 60},
		{cheap(t), "$2a$04$", 60},
		{cheap(t, pepperA), "pVoW$2a$04$", 64},
		{cheap(t, pepperB, pepperA), "pVZV$2a$04$", 64},
	} {
		hash := tt.h.mustHash(t, "secret")
		if !strings.HasPrefix(hash, tt.prefix) || len(hash) != tt.length {
			t.Errorf("hash of %d bytes begins %q, want %d and %q", len(hash), hash[:12], tt.length, tt.prefix)
		}
		if again := tt.h.mustHash(t, "secret"); again == hash {
			t.Error("two hashes of one password are equal: no salt")
		}
		err := bcrypt.CompareHashAndPassword([]byte(hash), []byte("secret"))
		if plain := tt.length == 60; (err == nil) != plain {
			t.Errorf("%s: bcrypt alone verifies it: %v, want %v", tt.prefix, err == nil, plain)
		}
	}
}

func TestHashErrors(t *testing.T) {
	plain, peppered := cheap(t), cheap(t, pepperA)
	for _, tt := range []struct {
		name     string
		h        *Hasher
		password string
		rule     string
		err      string
	}{
		{"72 bytes", plain, strings.Repeat("x", 72), "", ""},
		{"73 bytes", plain, strings.Repeat("x", 73), ruleMax, "password refused: over 72 bytes"},
		{"36 characters of two bytes", plain, strings.Repeat("ä", 36), "", ""},
		{"37 characters of two bytes", plain, strings.Repeat("ä", 37), ruleMax, "password refused: over 72 bytes"},
		{"1024 bytes", peppered, strings.Repeat("x", 1024), "", ""},
		{"1025 bytes", peppered, strings.Repeat("x", 1025), ruleMax, "password refused: over 1024 bytes"},
		{"empty", plain, "", "", ""},
		{"NUL", plain, "a\x00b", "", ""},
		{"repeats around a NUL", plain, "ab\x00ab", ruleNUL, "password refused: it repeats itself after a NUL byte, which bcrypt cannot tell from its first part"},
		{"repeats around NULs up to 72 bytes", plain, stream("ab"), ruleNUL, "password refused: it repeats itself after a NUL byte, which bcrypt cannot tell from its first part"},
		{"only a NUL", plain, "\x00", ruleNUL, "password refused: it repeats itself after a NUL byte, which bcrypt cannot tell from its first part"},
		{"repeats around a NUL, peppered", peppered, "ab\x00ab", "", ""},
		{"not UTF-8", plain, "\xff\xfe", "", ""},
	} {
		hash, err := tt.h.Hash(tt.password)
		checkError(t, tt.name, err, tt.err)
		if err == nil {
			continue
		}
		var refused *PolicyError
		if !errors.Is(err, ErrPolicy) || !errors.As(err, &refused) || refused.Rule != tt.rule || hash != "" {
			t.Errorf("%s: %q, %#v, want rule %q", tt.name, hash, err, tt.rule)
		}
	}
}

// TestBytesAreHashedAsGiven checks that passwords are compared as they are: a text with other bytes
// is wrong, however similar it is, unless it is the same text in the other Unicode form.
func TestBytesAreHashedAsGiven(t *testing.T) {
	alike := []string{"Straße", "straße", "Strasse", " Straße", "Straße ", "Straße\n", "Straße\x00", "Strasse\u0301", "Strassé", ""}
	for _, h := range []*Hasher{cheap(t), cheap(t, pepperA)} {
		for i, password := range alike {
			hash := h.mustHash(t, password)
			for j, other := range alike {
				got, err := h.Verify(hash, other)
				if want := i == j || norm.NFC.String(password) == norm.NFC.String(other); err != nil || got.OK != want {
					t.Errorf("hash of %q, password %q: got %v, %v, want %v", password, other, got.OK, err, want)
				}
			}
		}
	}
}

func TestHashThenVerify(t *testing.T) {
	plain, peppered := cheap(t), cheap(t, pepperA, pepperB)
	rapid.Check(t, func(r *rapid.T) {
		h, limit := plain, 72
		if rapid.Bool().Draw(r, "peppered") {
			h, limit = peppered, 1024
		}
		password := string(rapid.SliceOfN(rapid.Byte(), 0, limit).Draw(r, "password"))
		hash, err := h.Hash(password)
		if err != nil {
			r.Skip("repeats itself around a NUL byte")
		}
		if got, err := h.Verify(hash, password); err != nil || got != (Result{OK: true}) {
			r.Fatalf("right password: got %+v, %v; want OK", got, err)
		}
		other := string(rapid.SliceOfN(rapid.Byte(), 0, limit+2).Draw(r, "other"))
		if got, err := h.Verify(hash, other); err != nil || got.OK && other != password {
			r.Fatalf("wrong password %q: got %+v, %v; want it refused", other, got, err)
		}
	})
}

// stream returns what bcrypt reads of a password: the password and a NUL, repeated up to 72 bytes.
func stream(password string) string {
	return strings.Repeat(password+"\x00", 72)[:72]
}

// TestNoTwoPasswordsShareHash checks that Hash accepts no two passwords that bcrypt cannot tell
// apart.
func TestNoTwoPasswordsShareHash(t *testing.T) {
	// There are such passwords:
	hash := cheap(t).mustHash(t, "ab")
	if bcrypt.CompareHashAndPassword([]byte(hash), []byte("ab\x00ab")) != nil {
		t.Error("bcrypt tells ab from ab NUL ab; then nothing needs to be refused")
	}
	d := cheap(t).newDigest()
	few := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 0, 0, 'a', 'b'}), 0, 72)
	rapid.Check(t, func(r *rapid.T) {
		part := string(few.Draw(r, "part"))
		a, b := string(few.Draw(r, "a")), stream(part)[:rapid.IntRange(0, 72).Draw(r, "length")]
		for _, pair := range [][2]string{{a, b}, {part, b}} {
			_, errA := d.secret(pair[0])
			_, errB := d.secret(pair[1])
			if errA == nil && errB == nil && pair[0] != pair[1] && stream(pair[0]) == stream(pair[1]) {
				r.Fatalf("%q and %q are both accepted, and bcrypt cannot tell them apart", pair[0], pair[1])
			}
		}
	})
	// Hash refuses no more than necessary.
	rapid.Check(t, func(r *rapid.T) {
		p := string(few.Draw(r, "password"))
		shorter := false
		for i := range p {
			shorter = shorter || stream(p[:i]) == stream(p)
		}
		if _, err := d.secret(p); (err != nil) != shorter {
			r.Fatalf("%q: %v, but a shorter password has the same hashes: %v", p, err, shorter)
		}
	})
}

// TestHasherPrintsNoPepper checks that printing a Hasher shows no pepper.
func TestHasherPrintsNoPepper(t *testing.T) {
	h := cheap(t, pepperA)
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		got := fmt.Sprintf(format, h)
		if want := "bcrypt cost 4, 1 peppers"; strings.Trim(got, `"`) != want {
			t.Errorf("%s prints %q, want %q", format, got, want)
		}
	}
	inside := struct{ h *Hasher }{h}
	if got := fmt.Sprintf("%+v", inside); strings.Contains(got, "112 101 112") || strings.Contains(got, "pepper") {
		t.Errorf("a struct that holds a pepper prints it: %q", got)
	}
}

// TestPepperNameDiffersFromSecret checks that the name of a pepper does not reveal the MAC of a
// password.
func TestPepperNameDiffersFromSecret(t *testing.T) {
	p := pepper{id: pepperID(pepperA), key: pepperA}
	if got := string(p.apply([]byte("name of this pepper"))); strings.HasPrefix(got, p.id) {
		t.Errorf("the input of bcrypt, %q, begins with the name of the pepper, %q", got, p.id)
	}
}

// TestHashable checks that Hashable returns the same errors as Hash, but does not hash.
func TestHashable(t *testing.T) {
	h := cheap(t)
	for _, pw := range []string{"", "correct horse", strings.Repeat("x", 72), strings.Repeat("x", 73), "x\x00x"} {
		err := h.Hashable(pw)
		if own, other := h.Work(); own+other != 0 {
			t.Fatalf("%q was hashed", pw)
		}
		if _, want := cheap(t).Hash(pw); fmt.Sprint(err) != fmt.Sprint(want) {
			t.Errorf("%q: got %v, want %v", pw, err, want)
		}
	}
}
