package embedded

import (
	"strconv"
	"strings"
)

// A command is a Redis command that the store supports, or one of its own, such as SCANKEYS.
// Replies are those of Redis 7, except that unordered replies are sorted, and that SSCAN, HSCAN and
// ZSCAN return everything in one step.
type command struct {
	min, max int // number of arguments; a negative max means any number
	// run executes the command. It changes nothing if it returns an errorReply.
	run func(d *data, args []string) any
}

const anyNumber = -1

// commands holds the commands that work on records, by their names in upper case.
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
	"ZLEXCOUNT":      {3, 3, countByLex},
	"ZRANGE":         {3, 5, rangeByRank},
	"ZRANGEBYLEX":    {3, 6, func(d *data, a []string) any { return rangeByLex(d, a, false) }},
	"ZRANGEBYSCORE":  {3, 7, rangeByScore},
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

// count returns the number of true arguments.
func count(all ...bool) int64 {
	n := int64(0)
	for _, b := range all {
		if b {
			n++
		}
	}
	return n
}

// valueOf returns the value at key. If there is none, it returns the zero value. If the value has
// another type, err is an errorReply.
func valueOf[T any](d *data, key string) (value T, err any) {
	o := d.get(key)
	if o == nil {
		return value, nil
	}
	value, ok := o.value.(T)
	if !ok {
		return value, wrongType
	}
	return value, nil
}

// errorOrEmpty returns err, or an empty reply if err is nil.
func errorOrEmpty[T any](err any) any {
	if err == nil {
		var empty T
		return empty
	}
	return err
}

// registerReadAll registers a read of all records.
func (d *data) registerReadAll() { d.read("") }
