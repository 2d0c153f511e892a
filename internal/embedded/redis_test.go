package embedded

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/internal/redistest"
)

// Generators that draw from few texts, so that commands often use the same keys, members and
// values.
var (
	someKey    = rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
	someMember = rapid.SampledFrom([]string{"", "m", "mm", "n", "\xff", "5", "-3", "x y"})
	someScore  = rapid.SampledFrom([]string{"0", "0", "0", "1", "-2.5"})
	someNumber = rapid.SampledFrom([]string{"0", "1", "2", "-1", "-2", "100", "x"})
	someBound  = rapid.SampledFrom([]string{"-", "+", "[m", "(m", "[n", "(mm", "[", "("})
	someID     = rapid.SampledFrom([]string{"1-1", "2", "2-5", "3-0", "5-1", "-", "+", "(2-5", "(3"})
)

// shapes lists commands whose words are drawn one by one. The words that begin with < stand for
// what the generators above draw; a word that ends with + may come several times.
var shapes = []string{
	"GET <key", "SET <key <member", "SET <key <member NX", "SET <key <member XX", "SET <key <member EX 100", "SET <key <member PX 90000 NX",
	"SETNX <key <member", "MGET <key+", "MSET <key <member <key <member", "INCR <key", "STRLEN <key", "GETRANGE <key <number <number",
	"DEL <key+", "UNLINK <key+", "EXISTS <key+", "TYPE <key", "DBSIZE", "KEYS *", "RENAME <key <key", "COPY <key <key", "COPY <key <key REPLACE",
	"EXPIRE <key 100", "EXPIRE <key 0", "EXPIRE <key -1", "EXPIRE <key x", "PEXPIRE <key 100000", "PERSIST <key", "TTL <key",
	"HSET <key <member <member", "HSET <key <member <member <member <member", "HSET <key <member", "HSETNX <key <member <member", "HGET <key <member",
	"HMGET <key <member+", "HGETALL <key", "HDEL <key <member+", "HEXISTS <key <member", "HKEYS <key", "HLEN <key", "HINCRBY <key <member <number",
	"SADD <key <member+", "SREM <key <member+", "SCARD <key", "SISMEMBER <key <member", "SMISMEMBER <key <member+", "SMEMBERS <key", "SUNIONSTORE <key <key+",
	"ZADD <key <score <member", "ZADD <key 0 <member 0 <member", "ZREM <key <member+", "ZCARD <key", "ZSCORE <key <member", "ZRANGE <key <number <number",
	"ZRANGE <key <number <number REV", "ZRANGE <key <number <number WITHSCORES", "ZRANGE <key <number <number REV WITHSCORES",
	"ZINCRBY <key <score <member", "ZRANGEBYSCORE <key <score <score WITHSCORES", "ZRANGEBYSCORE <key -inf +inf",
	"ZRANGEBYSCORE <key -inf +inf LIMIT <number <number", "ZRANGEBYSCORE <key -inf 1 WITHSCORES LIMIT 1 2",
	"RPUSH <key <member+", "LPUSH <key <member+", "LPOP <key", "RPOP <key", "LREM <key <number <member", "LLEN <key", "LRANGE <key <number <number",
	"XADD <key <id f <member", "XADD <key MAXLEN 2 <id f <member", "XLEN <key", "XRANGE <key <id <id", "XRANGE <key - + COUNT 2", "XREVRANGE <key <id <id",
	"XREVRANGE <key + - COUNT 1", "XTRIM <key MAXLEN <number", "XTRIM <key MINID <id", "XDEL <key <id",
	"GET", "HSET <key", "NOSUCH <key", "ECHO <member", "PING", "SELECT 0", "FLUSHDB",
}

// lexShapes holds commands for lexicographical ranges, which Redis defines only for sorted sets
// whose scores are all the same, and commands that change such sets.
var lexShapes = []string{
	"ZADD <key 0 <member", "ZADD <key 0 <member 0 <member", "ZREM <key <member", "ZRANGEBYLEX <key <bound <bound", "ZLEXCOUNT <key <bound <bound", "ZREVRANGEBYLEX <key <bound <bound",
	"ZRANGEBYLEX <key <bound <bound LIMIT 1 2", "ZRANGEBYLEX <key <bound <bound LIMIT <number <number", "ZREVRANGEBYLEX <key <bound <bound LIMIT 0 1", "ZRANGE <key 0 -1", "ZRANGE <key <number <number REV", "SADD <key <member", "DEL <key",
}

func drawCommand(t *rapid.T, shapes []string) []any {
	var words []any
	for word := range strings.FieldsSeq(rapid.SampledFrom(shapes).Draw(t, "shape")) {
		name, many := strings.CutSuffix(word, "+")
		n := 1
		if word == "+" {
			name, many = word, false
		}
		if many {
			n = rapid.IntRange(1, 3).Draw(t, "n")
		}
		for range n {
			words = append(words, drawWord(t, name))
		}
	}
	return words
}

func drawWord(t *rapid.T, word string) string {
	switch word {
	case "<key":
		return someKey.Draw(t, "key")
	case "<member":
		return someMember.Draw(t, "member")
	case "<score":
		return someScore.Draw(t, "score")
	case "<number":
		return someNumber.Draw(t, "number")
	case "<bound":
		return someBound.Draw(t, "bound")
	case "<id":
		return someID.Draw(t, "id")
	}
	return word
}

// unordered lists the commands whose reply Redis gives in any order.
var unordered = []string{"KEYS", "SMEMBERS", "HKEYS"}

// showReply returns a reply as text: only the code of an error, and sorted if the order does not
// matter.
func showReply(name string, cmd *redis.Cmd) string {
	value, err := cmd.Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		code, _, _ := strings.Cut(err.Error(), " ")
		return code
	}
	list, ok := value.([]any)
	if ok && name == "HGETALL" { // through a script: fields and values alternate
		for i := 0; i+1 < len(list); i += 2 {
			list[i] = fmt.Sprintf("%q", list[i:i+2])
		}
		list = slices.DeleteFunc(list, func(v any) bool { return !strings.HasPrefix(fmt.Sprint(v), "[") })
	}
	if ok && (name == "HGETALL" || slices.Contains(unordered, name)) {
		texts := make([]string, len(list))
		for i := range list {
			texts[i] = fmt.Sprint(list[i])
		}
		sort.Strings(texts)
		return fmt.Sprintf("%q", texts)
	}
	return fmt.Sprintf("%q", value)
}

// TestAsRedis compares the replies to random commands with those of a real server. The commands are
// sent as they are and from scripts.
func TestAsRedis(t *testing.T) {
	real := redistest.Start(t).Client()
	for name, shapes := range map[string][]string{"all": shapes, "ranges": lexShapes} {
		t.Run(name, func(t *testing.T) {
			defer func(before int) { maxSmall = before }(maxSmall)
			rapid.Check(t, func(t *rapid.T) {
				maxSmall = rapid.SampledFrom([]int{1, 64}).Draw(t, "maxSmall")
				s, err := Open(t.Context(), "")
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				compareWithRedis(t, real, s.Client(), shapes)
			})
		})
	}
}

func compareWithRedis(t *rapid.T, real, ours *redis.Client, shapes []string) {
	ctx := t.Context()
	if err := real.FlushDB(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	for range rapid.IntRange(1, 30).Draw(t, "commands") {
		words := drawCommand(t, shapes)
		name := words[0].(string)
		sent := words
		switch rapid.IntRange(0, 3).Draw(t, "how") {
		case 0:
			sent = append([]any{"EVAL", "return redis.call(unpack(ARGV))", 0}, words...)
		case 1:
			sent = append([]any{"EVAL", "local r = redis.pcall(unpack(ARGV)) return type(r) == 'table' and r.err and {r.err:match('^%S+')} or r", 0}, words...)
		}
		want, got := showReply(name, real.Do(ctx, sent...)), showReply(name, ours.Do(ctx, sent...))
		if got != want {
			t.Fatalf("%q: got %s, but Redis replies %s", sent, got, want)
		}
	}
}

// TestScriptValues compares with a real server how values pass into scripts and out of them.
func TestScriptValues(t *testing.T) {
	real, ours := redistest.Start(t).Client(), open(t, "").Client()
	for _, script := range []string{
		"return 1", "return 3.99", "return -3.99", "return '1'", "return true", "return false", "return nil", "return {}", "return {1, 'a', {2}, nil, 3}",
		"return {ok = 'fine'}", "return {err = 'CODE text'}", "return redis.error_reply('text')", "return redis.error_reply('CODE text')",
		"return redis.error_reply('-CODE text')", "return redis.status_reply('fine')", "return redis.sha1hex('x')",
		"return redis.call('SET', 'k', 1)", "return redis.call('SET', 'k', 1.5) and redis.call('GET', 'k')",
		"redis.call('SET', 'k', 1e15) return redis.call('GET', 'k')", "redis.call('SET', 'k', 2^53) return redis.call('GET', 'k')",
		"return redis.call('GET', 'absent')", "return redis.pcall('GET', 'absent') == false",
		"return type(redis.call('HGETALL', 'absent'))", "redis.call('HSET', 'h', 'f', 'v') return redis.call('HGETALL', 'h')",
		"return redis.call('TYPE', 'h').ok", "return redis.call('TYPE', 'absent').ok", "return redis.pcall('GET', 'h').err",
		"redis.call('GET', 'h')", "error({err = 'CODE text'})", "error('text')", "return redis.call('NOSUCH')", "return redis.call('GET')",
		"return {KEYS[1], ARGV[1], #KEYS, #ARGV}", "return string.format('%.0f', 2^53)", "return #unpack({'abc'})",
		"return redis.call('ZSCORE', 'z', 'm')", "redis.call('ZADD', 'z', 1.5, 'm') return redis.call('ZSCORE', 'z', 'm')",
		"return {string.match('a b', '^(%S+) (%S+)$')}", "return tonumber('0x10')", "return math.floor(-1.5)", "return ('x'):rep(3)",
		"local t = {3, 1, 2} table.sort(t) return t", "return next({})", "return redis.call('ECHO', 'a\\0b')",
	} {
		show := func(c *redis.Client) string {
			value, err := c.Eval(t.Context(), script, []string{"key"}, "arg").Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				code, _, _ := strings.Cut(err.Error(), " ")
				return "error " + code
			}
			return fmt.Sprintf("%q", value)
		}
		if got, want := show(ours), show(real); got != want {
			t.Errorf("%s: got %s, but Redis replies %s", script, got, want)
		}
	}
}
