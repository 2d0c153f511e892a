package embedded

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Lists.

func pushItems(d *data, args []string) any {
	if _, err := valueOf[*list](d, args[0]); err != nil {
		return err
	}
	d.push(args[0], args[1:]...)
	return countItems(d, args)
}

// pushFront puts the items at the front one by one, so that the last one comes first.
func pushFront(d *data, args []string) any {
	l, err := valueOf[*list](d, args[0])
	if err != nil {
		return err
	}
	items := slices.Clone(args[1:])
	slices.Reverse(items)
	if l != nil {
		items = append(items, l.items...)
	}
	d.setItems(args[0], items)
	return int64(len(items))
}

func popItem(d *data, key string, first bool) any {
	l, err := valueOf[*list](d, key)
	if l == nil {
		return err
	}
	at := len(l.items) - 1
	if first {
		at = 0
	}
	item := l.items[at]
	d.setItems(key, slices.Delete(slices.Clone(l.items), at, at+1))
	return item
}

// removeItems implements LREM KEY COUNT ITEM. It removes the first COUNT items that equal ITEM if
// COUNT is positive, the last -COUNT if it is negative, and all if it is 0.
func removeItems(d *data, args []string) any {
	l, err := valueOf[*list](d, args[0])
	n, failed := strconv.Atoi(args[1])
	switch {
	case failed != nil:
		return notInteger
	case l == nil:
		return errorOrEmpty[int64](err)
	}
	items := slices.Clone(l.items)
	if n < 0 {
		slices.Reverse(items)
	}
	limit, removed := max(n, -max(n, -math.MaxInt)), 0
	items = slices.DeleteFunc(items, func(item string) bool {
		remove := item == args[2] && (limit == 0 || removed < limit)
		removed += int(count(remove))
		return remove
	})
	if n < 0 {
		slices.Reverse(items)
	}
	if removed > 0 {
		d.setItems(args[0], items)
	}
	return int64(removed)
}

func countItems(d *data, args []string) any {
	l, err := valueOf[*list](d, args[0])
	if l == nil {
		return errorOrEmpty[int64](err)
	}
	return int64(len(l.items))
}

func rangeOfItems(d *data, args []string) any {
	if _, _, err := rangeOf(args[1], args[2], 0); err != nil {
		return err
	}
	l, err := valueOf[*list](d, args[0])
	if err != nil {
		return err
	}
	if l == nil {
		l = new(list)
	}
	first, last, err := rangeOf(args[1], args[2], len(l.items))
	if err != nil {
		return err
	}
	return textsReply(l.items[first:last])
}

// Streams.

const badStreamID = errorReply("ERR Invalid stream ID specified as stream command argument")

// parseStreamID parses MS-SEQ, or MS alone with the given sequence number.
func parseStreamID(text string, seq uint64) (id streamID, ok bool) {
	ms, rest, found := strings.Cut(text, "-")
	id.ms, id.seq = 0, seq
	n, err := strconv.ParseUint(ms, 10, 64)
	if err != nil {
		return id, false
	}
	id.ms = n
	if found {
		if id.seq, err = strconv.ParseUint(rest, 10, 64); err != nil {
			return id, false
		}
	}
	return id, true
}

func (id streamID) String() string {
	return strconv.FormatUint(id.ms, 10) + "-" + strconv.FormatUint(id.seq, 10)
}

// addEntry implements XADD KEY [MAXLEN|MINID [=|~] N] ID FIELD VALUE ….
func addEntry(d *data, args []string) any {
	limit, rest, err := parseTrim(args[1:])
	if err != nil {
		return err
	}
	if len(rest) < 3 || len(rest)%2 == 0 {
		return errorReply("ERR wrong number of arguments for 'xadd' command")
	}
	ms, next := strings.CutSuffix(rest[0], "-*") // the next ID of a millisecond
	given, ok := parseStreamID(ms, 0)
	if !ok && rest[0] != "*" || next && strings.Contains(ms, "-") {
		return badStreamID
	}
	s, err := valueOf[*stream](d, args[0])
	if err != nil {
		return err
	}
	var last streamID
	if s != nil {
		last = s.last
	}
	id := streamID{ms: uint64(d.now)}
	if ok {
		if id = given; next && id.ms == last.ms {
			id.seq = last.seq + 1
		}
		if !last.less(id) {
			return errorReply("ERR The ID specified in XADD is equal or smaller than the target stream top item")
		}
	} else if !last.less(id) {
		id = streamID{last.ms, last.seq + 1}
	}
	d.addEntry(args[0], id, rest[1:]...)
	limit.apply(d, args[0])
	return id.String()
}

// A trimLimit limits the entries of a stream.
type trimLimit struct {
	maxLen int      // -1 for any number
	minID  streamID // the zero ID for any
}

// parseTrim parses the options of XTRIM, which XADD also has, and returns the arguments after them.
func parseTrim(args []string) (limit trimLimit, rest []string, err any) {
	limit.maxLen = -1
	if len(args) == 0 {
		return limit, args, nil
	}
	how := strings.ToUpper(args[0])
	if how != "MAXLEN" && how != "MINID" {
		return limit, args, nil
	}
	args = args[1:]
	if len(args) > 0 && (args[0] == "~" || args[0] == "=") {
		args = args[1:]
	}
	if len(args) == 0 {
		return limit, nil, syntaxError
	}
	if how == "MAXLEN" {
		n, failed := strconv.Atoi(args[0])
		if failed != nil || n < 0 {
			return limit, nil, notInteger
		}
		limit.maxLen = n
	} else {
		var ok bool
		if limit.minID, ok = parseStreamID(args[0], 0); !ok {
			return limit, nil, badStreamID
		}
	}
	args = args[1:]
	if len(args) >= 2 && strings.EqualFold(args[0], "LIMIT") {
		args = args[2:]
	}
	return limit, args, nil
}

// apply removes the entries beyond the limit and returns their number.
func (l trimLimit) apply(d *data, key string) int64 {
	s, _ := valueOf[*stream](d, key)
	if s == nil {
		return 0
	}
	n := 0
	if l.maxLen >= 0 {
		n = max(0, s.len()-l.maxLen)
	}
	if least := l.minID.key(); l.minID != (streamID{}) {
		s.ascend("", func(id string, _ []string) bool {
			if id < least {
				n++
			}
			return id < least
		})
	}
	if n > 0 {
		d.trim(key, n)
	}
	return int64(n)
}

func trimStream(d *data, args []string) any {
	limit, rest, err := parseTrim(args[1:])
	if err != nil {
		return err
	}
	if len(rest) != 0 {
		return syntaxError
	}
	if _, err := valueOf[*stream](d, args[0]); err != nil {
		return err
	}
	return limit.apply(d, args[0])
}

func deleteEntries(d *data, args []string) any {
	s, err := valueOf[*stream](d, args[0])
	if s == nil {
		return errorOrEmpty[int64](err)
	}
	ids := make([]streamID, len(args)-1)
	for i, text := range args[1:] {
		var ok bool
		if ids[i], ok = parseStreamID(text, 0); !ok {
			return badStreamID
		}
	}
	n := int64(0)
	for _, id := range ids {
		s, _ := valueOf[*stream](d, args[0])
		if _, found := s.get(id.key()); found {
			d.deleteEntry(args[0], id)
			n++
		}
	}
	return n
}

func countEntries(d *data, args []string) any {
	s, err := valueOf[*stream](d, args[0])
	if s == nil {
		return errorOrEmpty[int64](err)
	}
	return int64(s.len())
}

// rangeOfEntries implements XRANGE and, with reverse, XREVRANGE.
func rangeOfEntries(d *data, key, low, high string, options []string, reverse bool) any {
	limit := -1
	if len(options) > 0 {
		n, err := strconv.Atoi(options[len(options)-1])
		if len(options) != 2 || !strings.EqualFold(options[0], "COUNT") || err != nil {
			return syntaxError
		}
		limit = max(0, n)
	}
	from, ok1 := parseBound(low, true)
	to, ok2 := parseBound(high, false)
	if !ok1 || !ok2 {
		return badStreamID
	}
	s, err := valueOf[*stream](d, key)
	if s == nil {
		return errorOrEmpty[arrayReply](err)
	}
	entries, first, last := arrayReply{}, from.key(), to.key()
	yield := func(id string, fields []string) bool {
		if id < first || id > last || len(entries) == limit {
			return false
		}
		entries = append(entries, arrayReply{parseStreamKey(id).String(), textsReply(slices.Clone(fields))})
		return true
	}
	if reverse {
		s.descendFrom(last, yield)
	} else {
		s.ascend(first, yield)
	}
	return entries
}

// parseBound parses the lower or upper end of a range of IDs.
func parseBound(text string, lower bool) (id streamID, ok bool) {
	last := streamID{math.MaxUint64, math.MaxUint64}
	switch text {
	case "-":
		return streamID{}, true
	case "+":
		return last, true
	}
	seq := uint64(0)
	if !lower {
		seq = math.MaxUint64
	}
	text, exclusive := strings.CutPrefix(text, "(")
	id, ok = parseStreamID(text, seq)
	switch {
	case !exclusive || !ok:
	case lower:
		ok = id != last
		if id.seq++; id.seq == 0 {
			id.ms++
		}
	default:
		ok = id != streamID{}
		if id.seq == 0 {
			id.ms--
		}
		id.seq--
	}
	return id, ok
}
