package validate

import (
	"slices"
	"unicode/utf8"
)

// The parameters of Punycode (RFC 3492 §5).
const (
	punyBase  = 36
	punyTMin  = 1
	punyTMax  = 26
	punySkew  = 38
	punyDamp  = 700
	punyBias  = 72
	punyFirst = utf8.RuneSelf
)

// labelLen is the length of label in octets as DNS keeps it: as an A-label, which
// is "xn--" and Punycode, if it is not ASCII.
func labelLen(label string) int {
	if ascii(label) {
		return len(label)
	}
	return len("xn--") + punycodeLen([]rune(label))
}

// punycodeLen counts the digits that the encoder of RFC 3492 §6.3 would write.
func punycodeLen(label []rune) int {
	rest := slices.Clone(label)
	slices.Sort(rest)
	basic, _ := slices.BinarySearch(rest, punyFirst)
	n, done, bias, delta := basic, basic, punyBias, 0
	if basic > 0 {
		n++ // the hyphen behind them
	}
	last := rune(punyFirst)
	for _, next := range slices.Compact(rest[basic:]) {
		delta += int(next-last) * (done + 1)
		for _, r := range label {
			if r < next {
				delta++
			}
			if r == next {
				n += digitsLen(delta, bias)
				bias = adapt(delta, done+1, done == basic)
				delta, done = 0, done+1
			}
		}
		delta++
		last = next + 1
	}
	return n
}

// digitsLen is how many digits delta takes.
func digitsLen(delta, bias int) int {
	for n, k := 1, punyBase; ; n, k = n+1, k+punyBase {
		t := min(max(k-bias, punyTMin), punyTMax)
		if delta < t {
			return n
		}
		delta = (delta - t) / (punyBase - t)
	}
}

func adapt(delta, points int, first bool) int {
	if first {
		delta /= punyDamp
	} else {
		delta /= 2
	}
	delta += delta / points
	k := 0
	for ; delta > (punyBase-punyTMin)*punyTMax/2; k += punyBase {
		delta /= punyBase - punyTMin
	}
	return k + (punyBase-punyTMin+1)*delta/(delta+punySkew)
}
