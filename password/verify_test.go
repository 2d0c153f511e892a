package password

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"
)

// raw returns a bcrypt hash of exactly these bytes, as another program would write it.
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
	five := cheap(t).withCost(5)
	long := strings.Repeat("x", 100)
	for _, tt := range []struct {
		name     string
		h        *Hasher
		stored   string
		password string
		want     Result
	}{
		{"right password", plain, plain.mustHash(t, "secret"), "secret", Result{OK: true}},
		{"wrong password", plain, plain.mustHash(t, "secret"), "Secret", Result{}},
		{"right password, not ASCII", plain, plain.mustHash(t, "pässwörd"), "pässwörd", Result{OK: true}},
		{"other cost", five, plain.mustHash(t, "secret"), "secret", Result{true, renewCost}},
		{"other cost, wrong password", five, plain.mustHash(t, "secret"), "secreT", Result{}},
		{"$2b$", plain, raw(t, "b", 4, "secret"), "secret", Result{OK: true}},
		{"$2y$", plain, raw(t, "y", 4, "secret"), "secret", Result{OK: true}},
		{"$2y$, other cost", five, raw(t, "y", 4, "secret"), "secret", Result{true, renewCost}},
		{"$2b$, no pepper yet", a, raw(t, "b", 4, "secret"), "secret", Result{true, renewPepper}},
		{"nothing stored", plain, "", "secret", Result{}},
		{"nothing stored, empty password", plain, "", "", Result{}},
		{"hash of an empty password", plain, plain.mustHash(t, ""), "", Result{OK: true}},

		{"peppered", a, a.mustHash(t, "secret"), "secret", Result{OK: true}},
		{"peppered, wrong password", a, a.mustHash(t, "secret"), "secret2", Result{}},
		{"peppered and long", a, a.mustHash(t, long), long, Result{OK: true}},
		{"peppered, not ASCII", a, a.mustHash(t, "日本"), "日本", Result{OK: true}},
		{"no pepper yet", a, plain.mustHash(t, "secret"), "secret", Result{true, renewPepper}},
		{"new pepper", ba, a.mustHash(t, "secret"), "secret", Result{true, renewPepper}},
		{"second pepper added", ab, a.mustHash(t, "secret"), "secret", Result{OK: true}},
		{"no pepper yet, wrong password", a, plain.mustHash(t, "secret"), "secre", Result{}},

		{"72 bytes", plain, plain.mustHash(t, long[:72]), long[:72], Result{OK: true}},
		{"72 bytes and more", plain, plain.mustHash(t, long[:72]), long[:73], Result{}},
		{"72 bytes and more, pepper in force", a, plain.mustHash(t, long[:72]), long[:73], Result{}},
		{"1024 bytes and more", a, a.mustHash(t, strings.Repeat("x", 1024)), strings.Repeat("x", 1025), Result{}},
		{"hash of an empty password, long password", plain, plain.mustHash(t, ""), long, Result{}},
		{"repeats around a NUL", plain, plain.mustHash(t, "ab"), "ab\x00ab", Result{}},
	} {
		got, err := tt.h.Verify(tt.stored, tt.password)
		checkError(t, tt.name, err, "")
		if got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestVerifyLegacyEncoding checks that VerifyOriginal, but not Verify, accepts passwords in the
// original's encoding of text beyond ASCII.
func TestVerifyLegacyEncoding(t *testing.T) {
	h, peppered := cheap(t), cheap(t, pepperA)
	hi := strings.Repeat("ヒ", 30) // 90 bytes, and 60 in the original's encoding
	for _, tt := range []struct {
		name     string
		h        *Hasher
		stored   string
		password string
		want     Result
	}{
		{"Latin-1", h, raw(t, "a", 4, "p\xe4ssw\xf6rd"), "pässwörd", Result{true, renewEncoding}},
		{"Cyrillic", h, raw(t, "a", 4, "\x04?\x040"), "па", Result{true, renewEncoding}},
		{"three bytes and more in UTF-8", h, raw(t, "a", 4, "\x65\xe5\xd8\x3d\xde\x00"), "日😀", Result{true, renewEncoding}},
		{"encoding renewed before pepper and cost", peppered, raw(t, "a", 5, "\xe4"), "ä", Result{true, renewEncoding}},
		{"lone surrogate", h, raw(t, "a", 4, "\xd8\x3d!"), "\xed\xa0\xbd!", Result{true, renewEncoding}},
		{"wrong password", h, raw(t, "a", 4, "\xe4"), "ö", Result{}},
		{"not UTF-8", h, raw(t, "a", 4, "\xff\xfd"), "\xff", Result{}},
		{"three bytes that are not a surrogate", h, raw(t, "a", 4, "\xd0\x40"), "\xedA\x80", Result{}},
		{"surrogate with a wrong last byte", h, raw(t, "a", 4, "\xd8\x01"), "\xed\xa0A", Result{}},
		{"incomplete surrogate", h, raw(t, "a", 4, "\xd8\x3d"), "\xed\xa0", Result{}},
		{"$2b$ is not the original's", h, raw(t, "b", 4, "\xe4"), "ä", Result{}},
		{"a peppered hash is not the original's", peppered, "p" + pepperID(pepperA) + raw(t, "a", 4, "\xe4"), "ä", Result{}},
		{"over 72 bytes in UTF-8 only", peppered, raw(t, "a", 4, strings.Repeat("\x30\xd2", 30)), hi, Result{true, renewEncoding}},
		{"over 72 bytes in UTF-8 only, no pepper", h, raw(t, "a", 4, strings.Repeat("\x30\xd2", 30)), hi, Result{OK: true}},
		{"over 72 bytes in both encodings", h, raw(t, "a", 4, strings.Repeat("\x30\x4b", 36)), strings.Repeat("か", 37), Result{}},
		{"a thousand characters", h, raw(t, "a", 4, ""), strings.Repeat("か", 1000), Result{}},
		{"repeats around a NUL", h, raw(t, "a", 4, "ab"), "a\u6200ab", Result{}},
		{"bytes of an ASCII password", h, h.mustHash(t, "abcdefgh12"), "慢捤敦杨ㄲ", Result{OK: true}},
		{"bytes of an ASCII password in part", h, raw(t, "a", 4, "pass &word"), "pass…word", Result{OK: true}},
		{"bytes of an ASCII password, another cost", h, raw(t, "a", 5, "abcdefgh12"), "慢捤敦杨ㄲ", Result{OK: true}},
		{"bytes of an ASCII password, pepper in force", peppered, h.mustHash(t, "abcdefgh12"), "慢捤敦杨ㄲ", Result{OK: true}},
		{"bytes of another password in UTF-8", h, h.mustHash(t, "ä"), "쎤", Result{OK: true}},
		// "ä" in UTF-8 reads "Ã¤" in Latin-1. A renewed hash would lock out the owner.
		{"UTF-8 read as Latin-1", h, h.mustHash(t, "ä"), "Ã¤", Result{OK: true}},
	} {
		got, err := tt.h.VerifyOriginal(tt.stored, tt.password)
		checkError(t, tt.name, err, "")
		if got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
		if got, err := tt.h.Verify(tt.stored, tt.password); err != nil || got != (Result{}) {
			t.Errorf("%s: Verify returns %+v, %v, want a wrong password", tt.name, got, err)
		}
	}
}

func TestVerifyUnusable(t *testing.T) {
	other := cheap(t, pepperB)
	for _, tt := range []struct{ stored, err string }{
		{other.mustHash(t, "secret"), "stored hash is not usable: its pepper is not configured"},
		{raw(t, "x", 4, "secret"), "stored hash is not usable: $2x$ is a faulty bcrypt, which gives different passwords the same hash"},
		{strings.Replace(raw(t, "a", 4, "secret"), "$04$", "$31$", 1), "stored hash is not usable: bcrypt cost 31 is not between 4 and 15"},
		{strings.Replace(raw(t, "a", 4, "secret"), "$04$", "$16$", 1), "stored hash is not usable: bcrypt cost 16 is not between 4 and 15"},
		{strings.Replace(raw(t, "a", 4, "secret"), "$04$", "$03$", 1), "stored hash is not usable: bcrypt cost 3 is not between 4 and 15"},
		{raw(t, "a", 4, "secret")[:59], "stored hash is not usable: bcrypt, but malformed"},
		{raw(t, "a", 4, "secret") + "x", "stored hash is not usable: bcrypt, but malformed"},
		{raw(t, "a", 4, "secret") + "\n", "stored hash is not usable: bcrypt, but malformed"},
		{"$1$saltsalt$qjXMvbEw8oaL.CzflDtaK/", "stored hash is not usable: md5 is too weak"},
		{"$apr1$saltsalt$qjXMvbEw8oaL.CzflDtaK/", "stored hash is not usable: md5 is too weak"},
		{"secret", "stored hash is not usable: unknown algorithm"},
		{strings.Repeat("$", 513), "stored hash is not usable: longer than 512 bytes"},
	} {
		h := cheap(t, pepperA)
		got, err := h.Verify(tt.stored, "secret")
		checkError(t, tt.stored[:2], err, tt.err)
		if !errors.Is(err, ErrHash) || got != (Result{}) {
			t.Errorf("%.8q: %+v, %#v, want an ErrHash", tt.stored, got, err)
		}
		if err := h.Usable(tt.stored); !errors.Is(err, ErrHash) || err.Error() != tt.err {
			t.Errorf("Usable(%.8q) = %v, want %q", tt.stored, err, tt.err)
		}
	}
	h := cheap(t, pepperA, pepperB)
	for _, stored := range []string{h.mustHash(t, "x"), other.mustHash(t, "x"), raw(t, "a", 4, "x"), raw(t, "y", 5, "x")} {
		if err := h.Usable(stored); err != nil {
			t.Errorf("Usable(%.8q) = %v", stored, err)
		}
	}
	checkError(t, "empty", h.Usable(""), "stored hash is not usable: empty")
	if got := h.work(); got != (work{rounds: 1 << cost}) {
		t.Errorf("Usable hashed: got %+v, want only the one hash that was made", got)
	}
}

// TestSameWorkForEveryResult checks that Verify, VerifyOriginal and Dummy do the same work,
// whatever is stored and whatever the result: one hash at the Hasher's own cost for ASCII, and
// three for other text, unless the stored hash has a higher cost or another algorithm.
func TestSameWorkForEveryResult(t *testing.T) {
	const own = 6
	a, b := cheap(t, pepperA).withCost(own), cheap(t, pepperB).withCost(own)
	for _, tt := range []struct {
		name   string
		stored string
		one    work // for ASCII
	}{
		{"unknown identifier", "", work{rounds: 1 << own}},
		{"right", a.mustHash(t, "secret"), work{rounds: 1 << own}},
		{"right, not ASCII", a.mustHash(t, "pässwörd"), work{rounds: 1 << own}},
		{"hash without pepper", raw(t, "a", own, "secret"), work{rounds: 1 << own}},
		{"hash without pepper, not ASCII", raw(t, "a", own, "pässwörd"), work{rounds: 1 << own}},
		{"hash of the original", raw(t, "a", own, "p\xe4ssw\xf6rd"), work{rounds: 1 << own}},
		{"hash of the original, lower cost", raw(t, "a", 4, "p\xe4ssw\xf6rd"), work{rounds: 1 << own}},
		{"$2y$", raw(t, "y", own, "secret"), work{rounds: 1 << own}},
		{"unknown pepper", b.mustHash(t, "secret"), work{rounds: 1 << own}},
		{"unsupported algorithm", "$1$saltsalt$qjXMvbEw8oaL.CzflDtaK/", work{rounds: 1 << own}},
		{"cost over the limit", strings.Replace(raw(t, "a", 4, "secret"), "$04$", "$31$", 1), work{rounds: 1 << own}},
		{"a lower cost", raw(t, "a", own-1, "secret"), work{rounds: 1 << own}},
		{"the lowest cost", raw(t, "b", 4, "secret"), work{rounds: 1 << own}},
		{"a lower cost with pepper", cheap(t, pepperA).mustHash(t, "secret"), work{rounds: 1 << own}},
		{"a higher cost", raw(t, "a", own+1, "secret"), work{rounds: 1 << (own + 1)}},
		{"PBKDF2", vectors[3].stored, work{foreign: 1}},
	} {
		for text, hashes := range formsOfPasswords {
			want := work{tt.one.rounds * hashes, tt.one.foreign * min(hashes, 2)}
			for what, verify := range map[string]func(string, string) (Result, error){"Verify": a.Verify, "VerifyOriginal": a.VerifyOriginal} {
				got := a.workOf(func() { _, _ = verify(tt.stored, text) })
				if got != want {
					t.Errorf("%s of %s, password %.20q: got %+v, want %+v", what, tt.name, text, got, want)
				}
			}
		}
	}
	for text, hashes := range formsOfPasswords {
		if got := a.workOf(func() { a.Dummy(text) }); got != (work{rounds: hashes << own}) {
			t.Errorf("Dummy(%.20q): got %+v, want %d hashes", text, got, hashes)
		}
	}
}

// formsOfPasswords maps passwords to the number of hashes that each takes.
var formsOfPasswords = map[string]uint64{
	"secret": 1, "wrong": 1, "": 1, strings.Repeat("x", 2000): 1, "ab\x00ab": 1,
	"pässwörd": 3, "pa\u0308sswo\u0308rd": 3, "falsch ß": 3, "\xff\xff": 3, strings.Repeat("x", 2000) + "ä": 3, strings.Repeat("か", 30): 3, "Ã¤": 3,
	"pässwörd's": 3,
}

// TestOtherForm checks that a password is right in its other Unicode form, that the hash is then
// not renewed, and that other texts are wrong.
func TestOtherForm(t *testing.T) {
	const composed, decomposed = "Käsefüße-Ärger 7", "Ka\u0308sefu\u0308ße-A\u0308rger 7"
	h, peppered := cheap(t), cheap(t, pepperA)
	passlib := func(text string) string {
		key := pbkdf2Key(t, text)
		return "$pbkdf2-sha256$1000$MDEyMzQ1Njc4OWFiY2RlZg$" + strings.ReplaceAll(base64.RawStdEncoding.EncodeToString(key), "+", ".")
	}
	for _, tt := range []struct {
		name, stored, password string
		h                      *Hasher
		want                   Result
	}{
		{"set composed, entered decomposed", h.mustHash(t, composed), decomposed, h, Result{OK: true}},
		{"set decomposed, entered composed", h.mustHash(t, decomposed), composed, h, Result{OK: true}},
		{"entered in part composed", h.mustHash(t, composed), "Käsefu\u0308ße-Ärger 7", h, Result{OK: true}},
		{"with a pepper", peppered.mustHash(t, composed), decomposed, peppered, Result{OK: true}},
		{"imported, entered as it was set", raw(t, "b", 4, composed), composed, h.withCost(5), Result{OK: true, Renew: renewCost}},
		{"imported, entered in the other form", raw(t, "b", 4, composed), decomposed, h.withCost(5), Result{OK: true}},
		{"another algorithm", passlib(composed), decomposed, h, Result{OK: true}},
		{"WordPress, through a form", "$wp" + raw(t, "y", cost, string(wordPressSecret([]byte(composed+`\'s`)))), decomposed + "'s", h, Result{OK: true}},
		{"too long decomposed", h.mustHash(t, strings.Repeat("ä", 36)), strings.Repeat("a\u0308", 36), h, Result{OK: true}},
		{"another case", h.mustHash(t, composed), strings.ToLower(decomposed), h, Result{}},
		{"a compatible text", h.mustHash(t, "ﬁsch-ä 123"), "fisch-ä 123", h, Result{}},
		{"without the marks", h.mustHash(t, composed), "Kasefuße-Arger 7", h, Result{}},
	} {
		if got, err := tt.h.Verify(tt.stored, tt.password); err != nil || got != tt.want {
			t.Errorf("%s: got %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
}

// pbkdf2Key returns the key of PBKDF2 with SHA-256 for a text, as passlib makes it.
func pbkdf2Key(t *testing.T, text string) []byte {
	t.Helper()
	key, err := pbkdf2.Key(sha256.New, text, []byte("0123456789abcdef"), 1000, 32)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestDummyIsRealHash checks that bcrypt does its work for the hash that Dummy uses, instead of
// refusing it at once.
func TestDummyIsRealHash(t *testing.T) {
	h := cheap(t)
	if _, err := h.parse("$2a$04$" + strings.Repeat(".", 53)); err != nil {
		t.Fatal(err)
	}
	err := bcrypt.CompareHashAndPassword([]byte("$2a$04$"+strings.Repeat(".", 53)), []byte("x"))
	if !errors.Is(err, bcrypt.ErrMismatchedHashAndPassword) {
		t.Errorf("bcrypt says %v, want a mismatch after the work", err)
	}
}
