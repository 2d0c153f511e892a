package overlap

import (
	"encoding/binary"
	"regexp/syntax"
	"slices"
	"unicode"
)

// An alphabet divides all characters into classes. No automaton of a search distinguishes the
// characters of one class.
type alphabet []class

// A class is a set of interchangeable characters.
type class struct {
	ranges   []runeRange // ascending
	any      rune        // a representative for the automata
	in       string      // for each rune set a byte: 1 if the set contains the class, else 0
	picks    []rune      // characters for witnesses, the most readable first
	complete bool        // picks contains all allowed characters of the class
	cost     int         // of the first pick; see costOf
}

type runeRange struct{ lo, hi rune }

// runeSets numbers the distinct sets of runes that instructions read.
type runeSets struct {
	ids   map[string]int
	insts []*syntax.Inst
}

func newRuneSets() *runeSets { return &runeSets{ids: make(map[string]int)} }

func (s *runeSets) id(inst *syntax.Inst) int {
	folds := binary.BigEndian.AppendUint32(nil, inst.Arg) // whether case is folded
	key, _ := binary.Append(folds, binary.BigEndian, inst.Rune)
	id, known := s.ids[string(key)]
	if !known {
		id = len(s.insts)
		s.ids[string(key)] = id
		s.insts = append(s.insts, inst)
	}
	return id
}

// The sets of runes that assertions distinguish.
var (
	wordRunes = &syntax.Inst{Op: syntax.InstRune, Rune: []rune{'0', '9', 'A', 'Z', '_', '_', 'a', 'z'}}
	lineRunes = &syntax.Inst{Op: syntax.InstRune, Rune: []rune{'\n', '\n'}}
)

// The range of code points that UTF-8 text cannot contain.
const firstSurrogate, afterSurrogates = 0xd800, 0xe000

// newAlphabet divides the characters by sets, and drops classes without an allowed character.
func newAlphabet(sets *runeSets, allowed func(rune) bool) alphabet {
	var a alphabet
	for _, c := range sets.classes() {
		if c.choose(allowed); len(c.picks) > 0 {
			a = append(a, c)
		}
	}
	slices.SortStableFunc(a, func(c, d class) int { return c.cost - d.cost })
	return a
}

// classes returns the classes into which the sets divide the characters. It divides them at the
// cuts, and joins the ranges that belong to the same sets.
func (s *runeSets) classes() []class {
	var classes []class
	indexes := make(map[string]int) // by the sets that contain the class
	cuts := s.cuts()
	for i, lo := range cuts[:len(cuts)-1] {
		if firstSurrogate <= lo && lo < afterSurrogates {
			continue
		}
		in := make([]byte, len(s.insts))
		for i, inst := range s.insts {
			if inst.MatchRune(lo) {
				in[i] = 1
			}
		}
		at, known := indexes[string(in)]
		if !known {
			at = len(classes)
			indexes[string(in)] = at
			classes = append(classes, class{any: lo, in: string(in)})
		}
		classes[at].ranges = append(classes[at].ranges, runeRange{lo, cuts[i+1] - 1})
	}
	return classes
}

// cuts returns the characters at which membership in a set can change.
func (s *runeSets) cuts() []rune {
	cuts := []rune{0, firstSurrogate, afterSurrogates, unicode.MaxRune + 1}
	for _, inst := range s.insts {
		if len(inst.Rune) == 1 {
			cuts = appendOrbit(cuts, inst.Rune[0])
			continue
		}
		for i := 0; i+1 < len(inst.Rune); i += 2 {
			cuts = append(cuts, inst.Rune[i], inst.Rune[i+1]+1)
		}
	}
	slices.Sort(cuts)
	return slices.Compact(cuts)
}

// appendOrbit adds cuts around r and every rune that differs from it only by case.
func appendOrbit(cuts []rune, r rune) []rune {
	cuts = append(cuts, r, r+1)
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		cuts = append(cuts, f, f+1)
	}
	return cuts
}

// Costs of characters. The easier a character is to read, the cheaper it is; the witness is the
// cheapest of the shortest texts.
const (
	costPlain  = iota // a-z
	costDigit         // 0-9
	costUpper         // A-Z
	costSign          // all other visible ASCII
	costLetter        // other letters and digits
	costShape         // other visible characters
	costBlank         // a space, or a mark that needs another character
	costHidden = 1 << 16
)

// maxPicks is the number of characters of a class to try if the first one fails. maxScan is the
// number of characters to examine for readable ones.
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

// choose sets the picks of the class to its cheapest allowed characters. It skips most characters
// beyond ASCII if the class already has picks and better ones are unlikely.
func (c *class) choose(allowed func(rune) bool) {
	seen, readable := 0, 0
	c.complete = true
	for _, span := range c.ranges {
		for r := span.lo; r <= span.hi && c.complete; r++ {
			seen++
			switch {
			case r > unicode.MaxASCII && len(c.picks) > 0 && (readable >= maxPicks || seen > maxScan):
				c.complete = false
			case allowed(r):
				c.picks = append(c.picks, r)
				if costOf(r) <= costLetter {
					readable++
				}
			}
		}
	}
	slices.SortStableFunc(c.picks, func(a, b rune) int { return costOf(a) - costOf(b) })
	if len(c.picks) > maxPicks {
		c.picks, c.complete = c.picks[:maxPicks], false
	}
	if len(c.picks) > 0 {
		c.cost = costOf(c.picks[0])
	}
}
