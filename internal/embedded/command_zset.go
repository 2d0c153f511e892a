package embedded

import (
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
)

func formatScore(score float64) string {
	switch {
	case math.IsInf(score, 1):
		return "inf"
	case math.IsInf(score, -1):
		return "-inf"
	}
	return strconv.FormatFloat(score, 'g', 17, 64)
}

func addScores(d *data, args []string) any {
	key, pairs := args[0], args[1:]
	if len(pairs)%2 != 0 {
		return syntaxError
	}
	scores := make([]float64, 0, len(pairs)/2)
	for pair := range slices.Chunk(pairs, 2) {
		score, err := strconv.ParseFloat(pair[0], 64)
		if err != nil || math.IsNaN(score) {
			return notFloat
		}
		scores = append(scores, score)
	}
	if _, err := valueOf[*zset](d, key); err != nil {
		return err
	}
	n := int64(0)
	for i, score := range scores {
		member := pairs[2*i+1]
		if z, _ := valueOf[*zset](d, key); z != nil {
			if old, found := z.get(member); found && old == score {
				continue
			}
		}
		n += count(d.setScore(key, member, score))
	}
	return n
}

func incrementScore(d *data, args []string) any {
	z, err := valueOf[*zset](d, args[0])
	by, failed := strconv.ParseFloat(args[1], 64)
	switch {
	case failed != nil || math.IsNaN(by):
		return notFloat
	case err != nil:
		return err
	}
	score := by
	if z != nil {
		old, _ := z.get(args[2])
		score += old
	}
	if math.IsNaN(score) {
		return errorReply("ERR resulting score is not a number (NaN)")
	}
	d.setScore(args[0], args[2], score)
	return score
}

const notFloat = errorReply("ERR value is not a valid float")

// rangeByScore implements ZRANGEBYSCORE KEY LOW HIGH [WITHSCORES] [LIMIT OFFSET COUNT]. The range
// includes both ends.
func rangeByScore(d *data, args []string) any {
	options := args[3:]
	withScores := len(options) > 0 && strings.EqualFold(options[0], "WITHSCORES")
	if withScores {
		options = options[1:]
	}
	offset, limit, failed := parseLimit(options)
	low, err1 := strconv.ParseFloat(args[1], 64)
	high, err2 := strconv.ParseFloat(args[2], 64)
	switch {
	case failed != nil:
		return failed
	case err1 != nil || err2 != nil || math.IsNaN(low) || math.IsNaN(high):
		return errorReply("ERR min or max is not a float")
	}
	z, err := valueOf[*zset](d, args[0])
	if z == nil {
		return errorOrEmpty[textsReply](err)
	}
	var found []pair[float64]
	for _, p := range z.byRank() {
		switch {
		case p.value < low || p.value > high:
		case offset > 0:
			offset--
		case limit != 0:
			limit--
			found = append(found, p)
		}
	}
	return membersReply(found, withScores)
}

// membersReply returns members, with their scores if withScores is set.
func membersReply(found []pair[float64], withScores bool) any {
	if withScores {
		return scoresReply(found)
	}
	members := make(textsReply, len(found))
	for i, p := range found {
		members[i] = p.key
	}
	return members
}

func removeScores(d *data, args []string) any {
	n := int64(0)
	for _, member := range args[1:] {
		z, err := valueOf[*zset](d, args[0])
		if z == nil {
			if err == nil {
				err = n
			}
			return err
		}
		if _, found := z.get(member); found {
			d.deleteScore(args[0], member)
			n++
		}
	}
	return n
}

func countScores(d *data, args []string) any {
	z, err := valueOf[*zset](d, args[0])
	if z == nil {
		return errorOrEmpty[int64](err)
	}
	return int64(z.len())
}

func scoreOf(d *data, args []string) any {
	z, err := valueOf[*zset](d, args[0])
	if z == nil {
		return err
	}
	if score, found := z.get(args[1]); found {
		return score
	}
	return nil
}

// rangeByRank implements ZRANGE KEY FIRST LAST [REV] [WITHSCORES].
func rangeByRank(d *data, args []string) any {
	withScores, reverse := false, false
	for _, option := range args[3:] {
		switch strings.ToUpper(option) {
		case "WITHSCORES":
			withScores = true
		case "REV":
			reverse = true
		default:
			return syntaxError
		}
	}
	if _, _, err := rangeOf(args[1], args[2], 0); err != nil {
		return err
	}
	z, err := valueOf[*zset](d, args[0])
	if err != nil {
		return err
	}
	if z == nil {
		z = new(zset)
	}
	first, last, err := rangeOf(args[1], args[2], z.len())
	if err != nil {
		return err
	}
	if reverse {
		first, last = z.len()-last, z.len()-first
	}
	pairs := z.ranks(first, last)
	if reverse {
		slices.Reverse(pairs)
	}
	return membersReply(pairs, withScores)
}

// ranks returns the members of a range of ranks. If all scores are 0, the cost does not depend on
// first.
func (z *zset) ranks(first, last int) []pair[float64] {
	if z.scored > 0 {
		return z.byRank()[first:last]
	}
	return z.slice(first, last)
}

func (z *zset) byRank() []pair[float64] {
	pairs := make([]pair[float64], 0, z.len())
	z.ascend("", func(member string, score float64) bool {
		pairs = append(pairs, pair[float64]{member, score})
		return true
	})
	if z.scored > 0 {
		slices.SortStableFunc(pairs, func(a, b pair[float64]) int {
			switch {
			case a.value < b.value:
				return -1
			case a.value > b.value:
				return 1
			}
			return 0
		})
	}
	return pairs
}

// rangeOf converts two indexes of a list of n elements, as Redis counts them, to a half-open range.
func rangeOf(from, to string, n int) (first, last int, failed any) {
	first, err1 := strconv.Atoi(from)
	last, err2 := strconv.Atoi(to)
	if err1 != nil || err2 != nil {
		return 0, 0, notInteger
	}
	if first < 0 {
		first = max(0, first+n)
	}
	if last < 0 {
		last += n
	}
	last = min(last, n-1) + 1
	if first >= last {
		return 0, 0, nil
	}
	return first, last, nil
}

// A lexBound is one end of a range of members.
type lexBound struct {
	text            string
	open            bool // text itself is excluded
	lowest, highest bool // "-" and "+"
}

func parseLex(text string) (lexBound, bool) {
	switch {
	case text == "-":
		return lexBound{lowest: true}, true
	case text == "+":
		return lexBound{highest: true}, true
	case strings.HasPrefix(text, "["):
		return lexBound{text: text[1:]}, true
	case strings.HasPrefix(text, "("):
		return lexBound{text: text[1:], open: true}, true
	}
	return lexBound{}, false
}

// after reports whether member is within a range whose lower end is b.
func (b lexBound) after(member string) bool {
	return b.lowest || !b.highest && (member > b.text || member == b.text && !b.open)
}

// before reports whether member is within a range whose upper end is b.
func (b lexBound) before(member string) bool {
	return b.highest || !b.lowest && (member < b.text || member == b.text && !b.open)
}

// rangeByLex implements ZRANGEBYLEX and, with reverse, ZREVRANGEBYLEX, for zsets whose scores are
// all equal.
func rangeByLex(d *data, args []string, reverse bool) any {
	low, high := args[1], args[2]
	if reverse {
		low, high = high, low
	}
	from, ok1 := parseLex(low)
	to, ok2 := parseLex(high)
	if !ok1 || !ok2 {
		return errorReply("ERR min or max not valid string range item")
	}
	offset, limit, err := parseLimit(args[3:])
	if err != nil {
		return err
	}
	z, err := valueOf[*zset](d, args[0])
	if z == nil {
		return errorOrEmpty[textsReply](err)
	}
	found := textsReply{}
	yield := func(member string, _ float64) bool {
		switch inFrom, inTo := from.after(member), to.before(member); {
		case !inFrom && !reverse || !inTo && reverse:
			return true // the excluded end at which the range begins
		case !inFrom || !inTo || limit == 0:
			return false
		case offset > 0:
			offset--
			return true
		}
		found = append(found, member)
		limit--
		return true
	}
	switch {
	case !reverse && from.highest || reverse && to.lowest:
	case !reverse:
		z.ascend(from.text, yield)
	case to.highest:
		z.descend(yield)
	default:
		z.descendFrom(to.text, yield)
	}
	return found
}

// countByLex implements ZLEXCOUNT, for zsets whose scores are all equal.
func countByLex(d *data, args []string) any {
	from, ok1 := parseLex(args[1])
	to, ok2 := parseLex(args[2])
	if !ok1 || !ok2 {
		return errorReply("ERR min or max not valid string range item")
	}
	z, err := valueOf[*zset](d, args[0])
	if z == nil {
		return errorOrEmpty[int64](err)
	}
	first := sort.Search(z.len(), func(i int) bool { return from.after(z.keyAt(i)) })
	end := sort.Search(z.len(), func(i int) bool { return !to.before(z.keyAt(i)) })
	return int64(max(0, end-first))
}

func parseLimit(options []string) (offset, limit int, err any) {
	if len(options) == 0 {
		return 0, -1, nil
	}
	if len(options) != 3 || !strings.EqualFold(options[0], "LIMIT") {
		return 0, 0, syntaxError
	}
	offset, err1 := strconv.Atoi(options[1])
	limit, err2 := strconv.Atoi(options[2])
	switch {
	case err1 != nil || err2 != nil:
		return 0, 0, notInteger
	case offset < 0: // Redis returns nothing
		return 0, 0, nil
	}
	return offset, limit, nil
}

func scanScores(d *data, args []string) any {
	members := rangeByRank(d, []string{args[0], "0", "-1", "WITHSCORES"})
	if members == wrongType {
		return members
	}
	return arrayReply{"0", members.(scoresReply).flat()}
}
