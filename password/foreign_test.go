package password

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// vectors lists hashes that other programs wrote: the reference implementation of Argon2, Python's
// hashlib and crypt, and OpenSSL.
var vectors = []struct{ name, stored, password string }{
	{"argon2id", "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4", "password"},
	{"argon2id, two lanes", "$argon2id$v=19$m=256,t=2,p=2$c29tZXNhbHQ$bQk8UB/VmZZF4Oo79iDXuL5/0ttZwg2f/5U52iv1cDc", "password"},
	{"scrypt", "$scrypt$ln=4,r=8,p=2$MDEyMzQ1Njc4OWFiY2RlZg$JYH3qqqHOmC1SgODc5iBofe43ODbjU4oo0Dz1jY/A94", "correct horse"},
	{"PBKDF2 SHA-1", "$pbkdf2$1000$MDEyMzQ1Njc4OWFiY2RlZg$aUfE2vx5Q7zgbb0jx49AaNpXUQQ", "correct horse"},
	{"PBKDF2 SHA-1, long name", "$pbkdf2-sha1$1000$MDEyMzQ1Njc4OWFiY2RlZg$aUfE2vx5Q7zgbb0jx49AaNpXUQQ", "correct horse"},
	{"PBKDF2 SHA-256", "$pbkdf2-sha256$1000$MDEyMzQ1Njc4OWFiY2RlZg$cBg8D2DungRB9k76szThf5ehfyBz991ay6PT8Srwk4M", "correct horse"},
	{"PBKDF2 SHA-512", "$pbkdf2-sha512$1000$MDEyMzQ1Njc4OWFiY2RlZg$OM0FAoIqCVK1sWtxDiffVlBejtLa.ks4TP71JiecwuSZCG8iLbnlIEPOMoVX.i2B2wkSxjQ8CRGR9OkNGuIPMQ", "correct horse"},
	{"PBKDF2, not ASCII", "$pbkdf2-sha256$1000$MDEyMzQ1Njc4OWFiY2RlZg$Kfxd4gVEVJAUWyEM9/KuB1B0aQFq.qVyrFi44QnyZ4k", "pässwörd"},
	{"SHA-256 crypt", "$5$saltsalt$myjXcpMpE2Ofk7fj9hqyNYSn6lmWG4Mqnjx.KIRRr4/", "correct horse"},
	{"SHA-256 crypt, rounds", "$5$rounds=1000$saltsalt$R6e4P8ccT9iMqkYg7Z8YtpId/lfsIfnuPkp8WXposU8", "correct horse"},
	{"SHA-512 crypt", "$6$saltsalt$hRM5XZ86KXEw9UOmjigeVqFgULtFB2sgpC9lXQDfMib3Zgw7mEiUvBJI2EplzfAqxL5Vvwp2scFtv/uamSo5z0", "correct horse"},
	{"SHA-512 crypt, rounds", "$6$rounds=1000$saltsalt$4GMtaIz3E1AdDi2SmCokEW0ehi.HdxNDcL3fGE1XXuzvo6kbx7UOloZKONqEk5H3JrQA4NOfU8BmqFPrpGqwA1", "correct horse"},
}

func TestVerifyForeign(t *testing.T) {
	for _, h := range []*Hasher{cheap(t), cheap(t, pepperA)} {
		for _, v := range vectors {
			got, err := h.Verify(v.stored, v.password)
			if want := (Result{true, renewAlgorithm}); err != nil || got != want {
				t.Errorf("%s: got %+v, %v, want %+v", v.name, got, err, want)
			}
			for _, wrong := range []string{"", v.password + " ", v.password[1:], strings.Repeat("x", 2000)} {
				if got, err := h.Verify(v.stored, wrong); err != nil || got != (Result{}) {
					t.Errorf("%s, wrong password %.20q: got %+v, %v; want the zero Result", v.name, wrong, got, err)
				}
			}
			if err := h.Usable(v.stored); err != nil {
				t.Errorf("%s: Usable = %v", v.name, err)
			}
		}
	}
}

// TestVerifyForeignLongPassword checks that a long password can be correct if the algorithm does
// not truncate it. Its hash is renewed only with a pepper, because our own hashes accept long
// passwords only then.
func TestVerifyForeignLongPassword(t *testing.T) {
	const stored = "$pbkdf2-sha256$1000$MDEyMzQ1Njc4OWFiY2RlZg$FdR8B2jAgYuPbQFgt6Xw9pclYACJBXPfPfim3hBg/lE"
	long := strings.Repeat("x", 100)
	if got, err := cheap(t).Verify(stored, long); err != nil || got != (Result{OK: true}) {
		t.Errorf("Verify without pepper: got %+v, %v; want OK", got, err)
	}
	if got, err := cheap(t, pepperA).Verify(stored, long); err != nil || got != (Result{true, renewAlgorithm}) {
		t.Errorf("Verify with a pepper: got %+v, %v; want OK and a reason to renew", got, err)
	}
}

// TestVerifyShaCryptLongPassword checks that passwords for sha-crypt have a maximum length. Each
// round reads the password, so a long one would take a long time.
func TestVerifyShaCryptLongPassword(t *testing.T) {
	for _, tt := range []struct {
		stored string
		length int
		want   bool
	}{
		{"$5$rounds=1000$saltsalt$8qAQLCS3xsvcVW49R043V8r8u/fyoyN.x4i0XmlgUI8", 256, true},
		{"$5$rounds=1000$saltsalt$lLR2HpTIaLJd/803LI1V1YOnM/ZkduX5tZl6s1aJ/R2", 257, false},
	} {
		got, err := cheap(t).Verify(tt.stored, strings.Repeat("x", tt.length))
		if err != nil || got.OK != tt.want {
			t.Errorf("password of %d bytes, and its own hash: OK is %v, %v; want %v", tt.length, got.OK, err, tt.want)
		}
	}
}

// TestForeignLimits checks the limits of costs and lengths, and that malformed and unsupported
// hashes are refused.
func TestForeignLimits(t *testing.T) {
	b64 := func(n int) string { return strings.Repeat("A", (n*8+5)/6) }
	argon := func(m, t, p string, salt, key int) string {
		return fmt.Sprintf("$argon2id$v=19$m=%s,t=%s,p=%s$%s$%s", m, t, p, b64(salt), b64(key))
	}
	scrypt := func(ln, r, p string, salt, key int) string {
		return fmt.Sprintf("$scrypt$ln=%s,r=%s,p=%s$%s$%s", ln, r, p, b64(salt), b64(key))
	}
	pbkdf2 := func(name, i string, salt, key int) string {
		return fmt.Sprintf("$%s$%s$%s$%s", name, i, b64(salt), b64(key))
	}
	sha := func(id, rounds string, key int) string {
		return fmt.Sprintf("$%s$rounds=%s$salt$%s", id, rounds, strings.Repeat("a", key))
	}
	h := cheap(t)
	for _, tt := range []struct{ stored, err string }{
		{argon("262144", "4", "16", 64, 64), ""},
		{argon("8", "64", "1", 8, 16), ""},
		{argon("262145", "1", "1", 16, 32), "argon2id: memory in KiB: 262145 is not between 8 and 262144"},
		{argon("4", "1", "1", 16, 32), "argon2id: memory in KiB: 4 is not between 8 and 262144"},
		{argon("8", "65", "1", 16, 32), "argon2id: passes: 65 is not between 1 and 64"},
		{argon("64", "1", "17", 16, 32), "argon2id: lanes: 17 is not between 1 and 16"},
		{argon("262144", "5", "1", 16, 32), "argon2id: memory in KiB times passes: 1310720 is not between 8 and 1048576"},
		{argon("64", "1", "1", 7, 32), "argon2id: salt in bytes: 7 is not between 8 and 64"},
		{argon("64", "1", "1", 65, 32), "argon2id: salt in bytes: 65 is not between 8 and 64"},
		{argon("64", "1", "1", 16, 15), "argon2id: key in bytes: 15 is not between 16 and 64"},
		{argon("64", "1", "1", 16, 65), "argon2id: key in bytes: 65 is not between 16 and 64"},
		{argon("0", "1", "1", 16, 32), "argon2id, but malformed"},
		{argon("064", "1", "1", 16, 32), "argon2id, but malformed"},
		{argon("64", "0", "1", 16, 32), "argon2id, but malformed"},
		{argon("64", "1", "0", 16, 32), "argon2id, but malformed"},
		{argon("-64", "1", "1", 16, 32), "argon2id, but malformed"},
		{argon("18446744073709551624", "1", "1", 16, 32), "argon2id, but malformed"},
		{argon("64,m=9999999", "1", "1", 16, 32), "argon2id, but malformed"},
		{strings.Replace(argon("64", "1", "1", 16, 32), "v=19", "v=16", 1), "argon2id, but malformed"},
		{strings.Replace(argon("64", "1", "1", 16, 32), "2id", "2i", 1), "argon2: only argon2id is supported"},
		{strings.Replace(argon("64", "1", "1", 16, 32), "2id", "2d", 1), "argon2: only argon2id is supported"},

		{scrypt("18", "8", "2", 16, 64), ""},
		{scrypt("20", "2", "1", 16, 64), ""},
		{scrypt("21", "1", "1", 16, 32), "scrypt: ln: 21 is not between 1 and 20"},
		{scrypt("999999999", "1", "1", 16, 32), "scrypt: ln: 999999999 is not between 1 and 20"},
		{scrypt("4", "33", "1", 16, 32), "scrypt: r: 33 is not between 1 and 32"},
		{scrypt("4", "8", "17", 16, 32), "scrypt: p: 17 is not between 1 and 16"},
		{scrypt("18", "9", "1", 16, 32), "scrypt: memory in bytes: 301989888 is not between 0 and 268435456"},
		{scrypt("18", "8", "3", 16, 32), "scrypt: memory in bytes times p: 805306368 is not between 0 and 536870912"},
		{scrypt("4", "8", "1", 16, 65), "scrypt: key in bytes: 65 is not between 16 and 64"},
		{scrypt("4", "8", "1", 7, 32), "scrypt: salt in bytes: 7 is not between 8 and 64"},
		{scrypt("0", "8", "1", 16, 32), "scrypt, but malformed"},
		{"$scrypt$r=8,ln=4,p=1$" + b64(16) + "$" + b64(32), "scrypt, but malformed"},

		{pbkdf2("pbkdf2", "2000000", 16, 20), ""},
		{pbkdf2("pbkdf2-sha512", "2000000", 16, 64), ""},
		{pbkdf2("pbkdf2-sha256", "2000001", 16, 32), "pbkdf2-sha256: iterations: 2000001 is not between 1 and 2000000"},
		{pbkdf2("pbkdf2-sha1", "1000001", 16, 21), "pbkdf2-sha1: iterations times blocks: 2000002 is not between 1 and 2000000"},
		{pbkdf2("pbkdf2-sha256", "1000001", 16, 64), "pbkdf2-sha256: iterations times blocks: 2000002 is not between 1 and 2000000"},
		{pbkdf2("pbkdf2-sha512", "1", 16, 65), "pbkdf2-sha512: key in bytes: 65 is not between 16 and 64"},
		{pbkdf2("pbkdf2-sha512", "1", 16, 15), "pbkdf2-sha512: key in bytes: 15 is not between 16 and 64"},
		{pbkdf2("pbkdf2-sha512", "1", 7, 64), "pbkdf2-sha512: salt in bytes: 7 is not between 8 and 64"},
		{pbkdf2("pbkdf2-sha512", "0", 16, 64), "PBKDF2, but malformed or not with SHA-1, SHA-256 or SHA-512"},
		{pbkdf2("pbkdf2-sha224", "1000", 16, 28), "PBKDF2, but malformed or not with SHA-1, SHA-256 or SHA-512"},

		{sha("5", "1000000", 43), ""},
		{sha("6", "1000", 86), ""},
		{sha("6", "1000001", 86), "sha512-crypt: rounds: 1000001 is not between 1000 and 1000000"},
		{sha("5", "999", 43), "sha256-crypt: rounds: 999 is not between 1000 and 1000000"},
		{sha("6", "0", 86), "sha-crypt, but malformed"},
		{sha("5", "1000", 86), "sha-crypt, but malformed"},
		{sha("7", "1000", 86), "the scrypt of crypt(3) is not supported"},
		{"$6$" + strings.Repeat("s", 17) + "$" + strings.Repeat("a", 86), "sha-crypt, but malformed"},

		{"$y$j9T$F5Jx5fExrKuPp53xLKQ..1$X3DX6M94c7o.9agCG9G317fhZg9SqC.5i5rd.RhAtQ7", "yescrypt is not supported"},
		{"$sha1$40000$jtNX3nZ2$hBNaIXkt4wBI2o5rsi8KejSjNqIq", "the SHA-1 of crypt(3) is not supported"},
		{"$plaintext$secret", "unknown algorithm"},
		{"{SSHA}D8oS9Y5WvQqZxP0d0mJ2aZb1c2VjcmV0", "too weak: a single round of SHA-1 or SHA-2"},
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
