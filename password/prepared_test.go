package password

import (
	"errors"
	"strings"
	"testing"
)

// preparedVectors lists hashes in the forms of Meteor, vBulletin 5 and Devise, all of the password
// Sommerhaus-2024. They were made in Python, with OpenBSD's bcrypt and the digests of hashlib.
var preparedVectors = []struct{ form, pepper, hash string }{
	{"sha256-hex", "", "$2b$05$abcdefghijklmnopqrstuuwu32frxN9AJ48RxCyNhxMTNn0faunLS"},
	{"md5-hex", "", "$2y$05$abcdefghijklmnopqrstuuJ5mmTSVaMIHoOKQQChFO1EdNPocU6je"},
	{"append", strings.Repeat("c0ffee", 8), "$2a$05$abcdefghijklmnopqrstuuZIBlfjY3F1BvayXOlLWWD18HOAzkkLm"},
}

const summer = "Sommerhaus-2024"

func TestPrepared(t *testing.T) {
	h := cheap(t)
	check := func(form, pepper, hash, right string) {
		t.Helper()
		stored, err := Prepared(form, pepper, hash)
		if err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		if again, err := Prepared(form, pepper, stored); err != nil || again != stored {
			t.Errorf("%s: preparing it twice: got %s, %v", form, again, err)
		}
		checkError(t, form, h.Usable(stored), "")
		for _, verify := range []func(string, string) (Result, error){h.Verify, h.VerifyImported, h.VerifyOriginal} {
			if got, err := verify(stored, right); err != nil || got != (Result{true, renewAlgorithm}) {
				t.Errorf("%s: got %+v, %v; want OK and a reason to renew", form, got, err)
			}
			for _, wrong := range []string{"", right + "x", right[1:], strings.Repeat("x", 2000)} {
				if got, err := verify(stored, wrong); err != nil || got.OK {
					t.Errorf("%s, wrong password %.20q: got %+v, %v; want it refused", form, wrong, got, err)
				}
			}
		}
		if got, _ := h.Verify(hash, right); got.OK {
			t.Errorf("%s: the password is right without being prepared", form)
		}
	}
	for _, v := range preparedVectors {
		check(v.form, v.pepper, v.hash, summer)
	}
	for form, prepare := range digestForms {
		secret := string(prepare([]byte("pässwörd")))
		check(form, "", raw(t, "b", cost, secret[:min(len(secret), 72)]), "pässwörd")
	}
}

// TestPreparedOtherAlgorithm checks a pepper with sha-crypt, whose maximum length includes the
// pepper. The hash is of "correct horse".
func TestPreparedOtherAlgorithm(t *testing.T) {
	h := cheap(t)
	stored, err := Prepared("append", " horse", "$6$rounds=1000$saltsalt$4GMtaIz3E1AdDi2SmCokEW0ehi.HdxNDcL3fGE1XXuzvo6kbx7UOloZKONqEk5H3JrQA4NOfU8BmqFPrpGqwA1")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.Verify(stored, "correct"); err != nil || got != (Result{true, renewAlgorithm}) {
		t.Errorf("got %+v, %v; want OK and a reason to renew", got, err)
	}
	d, err := h.parse(stored)
	if err != nil || d.max != 256-len(" horse") {
		t.Errorf("got a maximum of %d bytes, %v; want 250", d.max, err)
	}
}

func TestPreparedRefusals(t *testing.T) {
	hash := preparedVectors[0].hash
	for _, tt := range []struct{ form, pepper, want string }{
		{"sha3", "", "password options: there is no form \"sha3\" of prepared passwords; want one of append, md5-hex, sha1-hex, sha256-base64, sha256-hex, sha384-base64, sha384-hex, sha512-base64, sha512-hex"},
		{"append", "", "password options: the appended pepper has 0 bytes; want 1 to 128"},
		{"append", strings.Repeat("x", 129), "password options: the appended pepper has 129 bytes; want 1 to 128"},
		{"md5-hex", "x", "password options: the form md5-hex has no pepper"},
	} {
		_, err := Prepared(tt.form, tt.pepper, hash)
		checkError(t, tt.form, err, tt.want)
		if !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v is not an ErrOptions", tt.form, err)
		}
	}
	h := cheap(t, pepperA)
	for stored, want := range map[string]string{
		"prepared:md5:" + hash:                              "prepared, but in an unknown form",
		"prepared:sha256-hex":                               "unknown algorithm",
		"prepared:append:?:" + hash:                         "prepared, but with a malformed pepper",
		"prepared:append::" + hash:                          "prepared, but with a malformed pepper",
		"prepared:md5-hex:prepared:md5-hex:" + hash:         "prepared twice",
		"prepared:md5-hex:bcrypt_sha256$" + hash:            "prepared, but its algorithm already changes passwords",
		"prepared:md5-hex:" + h.mustHash(t, "secret"):       "prepared, but its algorithm already changes passwords",
		"prepared:md5-hex:0123456789abcdef0123456789abcdef": "too weak: 32 hexadecimal digits are MD5 without a salt",
	} {
		checkError(t, stored, h.Usable(stored), "stored hash is not usable: "+want)
	}
}

// TestVerifyImported checks bcrypt hashes of passwords over 72 bytes, as PHP, Ruby, Node and Python
// write them.
func TestVerifyImported(t *testing.T) {
	long := []string{"correct horse battery staple and a long tail that goes on and on until eighty chars!!", strings.Repeat("ä", 40)}
	stored := []string{
		"$2y$05$abcdefghijklmnopqrstuuBPv9YvLj96w2JnLiboGeXujWjL/kLUK", "$2b$05$abcdefghijklmnopqrstuuTRSHZmuydJWPjOCBk/ch5P57D9cdiM2",
		"$2a$05$abcdefghijklmnopqrstuuBPv9YvLj96w2JnLiboGeXujWjL/kLUK", "bcrypt$$2b$05$abcdefghijklmnopqrstuuTRSHZmuydJWPjOCBk/ch5P57D9cdiM2",
	}
	for _, h := range []*Hasher{cheap(t), cheap(t, pepperA)} {
		for i, hash := range stored {
			right := long[i%2]
			for _, tt := range []struct {
				password string
				imported bool
			}{{right, true}, {right[:72], true}, {right + "x", true}, {right[:71], false}, {"x" + right, false}, {right[:71] + "\x00", false}} {
				var got Result
				var err error
				var plain Result
				worked := h.workOf(func() { got, err = h.VerifyImported(hash, tt.password) })
				if want := h.workOf(func() { plain, _ = h.Verify(hash, tt.password) }); worked != want {
					t.Errorf("%.12s, %d bytes: VerifyImported takes the work %v and Verify %v", hash, len(tt.password), worked, want)
				}
				if err != nil || got != (Result{OK: tt.imported}) {
					t.Errorf("%.12s, %d bytes: got %+v, %v; want OK %v and the hash not renewed", hash, len(tt.password), got, err, tt.imported)
				}
				if plain.OK != (len(tt.password) == 72 && tt.imported) {
					t.Errorf("%.12s, %d bytes: Verify returns OK %v, want %v", hash, len(tt.password), plain.OK, !plain.OK)
				}
			}
		}
	}
	h := cheap(t, pepperA)
	peppered := h.mustHash(t, strings.Repeat("x", 72))
	if got, _ := h.VerifyImported(peppered, strings.Repeat("x", 73)); got.OK {
		t.Error("a hash with a pepper: compared only the first 72 bytes")
	}
	twin := raw(t, "a", cost, "abcdefgh12")
	if got, _ := h.VerifyImported(twin, "慢捤敦杨ㄲ"); got.OK {
		t.Error("VerifyImported accepts a text that equals the password only in the original's encoding")
	}
	if got, _ := h.VerifyImported(raw(t, "y", cost, "short"), "short"); got != (Result{true, renewPepper}) {
		t.Errorf("a short password: got %+v; want OK and a reason to renew", got)
	}
}
