package embedded

import (
	"slices"
	"strconv"
	"strings"
)

// A command is one of the commands of Redis that the store knows. They answer as Redis 7 does,
// apart from the order of unordered replies, which is sorted here.
type command struct {
	min, max int // number of arguments; a negative max means any number
	// run carries the command out. It changes nothing if it returns an errorReply.
	run func(d *data, args []string) any
}

const anyNumber = -1

// commands holds the commands that work on records, by their names in capitals.
var commands = map[string]command{
	"PING":   {0, 1, func(_ *data, a []string) any { return ping(a) }},
	"ECHO":   {1, 1, func(_ *data, a []string) any { return a[0] }},
	"TIME":   {0, 0, timeNow},
	"SELECT": {1, 1, selectDatabase},
	"WAIT":   {2, 2, func(*data, []string) any { return int64(0) }},

	"DBSIZE":   {0, 0, countKeys},
	"FLUSHALL": {0, 1, flushAll},
	"FLUSHDB":  {0, 1, flushAll},
	"KEYS":     {1, 1, matchKeys},
	"SCAN":     {1, anyNumber, scanAll},
	"SCANKEYS": {3, 3, scanKeys},

	"COPY":      {2, 3, copyKey},
	"DEL":       {1, anyNumber, deleteKeys},
	"EXISTS":    {1, anyNumber, countExisting},
	"EXPIRE":    {2, 2, func(d *data, a []string) any { return expireIn(d, a, 1000) }},
	"MEMORY":    {2, 4, memoryUsage},
	"PERSIST":   {1, 1, persist},
	"PEXPIRE":   {2, 2, func(d *data, a []string) any { return expireIn(d, a, 1) }},
	"PEXPIREAT": {2, 2, expireAt},
	"PTTL":      {1, 1, func(d *data, a []string) any { return timeToLive(d, a[0], 1) }},
	"RENAME":    {2, 2, renameKey},
	"TTL":       {1, 1, func(d *data, a []string) any { return timeToLive(d, a[0], 1000) }},
	"TYPE":      {1, 1, typeOfKey},
	"UNLINK":    {1, anyNumber, deleteKeys},

	"GET":      {1, 1, getString},
	"GETRANGE": {3, 3, getRange},
	"INCR":     {1, 1, increment},
	"MGET":     {1, anyNumber, getStrings},
	"MSET":     {2, anyNumber, setStrings},
	"SET":      {2, anyNumber, setString},
	"SETNX":    {2, 2, func(d *data, a []string) any { return count(setString(d, append(a, "NX")) != nil) }},
	"STRLEN":   {1, 1, stringLength},

	"HDEL":    {2, anyNumber, deleteFields},
	"HEXISTS": {2, 2, hasField},
	"HGET":    {2, 2, getField},
	"HGETALL": {1, 1, getHash},
	"HINCRBY": {3, 3, incrementField},
	"HKEYS":   {1, 1, fieldNames},
	"HLEN":    {1, 1, countFields},
	"HMGET":   {2, anyNumber, getFields},
	"HSCAN":   {2, anyNumber, scanFields},
	"HSET":    {3, anyNumber, setFields},
	"HSETNX":  {3, 3, setNewField},

	"SADD":        {2, anyNumber, addMembers},
	"SCARD":       {1, 1, countMembers},
	"SISMEMBER":   {2, 2, isMember},
	"SMEMBERS":    {1, 1, allMembers},
	"SMISMEMBER":  {2, anyNumber, areMembers},
	"SREM":        {2, anyNumber, removeMembers},
	"SSCAN":       {2, anyNumber, scanMembersAll},
	"SCANMEMBERS": {3, 3, scanMembers},
	"SUNIONSTORE": {2, anyNumber, storeUnion},

	"ZADD":           {3, anyNumber, addScores},
	"ZCARD":          {1, 1, countScores},
	"ZINCRBY":        {3, 3, incrementScore},
	"ZRANGE":         {3, 5, rangeByRank},
	"ZRANGEBYLEX":    {3, 6, func(d *data, a []string) any { return rangeByLex(d, a, false) }},
	"ZRANGEBYSCORE":  {3, 4, rangeByScore},
	"ZREM":           {2, anyNumber, removeScores},
	"ZREVRANGEBYLEX": {3, 6, func(d *data, a []string) any { return rangeByLex(d, a, true) }},
	"ZSCAN":          {2, anyNumber, scanScores},
	"ZSCORE":         {2, 2, scoreOf},

	"LLEN":   {1, 1, countItems},
	"LRANGE": {3, 3, rangeOfItems},
	"LPOP":   {1, 1, func(d *data, a []string) any { return popItem(d, a[0], true) }},
	"LPUSH":  {2, anyNumber, pushFront},
	"LREM":   {3, 3, removeItems},
	"RPOP":   {1, 1, func(d *data, a []string) any { return popItem(d, a[0], false) }},
	"RPUSH":  {2, anyNumber, pushItems},

	"XADD":      {4, anyNumber, addEntry},
	"XDEL":      {2, anyNumber, deleteEntries},
	"XLEN":      {1, 1, countEntries},
	"XRANGE":    {3, 5, func(d *data, a []string) any { return rangeOfEntries(d, a[0], a[1], a[2], a[3:], false) }},
	"XREVRANGE": {3, 5, func(d *data, a []string) any { return rangeOfEntries(d, a[0], a[2], a[1], a[3:], true) }},
	"XTRIM":     {3, anyNumber, trimStream},
}

// run carries out a command.
func (d *data) run(words []string) any {
	name := strings.ToUpper(words[0])
	c, known := commands[name]
	if !known {
		return errorReply("ERR unknown command '" + words[0] + "'")
	}
	if n := len(words) - 1; n < c.min || c.max != anyNumber && n > c.max {
		return errorReply("ERR wrong number of arguments for '" + strings.ToLower(name) + "' command")
	}
	return c.run(d, words[1:])
}

func ping(args []string) any {
	if len(args) == 1 {
		return args[0]
	}
	return statusReply("PONG")
}

func timeNow(d *data, _ []string) any {
	return textsReply{strconv.FormatInt(d.now/1000, 10), strconv.FormatInt(d.now%1000*1000, 10)}
}

func selectDatabase(_ *data, args []string) any {
	if args[0] != "0" {
		return errorReply("ERR DB index is out of range")
	}
	return okReply
}

// count returns the number of the arguments that are true.
func count(all ...bool) int64 {
	n := int64(0)
	for _, is := range all {
		if is {
			n++
		}
	}
	return n
}

// valueOf returns the value at key. If there is none it returns the zero value, and if it has
// another type an errorReply.
func valueOf[T any](d *data, key string) (value T, err any) {
	o := d.get(key)
	if o == nil {
		return value, nil
	}
	value, is := o.value.(T)
	if !is {
		return value, wrongType
	}
	return value, nil
}

// allRead registers a read of all records.
func (d *data) allRead() { d.read("") }

func countKeys(d *data, _ []string) any {
	d.allRead()
	return int64(d.keys.Len())
}

func flushAll(d *data, _ []string) any {
	for _, key := range d.allKeys() {
		d.delete(key)
	}
	return okReply
}

func matchKeys(d *data, args []string) any {
	d.allRead()
	var keys textsReply
	d.keys.Scan(func(key string, o *object) bool {
		if !d.expired(o) && matchGlob(args[0], key) {
			keys = append(keys, key)
		}
		return true
	})
	return keys
}

// scanAll carries out SCAN. It returns all keys in one step, since a cursor of Redis is only a
// number.
func scanAll(d *data, args []string) any {
	pattern, err := scanPattern(args[1:])
	if err != nil {
		return err
	}
	return arrayReply{"0", matchKeys(d, []string{pattern})}
}

// scanPattern returns the pattern among the options of a SCAN.
func scanPattern(options []string) (pattern string, err any) {
	pattern = "*"
	for ; len(options) >= 2; options = options[2:] {
		switch strings.ToUpper(options[0]) {
		case "MATCH":
			pattern = options[1]
		case "COUNT":
		default:
			return "", syntaxError
		}
	}
	if len(options) > 0 {
		return "", syntaxError
	}
	return pattern, nil
}

// scanKeys carries out SCANKEYS PATTERN AFTER COUNT, a command of this store. It looks at COUNT
// keys after the key AFTER and returns the last of them, "" at the end, followed by those that
// match. It begins at the first key that can match.
func scanKeys(d *data, args []string) any {
	d.allRead()
	pattern, after := args[0], args[1]
	limit, err := strconv.Atoi(args[2])
	if err != nil || limit <= 0 {
		return notInteger
	}
	prefix := literalPrefix(pattern)
	found := textsReply{""}
	d.keys.Ascend(max(after, prefix), func(key string, o *object) bool {
		if key == after {
			return true
		}
		if !strings.HasPrefix(key, prefix) {
			return false
		}
		if limit == 0 {
			found[0] = after
			return false
		}
		limit, after = limit-1, key
		if !d.expired(o) && matchGlob(pattern, key) {
			found = append(found, key)
		}
		return true
	})
	return found
}

func deleteKeys(d *data, keys []string) any {
	n := int64(0)
	for _, key := range keys {
		if d.get(key) != nil {
			d.delete(key)
			n++
		}
	}
	return n
}

func countExisting(d *data, keys []string) any {
	n := int64(0)
	for _, key := range keys {
		n += count(d.get(key) != nil)
	}
	return n
}

func typeOfKey(d *data, args []string) any {
	o := d.get(args[0])
	if o == nil {
		return statusReply("none")
	}
	switch o.value.(type) {
	case string:
		return statusReply("string")
	case *hash:
		return statusReply("hash")
	case *set:
		return statusReply("set")
	case *zset:
		return statusReply("zset")
	case *list:
		return statusReply("list")
	}
	return statusReply("stream")
}

// memoryUsage returns about how many bytes a record takes in a file.
func memoryUsage(d *data, args []string) any {
	if !strings.EqualFold(args[0], "USAGE") {
		return syntaxError
	}
	if o := d.get(args[1]); o != nil {
		return int64(o.size)
	}
	return nil
}

// maxTime is the latest time at which a record can expire, in milliseconds.
const maxTime = 1 << 53

func expireIn(d *data, args []string, unit int64) any {
	n, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil || n > maxTime/unit || n < -maxTime/unit {
		return notInteger
	}
	return setExpiry(d, args[0], d.now+n*unit)
}

func expireAt(d *data, args []string) any {
	n, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil || n > maxTime {
		return notInteger
	}
	return setExpiry(d, args[0], n)
}

func setExpiry(d *data, key string, until int64) any {
	switch {
	case d.get(key) == nil:
		return int64(0)
	case until <= d.now:
		d.delete(key)
	default:
		d.setUntil(key, until)
	}
	return int64(1)
}

func persist(d *data, args []string) any {
	o := d.get(args[0])
	if o == nil || o.until == 0 {
		return int64(0)
	}
	d.setUntil(args[0], 0)
	return int64(1)
}

func timeToLive(d *data, key string, unit int64) any {
	switch o := d.get(key); {
	case o == nil:
		return int64(-2)
	case o.until == 0:
		return int64(-1)
	default:
		return (o.until - d.now + unit/2) / unit
	}
}

func renameKey(d *data, args []string) any {
	if d.get(args[0]) == nil {
		return noSuchKey
	}
	if args[0] != args[1] {
		d.rename(args[0], args[1])
	}
	return okReply
}

func copyKey(d *data, args []string) any {
	replace := len(args) == 3 && strings.EqualFold(args[2], "REPLACE")
	switch {
	case len(args) == 3 && !replace:
		return syntaxError
	case args[0] == args[1]:
		return errorReply("ERR source and destination objects are the same")
	case d.get(args[0]) == nil || !replace && d.get(args[1]) != nil:
		return int64(0)
	}
	d.copyTo(args[0], args[1])
	return int64(1)
}

func getString(d *data, args []string) any {
	o := d.get(args[0])
	if o == nil {
		return nil
	}
	if text, is := o.value.(string); is {
		return text
	}
	return wrongType
}

func getStrings(d *data, keys []string) any {
	values := make(arrayReply, len(keys))
	for i := range keys {
		if values[i] = getString(d, keys[i:]); values[i] == wrongType {
			values[i] = nil
		}
	}
	return values
}

func stringLength(d *data, args []string) any {
	text, err := valueOf[string](d, args[0])
	if err != nil {
		return err
	}
	return int64(len(text))
}

// parseStored parses a number that a command increments. It has only one form.
func parseStored(text string) (n int64, ok bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == text
}

func getRange(d *data, args []string) any {
	if _, _, err := rangeOf(args[1], args[2], 0); err != nil {
		return err
	}
	text, err := valueOf[string](d, args[0])
	if err != nil {
		return err
	}
	first, last, _ := rangeOf(args[1], args[2], len(text))
	return text[first:last]
}

func increment(d *data, args []string) any {
	text, err := valueOf[string](d, args[0])
	if err != nil {
		return err
	}
	n, until := int64(0), int64(0)
	if o := d.get(args[0]); o != nil {
		var ok bool
		if n, ok = parseStored(text); !ok {
			return notInteger
		}
		until = o.until
	}
	d.setString(args[0], strconv.FormatInt(n+1, 10))
	if until != 0 {
		d.setUntil(args[0], until)
	}
	return n + 1
}

func setStrings(d *data, args []string) any {
	if len(args)%2 != 0 {
		return errorReply("ERR wrong number of arguments for 'mset' command")
	}
	for pair := range slices.Chunk(args, 2) {
		d.setString(pair[0], pair[1])
	}
	return okReply
}

// setString carries out SET. It returns nil if a condition is not fulfilled.
func setString(d *data, args []string) any {
	o := d.get(args[0])
	until, onlyNew, onlyOld := int64(0), false, false
	for options := args[2:]; len(options) > 0; options = options[1:] {
		switch option := strings.ToUpper(options[0]); option {
		case "NX":
			onlyNew = true
		case "XX":
			onlyOld = true
		case "KEEPTTL":
			if o != nil {
				until = o.until
			}
		case "EX", "PX":
			if len(options) == 1 {
				return syntaxError
			}
			options = options[1:]
			n, err := strconv.ParseInt(options[0], 10, 64)
			unit := int64(1)
			if option == "EX" {
				unit = 1000
			}
			switch {
			case err != nil:
				return notInteger
			case n <= 0 || n > maxTime/unit:
				return errorReply("ERR invalid expire time in 'set' command")
			}
			until = d.now + n*unit
		default:
			return syntaxError
		}
	}
	if onlyNew && onlyOld {
		return syntaxError
	}
	if onlyNew && o != nil || onlyOld && o == nil {
		return nil
	}
	d.setString(args[0], args[1])
	if until != 0 {
		d.setUntil(args[0], until)
	}
	return okReply
}
