package password

import (
	"encoding/csv"
	"os"
	"strings"
	"testing"
)

// TestImportedSpellings verifies one hash of each spelling that people tried to import, all of the
// same password, and checks that yescrypt is refused.
func TestImportedSpellings(t *testing.T) {
	f, err := os.Open("testdata/forms.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) != 15 {
		t.Fatalf("%d rows, %v; want 15", len(rows), err)
	}
	h := cheap(t)
	for _, row := range rows[1:] {
		name, stored := row[0], row[1]
		if strings.HasPrefix(name, "shadow-yescrypt@") {
			checkError(t, name, h.Usable(stored), "stored hash is not usable: yescrypt is not supported")
			continue
		}
		if got, err := h.Verify(stored, "Sommerhaus-2024"); err != nil || got != (Result{true, renewAlgorithm}) {
			t.Errorf("%s: got %+v, %v; want right and renewed", name, got, err)
		}
		if got, err := h.Verify(stored, "Sommerhaus-2025"); err != nil || got.OK {
			t.Errorf("%s, wrong password: got %+v, %v; want it refused", name, got, err)
		}
	}
}

// TestSpellingsOfProducts verifies hashes of further products. The first is the example of
// Atlassian's scheme in passlib's manual; the others were computed with Python's hashlib.
func TestSpellingsOfProducts(t *testing.T) {
	h := cheap(t)
	for _, tt := range []struct{ password, stored string }{
		{"password", "{PKCS5S2}DQIXJU038u4P7FdsuFTY/+35bm41kfjZa57UrdxHp2Mu3qF2uy+ooD+jF5t1tb8J"},
		{"Sommerhaus-2024", ":pbkdf2:sha512:30000:64:AQIDBAUGBwgJCgsMDQ4PEA==:/dyK55kjVDWHCGyyCTS/nUxrJgqKlGaU39WJQlSIR" +
			"qeue9traBz+qX6y07HHJMceBuq1WA9Nu7id24dTH99Z2g=="},
		{"Sommerhaus-2024", ":pbkdf2:sha256:10000:128:AQIDBAUGBwgJCgsMDQ4PEA==:dLqGi68+75Y5hUH7oXLhyPzG7Vh7tEqpS6anfCjz" +
			"cdwFYGZenkA6VN+09cz9kc5pqa+pVUTSA0zBZMHaoKidSdx/cJAsGDay3lz8rBEGJOgV3gymXNqpyAra7KhOx6nCNlBo29+xoYh0rvb2lOYaJ/gY1YXDr6Nh1CqNqGJWVBo="},
		{"Sommerhaus-2024", "$pbkdf2$f=SHA256,w=60000,l=32$AQIDBAUGBwgJCgsMDQ4PEA$G/qIVRf1zA6aNF1VfqvLd0cYkAa8sU/ZYtBASwGJDE0"},
		// The columns of Discourse, put together as docs/import.md says.
		{"Sommerhaus-2024", "$pbkdf2-sha256$i=1000,l=32$MDEwMjAzMDQwNTA2MDcwODA5MGEwYjBjMGQwZTBmMTA$plPt8D1Yu10nURNjjY0UQoxs4IObtC3Jlw/vK5ErzJ0"},
	} {
		if got, err := h.Verify(tt.stored, tt.password); err != nil || got != (Result{true, renewAlgorithm}) {
			t.Errorf("%s: got %+v, %v; want right and renewed", tt.stored, got, err)
		}
		if got, err := h.Verify(tt.stored, tt.password+"x"); err != nil || got.OK {
			t.Errorf("%s, wrong password: got %+v, %v; want it refused", tt.stored, got, err)
		}
	}
}

// TestSpellingNormalizes checks that a password in another Unicode form verifies if the product
// normalizes passwords, and that the hash is then kept, since the owner may type either form.
func TestSpellingNormalizes(t *testing.T) {
	h := cheap(t)
	// Written by better-auth 1 for a password that begins with the ligature fi.
	const stored = "fd332236718d134611f257499ab0ff4f:c3e646f61f352a0943cfc3e90520e4ced0934abcf2f78b0314379fe1f289ebb0" +
		"be3dfaf453c42c6b7e43f19876a757d4c178652a7216aa9855c94556154b96ad"
	for password, want := range map[string]Result{"\ufb01sh": {OK: true}, "fish": {true, renewAlgorithm}, "Fish": {}} {
		if got, err := h.Verify(stored, password); err != nil || got != want {
			t.Errorf("%q: got %+v, %v; want %+v", password, got, err, want)
		}
	}
}

// TestSpellingLimits checks that spellings have the limits of their schemes, and that texts that
// resemble one are refused with a reason.
func TestSpellingLimits(t *testing.T) {
	h := cheap(t)
	const mediaWiki = "PBKDF2 of MediaWiki, but malformed or not with SHA-1, SHA-256 or SHA-512"
	hex64, b64 := strings.Repeat("0f", 32), strings.Repeat("A", 43)
	for _, tt := range []struct{ stored, err string }{
		{"$pbkdf2-sha256$i=2000000,l=32$AAAAAAAAAAAAAAAAAAAAAA$" + b64, ""},
		{"$pbkdf2-sha256$i=2000001,l=32$AAAAAAAAAAAAAAAAAAAAAA$" + b64, "pbkdf2-sha256: iterations: 2000001 is not between 1 and 2000000"},
		{"$pbkdf2-sha256$i=1000,l=31$AAAAAAAAAAAAAAAAAAAAAA$" + b64, "PBKDF2, but malformed or not with SHA-1, SHA-256 or SHA-512"},
		{"$pbkdf2-sha256$1000$AAAAAAAAAAAAAAAAAAAAAA=$" + b64, "PBKDF2, but malformed or not with SHA-1, SHA-256 or SHA-512"},
		{"$pbkdf2-sha256$1000$AAAAAAAAAAAAAAAAAAAAAA==$" + b64 + "=", ""},
		{"pbkdf2:sha256:2000001$saltsalt$" + hex64, "pbkdf2-sha256: iterations: 2000001 is not between 1 and 2000000"},
		{"pbkdf2:sha256$saltsalt$" + hex64, "Werkzeug's PBKDF2, but malformed, without its iterations, or not with SHA-1, SHA-256 or SHA-512"},
		{":pbkdf2:sha512:30000:63:AAAAAAAAAAAAAAAAAAAAAA==:" + b64 + "=", mediaWiki},
		{":pbkdf2:sha512:30000:32:AAAAAAAAAAAAAAAAAAAAAA=:" + b64 + "=", mediaWiki},
		{"$pbkdf2$f=SHA256,w=600000,l=31$AAAAAAAAAAAAAAAAAAAAAA$" + b64, "PBKDF2, but malformed or not with SHA-1, SHA-256 or SHA-512"},
		{":pbkdf2:sha256:10000:128:AAAAAAAAAAAAAAAAAAAAAA==:" + b64 + "=", mediaWiki},
		{":pbkdf2-legacyB:!sha512:30000:64!:AAAA!AAAA", "PBKDF2 of MediaWiki over one of its earlier hashes, which is not supported"},
		{":B:6540e6ad:b02a3700be1eec9488a46b042a831646", "too weak: MD5, with a salt or without"},
		{":A:b02a3700be1eec9488a46b042a831646", "too weak: MD5, with a salt or without"},
		{"{PKCS5S2}AAAA", "PBKDF2 of Atlassian, but malformed"},
		{"pbkdf2:md5:1000$saltsalt$" + hex64, "Werkzeug's PBKDF2, but malformed, without its iterations, or not with SHA-1, SHA-256 or SHA-512"},
		{"scrypt:262144:8:1$saltsalt$" + hex64, ""},
		{"scrypt:262144:9:1$saltsalt$" + hex64, "scrypt: memory in bytes: 301989888 is not between 0 and 268435456"},
		{"scrypt:16385:8:1$saltsalt$" + hex64, "Werkzeug's scrypt, but malformed"},
		{"$scrypt$n=16385,r=8,p=1$AAAAAAAAAAAAAAAAAAAAAA$" + b64, "scrypt, but malformed"},
		{"{scrypt}$150801$AAAAAAAAAAAAAAAAAAAAAA==$" + b64 + "=", "scrypt: ln: 21 is not between 1 and 20"},
		{"{scrypt}$e0801$AAAAAAAAAAAAAAAAAAAAAA=$" + b64 + "=", "Spring Security's scrypt, but malformed"},
		{"{bcrypt}$2a$16$" + strings.Repeat(".", 53), "bcrypt cost 16 is not between 4 and 15"},
		{"{bcrypt}$2a$10$" + strings.Repeat(".", 52), "bcrypt, but malformed"},
		{"{CRYPT}$y$j9T$abcdefgh$lGT8esyDfNZOjPdqnxTSq6es", "yescrypt is not supported"},
		{"{CRYPT}$1$saltsalt$abcdefghijklmnopqrstuv", "md5 is too weak"},
		{"2|$argon2i$v=19$m=65536,t=4,p=1$dFcyWjAyNWI3QTJUS2VVWg$" + b64, "argon2: only argon2id is supported"},
		{"{noop}secret", "a clear password, which belongs in clear_password"},
		{"{sha256}" + strings.Repeat("0f", 40), "too weak: a single round of SHA-256, or Spring Security's 1024"},
		{"{SHA256}" + hex64 + ":salt", "too weak: a single round of SHA-256, or Spring Security's 1024"},
		{"{SSHA512}abcdef", "too weak: a single round of SHA-1 or SHA-2"},
		{"{MD5}abcdef", "too weak: MD5, with a salt or without"},
		{"PBKDF2$sha512$100000$AAAAAAAAAAAAAAAAAAAAAA==$AAAA", "PBKDF2 of mosquitto-go-auth, which does not say how to read its salt"},
		{"{PBKDF2-SHA384}10000$AAAA$AAAA", "PBKDF2, but malformed, or of a scheme that is not supported"},
		{`a:2:{s:4:"hash";s:64:"` + hex64 + `";s:4:"salt";s:2:"ab";}`, "XenForo's hash, but malformed or with a single round, which is too weak"},
		{strings.Repeat("0f", 16) + ":" + strings.Repeat("0f", 63), "unknown algorithm"},
		{strings.Repeat("0f", 16) + ":" + strings.Repeat("aZ", 16), "too weak: 32 hexadecimal digits and a salt are MD5, as in Joomla before 3.2"},
		{strings.Repeat("0f", 16) + ":", "unknown algorithm"},
	} {
		want := tt.err
		if want != "" {
			want = "stored hash is not usable: " + want
		}
		checkError(t, tt.stored[:min(len(tt.stored), 40)], h.Usable(tt.stored), want)
	}
}
