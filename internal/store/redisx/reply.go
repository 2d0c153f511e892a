package redisx

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// A Shape is the set of kinds that a reply may have.
type Shape uint8

// Kinds of replies. A verdict is a list that begins with a word, which says what a script did.
const (
	IsNumber Shape = 1 << iota
	IsText
	IsNil
	IsList
	IsVerdict
	IsTexts
)

var shapeNames = []string{"a number", "a string", "nil", "a list", "a list that begins with a word", "a list of strings"}

func (s Shape) String() string {
	var names []string
	for i, name := range shapeNames {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " or ")
}

// Check returns ErrReply if the reply v has another kind.
func (s Shape) Check(v any) error {
	if s&shapesOf(v) != 0 {
		return nil
	}
	return fmt.Errorf("%w: %T, want %v", store.ErrReply, v, s)
}

// shapesOf returns all kinds that a reply belongs to.
func shapesOf(v any) Shape {
	switch v := v.(type) {
	case nil:
		return IsNil
	case int64:
		return IsNumber
	case string:
		return IsText
	case []any:
		s := IsList | IsTexts
		for i, item := range v {
			word, ok := item.(string)
			if !ok {
				s &^= IsTexts
			}
			if i == 0 && word != "" {
				s |= IsVerdict
			}
		}
		return s
	}
	return 0
}

// Answer returns the reply to a command if it has an expected kind. If err is an error other than
// redis.Nil, Answer returns err and does not read the command, which may still be under way.
func Answer(cmd *redis.Cmd, err error, reply Shape) (any, error) {
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	if err := reply.Check(cmd.Val()); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// List returns the reply to a command that returns a list of n items. Commands like MGET are sent
// by Do and read by List. The methods of go-redis for them would mistake a number, or the length of
// a text, for the length of a list, and allocate that much.
func List(cmd *redis.Cmd, n int) ([]any, error) {
	v, err := Answer(cmd, cmd.Err(), IsList)
	list := Items(v)
	return list, cmp.Or(err, CheckLength(len(list), n))
}

// CheckLength returns ErrReply unless a list has the expected length.
func CheckLength(got, want int) error {
	if got == want {
		return nil
	}
	return fmt.Errorf("%w: a list of %d items, want %d", store.ErrReply, got, want)
}

// UnknownWord returns ErrReply for a word that none of our scripts returns.
func UnknownWord(word string) error {
	const most = 40
	return fmt.Errorf("%w: unknown word %.*q", store.ErrReply, most, word)
}

// FoundAt converts what HGETALL of a PRK returned, fields or an error, to a store.Found (I3).
func FoundAt(key recordkey.Key, fields map[string]string, err error) store.Found {
	switch {
	case WrongType(err):
		return store.Found{Err: &store.CorruptError{Key: key.String(), Reason: "not a hash (WRONGTYPE)"}}
	case err != nil:
		return store.Found{Err: Fail(err)}
	}
	return store.FoundAt(key, fields)
}

// replyShapes maps tertiary commands to the kinds of their replies.
var replyShapes = map[string]Shape{
	"SADD": IsNumber, "SREM": IsNumber, "SISMEMBER": IsNumber, "SCARD": IsNumber, "SMEMBERS": IsTexts,
	"RPUSH": IsNumber, "LPUSH": IsNumber, "LREM": IsNumber, "LLEN": IsNumber,
	"LRANGE": IsTexts, "LPOP": IsText | IsNil, "RPOP": IsText | IsNil,
	"ZADD": IsNumber, "ZREM": IsNumber, "ZCARD": IsNumber, "ZINCRBY": IsText, "ZSCORE": IsText | IsNil,
	"ZRANGE": IsTexts, "ZRANGEBYSCORE": IsTexts,
	"HSET": IsNumber, "HDEL": IsNumber, "HLEN": IsNumber, "HGET": IsText | IsNil, "HGETALL": IsTexts,
	"SSCAN": IsTexts, "HSCAN": IsTexts,
	"SET": IsText, "GET": IsText | IsNil, "UNLINK": IsNumber,
}

// ParseReply parses what a client returned for a tertiary command. It returns ErrReply if the reply
// has another kind.
func ParseReply(command string, v any) (r store.Reply, err error) {
	v = flatten(v)
	if err := replyShapes[command].Check(v); err != nil {
		return r, err
	}
	switch v := v.(type) {
	case int64:
		r.Int = v
	case string:
		r.Text = v
	case []any:
		r.Items = Texts(v)
	default:
		r.Nil = true
	}
	return r, nil
}

// flatten converts a reply of RESP3 to the form of RESP2. It turns maps and nested lists into one
// flat list. It turns floating-point numbers, and integers in a list, into texts.
func flatten(v any) any {
	var list []any
	switch v := v.(type) {
	case float64:
		return fmt.Sprintf("%.17g", v)
	case map[any]any:
		for k, x := range v {
			list = append(list, k, x)
		}
		return flatten(list)
	case []any:
		for _, x := range v {
			switch x := flatten(x).(type) {
			case []any:
				list = append(list, x...)
			case int64:
				list = append(list, strconv.FormatInt(x, 10))
			default:
				list = append(list, x)
			}
		}
		return list
	}
	return v
}

// Elements returns the elements of a record as one list of texts, whichever version of the protocol
// the server uses.
func Elements(reply any) ([]string, error) {
	list := flatten(reply)
	return Texts(list), IsTexts.Check(list)
}

// Items returns the items of a list reply, or nil for another reply.
func Items(reply any) []any {
	list, _ := reply.([]any)
	return list
}

// Text returns item i of a list, or "" if it is not a text.
func Text(list []any, i int) string {
	if i >= len(list) {
		return ""
	}
	s, _ := list[i].(string)
	return s
}

// Texts returns the items of a reply that is a list of texts.
func Texts(reply any) []string {
	list := Items(reply)
	all := make([]string, len(list))
	for i := range list {
		all[i] = Text(list, i)
	}
	return all
}

// Numbers returns the items of a reply that is a list of numbers.
func Numbers(reply any) ([]int64, error) {
	list := Items(reply)
	all := make([]int64, len(list))
	for i, item := range list {
		if err := IsNumber.Check(item); err != nil {
			return nil, err
		}
		all[i] = item.(int64)
	}
	return all, nil
}
