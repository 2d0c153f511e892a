package password

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// A productHash is a hash from another product or from another implementation of its algorithm.
type productHash struct{ Stored, Password string }

// productHashes reads testdata/foreign-hashes.json, which names its sources.
func productHashes(t testing.TB) (all []productHash) {
	t.Helper()
	var sources []struct {
		Source, Licence string
		Hashes          []productHash
	}
	readJSON(t, "testdata/foreign-hashes.json", &sources)
	for _, s := range sources {
		if s.Source == "" || s.Licence == "" {
			t.Fatal("a vector without its source")
		}
		all = append(all, s.Hashes...)
	}
	if len(all) < 40 {
		t.Fatalf("%d vectors, want at least 40", len(all))
	}
	return all
}

func readJSON(t testing.TB, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// costly reports whether a hash is slow to verify. Such hashes are test vectors of other projects,
// whose cost we cannot choose, and are verified only once.
func costly(v productHash) bool {
	return slices.ContainsFunc([]string{
		"$390000$", "m=102400", "AQAAAAEAA9CQ", "scrypt:32768", "$e0801$", "{pbkdf2", "n=16384", "r=12", "}$2a$10$", "s2:",
	}, func(mark string) bool { return strings.Contains(v.Stored, mark) })
}

func TestVerifyProducts(t *testing.T) {
	plain, peppered := cheap(t), cheap(t, pepperA)
	for _, v := range productHashes(t) {
		for _, h := range []*Hasher{plain, peppered} {
			if h == plain && costly(v) {
				continue
			}
			got, err := h.Verify(v.Stored, v.Password)
			if err != nil || !got.OK {
				t.Errorf("%.30s: got %+v, %v, want OK", v.Stored, got, err)
			}
			// TestWordPressForms covers passwords with white space around them.
			if got.Renew != renewAlgorithm && h.Hashable(v.Password) == nil && strings.Trim(v.Password, phpSpace) == v.Password {
				t.Errorf("%.30s is not renewed", v.Stored)
			}
			if err := h.Usable(v.Stored); err != nil {
				t.Errorf("%.30s: Usable returns %v, want no error", v.Stored, err)
			}
			if costly(v) {
				continue
			}
			for _, wrong := range []string{"", "x", v.Password + "x", strings.ToUpper(v.Password) + "y", strings.Repeat("x", 2000)} {
				if got, err := h.Verify(v.Stored, wrong); wrong != v.Password && (err != nil || got != (Result{})) {
					t.Errorf("%.30s, wrong password %.20q: got %+v, %v; want the zero Result", v.Stored, wrong, got, err)
				}
			}
		}
	}
}

// TestProductsCompareWholeHash checks that a hash does not verify after one of its last characters
// is changed.
func TestProductsCompareWholeHash(t *testing.T) {
	h := cheap(t)
	for _, v := range productHashes(t) {
		if costly(v) {
			continue
		}
		body := strings.TrimRight(v.Stored, "=")
		for _, at := range []int{len(body) - 12, len(body) - 2} {
			changed := []byte(v.Stored)
			changed[at] = map[bool]byte{true: 'a', false: 'b'}[changed[at] != 'a']
			if got, _ := h.Verify(string(changed), v.Password); got.OK {
				t.Errorf("%.30s: still right with its character %d changed", v.Stored, at)
			}
		}
	}
}

// TestWordPressForms checks passwords that came through a form of WordPress, which puts backslashes
// before quotes and backslashes, and passwords that did not.
func TestWordPressForms(t *testing.T) {
	h := cheap(t)
	wp := func(secret string) string { // like WordPress 6.8
		return "$wp" + raw(t, "y", cost, string(wordPressSecret([]byte(secret))))
	}
	pp := func(secret string) string { // like WordPress before 6.8
		const head = "$P$5saltsalt"
		d, err := decodePHPass(head, numbers{"log": 7})
		if err != nil {
			t.Fatal(err)
		}
		return head + string(d.(phpass).sum([]byte(secret)))
	}
	renewed := Result{true, renewAlgorithm}
	for _, tt := range []struct {
		name, stored, password string
		want                   Result
	}{
		{"plain", wp("secret"), "secret", renewed},
		{"white space", wp("secret"), " secret\v\n", Result{OK: true}},
		{"white space that PHP keeps", wp("secret"), "secret\u00a0", Result{}},
		{"form feed, which PHP keeps", wp("secret"), "secret\f", Result{}},
		{"through a form", wp(`it\'s`), "it's", renewed},
		{"through a form, and white space", wp(`it\'s`), " it's", Result{OK: true}},
		{"not through a form", wp("it's"), "it's", renewed},
		{"not through a form, and white space", wp("it's"), "it's ", Result{OK: true}},
		{"through a form, as it is stored", wp(`it\'s`), `it\'s`, Result{OK: true}},
		{"a backslash through a form", wp(`a\\b`), `a\b`, renewed},
		{"a backslash, not through a form", wp(`a\b`), `a\b`, renewed},
		{"NUL through a form", wp(`a\0b`), "a\x00b", renewed},
		{"NUL at the end through a form", wp(`a\0`), "a\x00", Result{OK: true}},
		{"not ASCII, through a form", wp(`pässwörd\'`), "pässwörd'", renewed},
		{"wrong", wp("it's"), "its", Result{}},
		{"without the prefix", wp("secret")[3:], "secret", Result{}},

		{"phpass", pp("secret"), "secret", renewed},
		{"phpass, white space", pp("secret"), " secret", Result{OK: true}},
		{"phpass, white space that another product keeps", pp(" secret"), " secret", renewed},
		{"phpass, through a form", pp(`it\'s`), "it's", renewed},
		{"phpass, not through a form", pp("it's"), "it's", renewed},
		{"phpass, through a form, as it is stored", pp(`it\'s`), `it\'s`, Result{OK: true}},
		{"phpass, wrong", pp("it's"), "its", Result{}},
		{"phpBB keeps white space", "$H" + pp("secret")[2:], " secret", Result{}},
	} {
		if got, err := h.Verify(tt.stored, tt.password); err != nil || got != tt.want {
			t.Errorf("%s: got %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
}

// TestProductHashesAreNotOriginal checks that VerifyOriginal does not try the original's encoding
// for a hash from another product, whatever bcrypt prefix it has.
func TestProductHashesAreNotOriginal(t *testing.T) {
	h := cheap(t)
	if got, err := h.VerifyOriginal(raw(t, "a", cost, "\xe4"), "ä"); err != nil || !got.OK {
		t.Fatalf("VerifyOriginal: got %+v, %v; want right", got, err)
	}
	if got, err := h.VerifyOriginal("bcrypt$"+raw(t, "a", cost, "\xe4"), "ä"); err != nil || got != (Result{}) {
		t.Errorf("VerifyOriginal of a hash with the prefix bcrypt$: got %+v, %v; want a wrong password", got, err)
	}
	if got, err := h.Verify("bcrypt$"+raw(t, "a", cost, "ä"), "ä"); err != nil || got != (Result{true, renewAlgorithm}) {
		t.Errorf("Verify of a hash with the prefix bcrypt$: got %+v, %v; want right and renewed", got, err)
	}
}

// TestSameWorkForProducts checks that verifying a bcrypt hash from another product takes as much
// work as one of our own.
func TestSameWorkForProducts(t *testing.T) {
	const ownCost = 6
	h := cheap(t).withCost(ownCost)
	for _, stored := range []string{
		"$wp" + raw(t, "y", 4, string(wordPressSecret([]byte("secret")))),
		"bcrypt_sha256$" + raw(t, "b", 4, string(djangoSecret([]byte("secret")))),
		"bcrypt$" + raw(t, "b", 5, "secret"),
	} {
		for text, hashes := range formsOfPasswords {
			if text == "ab\x00ab" && stored[:3] == "$wp" {
				hashes = 2 // one of them with a backslash
			}
			got := h.workOf(func() { _, _ = h.Verify(stored, text) })
			if want := (work{rounds: hashes << ownCost}); got != want {
				t.Errorf("%.14s, password %.20q: got %+v, want %+v", stored, text, got, want)
			}
		}
	}
	for _, tt := range []struct {
		stored, password string
		hashes           uint64
	}{
		{"$P$9IQRaTwmfeRo7ud9Fh4E2PdI0S3r.L0", "secret", 1},
		{"$P$9IQRaTwmfeRo7ud9Fh4E2PdI0S3r.L0", "it's", 2},
		{"$P$9IQRaTwmfeRo7ud9Fh4E2PdI0S3r.L0", "ä", 2},
		{"$P$9IQRaTwmfeRo7ud9Fh4E2PdI0S3r.L0", "ä's", 3},
		{"$H$9IQRaTwmfeRo7ud9Fh4E2PdI0S3r.L0", "it's", 1},
		{productFirebase, "secret", 1},
	} {
		if got := h.workOf(func() { _, _ = h.Verify(tt.stored, tt.password) }); got != (work{foreign: tt.hashes}) {
			t.Errorf("%.14s, password %q: got %+v, want %d", tt.stored, tt.password, got, tt.hashes)
		}
	}
}

const productFirebase = "$firebase-scrypt$ln=4,r=8,p=1$AAECAwQFBgcICQ$AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"

// identity returns a hash of ASP.NET Identity, version 3, with the given numbers. rest is the
// length of salt and key together.
func identity(hash, iterations, salt uint32, rest int) string {
	b := []byte{1}
	for _, n := range []uint32{hash, iterations, salt} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return base64.StdEncoding.EncodeToString(append(b, make([]byte, rest)...))
}

// TestProductLimits checks that every cost in a product's hash has a limit, and that malformed and
// weak hashes are refused with a reason.
func TestProductLimits(t *testing.T) {
	hash := strings.Repeat("A", 43) + "="
	bcrypted := func(prefix string, cost string) string { return prefix + "$2b$" + cost + "$" + strings.Repeat(".", 53) }
	firebase := func(ln, r string, salt, key int) string {
		b64 := func(n int) string { return strings.Repeat("A", (n*8+5)/6) }
		return fmt.Sprintf("$firebase-scrypt$ln=%s,r=%s,p=1$%s$%s", ln, r, b64(salt), b64(key))
	}
	pp := func(id, digit string) string { return "$" + id + "$" + digit + strings.Repeat(".", 30) }
	h := cheap(t)
	for _, tt := range []struct{ stored, err string }{
		{"pbkdf2_sha256$2000000$0123456789ab$" + hash, ""},
		{"pbkdf2_sha256$2000001$0123456789ab$" + hash, "pbkdf2-sha256: iterations: 2000001 is not between 1 and 2000000"},
		{"pbkdf2_sha256$1000$seasalt$" + hash, "pbkdf2-sha256: salt in bytes: 7 is not between 8 and 64"},
		{"pbkdf2_sha256$1000$$" + hash, "Django's PBKDF2, but malformed or not with SHA-1 or SHA-256"},
		{"pbkdf2_sha256$0$0123456789ab$" + hash, "Django's PBKDF2, but malformed or not with SHA-1 or SHA-256"},
		{"pbkdf2_sha256$-1$0123456789ab$" + hash, "Django's PBKDF2, but malformed or not with SHA-1 or SHA-256"},
		{"pbkdf2_sha256$1000$0123456789ab$" + hash[:43], "Django's PBKDF2, but malformed or not with SHA-1 or SHA-256"},
		{"pbkdf2_sha256$1000$0123456789ab$" + hash[:42] + "B=", "Django's PBKDF2, but malformed or not with SHA-1 or SHA-256"},
		{"pbkdf2_sha256$1000$0123456 89ab$" + hash, "Django's PBKDF2, but malformed or not with SHA-1 or SHA-256"},
		{"pbkdf2_sha256$1000$0123456ä89ab$" + hash, "Django's PBKDF2, but malformed or not with SHA-1 or SHA-256"},
		{"pbkdf2_sha256$1000$0123456789ab$" + hash + "\n", "Django's PBKDF2, but malformed or not with SHA-1 or SHA-256"},
		{"pbkdf2_sha512$1000$0123456789ab$" + hash, "Django's PBKDF2, but malformed or not with SHA-1 or SHA-256"},
		{"pbkdf2_sha1$1000001$0123456789ab$" + hash, "pbkdf2-sha1: iterations times blocks: 2000002 is not between 1 and 2000000"},

		{"scrypt$262144$0123456789ab$8$1$" + hash, ""},
		{"scrypt$262144$0123456789ab$9$1$" + hash, "scrypt: memory in bytes: 301989888 is not between 0 and 268435456"},
		{"scrypt$16385$0123456789ab$8$1$" + hash, "Django's scrypt, but malformed"},
		{"scrypt$0$0123456789ab$8$1$" + hash, "Django's scrypt, but malformed"},
		{"argon2$argon2id$v=19$m=262145,t=1,p=1$AAAAAAAAAAAAAAAA$" + hash[:43], "argon2id: memory in KiB: 262145 is not between 8 and 262144"},
		{"argon2$argon2i$v=19$m=512,t=2,p=2$AAAAAAAAAAAAAAAA$" + hash[:43], "argon2: only argon2id is supported"},
		{"argon2argon2$argon2id$v=19$m=512,t=2,p=2$AAAAAAAAAAAAAAAA$" + hash[:43], "unknown algorithm"},

		{bcrypted("bcrypt_sha256$", "15"), ""},
		{bcrypted("bcrypt$", "15"), ""},
		{bcrypted("$wp", "15"), ""},
		{bcrypted("bcrypt_sha256$", "16"), "bcrypt cost 16 is not between 4 and 15"},
		{bcrypted("bcrypt$", "31"), "bcrypt cost 31 is not between 4 and 15"},
		{bcrypted("$wp", "16"), "bcrypt cost 16 is not between 4 and 15"},
		{bcrypted("$wp", "10") + "x", "WordPress's bcrypt, but malformed"},
		{bcrypted("$wp$", "10"), "WordPress's bcrypt, but malformed"},
		{bcrypted("$wp$wp", "10"), "WordPress's bcrypt, but malformed"},
		{bcrypted("$wppABC", "10"), "WordPress's bcrypt, but malformed"},
		{bcrypted("bcrypt_sha256", "10"), "Django's bcrypt, but malformed"},
		{bcrypted("bcrypt_sha256$", "1x"), "Django's bcrypt, but malformed"},
		{bcrypted("bcrypt$bcrypt$", "10"), "Django's bcrypt, but malformed"},
		{"$bcrypt-sha256$v=2,t=2b,r=15$n79VH.0Q2TMWmt3Oqt9uku$" + hash[:31], ""},
		{"$bcrypt-sha256$2b,15$n79VH.0Q2TMWmt3Oqt9uku$" + hash[:31], ""},
		{"$bcrypt-sha256$v=2,t=2b,r=16$n79VH.0Q2TMWmt3Oqt9uku$" + hash[:31], "bcrypt cost 16 is not between 4 and 15"},
		{"$bcrypt-sha256$v=3,t=2b,r=12$n79VH.0Q2TMWmt3Oqt9uku$" + hash[:31], "passlib's bcrypt over SHA-256, but malformed"},

		{pp("P", "I"), ""},
		{pp("H", "5"), ""},
		{pp("P", "J"), "phpass: binary logarithm of the rounds: 21 is not between 7 and 20"},
		{pp("H", "4"), "phpass: binary logarithm of the rounds: 6 is not between 7 and 20"},
		{pp("P", "z"), "phpass: binary logarithm of the rounds: 63 is not between 7 and 20"},
		{pp("P", "B")[:33] + "2", "phpass, but malformed"},
		{pp("P", "B")[:33], "phpass, but malformed"},
		{pp("P", "!"), "phpass, but malformed"},
		{pp("H", "9") + ".", "phpass, but malformed"},
		{pp("S", "I") + strings.Repeat(".", 21), ""},
		{pp("S", "J") + strings.Repeat(".", 21), "Drupal's phpass: binary logarithm of the rounds: 21 is not between 7 and 20"},
		{pp("S", "D"), "Drupal's phpass, but malformed"},
		{"U" + pp("S", "D") + strings.Repeat(".", 21), "too weak: Drupal's phpass over MD5"},

		{firebase("18", "8", 11, 64), ""},
		{firebase("20", "2", 1, 128), ""},
		{firebase("18", "9", 11, 64), "firebase-scrypt: memory in bytes: 301989888 is not between 0 and 268435456"},
		{firebase("21", "1", 11, 64), "firebase-scrypt: ln: 21 is not between 1 and 20"},
		{firebase("999999999", "1", 11, 64), "firebase-scrypt: ln: 999999999 is not between 1 and 20"},
		{firebase("4", "33", 11, 64), "firebase-scrypt: r: 33 is not between 1 and 32"},
		{firebase("4", "8", 129, 64), "firebase-scrypt: salt and separator in bytes: 129 is not between 1 and 128"},
		{firebase("4", "8", 11, 15), "firebase-scrypt: key in bytes: 15 is not between 16 and 128"},
		{firebase("4", "8", 11, 129), "firebase-scrypt: key in bytes: 129 is not between 16 and 128"},
		{firebase("0", "8", 11, 64), "Firebase's scrypt, but malformed"},
		{strings.Replace(firebase("4", "8", 11, 64), "p=1", "p=2", 1), "Firebase's scrypt, but malformed"},
		{firebase("4", "8", 11, 64) + "=", "Firebase's scrypt, but malformed"},
		{productFirebase[:len(productFirebase)-1] + "9", "firebase-scrypt, but malformed"},

		{identity(2, 2_000_000, 16, 16+32), ""},
		{identity(1, 2_000_001, 16, 16+32), "pbkdf2-sha256: iterations: 2000001 is not between 1 and 2000000"},
		{identity(1, 0, 16, 16+32), "ASP.NET Identity's PBKDF2, but malformed or not with SHA-1, SHA-256 or SHA-512"},
		{identity(1, 1_000_000_000, 16, 16+32), "ASP.NET Identity's PBKDF2, but malformed or not with SHA-1, SHA-256 or SHA-512"},
		{identity(1, 1<<32-1, 16, 16+32), "ASP.NET Identity's PBKDF2, but malformed or not with SHA-1, SHA-256 or SHA-512"},
		{identity(3, 1000, 16, 16+32), "ASP.NET Identity's PBKDF2, but malformed or not with SHA-1, SHA-256 or SHA-512"},
		{identity(1, 1000, 1<<32-1, 16+32), "ASP.NET Identity's PBKDF2, but malformed or not with SHA-1, SHA-256 or SHA-512"},
		{identity(1, 1000, 48, 16+32), "ASP.NET Identity's PBKDF2, but malformed or not with SHA-1, SHA-256 or SHA-512"},
		{identity(1, 1000, 16, 16+15), "pbkdf2-sha256: key in bytes: 15 is not between 16 and 64"},
		{identity(1, 1000, 7, 7+32), "pbkdf2-sha256: salt in bytes: 7 is not between 8 and 64"},
		{"AQAAAAEAACcQ", "ASP.NET Identity's PBKDF2, but malformed or not with SHA-1, SHA-256 or SHA-512"},
		{identity(1, 1000, 16, 16+32) + "\n", "ASP.NET Identity's PBKDF2, but malformed or not with SHA-1, SHA-256 or SHA-512"},
		{
			"ANXrDknc7fGPpigibZXXZFMX4aoqz44JveK6jQuwY3eH/UyPhvr5xTPeGYEckLxz9A==",
			"too weak: ASP.NET Identity's second version has 1000 rounds of SHA-1",
		},

		{"88a434c88cca4e900f7874cd98123f43", "too weak: 32 hexadecimal digits are MD5 without a salt"},
		{"88A434C88CCA4E900F7874CD98123F43", "too weak: 32 hexadecimal digits are MD5 without a salt"},
		{"6d138ca3ae545631b3abd71a4f076ce759c5700b", "too weak: 40 hexadecimal digits are SHA-1 without a salt"},
		{"*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19", "too weak: 40 hexadecimal digits are SHA-1 without a salt"},
		{strings.Repeat("0f", 32), "too weak: hexadecimal digits alone are a hash without a salt"},
		{strings.Repeat("0f", 64), "too weak: hexadecimal digits alone are a hash without a salt"},
		{strings.Repeat("0f", 17), "unknown algorithm"},
		{"md5$seasalt$3f86d0d3d465b7b458c231bf3555c0e3", "too weak: MD5, with a salt or without"},
		{"md5$$88a434c88cca4e900f7874cd98123f43", "too weak: MD5, with a salt or without"},
		{"sha1$seasalt$cff36ea83f5706ce9aa7454e63e431fc726b2dc8", "too weak: SHA-1, with a salt or without"},
		{"sha1$$6d138ca3ae545631b3abd71a4f076ce759c5700b", "too weak: SHA-1, with a salt or without"},
		{"crypt$$ab1Hv2Lg7ltQo", "too weak: crypt, which reads eight characters"},
		{"!OeUvz1tVMjzp8TWYZFPHBh8VTbKt1l7uXSgbn3yv", "Django's mark of an account without a password"},
	} {
		want := tt.err
		if want != "" {
			want = "stored hash is not usable: " + want
		}
		err := h.Usable(tt.stored)
		checkError(t, tt.stored[:min(len(tt.stored), 40)], err, want)
		if err != nil && !errors.Is(err, ErrHash) {
			t.Errorf("%v is not ErrHash", err)
		}
	}
}
