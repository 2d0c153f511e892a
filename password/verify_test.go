package password

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"
)

// raw is a bcrypt hash of exactly these bytes, as another program made it.
func raw(t *testing.T, variant string, cost int, secret string) string {
	t.Helper()
	b, err := bcrypt.GenerateFromPassword([]byte(secret), cost)
	if err != nil {
		t.Fatal(err)
	}
	return "$2" + variant + string(b[3:])
}

func TestVerifyAndRenew(t *testing.T) {
	plain, a, ab, ba := cheap(t), cheap(t, pepperA), cheap(t, pepperA, pepperB), cheap(t, pepperB, pepperA)
	five := cheap(t).at(5)
	long := strings.Repeat("x", 100)
	for _, tt := range []struct {
		name     string
		h        *Hasher
		stored   string
		password string
		want     Result
	}{
		{"own", plain, plain.must(t, "secret"), "secret", Result{OK: true}},
		{"wrong", plain, plain.must(t, "secret"), "Secret", Result{}},
		{"own, not ASCII", plain, plain.must(t, "pässwörd"), "pässwörd", Result{OK: true}},
		{"other cost", five, plain.must(t, "secret"), "secret", Result{true, renewCost}},
		{"other cost, wrong", five, plain.must(t, "secret"), "secreT", Result{}},
		{"$2b$", plain, raw(t, "b", 4, "secret"), "secret", Result{true, renewAlgorithm}},
		{"$2y$", plain, raw(t, "y", 4, "secret"), "secret", Result{true, renewAlgorithm}},
		{"nothing stored", plain, "", "secret", Result{}},
		{"nothing stored, nothing given", plain, "", "", Result{}},
		{"hash of nothing", plain, plain.must(t, ""), "", Result{OK: true}},

		{"peppered", a, a.must(t, "secret"), "secret", Result{OK: true}},
		{"peppered, wrong", a, a.must(t, "secret"), "secret2", Result{}},
		{"peppered and long", a, a.must(t, long), long, Result{OK: true}},
		{"peppered, not ASCII", a, a.must(t, "日本"), "日本", Result{OK: true}},
		{"no pepper yet", a, plain.must(t, "secret"), "secret", Result{true, renewPepper}},
		{"new pepper", ba, a.must(t, "secret"), "secret", Result{true, renewPepper}},
		{"second pepper added", ab, a.must(t, "secret"), "secret", Result{OK: true}},
		{"no pepper yet, and wrong", a, plain.must(t, "secret"), "secre", Result{}},

		{"72 bytes", plain, plain.must(t, long[:72]), long[:72], Result{OK: true}},
		{"72 bytes and more", plain, plain.must(t, long[:72]), long[:73], Result{}},
		{"72 bytes and more, pepper in force", a, plain.must(t, long[:72]), long[:73], Result{}},
		{"1024 bytes and more", a, a.must(t, strings.Repeat("x", 1024)), strings.Repeat("x", 1025), Result{}},
		{"long, and a hash of nothing", plain, plain.must(t, ""), long, Result{}},
		{"repeats around a NUL", plain, plain.must(t, "ab"), "ab\x00ab", Result{}},
	} {
		got, err := tt.h.Verify(tt.stored, tt.password)
		wantError(t, tt.name, err, "")
		if got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// The original's form of text that is not ASCII.
func TestVerifyLegacyEncoding(t *testing.T) {
	h, peppered := cheap(t), cheap(t, pepperA)
	kana := strings.Repeat("か", 30) // 90 bytes, and 60 in the original's form
	for _, tt := range []struct {
		name     string
		h        *Hasher
		stored   string
		password string
		want     Result
	}{
		{"Latin-1", h, raw(t, "a", 4, "p\xe4ssw\xf6rd"), "pässwörd", Result{true, renewEncoding}},
		{"Cyrillic", h, raw(t, "a", 4, "\x04?\x040"), "па", Result{true, renewEncoding}},
		{"wider", h, raw(t, "a", 4, "\x65\xe5\xd8\x3d\xde\x00"), "日😀", Result{true, renewEncoding}},
		{"before pepper and cost", peppered, raw(t, "a", 5, "\xe4"), "ä", Result{true, renewEncoding}},
		{"lone surrogate", h, raw(t, "a", 4, "\xd8\x3d!"), "\xed\xa0\xbd!", Result{true, renewEncoding}},
		{"wrong", h, raw(t, "a", 4, "\xe4"), "ö", Result{}},
		{"no UTF-8", h, raw(t, "a", 4, "\xff\xfd"), "\xff", Result{}},
		{"no surrogate", h, raw(t, "a", 4, "\xd0\x40"), "\xedA\x80", Result{}},
		{"no surrogate either", h, raw(t, "a", 4, "\xd8\x01"), "\xed\xa0A", Result{}},
		{"half a surrogate", h, raw(t, "a", 4, "\xd8\x3d"), "\xed\xa0", Result{}},
		{"$2b$ is not the original's", h, raw(t, "b", 4, "\xe4"), "ä", Result{}},
		{"nor is one with a pepper", peppered, "p" + pepperID(pepperA) + raw(t, "a", 4, "\xe4"), "ä", Result{}},
		{"over 72 bytes in UTF-8 only", peppered, raw(t, "a", 4, strings.Repeat("\x30\x4b", 30)), kana, Result{true, renewEncoding}},
		{"the same, and no pepper to renew it with", h, raw(t, "a", 4, strings.Repeat("\x30\x4b", 30)), kana, Result{OK: true}},
		{"over 72 bytes in both", h, raw(t, "a", 4, strings.Repeat("\x30\x4b", 36)), strings.Repeat("か", 37), Result{}},
		{"much longer", h, raw(t, "a", 4, ""), strings.Repeat("か", 1000), Result{}},
		{"repeats around a NUL", h, raw(t, "a", 4, "ab"), "a\u6200ab", Result{}},
		// "ä" in UTF-8 reads "Ã¤" in Latin-1: renewed, it would lock out its owner.
		{"garbled on its way", h, h.must(t, "ä"), "Ã¤", Result{OK: true}},
	} {
		got, err := tt.h.Verify(tt.stored, tt.password)
		wantError(t, tt.name, err, "")
		if got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestVerifyUnusable(t *testing.T) {
	other := cheap(t, pepperB)
	for _, tt := range []struct{ stored, err string }{
		{other.must(t, "secret"), "stored hash is not usable: its pepper is not configured"},
		{raw(t, "x", 4, "secret"), "stored hash is not usable: $2x$ is bcrypt with a fault that makes passwords equal"},
		{strings.Replace(raw(t, "a", 4, "secret"), "$04$", "$31$", 1), "stored hash is not usable: bcrypt cost 31 is not between 4 and 15"},
		{strings.Replace(raw(t, "a", 4, "secret"), "$04$", "$16$", 1), "stored hash is not usable: bcrypt cost 16 is not between 4 and 15"},
		{strings.Replace(raw(t, "a", 4, "secret"), "$04$", "$03$", 1), "stored hash is not usable: bcrypt cost 3 is not between 4 and 15"},
		{raw(t, "a", 4, "secret")[:59], "stored hash is not usable: bcrypt, but malformed"},
		{raw(t, "a", 4, "secret") + "x", "stored hash is not usable: bcrypt, but malformed"},
		{raw(t, "a", 4, "secret") + "\n", "stored hash is not usable: bcrypt, but malformed"},
		{"$1$saltsalt$qjXMvbEw8oaL.CzflDtaK/", "stored hash is not usable: md5 is too weak"},
		{"$apr1$saltsalt$qjXMvbEw8oaL.CzflDtaK/", "stored hash is not usable: md5 is too weak"},
		{"secret", "stored hash is not usable: of an unknown algorithm"},
		{strings.Repeat("$", 513), "stored hash is not usable: 513 bytes are over 512"},
	} {
		h := cheap(t, pepperA)
		got, err := h.Verify(tt.stored, "secret")
		wantError(t, tt.stored[:2], err, tt.err)
		if !errors.Is(err, ErrHash) || got != (Result{}) {
			t.Errorf("%.8q: %+v, %#v, want an ErrHash", tt.stored, got, err)
		}
		if err := h.Usable(tt.stored); !errors.Is(err, ErrHash) || err.Error() != tt.err {
			t.Errorf("Usable(%.8q) = %v, want %q", tt.stored, err, tt.err)
		}
	}
	h := cheap(t, pepperA, pepperB)
	for _, stored := range []string{h.must(t, "x"), other.must(t, "x"), raw(t, "a", 4, "x"), raw(t, "y", 5, "x")} {
		if err := h.Usable(stored); err != nil {
			t.Errorf("Usable(%.8q) = %v", stored, err)
		}
	}
	wantError(t, "empty", h.Usable(""), "stored hash is not usable: empty")
	if got := h.work(); got != (work{own: 1}) {
		t.Errorf("Usable hashed: %+v, want only the one hash that was made", got)
	}
}

// Whoever is asked for and whatever the answer: one hash for ASCII, two for other
// text, of the Hasher's own cost unless the stored hash has another.
func TestSameWorkForEveryAnswer(t *testing.T) {
	a, b := cheap(t, pepperA), cheap(t, pepperB)
	long := strings.Repeat("x", 2000)
	passwords := []struct {
		text   string
		hashes uint64
	}{
		{"secret", 1},
		{"wrong", 1},
		{"", 1},
		{long, 1},
		{"ab\x00ab", 1},
		{"pässwörd", 2},
		{"falsch ß", 2},
		{"\xff\xff", 2},
		{long + "ä", 2},
		{strings.Repeat("か", 30), 2},
		{"Ã¤", 2},
	}
	for _, tt := range []struct {
		name   string
		stored string
		other  bool // of another cost or algorithm
	}{
		{"nobody", "", false},
		{"right", a.must(t, "secret"), false},
		{"right, not ASCII", a.must(t, "pässwörd"), false},
		{"without pepper", raw(t, "a", 4, "secret"), false},
		{"without pepper, not ASCII", raw(t, "a", 4, "pässwörd"), false},
		{"the original's", raw(t, "a", 4, "p\xe4ssw\xf6rd"), false},
		{"$2y$", raw(t, "y", 4, "secret"), false},
		{"unknown pepper", b.must(t, "secret"), false},
		{"refused", "$1$saltsalt$qjXMvbEw8oaL.CzflDtaK/", false},
		{"too dear", strings.Replace(raw(t, "a", 4, "secret"), "$04$", "$31$", 1), false},
		{"other cost", raw(t, "a", 5, "secret"), true},
		{"PBKDF2", vectors[3].stored, true},
	} {
		for _, p := range passwords {
			before := a.work()
			_, _ = a.Verify(tt.stored, p.text)
			after := a.work()
			got := work{after.own - before.own, after.other - before.other}
			want := work{own: p.hashes}
			if tt.other {
				want = work{other: p.hashes}
			}
			if got != want {
				t.Errorf("%s, password %.20q: %+v, want %+v", tt.name, p.text, got, want)
			}
		}
	}
	for _, p := range passwords {
		h := cheap(t)
		h.Dummy(p.text)
		if got := h.work(); got != (work{own: p.hashes}) {
			t.Errorf("Dummy(%.20q): %+v, want %d", p.text, got, p.hashes)
		}
	}
}

// The dummy's work is bcrypt's, not an error that comes back at once.
func TestDummyIsARealHash(t *testing.T) {
	h := cheap(t)
	if _, err := h.parse("$2a$04$" + strings.Repeat(".", 53)); err != nil {
		t.Fatal(err)
	}
	err := bcrypt.CompareHashAndPassword([]byte("$2a$04$"+strings.Repeat(".", 53)), []byte("x"))
	if !errors.Is(err, bcrypt.ErrMismatchedHashAndPassword) {
		t.Errorf("bcrypt says %v, want a mismatch after the work", err)
	}
}
