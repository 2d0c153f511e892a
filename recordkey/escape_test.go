package recordkey_test

import (
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/recordkey"
)

func TestEscape(t *testing.T) {
	for _, row := range []struct{ raw, escaped string }{
		{"", ""},
		{"Alice", "Alice"},
		{"john@example.com", "john@example.com"},
		{"Just A. User", "Just+_A.+_User"},
		{"http://example.com/foo/bar/", "http+.+,+,example.com+,foo+,bar+,"},
		{"+", "++"},
		{"a+_b", "a++_b"}, // CoffeeNode UserDB, the original of this store, reads this as "a+ b"
		{"{x}", "+(x+)"},
		{"a\tb\r\n", "a+x09b+x0d+x0a"},
		{"\x00\x1f\x7f", "+x00+x1f+x7f"},
		{"\u0080\u0085\u00a0", "+xc2+x80+xc2+x85+xc2+xa0"},
		{"\u2028\u3000", "+xe2+x80+xa8+xe3+x80+x80"},
		{"\xff", "+xff"},
		{"\xc3\xa9", "é"},
		{"\xc3", "+xc3"},
		{"\xc3x", "+xc3x"},
		{"\xed\xa0\x80", "+xed+xa0+x80"}, // half of a surrogate pair is not UTF-8
		{"\xc0\xaf", "+xc0+xaf"},         // a slash encoded in two bytes is not UTF-8
		{"\ufffd", "\ufffd"},
		{"x41", "x41"},
		{"+x41", "++x41"},
	} {
		if got := recordkey.Escape(row.raw); got != row.escaped {
			t.Errorf("Escape(%q) = %q, want %q", row.raw, got, row.escaped)
		}
		if got, err := recordkey.Unescape(row.escaped); err != nil || got != row.raw {
			t.Errorf("Unescape(%q) = %q, %v, want %q", row.escaped, got, err, row.raw)
		}
	}
}

func TestUnescapeErrors(t *testing.T) {
	_, err := recordkey.Unescape("a++_b c")
	checkErr(t, err, `recordkey.Unescape: "a++_b c" at byte 5: " " must be written +_`)
	_, err = recordkey.Unescape("a+")
	checkErr(t, err, `recordkey.Unescape: "a+" at byte 1: invalid escape`)
	_, err = recordkey.Unescape(strings.Repeat("y", 100) + "+x41" + strings.Repeat("z", 100))
	checkErr(t, err, `recordkey.Unescape: …"`+strings.Repeat("y", 40)+"+x41"+strings.Repeat("z", 36)+
		`"… at byte 100: "A" must not be written in hex`)
}

func TestUnescapeLoose(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"", ""},
		{"Just A. User", "Just A. User"},
		{"Just+_A.+_User", "Just A. User"},
		{"a++_b", "a+_b"}, // CoffeeNode UserDB, the original of this store, returns "a+ b"
		{"a + b+", "a + b+"},
		{"+q+x4+xc3+xa9+x41", "+q+x4éA"},
		{"user/name:+(x+)", "user/name:{x}"},
	} {
		if got := recordkey.UnescapeLoose(row.text); got != row.want {
			t.Errorf("UnescapeLoose(%q) = %q, want %q", row.text, got, row.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		raw := crumbs().Draw(t, "raw")
		if got := recordkey.UnescapeLoose(recordkey.Escape(raw)); got != raw {
			t.Fatalf("%q is read back as %q", raw, got)
		}
	})
}

// TestEscapedCodePoints checks which code points are escaped. The list is frozen: a new Unicode
// version must not move existing values to new keys.
func TestEscapedCodePoints(t *testing.T) {
	want := map[rune]bool{'+': true, ' ': true, '/': true, ':': true, '{': true, '}': true}
	add := func(first, last rune) {
		for r := first; r <= last; r++ {
			want[r] = true
		}
	}
	add(0x00, 0x1f)     // control characters, including five white space characters
	add(0x7f, 0xa0)     // DEL, and the C1 controls with U+0085, and no-break space
	add(0x1680, 0x1680) // ogham space mark
	add(0x2000, 0x200a) // en quad to hair space
	add(0x2028, 0x2029) // line and paragraph separator
	add(0x202f, 0x202f) // narrow no-break space
	add(0x205f, 0x205f) // medium mathematical space
	add(0x3000, 0x3000) // ideographic space
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r >= 0xd800 && r <= 0xdfff {
			continue // surrogates are not characters
		}
		s := string(r)
		if got := recordkey.Escape(s) != s; got != want[r] {
			t.Errorf("%U is escaped: got %v, want %v", r, got, want[r])
		}
	}
}

// TestWhiteSpaceIsUnicode checks characters about which definitions of white space differ. The
// original of this store, CoffeeNode UserDB, splits keys at JavaScript's \s, which includes U+FEFF
// but not U+0085. Unicode's property White_Space includes U+0085 but not U+FEFF. U+180E lost the
// property in Unicode 6.3; U+200B never had it.
func TestWhiteSpaceIsUnicode(t *testing.T) {
	for _, row := range []struct {
		r       rune
		escaped bool
	}{{0xfeff, false}, {0x0085, true}, {0x180e, false}, {0x200b, false}} {
		s := string(row.r)
		if got := recordkey.Escape(s) != s; got != row.escaped {
			t.Errorf("%U is escaped: got %v, want %v", row.r, got, row.escaped)
		}
		if got := unicode.Is(unicode.White_Space, row.r); got != row.escaped {
			t.Errorf("%U has White_Space: got %v, want %v", row.r, got, row.escaped)
		}
	}
}

func TestEscapesDoNotCollide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := crumbs().Draw(t, "a"), crumbs().Draw(t, "b")
		if a != b && recordkey.Escape(a) == recordkey.Escape(b) {
			t.Fatalf("%q and %q are both escaped as %q", a, b, recordkey.Escape(a))
		}
		// The parts may split a character that the whole contains. Unescape must still reverse the
		// escaping of the whole.
		if got, err := recordkey.Unescape(recordkey.Escape(a + b)); err != nil || got != a+b {
			t.Fatalf("%q is read back as %q, %v", a+b, got, err)
		}
	})
}

func FuzzEscape(f *testing.F) {
	for _, seed := range []string{
		"Just A. User", "a++_b", "+x41", "{x}", "\x00", "\u0085", "\ufeff", "\xc3\xa9\xc3",
		"+xc3+xa9", "+xe2+x80+xa8", "+xff", // valid and invalid escapes
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		escaped := recordkey.Escape(s)
		if got, err := recordkey.Unescape(escaped); err != nil || got != s {
			t.Errorf("%q, escaped as %q, is read back as %q, %v", s, escaped, got, err)
		}
		if strings.ContainsAny(escaped, " /:{}\x00\t\n") {
			t.Errorf("%q is escaped as %q, which still has special characters", s, escaped)
		}
		if raw, err := recordkey.Unescape(s); err == nil && recordkey.Escape(raw) != s {
			t.Errorf("%q is read as %q, which is escaped as %q", s, raw, recordkey.Escape(raw))
		}
	})
}
