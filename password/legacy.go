package password

import (
	"unicode/utf16"
	"unicode/utf8"
)

// legacyBytes is text as the original gave it to bcrypt: of every UTF-16 unit the
// low byte, and before it the high byte where that is not zero. It is not unique:
// "日" and "eå" are the same. Text that is not UTF-8 has no such form.
//
// A lone surrogate, which JavaScript can hold, is taken in the three bytes that
// WTF-8 has for it.
func legacyBytes(text string) (b []byte, ok bool) {
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if r == utf8.RuneError && size == 1 {
			if r, size = loneSurrogate(text), 3; r == 0 {
				return nil, false
			}
		}
		text = text[size:]
		if hi, lo := utf16.EncodeRune(r); r > 0xffff {
			b = appendUnit(appendUnit(b, hi), lo)
		} else {
			b = appendUnit(b, r)
		}
	}
	return b, true
}

// loneSurrogate reads one in the form of three UTF-8 bytes from the start of text,
// which UTF-8 itself forbids; 0: there is none.
func loneSurrogate(text string) rune {
	if len(text) < 3 || text[0] != 0xed || text[1]&0xe0 != 0xa0 || text[2]&0xc0 != 0x80 {
		return 0
	}
	return 0xd000 | rune(text[1]&0x3f)<<6 | rune(text[2]&0x3f)
}

func appendUnit(b []byte, unit rune) []byte {
	if unit > 0xff {
		b = append(b, byte(unit>>8))
	}
	return append(b, byte(unit))
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
