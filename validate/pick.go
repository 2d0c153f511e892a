package validate

import (
	"cmp"
	"slices"
	"unicode"
)

// What a character costs in a value that people read: the cheapest value among
// the shortest is shown.
const (
	costPlain  = iota // a-z
	costDigit         // 0-9
	costUpper         // A-Z
	costSign          // the rest of ASCII that has a shape
	costLetter        // other letters and digits
	costShape         // other characters with a shape
	costBlank         // a space, a mark that needs another character
	costHidden = 1 << 16
)

// maxPicks is how many characters of a class are tried where its first one does
// not do, and maxScan how many are looked at for readable ones.
const (
	maxPicks = 8
	maxScan  = 1 << 12
)

func costOf(r rune) int {
	switch {
	case 'a' <= r && r <= 'z':
		return costPlain
	case '0' <= r && r <= '9':
		return costDigit
	case 'A' <= r && r <= 'Z':
		return costUpper
	case '!' <= r && r <= '~':
		return costSign
	case r == ' ' || unicode.IsMark(r):
		return costBlank
	case unicode.IsLetter(r) || unicode.IsDigit(r):
		return costLetter
	case unicode.IsPrint(r):
		return costShape
	default:
		return costHidden
	}
}

// choose fills the class's picks with characters that stand in a value.
func (c *class) choose(stands func(rune) bool) {
	seen, found := 0, 0
	c.whole = true
	for _, span := range c.ranges {
		for r := span.lo; r <= span.hi; r++ {
			if seen++; c.enough(r, seen) {
				c.whole = false
				return
			}
			if stands(r) {
				found++
				c.pick(r)
			}
		}
	}
	c.whole = found <= maxPicks
}

// enough reports whether what follows, from r on, can be left unseen: there are
// picks, and no better one is to be expected.
func (c *class) enough(r rune, seen int) bool {
	if r <= unicode.MaxASCII || len(c.picks) == 0 {
		return false
	}
	full := len(c.picks) == maxPicks && costOf(c.picks[maxPicks-1]) <= costLetter
	return full || seen > maxScan
}

// pick keeps r if it is among the cheapest.
func (c *class) pick(r rune) {
	at, _ := slices.BinarySearchFunc(c.picks, r, func(p, r rune) int {
		return cmp.Or(cmp.Compare(costOf(p), costOf(r)), cmp.Compare(p, r))
	})
	if at == maxPicks {
		return
	}
	c.picks = slices.Insert(c.picks, at, r)
	c.picks = c.picks[:min(len(c.picks), maxPicks)]
	c.cost = costOf(c.picks[0])
}
