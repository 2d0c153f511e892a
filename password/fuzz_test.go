package password

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// FuzzVerify verifies arbitrary texts and passwords. Verify must return a Result or an error that
// matches ErrHash, must stay within the limits, and must not accept a right password with text
// appended.
func FuzzVerify(f *testing.F) {
	h := cheap(f, pepperA)
	for _, v := range vectors {
		f.Add(v.stored, v.password) // valid hashes
	}
	f.Add(h.mustHash(f, "secret"), "secret")
	f.Add(cheap(f).mustHash(f, "ab"), "ab\x00ab")                     // equal to bcrypt
	f.Add("$2a$31$"+strings.Repeat(".", 53), "x")                     // would take days
	f.Add("$2a$04$"+strings.Repeat(".", 53), "\xed\xa0\xbd")          // a lone surrogate
	f.Add("$argon2id$v=19$m=4294967295,t=1,p=1$AAAAAAAAAAA$AAAA", "") // would need 4 TiB
	f.Add("$scrypt$ln=63,r=8,p=1$AAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA", "")
	f.Add("$5$rounds=999999999$salt$"+strings.Repeat("a", 43), "")
	f.Add("", "ä")
	for _, v := range productHashes(f) {
		if !costly(v) {
			f.Add(v.Stored, v.Password)
		}
	}
	f.Add(productFirebase, "x")
	f.Add("$P$z"+strings.Repeat(".", 30), "x")                        // would take hours
	f.Add(identity(2, 1<<32-1, 16, 16+64), "x")                       // would take minutes
	f.Add(identity(1, 1000, 1<<32-1, 16+32), "x")                     // the salt is truncated
	f.Add("scrypt$999999999$0123456789ab$999999999$999999999$AA", "") // would need exabytes
	f.Add("pbkdf2_sha256$999999999$0123456789ab$"+strings.Repeat("A", 43)+"=", "x")
	f.Add("$wp$2y$31$"+strings.Repeat(".", 53), "it's")
	f.Add("bcrypt_sha256$$2b$31$"+strings.Repeat(".", 53), "x")
	f.Fuzz(func(t *testing.T, stored, password string) {
		err := h.Usable(stored)
		if err != nil && !errors.Is(err, ErrHash) {
			t.Fatalf("Usable: got %v, want ErrHash", err)
		}
		if err == nil && !withinLimits(stored) {
			t.Fatalf("%q is accepted, but its cost exceeds the limits", stored)
		}
		if err == nil && expensive(stored) {
			return
		}
		got, verr := h.Verify(stored, password)
		if (err == nil) != (verr == nil) && stored != "" {
			t.Fatalf("Usable: %v, Verify: %v", err, verr)
		}
		if !got.OK && got.Renew != "" {
			t.Fatalf("Verify asks to renew the hash for a wrong password: %+v", got)
		}
		if looser, err := h.VerifyOriginal(stored, password); got.OK && looser != got || (err == nil) != (verr == nil) {
			t.Fatalf("Verify returns %+v, but VerifyOriginal %+v, %v", got, looser, err)
		}
		if more, _ := h.Verify(stored, password+"x"); got.OK && more.OK {
			t.Fatalf("%q is right with an x after it", password)
		}
	})
}

var (
	number = regexp.MustCompile(`(m|t|p|ln|r|rounds)=(\d+)|^\$?(pbkdf2)[^$]*\$(\d+)|^(?:p...|\$wp|bcrypt(?:_sha256)?\$)?\$2.\$(\d+)`)
	django = regexp.MustCompile(`^scrypt\$(\d+)\$[^$]*\$(\d+)\$(\d+)`)
	phpLog = regexp.MustCompile(`^\$[PHS]\$(.)`)
	// Spellings of products.
	spelledScrypt = regexp.MustCompile(`^(?:scrypt:(\d+):(\d+):(\d+)|\$scrypt\$[nN]=(\d+),r=(\d+),p=(\d+))`)
	spelledPBKDF2 = regexp.MustCompile(`(?i)^(?:pbkdf2:\w+:|\$pbkdf2-\w+\$i=|\{pbkdf2[^}]*\}(?:\$1\$[^$]*\$)?)(\d+)\$`)
	spelledBcrypt = regexp.MustCompile(`^(?:\$bcrypt-sha256\$(?:v=2,t=)?2.,(?:r=)?(\d+)|(?:\{[\w-]+\}|1\|)\$2.\$(\d+))`)
	// spelledFixed matches hashes whose costs are fixed, or are not written as decimal numbers.
	spelledFixed = regexp.MustCompile(`^(?:\{(?:pbkdf2|scrypt)[^}]*\}[$0-9a-f]|(?:s2:)?[0-9a-f]{32}:)`)
)

// costs returns the numbers in a hash by name; the name of bcrypt's cost is empty. It does not use
// parse, so that it can check what parse accepts.
func costs(stored string) map[string]float64 {
	n := map[string]float64{}
	for _, m := range number.FindAllStringSubmatch(stored, -1) {
		v, _ := strconv.ParseFloat(m[2]+m[4]+m[5], 64)
		n[m[1]+m[3]] = v
	}
	if m := django.FindStringSubmatch(stored); m != nil {
		for i, name := range []string{"ln", "r", "p"} {
			n[name], _ = strconv.ParseFloat(m[1+i], 64)
		}
		n["ln"] = math.Log2(n["ln"])
	}
	if m := spelledScrypt.FindStringSubmatch(stored); m != nil {
		for i, name := range []string{"ln", "r", "p"} {
			n[name], _ = strconv.ParseFloat(m[1+i]+m[4+i], 64)
		}
		n["ln"] = math.Log2(n["ln"])
	}
	if m := spelledPBKDF2.FindStringSubmatch(stored); m != nil {
		n["pbkdf2"], _ = strconv.ParseFloat(m[1], 64)
	}
	if m := spelledBcrypt.FindStringSubmatch(stored); m != nil {
		n[""], _ = strconv.ParseFloat(m[1]+m[2], 64)
		delete(n, "r")
	}
	if m := phpLog.FindStringSubmatch(stored); m != nil {
		n["phpass"] = float64(strings.Index(phpassDigits, m[1]))
	}
	if b, err := base64.StdEncoding.DecodeString(stored); err == nil && len(b) > 9 && b[0] == 1 {
		n["pbkdf2"] = float64(binary.BigEndian.Uint32(b[5:]))
	}
	return n
}

func withinLimits(stored string) bool {
	n := costs(stored)
	memory := 128 * n["r"] * math.Exp2(n["ln"])
	return len(stored) <= 512 && n["m"]*max(n["t"], 1) <= 1<<20 && n["p"] <= 16 &&
		memory <= 256<<20 && memory*n["p"] <= 512<<20 &&
		n["rounds"] <= 1e6 && n["pbkdf2"] <= 2e6 && n[""] <= 15 && n["phpass"] <= 20
}

// expensive reports whether a hash would make fuzzing slow, or has costs that costs cannot read.
// Of such hashes, only the limits are tested.
func expensive(stored string) bool {
	n := costs(stored)
	return spelledFixed.MatchString(stored) || n["m"]*n["t"] > 4096 || n["r"]*n["p"]*math.Exp2(n["ln"]) > 4096 ||
		n["rounds"] > 5000 || n["pbkdf2"] > 5000 || n[""] > 5 || n["phpass"] > 13
}

// FuzzStrength checks that every text has a report.
func FuzzStrength(f *testing.F) {
	for _, s := range []string{"", "p@ssw0rd", "1/1/1999", "drowssap", "aAaAaA", "4bcd3fgh!", "qwER43@!"} {
		f.Add(s, "me")
	}
	// Texts whose lower case has another length, ligatures, characters beyond the basic plane, and
	// invalid UTF-8.
	for _, s := range []string{"İİİ", "ȺȺȺȺ", "ﬁﬁﬁ123", "日本日本日本", "drowssap😀", "\xff\xfe"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, password, own string) {
		r := Strength(password, own)
		if r.Score < 0 || r.Score > 4 || r.Level < 0 || r.Level > 6 || r.Time == "" ||
			math.IsNaN(r.Entropy) || math.IsInf(r.Seconds, 0) || r.Entropy < 0 {
			t.Fatalf("%q: the report has an impossible value: %+v", password, r)
		}
	})
}

// FuzzPolicy checks that every refusal is a PolicyError with a rule, and that a password is its own
// identifier unless it is blank.
func FuzzPolicy(f *testing.F) {
	f.Add("password", "me", 8)
	f.Add("ｍｅ", "me", 1)
	f.Add("\u0130\xff", "\u0130", 0)
	f.Fuzz(func(t *testing.T, password, own string, least int) {
		err := Policy{Min: least, Blocklist: true}.Check(password, own)
		var refused *PolicyError
		if err != nil && (!errors.As(err, &refused) || refused.Rule == "") {
			t.Fatalf("%q: got %v, want an error with a rule", password, err)
		}
		if isIdentifier(fold(password), password) != (strings.TrimSpace(fold(password)) != "") {
			t.Fatalf("%q is not its own identifier", password)
		}
	})
}

// FuzzCutBcrypt compares cutBcrypt with a regular expression.
func FuzzCutBcrypt(f *testing.F) {
	shape := regexp.MustCompile(`^(p[A-Za-z0-9_-]{3})?(\$2[aby]\$[0-9]{2}\$[./A-Za-z0-9]{53})$`)
	for _, head := range []string{
		"$2a$04$", "$2b$15$", "$2y$10$", "$2a$16$", "$2x$10$", "$2a$0:$", "$2a$1/$", "pA-_$2a$04$", "pA/_$2a$04$", "qA-_$2a$04$", "p$2a$04$",
	} {
		f.Add(head + strings.Repeat("./9Az", 11)[:53])
	}
	f.Fuzz(func(t *testing.T, stored string) {
		want := shape.FindStringSubmatch(stored)
		mark, hash, ok := cutBcrypt(stored)
		if ok != (want != nil) || ok && (mark != want[1] || hash != want[2]) {
			t.Fatalf("%q is cut into %q and %q, %v, want %q", stored, mark, hash, ok, want)
		}
	})
}
